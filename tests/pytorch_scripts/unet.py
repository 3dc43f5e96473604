"""Segment squares in noise with a small U-Net."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from utils import seed_parameters, update

rng = np.random.default_rng(15)
masks = np.zeros((4, 1, 8, 8))
for mask in masks:
    i, j = rng.integers(0, 5, 2)
    mask[0, i : i + 3, j : j + 3] = 1.0
images = torch.tensor(masks + rng.normal(0, 0.3, masks.shape))
masks = torch.tensor(masks)
losses = []


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels + out_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc = DoubleConv(1, 4)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 6))
        self.down2 = nn.Sequential(nn.AvgPool2d(2), DoubleConv(6, 8))
        self.up1 = Up(8, 6, bilinear=False)
        self.up2 = Up(6, 4, bilinear=True)
        self.outc = nn.Conv2d(4, 1, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


def dice_loss(inputs, targets, smooth=1.0):
    inputs, targets = torch.sigmoid(inputs).view(-1), targets.view(-1)
    intersection = (inputs * targets).sum()
    return 1 - (2.0 * intersection + smooth) / (inputs.sum() + targets.sum() + smooth)


model = UNet().double()
seed_parameters(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(5):
    logits = model(images)
    loss = F.binary_cross_entropy_with_logits(logits, masks) + dice_loss(logits, masks)
    losses.append(update(optimizer, loss))
print("intersection", ((logits > 0) & (masks > 0)).sum().item())
