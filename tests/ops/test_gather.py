"""Elements at given indices, and what sorts and finds elements, against NumPy, exactly."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import array, equals, raises, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg

# ── taking ────────────────────────────────────────────────────────────────────────────────────────


@given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4), st.data())
def test_take(device, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    n = shape[axis]
    indices = data.draw(
        hnp.arrays(
            np.int64, hnp.array_shapes(min_dims=0, max_dims=2, max_side=4, min_side=0), elements=st.integers(-n, n - 1)
        )
    )
    a = np.arange(np.prod(shape), dtype=float).reshape(shape)
    x = tensor(a, device, True)
    y, expected = mg.take(x, tensor(indices, device), axis=axis), np.take(a, indices, axis)
    equals(y, expected)
    g = np.arange(1.0, expected.size + 1).reshape(expected.shape)
    y.backward(tensor(g, device))
    scattered = np.zeros(shape)
    np.add.at(scattered, (*[slice(None)] * (axis % len(shape)), indices), g)
    equals(x.grad, scattered)


def test_gradients_of_repeated_indices_add_up(device, rng):
    """An embedding: many rows, each read many times, summed in the order of the indices."""
    table = tensor(rng.standard_normal((100, 37)).astype(np.float32), device, True)
    index = rng.integers(0, 100, 5000)
    g = rng.standard_normal((5000, 37)).astype(np.float32)
    mg.take(table, tensor(index, device), axis=0).backward(tensor(g, device))
    expected = np.zeros((100, 37), np.float32)
    np.add.at(expected, index, g)
    equals(table.grad, expected)


@pytest.mark.parametrize("shape, axis", [((2500,), 0), ((40, 3), 0), ((3, 1100), 1), ((2, 1100, 3), 1), ((5, 4, 2), 1)])
def test_gradients_of_repeated_indices_along_an_axis(shape, axis, device, rng):
    n, m = 7, shape[axis]
    whole = (*shape[:axis], n, *shape[axis + 1 :])
    x = tensor(rng.standard_normal(whole).astype(np.float32), device, True)
    index, g = rng.integers(0, n, shape), rng.standard_normal(shape).astype(np.float32)
    mg.take_along_axis(x, tensor(index, device), axis).backward(tensor(g, device))
    expected = np.zeros(whole, np.float32)
    moved, i, v = (np.moveaxis(a, axis, 0) for a in (expected, index, g))
    rest = np.indices(moved.shape[1:])
    for j in range(m):
        moved[(i[j], *rest)] += v[j]
    equals(x.grad, expected)


def test_take_refusals(device):
    x, i = mg.ones((2, 3), device=device), mg.zeros(2, dtype="int64", device=device)
    refuses(IndexError, "take", "float32", lambda x, i: mg.take(x, i, axis=0), x, mg.zeros(2, device=device))
    refuses(IndexError, "take", "bool", lambda x, i: mg.take(x, i, axis=0), x, mg.zeros(2, dtype="bool", device=device))
    refuses(ValueError, "take_along_axis", ["2", "(2,)"], mg.take_along_axis, x, i)
    four = mg.zeros((4, 1), dtype="int64", device=device)
    refuses(ValueError, "take_along_axis", ["(2, 3)", "(4, 1)", "axis 0"], mg.take_along_axis, x, four)


def test_scatter_add_refuses(device):
    x, index = mg.zeros((2, 3), device=device), mg.tensor([[0, 2], [1, 1]], device=device)
    ones = mg.ones((2, 2), device=device)
    assert mg.scatter_add(x, 1, index, 2.0).tolist() == [[2, 0, 2], [0, 4, 0]]
    assert mg.scatter_add(x, 1, index[:, :0], ones[:, :0]).tolist() == x.tolist()
    refuses(IndexError, "scatter_add", "got 2", mg.scatter_add, x, 2, index, ones)
    refuses(ValueError, "scatter_add", ["(2, 3) except along axis 0", "(2, 2)"], mg.scatter_add, x, 0, index, ones)
    refuses(ValueError, "scatter_add", ["except along axis 1", "(2,)"], mg.scatter_add, x, 1, index[0], ones[0])
    refuses(ValueError, "scatter_add", ["(2, 2)", "(2, 1)"], mg.scatter_add, x, 1, index, ones[:, :1])
    refuses(TypeError, "scatter_add", ["float32", "float64"], mg.scatter_add, x, 1, index, ones.astype("float64"))
    refuses(IndexError, "scatter_add", "bool", mg.scatter_add, x, 1, index > 0, ones)
    raises(IndexError, r"^\[scatter_add\]", lambda: mg.scatter_add(x, 1, index + 1, ones).to("cpu"))


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("shape", [(6, 40), (2, 5000), (1025, 3)])
def test_sorting_is_stable(shape, dtype, descending, device, rng):
    """Equal elements keep their order in both directions; NaN is last, or first in descending order."""
    a = rng.integers(0, 5, shape).astype(dtype)
    if dtype.startswith("f"):
        a[:, ::7] = np.nan
        a[:, 1] = -0.0
    for axis in (0, 1):
        order = array(mg.argsort(tensor(a, device), axis=axis, descending=descending))
        expected = np.argsort(a, axis, stable=True)
        if descending:
            n = a.shape[axis]
            expected = np.flip(n - 1 - np.argsort(np.flip(a, axis), axis, stable=True), axis)
        np.testing.assert_array_equal(order, expected)
        values = array(mg.sort(tensor(a, device), axis=axis, descending=descending))
        np.testing.assert_array_equal(values, np.take_along_axis(a, expected, axis))


def test_nonzero_and_unique(device):
    a = np.array([[0.0, np.nan, 2.0], [-0.0, 2.0, 1.0]])
    rows, columns = mg.nonzero(tensor(a, device))
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 1, 1], [1, 2, 1, 2])
    assert rows.dtype == "int64"
    equals(mg.unique_values(tensor(a, device)), [0.0, 1.0, 2.0, np.nan])
    two = array(mg.unique_values(tensor(np.array([np.nan, np.nan]), device)))
    assert two.shape == (2,)
    refuses(ValueError, "nonzero", "0-d", mg.nonzero, mg.ones((), device=device))
    refuses(IndexError, "sort", "got 2", lambda x: mg.sort(x, axis=2), tensor(a, device))
    refuses(IndexError, "argsort", "0 axes", mg.argsort, mg.ones((), device=device))
