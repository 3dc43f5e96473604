"""One step of an LSTM with layer normalization, forward and backward.

LN(a) is the normalized row a, without weight and bias: `normalize` below.

    a = LN(x w_x^T) + LN(h w_h^T) + b          (N, 4H), four blocks of H:
    i, f, g, o                                 in this order
    c' = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h' = sigmoid(o) * tanh(LN(c'))

    x (N, I)   h, c (N, H)   w_x (4H, I)   w_h (4H, H)   b (4H,)

The two products are normalized separately, each over all 4H numbers. The
cell state c' goes to the next step as it is; LN(c') is only what h' reads.

1. `step` returns h' and c'.
2. `step_backward` returns the gradients of x, h, c, w_x, w_h and b, given
   the cotangents of h' and of c'. Both are there: h' goes to the output and
   to the next step, c' to the next step.

Go backward line by line. c' is used twice, by h' and by the next step, so
its gradient is a sum. `normalize_backward` is the backward pass of LN; the
formula is that of the stage on layer normalization.

NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np

EPS = 1e-5


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def normalize(a):
    mean, var = a.mean(-1, keepdims=True), a.var(-1, keepdims=True)
    return (a - mean) / np.sqrt(var + EPS)


def normalize_backward(g, a):
    """The gradient of a, given the cotangent g of normalize(a)."""
    n = normalize(a)
    root = np.sqrt(a.var(-1, keepdims=True) + EPS)
    u, s = g.mean(-1, keepdims=True), (g * n).mean(-1, keepdims=True)
    return (g - u - n * s) / root


def gates(x, h, w_x, w_h, b):  # ours
    a = normalize(x @ w_x.T) + normalize(h @ w_h.T) + b
    i, f, g, o = np.split(a, 4, axis=-1)
    return sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)


def step(x, h, c, w_x, w_h, b):  # yours
    """The new h and c."""
    i, f, g, o = gates(x, h, w_x, w_h, b)
    c = f * c + i * g
    return o * np.tanh(normalize(c)), c


def step_backward(g_h, g_c, x, h, c, w_x, w_h, b):  # yours
    """The gradients of x, h, c, w_x, w_h and b."""
    i, f, g, o = gates(x, h, w_x, w_h, b)
    new = f * c + i * g
    read = np.tanh(normalize(new))
    d_new = g_c + normalize_backward(g_h * o * (1 - read**2), new)  # c' goes to the next step and to h'
    da = np.concatenate(
        [d_new * g * i * (1 - i), d_new * c * f * (1 - f), d_new * i * (1 - g**2), g_h * read * o * (1 - o)], axis=-1
    )
    dx = normalize_backward(da, x @ w_x.T)
    dh = normalize_backward(da, h @ w_h.T)
    return dx @ w_x, dh @ w_h, d_new * f, dx.T @ x, dh.T @ h, da.sum(axis=0)
