import numpy as np


def batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):
    mean, var, count = x.mean(axis=0), x.var(axis=0), len(x)
    y = (x - mean) / np.sqrt(var + eps) * weight + bias
    unbiased = var * count / (count - 1)
    return (
        y,
        (1 - momentum) * running_mean + momentum * mean,
        (1 - momentum) * running_var + momentum * unbiased,
    )


def batch_norm_backward(g, x, weight, eps):
    root = np.sqrt(x.var(axis=0) + eps)
    n = (x - x.mean(axis=0)) / root
    dx = (g - g.mean(axis=0) - n * (g * n).mean(axis=0)) * weight / root
    return dx, (g * n).sum(axis=0), g.sum(axis=0)
