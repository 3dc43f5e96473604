"""Reductions: the table, every size of axis, ties, NaN, zeros, empty axes, and digits that must survive."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import Suite, array, equals, near, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import REDUCE

import minigrad as mg


class TestTable(Suite):
    ops = REDUCE


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────

SIZES = [1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 260]
THREADS = [(3, 100_003, 1), (1, 70_001, 3), (40_000, 3, 1), (2, 300, 400), (100_003, 1, 1), (1, 3, 70_001)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("inner", [1, 3, 16, 33])
def test_sizes(inner, dtype, device, rng):
    """Vectors and their tails, along the last axis and across it."""
    for n in SIZES:
        check((3, n, inner), dtype, device, rng)


@pytest.mark.parametrize("shape", THREADS)
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_sizes_for_threads(shape, dtype, device, rng):
    check(shape, dtype, device, rng)


def check(shape, dtype, device, rng):
    a = rng.standard_normal(shape).astype(dtype) if dtype.startswith("f") else rng.integers(-9, 9, shape).astype(dtype)
    x, eps = tensor(a, device), np.finfo(dtype).eps if dtype.startswith("f") else 0
    wide = a.astype(np.float64) if eps else a
    for name in ("sum", "max", "min", "argmax", "argmin", "any", "all"):
        near(getattr(mg, name)(x, 1), getattr(np, name)(wide, 1), rtol=4 * eps, atol=eps * shape[1] * (name == "sum"))  # fmt: skip
    near(mg.cumulative_sum(x, axis=1), np.cumsum(wide, 1), rtol=0, atol=4 * eps * shape[1])
    if eps:
        near(mg.mean(x, 1), wide.mean(1), rtol=4 * eps, atol=4 * eps)
        near(mg.var(x, 1), wide.var(1), rtol=48 * eps, atol=4 * eps)
        near(mg.logsumexp(x, 1), np.log(np.exp(wide).sum(1)), rtol=4 * eps, atol=8 * eps)
        factors = np.where(a < 0, 1 - eps, 1 + eps)
        near(mg.prod(tensor(factors.astype(dtype), device), 1), factors.prod(1), rtol=shape[1] * eps)


@given(hnp.array_shapes(min_dims=0, max_dims=5, max_side=4, min_side=0), st.booleans(), st.data())
def test_any_axes(device, shape, keepdims, data):
    """Any axes of any shape in any order, of a tensor with its axes permuted in memory."""
    axes = data.draw(
        st.none() | st.permutations(range(len(shape))).map(lambda order: order[: data.draw(st.integers(0, len(shape)))])
    )
    if axes is not None:
        axes = tuple(k - len(shape) * data.draw(st.booleans()) for k in axes)
    a = np.arange(1.0, 1 + np.prod(shape)).reshape(shape) % 7 - 3
    x = tensor(a.T.copy(), device).T
    for name in ("sum", "prod", "any", "all", "max", "min"):
        try:
            expected = getattr(np, name)(a, axes, keepdims=keepdims)
        except ValueError:
            refuses(ValueError, name, str(shape), lambda x, name=name: getattr(mg, name)(x, axes), x)
            continue
        y = getattr(mg, name)(x, axes, keepdims=keepdims)
        assert y.shape == expected.shape
        equals(y, expected)


# ── sums of squares ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("axis", [0, 1])
def test_variance_keeps_its_digits(axis, device, rng):
    """With a mean of 1e4 and a deviation of 1 in float32, E[x²] - E[x]² keeps no digit, two passes keep six."""
    a = (rng.standard_normal((1000, 1000)) + 1e4).astype(np.float32)
    exact = a.astype(np.float64).var(axis)
    near(mg.var(tensor(a, device), axis), exact, rtol=2e-6)
    naive = (a * a).mean(axis, dtype=np.float32) - a.mean(axis, dtype=np.float32) ** 2
    assert np.abs(naive / exact - 1).max() > 1


def test_variance_of_too_few(device):
    """As many degrees of freedom as elements, or none at all: NaN with a gradient of NaN, no exception."""
    for shape, correction in (((3, 1), 1), ((3, 2), 2), ((3, 2), 5), ((3, 0), 0)):
        x = mg.ones(shape, device=device, requires_grad=True)
        for create_graph in (False, True):
            y = mg.var(x, 1, correction=correction)
            assert np.isnan(array(y)).all()
            g = mg.grad(y, x, mg.ones(3, device=device), create_graph=create_graph)
            assert np.isnan(array(g)).all()
    assert math.isnan(mg.mean(mg.zeros(0, device=device)).item())
    assert array(mg.mean(mg.zeros((2, 0), device=device), 1)).tolist() == pytest.approx([math.nan] * 2, nan_ok=True)


def test_constant_rows_have_variance_zero(device):
    x = mg.full((4, 1001), 0.1, dtype="float32", device=device)
    assert mg.var(x, 1).tolist() == [0.0] * 4
    assert mg.std(x, 1).tolist() == [0.0] * 4


# ── products ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("values", "gradient"), [
    ([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]), ([2.0, 0.0, 4.0], [0.0, 8.0, 0.0]), ([0.0, 0.0, 4.0], [0.0, 0.0, 0.0]),
    ([0.0, 3.0, 4.0], [12.0, 0.0, 0.0]), ([2.0, 3.0, 0.0], [0.0, 0.0, 6.0]), ([5.0], [1.0]), ([], []),
    ([math.inf, 2.0], [2.0, math.inf]),
])  # fmt: skip
def test_gradient_of_products_with_zeros(values, gradient, device):
    """There is no division: exact with one zero, with several, and next to an infinity."""
    x = tensor(np.array(values), device, True)
    assert mg.grad(mg.prod(x), x).tolist() == gradient


@pytest.mark.parametrize("shape, axis", [((2, 1024), 1), ((1024, 3), 0), ((3, 2, 72), (0, 2)), ((1000,), None)])
def test_gradient_of_long_products(shape, axis, device, rng):
    """Parts of a long row are multiplied side by side; and there is a derivative of the same values."""
    a = rng.uniform(0.8, 1.25, shape)
    a.flat[5] = 0
    x = tensor(a, device, True)
    y = mg.prod(x, axis)
    g = rng.standard_normal(y.shape)
    once = np.where(a == 0, 1, a)
    others = np.expand_dims(g, axis or 0) * once.prod(axis, keepdims=True) / once
    expected = np.where((a == 0).any(axis, keepdims=True) & (a != 0), 0, others)
    for create_graph in (False, True):
        (found,) = mg.grad(y, [x], tensor(g, device), retain_graph=True, create_graph=create_graph)
        near(found, expected, rtol=1e-12)


def test_products_of_zeros_have_second_derivatives(device, rng):
    a = rng.standard_normal((3, 4, 2))
    a[0, 1] = a[1, 2] = a[1, 3] = 0
    assert mg.gradcheck(lambda x: mg.prod(x, 1), tensor(a, device, True), rtol=1e-6, atol=1e-7)
    assert mg.gradcheck(lambda x: mg.prod(x, (0, 2)), tensor(a, device, True), rtol=1e-6, atol=1e-7)


# ── extrema ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_share_the_gradient(name, device):
    """Ties share it equally, as in PyTorch's amax and amin; also with create_graph, and over several axes."""
    a = np.array([[1.0, 3.0, 3.0], [3.0, 0.0, 2.0]])
    a = a if name == "max" else -a
    for create_graph in (False, True):
        x = tensor(a, device, True)
        assert mg.grad(getattr(mg, name)(x), x, create_graph=create_graph).tolist() == [
            [0, 1 / 3, 1 / 3],
            [1 / 3, 0, 0],
        ]
        g = tensor(np.array([2.0, 5.0]), device)
        assert mg.grad(getattr(mg, name)(x, 1), x, g, create_graph=create_graph).tolist() == [[0, 1, 1], [5, 0, 0]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 9, 40])
