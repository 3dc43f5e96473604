"""Control flow and containers: a network whose depth is chosen at each step, and a stack of experts."""

import random

import numpy as np
import torch
import torch.nn as nn
from utils import update

random.seed(1)
losses = []


class DynamicNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.zeros(()))
        self.b = nn.Parameter(torch.zeros(()))
        self.e = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        y = self.a + self.b * x
        for exp in range(2, random.randint(3, 5)):
            y = y + self.e * x**exp
        return y

    def string(self):
        return f"y = {self.a.item()} + {self.b.item()} x + {self.e.item()} x^2 ?"


class Experts(nn.Module):
    def __init__(self, choices):
        super().__init__()
        self.choices = nn.ModuleDict(choices)
        self.layers = nn.ModuleList()
        for i in range(3):
            self.layers.append(nn.Linear(4, 4))
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(3)])
        self.register_parameter("offset", nn.Parameter(torch.zeros(1)))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x, choice):
        self.seen += 1
        for layer, scale in zip(self.layers, self.scales):
            x = self.choices[choice](layer(x)) * scale
        return x.mean(dim=1, keepdim=True) + self.offset


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    with torch.no_grad():
        for name, param in sorted(model.named_parameters()):
            param.copy_(torch.from_numpy(rng.normal(0, 0.4, tuple(param.shape))))


x = torch.linspace(-1, 1, 30, dtype=torch.float64)
y = torch.sin(2 * x)
model = DynamicNet().double()
seed_parameters(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for t in range(12):
    loss = nn.MSELoss(reduction="sum")(model(x), y)
    losses.append(loss.item())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"Result: {model.string()}")

rng = np.random.default_rng(30)
inputs, targets = torch.from_numpy(rng.normal(size=(9, 4))), torch.from_numpy(rng.normal(size=(9, 1)))
model = Experts({"relu": nn.ReLU(), "tanh": nn.Tanh(), "leaky": nn.LeakyReLU()}).double()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for choice in ["relu", "tanh", "leaky"] * 3:
    loss = nn.functional.huber_loss(model(inputs, choice), targets, delta=0.5)
    losses.append(update(optimizer, loss))
losses.append(int(model.seen))
losses.append(len([name for name, module in model.named_modules()]))
