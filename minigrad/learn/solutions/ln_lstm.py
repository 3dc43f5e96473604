import numpy as np

EPS = 1e-5


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def normalize(a):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + EPS)


def normalize_backward(g, a):
    n = normalize(a)
    root = np.sqrt(a.var(-1, keepdims=True) + EPS)
    return (g - g.mean(-1, keepdims=True) - n * (g * n).mean(-1, keepdims=True)) / root


def gates(x, h, w_x, w_h, b):
    a = normalize(x @ w_x.T) + normalize(h @ w_h.T) + b
    i, f, g, o = np.split(a, 4, axis=-1)
    return sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)


def step(x, h, c, w_x, w_h, b):
    i, f, g, o = gates(x, h, w_x, w_h, b)
    c = f * c + i * g
    return o * np.tanh(normalize(c)), c


def step_backward(g_h, g_c, x, h, c, w_x, w_h, b):
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
