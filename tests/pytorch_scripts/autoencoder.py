"""Compress vectors on a curve to two numbers and back."""

import numpy as np
import torch
from torch import nn, optim

rng = np.random.default_rng(2)
t = rng.uniform(0, 2 * np.pi, (32, 1))
data = 0.5 + 0.4 * np.sin(t * np.arange(1, 9)[None] / 4)
losses = []


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))
        self.decoder = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 8), nn.Sigmoid())

    def forward(self, x):
        return self.decoder(self.encoder(x))


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


model = Autoencoder().double()
seed_parameters(model)
criterion = nn.BCELoss()
optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-5)
for epoch in range(3):
    for batch in torch.tensor(data).chunk(4):
        output = model(batch)
        loss = criterion(output, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("epoch [{}/{}], loss:{:.4f}".format(epoch + 1, 3, loss.data))

with torch.no_grad():
    codes = model.encoder(torch.tensor(data))
    print(codes.shape, codes.mean(dim=0))
    losses += codes.mean(dim=0).tolist() + codes.std(dim=0).tolist()
