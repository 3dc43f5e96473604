"""One-dimensional convolutions, strided and dilated, over signals in float32."""

import numpy as np
import torch
from torch import Tensor, nn
from utils import seed_parameters

rng = np.random.default_rng(34)
time = np.arange(64) / 64
frequency = rng.integers(1, 4, 12)
signals = np.sin(2 * np.pi * 4 * frequency[:, None] * time) + rng.normal(0, 0.1, (12, 64))
x: Tensor = torch.as_tensor(signals, dtype=torch.float32).unsqueeze(1)
y = torch.as_tensor(frequency - 1)
losses = []


class CausalConv1d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, dilation):
        super().__init__()
        self.padding = (kernel_size - 1) * dilation
        self.conv = nn.Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(nn.functional.pad(x, (self.padding, 0)))


class WaveNet(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.start = nn.Conv1d(1, channels, kernel_size=5, stride=2, padding=2)
        self.norm = nn.InstanceNorm1d(channels, affine=True)
        self.filters = nn.ModuleList([CausalConv1d(channels, channels, 2, 2**i) for i in range(3)])
        self.gates = nn.ModuleList([CausalConv1d(channels, channels, 2, 2**i) for i in range(3)])
        self.end = nn.Linear(channels, 3)

    def forward(self, x):
        x = self.norm(self.start(x))
        skip = 0
        for conv, gate in zip(self.filters, self.gates):
            residual = torch.tanh(conv(x)) * torch.sigmoid(gate(x))
            skip = skip + residual
            x = x + residual
        return self.end(skip.abs().max(dim=-1)[0])


model = WaveNet()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_fn = nn.CrossEntropyLoss()
model.train(True)
for epoch in range(6):
    running_loss = 0.0
    for inputs, labels in zip(torch.chunk(x, 2), torch.chunk(y, 2)):
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = loss_fn(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        losses.append(loss.item())
    print("  epoch {} loss: {}".format(epoch + 1, running_loss / 2))
