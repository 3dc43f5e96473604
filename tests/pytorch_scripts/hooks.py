"""Look into a network with forward, backward and tensor hooks, and change what flows through it."""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
from utils import seed_parameters

rng = np.random.default_rng(10)
model = nn.Sequential(OrderedDict([("fc1", nn.Linear(5, 8)), ("act", nn.ReLU()), ("fc2", nn.Linear(8, 3))])).double()
losses = []
activations, gradients = {}, {}


def get_activation(name):
    def hook(module, input, output):
        activations[name] = output.detach()

    return hook


def save_gradient(module, grad_input, grad_output):
    gradients[module] = grad_output[0].norm().item()


def halve(module, grad_input, grad_output):
    return tuple(None if g is None else g * 0.5 for g in grad_input)


seed_parameters(model)
handles = [layer.register_forward_hook(get_activation(name)) for name, layer in model.named_children()]
handles += [layer.register_full_backward_hook(save_gradient) for layer in model]
handles.append(model.act.register_full_backward_hook(halve))
handles.append(model.fc2.register_forward_pre_hook(lambda module, args: (args[0] * 2.0,)))
handles.append(model.fc1.bias.register_hook(lambda grad: grad * 0.1))

x = torch.from_numpy(rng.normal(size=(6, 5)))
y = torch.from_numpy(rng.integers(0, 3, 6))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(6):
    if step == 4:
        for handle in handles:
            handle.remove()
        activations.clear()
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    losses += [value.abs().mean().item() for value in activations.values()]
    losses += [gradients[layer] for layer in model]
    losses += [p.grad.norm().item() for p in model.parameters()]
assert not activations
print(f"{len(losses)} numbers")
