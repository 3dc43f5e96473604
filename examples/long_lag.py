"""Does layer normalization help most with long sequences and small batches, and with sequences longer than in training?
How far back do recurrent networks and a GPT remember?

Task: one step shows one of eight symbols, all others random numbers; the last state has to identify the symbol.
Model: tanh RNN with 64 units and a linear layer on its last state, Adam 0.001. To see how far back, also an LSTM with
64 units, a minGRU with two layers of 64 units, and a GPT with two pre-LN blocks of width 64 (four heads, rotary
positions).
Measured: with the symbol in the first step, the share of wrong answers during training, for two lengths and two batch
sizes at equal numbers of steps. With the symbol anywhere in the first half of 10 steps, the share on new sequences
twice as long as in training, also for BN, which has statistics for every step and reuses the last ones beyond. With the
symbol in the first step again, batches of 8 and the same number of steps for every network, its reach: the longest of
four lengths at which at most 5 % of the answers are wrong after training, or 0.
"""

import argparse
import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import nn, optim

SYMBOLS, NOISE, WIDTH = 8, 4, 64
INPUTS = SYMBOLS + NOISE
LENGTHS = (5, 20)
SPREAD = 10
SIZE, WRONG = 8, 5  # of the batches that measure the reach, and the wrong answers in % that it allows


class GPT(nn.Module):
    """Two causal pre-LN blocks, (N, T, inputs) -> (N, T, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(INPUTS, WIDTH)
        self.blocks = nn.ModuleList([
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True,
                                       rotary=10_000.0)
            for _ in range(2)
        ])  # fmt: skip
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.last(x)


class Reader(nn.Module):
    """Identifies the symbol from the last output of a network, (N, T, inputs) -> (N, symbols)."""

    def __init__(self, network: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.network = network()
        self.head = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, x: mg.Tensor) -> mg.Tensor:
        found = self.network(x)
        outputs = found[0] if isinstance(found, tuple) else found
        return self.head(outputs[:, -1])


def rnn(norm: str, length: int) -> nn.RNN:
    return nn.RNN(INPUTS, WIDTH, batch_first=True, norm=None if norm == "none" else norm,
                  max_length=length if norm == "batch" else None)  # fmt: skip


class Kind(NamedTuple):
    """A network with the norm by which --norm selects it, and the color and style of its curve."""

    network: Callable[[], nn.Module]
    norm: str
    color: str
    style: str = "-"


KINDS = {
    "RNN": Kind(partial(nn.RNN, INPUTS, WIDTH, batch_first=True), "none", "none", "--"),
    "LN-RNN": Kind(partial(nn.RNN, INPUTS, WIDTH, batch_first=True, norm="layer"), "layer", "layer", "--"),
    "LSTM": Kind(partial(nn.LSTM, INPUTS, WIDTH, batch_first=True), "none", "none"),
    "LN-LSTM": Kind(partial(nn.LSTM, INPUTS, WIDTH, batch_first=True, norm="layer"), "layer", "layer"),
    "minGRU": Kind(partial(nn.MinGRU, INPUTS, WIDTH, 2, batch_first=True), "none", "group"),
    "GPT": Kind(GPT, "layer", "other"),
}


def sequences(count: int, length: int, places: int, seed: int, args: argparse.Namespace) -> ex.Arrays:
    """Make (N, T, inputs) and (N,), with the symbol in one of the first `places` steps."""
    rng = np.random.default_rng(seed)
    x = np.zeros((count, length, INPUTS), np.float32)
    x[:, :, SYMBOLS:] = rng.standard_normal((count, length, NOISE))
    y = rng.integers(0, SYMBOLS, count)
    x[np.arange(count), rng.integers(0, places, count)] = np.eye(INPUTS)[y]
    return mg.tensor(x, device=args.device), mg.tensor(y, device=args.device)


def learn(
    name: str, network: Callable[[], nn.Module], length: int, size: int, places: int, args: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray]:
    """Return wrong answers in percent: after every epoch of 100 batches, and finally on sequences twice as long."""
    test_set, longer = (sequences(512, k * length, k * places - k + 1, 10_000, args) for k in (1, 2))
    twice: list[float] = []

    def done(model: nn.Module) -> None:
        try:
            twice.append(ex.evaluate(model, longer, ex.wrong))
        except ValueError:
            twice.append(math.nan)

    runs = ex.train(args, f"{name}, T = {length}, batch {size}", partial(Reader, network),
                    (sequences(100 * size, length, places, 1, args), test_set), partial(optim.Adam, lr=0.001),
                    batch_size=size, done=done)  # fmt: skip
    return 100 * runs.errors, 100 * np.array(twice)


def curve(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the training steps at which the errors (seeds, epochs) were measured, and the errors."""
    return 100 * np.arange(1, errors.shape[1] + 1), errors


