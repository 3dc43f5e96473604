"""The gradient of a product with broadcasting: sums over the axes along which a number was repeated."""

import numpy as np

from minigrad.learn.checking import Part, gradients
from minigrad.learn.solutions.broadcasting import unbroadcast

HINTS = (
    "Without broadcasting: dy/da = b, so the gradient of a is g * b, element by element.",
    "g * b has the shape of y. If a has fewer axes than y, sum over the axes in front, which a does not have.",
    "Then sum over every axis where a has size 1, with keepdims=True, so that the axis stays.",
    """A helper that does both for one shape: `unbroadcast(gradient, shape)`. Call it for a and for b.""",
)


def cases(draw):
    n, m = draw.size(2, 4), draw.size(2, 5)
    for a, b in (
        ((m,), (m,)), ((1, m), (n, m)), ((n, m), (n, 1)), ((m,), (n, m)), ((n, 1), (m,)), ((), (m,)), ((n, m), ()),
        ((2, 1, m), (n, 1)), ((1,), (1, 1)),
    ):  # fmt: skip
        yield {"g": draw(*np.broadcast_shapes(a, b)), "a": draw(*a), "b": draw(*b)}


def right(g, a, b):
    return gradients(lambda a, b: a * b, g, a, b)


def wrong(fit):
    return lambda g, a, b: (fit(g * b, a.shape), fit(g * a, b.shape))


def in_front(g, shape):
    return g.sum(axis=tuple(range(g.ndim - len(shape))))


def stretched(g, shape):
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and axis < g.ndim)
    return g.sum(axis=axes, keepdims=True)


def dropped(g, shape):
    g = in_front(g, shape)
    return g.sum(axis=tuple(axis for axis, size in enumerate(shape) if size == 1))


def mean(g, shape):
    return unbroadcast(g, shape) * (np.prod(shape) / max(g.size, 1))


def first(g, shape):
    g = g[(0,) * (g.ndim - len(shape))]
    return g[tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]


PARTS = [
    Part(
        "multiply_backward", right, cases, ("the gradient of a", "the gradient of b"),
        {
            """It is g * b without a sum. Where broadcasting repeated a number, the gradients of its copies add
            up.""": wrong(lambda g, shape: g),
            """The sum over the axes in front is there. The sum over the axes where the array itself has size 1 is
            missing.""": wrong(in_front),
            """The sum over axes of size 1 is there. The sum over the axes in front, which the smaller array does not
            have, is missing.""": wrong(stretched),
            """The sums are right, but the axes of size 1 are gone. Keep them: sum(..., keepdims=True).""": wrong(dropped),
            "It is the mean over the copies. Their gradients add up; nothing divides by their number.": wrong(mean),
            "It is the gradient of one copy. The gradients of all copies add up.": wrong(first),
            """g is summed before it is multiplied. Each copy has its own factor: multiply first, then
            sum.""": lambda g, a, b: (
                unbroadcast(g, a.shape) * unbroadcast(b * np.ones_like(g), a.shape),
                unbroadcast(g, b.shape) * unbroadcast(a * np.ones_like(g), b.shape),
            ),
            "a and b are exchanged: the derivative of a * b with respect to a is b.": lambda g, a, b: (
                unbroadcast(g * a, a.shape), unbroadcast(g * b, b.shape),
            ),
        },
    )
]  # fmt: skip
