"""Modules that have a part of every kind."""

import minigrad as mg
from minigrad import nn


class Scale(nn.Module):
    """A module with a parameter, a running mean and a temporary buffer."""

    def __init__(self, size, name="scale"):
        super().__init__()
        self.gain = nn.Parameter(mg.ones(size))
        self.register_buffer("mean", mg.zeros(size))
        self.register_buffer("scratch", mg.zeros(1), persistent=False)
        self.label = name

    def forward(self, x, shift=0.0):
        return self.gain * (x - self.mean) + shift


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.block = nn.Sequential(Scale(4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4)))
        self.missing = None
        self.register_parameter("absent", None)
        self.last = nn.Parameter(mg.zeros((2, 4)))

    def forward(self, x):
        return self.block(self.first(x)) @ self.last.T
