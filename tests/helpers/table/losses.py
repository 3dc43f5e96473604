"""Softmax, its logarithm and the losses of class labels."""

import math

import numpy as np

import minigrad as mg
from table.entry import ROWS, Op, case, softmax
from table.reductions import logsumexp


def cross_entropy(z, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The definition: minus the sum of q log p, with the smoothed distribution q of the labels."""
    rows, width = (1, z.size) if z.ndim == 1 else z.shape
    single, z, target = z.ndim == 1, z.reshape(rows, width), target.reshape(rows)
    counts = target != ignore_index
    w = np.ones(width) if weight is None else weight
    q = np.full((rows, width), label_smoothing / width)
    q[np.arange(rows), np.where(counts, target, 0)] += 1 - label_smoothing
    loss = -(q * w * (z - logsumexp(z, 1, True))).sum(1) * counts
    if reduction == "none":
        return loss.reshape(()) if single else loss
    return loss.sum() / (w[np.where(counts, target, 0)] * counts).sum() if reduction == "mean" else loss.sum()


def compose_softmax(x, axis=-1):
    e = mg.exp(x)
    return e / mg.sum(e, axis, keepdims=True)


def compose_cross_entropy(z, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    rows, width = (1, z.size) if z.ndim == 1 else z.shape
    single, z, target = z.ndim == 1, z.reshape(rows, width), target.reshape(rows)
    counts = (target != ignore_index).astype(z.dtype)
    w = mg.ones(width, dtype=z.dtype, device=z.device) if weight is None else weight
    safe = mg.where(target != ignore_index, target, 0)
    hit = (mg.expand_dims(safe, 1) == mg.arange(width, device=z.device)).astype(z.dtype)
    q = hit * (1 - label_smoothing) + label_smoothing / width
    loss = -mg.sum(q * w * (z - mg.log(mg.sum(mg.exp(z), 1, keepdims=True))), 1) * counts
    if reduction == "none":
        return loss.reshape(()) if single else loss
    return loss.sum() / mg.sum(mg.take(w, safe) * counts) if reduction == "mean" else loss.sum()


LABELS = np.array([2, 0, 1, 1, 2])

REDUCED = {"mean": lambda x: x.mean(), "sum": lambda x: x.sum(), "none": lambda x: x}


def triplet(lib):
    def triplet_margin_loss(a, b, c, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction="mean"):
        def distance(x, y):
            return ((abs(x - y + eps) ** p).sum(-1)) ** (1 / p)

        far = lib.where(distance(b, c) < distance(a, c), distance(b, c), distance(a, c)) if swap else distance(a, c)
        loss = distance(a, b) - far + margin
        return REDUCED[reduction](lib.where(loss > 0, loss, 0 * loss))

    return triplet_margin_loss


def gaussian(lib):
    def gaussian_nll_loss(x, y, v, full=False, eps=1e-6, reduction="mean"):
        v = v[..., None] if v.shape == x.shape[:-1] else v
        return REDUCED[reduction]((lib.log(v) + (x - y) ** 2 / v + (math.log(2 * math.pi) if full else 0)) / 2)

    return gaussian_nll_loss


SOFTMAX = [
    Op(
        "triplet_margin_loss", triplet(np), torch="nn.functional.triplet_margin_loss", composition=triplet(mg),
        cases=(
            case((4, 3), (4, 3), (4, 3)), case((4, 3), (4, 3), (4, 3), margin=0.3, swap=True, reduction="none"), case((5,), (5,), (5,), margin=4.0),
            case((4, 3), (4, 3), (4, 3), p=1, reduction="sum"), case((4, 3), (4, 3), (4, 3), p=3.0, eps=0.1), case((0, 3), (0, 3), (0, 3), reduction="none"),
        ),
    ),
    Op(
        "gaussian_nll_loss", gaussian(np), torch="nn.functional.gaussian_nll_loss", composition=gaussian(mg), domain=((-2, 2), (-2, 2), (0.1, 3)),
        cases=(
            case((4, 3), (4, 3), (4, 3)), case((4, 3), (4, 3), (4,), full=True), case((4, 3), (4, 3), (4, 1), reduction="sum"),
            case((2, 3, 5), (2, 3, 5), (2, 1, 5), reduction="none"), case((5,), (5,), ()), case((3, 3), (3, 3), (3,)),
            case((0, 3), (0, 3), (0,), reduction="none"),
        ),
    ),
    Op("softmax", softmax, ROWS, torch=lambda t, x, axis=-1: t.softmax(x, axis), composition=compose_softmax),
    Op("log_softmax", lambda x, axis=-1: np.log(softmax(x, axis)), ROWS, torch=lambda t, x, axis=-1: t.log_softmax(x, axis),
       composition=lambda x, axis=-1: x - mg.log(mg.sum(mg.exp(x), axis, keepdims=True))),
    Op(
        "cross_entropy", cross_entropy, torch="nn.functional.cross_entropy", composition=compose_cross_entropy,
        cases=tuple(
            case(shape, target=target, **options)
            for shape, target in [((5, 3), LABELS), ((3,), np.array(1)), ((1, 3), np.array([2], dtype=np.int32))]
            for options in [
                {}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"weight": np.array([0.5, 2.0, 1.25])},
                {"weight": np.array([0.5, 2.0, 1.25]), "label_smoothing": 0.3, "reduction": "none"},
                {"weight": np.array([0.5, 2.0, 1.25]), "label_smoothing": 0.3},
            ]
        ) + tuple(
            case((5, 3), target=LABELS, **options)
            for options in [
                {"ignore_index": 1}, {"ignore_index": 2, "label_smoothing": 0.1, "weight": np.array([0.5, 2.0, 1.25])},
                {"ignore_index": 0, "reduction": "none", "label_smoothing": 0.5}, {"label_smoothing": 1.0},
            ]
        ) + (case((0, 3), target=np.zeros(0, dtype=np.int64), reduction="sum"),),
    ),
]  # fmt: skip
