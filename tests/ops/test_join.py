"""Joining and splitting: the table, dtypes, unused pieces, errors."""

import hypothesis.extra.numpy as hnp
import numpy as np
from checks import Suite, agree, equals, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import JOIN

import minigrad as mg


class TestTable(Suite):
    ops = JOIN


@given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4), st.data())
def test_split_and_concat_are_inverse(device, shape, data):
    """Any splits along any axis, values and gradients."""
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[axis] + 1), max_size=3)))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    x = tensor(a, device, True)
    pieces = mg.split(x, cuts, axis)
    agree(pieces, np.split(a, cuts, axis))
    y = mg.concat(pieces, axis)
    equals(y, a)
    y.backward(tensor(a + 1, device))
    equals(x.grad, a + 1)


@given(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4, min_side=0), st.data())
def test_stack_and_unstack_are_inverse(device, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    a = np.arange(float(np.prod(shape))).reshape(shape)
    x = tensor(a, device, True)
    if shape[axis] == 0:
        assert mg.unstack(x, axis=axis) == ()
        return
    y = mg.stack(mg.unstack(x, axis=axis), axis)
    equals(y, a)
    y.backward(tensor(a + 1, device))
    equals(x.grad, a + 1)


def test_only_some_pieces_are_used(device):
    """The others have a gradient of zero; a piece used twice has both."""
    for create_graph in (False, True):
        x = tensor(np.arange(6.0), device, True)
        a, b, c = mg.split(x, 3)
        assert mg.grad((b * b).sum(), x, create_graph=create_graph).tolist() == [0, 0, 4, 6, 0, 0]
        x = tensor(np.arange(6.0), device, True)
        a, b, c = mg.split(x, 3)
        assert mg.grad((a * c + c).sum(), x, create_graph=create_graph).tolist() == [4, 5, 0, 0, 1, 2]


def test_iteration_is_unstack(device):
    x = tensor(np.arange(6.0).reshape(3, 2), device, True)
    rows = list(x)
    assert [row.shape for row in rows] == [(2,)] * 3
    (rows[0] * rows[2]).sum().backward()
    assert x.grad.tolist() == [[4, 5], [0, 0], [0, 1]]
    assert len(x) == 3
    first, *_ = mg.arange(3, device=device)
    assert first.item() == 0


def test_the_same_tensor_twice(device):
    x = tensor(np.array([1.0, 2.0]), device, True)
    mg.concat([x, x * 2, x]).backward(tensor(np.arange(6.0), device))
    assert x.grad.tolist() == [0 + 4 + 4, 1 + 6 + 5]
    y = mg.grad(mg.stack([x, x], 1), x, tensor(np.array([[1.0, 2.0], [3.0, 4.0]]), device))
    assert y.tolist() == [3.0, 7.0]


def test_dtypes_are_promoted(device):
    """Gradients come back in the dtype of each part."""
    x, y = tensor(np.array([1.0], np.float32), device, True), tensor(np.array([2.0]), device, True)
    n = tensor(np.array([3], np.int32), device)
    z = mg.concat([x, n, y])
    assert z.dtype == "float64"
    z.backward(tensor(np.array([1.0, 2.0, 3.0]), device))
    assert (x.grad.dtype, y.grad.dtype) == ("float32", "float64")
    assert mg.stack([n, n > 1]).dtype == "int32"
    assert mg.concat([[1, 2], np.array([3])]).dtype == "int64"


def test_pieces_are_views(device):
    x = mg.zeros((4, 2), device=device)
    top, bottom = mg.split(x, 2)
    x[3, 1] = 7
    assert bottom.max().item() == 7
    assert top.data_ptr() == x.data_ptr()


def test_errors(device):
    x, y = mg.ones((2, 3), device=device), mg.ones((3, 3), device=device)
    refuses(ValueError, "stack", "at least one", mg.stack, [])
    refuses(ValueError, "concat", ["axis 1", "(2, 3)", "(3, 3)"], lambda a, b: mg.concat([a, b], 1), x, y)
    refuses(IndexError, "concat", "0 axes", lambda a: mg.concat([a, a]), x[0, 0])
    refuses(ValueError, "split", "[2, 1]", mg.split, y, [2, 1])
    refuses(TypeError, "split", "1.5", mg.split, y, [1.5])
    refuses(IndexError, "unstack", "0 axes", mg.unstack, x[0, 0])
    refuses(TypeError, "iter", "0-d", iter, x[0, 0])
    refuses(TypeError, "len", "0-d", len, x[0, 0])
