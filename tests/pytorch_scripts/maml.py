"""Meta-learning: the loss after one step of gradient descent, differentiated through that step."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import update

rng = np.random.default_rng(32)
losses = []

weights = [
    nn.Parameter(torch.from_numpy(rng.normal(0, 0.5, shape))) for shape in [(8, 1), (8,), (8, 8), (8,), (1, 8), (1,)]
]


def net(x, weights):
    for i in range(0, len(weights) - 2, 2):
        x = F.relu(F.linear(x, weights[i], weights[i + 1]))
    return F.linear(x, weights[-2], weights[-1])


def sample_task():
    amplitude, phase = rng.uniform(0.5, 2.0), rng.uniform(0, np.pi)
    x = torch.from_numpy(rng.uniform(-3, 3, (10, 1)))
    return x, amplitude * torch.sin(x + phase)


inner_lr = 0.05
optimizer = torch.optim.Adam(weights, lr=0.01)
for iteration in range(6):
    meta_loss = 0.0
    for task in range(3):
        x, y = sample_task()
        support_loss = F.mse_loss(net(x[:5], weights), y[:5])
        grads = torch.autograd.grad(support_loss, weights, create_graph=True)
        fast_weights = [w - inner_lr * g for w, g in zip(weights, grads)]
        meta_loss = meta_loss + F.mse_loss(net(x[5:], fast_weights), y[5:])
    meta_loss = meta_loss / 3
    losses.append(update(optimizer, meta_loss))
    losses += [w.grad.norm().item() for w in weights]
print(f"meta loss {losses[-7]:.3f}")
unused = torch.ones(2, dtype=torch.float64, requires_grad=True)
grads = torch.autograd.grad(weights[0].sum(), [weights[0], unused], allow_unused=True)
assert grads[1] is None
