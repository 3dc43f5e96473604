"""Attention: scale, softmax over the keys, the causal mask, and the three gradients."""

import numpy as np

from minigrad.learn.checking import Part, gradients, mistakes
from minigrad.learn.stages.attention import attention, attention_backward
from minigrad.nn import functional as F

HINTS = (
    "np.tri(T, dtype=bool) is True on and below the diagonal: where position t sees position j.",
    "Mask first, then softmax: np.where(mask, s, -np.inf). Subtract the largest score of each row before exp.",
    "y = p v is a matrix product: gp = g v^T, and the gradient of v is p^T g.",
    """gs as in the text, over the last axis with keepdims. Then s = q k^T / sqrt(D): the gradient of q is gs k, that of k is
    gs^T q, both divided by sqrt(D). The mask needs nothing more, because p is 0 there.""",
)


def shapes(draw):
    for lead, t, d in (((), 1, 1), ((), 2, 1), ((), 2, 3), ((2,), 3, 2), ((2, 2), draw.size(3, 5), draw.size(2, 4))):
        for causal in (False, True):
            yield (*lead, t, d), causal


def cases(draw):
    for shape, causal in shapes(draw):
        q, k, v = draw(*shape), draw(*shape), draw(*shape)
        yield {"q": q / 4, "k": k, "v": v, "causal": causal}
    if draw.small:
        for keys in ([[40.0], [-40.0]], [[40.0], [39.0]]):
            yield {"q": np.array([[40.0], [-40.0]]), "k": np.array(keys), "v": draw(2, 1), "causal": False}


def backward_cases(draw):
    for case in cases(draw):
        yield {"g": draw(*case["v"].shape), **case}


def right(q, k, v, causal):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal).numpy()


def right_backward(g, q, k, v, causal):
    return gradients(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), g, q, k, v)


SCALE, LARGEST = " / np.sqrt(q.shape[-1])", "s.max(axis=-1, keepdims=True)"
SUM = "(gp * p).sum(axis=-1, keepdims=True)"
UNSAFE = {
    "exp overflows for large scores. Subtract the largest score of each row first.": {f" - {LARGEST}": ""},
    """You subtract the largest score of all rows: exp is 0 in a row far below it. Each row has its own maximum,
    max(axis=-1, keepdims=True).""": {LARGEST: "s.max()"},
}
PARTS = [
    Part(
        "attention", right, cases, ("y",),
        mistakes(attention, {
            "The scores are not divided by sqrt(D).": {SCALE: ""},
            "k.T reverses all axes. With more axes in front, k.swapaxes(-1, -2) transposes the last two.":
                {"k.swapaxes(-1, -2)": "k.T"},
            "The scores are divided by D. It is sqrt(D).": {SCALE: " / q.shape[-1]"},
            "The scores are divided by sqrt(T). It is the size of the last axis of q, D.": {"q.shape[-1]": "q.shape[-2]"},
            "The softmax is over the queries. It is over the keys, the last axis: each row of p adds up to 1.":
                {"axis=-1": "axis=-2"},
            **UNSAFE,
            "The mask has no effect: with causal=True, position t sees later ones.": {"if causal": "if False"},
            """The mask comes after the softmax, so the rows no longer add up to 1. Set the scores to -inf before
            it.""": {
                "if causal": "if False",
                "return probabilities(q, k, causal)": "p = probabilities(q, k, causal)\n    return (np.tril(p) if causal else p)",
            },
            "The mask lets each position see one later position.": {"np.tri(s.shape[-1]": "np.tri(s.shape[-1], k=1"},
            "The masked scores are 0 instead of -inf. exp(0) is 1, so they still count.": {"-np.inf": "0"},
            "The mask is the wrong way round: each position sees itself and later ones.": {"dtype=bool)": "dtype=bool).T"},
            "The mask hides each position from itself, and the first one sees nothing.":
                {"np.tri(s.shape[-1]": "np.tri(s.shape[-1], k=-1"},
        }),
    ),
    Part(
        "attention_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in "qkv"),
        mistakes(attention_backward, {
            "The softmax's second term is missing: the sum of gp * p over the keys is subtracted.": {f" - {SUM}": ""},
            "The softmax is differentiated element by element, p * (1 - p). Its elements depend on each other.":
                {f"gp - {SUM}": "gp * (1 - p)"},
            "The sum of gp * p is over the queries. It is over the keys, the last axis.": {SUM: SUM.replace("-1", "-2")},
            "The sum over the keys is of gp alone; it has to be of gp * p.": {"(gp * p).sum": "gp.sum"},
            "The mean over the keys is subtracted; it has to be the sum of gp * p.": {"(gp * p).sum": "(gp * p).mean"},
            "The softmax is missing: gs is the gradient of p.": {f"p * (gp - {SUM})": "gp"},
            "The division by sqrt(D) is missing: it is in the forward pass, so it is here too.": {f"{SUM}){SCALE}": f"{SUM})"},
            "It is divided by D. It is sqrt(D), as in the forward pass.": {f"{SUM}){SCALE}": f"{SUM}) / q.shape[-1]"},
            **UNSAFE,
            "The backward pass ignores the mask: p has to be computed with it.": {"if causal": "if False"},
            "gs is not transposed: s = q k^T, so k gets gs^T q.": {"gs.swapaxes(-1, -2)": "gs"},
            "p is not transposed: y = p v, so v gets p^T g.": {"p.swapaxes(-1, -2)": "p"},
        }),
    ),
]  # fmt: skip
