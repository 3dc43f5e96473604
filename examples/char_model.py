"""Does an LSTM with layer normalization learn to write faster?

Task: predict the next character of Python's documentation (or of the text given by --data), in windows of 64; the last
tenth of the text is held out.
Model: an embedding of width 32, an LSTM or LN-LSTM with 128 units, a linear layer; Adam 0.003.
Measured: training loss over the steps, and bits per character of the held-out text. Each model writes a short sample.
"""

import argparse
import math
from functools import partial
from typing import Any

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F

WINDOW = 64


class Writer(nn.Module):
    """(N, T) character indices -> (N, T, characters) logits of the next character."""

    def __init__(self, characters: int, norm: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 32)
        self.lstm = nn.LSTM(32, 128, norm=None if norm == "none" else norm, batch_first=True)
        self.head = nn.Linear(128, characters)

    def forward(self, numbers: mg.Tensor) -> mg.Tensor:
        return self.head(self.lstm(self.embedding(numbers))[0])

    def write(self, start: mg.Tensor, count: int, rng: np.random.Generator, temperature: float = 0.6) -> list[int]:
        """Draw `count` characters to follow the start (T,), each from softmax(logits / temperature)."""
        found: list[int] = []
        state, numbers = None, start.expand_dims(0)
        with mg.no_grad():
            for _ in range(count):
                outputs, state = self.lstm(self.embedding(numbers), state)
                chances = F.softmax(self.head(outputs[0, -1]) / temperature, -1).to("cpu").numpy().astype(np.float64)
                found.append(int(rng.choice(len(chances), p=chances / chances.sum())))
                numbers = mg.tensor([found[-1:]], device=start.device)
        return found


def loss(logits: mg.Tensor, targets: mg.Tensor) -> mg.Tensor:
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def bits(logits: mg.Tensor, targets: mg.Tensor) -> mg.Tensor:
    return loss(logits, targets) / math.log(2)


def windows(numbers: np.ndarray, args: argparse.Namespace, length: int = WINDOW) -> ex.Arrays:
    """Return the text in rows of `length` characters, and the same rows shifted by one character."""
    count = (len(numbers) - 1) // length
    rows = (numbers[k : k + count * length].reshape(count, length) for k in (0, 1))
    return tuple(mg.tensor(row, device=args.device) for row in rows)


def main() -> None:
    args = ex.options(__doc__, {"epochs": 10, "batch_size": 32, "seeds": 5}, {"epochs": 1, "seeds": 3},
                      norms=("none", "layer"), data="a text file")  # fmt: skip
    text = args.data.read_text(encoding="utf-8") if args.data else data.topics()
    characters, numbers = np.unique(list(text), return_inverse=True)
    cut = len(text) * 9 // 10
    sets = windows(numbers[:cut], args), windows(numbers[cut:], args)
    runs = {}
    models: dict[str, list[Any]] = {norm: [] for norm in args.norm}
    for norm in args.norm:
        runs[norm] = ex.train(args, ex.LABELS[norm], partial(Writer, len(characters), norm), sets,
                              partial(optim.Adam, lr=0.003), loss=loss, error=bits,
                              done=models[norm].append)  # fmt: skip
    ex.show("model | training loss, whole run | bits per character, held out", [
        (ex.LABELS[norm], losses.mean(1), errors[:, -1]) for norm, (losses, errors, _) in runs.items()
    ])  # fmt: skip
    for norm, (model, *_) in models.items():
        start = "The "
        where = mg.tensor(np.searchsorted(characters, list(start)), device=args.device)
        written = "".join(characters[model.write(where, 240, np.random.default_rng(args.seed))])
        print(f"{ex.LABELS[norm]} writes:\n\n    " + (start + written).replace("\n", "\n    ") + "\n")

    if {"none", "layer"} <= set(args.norm):
        for quantity, of in (
            ("training loss, mean over the run", lambda norm: runs[norm].losses.mean(1)),
            ("bits per held-out character at the end", lambda norm: runs[norm].errors[:, -1]),
        ):  # fmt: skip
            ex.compare("recurrent networks converge faster with LN and generalize better",
                       f"{ex.PAPER}, sections 6 and 7", quantity, LN=of("layer"), no_norm=of("none"))  # fmt: skip

    with ex.figure(args, "Writing Python's documentation", 1) as (axes,):
        for norm in args.norm:
            ex.band(axes, *ex.smooth(runs[norm].losses), norm)
        axes.set(title="Training loss", xlabel="step", ylabel="cross-entropy per character")
        axes.legend()


if __name__ == "__main__":
    main()
