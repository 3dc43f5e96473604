"""Attention: scale, softmax over the keys, the causal mask, and the three gradients."""

import numpy as np

from minigrad.learn.checking import Part, gradients
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


def transposed(a):
    return a.swapaxes(-1, -2)


def softmax(s, axis=-1):
    p = np.exp(s - s.max(axis=axis, keepdims=True))
    return p / p.sum(axis=axis, keepdims=True)


def naive(s, axis=-1, shift=0.0):
    p = np.exp(s - shift)
    return p / p.sum(axis=axis, keepdims=True)


def of_all(s):
    return naive(s, shift=s.max())


def before(s, diagonal=0):
    return np.where(np.tri(s.shape[-1], k=diagonal, dtype=bool), s, -np.inf)


def weights(q, k, causal, scale=np.sqrt, softmax=softmax, mask=before, width=lambda s: s[-1]):
    s = q @ transposed(k) / scale(width(q.shape))
    return softmax(mask(s) if causal else s)


def forward(**parts):
    return lambda q, k, v, causal: weights(q, k, causal, **parts) @ v


def mask_after(q, k, v, causal):
    p = weights(q, k, False)
    return (np.tril(p) if causal else p) @ v


def k_reversed(q, k, v, causal):
    s = q @ k.T / np.sqrt(q.shape[-1])
    return softmax(before(s) if causal else s) @ v


def backward(
    jacobian=lambda p, gp: p * (gp - (gp * p).sum(-1, keepdims=True)),
    scale=np.sqrt,
    of_v=lambda p, g: transposed(p) @ g,
    of_k=lambda gs, q: transposed(gs) @ q,
    masked=True,
    softmax=softmax,
):
    """A backward pass with one part of it replaced."""

    def answer(g, q, k, v, causal):
        p = weights(q, k, causal and masked, softmax=softmax)
        gs = jacobian(p, g @ transposed(v)) / scale(q.shape[-1])
        return gs @ k, of_k(gs, q), of_v(p, g)

    return answer


PARTS = [
    Part(
        "attention", right, cases, ("y",),
        {
            "The scores are not divided by sqrt(D).": forward(scale=lambda d: 1.0),
            """k.T reverses all axes. With more axes in front, k.swapaxes(-1, -2) transposes the last two.""": k_reversed,
            "The scores are divided by D. It is sqrt(D).": forward(scale=lambda d: d),
            "The scores are divided by sqrt(T). It is the size of the last axis of q, D.": forward(width=lambda s: s[-2]),
            "The softmax is over the queries. It is over the keys, the last axis: each row of p adds up to 1.": forward(
                softmax=lambda s: softmax(s, -2)
            ),
            "exp overflows for large scores. Subtract the largest score of each row first.": forward(softmax=naive),
            """You subtract the largest score of all rows: exp is 0 in a row far below it. Each row has its own maximum,
            max(axis=-1, keepdims=True).""": forward(softmax=of_all),
            "The mask has no effect: with causal=True, position t sees later ones.": forward(mask=lambda s: s),
            """The mask comes after the softmax, so the rows no longer add up to 1. Set the scores to -inf before
            it.""": mask_after,
            "The mask lets each position see one later position.": forward(mask=lambda s: before(s, 1)),
            """The masked scores are 0 instead of -inf. exp(0) is 1, so they still count.""": forward(
                mask=lambda s: np.tril(s)
            ),
            "The mask is the wrong way round: each position sees itself and later ones.": forward(
                mask=lambda s: np.where(np.tri(s.shape[-1], dtype=bool).T, s, -np.inf)
            ),
            "The mask hides each position from itself, and the first one sees nothing.": forward(
                mask=lambda s: before(s, -1)
            ),
        },
    ),
    Part(
        "attention_backward", right_backward, backward_cases, tuple(f"the gradient of {name}" for name in "qkv"),
        {
            "The softmax's second term is missing: the sum of gp * p over the keys is subtracted.": backward(
                lambda p, gp: p * gp
            ),
            "The softmax is differentiated element by element, p * (1 - p). Its elements depend on each other.": backward(
                lambda p, gp: gp * p * (1 - p)
            ),
            "The sum of gp * p is over the queries. It is over the keys, the last axis.": backward(
                lambda p, gp: p * (gp - (gp * p).sum(-2, keepdims=True))
            ),
            "The sum over the keys is of gp alone; it has to be of gp * p.": backward(
                lambda p, gp: p * (gp - gp.sum(-1, keepdims=True))
            ),
            "The mean over the keys is subtracted; it has to be the sum of gp * p.": backward(
                lambda p, gp: p * (gp - (gp * p).mean(-1, keepdims=True))
            ),
            "The softmax is missing: gs is the gradient of p.": backward(lambda p, gp: gp),
            "The division by sqrt(D) is missing: it is in the forward pass, so it is here too.": backward(scale=lambda d: 1.0),
            "It is divided by D. It is sqrt(D), as in the forward pass.": backward(scale=lambda d: d),
            "exp overflows for large scores. Subtract the largest score of each row first.": backward(softmax=naive),
            """You subtract the largest score of all rows: exp is 0 in a row far below it. Each row has its own maximum,
            max(axis=-1, keepdims=True).""": backward(softmax=of_all),
            "The backward pass ignores the mask: p has to be computed with it.": backward(masked=False),
            "gs is not transposed: s = q k^T, so k gets gs^T q.": backward(of_k=lambda gs, q: gs @ q),
            "p is not transposed: y = p v, so v gets p^T g.": backward(of_v=lambda p, g: p @ g),
        },
    ),
]  # fmt: skip
