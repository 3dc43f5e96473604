"""Pooling: the table, random configurations against PyTorch, and which of equal elements gets the gradient."""

import tracemalloc

import numpy as np
import pytest
from checks import Suite, array, close, equals, litter, refuses, tensor
from table.windows import POOLING

import minigrad as mg
from minigrad.nn import functional as F


class TestTable(Suite):
    ops = POOLING


def beside_torch(name, x, rng, device, ulps, *arguments, **options):
    """Return the result and the gradient for a random cotangent."""
    torch = pytest.importorskip("torch")
    ours, theirs = tensor(x, device, requires_grad=True), torch.tensor(x, requires_grad=True)
    litter(device)
    y = getattr(F, name)(ours, *arguments, **options)
    expected = getattr(torch.nn.functional, name)(theirs, *arguments, **options)
    if name == "max_pool2d":
        again, places = F.max_pool2d(ours, *arguments, **options, return_indices=True)
        equals(again, array(y))
        _, index = torch.nn.functional.max_pool2d(theirs, *arguments, **options, return_indices=True)
        equals(places, index.numpy())
        assert places.dtype == "int64"
        y = again
    assert y.shape == tuple(expected.shape)
    g = rng.standard_normal(y.shape).astype(x.dtype)
    (theirs,) = torch.autograd.grad(expected, theirs, torch.from_numpy(g))
    close(array(y), expected.detach().numpy(), ulps, x.dtype, str(options))
    close(array(mg.grad(y, ours, tensor(g, device))), theirs.numpy(), ulps, x.dtype, str(options))


@pytest.mark.parametrize("seed", range(200))
def test_random_configurations_beside_torch(seed, device):
    """Make an input with few distinct values, and some NaN for the maxima."""
    rng = np.random.default_rng(seed)
    kernel, stride = (tuple(int(n) for n in rng.integers(1, 5, 2)) for _ in range(2))
    dilation = tuple(int(n) for n in rng.integers(1, 3, 2))
    if rng.random() < 0.3:
        kernel, stride, dilation = (2, 2), (2, 2), (1, 1)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    shape = (int(rng.integers(0, 4)), int(rng.integers(1, 4)), *(int(r + rng.choice([1, 4, 6, 14, 30])) for r in reach))
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in kernel)
    dtype, ceil_mode = ("float32" if seed % 2 else "float64"), bool(rng.random() < 0.4)
    ties = rng.integers(0, 4, shape).astype(dtype)
    ties[rng.random(shape) < 0.02] = np.nan
    beside_torch(
        "max_pool2d", ties, rng, device, 4,
        kernel_size=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode,
    )  # fmt: skip
    x = rng.standard_normal(shape).astype(dtype)
    beside_torch(
        "avg_pool2d", x, rng, device, 16, kernel_size=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=seed % 3 > 0, divisor_override=None if seed % 5 else int(rng.integers(1, 9)),
    )  # fmt: skip
    beside_torch("adaptive_avg_pool2d", x, rng, device, 16, tuple(int(n) for n in rng.integers(1, 9, 2)))


@pytest.mark.parametrize("columns", [2, 3, 5, 7, 8, 15, 16, 33])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows_of_two_by_two(columns, dtype, rng, device):
    """Results fill whole registers, half of them, or single elements; in odd planes too."""
    for height in (4, 5):
        for width in (2 * columns, 2 * columns + 1):
            x = rng.integers(0, 3, (3, 2, height, width)).astype(dtype)
            beside_torch("max_pool2d", x, rng, device, 0, 2)
            x[rng.random(x.shape) < 0.1] = np.nan
            beside_torch("max_pool2d", x, rng, device, 0, 2)
            beside_torch("max_pool2d", np.full_like(x, -np.inf), rng, device, 0, 2)


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_first_of_equals_gets_the_gradient(create_graph, device):
    x = mg.tensor([[[1.0, 5.0, 5.0, 0.0], [5.0, 5.0, 0.0, 5.0]]], device=device, requires_grad=True)
    y = F.max_pool2d(x, 2)
    (dx,) = mg.grad(y, [x], mg.tensor([[[2.0, 3.0]]], device=device), create_graph=create_graph)
    assert dx.tolist() == [[[0, 2, 3, 0], [0, 0, 0, 0]]]
    overlapping = F.max_pool2d(x, 2, stride=1)
    (dx,) = mg.grad(overlapping, [x], mg.tensor([[[2.0, 3.0, 4.0]]], device=device), create_graph=create_graph)
    assert dx.tolist() == [[[0, 5, 4, 0], [0, 0, 0, 0]]]