def test_nan_wins(n, dtype, device):
    """At any position; argmax and argmin return the first one."""
    for k in range(n):
        a = np.arange(n, dtype=dtype)
        a[k] = np.nan
        a[-1] = np.nan
        for layout in (lambda v: v, lambda v: np.stack([v, v], 1)):
            x = tensor(layout(a), device)
            assert np.isnan(array(mg.max(x, 0))).all()
            assert np.isnan(array(mg.min(x, 0))).all()
            assert (array(mg.argmax(x, 0)) == k).all()
            assert (array(mg.argmin(x, 0)) == k).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_the_first_of_equals(dtype, device):
    for n in (1, 7, 8, 33, 100):
        x = mg.ones((n, 3), dtype=dtype, device=device)
        assert mg.argmax(x, 0).tolist() == mg.argmin(x, 0).tolist() == [0] * 3
        assert mg.argmax(x.T, 1).tolist() == [0] * 3
        assert mg.argmax(x).item() == 0


def test_extremes_of_extremes(device):
    """Infinities, and the limits of integers."""
    for values in ([-np.inf, -np.inf], [np.inf, -np.inf], [-0.0, 0.0]):
        x = tensor(np.array(values), device)
        assert mg.max(x).item() == max(values)
        assert mg.min(x).item() == min(values)
    for dtype in ("int32", "int64"):
        info = np.iinfo(dtype)
        x = tensor(np.array([info.min, info.max, info.min], dtype), device)
        assert (mg.max(x).item(), mg.min(x).item()) == (info.max, info.min)
        assert (mg.argmax(x).item(), mg.argmin(x).item()) == (1, 0)
        assert mg.max(x[::2]).item() == info.min


