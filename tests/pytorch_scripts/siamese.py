"""A siamese network with a contrastive loss, and a triplet loss from distances."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import seed_parameters, update

rng = np.random.default_rng(21)
labels = rng.integers(0, 2, 24)
points = torch.from_numpy(rng.normal(size=(24, 4)) + 2.0 * labels[:, None])
first, second = points[:12], points[12:]
same = torch.from_numpy((labels[:12] == labels[12:]).astype(np.float64))
losses = []


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 3))

    def forward_once(self, x):
        return self.net(x)

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = torch.norm(output1 - output2, p=2, dim=1)
        return torch.mean(
            label * torch.pow(euclidean_distance, 2)
            + (1 - label) * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )


net = SiameseNetwork().double()
seed_parameters(net)
criterion = ContrastiveLoss(margin=2.0)
optimizer = torch.optim.Adam(net.parameters(), lr=0.02, amsgrad=True)
for epoch in range(8):
    output1, output2 = net(first, second)
    loss_contrastive = criterion(output1, output2, same)
    losses.append(update(optimizer, loss_contrastive))

for epoch in range(4):
    anchor, near, far = net.forward_once(points[:6]), net.forward_once(points[6:12]), net.forward_once(points[12:18])
    distances = (anchor - near).norm(dim=1) - (anchor - far).norm(dim=1) + 0.5
    loss = distances.clamp(min=0).mean()
    losses.append(update(optimizer, loss))
losses += F.cosine_similarity(output1, output2).tolist()
