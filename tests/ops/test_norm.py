"""Normalization: the table, what a row depends on, what the kinds have in common, and errors."""

import math

import numpy as np
import pytest
from checks import Suite, agree, array, equals, near, refuses, tensor
from norms import NORMS, draw, run
from table.norms import NORM
from threaded import same_for_all_threads

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train


class TestTable(Suite):
    ops = NORM


# ── independence ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (131, 3)), ("layer_norm", (131, 16)), ("layer_norm", (131, 100)), ("layer_norm", (131, 769)), ("rms_norm", (37, 24)),
    ("group_norm", (37, 24)), ("group_norm", (37, 4, 5, 5)), ("group_norm", (37, 64, 8, 9)), ("group_norm", (37, 1200, 2)),
    ("instance_norm", (37, 4, 25)), ("instance_norm", (37, 4, 33, 34)),
    ("batch_norm in evaluation", (131, 600)), ("batch_norm in evaluation", (9, 5, 70)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_do_not_depend_on_each_other(name, shape, dtype, device, rng):
    """A sample has the same bits of y and dx alone, at any position in any batch, and next to NaN and infinity."""
    norm, n = NORMS[name], shape[0]
    x, w, b, g = draw(norm, shape, rng, dtype)
    together = run(norm, x, w, b, g, device)[:2]
    for rows in ([7], [n - 1], slice(1, None), slice(3, 64), [7, 7, 7], list(range(n - 1, -1, -1))):
        agree(run(norm, x[rows], w, b, g[rows], device)[:2], [all_[rows] for all_ in together])
    x[5].flat[0], x[6].flat[0] = np.nan, np.inf
    found = run(norm, x, w, b, g, device)[:2]
    assert norm.given or np.isnan([ours[row].flat[0] for ours in found for row in (5, 6)]).all()
    agree(*([np.delete(values, [5, 6], 0) for values in each] for each in (found, together)))


@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (3000, 65)), ("rms_norm", (2000, 24)), ("group_norm", (2000, 24)), ("group_norm", (300, 4, 5, 5)),
    ("group_norm", (300, 64, 8, 9)), ("group_norm", (300, 1200, 2)), ("instance_norm", (300, 4, 25)), ("instance_norm", (300, 4, 33, 34)),
    ("batch_norm", (3001, 65)), ("batch_norm", (3001, 650)), ("batch_norm", (8400, 528)), ("batch_norm", (200, 20, 40)),
    ("batch_norm", (50, 30, 20, 20)),
])  # fmt: skip
def test_threads_change_nothing(name, shape, device, rng):
    """The split of the sums over rows depends on the shape alone."""
    inputs = draw(NORMS[name], shape, rng)
    same_for_all_threads(lambda: [v for v in run(NORMS[name], *inputs, device) if v is not None])


