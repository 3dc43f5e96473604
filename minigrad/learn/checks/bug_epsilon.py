"""Find the bug: eps outside the root, where the root of 0 has no derivative."""

import numpy as np

from minigrad.learn.checking import Part, mistakes
from minigrad.learn.checks.layer_norm import right
from minigrad.learn.stages.bug_epsilon import layer_norm

HINTS = (
    "The derivative of sqrt(v) is 1 / (2 sqrt(v)). What is it at v = 0?",
    "A row whose elements are equal has the variance 0. Where must eps go so that the root never sees 0?",
    "The definition is sqrt(var + eps). Others, such as max(var, eps), give other values in ordinary rows.",
)


def blank_rows(draw):
    yield {"x": np.array([[3.0, 3.0]]), "weight": draw(2), "bias": draw(2), "eps": 0.25 if draw.small else 1e-5}


def cases(draw):
    for lead in ((1,), (2,), (2, 2)):
        d = draw.size(2, 5)
        yield {"x": draw(*lead, d), "weight": draw(d), "bias": draw(d), "eps": 0.25 if draw.small else 1e-5}


ROOT = "mg.sqrt(var + eps)"
WRONG = mistakes(layer_norm, {
    """If all elements are equal, y is right, but its gradient is not finite: the square root has no derivative
    at 0. In other rows, y is a little off. This is the bug.""": {ROOT: "(mg.sqrt(var) + eps)"},
    """The root never sees a 0 now, but eps is still outside it for all other rows: sqrt(var + eps), nothing
    else.""": {ROOT: "(mg.sqrt(mg.maximum(var, 1e-12)) + eps)"},
    "max(var, eps) differs from var + eps in every ordinary row.": {"var + eps": "mg.maximum(var, eps)"},
    "Without any eps, a row of equal elements is 0 / 0.": {" + eps": ""},
    "eps is there twice. Once is enough: sqrt(var + eps).": {ROOT: f"({ROOT} + eps)"},
})  # fmt: skip
PARTS = [
    Part("layer_norm", right, blank_rows, ("y of a row of equal elements",), WRONG, order=1),
    Part("layer_norm", right, cases, ("y",), WRONG, order=2),
]
