"""Change an image, not a network: match features of one image and Gram matrices of another."""

import copy

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from utils import seed_parameters

rng = np.random.default_rng(29)
content_img, style_img = (torch.from_numpy(rng.random((1, 3, 8, 8))) for _ in range(2))
losses = []


def gram_matrix(input):
    a, b, c, d = input.size()
    features = input.view(a * b, c * d)
    G = torch.mm(features, features.t())
    return G.div(a * b * c * d)


class ContentLoss(nn.Module):
    def __init__(self, target):
        super(ContentLoss, self).__init__()
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        self.loss = F.mse_loss(gram_matrix(input), self.target)
        return input


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super(Normalization, self).__init__()
        self.mean = torch.tensor(mean, dtype=torch.float64).view(-1, 1, 1)
        self.std = torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)

    def forward(self, img):
        return (img - self.mean) / self.std


cnn = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3, 2), nn.ReLU()).double()
seed_parameters(cnn)
cnn = copy.deepcopy(cnn).eval().requires_grad_(False)
model = nn.Sequential(Normalization([0.48, 0.46, 0.41], [0.23, 0.22, 0.22]))
content_losses, style_losses = [], []
for i, layer in enumerate(cnn.children()):
    name = "{}_{}".format(type(layer).__name__, i)
    if isinstance(layer, nn.ReLU):
        layer = nn.ReLU(inplace=False)
    model.add_module(name, layer)
    if isinstance(layer, nn.Conv2d):
        content_losses.append(ContentLoss(model(content_img)))
        model.add_module("content_loss_{}".format(i), content_losses[-1])
        style_losses.append(StyleLoss(model(style_img).detach()))
        model.add_module("style_loss_{}".format(i), style_losses[-1])

input_img = content_img.clone()
input_img.requires_grad_(True)
model.eval()
optimizer = optim.LBFGS([input_img])
for run in range(2):

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        loss = 1e3 * sum(sl.loss for sl in style_losses) + sum(cl.loss for cl in content_losses)
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
print(f"{len(losses)} evaluations")
