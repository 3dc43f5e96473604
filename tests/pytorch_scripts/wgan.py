"""A Wasserstein GAN whose critic has a penalty on the norm of its gradient."""

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
from utils import seed_parameters

rng = np.random.default_rng(24)
lambda_gp, n_critic = 10, 2
losses = []


def compute_gradient_penalty(D, real_samples, fake_samples):
    alpha = torch.tensor(rng.random((real_samples.size(0), 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=torch.ones(real_samples.shape[0], 1, dtype=torch.float64),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(True), nn.Linear(8, 2)).double()
discriminator = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1)).double()
seed_parameters(generator, 0)
seed_parameters(discriminator, 1)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.9))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.01, betas=(0.5, 0.9))
for i in range(8):
    real = torch.from_numpy(rng.normal((1.0, -1.0), 0.2, (10, 2)))
    optimizer_D.zero_grad()
    z = torch.from_numpy(rng.normal(0, 1, (10, 3)))
    fake = generator(z)
    penalty = compute_gradient_penalty(discriminator, real.data, fake.data)
    d_loss = -torch.mean(discriminator(real)) + torch.mean(discriminator(fake.detach())) + lambda_gp * penalty
    d_loss.backward()
    optimizer_D.step()
    optimizer_G.zero_grad()
    losses.append(d_loss.item())
    if i % n_critic == 0:
        g_loss = -torch.mean(discriminator(generator(z)))
        g_loss.backward()
        optimizer_G.step()
        losses.append(g_loss.item())
print(f"[D loss: {d_loss.item():f}] [G loss: {g_loss.item():f}]")
