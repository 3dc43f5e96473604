"""Every normalization with every choice of parameters on inputs that are known to break some, against float64."""

import math

import numpy as np
import pytest
from checks import array, raises, tensor
from norms import EPS, NORMS, check, compare, draw, run

import minigrad as mg

PARAMETERS = {"both": (True, True), "weight": (True, False), "bias": (False, True), "none": (False, False)}

# name: shape of x for parameters per element, for parameters per channel
CELLS = {
    "plain": ((9, 33), (5, 6, 17)),
    "no rows": ((0, 7), (0, 4, 3)),
    "no elements": ((3, 0), (2, 4, 0)),
    "one row": ((1, 40), (1, 4, 25)),
    "more than 65,536 rows": ((65_540, 3), (16_390, 4, 2)),
    "width one": ((6, 1), (7, 2, 1)),
    "rows for a block of threads": ((9, 2_052), (3, 4, 1_030)),
    "rows for the largest block": ((3, 8_192), (2, 4, 2_048)),
    "the same, odd": ((3, 4_095), (3, 4, 1_023)),
    "rows too long for registers": ((2, 9_004), (2, 4, 9_004)),
    "too long, odd": ((2, 9_001), (2, 4, 9_001)),
    "constant": ((4, 20), (3, 4, 6)),
    "mean of 10,000": ((7, 100), (6, 4, 50)),
    "not contiguous": ((6, 31), (4, 6, 9)),
}

MATRIX = [
    (name, cell, parameters)
    for name, norm in NORMS.items() for cell in CELLS for parameters in PARAMETERS
    if norm.shifts or parameters in ("weight", "none")
]  # fmt: skip


def draw_cell(norm, cell, parameters, dtype, rng):
    shape = CELLS[cell][norm.axis != -1]
    x, w, b, g = draw(norm, shape, rng, dtype)
    if cell == "constant":
        rows = norm.to_rows(x)
        x = norm.from_rows(np.repeat(rows[:, :1], rows.shape[1], 1), shape)
    if cell == "mean of 10,000":
        x = x + np.asarray(1e4, dtype)
    weighted, shifted = PARAMETERS[parameters]
    return x, w if weighted else None, b if shifted else None, g


def strided(v, device):
    """Store the values of v in every second element of a larger tensor, with its axes reversed in memory."""
    base = np.full([2 * n for n in v.shape[::-1]], np.nan, v.dtype)
    base.T[(slice(1, None, 2),) * v.ndim] = v
    return tensor(base, device).T[(slice(1, None, 2),) * v.ndim].requires_grad_()


@pytest.mark.parametrize("name, cell, parameters", MATRIX)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_matrix(name, cell, parameters, dtype, create_graph, device, rng):
    norm = NORMS[name]
    values = draw_cell(norm, cell, parameters, dtype, rng)
    inputs = [None if v is None else strided(v, device) for v in values] if cell == "not contiguous" else values
    if (name, cell) == ("instance_norm", "width one"):
        raises(ValueError, r"\] expected more than one value per channel", run, norm, *inputs, device, create_graph)
        return
    compare(norm, run(norm, *inputs, device, create_graph), *values)


# ── rows and widths ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 31, 63, 64, 65, 127, 129, 65_537])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm"])
def test_rows(name, rows, device, rng):
    """None, one, and more than 65,536, with a gradient for each parameter that sums over them all."""
    norm = NORMS[name]
    for shape in ((rows, 3), (rows, 17)) if norm.axis == -1 else ((rows, 2, 3),):
        check(norm, *draw(norm, shape, rng), device)