def test_many_windows_in_little_memory():
    """The table of windows is built without a Python object for each of them."""
    x, n = mg.tensor([[[1.0], [3.0]]]), 200_001
    tracemalloc.start()
    y = F.adaptive_avg_pool2d(x, (n, 1))
    z = F.avg_pool2d(mg.ones((1, n, 1)), (2, 1), 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 18
    assert y.sum().item() == 2 * n  # the middle windows contain both elements
    assert z.sum().item() == n - 1


def test_means_of_long_windows_keep_their_digits(device):
    """Sums are in float64: the mean of a thousand numbers near 10⁴ is accurate."""
    x = np.float32(1e4) + np.tile(np.float32([-0.5, 0.5]), 500 * 1000).reshape(1, 1, 1000, 1000)
    assert F.adaptive_avg_pool2d(tensor(x, device), 1).item() == 1e4


X = mg.ones((2, 4, 5, 6))
MOVING = [("max_pool2d", F.max_pool2d), ("avg_pool2d", F.avg_pool2d)]
ALL = [*MOVING, ("adaptive_avg_pool2d", F.adaptive_avg_pool2d)]


@pytest.mark.parametrize("op, error, numbers, call", [
    *((name, ValueError, ["(N, C, H, W)", "(5, 6)"], lambda f=f: f(X[0, 0], 2))
      for name, f in ALL),
    *((name, ValueError, ["rows and columns", "(2, 4, 0, 6)"], lambda f=f: f(X[:, :, :0], 2))
      for name, f in ALL),
    *((name, TypeError, "int64", lambda f=f: f(X.astype("int64"), 2))
      for name, f in ALL),
    *((name, ValueError, ["one of 7", "axis of 5"], lambda f=f: f(X, 7)) for name, f in MOVING),
    *((name, ValueError, ["half a window", "got 2", "of 3"], lambda f=f: f(X, 3, padding=2))
      for name, f in MOVING),
    *((name, ValueError, ["kernel_size >= 1", "0"], lambda f=f: f(X, 0)) for name, f in MOVING),
    *((name, TypeError, ["stride", "0.5"], lambda f=f: f(X, 2, stride=0.5)) for name, f in MOVING),
    ("max_pool2d", ValueError, ["window 0", "axis of 1", "dilation 3"], lambda: F.max_pool2d(X[:, :, :1], (2, 1), padding=(2, 0), dilation=(3, 1))),
    *((name, ValueError, ["one of 7", "axis of 5"], lambda f=f: f(X, 7, 2, ceil_mode=True)) for name, f in MOVING),
    *((name, ValueError, [f"{of} < {2**31}", str(2**62)], lambda f=f, of=of: f(X, **{"kernel_size": 5, of: 2**62}))
      for name, f in MOVING for of in ("kernel_size", "stride", "padding")),
    ("max_pool2d", ValueError, [f"dilation < {2**31}", str(2**62)], lambda: F.max_pool2d(X, 5, dilation=2**62)),
    ("avg_pool2d", ValueError, "divisor_override", lambda: F.avg_pool2d(X, 2, divisor_override=0)),
    ("adaptive_avg_pool2d", ValueError, ["output_size", "0"], lambda: F.adaptive_avg_pool2d(X, (2, 0))),
    ("adaptive_avg_pool2d", ValueError, ["output_size", str(2**40)], lambda: F.adaptive_avg_pool2d(X, (None, 2**40))),
    ("adaptive_avg_pool2d", ValueError, "(1, 2, 3)", lambda: F.adaptive_avg_pool2d(X, (1, 2, 3))),
])  # fmt: skip
def test_errors(op, error, numbers, call):
    refuses(error, op, numbers, call)