@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (4200, 1024)), ("layer_norm", (4400, 1001)),  # the latter's rows do not fill whole registers
    ("rms_norm", (4200, 1024)), ("group_norm", (140, 4, 8192)),
])  # fmt: skip
def test_outputs_that_bypass_the_cache(name, shape, device, rng):
    """Each row has the same bits as alone, for outputs of more than 16 MiB and their gradients."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng)
    y, dx = run(norm, x, w, b, g, device)[:2]
    assert y.nbytes > 16 << 20
    for r in (0, 1, 33, shape[0] - 1):
        agree(run(norm, x[r : r + 1], w, b, g[r : r + 1], device)[:2], [y[r : r + 1], dx[r : r + 1]])
    wide = [None if v is None else tensor(v.astype(np.float64), device) for v in (x, w, b)]
    np.testing.assert_allclose(y, array(norm.op(*wide)), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name, shape", [
    ("layer_norm", (9, 256)), ("rms_norm", (3, 1024)), ("group_norm", (5, 4, 8, 8)), ("group_norm", (9, 64)),
    ("batch_norm", (5, 4, 8, 8)), ("batch_norm", (700, 36)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_addresses_change_nothing(name, shape, dtype, device, rng):
    """Memory that is not aligned to registers, or to 16 bytes, gives the same bits."""

    def beside(values):
        """Return the values at an offset of one element from the start of the memory."""
        base = tensor(np.concatenate([np.zeros(1, dtype), values.ravel()]), device)
        return base[1:].reshape(values.shape).requires_grad_()

    values = draw(NORMS[name], shape, rng, dtype)
    shifted = [None if v is None else beside(v) for v in values]
    found, expected = (run(NORMS[name], *each, device) for each in ([*shifted[:3], shifted[3].detach()], values))
    agree([v for v in found if v is not None], [v for v in expected if v is not None])


# ── what the kinds have in common ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_element_has_no_gradient(dtype, rng):
    """Exactly: its product with the weight and the mean of this product round alike. A GPU fuses the former with a sum."""
    x, w, _, g = draw(NORMS["layer_norm"], (99, 16), rng, dtype)
    rows = tensor(x, "cpu", True)
    equals(mg.grad(mg.group_norm(rows, 16, tensor(w, "cpu")), rows, tensor(g, "cpu")), np.zeros_like(x))
    for c in range(4):
        column = tensor(x[:, c : c + 1], "cpu", True)
        y = mg.layer_norm(column, 1, tensor(w[c : c + 1], "cpu"))
        equals(mg.grad(y, column, tensor(g[:, c : c + 1], "cpu")), np.zeros((99, 1), dtype))


@pytest.mark.parametrize("name", [name for name, norm in NORMS.items() if not norm.given])
def test_what_normalization_does_not_see(name, device, rng):
    """Shifting and scaling a row changes nothing, so dx is orthogonal to ones and to x̂; RMS sees the shift."""
    norm = NORMS[name]
    x, _, _, g = draw(norm, (3, 4, 10), rng, "float64")
    y, dx = run(norm, x, None, None, g, device, eps=0.0)[:2]
    other = run(norm, 3 * x + 7 * norm.centered, None, None, g, device, eps=0.0)
    np.testing.assert_allclose(other[0], y, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(other[1], dx / 3, rtol=1e-10, atol=1e-11)
    y, dx = norm.to_rows(y), norm.to_rows(dx)
    np.testing.assert_allclose((dx * y).sum(1), 0, atol=1e-12)
    np.testing.assert_allclose((y * y).mean(1), 1, rtol=1e-13)
    for values in (dx, y):
        assert (np.abs(values.sum(1)).max() < 1e-12) == norm.centered


def test_eps_is_a_variance(device):
    """Rows of ±1 have variance 1: y = ±1/√(1 + ε), for any ε."""
    signs = np.array([[1.0, -1.0, 1.0, -1.0]])
    for eps in (0.0, 1e-5, 1.0, 3.0):
        for name in ("layer_norm", "rms_norm"):
            y = NORMS[name].op(tensor(signs, device), None, None, eps)
            near(y, signs * (1 + eps) ** -0.5, rtol=1e-14)


def test_kinds_are_one_another(device, rng):
    """Without parameters one group is layer_norm, and groups of one channel are instance_norm."""
    x = tensor(rng.standard_normal((3, 4, 5, 2)), device)
    near(mg.group_norm(x, 1), array(mg.layer_norm(x, (4, 5, 2))), rtol=1e-12, atol=1e-13)
    equals(mg.group_norm(x, 4), array(mg.instance_norm(x)))
    weight = tensor(rng.standard_normal(4), device)
    per_element = array(mg.layer_norm(x, (4, 5, 2), mg.broadcast_to(weight.reshape((4, 1, 1)), (4, 5, 2))))
    near(mg.group_norm(x, 1, weight), per_element, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_group_of_single_elements_is_layer_norm(dtype, device, rng):
    """Bit for bit: then both have one weight and one bias per element."""
    layer = NORMS["layer_norm"]
    group = layer._replace(op=lambda x, w, b, eps: mg.group_norm(x, 1, w, b, eps))
    values = draw(layer, (150, 24), rng, dtype)
    agree(*(run(norm, *values, device) for norm in (group, layer)))


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_of_another_kind(device):
    x = mg.ones((2, 4, 3), device=device)
    for eps in (None, "1e-5", [1e-5]):
        for name, norm in NORMS.items():
            wrong = "x" if (name, eps) == ("rms_norm", None) else eps  # rms_norm takes None
            parts = ["number eps", repr(wrong)]
            refuses(TypeError, name.split()[0], parts, lambda x, n=norm, e=wrong: n.op(x, None, None, e), x)
    for shape in (3.0, "3", None, (4, 3.0), ("4",), {4: 3}):
        refuses(TypeError, "layer_norm", ["normalized_shape", repr(shape)], mg.layer_norm, x, shape)
        refuses(TypeError, "rms_norm", ["normalized_shape", repr(shape)], mg.rms_norm, x, shape)
    assert mg.layer_norm(x, [np.int64(4), 3], eps=np.float32(0.5)).shape == x.shape


def test_errors(device):
    x, w, three = mg.ones((2, 4, 3), device=device), mg.ones(4, device=device), mg.ones(3, device=device)
    wide = w.astype("float64")
    for op, f in (("layer_norm", mg.layer_norm), ("rms_norm", mg.rms_norm)):
        refuses(ValueError, op, ["(..., 5)", "(2, 4, 3)"], f, x, 5)
        refuses(ValueError, op, ["(..., 2, 3)", "(2, 4, 3)"], f, x, (2, 3))
        refuses(ValueError, op, "(2, 4, 3)", f, x, (1, 2, 4, 3))
        refuses(ValueError, op, "normalized_shape of at least one axis, got ()", f, x, ())
        refuses(ValueError, op, ["weight", "(4, 3)", "(3,)"], f, x, (4, 3), three)
        refuses(ValueError, op, "-1", f, x, 3, eps=-1.0)
        refuses(TypeError, op, ["weight", "float32", "float64"], f, x, 3, three.astype("float64"))
        refuses(TypeError, op, "int64", f, x.astype("int64"), 3)
        refuses(TypeError, op, "int64", f, x, 3, three.astype("int64"))
    refuses(ValueError, "layer_norm", ["bias", "(3,)", "(4,)"], mg.layer_norm, x, 3, None, w)
    refuses(ValueError, "layer_norm", "nan", mg.layer_norm, x, 3, None, None, math.nan)
    refuses(ValueError, "group_norm", ["4", "3"], mg.group_norm, x, 3)
    refuses(ValueError, "group_norm", ["4", "0"], mg.group_norm, x, 0)
    refuses(TypeError, "group_norm", "2.0", mg.group_norm, x, 2.0)
    refuses(ValueError, "group_norm", "(4,)", mg.group_norm, w, 2)
    refuses(ValueError, "group_norm", ["weight", "(4,)", "(3,)"], mg.group_norm, x, 2, three)
    refuses(ValueError, "group_norm", ["bias", "(4,)", "(4, 1)"], mg.group_norm, x, 2, w, w[:, None])
    refuses(ValueError, "group_norm", "nan", mg.group_norm, x, 2, w, w, math.nan)
    refuses(TypeError, "group_norm", ["bias", "float32", "float64"], mg.group_norm, x, 2, w, wide)
    refuses(TypeError, "group_norm", "int64", mg.group_norm, x.astype("int64"), 2)
    refuses(ValueError, "instance_norm", ["three", "(2, 4)"], mg.instance_norm, x[:, :, 0])
    parts = ["more than one value per channel", "(2, 4, 1)"]
    refuses(ValueError, "instance_norm", parts, mg.instance_norm, x[:, :, :1])
    refuses(ValueError, "instance_norm", ["weight", "(4,)", "(3,)"], mg.instance_norm, x, weight=three)
    refuses(ValueError, "instance_norm", "-1", mg.instance_norm, x, eps=-1.0)


def test_errors_of_batch_norm(device):
    x, c, four = mg.ones((2, 3, 4), device=device), mg.ones(3, device=device), mg.ones(4, device=device)
    for shape in ((1, 3), (1, 3, 1)):
        parts = ["more than one value per channel in training", str(shape)]
        refuses(ValueError, "batch_norm", parts, batch_norm_train, mg.ones(shape, device=device))
    refuses(ValueError, "batch_norm", "(3,)", batch_norm_train, c)
    refuses(ValueError, "batch_norm", ["weight", "(3,)", "(4,)"], batch_norm_train, x, four)
    refuses(ValueError, "batch_norm", ["bias", "(3,)", "(3, 1)"], batch_norm_train, x, c, c.reshape((3, 1)))
    refuses(ValueError, "batch_norm", "-1", batch_norm_train, x, c, c, -1.0)
    refuses(TypeError, "batch_norm", ["weight", "float32", "float64"], batch_norm_train, x, c.astype("float64"))
    refuses(TypeError, "batch_norm", "int64", batch_norm_train, x.astype("int64"))
    refuses(ValueError, "batch_norm", "(3,)", batch_norm_eval, c, c, c)
    refuses(ValueError, "batch_norm", ["mean", "(3,)", "(4,)"], batch_norm_eval, x, four, c)
    refuses(ValueError, "batch_norm", ["var", "(3,)", "(2,)"], batch_norm_eval, x, c, c[:2])
    refuses(TypeError, "batch_norm", ["var", "None"], batch_norm_eval, x, c, None)
    refuses(TypeError, "batch_norm", ["mean", "float32", "float64"], batch_norm_eval, x, c.astype("float64"), c)
    refuses(ValueError, "batch_norm", "nan", batch_norm_eval, x, c, c, None, None, math.nan)
