"""Arithmetic: the table, broadcasting, operators and their reflections, integers, and what happens at zero and infinity."""

import operator

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import Suite, agree, array, equals, near, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import ARITHMETIC

import minigrad as mg

INTEGERS = ["int32", "int64"]
OPERATORS = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow,
}  # fmt: skip
IN_PLACE = {
    "add": operator.iadd, "subtract": operator.isub, "multiply": operator.imul, "divide": operator.itruediv,
    "floor_divide": operator.ifloordiv, "remainder": operator.imod, "power": operator.ipow,
}  # fmt: skip


class TestTable(Suite):
    ops = ARITHMETIC


# ── broadcasting ──────────────────────────────────────────────────────────────────────────────────


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3, min_side=0), st.integers(0, 2**32 - 1))
def test_broadcasting(device, shapes, seed):
    """Every pair of shapes that broadcast: the result, and gradients summed back to each operand's shape."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(shape) for shape in shapes.input_shapes)
    g = rng.standard_normal(shapes.result_shape)
    x, y = tensor(a, device, True), tensor(b, device, True)
    z = x * y
    assert z.shape == shapes.result_shape
    equals(z, a * b)
    z.backward(tensor(g, device))
    for leaf, share in ((x, g * b), (y, g * a)):
        lead = share.ndim - leaf.ndim
        axes = tuple(k for k in range(share.ndim) if k < lead or leaf.shape[k - lead] == 1)
        near(leaf.grad, share.sum(axes).reshape(leaf.shape), rtol=1e-12, atol=1e-12)


@given(hnp.array_shapes(max_dims=4, max_side=4), hnp.array_shapes(max_dims=4, max_side=4))
def test_shapes_that_do_not_broadcast(device, first, second):
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        x, y = mg.zeros(first, device=device), mg.zeros(second, device=device)
        refuses(ValueError, "add", [str(first), str(second)], mg.add, x, y)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 255, 1000, 70_001])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_sizes(size, dtype, device, rng):
    """Vectors, their tails, and work for several threads; scalars on either side; unaligned operands."""
    a, b = (rng.integers(1, 100, size + 1).astype(dtype) for _ in range(2))
    x, y = tensor(a, device)[1:], tensor(b, device)[:-1]
    for name in ("add", "subtract", "multiply", "maximum"):
        ours, numpy = getattr(mg, name), getattr(np, name)
        equals(ours(x, y), numpy(a[1:], b[:-1]))
        equals(ours(x, 7), numpy(a[1:], 7))
        equals(ours(7, y), numpy(7, b[:-1]))
        equals(ours(x[::-1], y), numpy(a[:0:-1], b[:-1]))


@pytest.mark.parametrize("shape", [(300, 400), (3, 200, 100), (40_000, 3), (3, 40_000), (2, 7, 6000)])
def test_large_views(shape, device, rng):
    """Loops over several axes, split among threads: transposed, strided and repeated operands."""
    a = rng.standard_normal(shape)
    x = tensor(a, device)
    equals(x.T + x.T[::-1], a.T + a.T[::-1])
    equals(
        x[..., ::2] * x[..., 1::2] if shape[-1] % 2 == 0 else x * x,
        a[..., ::2] * a[..., 1::2] if shape[-1] % 2 == 0 else a * a,
    )
    equals(x - x[..., :1], a - a[..., :1])
    equals(x[:1] - x, a[:1] - a)
    equals(x.T.contiguous(), a.T)
    equals(mg.matrix_transpose(x).copy(), np.swapaxes(a, -1, -2))


@pytest.mark.parametrize("shape", [(2, 3, 40, 50), (70, 3, 8, 8), (5, 4, 1, 40)])
def test_short_innermost_axes(shape, device, rng):
    a = rng.standard_normal(shape)
    x = tensor(a, device).permute_dims(0, 2, 3, 1)
    last = np.moveaxis(a, 1, -1)
    equals(x.copy(), last)
    equals(x[:, ::-1] * x[..., :1], last[:, ::-1] * last[..., :1])


@given(
    st.lists(st.sampled_from([1, 2, 7, 8, 9, 17, 40, 131]), min_size=2, max_size=2),
    st.lists(st.sampled_from([1, 2, 3]), max_size=2),
    st.randoms(use_true_random=False),
    st.sampled_from(["bool", "int32", "int64", "float32", "float64"]),
)
def test_operands_across(device, sides, others, random, dtype):
    """Operands whose axes are in another order than the result's: whole, sliced and reversed, on either side."""
    shape = random.sample([*sides, *others], len(sides) + len(others))
    rng = np.random.default_rng(random.getrandbits(32))
    n = len(shape)

    def view(dtype):
        """Return an array and a tensor of the shape, with their axes in a given order in memory."""
        axes, margin = random.sample(range(n), n), random.choice([0, 0, 1])
        order = [axes.index(d) for d in range(n)]
        forwards, backwards = slice(margin, None), slice(None, margin - 1 if margin else None, -1)
        cut = tuple(random.choice([forwards, forwards, backwards]) for _ in axes)
        a = rng.integers(0, 2 if dtype == "bool" else 100, [shape[d] + margin for d in axes]).astype(dtype)
        return a.transpose(order)[cut], tensor(a, device).permute_dims(*order)[cut]

    (a, x), (b, y), (c, z) = view(dtype), view(dtype), view("bool")
    equals(x.copy(), a)
    equals(mg.maximum(x, y) if dtype != "bool" else mg.logical_or(x, y), np.maximum(a, b))
    equals(mg.where(z, x, y), np.where(c, a, b))
    equals(x.astype("float64"), a)
    x[...] = y
    equals(x, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_cubes(dtype, device):
    """A power by products: within two units in the last place."""
    a = np.array([-2, -1, 0, 1, 3, 7, 100], dtype)
    x = tensor(a, device)
    equals(x[::-1] ** 3, a[::-1] ** 3)
    if dtype != "int64":
        odd = tensor(np.array([np.nan, np.inf, -np.inf, -0.0], dtype), device) ** 3
        equals(odd, [np.nan, np.inf, -np.inf, 0])
        assert np.signbit(array(odd)[3])
        a = np.linspace(-3, 3, 41, dtype=dtype)
        np.testing.assert_array_max_ulp(array(tensor(a, device) ** 3), (a.astype(np.longdouble) ** 3).astype(dtype), 2)


def test_one_value_for_all(device):
    """Loops over an operand that is one repeated element."""
    for value in (-0.0, 2.5, np.nan):
        x = mg.broadcast_to(mg.tensor(value, device=device), (3, 700))
        a = np.full((3, 700), value, np.float32)
        for ours, numpy in (
            (mg.negative, np.negative), (mg.abs, np.abs), (mg.logical_not, np.logical_not), (mg.square, np.square),
        ):  # fmt: skip
            equals(ours(x), numpy(a))
            if value == value:  # a NaN has no sign of its own: that of x86 is another than that of a GPU
                np.testing.assert_array_equal(np.signbit(array(ours(x))), np.signbit(numpy(a)))
        y = mg.ones((700, 3), device=device)
        y.T[:, ::-1] = x
        equals(y, a.T)
    equals(mg.exp(x.T[::2]), array(mg.exp(tensor(a.T[::2].copy(), device))))


# ── operators ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("other", [
    2, 2.0, np.float64(2.0), np.int64(2), [2.0, 3.0], (2.0, 3.0), np.array([2.0, 3.0], dtype=np.float32), np.array(2.0, dtype=np.float32),
], ids=lambda v: type(v).__name__)  # fmt: skip
def test_operators(name, other, device):
    """With numbers, sequences and arrays on either side, and in place, the operator equals the function."""
    x, function, python = tensor(np.array([4, 5], np.float32), device), getattr(mg, name), OPERATORS[name]
    if isinstance(other, (list, tuple, np.ndarray)) and device != "cpu":
        for call in (lambda: python(x, other), lambda: python(other, x)):  # arrays are on the CPU
            refuses(ValueError, name, ["expected tensors on one device", "cpu"], call)
        return
    for ours, expected in ((python(x, other), function(x, other)), (python(other, x), function(other, x))):
        assert isinstance(ours, mg.Tensor)
        assert (ours.dtype, ours.device) == ("float32", device)
        equals(ours, array(expected))
    near(python(x, other), python(array(x), np.float32(other)), rtol=1e-6)
    expected, address = array(function(x, other)), x.data_ptr()
    x = IN_PLACE[name](x, other)
    assert x.data_ptr() == address
    assert x.version == 1
    equals(x, expected)