def main() -> None:
    args = ex.options(__doc__, {"epochs": 20, "batch_size": [4, 64], "seeds": 5, "lags": [10, 20, 40, 80]},
                      {"epochs": 6, "seeds": 5}, norms=("none", "batch", "layer"))  # fmt: skip

    def learn_rnn(norm: str, length: int, size: int, places: int) -> tuple[np.ndarray, np.ndarray]:
        return learn(ex.LABELS[norm], partial(rnn, norm, length), length, size, places, args)

    (short, long), (small, large) = LENGTHS, (args.batch_size[0], args.batch_size[-1])
    kinds = dict.fromkeys(product([norm for norm in args.norm if norm != "batch"], LENGTHS, args.batch_size))
    lag = {kind: learn_rnn(*kind, 1)[0] for kind in kinds}
    ex.show("norm | T | batch | wrong, mean over the run, % | at the end", [
        (ex.LABELS[norm], length, size, errors.mean(1), errors[:, -1]) for (norm, length, size), errors in lag.items()
    ])  # fmt: skip
    longer = {norm: learn_rnn(norm, SPREAD, large, SPREAD // 2) for norm in args.norm}
    ex.show(f"norm | wrong at T = {SPREAD}, % | at {2 * SPREAD}", [
        (ex.LABELS[norm], errors[:, -1], twice) for norm, (errors, twice) in longer.items()
    ])  # fmt: skip
    lags = sorted(set(args.lags))
    far = {(name, length): learn(name, kind.network, length, SIZE, 1, args)[0]
           for name, kind in KINDS.items() if kind.norm in args.norm for length in lags}  # fmt: skip
    last = {name: np.stack([far[name, length][:, -1] for length in lags]) for name, _ in far}
    reach = {name: ((wrong <= WRONG) * np.array(lags)[:, None]).max(0) for name, wrong in last.items()}
    ex.show("network | parameters | " + " | ".join(f"wrong at T = {length}, %" for length in lags) + " | reach", [
        (name, sum(p.size for p in KINDS[name].network().parameters()), *last[name], reach[name]) for name in last
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

    quantity = f"reach, the longest T with at most {WRONG} % wrong"
    for plain in ("RNN", "LSTM"):
        if {plain, f"LN-{plain}"} <= set(reach):
            says = f"LN helps most on long sequences: an {plain} remembers further back with it"
            ex.compare(says, f"{ex.PAPER}, section 7", quantity,
                       **{name: reach[name] for name in (plain, f"LN-{plain}")})  # fmt: skip
    if {"LN-LSTM", "GPT"} <= set(reach):
        ex.compare("attention connects any two steps at once, recurrent networks only step by step",
                   "Vaswani et al. 2017, arXiv:1706.03762, section 4", quantity,
                   **{name: reach[name] for name in ("LN-LSTM", "GPT")})  # fmt: skip
    if {"minGRU", "GPT"} <= set(reach):
        there, here = reach["minGRU"].mean(), reach["GPT"].mean()
        ex.claim("minGRU rivals Transformers", "Feng et al. 2024, arXiv:2410.01201", f"{quantity}: minGRU >= GPT",
                 f"minGRU {there:.3g}, GPT {here:.3g}", bool(there >= here))  # fmt: skip

    with ex.figure(args, "Which symbol came first?", 2, 3) as panels:
        for axes, (length, size) in zip(panels[:4], product(LENGTHS, (small, large)), strict=True):
            for norm in ("none", "layer"):
                if (norm, length, size) in lag:
                    ex.band(axes, *curve(lag[norm, length, size]), norm)
            axes.set(title=f"{length} steps, batch {size}", xlabel="training step", ylabel="wrong, %", ylim=(-3, 100))
        for name, wrong in last.items():
            _, _, color, style = KINDS[name]
            means = wrong.mean(1, keepdims=True).T  # six bands would hide one another
            ex.band(panels[4], np.array(lags), means, color, name, linestyle=style, marker="o")
            ex.band(panels[5], *curve(far[name, lags[-1]]), color, name, linestyle=style)
        panels[4].set(title=f"After training with batch {SIZE}", xlabel="steps since the symbol", ylabel="wrong, %",
                      ylim=(-3, 100), xscale="log", xticks=lags, xticklabels=lags)  # fmt: skip
        panels[4].minorticks_off()
        panels[5].set(title=f"{lags[-1]} steps, batch {SIZE}", xlabel="training step", ylabel="wrong, %",
                      ylim=(-3, 100))  # fmt: skip
        panels[0].legend()
        panels[5].legend(ncols=2, loc="lower right", bbox_to_anchor=(1, 0.05))


if __name__ == "__main__":
    main()
