"""Does layer normalization after convolutions prevent a network from converging?

Model: LeNet (convolutions with 6 and 16 channels, 5 x 5, tanh, max pooling, 120-84-10); after each convolution no norm,
BN, LN over channels and pixels (C, H, W), or LN over the channels of each pixel (C); SGD 0.01 with momentum 0.9.
Measured: training loss over the steps, error on the held-out images.
"""

from functools import partial

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim


class ChannelNorm(nn.LayerNorm):
    """LN over the channels of each pixel, (N, C, H, W)."""

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return super().forward(x.permute_dims((0, 2, 3, 1))).permute_dims((0, 3, 1, 2))


NORMS = {
    "none": lambda channels, size: nn.Identity(),
    "batch": lambda channels, size: nn.BatchNorm2d(channels),
    "layer": lambda channels, size: nn.LayerNorm((channels, size, size)),
    "other": lambda channels, size: ChannelNorm(channels),
}
LABELS = {**ex.LABELS, "layer": "LN over (C, H, W)", "other": "LN over C"}


def build(norm: str) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), NORMS[norm](6, 24), nn.Tanh(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), NORMS[norm](16, 8), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10),
    )  # fmt: skip


def main() -> None:
    args = ex.options(__doc__, {"epochs": 20, "batch_size": 32, "seeds": 5}, {"epochs": 6, "seeds": 3}, NORMS,
                      data=ex.MNIST)  # fmt: skip
    sets = ex.images(args, flat=False)
    runs = {norm: ex.train(args, LABELS[norm], partial(build, norm), sets, partial(optim.SGD, lr=0.01, momentum=0.9))
            for norm in args.norm}  # fmt: skip
    ex.show("norm | training loss, whole run | test error, %", [
        (LABELS[norm], losses.mean(1), 100 * errors[:, -1]) for norm, (losses, errors, _) in runs.items()
    ])  # fmt: skip

    for norm in ("layer", "other"):
        if norm in runs:
            worst = 100 * float(runs[norm].errors[:, -1].max())
            ex.claim(f"{LABELS[norm]} after convolutions destroys their features, the model does not converge",
                     f"{ex.TUTORIAL}, 3.3", "test error above 50 % at the end, in any run (chance: 90 %)",
                     f"at most {worst:.1f} %", worst > 50)  # fmt: skip
    if {"none", "layer", "batch"} <= set(runs):
        loss = {norm: runs[norm].losses.mean(1) for norm in runs}
        source = f"{ex.PAPER}, section 6.7"
        ex.compare("LN after convolutions is faster than no norm", source, "training loss, mean over the run",
                   LN=loss["layer"], no_norm=loss["none"])  # fmt: skip
        ex.compare("... but BN is better than LN there", source, "training loss, mean over the run",
                   BN=loss["batch"], LN=loss["layer"])  # fmt: skip

    with ex.figure(args, "Norms after convolutions", 2) as (left, right):
        for norm, (losses, errors, _) in runs.items():
            ex.band(left, *ex.smooth(losses, 30), norm, label=LABELS[norm])
            ex.band(right, np.arange(1, args.epochs + 1), 100 * errors, norm, label=LABELS[norm])
        left.set(title="Training loss", xlabel="step", ylabel="cross-entropy", yscale="log")
        right.set(title="Test error", xlabel="epoch", ylabel="%", ylim=(0, None))
        right.legend()


if __name__ == "__main__":
    main()