def test_any_and_all(device):
    """NaN is true; for empty input, any is False and all is True."""
    x = tensor(np.array([[0.0, np.nan], [0.0, 0.0]]), device)
    assert mg.any(x, 1).tolist() == [True, False]
    assert mg.all(x, 1).tolist() == [False, False]
    assert mg.any(mg.zeros((2, 0), device=device), 1).tolist() == [False, False]
    assert mg.all(mg.zeros((2, 0), device=device), 1).tolist() == [True, True]


# ── logsumexp ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logsumexp_does_not_overflow(dtype, device):
    inf = math.inf
    rows = np.array([[1000, 1000], [-1000, -1000], [1e30, 0], [-inf, 0], [-inf, -inf], [inf, 0], [inf, -inf]], dtype)
    expected = [1000 + math.log(2), -1000 + math.log(2), 1e30, 0, -inf, inf, inf]
    near(mg.logsumexp(tensor(rows, device), 1), np.array(expected, dtype), rtol=1e-6)
    assert math.isnan(mg.logsumexp(tensor(np.array([np.nan, 1.0], dtype), device)).item())
    assert mg.logsumexp(mg.zeros((2, 0), dtype=dtype, device=device), 1).tolist() == [-inf, -inf]


def test_logsumexp_of_large_numbers_has_a_gradient(device):
    """The softmax, which is finite."""
    x = tensor(np.array([1000.0, 1000.0, -1000.0]), device, True)
    for create_graph in (False, True):
        near(mg.grad(mg.logsumexp(x), x, create_graph=create_graph), [0.5, 0.5, 0], atol=1e-12)


# ── running sums ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("f", [mg.sum, mg.prod, mg.cumulative_sum])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("given", ["bool", "int32", "float64"])
def test_sums_and_products_are_of_the_dtype_asked_for(f, dtype, given, device):
    values = np.array([3, 1, 2, 40_000, 70_000]).astype(given)
    got = f(tensor(values, device), axis=0, dtype=dtype)
    assert got.dtype == dtype
    numpy = {mg.sum: np.sum, mg.prod: np.prod, mg.cumulative_sum: np.cumsum}[f]
    equals(got, numpy(values, axis=0, dtype=dtype))  # int32 wraps around in both


@pytest.mark.parametrize("f", [mg.sum, mg.prod, mg.cumulative_sum])
def test_no_sum_or_product_is_of_bools(f, device):
    x = tensor(np.array([True, False]), device)
    assert f(x, axis=0).dtype == "int64"
    refuses(TypeError, f.__name__, "not defined for bool", f, x, axis=0, dtype="bool")


def test_cumulative_sum(device):
    x = tensor(np.array([1, 2, 3], np.int32), device)
    assert mg.cumulative_sum(x).dtype == "int64"
    assert mg.cumulative_sum(x, include_initial=True).tolist() == [0, 1, 3, 6]
    assert mg.cumulative_sum(x, dtype="float32").dtype == "float32"
    assert mg.cumulative_sum(mg.zeros(0, device=device), include_initial=True).tolist() == [0]
    assert mg.cumulative_sum(x.astype("bool")).tolist() == [1, 2, 3]
    rows = np.arange(35, dtype=np.int64).reshape(7, 5).repeat(3, 0)  # summed in vectors, and the remainder
    equals(mg.cumulative_sum(tensor(rows, device), axis=1), rows.cumsum(1))
    refuses(ValueError, "cumulative_sum", "2 axes", mg.cumulative_sum, mg.ones((2, 3), device=device))


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_errors(device):
    x, n, nothing = mg.ones((2, 3), device=device), mg.arange(3, device=device), mg.zeros((2, 0), device=device)
    for name in ("max", "min", "argmax", "argmin"):
        refuses(ValueError, name, "(2, 0)", getattr(mg, name), nothing, 1)
        refuses(ValueError, name, "(2, 0)", getattr(mg, name), nothing)
        assert getattr(mg, name)(nothing, 0).shape == (0,)
    for name in ("mean", "var", "std", "logsumexp"):
        refuses(TypeError, name, "int64", getattr(mg, name), n)
        refuses(TypeError, name, "bool", getattr(mg, name), n > 1)
    for name in ("prod", "mean", "var", "max", "min", "any", "all", "logsumexp"):
        refuses(IndexError, name, ["-2 to 1", "got 2"], getattr(mg, name), x, 2)
        refuses(ValueError, name, "(0, 0)", getattr(mg, name), x, (0, 0))
    for name in ("argmax", "argmin"):
        refuses(TypeError, name, "(0, 1)", getattr(mg, name), x, (0, 1))
