"""Gradients where the derivative is infinite, or there are two, or none: PyTorch's choice, by the plain way and the recorded."""

import math

import numpy as np
import pytest
from checks import agree, equals, near, tensor

import minigrad as mg
from minigrad.nn import functional as F

INF, NAN = math.inf, math.nan
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, INF, -INF, NAN]
PAIRS = tuple(np.array([(a, b) for a in EDGES for b in EDGES]).T)
FINITE = tuple(np.array([(a, b) for a in EDGES[:-1] for b in EDGES[:-1]]).T)
# `norm` is composed: at the origin it has the infinite derivative of the root, and no number for a gradient
ROWS = [[0.0, 0.0, 0.0], [0.0, 2.0, 3.0], [0.0, 0.0, 3.0], [2.0, 2.0, 1.0], [3.0, 3.0, 3.0]]

# (ours, theirs, inputs)
CASES = {
    "std": (lambda x: mg.std(x, axis=1), lambda t, x: t.std(x, 1, correction=0), ROWS),
    "std of one": (mg.std, lambda t, x: t.std(x, correction=0), [3.0]),
    "unbiased std": (lambda x: mg.std(x, axis=1, correction=1), lambda t, x: t.std(x, 1), ROWS),
    "var": (lambda x: mg.var(x, axis=1), lambda t, x: t.var(x, 1, correction=0), ROWS),
    "norm": (lambda x: mg.sqrt(mg.sum(x * x, 1)), lambda t, x: t.sqrt((x * x).sum(1)), ROWS),
    "prod": (lambda x: mg.prod(x, axis=1), lambda t, x: t.prod(x, 1), ROWS),
    "max": (lambda x: mg.max(x, axis=1), lambda t, x: t.amax(x, 1), [*ROWS, [NAN, 1.0, 2.0], [INF, INF, 1.0]]),
    "min": (lambda x: mg.min(x, axis=1), lambda t, x: t.amin(x, 1), [*ROWS, [NAN, 1.0, 2.0], [-INF, 1.0, -INF]]),
    "max of all": (mg.max, lambda t, x: t.max(x), ROWS),
    "logsumexp": (lambda x: mg.logsumexp(x, axis=1), lambda t, x: t.logsumexp(x, 1), [[INF, 1.0], [-INF, -INF], [-INF, 1.0]]),
    "atan2": (mg.atan2, lambda t, a, b: t.atan2(a, b), *PAIRS),
    "power": (mg.power, lambda t, a, b: t.pow(a, b), *PAIRS),
    "maximum": (mg.maximum, lambda t, a, b: t.maximum(a, b), *FINITE),
    "minimum": (mg.minimum, lambda t, a, b: t.minimum(a, b), *FINITE),
    "divide": (mg.divide, lambda t, a, b: a / b, *PAIRS),
    "remainder": (mg.remainder, lambda t, a, b: t.remainder(a, b), *PAIRS),
    **{
        f"x**{n}": (lambda x, n=n: x**n, lambda t, x, n=n: x ** t.tensor(n, dtype=x.dtype), EDGES)  # x**0.5 is sqrt there
        for n in (0, 0.0, 1, 2, 3, -1, -2, 0.5, 1.5)
    },
    **{
        f"{a}**x": (lambda x, a=a: a**x, lambda t, x, a=a: t.pow(t.tensor(a, dtype=x.dtype), x), EDGES)
        for a in (0.0, 1.0, 2.0)
    },
    "clip": (lambda x: mg.clip(x, -1, 1), lambda t, x: t.clamp(x, -1, 1), EDGES[:-1]),
    "empty clip": (lambda x: mg.clip(x, 1, -1), lambda t, x: t.clamp(x, 1, -1), EDGES[:-1]),
    "limits of clip": (mg.clip, lambda t, x, low, high: t.clamp(x, low, high), [0.0, 1.0, -3.0, 2.0], [0.0, 2.0, -1.0, 0.0], [1.0, 1.0, 1.0, 2.0]),
    **{
        name: (getattr(mg, name), lambda t, x, name=name: getattr(t, name)(x), [*EDGES[:-1], 2.0])
        for name in ("sqrt", "rsqrt", "log", "log1p", "log2", "reciprocal", "abs", "sign", "asin", "acos", "atan", "acosh", "asinh", "atanh",
                     "exp", "expm1", "tanh", "erf", "square", "floor")
    },
    "relu": (F.relu, lambda t, x: t.relu(x), EDGES[:-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_gradients_at_singular_points(name, device, rng):
    torch = pytest.importorskip("torch")
    ours, theirs, *values = CASES[name]
    points = [torch.tensor(np.asarray(v), dtype=torch.float64, requires_grad=True) for v in values]
    expected = theirs(torch, *points)
    g = rng.uniform(0.5, 2, expected.shape)
    grads = torch.autograd.grad(expected, points, torch.tensor(g), materialize_grads=True)
    for create_graph in (False, True):
        leaves = [tensor(np.asarray(v, "float64"), device, True) for v in values]
        y = ours(*leaves)
        near(y, expected.detach().numpy(), rtol=1e-12)
        found = mg.grad(y, leaves, tensor(np.asarray(g), device), create_graph=create_graph)
        agree(found, grads, rtol=1e-12)


def test_second_derivatives_of_what_is_flat(device):
    """Where a gradient is 0 by choice, so are its derivatives: they do not become NaN."""
    still = tensor(np.full((2, 3), 4.0), device, True)
    zero = tensor(np.zeros(2), device, True)
    for f, xs in (
        (lambda x: mg.std(x, axis=1), [still]), (mg.atan2, [zero, tensor(np.zeros(2), device, True)]),
        (lambda b: 0.0**b, [tensor(np.array([0.0, 2.0]), device, True)]),
    ):  # fmt: skip
        y = f(*xs)
        g = mg.grad(y, xs, tensor(np.array([0.7, -1.3]), device), create_graph=True)
        total = sum((d * d).sum() + (3 * d).sum() for d in g)
        for x in mg.grad(total, xs):
            equals(x, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clip_with_limits_that_are_not_numbers(dtype, device):
    """NaN as a limit gives NaN, as in NumPy: a wrongly computed bound must not be ignored."""
    a = np.array(EDGES, dtype)
    x = tensor(a, device)
    for low, high in ((NAN, 1.0), (-1.0, NAN), (NAN, None), (None, NAN), (NAN, NAN), (-1.0, 1.0)):
        equals(mg.clip(x, low, high), np.clip(a, low, high))
    limits = np.roll(a, 3)
    equals(mg.clip(x, tensor(limits, device), 1.0), np.clip(a, limits, dtype_of(1, a)))
    equals(mg.clip(x, -1, limits if device == "cpu" else tensor(limits, device)), np.clip(a, dtype_of(-1, a), limits))


def dtype_of(number, array):
    return array.dtype.type(number)
