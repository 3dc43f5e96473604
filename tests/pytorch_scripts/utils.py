"""What the programs share: parameters that do not depend on the framework's random numbers, and a step of training."""

import numpy as np
import torch


def seed_parameters(model, seed=0):
    rng = np.random.default_rng(seed)
    for p in model.parameters():
        p.data.copy_(torch.from_numpy(rng.normal(0, 0.3, tuple(p.shape))))


def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
