"""Is an LSTM with layer normalization more stable and less prone to overfitting, if nothing else differs?

Task: predict the category of a Unicode character from its name (1 to 15 words) or, with --data, whether a movie review
is positive. There are 1,000 training texts, as published, and 2,000 test texts.
Model: an embedding of width 100, an LSTM or LN-LSTM with 128 units, a linear layer on the last state; Adam 0.001 for
both. The published comparison used different optimizers for LSTM and LN-LSTM; a plain LSTM with RMSprop shows the
effect of the optimizer alone.
Measured: training loss over the steps, test loss after every epoch.
"""

import argparse
from functools import partial

import numpy as np

import experiment as ex
import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F

KINDS = {"none": (None, optim.Adam), "layer": ("layer", optim.Adam), "other": (None, optim.RMSprop)}
LABELS = {"none": "LSTM", "layer": "LN-LSTM", "other": "LSTM, RMSprop"}


class Classifier(nn.Module):
    """(N, T) word indices and (N,) lengths -> (N, classes)."""

    def __init__(self, words: int, classes: int, norm: str | None, vectors: mg.Tensor | None) -> None:
        super().__init__()
        if vectors is None:
            self.embedding = nn.Embedding(words, 100)
        else:
            self.embedding = nn.Embedding.from_pretrained(vectors, freeze=False)
        self.lstm = nn.LSTM(100, 128, norm=norm, batch_first=True)
        self.head = nn.Linear(128, classes)

    def forward(self, words: mg.Tensor, lengths: mg.Tensor) -> mg.Tensor:
        return self.head(self.lstm(self.embedding(words), lengths=lengths)[1][0][0])


def texts(args: argparse.Namespace) -> tuple[list[ex.Arrays], int, int, mg.Tensor | None]:
    """Return both sets as words, lengths and labels, the numbers of words and classes, and GloVe's vectors if any."""
    tokenizer, sets, vectors = data.Tokenizer(10_000), [], None
    for split, count in (("train", 1000), ("test", 2000)):
        found = data.imdb(args.data, split) if args.data else data.character_names(split)
        chosen = np.random.default_rng(0).permutation(len(found.texts))[:count]
        some = [found.texts[k] for k in chosen]
        if split == "train":
            tokenizer.fit(some)
        words = [numbers[:200] or [0] for numbers in tokenizer.encode(some)]
        arrays = data.pad_sequences(words, padding="post"), np.array([len(w) for w in words]), found.labels[chosen]
        sets.append(tuple(mg.tensor(array, device=args.device) for array in arrays))
    if args.data and (files := sorted(args.data.glob("glove*.100d.txt"))):
        vectors = data.glove(files[0], tokenizer.vocabulary).matrix.to(args.device)
    return sets, len(tokenizer), len(found.classes), vectors


def main() -> None:
    args = ex.options(__doc__, {"epochs": 25, "batch_size": 32, "seeds": 10}, {"epochs": 10, "seeds": 5}, KINDS,
                      data="the folder aclImdb; glove*.100d.txt in it, if there, gives the embedding")  # fmt: skip
    (train_set, test_set), words, classes, vectors = texts(args)
    runs, rows, end = {}, [], {}
    for kind in args.norm:
        norm, optimizer = KINDS[kind]
        runs[kind] = ex.train(args, LABELS[kind], partial(Classifier, words, classes, norm, vectors),
                              (train_set, test_set), partial(optimizer, lr=0.001), error=F.cross_entropy)  # fmt: skip
        losses, tests, _ = runs[kind]
        end[kind] = losses.reshape(args.seeds, args.epochs, -1)[:, -1].mean(-1)
        rows.append((LABELS[kind], losses.mean(1), end[kind], tests.min(1), tests[:, -1], tests[:, -1] - end[kind]))
    ex.show("model | training loss, whole run | last epoch | lowest test loss | last test loss | gap", rows)

    if {"none", "layer"} <= set(args.norm):
        for says, quantity, of in (
            ("LN helps the convergence of recurrent networks a little", "training loss, mean over the run",
             lambda kind: runs[kind].losses.mean(1)),
            ("LN gives a more stable model", "distance of a run's last test loss from the mean of the runs",
             lambda kind: np.abs(runs[kind].errors[:, -1] - runs[kind].errors[:, -1].mean())),
            ("LN overfits less", "test loss minus training loss after the last epoch",
             lambda kind: runs[kind].errors[:, -1] - end[kind]),
            ("LN overfits less", "lowest test loss of the run", lambda kind: runs[kind].errors.min(1)),
        ):  # fmt: skip
            ex.compare(says, f"{ex.TUTORIAL}, 3.2, figure 4", quantity, LN=of("layer"), no_norm=of("none"))

    with ex.figure(args, "LSTM and LN-LSTM, 1,000 texts", 2) as (left, right):
        for kind, (losses, tests, _) in runs.items():
            ex.band(left, *ex.smooth(losses), kind, label=LABELS[kind])
            ex.band(right, np.arange(1, args.epochs + 1), tests, kind, label=LABELS[kind])
        left.set(title="Training loss", xlabel="step", ylabel="cross-entropy", yscale="log")
        right.set(title="Test loss", xlabel="epoch", ylabel="cross-entropy")
        right.legend()


if __name__ == "__main__":
    main()
