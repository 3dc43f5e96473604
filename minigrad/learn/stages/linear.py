"""A matrix product: the linear layer and its backward pass.

    y = x w^T + b        x (..., I)   w (O, I)   b (O,)   y (..., O)

`...` stands for any number of axes in front, such as batch and time. The
weight has PyTorch's shape: one row per output. Given the cotangent g of y,
shape (..., O), find the gradients of x, w and b.

The shapes nearly give the answer away: there is only one way to multiply g
and w that results in the shape of x. But shapes are not a proof. If all
sizes are equal, a wrong transpose fits too, and the check tries that.

NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np


def linear_backward(g, x, w):  # yours
    """The gradients of x, w and b."""
    rows = g.reshape(-1, g.shape[-1])  # all axes in front as one
    return g @ w, rows.T @ x.reshape(-1, x.shape[-1]), rows.sum(axis=0)
