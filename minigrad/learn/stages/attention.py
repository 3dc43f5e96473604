"""Attention, forward and backward.

    s = q k^T / sqrt(D)          scores: each query with each key
    p = softmax(s)               over the keys; each row adds up to 1
    y = p v

    q, k, v and y (..., T, D), p (..., T, T)

If `causal` is true, position t must not see later positions: their scores
become -inf before the softmax, so that their p is 0. A position sees itself.

1. `attention` returns y.
2. `attention_backward` returns the gradients of q, k and v, given the
   cotangent g of y. With gp for the gradient of p, the softmax gives

       gs = p * (gp - sum over the keys of (gp * p))

   since raising one score lowers all other probabilities of its row.

Both are tested with scores such as 1600 and -1600, where exp overflows or is
0 in a whole row.

`a.swapaxes(-1, -2)` transposes the last two axes. NumPy arrays in, NumPy
arrays out, float64.
"""

import numpy as np


def probabilities(q, k, causal):  # ours
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(s.shape[-1], dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def attention(q, k, v, causal):  # yours
    return probabilities(q, k, causal) @ v


def attention_backward(g, q, k, v, causal):  # yours
    """The gradients of q, k and v."""
    p = probabilities(q, k, causal)
    gp = g @ v.swapaxes(-1, -2)
    gs = p * (gp - (gp * p).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return gs @ k, gs.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g
