"""A variational autoencoder of small pictures, and a grid of pictures decoded from its latent space."""

import numpy as np
import torch
import torch.utils.data
from torch import nn, optim
from torch.nn import functional as F

rng = np.random.default_rng(48)
pictures = (rng.random((12, 1, 4, 4)) < np.linspace(0.1, 0.9, 4)).astype(np.float64)
noise = torch.from_numpy(rng.normal(size=(12, 2)))
losses = []


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1 = nn.Linear(16, 8)
        self.fc2 = nn.Linear(8, 4)
        self.fc3 = nn.Linear(2, 8)
        self.fc4 = nn.Linear(8, 16)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        mu, logvar = self.fc2(h1).split([2, 2], 1)
        return mu, logvar

    def reparameterize(self, mu, logvar, eps):
        std = torch.exp(0.5 * logvar)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x.view(-1, 16))
        return self.decode(self.reparameterize(mu, logvar, eps)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 16), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


model = VAE().to(torch.float64)
for p in model.parameters():
    p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))
optimizer = optim.Adam(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(list(zip(pictures, noise)), batch_size=4, shuffle=False)
for epoch in range(3):
    train_loss = 0
    for data, eps in loader:
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, eps)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
    losses.append(train_loss / len(loader.dataset))
    print("====> Epoch: {} Average loss: {:.4f}".format(epoch, losses[-1]))

with torch.no_grad():
    images = torch.utils.data.DataLoader(torch.from_numpy(pictures), batch_size=5)
    for data, eps in zip(images, noise.chunk(3)):
        losses.append(model(data, eps[:2].mean(0))[0].std(dim=0).mean().item())
    first, second = torch.meshgrid(torch.linspace(-1, 1, 2), torch.linspace(-2, 2, 3), indexing="ij")
    grid = torch.stack((first.flatten(), second.flatten()), dim=1).double()
    sample = model.decode(grid).view(6, 1, 4, 4)
    brightest = sample.view(6, -1).max(dim=1)
losses += brightest[0].tolist() + brightest[1].tolist() + sample.mean((1, 2, 3)).tolist()
losses += [mu.var(dim=0).sum().item(), mu.t().repeat(2, 1).size(0), sample.repeat(1, 3, 1, 1).sum().item()]
