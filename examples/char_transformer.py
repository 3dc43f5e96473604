"""What does a Transformer need to learn to write: a norm, its place, a warm-up? How deep can it be without a norm?

Task: predict the next character of the first 160,000 of Python's documentation (or of the text given by --data), in
windows of 32; the last tenth of the text is held out.
Model: an embedding of width 64, six blocks of attention (four heads, rotary positions) and a network of width 256
(GELU), no dropout, Xavier weights, a linear layer; Adam 0.003, reached from zero in 100 steps (warm-up) or at once.
Post-LN is x = LN(x + f(x)), pre-LN is x = x + f(LN(x)); RMSNorm and DyT are where pre-LN has its norms; no norm is
x = x + f(x). The LN-LSTM of char_model has the same data and steps; it has 0.10 million parameters, the others 0.31.
Measured: training loss over the steps, and bits per character of the held-out text. Pre-LN, and post-LN without a
warm-up, write a sample. Then, with 2, 8 and 24 blocks with pre-LN or no norm: the loss and the norm of its gradient in
all parameters on the first batch, before training, and the training loss in 150 steps with a warm-up. At the same
depths with post-LN and pre-LN, before training: the norm of the gradient in the last weights of every block.
"""

import argparse
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import experiment as ex
import minigrad as mg
from char_model import Writer, bits, loss, windows
from minigrad import data, nn, optim
from minigrad.nn import functional as F

WINDOW, WIDTH, BLOCKS, WARM_UP = 32, 64, 6, 100
STEPS = 150  # of an epoch of the runs of different depth
XIONG = "Xiong et al. 2020, arXiv:2002.04745"
FIXUP = "Zhang et al. 2019, arXiv:1901.09321"
BELIEF = "common belief"


class Kind(NamedTuple):
    """A label, the norm of the blocks, its place, the steps of warm-up, and the color of its curve."""

    label: str
    norm: str | Callable[[int], nn.Module]
    first: bool = True
    warm_up: int = WARM_UP
    color: str = "layer"


KINDS = {
    "post": Kind("post-LN", "layer", first=False, color="batch"),
    "post-cold": Kind("post-LN, no warm-up", "layer", first=False, warm_up=1, color="batch"),
    "pre": Kind("pre-LN", "layer"),
    "pre-cold": Kind("pre-LN, no warm-up", "layer", warm_up=1),
    "rms": Kind("RMSNorm", "rms", color="group"),
    "dyt": Kind("DyT", "dyt", color="other"),
    "none": Kind("no norm", lambda width: nn.Identity(), color="none"),
    "lstm": Kind("LN-LSTM", "layer"),
}
LAST = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "dyt": nn.DyT}


class Transformer(nn.Module):
    """(N, T) character indices -> (N, T, characters) logits of the next character."""

    def __init__(self, characters: int, kind: Kind, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, WIDTH)
        self.blocks = nn.ModuleList([
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=kind.first,
                                       norm=kind.norm, rotary=10_000.0)
            for _ in range(blocks)
        ])  # fmt: skip
        # Pre-LN leaves the sum of all blocks as it is, so one more norm follows.
        self.last = LAST[kind.norm](WIDTH) if kind.first and isinstance(kind.norm, str) else nn.Identity()
        self.head = nn.Linear(WIDTH, characters)
        for parameter in self.blocks.parameters():
            if parameter.ndim == 2:
                nn.init.xavier_uniform_(parameter)

    def forward(self, numbers: mg.Tensor) -> mg.Tensor:
        x = self.embedding(numbers)
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(self.last(x))

    def write(self, start: np.ndarray, count: int, rng: np.random.Generator, temperature: float = 0.6) -> list[int]:
        """Draw `count` characters to follow the start (T,), each from softmax(logits / temperature)."""
        found = start.tolist()
        with mg.no_grad():
            for _ in range(count):
                logits = self(mg.tensor([found[-WINDOW:]], device=self.head.weight.device))[0, -1]
                chances = F.softmax(logits / temperature, -1).to("cpu").numpy().astype(np.float64)
                found.append(int(rng.choice(len(chances), p=chances / chances.sum())))
        return found[len(start) :]


def build(characters: int, name: str, blocks: int = BLOCKS) -> Writer | Transformer:
    return Writer(characters, "layer") if name == "lstm" else Transformer(characters, KINDS[name], blocks)


def slope(model: nn.Module, batch: ex.Arrays) -> np.ndarray:
    """Return the norm of the gradient in all parameters."""
    model.zero_grad()
    loss(model(batch[0]), batch[1]).backward()
    return np.array(nn.utils.clip_grad_norm_(model.parameters(), math.inf))


