"""Gradients of several small batches add up to one step, and are clipped by value and norm."""

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters
from torch.utils.data import DataLoader, TensorDataset
from utils import seed_parameters

rng = np.random.default_rng(26)
dataset = TensorDataset(torch.from_numpy(rng.normal(size=(32, 5))), torch.from_numpy(rng.normal(size=(32, 2))))
losses = []


def make_model():
    model = nn.Sequential(nn.Linear(5, 7), nn.SiLU(), nn.Linear(7, 2)).double()
    seed_parameters(model)
    return model


def run(batch_size, accumulation_steps):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.1)
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=False)
    optimizer.zero_grad()
    for epoch in range(2):
        for i, (inputs, targets) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss = loss / accumulation_steps
            loss.backward()
            if (i + 1) % accumulation_steps == 0:
                norm = clip_grad_norm_(model.parameters(), max_norm=0.3)
                clip_grad_value_(model.parameters(), clip_value=0.1)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(norm))
            losses.append(loss.item())
    return model


whole, parts = run(16, 1), run(4, 4)
difference = max((p - q).abs().max().item() for p, q in zip(whole.parameters(), parts.parameters()))
print(f"difference {difference:.1e}")
assert difference < 1e-12

vector = parameters_to_vector(whole.parameters())
ema = vector.detach().clone()
ema.mul_(0.9).add_(parameters_to_vector(make_model().parameters()).detach(), alpha=0.1)
averaged = make_model()
vector_to_parameters(ema, averaged.parameters())
losses += [vector.norm().item(), ema.sum().item(), averaged(dataset[:4][0]).sum().item()]
