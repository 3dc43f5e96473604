"""Solve the differential equation u' = -u + cos(t) with a network: derivatives with create_graph."""

import torch
import torch.nn as nn
from utils import seed_parameters, update

losses = []


class PINN(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(1, width), nn.Linear(width, width)])
        self.out = nn.Linear(width, 1)

    def forward(self, t):
        for layer in self.hidden:
            t = torch.tanh(layer(t))
        return self.out(t)


model = PINN().double()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
t = torch.linspace(0.0, 2.0, 15, dtype=torch.float64).view(-1, 1)
t.requires_grad = True
t0 = torch.zeros((1, 1), dtype=torch.float64)
for step in range(10):
    u = model(t)
    du_dt = torch.autograd.grad(u, t, grad_outputs=torch.ones_like(u), create_graph=True)[0]
    d2u_dt2 = torch.autograd.grad(du_dt.sum(), t, create_graph=True)[0]
    residual = du_dt + u - torch.cos(t)
    smooth = d2u_dt2.pow(2).mean()
    loss = (residual**2).mean() + (model(t0) - 1.0).pow(2).mean() + 1e-3 * smooth
    losses.append(update(optimizer, loss))
with torch.no_grad():
    error = (model(t) - (0.5 * (torch.cos(t) + torch.sin(t)) + 0.5 * torch.exp(-t))).abs().max()
print(f"largest error {error:.3f}")
losses.append(error.item())
