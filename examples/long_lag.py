"""Does layer normalization help most with long sequences and small batches, and with sequences longer than in training?

Task: one step shows one of eight symbols, all others random numbers; the last state has to identify the symbol.
Model: tanh RNN with 64 units and a linear layer on its last state, Adam 0.001.
Measured: with the symbol in the first step, the share of wrong answers during training, for two lengths and two batch
sizes at equal numbers of steps. With the symbol anywhere in the first half of 10 steps, the share on new sequences
twice as long as in training, also for BN, which has statistics for every step and reuses the last ones beyond.
"""

import argparse
import math
from functools import partial
from itertools import product

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim

SYMBOLS, NOISE, WIDTH = 8, 4, 64
LENGTHS = (5, 20)
SPREAD = 10


class Reader(nn.Module):
    """Identifies the symbol, (N, T, symbols + noise) -> (N, symbols)."""

    def __init__(self, norm: str, length: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(SYMBOLS + NOISE, WIDTH, batch_first=True, norm=None if norm == "none" else norm,
                          max_length=length if norm == "batch" else None)  # fmt: skip
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        return self.head(self.rnn(x)[1][0])


def sequences(count: int, length: int, places: int, seed: int, args: argparse.Namespace) -> ex.Arrays:
    """Make (N, T, symbols + noise) and (N,), with the symbol in one of the first `places` steps."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, length, SYMBOLS + NOISE), np.float32)
    x[:, :, SYMBOLS:] = rng.standard_normal((count, length, NOISE))
    y = rng.integers(0, SYMBOLS, count)
    x[np.arange(count), rng.integers(0, places, count)] = np.eye(SYMBOLS + NOISE)[y]
    return mg.tensor(x, device=args.device), mg.tensor(y, device=args.device)


def learn(norm: str, length: int, size: int, places: int, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """Return wrong answers in percent: after every epoch of 100 batches, and finally on sequences twice as long."""
    test_set, longer = (sequences(512, k * length, k * places - k + 1, 10_000, args) for k in (1, 2))
    twice: list[float] = []

    def done(model: nn.Module) -> None:
        try:
            twice.append(ex.evaluate(model, longer, ex.wrong))
        except ValueError:
            twice.append(math.nan)

    runs = ex.train(args, f"{ex.LABELS[norm]}, T = {length}, batch {size}", partial(Reader, norm, length),
                    (sequences(100 * size, length, places, 1, args), test_set), partial(optim.Adam, lr=0.001),
                    batch_size=size, done=done)  # fmt: skip
    return 100 * runs.errors, 100 * np.array(twice)


def main() -> None:
    args = ex.options(__doc__, {"epochs": 20, "batch_size": [4, 64], "seeds": 5}, {"epochs": 6, "seeds": 5},
                      norms=("none", "batch", "layer"))  # fmt: skip
    (short, long), (small, large) = LENGTHS, (args.batch_size[0], args.batch_size[-1])
    kinds = dict.fromkeys(product([norm for norm in args.norm if norm != "batch"], LENGTHS, args.batch_size))
    lag = {kind: learn(*kind, 1, args)[0] for kind in kinds}
    ex.show("norm | T | batch | wrong, mean over the run, % | at the end", [
        (ex.LABELS[norm], length, size, errors.mean(1), errors[:, -1]) for (norm, length, size), errors in lag.items()
    ])  # fmt: skip
    longer = {norm: learn(norm, SPREAD, large, SPREAD // 2, args) for norm in args.norm}
    ex.show(f"norm | wrong at T = {SPREAD}, % | at {2 * SPREAD}", [
        (ex.LABELS[norm], errors[:, -1], twice) for norm, (errors, twice) in longer.items()
    ])  # fmt: skip

    def saved(length: int, size: int) -> np.ndarray:
        """Return percentage points, averaged over the run."""
        return (lag["none", length, size] - lag["layer", length, size]).mean(1)

    if {"none", "layer"} <= set(args.norm):
        source, quantity = f"{ex.PAPER}, section 7", "points of wrong answers saved by LN, mean over the run"
        ex.compare("recurrent networks profit from LN", source,
                   f"wrong answers in %, mean over the run, T = {long}, batch {small}",
                   LN=lag["layer", long, small].mean(1), no_norm=lag["none", long, small].mean(1))  # fmt: skip
        ex.compare("... most on long sequences", source, f"{quantity}, batch {small}",
                   **{f"T = {short}": saved(short, small), f"T = {long}": saved(long, small)})  # fmt: skip
        ex.compare("... and on small batches", source, f"{quantity}, T = {long}",
                   **{f"batch {large}": saved(long, large), f"batch {small}": saved(long, small)})  # fmt: skip
    if {"batch", "layer"} <= set(args.norm):
        rise = {ex.LABELS[norm]: longer[norm][1] - longer[norm][0][:, -1] for norm in ("layer", "batch")}
        ex.compare("test sequences longer than those of training are more of a problem for BN than for LN",
                   f"{ex.PAPER}, section 3.1",
                   f"points by which wrong answers rise from T = {SPREAD} to {2 * SPREAD}", **rise)  # fmt: skip
        at_once, twice = longer["batch"][0][:, -1].mean(), longer["batch"][1]
        ex.claim("BN cannot run on sequences longer than those of training", f"{ex.TUTORIAL}, 1.2", "an error at 2 T",
                 f"{at_once:.1f} % wrong at T, {twice.mean():.1f} % at 2 T on the last statistics",
                 bool(np.isnan(twice).any()))  # fmt: skip

    with ex.figure(args, "Which symbol came first?", 2, 2) as panels:
        for axes, (length, size) in zip(panels, product(LENGTHS, (small, large)), strict=True):
            for norm in ("none", "layer"):
                if (norm, length, size) in lag:
                    errors = lag[norm, length, size]
                    ex.band(axes, 100 * np.arange(1, errors.shape[1] + 1), errors, norm)
            axes.set(title=f"{length} steps, batch {size}", xlabel="training step", ylabel="wrong, %", ylim=(-3, 100))
        panels[0].legend()


if __name__ == "__main__":
    main()
