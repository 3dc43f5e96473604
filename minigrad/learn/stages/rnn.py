"""A recurrent network, and backpropagation through time.

From a state h_0 and an input x_t at each of T steps:

    a_t = x_t w_x^T + h_{t-1} w_h^T + b          h_t = tanh(a_t)

    x (T, N, I)    h0 (N, H)    w_x (H, I)    w_h (H, H)    b (H,)

1. `rnn` returns all states h_1 ... h_T as one array (T, N, H).
2. `rnn_backward` returns the gradients of x, h0, w_x, w_h and b, given the
   cotangents g (T, N, H) of all states. `states` is what `rnn` returned.

The backward pass runs from the last step to the first. The gradient of h_t
has two sources: g_t, from whatever uses this state as an output, and step
t + 1, which used it as its input. All steps share the weights, so their
gradients add up over the steps.

NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np


def rnn(x, h0, w_x, w_h, b):  # yours
    h, states = h0, []
    for x_t in x:
        h = np.tanh(x_t @ w_x.T + h @ w_h.T + b)
        states.append(h)
    return np.stack(states)


def rnn_backward(g, x, h0, w_x, w_h, b, states):  # yours
    """The gradients of x, h0, w_x, w_h and b."""
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
