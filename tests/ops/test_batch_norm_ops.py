"""Batch normalization with the statistics of the batch and with given ones: accuracy, layouts, threads, errors."""

import itertools
import math

import numpy as np
import pytest
from checks import array, litter, refuses, tensor
from table import norms as plain

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

# short and long planes, one block of rows and several, one tile of columns and several
SHAPES = [
    (2, 1), (5, 3), (63, 7), (64, 8), (65, 17), (300, 1100), (3, 4, 2), (130, 5, 7), (2, 3, 63), (2, 3, 64), (4, 5, 9, 13), (3, 2, 30, 41),
    (1, 3, 5), (1, 3, 400), (2, 3, 2, 3, 2), (9, 600, 1, 1), (7, 40, 4, 4), (65_537, 3), (60, 8000), (700, 90, 7),
]  # fmt: skip


def over(x):
    """Return the axes over which statistics are computed."""
    return (0, *range(2, x.ndim))


def along(v, x):
    return v.reshape((-1,) + (1,) * (x.ndim - 2))


def draw(shape, rng, dtype="float32", mean=0.0):
    """Return x, weight, bias and a cotangent."""
    c = shape[1]
    x, w, b, g = (rng.standard_normal(s).astype(dtype) for s in (shape, (c,), (c,), shape))
    return x + np.asarray(mean, dtype), w, b, g


def exact(x, w, b, g, eps=1e-5):
    """Return y, mean, var, dx, dweight, dbias of the formulas, in float64."""
    x, w, b, g = (v.astype(np.float64) for v in (x, w, b, g))
    mean, var = x.mean(over(x)), x.var(over(x))
    r = along(1 / np.sqrt(var + eps), x)
    hat = (x - along(mean, x)) * r
    dw, db, n = (g * hat).sum(over(x)), g.sum(over(x)), x.size / len(mean)
    dx = along(w, x) * r * (g - along(db, x) / n - hat * along(dw, x) / n)
    return plain.batch_norm(x, w, b, eps=eps), mean, var, dx, dw, db


def run(x, w, b, g, device, eps=1e-5):
    leaves = [tensor(v, device, True) for v in (x, w, b)]
    litter(device)
    y, mean, var = batch_norm_train(*leaves, eps)
    return [array(v).copy() for v in (y, mean, var, *mg.grad(y, leaves, tensor(g, device)))]


def run_given(x, w, b, g, device):
    """Do as `run` with statistics that do not come from the batch."""
    leaves = [tensor(v, device, True) for v in (x, w, b)]
    y = batch_norm_eval(leaves[0], tensor(b, device), tensor(w * w, device), *leaves[1:])
    return [array(v).copy() for v in (y, *mg.grad(y, leaves, tensor(g, device)))]


def check(x, w, b, g, device, eps=1e-5, ulps=32):
    unit = np.finfo(x.dtype).eps
    n = x.size / x.shape[1]
    found, (y, mean, var, dx, dw, db) = run(x, w, b, g, device, eps), exact(x, w, b, g, eps)
    steep = 1 / math.sqrt(var.min(initial=1) + eps)
    scales = [
        1 + np.abs(y).max(),
        1 + np.abs(mean).max(),
        1 + var.max(),
        np.abs(dx).max() + steep,
        4 * math.sqrt(n),
        4 * math.sqrt(n),
    ]
    for ours, expected, scale in zip(found, (y, mean, var, dx, dw, db), scales, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=0, atol=ulps * unit * scale)


# ── in training ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes(shape, dtype, device, rng):
    """Results, statistics and gradients against the formulas."""
    check(*draw(shape, rng, dtype), device, 1e-2)


@pytest.mark.parametrize("shape", [(100, 30), (5, 4, 6, 6), (6, 3, 40, 40)])
def test_mean_of_10000_over_spread_of_1(shape, device, rng):
    """float32 keeps the digits of its inputs, even if the first samples are far from the rest."""
    x, w, b, g = draw(shape, rng, mean=1e4)
    check(x, w, b, g, device)
    x[:4] = 0
    check(x, w, b, g, device)


def test_channels_of_very_different_means(device, rng):
    x, w, b, g = draw((200, 3, 9), rng)
    check(x + np.array([-1e4, 0, 1e3], np.float32)[:, None], w, b, g, device)


