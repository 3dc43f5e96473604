"""Models, each with arguments for a whole batch, and what the checks say about their gradients."""

import hashlib
from functools import partial

import numpy as np
import pytest

import minigrad as mg
from minigrad import distributed, nn
from minigrad.distributed import DataParallel
from minigrad.nn import functional as F

SAMPLES = 11  # the size of a batch, which 2, 3 and 4 do not divide


def own(x, axis=0):
    """Return this rank's samples."""
    return x[(slice(None),) * axis + (slice(distributed.rank(), None, distributed.size()),)]


# ── models, each with arguments for a whole batch, the axes of their samples, and targets ─────────


class Lengths(nn.Module):
    """An LSTM with layer normalization over sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 8, norm="layer"), nn.Linear(8, 3)

    def forward(self, x, lengths):
        return self.head(self.lstm(x, lengths=lengths)[1][0][0])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Tied(nn.Module):
    """A layer that is used twice, and whose gradient is complete only after both."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.relu(self.layer(F.relu(self.layer(x)))))


def mlp(norm=nn.LayerNorm):
    return nn.Sequential(
        nn.Linear(6, 16), norm(16), nn.ReLU(), nn.Linear(16, 16), norm(16), nn.ReLU(), nn.Linear(16, 3)
    )


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(24, 10), nn.LayerNorm(10), nn.Tanh(), nn.Linear(10, 3),
    )  # fmt: skip


def images_with_batch_norm():
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(256, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [mg.tensor(rng.standard_normal(shape)) for shape in shapes]


MODELS = {
    "mlp": (mlp, arrays((SAMPLES, 6)), (0,)),
    "lenet": (lenet, arrays((SAMPLES, 1, 12, 12)), (0,)),
    "lengths": (Lengths, [*arrays((7, SAMPLES, 5)), mg.tensor([7, 1, 3, 2, 7, 5, 6, 4, 1, 2, 3])], (1, 0)),
    "transformer": (Encoder, arrays((SAMPLES, 5, 8)), (0,)),
    "tied": (Tied, arrays((SAMPLES, 6)), (0,)),
    "batch_norm": (images_with_batch_norm, arrays((SAMPLES, 1, 12, 12)), (0,)),
    "batch_norm_rows": (partial(mlp, nn.BatchNorm1d), arrays((SAMPLES, 6)), (0,)),
}
TARGETS = mg.tensor(np.random.default_rng(1).integers(0, 3, SAMPLES))


def build(name, seed=0):
    mg.manual_seed(seed)
    return MODELS[name][0]().to("float64")


def loss_of(model, name, part=lambda x, axis=0: x, targets=None):
    _, inputs, axes = MODELS[name]
    outputs = model(*(part(x, axis) for x, axis in zip(inputs, axes, strict=True)))
    return F.cross_entropy(outputs, part(TARGETS if targets is None else targets)) + penalty(model)


def penalty(model):
    """A term that does not come from the outputs."""
    return 0.01 * sum((p * p).sum() for p in model.parameters() if p.ndim > 1)


def parallel(name, synchronized=False, **options):
    """Return the model, which ranks but the first begin with other numbers."""
    model = build(name, distributed.rank())
    if synchronized:
        model = nn.convert_sync_batchnorm(model)
    return DataParallel(model, batch_axis=MODELS[name][2][0], **options)


def gradients(model):
    return [p.grad.numpy().copy() for p in model.parameters()]


def distance(found, expected):
    """The largest difference, relative to the largest number of each array."""
    pairs = zip(found, expected, strict=True)
    return max(float(abs(a - b).max() / max(abs(b).max(), 1e-3)) for a, b in pairs)


def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def same_on_all(arrays):
    """Whether the arrays have the same bits on every rank."""
    text = np.frombuffer(digest(arrays)[:16].encode(), np.int64).copy()
    every = distributed.all_gather(mg.tensor(text)).numpy()
    return bool((every == every[0]).all())


def raises(error, *texts):
    return pytest.raises(error, match=".*".join(texts))
