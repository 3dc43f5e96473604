"""A training run that may be killed at any moment: it uses every source of randomness, and saves every step.

Run as a program, it trains one step per line of its standard input, or to the end once that is closed.
"""

import os
import sys

import numpy as np

import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F

EPOCHS, SAMPLES, BATCH = 6, 44, 8
STEPS = EPOCHS * -(-SAMPLES // BATCH)


def parts():
    """Return model, optimizer, schedule and loader before training."""
    mg.manual_seed(3)
    model = nn.Sequential(
        nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4), nn.BatchNorm1d(4),
        nn.Linear(4, 3),
    )  # fmt: skip
    groups = [{"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
              {"params": [p for p in model.parameters() if p.ndim > 1]}]  # fmt: skip
    optimizer = optim.AdamW(groups, lr=0.01)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 0.02, STEPS)
    rng = np.random.default_rng(0)
    samples = data.ArrayDataset(rng.standard_normal((SAMPLES, 6), np.float32), rng.integers(0, 3, SAMPLES))
    loader = data.DataLoader(samples, BATCH, shuffle=True, prefetch=2)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}


def train(path, before_step=lambda: None):
    """Train from the checkpoint, or from the beginning if there is none; return the parts and the losses."""
    run, losses = parts(), []
    if os.path.exists(path):
        losses = mg.load_checkpoint(path, **run)["losses"]
    while run["loader"].epoch < EPOCHS:
        for x, y in run["loader"]:
            before_step()
            run["optimizer"].zero_grad()
            loss = F.cross_entropy(run["model"](x), y)
            loss.backward()
            run["optimizer"].step()
            run["scheduler"].step()
            losses.append(loss.item())
            mg.save_checkpoint(path, **run, losses=losses)
    return run, losses


def wait_for_a_line():
    sys.stdin.readline()


if __name__ == "__main__":
    print("ready", flush=True)
    train(sys.argv[1], wait_for_a_line)