def test_unary_operators(device):
    x = tensor(np.array([-2.5, 0.0, 3.0]), device)
    equals(-x, -array(x))
    equals(abs(x), np.abs(array(x)))
    assert +x is x


def test_operators_leave_strangers_alone(device):
    x = mg.ones(2, device=device)
    for stranger in ("a", None, object(), {}):
        for python in (*OPERATORS.values(), operator.matmul, operator.lt):
            with pytest.raises(TypeError):
                python(x, stranger)
            if not (python is operator.mod and stranger == "a"):  # Python formats the string
                with pytest.raises(TypeError):
                    python(stranger, x)
        assert (x == stranger) is False
        assert (x != stranger) is True
    assert x + type("Meets", (), {"__radd__": lambda self, other: "met"})() == "met"
    for text in ("ab", b"ab", bytearray(b"ab")):  # Python repeats them an integer's number of times
        for product in (lambda x, text: x * text, lambda x, text: text * x):
            for y in (x, mg.tensor(1.0, device=device), mg.tensor([2], device=device), mg.tensor(True, device=device)):
                refuses(TypeError, "multiply", type(text).__name__, product, y, text)
            assert product(mg.tensor(2, device=device), text) == text * 2


def test_in_place_gradient(device):
    """y op= x is recorded like y op x."""
    for name, python in IN_PLACE.items():
        a, b = np.array([1.5, 2.5]), np.array([1.25, 0.75])
        found = []
        for op in (python, OPERATORS[name]):
            x, y = tensor(a, device, True), tensor(b, device, True)
            z = x * 2
            z = op(z, y)
            found.append(mg.grad((z * z).sum(), [x, y]))
        agree(*found)


