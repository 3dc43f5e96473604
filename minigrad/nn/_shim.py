"""Stand-ins of composed operations until the compiled ones of these names are here; then this file goes."""

from minigrad.engine.ops.functions import rsqrt, square
from minigrad.engine.ops.reduce import mean as _mean
from minigrad.engine.tensor import Tensor

EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


def rms_norm(x, normalized_shape, weight=None, eps=None):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if x.shape[x.ndim - len(shape) :] != shape:
        raise ValueError(f"[rms_norm] expected x of shape (..., {', '.join(map(str, shape))}), got {x.shape}")
    axes = tuple(range(-len(shape), 0))
    y = x * rsqrt(_mean(square(x), axes, keepdims=True) + (EPSILON[str(x.dtype)] if eps is None else eps))
    return y if weight is None else y * weight


def _affine(x, weight, bias):
    shape = (1, -1) + (1,) * (x.ndim - 2)
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5, op="group_norm"):
    if x.ndim < 2 or x.shape[1] % num_groups:
        raise ValueError(f"[{op}] expected x of shape (N, C, ...) with C in {num_groups} groups, got {x.shape}")
    n, c = x.shape[:2]
    width = c // num_groups * (x.size // max(n * c, 1))
    rows = x.reshape((n, num_groups, width))
    centered = rows - _mean(rows, 2, keepdims=True)
    y = centered * rsqrt(_mean(square(centered), 2, keepdims=True) + eps)
    return _affine(y.reshape(x.shape), weight, bias)


def instance_norm(x, weight=None, bias=None, eps=1e-5):
    if x.ndim < 3 or (x.size and x.size // (x.shape[0] * x.shape[1]) < 2):
        raise ValueError(f"[instance_norm] expected more than one value per channel, got shape {x.shape}")
    return group_norm(x, x.shape[1], weight, bias, eps, "instance_norm")


def batch_norm_train(x, weight=None, bias=None, eps=1e-5):
    if x.ndim < 2:
        raise ValueError(f"[batch_norm] expected x of shape (N, C, ...), got {x.shape}")
    axes = (0, *range(2, x.ndim))
    if x.size < 2 * x.shape[1]:
        raise ValueError(f"[batch_norm] expected more than one value per channel in training, got shape {x.shape}")
    mean = _mean(x, axes, keepdims=True)
    centered = x - mean
    var = _mean(square(centered), axes, keepdims=True)
    y = _affine(centered * rsqrt(var + eps), weight, bias)
    return y, mean.detach().reshape(-1), var.detach().reshape(-1)


def batch_norm_eval(x, mean, var, weight=None, bias=None, eps=1e-5) -> Tensor:
    if x.ndim < 2 or mean.shape != (x.shape[1],) or var.shape != (x.shape[1],):
        raise ValueError(f"[batch_norm] expected mean and var of shape (C,), got {mean.shape} and {var.shape}")
    shape = (1, -1) + (1,) * (x.ndim - 2)
    return _affine((x - mean.reshape(shape)) * rsqrt(var.reshape(shape) + eps), weight, bias)
