"""L-BFGS with a closure: the Rosenbrock function, and a small network."""

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from utils import seed_parameters

losses = []


def rosenbrock(xy):
    x, y = xy
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


for options in (
    {"lr": 1e-3},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 3},
):
    xy = torch.tensor([-1.5, 2.0], dtype=torch.float64, requires_grad=True)
    optimizer = optim.LBFGS([xy], max_iter=5, **options)
    for _ in range(5):

        def closure():
            optimizer.zero_grad()
            objective = rosenbrock(xy)
            objective.backward()
            return objective

        losses.append(optimizer.step(closure).item())
    print(options, xy.tolist())

t = np.linspace(0, 3, 25)
inputs, targets = torch.from_numpy(t).unsqueeze(1), torch.from_numpy(np.sin(2 * t)).unsqueeze(1)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).double()
seed_parameters(model)
criterion = nn.MSELoss()
optimizer = optim.LBFGS(model.parameters(), lr=0.8, max_iter=4, tolerance_change=1e-12)
for i in range(6):

    def closure():
        optimizer.zero_grad()
        out = model(inputs)
        loss = criterion(out, targets)
        losses.append(loss.item())
        loss.backward()
        return loss

    optimizer.step(closure)
with torch.no_grad():
    pred = model(inputs)
    print("test loss:", criterion(pred, targets).item())
