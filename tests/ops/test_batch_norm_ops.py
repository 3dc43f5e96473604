"""Batch normalization with the statistics of the batch and with given ones: planes of every size, statistics."""

import itertools
import math

import norms
import numpy as np
import pytest
from checks import array, equals, litter, near, tensor
from norms import NORMS, draw, run
from table.norms import given_batch_norm

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

# short and long planes, one block of rows and several, one tile of columns and several
SHAPES = [
    (2, 1), (5, 3), (63, 7), (64, 8), (65, 17), (300, 1100), (3, 4, 2), (130, 5, 7), (2, 3, 63), (2, 3, 64), (4, 5, 9, 13), (3, 2, 30, 41),
    (1, 3, 5), (1, 3, 400), (2, 3, 2, 3, 2), (9, 600, 1, 1), (7, 40, 4, 4), (65_537, 3), (60, 8000), (700, 90, 7),
]  # fmt: skip
TRAINING, GIVEN = NORMS["batch_norm"], NORMS["batch_norm in evaluation"]


def check(x, w, b, g, device, eps=1e-5):
    """Check the result, the statistics and the gradients."""
    norms.check(TRAINING, x, w, b, g, device, eps, ulps=32)
    litter(device)
    rows = TRAINING.to_rows(x.astype(np.float64))
    for ours, exact in zip(batch_norm_train(tensor(x, device))[1:], (rows.mean(1), rows.var(1)), strict=True):
        atol = 32 * np.finfo(x.dtype).eps * (1 + np.abs(exact).max())
        near(ours, exact, rtol=0, atol=atol)


# ── in training ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes(shape, dtype, device, rng):
    """Results, statistics and gradients against the formulas."""
    check(*draw(TRAINING, shape, rng, dtype), device, 1e-2)


def test_channels_of_very_different_means(device, rng):
    x, w, b, g = draw(TRAINING, (200, 3, 9), rng)
    check(x + np.array([-1e4, 0, 1e3], np.float32)[:, None], w, b, g, device)


def test_statistics_carry_no_history(device, rng):
    """Mean and biased variance are plain tensors; only y is on the tape."""
    x = tensor(rng.standard_normal((6, 3)), device, True)
    y, mean, var = batch_norm_train(x)
    assert [v.requires_grad for v in (y, mean, var)] == [True, False, False]
    near(var, array(x).var(0), rtol=1e-12)
    before = array(mg.grad(y, x, y.detach() * 2, retain_graph=True)).copy()
    mean += 1
    equals(mg.grad(y, x, y.detach() * 2), before)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e4])
def test_statistics_of_constant_channels_are_exact(value, device):
    for shape in ((5, 3), (4, 3, 9, 9)):
        _, mean, var = batch_norm_train(tensor(np.full(shape, value, np.float32), device))
        equals(mean, np.full(3, value, np.float32))
        equals(var, 0)


def evaluate(x, w, b, eps):
    """Normalize with statistics that do not come from the batch, but belong to its channels."""
    return batch_norm_eval(x, b.detach(), (w * w).detach(), w, b, eps)


def test_outputs_that_bypass_the_cache(device, rng):
    """With more than 16 MiB, channels have the same bits as among fewer, whose output stays in the cache."""
    cases = (
        ((2100, 1024), slice(512, 768)), ((40, 64, 1024), slice(5, 9)),
        ((4200, 528), slice(350, 528)), ((4100, 44, 12), slice(20, 44)), ((2100, 2080), slice(1000, 1400)),
        ((70_000, 32), slice(16, 32)), ((35_000, 2, 64), slice(1, 2)),
    )  # fmt: skip
    cases = cases if device == "cpu" else cases[:1]  # a GPU does not bypass it, and emulated kernels take long
    for ((outer, *of_each), some), (dtype, times) in itertools.product(cases, (("float32", 2), ("float64", 1))):
        x, w, b, g = draw(TRAINING, (times * outer, *of_each), rng, dtype)
        x[:4, ::5] += 3e3  # these start far from their mean and need a second pass
        few = np.ascontiguousarray(x[:, some]), w[some], b[some], np.ascontiguousarray(g[:, some])
        for norm in (TRAINING, GIVEN._replace(op=evaluate)):
            together = run(norm, x, w, b, g, device)
            assert together[0].nbytes > 16 << 20
            for ours, all_ in zip(run(norm, *few, device), together, strict=True):
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
    x, w, b, g = draw(GIVEN, shape, rng)
    mean, var = rng.standard_normal(shape[1]).astype(np.float32), rng.uniform(0.1, 2, shape[1]).astype(np.float32)
    found = []
    for dtype in ("float32", "float64"):
        leaves = [tensor(v.astype(dtype), device, True) for v in (x, mean, var, w, b)]
        litter(device)
        y = batch_norm_eval(*leaves)
        found.append([array(v) for v in (y, *mg.grad(y, leaves, tensor(g.astype(dtype), device)))])
    wide = [v.astype(np.float64) for v in (x, mean, var, w, b)]
    np.testing.assert_allclose(found[1][0], given_batch_norm(np.sqrt)(*wide), rtol=1e-12, atol=1e-12)
    n = x.size / shape[1]
    for ours, e in zip(*found, strict=True):
        np.testing.assert_allclose(ours, e, rtol=0, atol=64 * 2**-23 * (math.sqrt(n) + np.abs(e).max()))


def test_large_given_means(device, rng):
    """(x - mean) is taken before it is scaled, so that a mean of 1e4 costs no digits."""
    x, w, b, _ = draw(GIVEN, (50, 6), rng)
    x += np.float32(1e4)
    mean, var = np.full(6, 1e4, np.float32), np.full(6, 0.5, np.float32)
    y = batch_norm_eval(*(tensor(v, device) for v in (x, mean, var, w, b)))
    wide = [v.astype(np.float64) for v in (x, mean, var, w, b)]
    near(y, given_batch_norm(np.sqrt)(*wide), rtol=0, atol=2e-6)


def test_training_and_evaluation_agree(device, rng):
    """Evaluation with the statistics of the batch equals training."""
    x, w, b, _ = (tensor(v, device) for v in draw(TRAINING, (6, 3, 5), rng, "float64"))
    y, mean, var = batch_norm_train(x, w, b)
    near(batch_norm_eval(x, mean, var, w, b), array(y), rtol=1e-12, atol=1e-13)
