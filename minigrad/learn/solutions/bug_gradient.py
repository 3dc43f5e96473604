import numpy as np

import minigrad as mg


def fast(x, weight, bias, eps):
    mean = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + eps) * weight + bias


class FastLayerNorm(mg.Function):
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
    return FastLayerNorm.apply(x, weight, bias, eps)