def gradients(args: argparse.Namespace, build: Callable[[], Transformer], batch: ex.Arrays) -> np.ndarray:
    """Return the norm of the gradient in the last weights W of every block before training: (seeds, blocks)."""
    found = []
    for seed in range(args.seed, args.seed + args.seeds):
        mg.manual_seed(seed)
        model = build().to(args.device)
        numbers, following = (mg.tensor(values, device=args.device) for values in batch)
        loss(model(numbers), following).backward()
        last = [weight.grad for name, weight in model.named_parameters() if name.endswith("linear2.weight")]
        found.append([grad.norm().item() for grad in last if grad is not None])
    return np.array(found)


def last_fifth(runs: ex.Runs) -> np.ndarray:
    """Return the mean training loss of the last fifth of the steps, one per seed."""
    return runs.losses[:, -len(runs.losses[0]) // 5 :].mean(1)


def close(a: np.ndarray, b: np.ndarray) -> tuple[str, bool]:
    """How far the mean of a is from that of b, and whether that is less than 2 %."""
    distance = float(a.mean() / b.mean() - 1)
    return f"{100 * distance:+.1f} %", abs(distance) < 0.02


def main() -> None:
    args = ex.options(__doc__, {"epochs": 4, "batch_size": 8, "seeds": 5, "depths": [2, 8, 24]},
                      {"epochs": 1, "seeds": 3}, KINDS, data="a text file")  # fmt: skip
    text = args.data.read_text(encoding="utf-8") if args.data else data.topics()[:160_000]
    characters, numbers = np.unique(list(text), return_inverse=True)
    cut = len(text) * 9 // 10
    sets = windows(numbers[:cut], args, WINDOW), windows(numbers[cut:], args, WINDOW)

    def learn(label: str, sets: tuple[ex.Arrays, ex.Arrays], name: str, *blocks: int, **more: Any) -> ex.Runs:
        steps = KINDS[name].warm_up
        schedule = partial(optim.lr_scheduler.LinearLR, start_factor=1 / steps, total_iters=steps)
        return ex.train(args, label, partial(build, len(characters), name, *blocks), sets,
                        partial(optim.Adam, lr=0.003), schedule=schedule, loss=loss, error=bits, **more)  # fmt: skip

    runs, models = {}, {}
    for name in args.norm:
        trained: list[Any] = []
        runs[name] = learn(KINDS[name].label, sets, name, done=trained.append)
        models[name] = trained[0]
    final = {name: last_fifth(found) for name, found in runs.items()}
    held_out = {name: found.errors[:, -1] for name, found in runs.items()}
    ex.show("model | training loss, last fifth | bits per character, held out", [
        (KINDS[name].label, final[name], held_out[name]) for name in runs
    ])  # fmt: skip
    for name in ("post-cold", "pre"):
        if name in models:
            begun = "The " if set("The ") <= set(characters) else text[cut : cut + 4]
            start = np.searchsorted(characters, list(begun))
            written = "".join(characters[models[name].write(start, 240, np.random.default_rng(args.seed))])
            print(f"{KINDS[name].label} writes:\n\n    " + (begun + written).replace("\n", "\n    ") + "\n")

    depths = sorted(set(args.depths))
    few = tuple(rows[: STEPS * args.batch_size] for rows in sets[0])
    deep = {(name, blocks): learn(f"{KINDS[name].label}, {blocks} blocks", (few, sets[1]), name, blocks, probe=slope,
                                  probe_every=STEPS * args.epochs)
            for name in ("pre", "none") if name in args.norm for blocks in depths}  # fmt: skip
    first = {kind: found.losses[:, 0] for kind, found in deep.items()}
    slopes = {kind: found.probes[:, 0] for kind, found in deep.items()}
    learned = {kind: last_fifth(found) for kind, found in deep.items()}
    ex.show("norm | blocks | loss before training | norm of its gradient | training loss, last fifth", [
        (KINDS[name].label, blocks, first[name, blocks], slopes[name, blocks], learned[name, blocks])
        for name, blocks in deep
    ])  # fmt: skip

    batch = tuple(rows[: args.batch_size] for rows in sets[0])
    within = {(name, blocks): gradients(args, partial(Transformer, len(characters), KINDS[name], blocks), batch)
              for name in ("post", "pre") if name in args.norm for blocks in depths}  # fmt: skip
    if within:
        ex.show("place of LN | ‖dL/dW‖ in the first block | in the last", [
            (f"{KINDS[name].label}, {blocks} blocks", norms[:, 0], norms[:, -1])
            for (name, blocks), norms in within.items()
        ])  # fmt: skip

    quantity = "training loss, last fifth"
    if {"post", "post-cold"} <= set(runs):
        ex.compare("post-LN needs a warm-up of the learning rate", XIONG, quantity, warm_up=final["post"],
                   none=final["post-cold"])  # fmt: skip
    if {"post", "pre-cold"} <= set(runs):
        ex.compare("pre-LN trains without a warm-up", XIONG, quantity, pre_LN_without=final["pre-cold"],
                   post_LN_with=final["post"])  # fmt: skip
    if {"pre", "none"} <= set(runs):
        ex.compare("a Transformer trains faster with LN", BELIEF, quantity, pre_LN=final["pre"], no_norm=final["none"])
    for name, source in (
        ("rms", "Zhang and Sennrich 2019, arXiv:1910.07467"), ("dyt", "Zhu et al. 2025, arXiv:2503.10622"),
    ):  # fmt: skip
        if {"pre", name} <= set(runs):
            criterion = "bits per held-out character: less than 2 % from LN"
            measured = close(held_out[name], held_out["pre"])
            ex.claim(f"{KINDS[name].label} performs as well as LN", source, criterion, *measured)
    if {"pre", "lstm"} <= set(runs):
        ex.compare("Transformers write better than recurrent networks", BELIEF,
                   "bits per held-out character", pre_LN=held_out["pre"], LN_LSTM=held_out["lstm"])  # fmt: skip

    low, high = depths[0], depths[-1]
    if "pre" in args.norm:
        growth = slopes["pre", high] / slopes["pre", low]
        ex.claim("with pre-LN the initial gradient is well-behaved at any depth", XIONG,
                 f"its norm with {high} blocks less than twice that with {low}, in every run",
                 f"at most {growth.max():.3g} times", bool(growth.max() < 2))  # fmt: skip
    if {"post", "pre"} <= set(args.norm):
        ex.compare("before training, post-LN has large gradients near the output, pre-LN small ones", XIONG,
                   f"‖dL/dW‖ in the last block, {high} deep", pre_LN=within["pre", high][:, -1],
                   post_LN=within["post", high][:, -1])  # fmt: skip
    if low < high and "pre" in args.norm:
        ex.compare("with pre-LN the gradients near the output are smaller in a deeper network", XIONG,
                   "‖dL/dW‖ in the last block", **{f"{n} deep": within["pre", n][:, -1] for n in (high, low)}
                   )  # fmt: skip
    if {"pre", "none"} <= set(args.norm):
        says = "without a norm a deep network explodes before training"
        ex.compare(f"{says}: its loss", FIXUP, f"loss before training, {high} blocks", pre_LN=first["pre", high],
                   no_norm=first["none", high])  # fmt: skip
        ex.compare(f"{says}: its gradient", FIXUP, f"norm of the initial gradient, {high} blocks / {low} blocks",
                   pre_LN=growth, no_norm=slopes["none", high] / slopes["none", low])  # fmt: skip
        for blocks in depths:
            ex.compare(f"a Transformer with {blocks} blocks trains better with LN", BELIEF,
                       f"training loss, last fifth of {len(deep['pre', blocks].losses[0])} steps",
                       pre_LN=learned["pre", blocks], no_norm=learned["none", blocks])  # fmt: skip
        gain = {f"{blocks} blocks": learned["none", blocks] - learned["pre", blocks] for blocks in (low, high)}
        if low < high:
            ex.compare(
                "... and the more so, the deeper it is", BELIEF, "training loss, last fifth: what LN saves", **gain
            )

    with ex.figure(args, "Transformers that write Python's documentation", 2, 2) as (left, right, start, depth):
        for name, kind in KINDS.items():
            if name in runs:
                axes = left if kind.label.startswith(("post", "pre")) else right
                style = "--" if name.endswith("cold") or name == "lstm" else "-"
                ex.band(axes, *ex.smooth(runs[name].losses), kind.color, kind.label, linestyle=style)
        if "pre" in runs:
            ex.band(right, *ex.smooth(runs["pre"].losses), "layer", "pre-LN")
        for axes, title in ((left, "The place of LN, and a warm-up"), (right, "Other norms, with a warm-up")):
            axes.set(title=title, xlabel="step", ylabel="cross-entropy per character")
        for name in dict.fromkeys(name for name, _ in deep):
            color, label = KINDS[name].color, KINDS[name].label
            norms = np.stack([slopes[name, blocks] for blocks in depths], 1)
            ex.band(start, np.array(depths), norms, color, label, marker="o")
            for blocks, style in zip(depths, ("-", "--", ":"), strict=False):
                ex.band(
                    depth, *ex.smooth(deep[name, blocks].losses), color, f"{label}, {blocks} blocks", linestyle=style
                )
        start.set(title="Before training", xlabel="blocks", ylabel="norm of the gradient", yscale="log", xticks=depths)
        depth.set(title="Depth", xlabel="step", ylabel="cross-entropy per character", yscale="log")
        for axes in (left, right, start, depth):
            axes.legend()


if __name__ == "__main__":
    main()
