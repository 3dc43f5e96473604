"""A generator of points on a ring against a discriminator, with labels smoothed and weights initialized by name."""

import numpy as np
import torch
import torch.nn as nn

rng = np.random.default_rng(49)
nz, nc, batch = 3, 2, 8
real_label, fake_label = 0.9, 0.0
losses = []


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Linear") != -1:
        m.weight.data.copy_(torch.from_numpy(rng.normal(0.0, 0.4, tuple(m.weight.shape))))
        m.bias.data.fill_(0)
    elif classname.find("BatchNorm") != -1:
        m.weight.data.fill_(1.0)
        m.bias.data.fill_(0)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        self.main = nn.Sequential(nn.Linear(nz, 8), nn.BatchNorm1d(8, 0.8), nn.ReLU(True), nn.Linear(8, nc), nn.Tanh())

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.main = nn.Sequential(nn.Linear(nc, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


netG, netD = Generator().double(), Discriminator().double()
netG.apply(weights_init)
netD.apply(weights_init)
criterion = torch.nn.BCELoss()
optimizerD = torch.optim.Adam(netD.parameters(), lr=0.02, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(netG.parameters(), lr=0.02, betas=(0.5, 0.999))
for i in range(5):
    angle = torch.from_numpy(rng.uniform(0, 6.28, batch))
    data = torch.stack([angle.cos(), angle.sin()], 1)
    # (1) Update D network: maximize log(D(x)) + log(1 - D(G(z)))
    netD.zero_grad()
    label = torch.full((batch,), real_label, dtype=data.dtype)
    output = netD(data)
    errD_real = criterion(output, label)
    errD_real.backward()
    noise = torch.from_numpy(rng.normal(size=(batch, nz)))
    fake = netG(noise)
    label.fill_(fake_label)
    errD_fake = criterion(netD(fake.detach()), label)
    errD_fake.backward()
    optimizerD.step()
    # (2) Update G network: maximize log(D(G(z)))
    netG.zero_grad()
    label.fill_(real_label)
    output = netD(fake)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    losses += [(errD_real + errD_fake).item(), errG.item(), output.mean().item()]

closest, place = torch.min((fake.unsqueeze(1) - data.unsqueeze(0)).norm(dim=2), 1)
radius = torch.max(fake.norm(dim=1), torch.ones(batch, dtype=torch.double) * 0.5)
order = radius.sort()[1]
losses += closest.tolist() + [radius.std().item(), *order.tolist(), torch.max(place).item()]
