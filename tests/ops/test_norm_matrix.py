"""Every normalization with every choice of parameters on inputs that are known to break some, against float64."""

import math

import numpy as np
import pytest
from checks import array, refuses, tensor
from norms import EPS, NORMS, exact, run

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_train

PARAMETERS = {"both": (True, True), "weight": (True, False), "bias": (False, True), "none": (False, False)}

# name: shape of x for parameters per element, for parameters per channel
CELLS = {
    "plain": ((9, 33), (5, 6, 17)),
    "no rows": ((0, 7), (0, 4, 3)),
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


def draw(norm, cell, parameters, dtype, rng):
    shape = CELLS[cell][norm.axis != -1]
    x, g = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    w, b = (rng.standard_normal(shape[norm.axis]).astype(dtype) for _ in range(2))
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
    """Compare the result and gradients; tolerances scale with 1/σ, like the gradient."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, cell, parameters, dtype, rng)
    inputs = (
        [None if v is None else strided(v, device) for v in (x, w, b, g)] if cell == "not contiguous" else [x, w, b, g]
    )
    if (name, cell) == ("instance_norm", "width one"):
        with pytest.raises(ValueError, match=r"\] expected more than one value per channel"):
            run(norm, *inputs, device, create_graph)
        return
    found, expected = run(norm, *inputs, device, create_graph), exact(norm, x, w, b, g)
    d = norm.to_rows(x.astype(np.float64))
    root = np.sqrt((d.var(1) if norm.centered else (d * d).mean(1)) + EPS) if d.size and not norm.given else np.ones(1)
    count, hat = g.size / max(g.shape[norm.axis], 1), np.abs(expected[0]).max(initial=1)
    unit = np.finfo(dtype).eps
    if dtype == "float64":  # what float32 sums and keeps in it has more digits than float32; here it has the same
        unit *= 1 + (np.abs(d).max(1, initial=0) / root).max(initial=0) / 16
    scales = (
        hat, np.abs(expected[1]).max(initial=0) + 1 / root.min(initial=1), *[4 * math.sqrt(count) * hat] * 2,
    )  # fmt: skip
    for what, ours, e, scale in zip(("y", "dx", "dw", "db"), found, expected, scales, strict=True):
        if ours is not None:
            assert (ours.dtype, ours.shape) == (dtype, e.shape), what
            np.testing.assert_allclose(ours, e, rtol=0, atol=16 * unit * scale, err_msg=what)


@pytest.mark.parametrize("name, dtype", [
    ("layer_norm", "float32"), ("layer_norm", "float64"), ("group_norm", "float32"), ("group_norm", "float64"),
    ("instance_norm", "float32"), ("instance_norm", "float64"), ("batch_norm", "float32"), ("batch_norm", "float64"),
])  # fmt: skip
def test_constant_rows_are_the_bias_exactly(name, dtype, device, rng):
    norm = NORMS[name]
    x, w, b, g = draw(norm, "constant", "both", dtype, rng)
    y, _, dw, _ = run(norm, x, w, b, g, device)
    np.testing.assert_array_equal(y, np.broadcast_to(norm.along(b, x), x.shape))
    np.testing.assert_array_equal(dw, np.zeros_like(w))


def test_one_value_in_training(device):
    """One value per channel has no variance, so its information would be lost."""
    for shape in ((1, 4), (1, 4, 1)):
        refuses(ValueError, "batch_norm", ["one value per channel in training", str(shape)],
                batch_norm_train, mg.ones(shape, device=device))  # fmt: skip


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
