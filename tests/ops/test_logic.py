"""Comparisons, logic and selection: the table, NaN, ties, and values that `where` does not select."""

import operator

import numpy as np
import pytest
from checks import Suite, array, equals, raises, refuses, tensor
from table import LOGIC

import minigrad as mg

COMPARISONS = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge,
}  # fmt: skip
EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])


class TestTable(Suite):
    ops = LOGIC


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name, device):
    """NaN equals nothing, zeros of either sign are equal; the operator is the function, with numbers on either side."""
    x, python = tensor(EDGES, device), COMPARISONS[name]
    for function in (getattr(mg, name), python):
        equals(function(x[:, None], x), python(EDGES[:, None], EDGES))
    for other in (0, EDGES[::-1], EDGES.tolist()):
        for call in (lambda x, other=other: python(x, other), lambda x, other=other: python(other, x)):
            if isinstance(other, int) or device == "cpu":
                found = call(x)
                assert isinstance(found, mg.Tensor)
                equals(found, call(EDGES))
                assert not found.requires_grad
            else:
                raises(ValueError, r"^\[\w+\] expected tensors on one device, got .*cpu", call, x)


def test_comparisons_of_large_integers_are_exact(device):
    x = tensor(np.array([2**53, 2**53 + 1]), device)
    assert (x == 2**53 + 1).tolist() == [False, True]
    assert (x < 2**53 + 1).tolist() == [True, False]


def test_logical_operators(device):
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    x, y = tensor(a, device), tensor(b, device)
    assert (x & y).tolist() == (a & b).tolist()
    assert (x | y).tolist() == (a | b).tolist()
    assert (x ^ y).tolist() == (a ^ b).tolist()
    assert (~x).tolist() == (~a).tolist()
    assert (True & x).tolist() == a.tolist()
    assert (mg.tensor([6, 5], device=device) & 4).tolist() == [4, 4]
    for of in (operator.and_, operator.or_, operator.xor) if device == "cpu" else ():
        assert of(x, b).tolist() == of(a, y).tolist() == of(a, b).tolist()
    x &= y
    assert x.tolist() == (a & b).tolist()


def test_logic_of_floats(device):
    """Everything except zero is true, including NaN."""
    values = np.array([0.0, -0.0, 0.5, np.nan, -np.inf])
    x = tensor(values, device)
    equals(mg.logical_not(x), ~values.astype(bool))
    for name in ("logical_and", "logical_or", "logical_xor"):
        equals(getattr(mg, name)(x[:, None], x), getattr(np, name)(values[:, None], values))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_of_edges(name, dtype, device):
    """NaN on either side wins."""
    values = EDGES.astype(dtype)
    equals(
        getattr(mg, name)(tensor(values, device)[:, None], tensor(values, device)),
        getattr(np, name)(values[:, None], values),
    )


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extrema_share_the_gradient_of_ties(name, device):
    """Equal operands get half each, as in PyTorch, also for NaN and with create_graph."""
    for create_graph in (False, True):
        x = tensor(np.array([1.0, 2.0, 3.0, np.nan]), device, True)
        y = tensor(np.array([2.0, 2.0, 2.0, 2.0]), device, True)
        g = np.array([5.0, 7.0, 11.0, 13.0])
        dx, dy = mg.grad(getattr(mg, name)(x, y), [x, y], tensor(g, device), create_graph=create_graph)
        expected = [0.0, 3.5, 11.0, 6.5] if name == "maximum" else [5.0, 3.5, 0.0, 6.5]
        assert dx.tolist() == expected
        assert dy.tolist() == (g - expected).tolist()


@pytest.mark.parametrize("size", [1, 16, 33, 1000, 70_001])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_sizes_of_where(size, dtype, device, rng):
    """Tensors and numbers on either side, with a contiguous condition or not."""
    c = rng.random(size + 1) < 0.5
    a = rng.integers(0, 9, size + 1).astype(dtype)
    b = rng.integers(0, 9, size + 1).astype(dtype)
    condition, x, y = tensor(c, device), tensor(a, device), tensor(b, device)
    one = True if dtype == "bool" else 7
    for ours, numpy in ((x, a), (x[::-1], a[::-1]), (one, np.full_like(a, one))):
        equals(mg.where(condition, ours, y), np.where(c, numpy, b))
        equals(mg.where(condition, y, ours), np.where(c, b, numpy))
        equals(mg.where(condition[::-1], ours, y), np.where(c[::-1], numpy, b))
        equals(mg.where(condition[1:], y[1:], one), np.where(c[1:], b[1:], np.asarray(one, dtype)))


