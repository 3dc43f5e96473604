"""The gradient of a product with broadcasting: sums over the axes along which a number was repeated."""

import numpy as np

from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.broadcasting import multiply_backward

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


IN_FRONT, STRETCHED = "g.sum(axis=tuple(range(g.ndim - len(shape))))", "g.sum(axis=stretched, keepdims=True)"
PARTS = [
    Part(
        "multiply_backward", right, cases, ("the gradient of a", "the gradient of b"),
        mistakes(multiply_backward, {
            "It is g * b without a sum. Where broadcasting repeated a number, the gradients of its copies add up.":
                {"unbroadcast(g * b, a.shape), unbroadcast(g * a, b.shape)": "g * b, g * a"},
            """The sum over the axes in front is there. The sum over the axes where the array itself has size 1 is
            missing.""": {STRETCHED: "g"},
            """The sum over axes of size 1 is there. The sum over the axes in front, which the smaller array does not
            have, is missing.""": {IN_FRONT: "g"},
            "The sums are right, but the axes of size 1 are gone. Keep them: sum(..., keepdims=True).": {", keepdims=True": ""},
            "It is the mean over the copies. Their gradients add up; nothing divides by their number.": {"g.sum": "g.mean"},
            "It is the gradient of one copy. The gradients of all copies add up.": {
                IN_FRONT: "g[(0,) * (g.ndim - len(shape))]",
                STRETCHED: "g[tuple(slice(0, 1) if size == 1 else slice(None) for size in shape)]",
            },
            "g is summed before it is multiplied. Each copy has its own factor: multiply first, then sum.": {
                "unbroadcast(g * b, a.shape)": "unbroadcast(g, a.shape) * unbroadcast(b + 0 * g, a.shape)",
                "unbroadcast(g * a, b.shape)": "unbroadcast(g, b.shape) * unbroadcast(a + 0 * g, b.shape)",
            },
            "a and b are exchanged: the derivative of a * b with respect to a is b.": {
                "(g * b, a.shape), unbroadcast(g * a": "(g * a, a.shape), unbroadcast(g * b",
            },
        }),
    )
]  # fmt: skip