@pytest.mark.parametrize("scale", [1e-3, 1e6])
def test_scales(scale, device, rng):
    x, w, b, g = draw((70, 5), rng)
    y, _, _, dx, _, _ = run(np.float32(scale) * x, w, b, g, device, 0.0)
    expected = exact(np.float32(scale) * x, w, b, g, 0.0)
    np.testing.assert_allclose(y, expected[0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(dx, expected[3], rtol=0, atol=1e-5 * np.abs(expected[3]).max())


def test_statistics_carry_no_history(device, rng):
    """Mean and biased variance are plain tensors; only y is on the tape."""
    x = tensor(rng.standard_normal((6, 3)), device, True)
    y, mean, var = batch_norm_train(x)
    assert [v.requires_grad for v in (y, mean, var)] == [True, False, False]
    np.testing.assert_allclose(array(var), array(x).var(0), rtol=1e-12)
    before = array(mg.grad(y, x, y.detach() * 2, retain_graph=True)).copy()
    mean += 1
    np.testing.assert_array_equal(array(mg.grad(y, x, y.detach() * 2)), before)


@pytest.mark.parametrize("shape", [(5, 3), (4, 3, 9, 9)])
@pytest.mark.parametrize("create_graph", [False, True])
def test_constant_channels(shape, create_graph, device, rng):
    """A dead unit: y is the bias, exactly; gradients are finite."""
    _, w, b, g = draw(shape, rng)
    for value in (0.0, 0.1, 1e4):
        leaves = [tensor(v, device, True) for v in (np.full(shape, value, np.float32), w, b)]
        y, mean, var = batch_norm_train(*leaves)
        np.testing.assert_array_equal(array(y), np.broadcast_to(along(b, g), shape))
        np.testing.assert_array_equal(array(mean), np.full(3, value, np.float32))
        np.testing.assert_array_equal(array(var), 0)
        dx = array(mg.grad(y, leaves[0], tensor(g, device), create_graph=create_graph))
        wide = g.astype(np.float64)
        centered = along(w, g) * (wide - wide.mean(over(g), keepdims=True)) / math.sqrt(1e-5)
        np.testing.assert_allclose(dx, centered, rtol=1e-4, atol=2e-3)


def test_nan_stays_in_its_channel(device, rng):
    for shape, channel in (((70, 20), 7), ((70, 300), 131), ((5, 20, 3), 7), ((5, 20, 100), 7)):
        x, w, b, g = draw(shape, rng)
        clean = run(x, w, b, g, device)
        x[(3, channel, *(0,) * (len(shape) - 2))] = np.nan
        for ours, before in zip(run(x, w, b, g, device), clean, strict=True):
            axis = 0 if ours.ndim == 1 else 1
            np.testing.assert_array_equal(np.delete(ours, channel, axis), np.delete(before, channel, axis))
        y, mean, _ = batch_norm_train(tensor(x, device))
        assert np.isnan(array(mean)[channel])
        assert np.isnan(array(y)[:, channel]).all()


@pytest.mark.parametrize("shape", [(3001, 65), (3001, 650), (8400, 528), (200, 20, 40), (50, 30, 20, 20)])
def test_threads_change_nothing(shape, device, rng):
    """The split of the sums over the batch depends on the shape alone."""
    inputs, threads, found = draw(shape, rng), mg.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            mg.set_num_threads(count)
            found.append(run(*inputs, device))
    finally:
        mg.set_num_threads(threads)
    for other in found[1:]:
        for ours, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_outputs_that_bypass_the_cache(device, rng):
    """With more than 16 MiB, channels have the same bits as among fewer, whose output stays in the cache."""
    cases = (
        ((2100, 1024), slice(512, 768)), ((40, 64, 1024), slice(5, 9)),
        ((4200, 528), slice(350, 528)), ((4100, 44, 12), slice(20, 44)), ((2100, 2080), slice(1000, 1400)),
        ((70_000, 32), slice(16, 32)), ((35_000, 2, 64), slice(1, 2)),
    )  # fmt: skip
    for ((outer, *of_each), some), (dtype, times) in itertools.product(cases, (("float32", 2), ("float64", 1))):
        x, w, b, g = draw((times * outer, *of_each), rng, dtype)
        x[:4, ::5] += 3e3  # these start far from their mean and need a second pass
        for norm in (run, run_given):
            together = norm(x, w, b, g, device)
            assert together[0].nbytes > 16 << 20
            few = norm(np.ascontiguousarray(x[:, some]), w[some], b[some], np.ascontiguousarray(g[:, some]), device)
            for ours, all_ in zip(few, together, strict=True):
                np.testing.assert_array_equal(ours, all_[some] if all_.ndim == 1 else all_[:, some])


@pytest.mark.parametrize("shape", [(0, 3), (2, 3, 0), (0, 3, 4, 4)])
def test_without_values(shape, device):
    x, w, b = (mg.ones(s, device=device, requires_grad=True) for s in (shape, 3, 3))
    y, mean, var = batch_norm_train(x, w, b)
    assert (y.shape, mean.tolist(), var.tolist()) == (shape, [0.0] * 3, [0.0] * 3)
    for create_graph in (False, True):
        grads = mg.grad(y, [x, w, b], mg.ones(shape, device=device), retain_graph=True, create_graph=create_graph)
        assert (grads[0].shape, *(g.tolist() for g in grads[1:])) == (shape, [0.0] * 3, [0.0] * 3)


def test_without_channels(device):
    for shape in ((3, 0), (2, 0, 3)):
        y, mean, var = batch_norm_train(mg.ones(shape, device=device))
        assert (y.shape, mean.shape, var.shape) == (shape, (0,), (0,))


# ── in evaluation ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES)
def test_given_statistics(shape, device, rng):
    """float32 against float64, with gradients for the statistics too."""
    x, w, b, g = draw(shape, rng)
    mean, var = rng.standard_normal(shape[1]).astype(np.float32), rng.uniform(0.1, 2, shape[1]).astype(np.float32)
    found = []
    for dtype in ("float32", "float64"):
        leaves = [tensor(v.astype(dtype), device, True) for v in (x, mean, var, w, b)]
        litter(device)
        y = batch_norm_eval(*leaves)
        found.append([array(v) for v in (y, *mg.grad(y, leaves, tensor(g.astype(dtype), device)))])
    wide = [v.astype(np.float64) for v in (x, mean, var, w, b)]
    np.testing.assert_allclose(found[1][0], plain.given_batch_norm(np.sqrt)(*wide), rtol=1e-12, atol=1e-12)
    n = x.size / shape[1]
    for ours, e in zip(*found, strict=True):
        np.testing.assert_allclose(ours, e, rtol=0, atol=64 * 2**-23 * (math.sqrt(n) + np.abs(e).max()))


def test_large_given_means(device, rng):
    """(x - mean) is taken before it is scaled, so that a mean of 1e4 costs no digits."""
    x, w, b, _ = draw((50, 6), rng, mean=1e4)
    mean, var = np.full(6, 1e4, np.float32), np.full(6, 0.5, np.float32)
    y = batch_norm_eval(*(tensor(v, device) for v in (x, mean, var, w, b)))
    wide = [v.astype(np.float64) for v in (x, mean, var, w, b)]
    np.testing.assert_allclose(array(y), plain.given_batch_norm(np.sqrt)(*wide), rtol=0, atol=2e-6)


def test_training_and_evaluation_agree(device, rng):
    """Evaluation with the statistics of the batch equals training."""
    x, w, b, _ = (tensor(v, device) for v in draw((6, 3, 5), rng, "float64"))
    y, mean, var = batch_norm_train(x, w, b)
    np.testing.assert_allclose(array(batch_norm_eval(x, mean, var, w, b)), array(y), rtol=1e-12, atol=1e-13)


def test_samples_do_not_depend_on_each_other_in_evaluation(device, rng):
    for shape in ((131, 600), (9, 5, 70)):
        x, w, b, _ = draw(shape, rng)
        rest = [tensor(v, device) for v in (b, np.abs(w), w, b)]
        together = array(batch_norm_eval(tensor(x, device), *rest))
        for rows in ([0], [5], slice(3, None), [7, 7]):
            np.testing.assert_array_equal(array(batch_norm_eval(tensor(x[rows], device), *rest)), together[rows])


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_errors(device):
    x, c = mg.ones((2, 3, 4), device=device), mg.ones(3, device=device)
    for shape in ((1, 3), (1, 3, 1)):
        refuses(
            ValueError, "batch_norm", ["more than one value per channel in training", str(shape)],
            batch_norm_train, mg.ones(shape, device=device),
        )  # fmt: skip
    refuses(ValueError, "batch_norm", "(3,)", batch_norm_train, c)
    refuses(ValueError, "batch_norm", ["weight", "(3,)", "(4,)"], batch_norm_train, x, mg.ones(4, device=device))
    refuses(ValueError, "batch_norm", ["bias", "(3,)", "(3, 1)"], batch_norm_train, x, c, c.reshape((3, 1)))
    refuses(ValueError, "batch_norm", "-1", batch_norm_train, x, c, c, -1.0)
    refuses(TypeError, "batch_norm", ["weight", "float32", "float64"], batch_norm_train, x, c.astype("float64"))
    refuses(TypeError, "batch_norm", "int64", batch_norm_train, x.astype("int64"))
    refuses(ValueError, "batch_norm", "(3,)", batch_norm_eval, c, c, c)
    refuses(ValueError, "batch_norm", ["mean", "(3,)", "(4,)"], batch_norm_eval, x, mg.ones(4, device=device), c)
    refuses(ValueError, "batch_norm", ["var", "(3,)", "(2,)"], batch_norm_eval, x, c, c[:2])
    refuses(TypeError, "batch_norm", ["var", "None"], batch_norm_eval, x, c, None)
    refuses(TypeError, "batch_norm", ["mean", "float32", "float64"], batch_norm_eval, x, c.astype("float64"), c)
    refuses(ValueError, "batch_norm", "nan", batch_norm_eval, x, c, c, None, None, math.nan)
