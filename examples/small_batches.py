"""With batches of two or four images, do group normalization and batch renormalization beat batch normalization, and
does accumulating gradients help?

Model: LeNet (convolutions with 6 and 16 channels, 5 x 5, max pooling, 120-84-10) with ReLU and norms after the
convolutions, SGD 0.002 with momentum 0.9.
Measured: training loss and test error at batch 2. Then, from the same weights, the distance between a step with the
accumulated gradients of 16 batches of two and a step with one batch of 32, relative to the length of the latter. At
batch 4, training loss and test error of BN, LN and batch renormalization (BRN). BRN begins as BN and is relaxed to the
limits of its paper in steps 200 to 400; its running statistics and those of BN have the paper's momentum, 0.01.
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
BEGIN, END = 200, 400
IOFFE = "Ioffe 2017, arXiv:1702.03275"


class Renorm(nn.BatchRenorm2d):
    """Batch renormalization whose limits begin at those of BN and rise linearly from step `BEGIN` to step `END`."""

    num_batches_tracked: mg.Tensor

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        if self.training:
            share = min(max((self.num_batches_tracked.item() - BEGIN) / (END - BEGIN), 0.0), 1.0)
            self.r_max, self.d_max = 1 + 2 * share, 5 * share
        return super().forward(x)


AT_FOUR: dict[str, Callable[[int], nn.Module]] = {
    "batch": partial(nn.BatchNorm2d, momentum=0.01), "layer": NORMS["layer"], "renorm": Renorm,
}  # fmt: skip
LABELS = {**ex.LABELS, "renorm": "BRN"}


def build(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), norm(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), norm(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def accumulation(norm: str, sets: tuple[ex.Arrays, ex.Arrays], args: argparse.Namespace) -> np.ndarray:
    """Return the relative distance of the two gradients, one per seed."""
    found = []
    for seed in range(args.seed, args.seed + args.seeds):
        mg.manual_seed(seed)
        model = build(NORMS[norm]).to("float64").to(args.device)
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
    args = ex.options(__doc__, {"epochs": 10, "batch_size": [2, 4], "seeds": 5}, {"epochs": 3, "seeds": 3},
                      [*NORMS, "renorm"], data=ex.MNIST)  # fmt: skip
    sets = ex.images(args, flat=False)
    two, four = args.batch_size

    def learn(name: str, norm: Callable[[int], nn.Module], size: int) -> ex.Runs:
        return ex.train(args, f"{name}, batch {size}", partial(build, norm), sets,
                        partial(optim.SGD, lr=0.002, momentum=0.9), batch_size=size)  # fmt: skip

    runs = {norm: learn(LABELS[norm], NORMS[norm], two) for norm in NORMS if norm in args.norm}
    at_four = {norm: learn(f"{LABELS[norm]} for BRN", AT_FOUR[norm], four) for norm in AT_FOUR if norm in args.norm}
    apart = {norm: accumulation(norm, sets, args) for norm in runs}
    ex.show("norm | training loss, whole run | test error, % | gradient of 16 × 2 against 32: relative distance", [
        (LABELS[norm], losses.mean(1), 100 * errors[:, -1], apart[norm])
        for norm, (losses, errors, _) in runs.items()
    ])  # fmt: skip
    ex.show(f"norm, batch {four} | training loss, whole run | test error, %", [
        (LABELS[norm], losses.mean(1), 100 * errors[:, -1]) for norm, (losses, errors, _) in at_four.items()
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
            ex.claim(f"accumulated gradients of small batches are those of a large one: {LABELS[norm]}",
                     f"{ex.OVERVIEW}, 3.1", "relative distance below 1e-10 in every run", f"{worst:.2g}",
                     worst < 1e-10)  # fmt: skip

    for other, says, source in (
        ("batch", "batch renormalization is better than BN for small batches", IOFFE),
        ("layer", "... and retains BN's advantage over LN after convolutions", f"{IOFFE}; {ex.PAPER}, section 6.7"),
    ):  # fmt: skip
        if {"renorm", other} <= set(at_four):
            sides = {LABELS[norm]: at_four[norm] for norm in ("renorm", other)}
            ex.compare(says, source, f"training loss, mean over the run, batch {four}",
                       **{label: found.losses.mean(1) for label, found in sides.items()})  # fmt: skip
            ex.compare(says, source, f"test error after the last epoch, %, batch {four}",
                       **{label: 100 * found.errors[:, -1] for label, found in sides.items()})  # fmt: skip

    with ex.figure(args, "A few images at a time", 2) as panels:
        for axes, size, found in zip(panels, (two, four), (runs, at_four), strict=True):
            for norm, (losses, *_) in found.items():
                ex.band(axes, *ex.smooth(losses, 30), "other" if norm == "renorm" else norm, LABELS[norm])
            axes.set(title=f"Training loss, batch {size}", xlabel="step", ylabel="cross-entropy", yscale="log")
            axes.legend()


if __name__ == "__main__":
    main()