# ── integers ──────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(-100, 100), st.integers(-100, 100).filter(bool), st.sampled_from(INTEGERS))
def test_division_of_integers_is_pythons(device, a, b, dtype):
    """Division rounds down, the remainder has the divisor's sign, and a = b (a // b) + a % b."""
    x, y = mg.full((), a, dtype=dtype, device=device), mg.full((), b, dtype=dtype, device=device)
    assert (x // y).item() == a // b
    assert (x % y).item() == a % b
    assert ((x // y) * y + x % y).item() == a


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_their_limits(dtype, device):
    """Division by zero gives 0; overflow wraps, also where the processor would trap."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = tensor(np.array([5, -5, 0, low, high], dtype), device)
    zero, one = mg.zeros(5, dtype=dtype, device=device), mg.ones(5, dtype=dtype, device=device)
    assert (x // zero).tolist() == (x % zero).tolist() == [0] * 5
    assert (x // 0).tolist() == (x % 0).tolist() == [0] * 5
    assert (x // -one).tolist() == [-5, 5, 0, low, -high]
    assert (x % -one).tolist() == [0] * 5
    assert (x + one).tolist() == [6, -4, 1, low + 1, low]
    assert (x - one).tolist() == [4, -6, -1, high, high - 1]
    assert (x * 2).tolist() == [10, -10, 0, 0, -2]
    assert (-x).tolist() == [-5, 5, 0, low, -high]
    assert abs(x).tolist() == [5, 5, 0, low, high]
    assert mg.square(x)[3:].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_scalars_must_fit(dtype, device):
    x = mg.ones(2, dtype=dtype, device=device)
    refuses(OverflowError, "add", [str(2**70), dtype], operator.add, x, 2**70)
    if dtype == "int32":
        refuses(OverflowError, "add", str(2**31), operator.add, x, 2**31)


@pytest.mark.parametrize("name", ["subtract", "floor_divide", "remainder", "negative"])
def test_not_defined_for_bool(name, device):
    x = mg.ones(2, dtype="bool", device=device)
    refuses(TypeError, name, "bool", getattr(mg, name), *([x] if name == "negative" else [x, x]))


def test_arithmetic_of_bool_is_logic(device):
    a, b = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert (tensor(a, device) + tensor(b, device)).tolist() == (a | b).tolist()
    assert (tensor(a, device) * tensor(b, device)).tolist() == (a & b).tolist()


# ── zero, infinity, NaN ───────────────────────────────────────────────────────────────────────────

EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, -3.5, 7.0, 7.5, -7.5, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 5e-324, 1e308,
    -1e308,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "remainder", "floor_divide"])
def test_edges(name, dtype, device):
    """Every pair of special values gives what NumPy gives, the sign of zero included."""
    with np.errstate(all="ignore"):
        values = np.array(EDGES).astype(dtype)
        expected = getattr(np, name)(values[:, None], values)
    ours = array(getattr(mg, name)(tensor(values, device)[:, None], tensor(values, device)))
    np.testing.assert_array_equal(ours, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(ours[number]), np.signbit(expected[number]))


def test_gradients_at_the_edge(device):
    """1/x and a/b keep infinities and NaN; a product's gradient is the other factor, whatever it is."""
    x = tensor(np.array([0.0, np.inf, np.nan]), device, True)
    mg.reciprocal(x).backward(mg.ones(3, dtype="float64", device=device))
    equals(x.grad, [-np.inf, -0.0, np.nan])
    x, y = tensor(np.array([0.0, np.inf]), device, True), tensor(np.array([np.inf, 2.0]), device, True)
    (x * y).backward(mg.ones(2, dtype="float64", device=device))
    equals(x.grad, [np.inf, 2.0])
    equals(y.grad, [0.0, np.inf])


def test_remainder_has_the_gradient_of_the_divisor(device):
    """d(a mod b)/db = -floor(a/b), on both sides of zero."""
    a = tensor(np.array([7.5, -7.5, 7.5, -7.5]), device, True)
    b = tensor(np.array([2.0, 2.0, -2.0, -2.0]), device, True)
    (a % b).backward(tensor(np.array([1.0, 2.0, 3.0, 4.0]), device))
    assert a.grad.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert b.grad.tolist() == [-3.0, 8.0, 12.0, -12.0]
