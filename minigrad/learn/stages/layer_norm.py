"""Layer normalization, forward and backward.

Over the last axis, of size D:

    mean = (1/D) sum x              var = (1/D) sum (x - mean)^2
    n = (x - mean) / sqrt(var + eps)
    y = n * weight + bias

x and g have the shape (..., D), weight and bias have the shape (D,). A row
whose mean is large, such as 99,000,000, has to work too.

1. `layer_norm` returns y.
2. `layer_norm_backward` returns the gradients of x, weight and bias, given
   the cotangent g of y.

This stage uses minigrad tensors: x.mean(axis=-1, keepdims=True), mg.sqrt(x),
x * y, x.sum(axis=0), x.reshape(-1, 4) and so on; what is ddof=1 in NumPy's
var is correction=1 here. Write the backward pass as a formula; mg.grad would
pass the check, and teach you nothing. Since it consists of tensor
operations, minigrad can differentiate it again, and the check does. For
that, everything on the way has to stay on the tape.

On the backward pass: every x of a row takes part in the mean and the
variance of all of them, so three paths lead from y back to x. With
u = g * weight and the row's means written as mean(...),

    gradient of x = (u - mean(u) - n * mean(u * n)) / sqrt(var + eps)

You may believe this, or derive it on paper first. The page "Layer
normalization" in the chapter "From equation to kernel" does.
"""

import minigrad as mg


def normalize(x, eps):  # ours
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = 1 / mg.sqrt((centered * centered).mean(axis=-1, keepdims=True) + eps)
    return centered * scale, scale


def layer_norm(x, weight, bias, eps):  # yours
    n, _ = normalize(x, eps)
    return n * weight + bias


def layer_norm_backward(g, x, weight, eps):  # yours
    """The gradients of x, weight and bias."""
    n, scale = normalize(x, eps)
    u = g * weight
    dx = (u - u.mean(axis=-1, keepdims=True) - n * (u * n).mean(axis=-1, keepdims=True)) * scale
    width = x.shape[-1]
    return dx, (g * n).reshape(-1, width).sum(axis=0), g.reshape(-1, width).sum(axis=0)
