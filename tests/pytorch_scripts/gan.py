"""A generative adversarial network for points on a circle."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(6)
latent_dim = 4
losses = []


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(*block(latent_dim, 8, normalize=False), *block(8, 16), nn.Linear(16, 2), nn.Tanh())

    def forward(self, z):
        return self.model(z)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, x):
        return self.model(x)


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


adversarial_loss = torch.nn.BCELoss()
generator, discriminator = Generator().double(), Discriminator().double()
seed_parameters(generator, 0)
seed_parameters(discriminator, 1)
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.01, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.01, betas=(0.5, 0.999))

for i in range(8):
    angle = rng.uniform(0, 2 * np.pi, 16)
    real = torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))
    valid = torch.ones(real.size(0), 1, dtype=torch.float64, requires_grad=False)
    fake = torch.zeros(real.size(0), 1, dtype=torch.float64, requires_grad=False)

    optimizer_G.zero_grad()
    z = torch.from_numpy(rng.normal(0, 1, (real.shape[0], latent_dim)))
    gen = generator(z)
    g_loss = adversarial_loss(discriminator(gen), valid)
    g_loss.backward()
    optimizer_G.step()

    optimizer_D.zero_grad()
    real_loss = adversarial_loss(discriminator(real), valid)
    fake_loss = adversarial_loss(discriminator(gen.detach()), fake)
    d_loss = (real_loss + fake_loss) / 2
    d_loss.backward()
    optimizer_D.step()
    losses += [d_loss.item(), g_loss.item()]
    print("[Batch %d] [D loss: %f] [G loss: %f]" % (i, d_loss.item(), g_loss.item()))
