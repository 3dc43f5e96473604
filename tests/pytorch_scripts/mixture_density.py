"""A mixture density network: several normal distributions for each input, by log-sum-exp."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import seed_parameters

rng = np.random.default_rng(27)
y = torch.from_numpy(rng.uniform(-1, 1, (40, 1)))
x = y + 0.3 * torch.sin(2 * math.pi * y) + torch.from_numpy(rng.normal(0, 0.05, (40, 1)))
losses = []


class MDN(nn.Module):
    def __init__(self, n_hidden, n_gaussians):
        super().__init__()
        self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
        self.z_pi = nn.Linear(n_hidden, n_gaussians)
        self.z_sigma = nn.Linear(n_hidden, n_gaussians)
        self.z_mu = nn.Linear(n_hidden, n_gaussians)

    def forward(self, x):
        z_h = self.z_h(x)
        pi = nn.functional.log_softmax(self.z_pi(z_h), -1)
        sigma = F.softplus(self.z_sigma(z_h)) + 1e-3
        return pi, sigma, self.z_mu(z_h)


def mdn_loss_fn(log_pi, sigma, mu, y):
    log_prob = -0.5 * ((y.expand_as(mu) - mu) / sigma).square() - sigma.log() - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log_pi + log_prob, dim=1).mean()


network = MDN(n_hidden=10, n_gaussians=3).double()
seed_parameters(network)
optimizer = torch.optim.RMSprop(network.parameters(), lr=0.01, alpha=0.95, momentum=0.5, centered=True)
for epoch in range(10):
    log_pi, sigma, mu = network(x)
    loss = mdn_loss_fn(log_pi, sigma, mu, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.data.item())
    if epoch % 5 == 0:
        print(epoch, loss.data.tolist())
with torch.inference_mode():
    log_pi, sigma, mu = network(torch.zeros(1, 1, dtype=torch.float64))
    k = torch.argmax(log_pi, dim=-1)
    losses += [mu[0, k].item(), sigma.gather(1, k.unsqueeze(1)).item(), log_pi.exp().sum().item()]
