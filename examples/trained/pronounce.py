"""The network of g2p-en 2.1.0, which spells English words in sounds: ported, compared, and taught four new words.

Needs ``pip install g2p-en==2.1.0``, whose weights are read where they are installed.
"""

from typing import Any
from unittest import mock

import numpy as np

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
START, END = 2, 3  # among the sounds


class Pronouncer(nn.Module):
    """A GRU that reads a word, and one that begins in its last state and writes the sounds."""

    def __init__(self, letters: int = 29, sounds: int = 74, width: int = 256, units: int = 256) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, width)
        self.encoder = nn.GRU(width, units, batch_first=True)
        self.sounds = nn.Embedding(sounds, width)
        self.decoder = nn.GRU(width, units, batch_first=True)
        self.head = nn.Linear(units, sounds)

    def forward(self, words: mg.Tensor, lengths: Any, before: mg.Tensor) -> mg.Tensor:
        """Return a score of every sound after each of the sounds before it: (words, sounds, 74)."""
        _, state = self.encoder(self.letters(words), lengths=lengths)
        return self.head(self.decoder(self.sounds(before), state)[0])

    def speak(self, word: str) -> list[int]:
        """Return the most probable sounds, at most 20."""
        with mg.no_grad():
            _, state = self.encoder(self.letters(spelled(word)[None]))
            found = [START]
            while len(found) <= 20 and found[-1] != END:
                y, state = self.decoder(self.sounds(mg.tensor([found[-1:]])), state)
                found.append(int(self.head(y[0, -1]).argmax()))
        return [sound for sound in found if sound not in (START, END)]


# Where each array of the file belongs. Their gates are r, z, n, and the reset gate comes after the product, as here.
NAMES = {
    "enc_emb": "letters.weight", "dec_emb": "sounds.weight", "fc_w": "head.weight", "fc_b": "head.bias",
    **{f"{theirs}_{kind[0]}_{side}": f"{ours}.{kind}_{side}_l0" for theirs, ours in (("enc", "encoder"),
       ("dec", "decoder")) for kind in ("weight", "bias") for side in ("ih", "hh")},
}  # fmt: skip


def ported(arrays: Any) -> Pronouncer:
    """Return the network with the arrays of the file."""
    state = {ours: arrays[theirs] for theirs, ours in NAMES.items()}
    sizes = *state["letters.weight"].shape, *state["sounds.weight"].shape
    net = Pronouncer(sizes[0], sizes[2], sizes[1], state["head.weight"].shape[1])
    net.load_state_dict(state)
    return net


def spelled(word: str) -> mg.Tensor:
    return mg.tensor([LETTERS.index(letter) for letter in word] + [LETTERS.index("</s>")])


def padded(rows: list[list[int]], fill: int = 0) -> tuple[mg.Tensor, list[int]]:
    """Return rows of different lengths as one tensor, and their lengths."""
    lengths = [len(row) for row in rows]
    table = np.full((len(rows), max(lengths)), fill)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return mg.tensor(table), lengths


# ── with the package ──

WORDS = ["gradient", "pythonic", "zyxomma", "x", "supercalifragilistic"]
NEW = {
    "numpy": "N AH1 M P AY0", "sqlite": "EH1 S K Y UW1 EH2 L AY2 T", "xkcd": "EH2 K S K EY2 S IY1 D IY1",
    "pytorch": "P AY1 T AO2 R CH",
}  # fmt: skip


def scores(original: Any, word: str, sounds: list[int]) -> np.ndarray[Any, Any]:
    """Return what the original's own functions give for a word, with the sounds before each step given."""
    recurrent = [
        [getattr(original, f"{part}_{k}") for k in ("w_ih", "w_hh", "b_ih", "b_hh")] for part in ("enc", "dec")
    ]
    state = original.gru(original.encode(word), len(word) + 1, *recurrent[0])[:, -1]
    y = original.gru(original.dec_emb[sounds][None], len(sounds), *recurrent[1], h0=state)
    return y @ original.fc_w.T + original.fc_b


def main() -> None:
    with mock.patch("nltk.download"):
        from g2p_en import g2p
    g2p.cmudict = mock.Mock()  # its dictionary would be downloaded, and is not needed here
    original = g2p.G2p()
    net = ported(original.variables)
    print(f"{sum(p.size for p in net.parameters()):,} numbers")

    farthest = largest = 0.0
    for word in WORDS:
        sounds = [original.idx2p[sound] for sound in net.speak(word)]
        assert sounds == original.predict(word)
        before = [START, *net.speak(word)]
        ours = net(spelled(word)[None], None, mg.tensor([before])).detach().numpy()
        theirs = scores(original, word, before)
        farthest, largest = max(farthest, abs(ours - theirs).max()), max(largest, abs(theirs).max())
        print(f"{word:21}{' '.join(sounds)}")
    print(f"largest difference of a score, of up to {largest:.0f}: {farthest:.1e}")

    words, lengths = padded([spelled(word).tolist() for word in NEW])
    targets = [[original.p2idx[sound] for sound in sounds.split()] + [END] for sounds in NEW.values()]
    said, _ = padded([[START, *row[:-1]] for row in targets])
    after, _ = padded(targets, fill=-100)
    optimizer = optim.Adam(net.parameters(), lr=3e-4)
    for step in range(31):
        loss = F.cross_entropy(net(words, lengths, said).reshape(-1, 74), after.reshape(-1))
        if step % 10 == 0:
            right = sum(net.speak(word) == row[:-1] for word, row in zip(NEW, targets, strict=True))
            print(f"step {step:2}: loss {loss.item():.3f}, {right} of 4 words right")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