def test_where_hides_what_it_does_not_choose(device):
    """NaN and infinity in the unselected branch affect neither the result nor the gradient."""
    c = tensor(np.array([True, False]), device)
    x, y = tensor(np.array([1.0, np.nan]), device, True), tensor(np.array([np.inf, 2.0]), device, True)
    z = mg.where(c, x, y)
    assert z.tolist() == [1.0, 2.0]
    z.backward(tensor(np.array([3.0, 5.0]), device))
    assert x.grad.tolist() == [3.0, 0.0]
    assert y.grad.tolist() == [0.0, 5.0]


@pytest.mark.parametrize(("x", "y", "dtype"), [
    (1, 2, "int64"), (1.0, 2, "float32"), (True, False, "bool"), (True, 2, "int64"), (1, 2.5, "float32"),
])  # fmt: skip
def test_where_of_numbers(x, y, dtype, device):
    z = mg.where(tensor(np.array([True, False]), device), x, y)
    assert z.dtype == dtype
    assert z.tolist() == [x, y]


def test_where_takes_any_condition(device):
    x = mg.where(tensor(np.array([0.0, np.nan, -2.0]), device), 1, 0)
    assert x.tolist() == [0, 1, 1]


def test_clip(device):
    """The gradient is 1 at the limits and 0 beyond; NaN stays; if the limits are swapped, the upper one applies."""
    x = tensor(np.array([-2.0, -1.0, 0.0, 1.0, 2.0, np.nan]), device, True)
    y = mg.clip(x, -1, 1)
    equals(y, [-1, -1, 0, 1, 1, np.nan])
    y.backward(mg.ones(6, dtype="float64", device=device))
    assert x.grad.tolist() == [0, 1, 1, 1, 0, 1]
    assert [row["op"] for row in mg.clip(x, -1, 1).tape()] == ["leaf", "clip"]
    assert mg.clip(x.detach(), 3, 1)[:5].tolist() == [1] * 5
    equals(mg.clip(x), array(x))
    assert mg.clip(tensor(np.array([-5, 5]), device), min=0).dtype == "int64"
    assert mg.clip(tensor(np.array([-5, 5], np.int32), device), max=1).tolist() == [-5, 1]


def test_errors(device):
    x, flags = mg.ones((2, 3), device=device), mg.ones((2, 3), dtype="bool", device=device)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        refuses(TypeError, name, "float32", getattr(mg, name), x, flags)
    refuses(TypeError, "bitwise_invert", "float32", mg.bitwise_invert, x)
    refuses(ValueError, "where", ["(2, 3)", "(4,)"], mg.where, flags, mg.ones(4, device=device), 0.0)
    refuses(ValueError, "bool", "(2, 3)", bool, x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_shifts(dtype, device):
    """Negative numbers, all bits shifted out, and the operators."""
    lowest = np.iinfo(dtype).min
    a, bits = np.array([1, -1, 5, lowest, lowest + 1, 0], dtype), np.iinfo(dtype).bits
    for by in (0, 1, 7, bits - 1, bits, bits + 5):
        x, n = tensor(a, device), tensor(np.array(by, dtype), device)
        left, right = np.left_shift(a, np.array(by, dtype)), np.right_shift(a, np.array(by, dtype))
        for ours in (x << n, x << by, mg.bitwise_left_shift(x, n)):
            equals(ours, left)
            assert ours.dtype == dtype
        for ours in (x >> n, x >> by, mg.bitwise_right_shift(x, n)):
            equals(ours, right)
        y, z = x.copy(), x.copy()
        y <<= by
        z >>= n
        assert (y.tolist(), z.tolist()) == (left.tolist(), right.tolist())
    assert (2 << tensor(np.array([1, 3], dtype), device)).tolist() == [4, 16]
    assert (64 >> tensor(np.array([1, 3], dtype), device)).tolist() == [32, 8]
    refuses(TypeError, "bitwise_left_shift", "float32", mg.bitwise_left_shift, mg.ones(2, device=device), 1)
    refuses(
        TypeError, "bitwise_right_shift", "bool", mg.bitwise_right_shift, mg.ones(2, dtype="bool", device=device), True
    )
