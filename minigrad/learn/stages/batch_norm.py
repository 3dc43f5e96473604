"""Batch normalization, and its backward pass through the statistics.

x has N rows (samples) and C columns (channels). Mean and variance are taken
over the rows, one for each channel:

    mean = (1/N) sum x          var = (1/N) sum (x - mean)^2
    n = (x - mean) / sqrt(var + eps)
    y = n * weight + bias

For evaluation, the layer keeps running estimates of both:

    running = (1 - momentum) * running + momentum * new

Here is the trap: the batch is normalized by the variance above, which is
divided by N, but the running estimate takes the unbiased one, divided by
N - 1. N is at least 2. A column whose mean is large, such as 99,000,000, has
to work too.

1. `batch_norm` returns y, the new running mean and the new running variance.
   Make new arrays; those that are passed in belong to the caller.
2. `batch_norm_backward` returns the gradients of x, weight and bias. All
   samples of a batch depend on each other through the statistics. It is the
   formula of layer normalization over the other axis.

NumPy arrays in, NumPy arrays out, float64.
"""

import numpy as np


def batch_norm(x, weight, bias, running_mean, running_var, momentum, eps):  # yours
    mean, var, count = x.mean(axis=0), x.var(axis=0), len(x)
    y = (x - mean) / np.sqrt(var + eps) * weight + bias
    unbiased = var * count / (count - 1)
    return (y, (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_var + momentum * unbiased)


def batch_norm_backward(g, x, weight, eps):  # yours
    root = np.sqrt(x.var(axis=0) + eps)
    n = (x - x.mean(axis=0)) / root
    dx = (g - g.mean(axis=0) - n * (g * n).mean(axis=0)) * weight / root
    return dx, (g * n).sum(axis=0), g.sum(axis=0)
