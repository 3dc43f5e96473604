"""Train with learning rates that change: steps, cosine, warm-up, one cycle, and a plateau."""

import numpy as np
import torch
import torch.nn as nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau, StepLR
from utils import seed_parameters

rng = np.random.default_rng(11)
x = torch.from_numpy(rng.normal(size=(30, 4)))
y = x @ torch.tensor([[1.0], [-2.0], [0.5], [3.0]], dtype=torch.double) + 0.1
losses = []


def warmup(step):
    return min(1.0, (step + 1) / 5)


schedules = [
    lambda optimizer: StepLR(optimizer, step_size=3, gamma=0.5),
    lambda optimizer: lr_scheduler.MultiStepLR(optimizer, milestones=[2, 6], gamma=0.3),
    lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=0.9),
    lambda optimizer: CosineAnnealingLR(optimizer, T_max=8, eta_min=1e-3),
    lambda optimizer: LambdaLR(optimizer, lr_lambda=warmup),
    lambda optimizer: OneCycleLR(optimizer, max_lr=0.2, steps_per_epoch=2, epochs=5),
    lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        schedulers=[
            lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3),
            lr_scheduler.CosineAnnealingLR(optimizer, T_max=7),
        ],
        milestones=[3],
    ),
]
for make in schedules:
    model = nn.Linear(4, 1).double()
    seed_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = make(optimizer)
    for epoch in range(10):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item(), optimizer.param_groups[0]["lr"], scheduler.get_last_lr()[0]]
        scheduler.step()

model = nn.Linear(4, 1).double()
seed_parameters(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=1, threshold=0.5)
for epoch in range(12):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())
    losses += [loss.item(), optimizer.param_groups[0]["lr"]]
print(f"final learning rate {optimizer.param_groups[0]['lr']:.4f}")
