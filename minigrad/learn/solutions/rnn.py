import numpy as np


def rnn(x, h0, w_x, w_h, b):
    h, states = h0, []
    for x_t in x:
        h = np.tanh(x_t @ w_x.T + h @ w_h.T + b)
        states.append(h)
    return np.stack(states)


def rnn_backward(g, x, h0, w_x, w_h, b, states):
    dx, dw_x, dw_h, db = np.zeros_like(x), np.zeros_like(w_x), np.zeros_like(w_h), np.zeros_like(b)
    dh = np.zeros_like(h0)  # what step t + 1 sends back to h_t
    for t in reversed(range(len(x))):
        before = states[t - 1] if t else h0
        da = (g[t] + dh) * (1 - states[t] ** 2)
        dx[t] = da @ w_x
        dw_x += da.T @ x[t]
        dw_h += da.T @ before
        db += da.sum(axis=0)
        dh = da @ w_h
    return dx, dh, dw_x, dw_h, db
