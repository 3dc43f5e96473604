"""Find the bug: a fast layer norm that trains nothing below it.

Someone replaced the layer normalization by a faster one that computes in
NumPy. The values are the same to the last digit. Yet the network learns
less than before: every layer below the norm stands still, and so do weight
and bias. No error, no warning. A published library had this bug.

Fix it without giving up the NumPy code for y, which is the point of it,
although mg.layer_norm would pass the check. A backward pass has to come with
it: mg.Function connects the two. In forward, x.detach().numpy() is the array.

    class FastLayerNorm(mg.Function):
        @staticmethod
        def forward(ctx, x, weight, bias, eps):
            ctx.save_for_backward(x, weight)   # tensors for the backward pass
            ctx.eps = eps                      # anything else
            return ...                         # a tensor

        @staticmethod
        def backward(ctx, g):
            x, weight = ctx.saved_tensors
            return ...     # one gradient for each argument; None for eps

    FastLayerNorm.apply(x, weight, bias, eps)

Write its backward with tensor operations, then it can be differentiated
again; you have the formula from the stage on layer normalization. `check`
looks at the values, the gradients, and the gradients of the gradients.
"""

import numpy as np

import minigrad as mg


def fast(x, weight, bias, eps):
    """Layer normalization of NumPy arrays. This function is right."""
    mean = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


class FastLayerNorm(mg.Function):  # ours
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return mg.tensor(fast(*(t.detach().numpy() for t in (x, weight, bias)), eps))

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        width = x.shape[-1]
        centered = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / mg.sqrt((centered * centered).mean(axis=-1, keepdims=True) + ctx.eps)
        n = centered * scale
        u = g * weight
        dx = (u - u.mean(axis=-1, keepdims=True) - n * (u * n).mean(axis=-1, keepdims=True)) * scale
        return dx, (g * n).reshape(-1, width).sum(axis=0), g.reshape(-1, width).sum(axis=0), None


def layer_norm(x, weight, bias, eps):
    """Layer normalization of minigrad tensors."""
    # bug: x, weight, bias = (t.detach().numpy() for t in (x, weight, bias))
    # bug: return mg.tensor(fast(x, weight, bias, eps))
    return FastLayerNorm.apply(x, weight, bias, eps)
