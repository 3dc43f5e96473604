"""Softmax, its logarithm, cross-entropy: the table, extreme logits, ignored labels, invalid labels."""

import math

import numpy as np
import pytest
from checks import Suite, array, litter, near, refuses, tensor, waited
from table.losses import SOFTMAX, cross_entropy

import minigrad as mg

INF = math.inf


class TestTable(Suite):
    ops = SOFTMAX


def exact_softmax(a):
    e = np.exp(a.astype(np.float64) - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_widths(dtype, device, rng):
    """Vectors and their tails, results and gradients of all four kernels."""
    eps = np.finfo(dtype).eps
    for width in (1, 2, 3, 7, 8, 9, 10, 15, 16, 17, 31, 32, 33, 64, 100, 127, 128, 129, 132, 257, 512, 513, 1000, 9000):
        a, g = (rng.uniform(-5, 5, (5, width)).astype(dtype) for _ in range(2))
        p, wide = exact_softmax(a), g.astype(np.float64)
        litter(device)
        x = tensor(a, device, True)
        y, z = mg.softmax(x), mg.log_softmax(x)
        near(y, p, rtol=16 * eps)
        near(z, np.log(p), rtol=16 * eps, atol=16 * eps)
        near(mg.grad(y, x, tensor(g, device)), p * (wide - (wide * p).sum(1, keepdims=True)), rtol=0, atol=64 * eps)  # fmt: skip
        dz = wide - p * wide.sum(1, keepdims=True)
        near(mg.grad(z, x, tensor(g, device)), dz, rtol=0, atol=16 * eps * width**0.5 * 5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1023, 1024, 1025, 1028, 2049, 4096, 4097, 4098, 8192, 8196, 9001])
def test_widths_where_a_kernel_divides_rows_otherwise(width, dtype, device, rng):
    """The most that a warp or a block keeps in registers and the next width, at aligned and other addresses."""
    eps, a = np.finfo(dtype).eps, rng.uniform(-5, 5, 3 * width + 1).astype(dtype)
    labels, weight = rng.integers(0, width, 3), rng.uniform(0.5, 2, width).astype(dtype)
    litter(device)
    for first in (0, 1):
        rows = a[first : first + 3 * width].reshape(3, width)
        p, x = exact_softmax(rows), tensor(a, device)[first : first + 3 * width].reshape(3, width)
        near(mg.softmax(x), p, rtol=16 * eps)
        near(mg.log_softmax(x), np.log(p), rtol=16 * eps)
        wide = rows.astype(np.float64)
        near(mg.logsumexp(x, axis=1), np.log(np.exp(wide).sum(1)), rtol=4 * eps)
        loss = mg.cross_entropy(x, tensor(labels, device), tensor(weight, device), label_smoothing=0.1)
        expected = cross_entropy(wide, labels, weight.astype(np.float64), label_smoothing=0.1)
        np.testing.assert_allclose(loss.item(), expected, rtol=16 * eps)


