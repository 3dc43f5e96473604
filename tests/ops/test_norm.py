"""Layer normalization: the table, the digits that must survive, and every number of rows."""

import math

import numpy as np
import pytest
from checks import Suite, array, litter, refuses, tensor
from table.norms import NORM, layer_norm

import minigrad as mg


class TestTable(Suite):
    ops = NORM


def gradients(x, weight, g, eps):
    """Return the gradients of the paper's formula in float64, for rows."""
    n = x.shape[-1]
    centered = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((centered**2).mean(-1, keepdims=True) + eps)
    hat, h = centered * r, g * weight
    dx = r * (h - h.mean(-1, keepdims=True) - hat * (h * hat).mean(-1, keepdims=True))
    return dx, (g * hat).reshape(-1, n).sum(0), g.reshape(-1, n).sum(0)


def check(a, device, rng, eps=1e-5, ulps=16):
    """Check the result and gradients in a's dtype against float64; tolerances scale with 1/σ, like the gradient."""
    unit = np.finfo(a.dtype).eps
    n = a.shape[-1]
    weight, bias, g = (rng.standard_normal(s).astype(a.dtype) for s in ((n,), (n,), a.shape))
    wide = a.astype(np.float64)
    x, w, b = (tensor(v, device, True) for v in (a, weight, bias))
    litter(device)
    y = mg.layer_norm(x, n, w, b, eps)
    exact = layer_norm(wide, weight.astype(np.float64), bias.astype(np.float64), normalized_shape=n, eps=eps)
    np.testing.assert_allclose(array(y), exact, rtol=0, atol=ulps * unit * max(np.abs(exact).max(initial=0), 1))
    dx, dw, db = mg.grad(y, [x, w, b], tensor(g, device))
    exact_dx, exact_dw, exact_db = gradients(wide, weight.astype(np.float64), g.astype(np.float64), eps)
    scale = np.abs(exact_dx).max(initial=0) + 1 / np.sqrt(wide.var(-1).min(initial=1) + eps)
    np.testing.assert_allclose(array(dx), exact_dx, rtol=0, atol=ulps * unit * scale)
    rows = max(a.size // max(n, 1), 1)
    for ours, exact in ((dw, exact_dw), (db, exact_db)):
        np.testing.assert_allclose(
            array(ours), exact, rtol=0, atol=ulps * unit * (4 * math.sqrt(rows) + np.abs(exact).max(initial=0))
        )


# ── digits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [5, 64, 768, 1001])
def test_mean_of_10000_over_spread_of_1(width, device, rng):
    """float32 keeps the digits of its inputs; a one-pass formula with squares would lose all of them."""
    a = (rng.standard_normal((37, width)) + 1e4).astype(np.float32)
    check(a, device, rng)
    exact = layer_norm(a.astype(np.float64), normalized_shape=width)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    one_pass = (a - mean) / np.sqrt(np.abs((a * a).mean(-1, keepdims=True, dtype=np.float32) - mean * mean) + 1e-5)
    assert np.abs(one_pass - exact).max() > 0.1


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_scales(scale, device, rng):
    a = (scale * rng.standard_normal((9, 33))).astype(np.float32)
    check(a, device, rng, ulps=64)
    check(a.astype(np.float64), device, rng, ulps=64)


def test_the_misprinted_formula_would_be_noticed(device, rng):
    """(x - μ) / (σ² + √ε), a misprint of the paper, fails the checks that ours passes."""
    a = rng.standard_normal((9, 33)) * 0.1

    def printed(x, eps):
        return (x - x.mean(-1, keepdims=True)) / (x.var(-1, keepdims=True) + math.sqrt(eps))

    for eps in (1e-5, 1e-12):
        exact = layer_norm(a, normalized_shape=33, eps=eps)
        np.testing.assert_allclose(array(mg.layer_norm(tensor(a, device), 33, eps=eps)), exact, rtol=1e-12, atol=1e-13)
        with pytest.raises(AssertionError, match="Not equal"):
            np.testing.assert_allclose(printed(a, eps), exact, rtol=1e-12, atol=1e-13)
    outside = (a - a.mean(-1, keepdims=True)) / (a.std(-1, keepdims=True) + 1e-5)
    with pytest.raises(AssertionError, match="Not equal"):
        np.testing.assert_allclose(outside, layer_norm(a, normalized_shape=33), rtol=1e-12, atol=1e-13)


def test_eps_is_a_variance(device):
    """Rows of ±1 have variance 1: y = ±1/√(1 + ε), for any ε."""
    x = tensor(np.array([[1.0, -1.0, 1.0, -1.0]]), device)
    for eps in (0.0, 1e-5, 1.0, 3.0):
        np.testing.assert_allclose(
            array(mg.layer_norm(x, 4, eps=eps)), [[(1 + eps) ** -0.5 * s for s in (1, -1, 1, -1)]], rtol=1e-14
        )


# ── rows and widths ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 31, 63, 64, 65, 127, 129, 65_537])
@pytest.mark.parametrize("width", [3, 17])
def test_rows(rows, width, device, rng):
    """None, one, and more than 65,536, with a gradient for each parameter that sums over them all."""
    check(rng.standard_normal((rows, width)).astype(np.float32), device, rng)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_widths(dtype, device, rng):
    for width in (1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100, 127, 129, 256, 513, 1000):
        check(rng.standard_normal((5, width)).astype(dtype), device, rng, eps=1e-2)


def test_wide_rows(device, rng):
    check(rng.standard_normal((2, 70_001)).astype(np.float32), device, rng)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("eps", [1e-5, 1e-12])
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_the_gradient_of_a_row_of_one_is_zero(norm, eps, dtype, device, rng):
    """1/√ε does not amplify rounding errors: h minus its mean is 0."""
    a, g = (rng.standard_normal((50, 6)).astype(dtype) for _ in range(2))
    x = tensor(a if norm == "group" else a.reshape(-1, 1), device, True)
    y = mg.group_norm(x, 6, eps=eps) if norm == "group" else mg.layer_norm(x, 1, eps=eps)
    (dx,) = mg.grad(y, [x], tensor(g.reshape(x.shape), device))
    np.testing.assert_array_equal(array(dx), 0)


def test_width_one(device):
    """No information about x is left: y is the bias, exactly, and dx is 0."""
    x = tensor(np.array([[3.0], [-7.0]], np.float32), device, True)
    w, b = tensor(np.array([2.0], np.float32), device, True), tensor(np.array([5.0], np.float32), device, True)
    y = mg.layer_norm(x, 1, w, b)
    assert y.tolist() == [[5.0], [5.0]]
    dx, dw, db = mg.grad(y, [x, w, b], tensor(np.array([[2.0], [3.0]], np.float32), device))
    np.testing.assert_allclose(array(dx), 0, atol=2**-24 * 6 / math.sqrt(1e-5))  # a difference of two of that size
    assert dw.tolist() == [0.0]
    assert db.tolist() == [5.0]


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e4, 1e30])
@pytest.mark.parametrize("create_graph", [False, True])
def test_constant_rows(value, create_graph, device, rng):
    """h = 0 and padding: y is the bias, exactly; dx = (g - mean g)/√ε, finite."""
    g = rng.standard_normal((4, 33)).astype(np.float32)
    weight, bias = (rng.standard_normal(33).astype(np.float32) for _ in range(2))
    x = tensor(np.full((4, 33), value, np.float32), device, True)
    w, b = tensor(weight, device, True), tensor(bias, device)
    y = mg.layer_norm(x, 33, w, b)
    np.testing.assert_array_equal(array(y), np.broadcast_to(bias, (4, 33)))
    dx, dw = mg.grad(y, [x, w], tensor(g, device), create_graph=create_graph)
    h = g.astype(np.float64) * weight
    np.testing.assert_allclose(array(dx), (h - h.mean(1, keepdims=True)) / math.sqrt(1e-5), rtol=1e-4, atol=2e-3)
    np.testing.assert_array_equal(array(dw), 0)


