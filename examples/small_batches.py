"""With batches of two images, does group normalization beat batch normalization, and does accumulating gradients help?

Model: LeNet (convolutions with 6 and 16 channels, 5 x 5, max pooling, 120-84-10) with ReLU and norms after the
convolutions, SGD 0.002 with momentum 0.9.
Measured: training loss and test error at batch 2. Then, from the same weights, the distance between a step with the
accumulated gradients of 16 batches of two and a step with one batch of 32, relative to the length of the latter.
"""

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

NORMS: dict[str, Callable[[int], nn.Module]] = {
    "none": lambda channels: nn.Identity(),
    "batch": nn.BatchNorm2d,
    "layer": lambda channels: nn.GroupNorm(1, channels),
    "group": lambda channels: nn.GroupNorm(2, channels),
}


def build(norm: str) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), NORMS[norm](6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), NORMS[norm](16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def accumulation(norm: str, sets: tuple[ex.Arrays, ex.Arrays], args: argparse.Namespace) -> np.ndarray:
    """Return the relative distance of the two gradients, one per seed."""
    found = []
    for seed in range(args.seed, args.seed + args.seeds):
        mg.manual_seed(seed)
        model = build(norm).to("float64").to(args.device)
        chosen = mg.random.permutation(len(sets[0][1]))[:32]
        x, y = sets[0][0][chosen].to("float64"), sets[0][1][chosen]
        gradients = []
        for parts in (1, 16):
            model.zero_grad()
            for some_x, some_y in zip(mg.split(x, parts), mg.split(y, parts), strict=True):
                (F.cross_entropy(model(some_x), some_y) / parts).backward()
            slopes = [p.grad.to("cpu").numpy().ravel() for p in model.parameters() if p.grad is not None]
            gradients.append(np.concatenate(slopes))
        found.append(np.linalg.norm(gradients[1] - gradients[0]) / np.linalg.norm(gradients[0]))
    return np.array(found)


def main() -> None:
    args = ex.options(__doc__, {"epochs": 10, "batch_size": 2, "seeds": 5}, {"epochs": 3, "seeds": 3}, NORMS,
                      data=ex.MNIST)  # fmt: skip
    sets = ex.images(args, flat=False)
    runs = {norm: ex.train(args, ex.LABELS[norm], partial(build, norm), sets,
                           partial(optim.SGD, lr=0.002, momentum=0.9)) for norm in args.norm}  # fmt: skip
    apart = {norm: accumulation(norm, sets, args) for norm in args.norm}
    ex.show("norm | training loss, whole run | test error, % | gradient of 16 × 2 against 32: relative distance", [
        (ex.LABELS[norm], losses.mean(1), 100 * errors[:, -1], apart[norm])
        for norm, (losses, errors, _) in runs.items()
    ])  # fmt: skip

    if {"group", "batch"} <= set(args.norm):
        source = f"{ex.OVERVIEW}, 3.4"
        says = "with few samples in a batch BN does badly, GN solves this"
        ex.compare(says, source, "training loss, mean over the run",
                   GN=runs["group"].losses.mean(1), BN=runs["batch"].losses.mean(1))  # fmt: skip
        ex.compare(says, source, "test error after the last epoch, %",
                   GN=100 * runs["group"].errors[:, -1], BN=100 * runs["batch"].errors[:, -1])  # fmt: skip
    for norm in ("batch", "layer", "group"):
        if norm in apart:
            worst = float(apart[norm].max())
            ex.claim(f"accumulated gradients of small batches are those of a large one: {ex.LABELS[norm]}",
                     f"{ex.OVERVIEW}, 3.1", "relative distance below 1e-10 in every run", f"{worst:.2g}",
                     worst < 1e-10)  # fmt: skip

    with ex.figure(args, "Two images at a time", 1) as (axes,):
        for norm in args.norm:
            ex.band(axes, *ex.smooth(runs[norm].losses, 30), norm)
        axes.set(title="Training loss", xlabel="step", ylabel="cross-entropy", yscale="log")
        axes.legend()


if __name__ == "__main__":
    main()