WIDTHS = 1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 129, 256, 513, 1000
WIDE = {
    -1: [*((5, n) for n in WIDTHS), (2, 70_001)],
    1: [*((3, 4, n) for n in (*WIDTHS, 3000)), (3, 64, 72), (3, 1200, 2)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm"])
def test_widths(name, dtype, device, rng):
    norm = NORMS[name]
    for shape in WIDE[norm.axis]:
        check(norm, *draw(norm, shape, rng, dtype), device, eps=1e-2)


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, shape", [("layer_norm", (50, 1)), ("group_norm", (50, 2))])
def test_rows_of_one(name, shape, dtype, eps, device, rng):
    """y is the bias, exactly, as no information about x is left, and dx is 0: 1/√ε does not amplify rounding errors."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng, dtype)
    y, dx, dw, _ = run(norm, x, w, b, g, device, eps=eps)
    np.testing.assert_array_equal(y, np.broadcast_to(b, shape))
    np.testing.assert_array_equal(dw, 0)
    # with a weight it is a difference of two rounded numbers of this size
    np.testing.assert_allclose(dx, 0, atol=np.finfo(dtype).eps / 2 * np.abs(w * g).max() / math.sqrt(eps))
    np.testing.assert_array_equal(run(norm, x, None, None, g, device, eps=eps)[1], 0)


def test_rms_norm_of_one_value_is_its_sign(device):
    assert mg.rms_norm(tensor(np.array([[3.0], [-7.0]]), device), 1, eps=0.0).tolist() == [[1.0], [-1.0]]


# ── digits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (37, 5)), ("layer_norm", (37, 64)), ("layer_norm", (37, 768)), ("layer_norm", (37, 1001)),
    ("group_norm", (3, 4, 6, 7)), ("group_norm", (3, 4, 500)), ("group_norm", (3, 4, 40, 40)), ("group_norm", (9, 64)),
    ("batch_norm", (100, 30)), ("batch_norm", (5, 4, 6, 6)), ("batch_norm", (6, 3, 40, 40)),
])  # fmt: skip
def test_mean_of_10000_over_spread_of_1(name, shape, device, rng):
    """float32 keeps the digits of its inputs, even if the first samples of a batch are far from the rest."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng)
    x += np.float32(1e4)
    check(norm, x, w, b, g, device, ulps=32 if name == "batch_norm" else 16)
    if name == "batch_norm":
        x[:4] = 0
        check(norm, x, w, b, g, device, ulps=32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6, 1e15])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm", "batch_norm"])
def test_scales(name, scale, device, rng):
    """The gradient is inverse to the scale, but where ε limits it."""
    norm = NORMS[name]
    for dtype, width, eps in (
        ("float32", 33, 1e-5), ("float64", 33, 1e-5), ("float32", 33, 0.0), ("float32", 700, 0.0),
    ):  # fmt: skip
        x, w, b, g = draw(norm, (9, width) if norm.axis == -1 else (9, 4, width), rng, dtype)
        check(norm, x * np.asarray(scale, dtype), w, b, g, device, eps)


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e4, 1e30])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (4, 33)), ("group_norm", (2, 4, 33)), ("instance_norm", (2, 4, 33)), ("batch_norm", (5, 3)), ("batch_norm", (4, 3, 9, 9)),
])  # fmt: skip
def test_constant_rows(name, shape, value, create_graph, device, rng):
    """A dead unit, h = 0 and padding: y is the bias, exactly; dx = (h - mean h)/√ε is finite."""
    norm = NORMS[name]
    for dtype in ("float32", "float64"):
        x, w, b, g = draw(norm, shape, rng, dtype)
        y, dx, dw, _ = run(norm, np.full_like(x, value), w, b, g, device, create_graph)
        np.testing.assert_array_equal(y, np.broadcast_to(norm.along(b, x), shape))
        h = norm.to_rows(g.astype(np.float64) * norm.along(w, x))
        np.testing.assert_allclose(
            norm.to_rows(dx), (h - h.mean(1, keepdims=True)) / math.sqrt(EPS), rtol=1e-4, atol=2e-3
        )
        np.testing.assert_array_equal(dw, 0)


def test_rows_of_zeros_under_rms_norm(device, rng):
    """dx = γ g/√ε."""
    _, w, _, g = draw(NORMS["rms_norm"], (2, 5), rng, "float64")
    y, dx, *_ = run(NORMS["rms_norm"], np.zeros((2, 5)), w, None, g, device, eps=1e-4)
    assert not y.any()
    np.testing.assert_allclose(dx, w * g * 100, rtol=1e-12)


# ── higher orders ─────────────────────────────────────────────────────────────────────────────────


def composed(name, x, w, b):
    """The normalization of x of three axes, of primitive operations."""
    norm, shape = NORMS[name], x.shape
    w, b = (v if v is None or norm.axis == -1 else v[:, None] for v in (w, b))
    axes = {"batch_norm": (0, 2), "group_norm": (2, 3)}.get(name, -1)
    x = x.reshape(shape[0], 2, -1, shape[2]) if name == "group_norm" else x
    x = x - mg.mean(x, axis=axes, keepdims=True) if norm.centered else x
    y = (x / mg.sqrt(mg.mean(x**2, axis=axes, keepdims=True) + EPS)).reshape(shape)
    return y * w if b is None else y * w + b


@pytest.mark.parametrize("name", [name for name, norm in NORMS.items() if not norm.given])
def test_derivatives_of_orders_3_and_4(name, device, rng):
    """Along random directions of x and its weight, they equal those of the composition, unlike PyTorch 2.13's."""
    norm, results = NORMS[name], []
    shapes = [(3, 4, 5), *[((5,) if norm.axis == -1 else (4,))] * (1 + norm.shifts)]
    values = [rng.standard_normal(shape) for shape in shapes]
    weights = rng.standard_normal(shapes[0])
    directions = [[rng.standard_normal(shape) for shape in shapes[:2]] for _ in range(4)]
    for function in (norm.op, lambda *given: composed(name, *given)):
        x, w, *b = (tensor(v, device, True) for v in values)
        y, found = (function(x, w, b[0] if b else None) * tensor(weights, device)).sum(), []
        for direction in directions:
            slopes = mg.grad(y, [x, w], create_graph=True)
            found += map(array, slopes)
            y = sum((slope * tensor(d, device)).sum() for slope, d in zip(slopes, direction, strict=True))
        results.append(found)
    for ours, expected in zip(*results, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-10 * max(1, np.abs(expected).max()))