# ── independence ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [3, 16, 100, 769])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_do_not_depend_on_each_other(width, dtype, device, rng):
    """A row has the same bits of y and dx alone, at any position in any batch, and next to NaN."""
    a, g = (rng.standard_normal((131, width)).astype(dtype) for _ in range(2))
    w, b = (tensor(rng.standard_normal(width).astype(dtype), device) for _ in range(2))

    def run(rows):
        x = tensor(a[rows], device, True)
        y = mg.layer_norm(x, width, w, b)
        return array(y), array(mg.grad(y, x, tensor(g[rows], device)))

    together = run(slice(None))
    for rows in ([7], [130], slice(1, None), slice(3, 64), [7, 7, 7], list(range(130, -1, -1))):
        for ours, all_ in zip(run(rows), together, strict=True):
            np.testing.assert_array_equal(ours, all_[rows])
    a[5] = np.nan
    for ours, all_ in zip(run(slice(None)), together, strict=True):
        assert np.isnan(ours[5]).all()
        np.testing.assert_array_equal(np.delete(ours, 5, 0), np.delete(all_, 5, 0))


def test_threads_change_nothing(device, rng):
    """The split of the sums over rows depends on the number of rows alone."""
    a, g = (tensor(rng.standard_normal((3000, 65)).astype(np.float32), device) for _ in range(2))
    threads, found = mg.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            mg.set_num_threads(count)
            x, w, b = (
                a.detach().requires_grad_(),
                mg.ones(65, device=device, requires_grad=True),
                mg.zeros(65, device=device, requires_grad=True),
            )
            y = mg.layer_norm(x, 65, w, b)
            found.append([array(v).copy() for v in (y, *mg.grad(y, [x, w, b], g))])
    finally:
        mg.set_num_threads(threads)
    for other in found[1:]:
        for ours, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_what_normalization_does_not_see(device, rng):
    """Shifting and scaling a row changes nothing, so dx is orthogonal to ones and to x̂."""
    a = rng.standard_normal((8, 50))
    x = tensor(a, device, True)
    y = mg.layer_norm(x, 50, eps=0.0)
    np.testing.assert_allclose(
        array(y), array(mg.layer_norm(tensor(3 * a + 7, device), 50, eps=0.0)), rtol=1e-10, atol=1e-11
    )
    np.testing.assert_allclose(array(y).mean(1), 0, atol=1e-14)
    np.testing.assert_allclose(array(y).var(1), 1, rtol=1e-13)
    dx = array(mg.grad(y, x, tensor(rng.standard_normal((8, 50)), device)))
    np.testing.assert_allclose(dx.sum(1), 0, atol=1e-12)
    np.testing.assert_allclose((dx * array(y)).sum(1), 0, atol=1e-12)


