"""Save a network and its optimizer in the middle of training, load both, and continue."""

import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(12)
x = torch.from_numpy(rng.normal(size=(20, 3)))
y = torch.from_numpy(rng.normal(size=(20, 1)))
PATH = os.path.join(tempfile.mkdtemp(), "model.pt")
losses = []


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


def build():
    model = nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)).double()
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def train(model, optimizer, steps):
    model.train()
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return loss


model, optimizer = build()
seed_parameters(model)
train(model, optimizer, 5)
torch.save(model.state_dict(), PATH)
optimizer_state = copy.deepcopy(optimizer.state_dict())
best_model = copy.deepcopy(model.state_dict())
train(model, optimizer, 3)

model, optimizer = build()
print(model.load_state_dict(torch.load(PATH)))
optimizer.load_state_dict(optimizer_state)
train(model, optimizer, 5)

model.load_state_dict(best_model)
model.eval()
with torch.no_grad():
    losses.append(nn.functional.mse_loss(model(x), y).item())
for name, value in model.state_dict().items():
    print(name, "\t", value.size())
    losses.append(value.double().sum().item())
keys = model.load_state_dict({"0.weight": torch.zeros(8, 3, dtype=torch.float64), "head": y}, strict=False)
assert "3.bias" in keys.missing_keys and keys.unexpected_keys == ["head"]
os.remove(PATH)
