"""NaN, infinity and overflow only affect their own row, sample or channel."""

import numpy as np
import pytest
from checks import array, near, tensor
from norms import NORMS, draw, run

import minigrad as mg
from minigrad.nn import functional as F

# shapes whose rows fill no register or several, or are processed in blocks
SHAPES = {-1: [(37, 5), (9, 70), (40, 600)], 1: [(13, 4, 3), (9, 6, 40), (5, 4, 700), (70, 20), (70, 300)]}
CASES = [
    (name, shape)
    for name, norm in NORMS.items() for shape in SHAPES[norm.axis] if name != "instance_norm" or len(shape) > 2
]  # fmt: skip


def touched(norm, shape, place):
    """Return which elements share a row with a position, and which parameters apply to that row."""
    mark = np.zeros(shape)
    mark[place] = 1
    rows = norm.to_rows(mark)
    elements = norm.from_rows(np.broadcast_to(rows.any(1, keepdims=True), rows.shape), shape)
    return elements, norm.summed(elements) > 0, norm.summed(mark) > 0


@pytest.mark.parametrize("name, shape", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(name, shape, dtype, value, device, rng):
    """In x, NaN affects its whole row; all other elements of y, dx and dw, and all of db, keep their bits."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng, dtype)
    y, dx, dw, db = run(norm, x, w, b, g, device)
    place = tuple(n // 2 for n in shape)
    x[place] = value
    y2, dx2, dw2, db2 = run(norm, x, w, b, g, device)
    row, parameters, _ = touched(norm, shape, place)
    np.testing.assert_array_equal(y2[~row], y[~row])
    np.testing.assert_array_equal(dx2[~row], dx[~row])
    np.testing.assert_array_equal(dw2[~parameters], dw[~parameters])
    assert not np.isfinite(y2[place])
    if db is not None:
        np.testing.assert_array_equal(db2, db)
    if norm.given:
        np.testing.assert_array_equal(dx2, dx)  # an element-wise map, which does not depend on other elements of x
        assert not np.isfinite(dw2[parameters]).any()
    elif np.isnan(value):
        for values in (y2[row], dx2[row], dw2[parameters]):
            assert np.isnan(values).all()


@pytest.mark.parametrize("name, shape", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_cotangents_that_are_not_finite(name, shape, dtype, value, device, rng):
    """dx of other rows and the gradients of other parameters keep their bits."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng, dtype)
    _, dx, dw, db = run(norm, x, w, b, g, device)
    place = tuple(n // 2 for n in shape)
    g[place] = value
    _, dx2, dw2, db2 = run(norm, x, w, b, g, device)
    row, _, own = touched(norm, shape, place)
    np.testing.assert_array_equal(dx2[~row], dx[~row])
    assert not np.isfinite(dx2[row]).any()
    for ours, before in ((dw2, dw), (db2, db)):
        if before is not None:
            np.testing.assert_array_equal(ours[~own], before[~own])
            assert not np.isfinite(ours[own]).any()


# ── overflow ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name, shape", [case for case in CASES if not NORMS[case[0]].given])
@pytest.mark.parametrize("size", [1e16, 1e20, 1e30])
def test_squares_that_overflow_in_float32(name, shape, size, device, rng):
    """As the docstrings say: from 1e17 on, the row becomes the bias, and only the bias has a gradient."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng, "float32")
    row, parameters, _ = touched(norm, shape, tuple(n // 2 for n in shape))
    big = np.where(row, np.float32(size) * np.sign(x) * (1 + np.abs(x)), x).astype(np.float32)
    y, dx, dw, db = run(norm, big, w, b, g, device)
    without = run(norm, x, w, b, np.where(row, 0, g).astype(np.float32), device)
    np.testing.assert_array_equal(y[~row], without[0][~row])
    np.testing.assert_array_equal(dx[~row], without[1][~row])
    if db is not None:
        np.testing.assert_allclose(db, norm.summed(g.astype(np.float64)), rtol=1e-5, atol=1e-4)
    if size < 1e17:
        wide = [None if v is None else v.astype(np.float64) for v in (big, w, b, g)]
        expected = run(norm, *wide, device)
        np.testing.assert_allclose(y, expected[0], rtol=0, atol=1e-5)
        np.testing.assert_allclose(dw, expected[2], rtol=0, atol=1e-4)
        np.testing.assert_allclose(dx[row], expected[1][row], rtol=0, atol=1e-5 * np.abs(expected[1][row]).max())
        return
    shift = np.zeros(shape) if b is None else np.broadcast_to(norm.along(b, x), shape)
    np.testing.assert_array_equal(y[row], shift[row])
    np.testing.assert_array_equal(dx[row], np.zeros(row.sum()))
    np.testing.assert_allclose(dw[parameters], without[2][parameters], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name, shape", [case for case in CASES if not NORMS[case[0]].given])
@pytest.mark.parametrize("size", [1e160, 1e170, 1e200, 1e300])
def test_squares_that_overflow_in_float64(name, shape, size, device, rng):
    """The result is the bias, as squared deviations overflow to an infinite variance."""
    norm = NORMS[name]
    x, w, b, g = draw(norm, shape, rng, "float64")
    row, _, _ = touched(norm, shape, tuple(n // 2 for n in shape))
    y, dx, _, _ = run(norm, np.where(row, size * x, x), w, b, g, device)
    before = run(norm, x, w, b, g, device)
    np.testing.assert_array_equal(y[~row], before[0][~row])
    np.testing.assert_array_equal(dx[~row], before[1][~row])
    shift = np.zeros(shape) if b is None else np.broadcast_to(norm.along(b, x), shape)
    np.testing.assert_array_equal(y[row], shift[row])
    np.testing.assert_array_equal(dx[row], np.zeros(row.sum()))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_row_of_one_element_has_no_gradient(dtype, device, rng):
    """Whatever its parameters: 1/√ε would multiply a rounding error that is left."""
    x, g = (tensor(rng.standard_normal((40, 6)).astype(dtype), device, True) for _ in range(2))
    w, one = tensor(rng.standard_normal(6).astype(dtype), device), x.reshape(240, 1)
    for y in (F.group_norm(x, 6, w, w), F.layer_norm(one, 1, w[:1], w[:1]).reshape(40, 6)):
        near(mg.grad(y, x, g.detach()), np.zeros((40, 6)), atol=1e-11)


def test_evaluation_squares_nothing(device, rng):
    """With given statistics x may be as large as its result."""
    x = rng.standard_normal((5, 3)).astype(np.float32) * np.float32(1e37)
    y = NORMS["batch_norm in evaluation"].op(tensor(x, device), None, None)
    wide = NORMS["batch_norm in evaluation"].op(tensor(x.astype(np.float64), device), None, None)
    near(y, array(wide), rtol=1e-6)
    assert mg.isfinite(y).all().item()