def test_the_axes_of_a_shape(device, rng):
    """(C, H, W) normalizes all three axes; non-contiguous layouts are read correctly."""
    a = rng.standard_normal((2, 3, 4, 5))
    w = rng.standard_normal((3, 4, 5))
    np.testing.assert_allclose(
        array(mg.layer_norm(tensor(a, device), (3, 4, 5), tensor(w, device))),
        layer_norm(a, w, normalized_shape=(3, 4, 5)),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        array(mg.layer_norm(tensor(a, device).T, 2)), layer_norm(a.T, normalized_shape=2), rtol=1e-9
    )


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_errors(device):
    x, w = mg.ones((2, 3, 4), device=device), mg.ones(4, device=device)
    refuses(ValueError, "layer_norm", ["(..., 5)", "(2, 3, 4)"], mg.layer_norm, x, 5)
    refuses(ValueError, "layer_norm", ["(..., 2, 4)", "(2, 3, 4)"], mg.layer_norm, x, (2, 4))
    refuses(ValueError, "layer_norm", "normalized_shape of at least one axis, got ()", mg.layer_norm, x, ())
    refuses(ValueError, "layer_norm", "(2, 3, 4)", mg.layer_norm, x, (1, 2, 3, 4))
    refuses(ValueError, "layer_norm", ["weight", "(3, 4)", "(4,)"], mg.layer_norm, x, (3, 4), w)
    refuses(ValueError, "layer_norm", ["bias", "(4,)", "(3,)"], mg.layer_norm, x, 4, None, mg.ones(3, device=device))
    refuses(ValueError, "layer_norm", "-1", mg.layer_norm, x, 4, None, None, -1.0)
    refuses(ValueError, "layer_norm", "nan", mg.layer_norm, x, 4, None, None, math.nan)
    refuses(TypeError, "layer_norm", ["weight", "float32", "float64"], mg.layer_norm, x, 4, w.astype("float64"))
    refuses(TypeError, "layer_norm", "int64", mg.layer_norm, x.astype("int64"), 4)
    refuses(TypeError, "layer_norm", "int64", mg.layer_norm, x, 4, w.astype("int64"))
