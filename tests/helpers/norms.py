"""Every normalization in one form: rows of elements that are standardized together, and formulas in NumPy's longest floats."""

import math
from typing import Any, NamedTuple

import numpy as np
from checks import array, litter, tensor

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

EPS = 1e-5


class Norm(NamedTuple):
    op: Any  # takes x, weight, bias and ε
    axis: int  # axes of x along which weight and bias vary
    rows: Any  # the number of rows for a shape of x
    centered: bool = True
    channels_first: bool = False  # whether a row is a channel of all samples
    given: bool = False  # whether the statistics are given, so that a row is a single element
    shifts: bool = True  # whether there is a bias

    def to_rows(self, x):
        count = self.rows(x.shape)
        if self.channels_first:
            x = np.moveaxis(x, 1, 0)
        return x.reshape(count, x.size // max(count, 1))

    def from_rows(self, rows, shape):
        if self.channels_first:
            return np.moveaxis(rows.reshape(shape[1], shape[0], *shape[2:]), 0, 1)
        return rows.reshape(shape)

    def along(self, v, x):
        """Reshape a parameter to broadcast against x."""
        return v if self.axis == -1 else v.reshape((-1,) + (1,) * (x.ndim - 2))

    def summed(self, x):
        """Sum over all elements that share a parameter."""
        return x.sum(tuple(k for k in range(x.ndim) if k != self.axis % x.ndim))


def statistics(channels, dtype):
    """Return means and variances for evaluation."""
    return np.linspace(-1, 2, channels).astype(dtype), np.linspace(0.5, 3, channels).astype(dtype)


def evaluate(x, w, b, eps=EPS):
    mean, var = (tensor(v, x.device) for v in statistics(x.shape[1], str(x.dtype)))
    return batch_norm_eval(x, mean, var, w, b, eps)


NORMS = {
    "layer_norm": Norm(lambda x, w, b, eps=EPS: mg.layer_norm(x, x.shape[-1], w, b, eps), -1, lambda s: math.prod(s[:-1])),
    "rms_norm": Norm(lambda x, w, b, eps=EPS: mg.rms_norm(x, x.shape[-1], w, eps), -1, lambda s: math.prod(s[:-1]), False, shifts=False),
    "group_norm": Norm(lambda x, w, b, eps=EPS: mg.group_norm(x, 2, w, b, eps), 1, lambda s: 2 * s[0]),
    "instance_norm": Norm(lambda x, w, b, eps=EPS: mg.instance_norm(x, weight=w, bias=b, eps=eps), 1, lambda s: s[0] * s[1]),
    "batch_norm": Norm(lambda x, w, b, eps=EPS: batch_norm_train(x, w, b, eps)[0], 1, lambda s: s[1], channels_first=True),
    "batch_norm in evaluation": Norm(evaluate, 1, math.prod, given=True),
}  # fmt: skip


def draw(norm, shape, rng, dtype="float32"):
    """Return x, weight, bias, which is None if there is none, and a cotangent."""
    x, g = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    w, b = (rng.standard_normal(shape[norm.axis]).astype(dtype) for _ in range(2))
    return x, w, b if norm.shifts else None, g


def exact(norm, x, w, b, g, eps=EPS):
    """Return y, dx, dweight and dbias of the formulas, with more digits than float64; w or b may be None."""
    x, g = x.astype(np.longdouble), g.astype(np.longdouble)
    gain = 1.0 if w is None else norm.along(w.astype(np.longdouble), x)
    shift = 0.0 if b is None else norm.along(b.astype(np.longdouble), x)
    if norm.given:
        mean, var = (norm.along(v, x) for v in statistics(x.shape[1], "float64"))
        hat = (x - mean) / np.sqrt(var + eps)
        dx = g * gain / np.sqrt(var + eps)
    else:
        d, h = norm.to_rows(x), norm.to_rows(g * gain)
        if norm.centered and d.size:
            d = d - d[:, :1]  # exact for elements close to each other, so that their mean is not rounded
            d = d - d.mean(1, keepdims=True)
        r = 1 / np.sqrt((d * d).mean(1, keepdims=True) + eps) if d.size else np.ones((len(d), 1))
        hat = d * r
        if d.size:
            h = h - norm.centered * h.mean(1, keepdims=True) - hat * (h * hat).mean(1, keepdims=True)
        hat, dx = norm.from_rows(hat, x.shape), norm.from_rows(r * h, x.shape)
    return hat * gain + shift, dx, norm.summed(g * hat), norm.summed(g)


def run(norm, x, w, b, g, device, create_graph=False, eps=EPS):
    """Return y, dx, dweight and dbias of the operation; None for a parameter that is None."""
    leaves = [None if v is None else v if isinstance(v, mg.Tensor) else tensor(v, device, True) for v in (x, w, b)]
    litter(device)
    y = norm.op(*leaves, eps)
    present = [v for v in leaves if v is not None]
    g = g if isinstance(g, mg.Tensor) else tensor(g, device)
    grads = iter(mg.grad(y, present, g, create_graph=create_graph))
    return [array(y).copy()] + [None if v is None else array(next(grads)).copy() for v in leaves]


def compare(norm, found, x, w, b, g, eps=EPS, ulps=16):
    """Compare what `run` returns with the formulas; tolerances scale with 1/σ, like the gradient."""
    expected = exact(norm, x, w, b, g, eps)
    d = norm.to_rows(x.astype(np.float64))
    root = np.sqrt((d.var(1) if norm.centered else (d * d).mean(1)) + eps) if d.size and not norm.given else np.ones(1)
    count = g.size / max(g.shape[norm.axis], 1)
    unit = np.finfo(x.dtype).eps
    if x.dtype == "float64":  # what float32 sums and keeps in it has more digits than float32; here it has the same
        unit *= 1 + (np.abs(d).max(1, initial=0) / root).max(initial=0) / 16
    scales = 0, 1 / root.min(initial=1), 4 * math.sqrt(count), 4 * math.sqrt(count)
    for what, ours, e, scale in zip(("y", "dx", "dw", "db"), found, expected, scales, strict=True):
        if ours is not None:
            assert (ours.dtype, ours.shape) == (x.dtype, e.shape), what
            scale += np.abs(e).max(initial=what == "y")
            np.testing.assert_allclose(ours, e, rtol=0, atol=ulps * unit * scale, err_msg=what)


def check(norm, x, w, b, g, device, eps=EPS, ulps=16):
    compare(norm, run(norm, x, w, b, g, device, eps=eps), x, w, b, g, eps, ulps)