@pytest.mark.parametrize("width", [40, 9000, 9001])
def test_largest_elements_anywhere(width, device):
    """The sum of a long row is corrected whenever a larger element appears; infinities and NaN stay what they are."""
    up = np.linspace(-200, 200, width, dtype=np.float32)
    rows = np.stack([up, up[::-1], up - 1e4, *np.full((5, width), -INF, np.float32)])
    rows[3, -1], rows[4, :-1], rows[5] = 7, up[:-1], up
    rows[5, width // 2], rows[6, 0] = INF, np.nan
    x = tensor(rows, device)
    y, z, lse = array(mg.softmax(x)), array(mg.log_softmax(x)), array(mg.logsumexp(x, axis=1))
    p = exact_softmax(rows[:5])
    np.testing.assert_allclose(y[:5], p, rtol=2e-5, atol=1e-37)
    wide = rows[:5].astype(np.float64)
    top = wide.max(1)
    exact = top + np.log(np.exp(wide - top[:, None]).sum(1))
    np.testing.assert_allclose(lse[:5], exact, rtol=1e-6)
    np.testing.assert_allclose(z[:5], wide - exact[:, None], rtol=1e-5, atol=2e-5)
    assert np.isnan(y[5:]).all()
    assert np.isnan(z[6:]).all()
    np.testing.assert_array_equal(lse[5:], [INF, np.nan, -INF])


@pytest.mark.parametrize("shape", [(65_537, 3), (3, 70_001), (300, 400)])
def test_sizes_for_threads(shape, device, rng):
    a = rng.uniform(-5, 5, shape).astype(np.float32)
    labels = rng.integers(0, shape[1], shape[0])
    x = tensor(a, device, True)
    near(mg.softmax(x), exact_softmax(a), rtol=4e-6)
    loss = mg.cross_entropy(x, tensor(labels, device))
    np.testing.assert_allclose(loss.item(), cross_entropy(a.astype(np.float64), labels), rtol=1e-6)
    expected = exact_softmax(a)
    expected[np.arange(shape[0]), labels] -= 1
    near(mg.grad(loss, x), expected / shape[0], rtol=1e-5, atol=1e-6 / shape[0])


def test_every_axis(device, rng):
    a = rng.standard_normal((3, 4, 5)).astype(np.float32)
    for axis in range(-3, 3):
        expected = np.moveaxis(exact_softmax(np.moveaxis(a, axis, -1)), -1, axis)
        near(mg.softmax(tensor(a, device), axis), expected, rtol=2e-6)


# ── extreme logits ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_logits(dtype, device):
    rows = np.array([[1e4, 1e4, -1e4], [-1e30, 0, -1e30], [1e38, 1e38, 1e38]], dtype)
    x = tensor(rows, device, True)
    near(mg.softmax(x), [[0.5, 0.5, 0], [0, 1, 0], [1 / 3] * 3], rtol=1e-6)
    expected = np.array(
        [[-math.log(2), -math.log(2), -2e4 - math.log(2)], [-1e30, 0, -1e30], [-math.log(3)] * 3], dtype
    )
    near(mg.log_softmax(x), expected, rtol=1e-6)
    for create_graph in (False, True):
        dx = mg.grad(mg.softmax(x), x, mg.ones((3, 3), dtype=dtype, device=device) * 2, create_graph=create_graph)
        near(dx, 0, atol=1e-6)
    loss = mg.cross_entropy(x, tensor(np.array([2, 1, 0]), device), reduction="none")
    near(loss, [2e4 + math.log(2), 0, math.log(3)], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_masked_logits(dtype, device):
    """-inf has probability 0 and gradient 0; a row of only -inf is NaN, like the mean of an empty array."""
    x = tensor(np.array([[0.0, -INF, 0.0], [-INF, -INF, 5.0]], dtype), device, True)
    y = mg.softmax(x)
    np.testing.assert_allclose(array(y), [[0.5, 0, 0.5], [0, 0, 1]])
    for create_graph in (False, True):
        dx = array(
            mg.grad(
                y,
                x,
                tensor(np.array([[1, 2, 3], [4, 5, 6]], dtype), device),
                retain_graph=True,
                create_graph=create_graph,
            )
        )
        np.testing.assert_allclose(dx, [[-0.5, 0, 0.5], [0, 0, 0]], atol=1e-6)
    assert array(mg.log_softmax(x)).tolist()[1] == [-INF, -INF, 0.0]
    assert np.isnan(array(mg.softmax(mg.full((1, 3), -INF, dtype=dtype, device=device)))).all()
    assert mg.cross_entropy(x.detach(), tensor(np.array([0, 2]), device), reduction="none").tolist() == pytest.approx(
        [math.log(2), 0.0]
    )
    assert mg.cross_entropy(x.detach(), tensor(np.array([1, 2]), device), reduction="none").tolist() == [INF, 0.0]


def test_nan_stays_in_its_row(device):
    x = tensor(np.array([[np.nan, 0.0], [0.0, 0.0]], np.float32), device)
    for y in (mg.softmax(x), mg.log_softmax(x)):
        assert np.isnan(array(y)[0]).all()
        assert np.isfinite(array(y)[1]).all()


def test_a_shift_changes_nothing(device, rng):
    """softmax(x + c) = softmax(x), and its gradient sums to 0."""
    a = rng.standard_normal((5, 9))
    x = tensor(a, device, True)
    y = mg.softmax(x)
    near(y, array(mg.softmax(tensor(a + 300, device))), rtol=1e-12)
    np.testing.assert_allclose(array(y).sum(1), 1, rtol=1e-14)
    dx = array(mg.grad(y, x, tensor(rng.standard_normal((5, 9)), device)))
    np.testing.assert_allclose(dx.sum(1), 0, atol=1e-15)


# ── cross-entropy ─────────────────────────────────────────────────────────────────────────────────


def test_ignored_rows(device):
    """Neither their logits, even NaN, nor their label affect the loss or the gradient; the mean does not count them."""
    logits = np.array([[1.0, 2.0, 3.0], [np.nan, np.nan, np.nan], [3.0, 1.0, 0.0]], np.float32)
    for ignore in (-100, 1, 77):
        labels = np.array([2, ignore, 0])
        for options in (
            {},
            {"label_smoothing": 0.1},
            {"weight": tensor(np.array([1.0, 2.0, 3.0], np.float32), device)},
        ):
            x = tensor(logits, device, True)
            loss = mg.cross_entropy(x, tensor(labels, device), ignore_index=ignore, **options)
            alone = mg.cross_entropy(
                tensor(logits[::2], device), tensor(labels[::2], device), ignore_index=-5, **options
            )
            assert loss.item() == pytest.approx(alone.item(), rel=1e-6)
            dx = array(mg.grad(loss, x))
            np.testing.assert_array_equal(dx[1], 0)
            assert np.isfinite(dx).all()


def test_nothing_to_average(device):
    """As in PyTorch: NaN for a mean, 0 for a sum, a gradient of 0 for each row."""
    x, ignored = mg.ones((2, 3), device=device, requires_grad=True), tensor(np.array([-100, -100]), device)
    assert math.isnan(mg.cross_entropy(x, ignored).item())
    assert mg.cross_entropy(x, ignored, reduction="sum").item() == 0
    none = mg.cross_entropy(x, ignored, reduction="none")
    assert none.tolist() == [0.0, 0.0]
    assert mg.grad(none, x, mg.ones(2, device=device)).tolist() == [[0.0] * 3] * 2
    assert math.isnan(
        mg.cross_entropy(mg.ones((0, 3), device=device), mg.zeros(0, dtype="int64", device=device)).item()
    )


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_gradients_of_every_layout(reduction, device, rng):
    """A cotangent for each row, contiguous or not, or one for all."""
    a = rng.standard_normal((6, 4)).astype(np.float32)
    labels, g = rng.integers(0, 4, 6), rng.standard_normal(12).astype(np.float32)
    p = exact_softmax(a)
    p[np.arange(6), labels] -= 1
    x = tensor(a, device, True)
    loss = mg.cross_entropy(x, tensor(labels, device), reduction=reduction)
    if reduction == "none":
        for grad, expected in (
            (tensor(g, device)[::2], g[::2]),
            (tensor(g, device)[5::-1], g[5::-1]),
            (mg.broadcast_to(tensor(g[:1], device), (6,)), g[:1]),
        ):
            dx = array(mg.grad(loss, x, grad, retain_graph=True))
            np.testing.assert_allclose(dx, p * np.broadcast_to(expected, 6)[:, None], rtol=1e-5, atol=1e-6)
    else:
        dx = array(mg.grad(loss, x, tensor(g[0], device)))
        np.testing.assert_allclose(dx, p * g[0] / (6 if reduction == "mean" else 1), rtol=1e-5, atol=1e-6)


def test_labels_of_either_width(device):
    x = mg.ones((3, 5), device=device)
    for dtype in ("int32", "int64"):
        assert mg.cross_entropy(x, mg.full(3, 4, dtype=dtype, device=device)).item() == pytest.approx(math.log(5))
    assert mg.cross_entropy(x, [0, 1, 2]).item() == pytest.approx(math.log(5))


def test_errors(device):
    x, t = mg.ones((3, 5), device=device), mg.zeros(3, dtype="int64", device=device)
    for labels in ([0.0, 1.0, 2.0], [math.nan, 0.0, 1.0]):
        refuses(TypeError, "cross_entropy", "float64", mg.cross_entropy, x, tensor(np.array(labels), device))
    for bad in (5, -1, -100 + 1, 2**40):
        said = ["0 to 4", str(bad), "row 1" if device == "cpu" else "got"]
        labels = tensor(np.array([0, bad, 1]), device)
        refuses(IndexError, "cross_entropy", said, waited(mg.cross_entropy), x, labels)
    refuses(IndexError, "cross_entropy", ["-100"], waited(mg.cross_entropy), x, t - 100, None, 3)
    refuses(ValueError, "cross_entropy", ["(3, 5)", "(3, 1)"], mg.cross_entropy, x, t[:, None])
    refuses(ValueError, "cross_entropy", "()", mg.cross_entropy, x[0, 0], t[0])
    refuses(ValueError, "cross_entropy", "nan", mg.cross_entropy, x, t, label_smoothing=math.nan)
    refuses(TypeError, "cross_entropy", "int64", mg.cross_entropy, x.astype("int64"), t)
    for name in ("softmax", "log_softmax"):
        refuses(TypeError, name, "int64", getattr(mg, name), t)
        refuses(IndexError, name, ["an axis -1", "0 axes"], getattr(mg, name), x[0, 0])
