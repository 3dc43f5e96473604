"""Tensors from data, shapes and ranges: the table of those with gradients, dtypes, shared memory, invalid arguments."""

import array as arrays
import math
from collections import UserList

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import Suite, array, equals, raises, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import CREATION

import minigrad as mg

DTYPES = ["bool", "uint8", "int32", "int64", "float32", "float64"]


class TestTable(Suite):
    ops = CREATION


# ── from data ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("data", "dtype"), [
    (1, "int64"), (1.5, "float32"), (True, "bool"), ([1, 2], "int64"), ([1, 2.5], "float32"), ([[True], [False]], "bool"), ([], "float32"),
    ([True, 2], "int64"), (np.float64(1.5), "float64"), (np.float32(1.5), "float32"), (np.int32(1), "int32"), (np.arange(3), "int64"),
    (np.ones(2), "float64"), (range(3), "int64"), ((1.0, 2.0), "float32"), (np.bool_(True), "bool"), ([np.float64(1.0)], "float64"), ([[1.0], [np.float32(1.0)]], "float32"),
    ([1.5, np.int64(1)], "float32"), ([np.ones(1), [1.0]], "float64"), ([arrays.array("d", [1.0])], "float64"), (memoryview(arrays.array("d", [1.0])).toreadonly(), "float64"),
    (UserList([np.float64(1.0)]), "float64"), ([np.float32(1.0), np.int64(2**24 + 1)], "float64"),
    (arrays.array("d", [1.0, 2.0]), "float64"), (arrays.array("i", [1, 2]), "int32"), (memoryview(arrays.array("f", [1.0])), "float32"),
])  # fmt: skip
def test_dtypes_of_data(data, dtype, device):
    """Python floats become float32, ints int64; data with a dtype keep it."""
    for make in (mg.tensor, mg.asarray):
        x = make(data, device=device)
        assert x.dtype == dtype
        equals(x, np.asarray(data))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_dtypes_asked_for(source, target, device):
    """A dtype is given by DType, name, NumPy type or Python type."""
    a = np.array([0, 1, 1]).astype(source)
    python = {"float64": float, "int64": int, "bool": bool}.get(target, target)
    for dtype in (target, np.dtype(target), getattr(mg, target), python):
        x = mg.tensor(a, dtype=dtype, device=device)
        assert x.dtype == target
        equals(x, a.astype(target))


@given(
    hnp.arrays(st.sampled_from(DTYPES).map(np.dtype), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3))
)
def test_round_trips(device, a):
    """NumPy and back, nested lists and back."""
    x = mg.tensor(a, device=device)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes) == (a.shape, str(a.dtype), a.ndim, a.size, a.nbytes)
    equals(x, a)
    np.testing.assert_equal(x.tolist(), a.tolist())
    if a.size:
        equals(mg.tensor(a.tolist(), dtype=str(a.dtype), device=device), a)


def test_tensor_copies_and_asarray_shares():
    a = np.zeros((3, 4))
    for view in (a, a.T, a[::2, ::-1], a[1:2], np.broadcast_to(a[0], (2, 4)).copy()):
        x, y = mg.asarray(view), mg.tensor(view)
        before = view.copy()
        view += 1
        np.testing.assert_array_equal(x.numpy(), view)
        np.testing.assert_array_equal(y.numpy(), before)
        assert x.strides == view.strides
    x = mg.asarray(a)
    x[0, 0] = 99
    assert a[0, 0] == 99
    assert mg.asarray(x) is x
    assert mg.tensor(x).data_ptr() != x.data_ptr()
    assert mg.asarray(a, dtype="float32").dtype == "float32"


def test_what_cannot_be_shared_is_copied():
    """Memory that is read-only, unaligned or in another byte order."""
    locked = np.arange(3.0)
    locked.flags.writeable = False
    odd = np.frombuffer(bytes(17), np.uint8)[1:].copy()[:16].view(np.float64)
    swapped = np.arange(3.0).astype(">f8")
    fields = np.zeros(3, [("a", "i1"), ("b", "f8")])["b"]
    for a in (locked, odd, swapped, fields):
        x = mg.asarray(a)
        np.testing.assert_array_equal(x.numpy(), a)
        x.fill_(7)
    assert locked.tolist() == [0, 1, 2]


def test_memory_outlives_its_maker():
    x = mg.asarray(np.arange(1000.0)[::2])
    a = mg.arange(1000, dtype="float64")[::2].numpy()
    for _ in range(100):
        np.full(1000, -1.0)
        mg.full(1000, -1.0)
    np.testing.assert_array_equal(x.numpy(), np.arange(0, 1000, 2))
    np.testing.assert_array_equal(a, np.arange(0, 1000, 2))


def test_dlpack(device):
    torch = pytest.importorskip("torch")
    for dtype in DTYPES:
        theirs = torch.ones(2, 3, dtype=getattr(torch, dtype)).T
        x = mg.from_dlpack(theirs)
        assert (x.shape, x.dtype) == ((3, 2), dtype)
        theirs[0, 0] = 0
        assert x[0, 0].item() == 0
        back = torch.from_dlpack(x)
        x[1, 1] = 0
        assert back[1, 1] == 0
        assert mg.asarray(theirs).data_ptr() == theirs.data_ptr()
        assert mg.tensor(theirs).data_ptr() != theirs.data_ptr()
    refuses(TypeError, "from_dlpack", "list", mg.from_dlpack, [1])
    refuses(TypeError, "from_dlpack", "got int8", mg.from_dlpack, torch.ones(2, dtype=torch.int8))
    raises(BufferError, r"\[dlpack\].*requires grad", np.from_dlpack, mg.ones(2, requires_grad=True))


def test_gradients_asked_for(device):
    x = mg.tensor([1.0], device=device, requires_grad=True)
    assert x.requires_grad
    assert x.is_leaf
    assert mg.tensor(x * 2).requires_grad is False
    raises(TypeError, r"\[numpy\].*detach" if device == "cpu" else r"\[numpy\].*x\.to\('cpu'\)", x.numpy)
    refuses(TypeError, "tensor", "int64", mg.tensor, [1], requires_grad=True)
    refuses(TypeError, "ones", "int64", mg.ones, 2, dtype="int64", requires_grad=True)


def test_data_that_is_none():
    for data, said in (("a", "U1"), (["a"], "U1"), (None, "object"), ({}, "object"), (1j, "complex128"), (np.ones(2, np.float16), "float16"),
                       (np.ones(2, np.int8), "int8"), (np.array(["2020"], "M8"), "datetime64"), (b"ab", "S2")):  # fmt: skip
        refuses(TypeError, "tensor", said, mg.tensor, data)
    raises(ValueError, "inhomogeneous", mg.tensor, [[1, 2], [3]])
    assert mg.tensor(np.ones(2, np.float16), dtype="float32").dtype == "float32"
    assert mg.tensor(np.ones(2, np.int8), dtype="int64").tolist() == [1, 1]
    refuses(TypeError, "tensor", "float16", mg.tensor, [1.0], "float16")
    refuses(ValueError, "tensor", "tpu", mg.tensor, [1.0], None, "tpu")


# ── from shapes ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(), 3, (3,), [2, 3], (2, 0, 3), (np.int64(2), 3), np.int64(2)], ids=str)
@pytest.mark.parametrize("dtype", [None, *DTYPES])
def test_filled(shape, dtype, device):
    for make, make_like, value in ((mg.zeros, mg.zeros_like, 0), (mg.ones, mg.ones_like, 1)):
        x = make(shape, dtype=dtype, device=device)
        expected = np.full(shape, value, dtype or "float32")
        assert x.dtype == str(expected.dtype)
        assert x.device == device
        equals(x, expected)
        like = make_like(x)
        assert (like.shape, like.dtype, like.device) == (x.shape, x.dtype, device)
        assert like.data_ptr() != x.data_ptr() or x.size == 0
    assert mg.empty(shape, dtype=dtype, device=device).shape == expected.shape
    assert mg.empty_like(x, dtype="int32").dtype == "int32"


def test_full(device):
    for value, dtype in (
        (True, "bool"), (3, "int64"), (2.5, "float32"), (math.inf, "float32"), (np.float64(0.1), "float64"),
    ):  # fmt: skip
        x = mg.full((2,), value, device=device)
        assert x.dtype == dtype
        assert x.tolist() == [value] * 2
    assert mg.full(2, 7, dtype="float64", device=device).dtype == "float64"
    assert np.signbit(array(mg.full(100, -0.0, device=device))).all()
    y = mg.full_like(x, 3, dtype="int32")
    assert (y.dtype, y.tolist()) == ("int32", [3, 3])
    assert mg.full_like(mg.ones(2, dtype="int32", device=device), 5).dtype == "int32"
    assert mg.ones(2, device=device, requires_grad=True).requires_grad


def test_shapes_that_are_none():
    makers = {"zeros": mg.zeros, "ones": mg.ones, "empty": mg.empty, "full": lambda shape: mg.full(shape, 1)}
    for name, make in makers.items():
        refuses(ValueError, name, "-1", make, (2, -1))
        refuses(TypeError, name, "1.5", make, (2, 1.5))
        refuses(TypeError, name, "'a'", make, ("a",))
        refuses(MemoryError, "allocate", str(2**40), make, (2**40, 2**40))
    refuses(TypeError, "zeros", "None", mg.zeros, None)


# ── ranges ────────────────────────────────────────────────────────────────────────────────────────

NUMBERS = st.integers(-20, 20) | st.floats(-20, 20, width=16).filter(lambda v: abs(v) > 0.05)


@given(st.tuples(NUMBERS) | st.tuples(NUMBERS, NUMBERS) | st.tuples(NUMBERS, NUMBERS, NUMBERS.filter(bool)))
def test_arange(device, numbers):
    x = mg.arange(*numbers, device=device)
    assert x.dtype == ("int64" if all(isinstance(n, int) for n in numbers) else "float32")
    equals(x, np.arange(*numbers).astype(str(x.dtype)))


def test_numbers_of_other_kinds(device):
    assert mg.arange(np.int64(3), device=device).dtype == "int64"
    assert mg.arange(mg.full((), 3, dtype="int32", device=device)).tolist() == [0, 1, 2]
    assert mg.arange(3, dtype="float64", device=device).dtype == "float64"
    assert mg.arange(np.float32(2), device=device).dtype == "float32"
    assert mg.arange(5, 0, device=device).shape == (0,)
    assert mg.arange(0, 1, 0.1, device=device).shape == (10,)
    assert mg.arange(2**40, 2**40 + 2, device=device).tolist() == [2**40, 2**40 + 1]


@pytest.mark.parametrize("numbers", [
    (0, 2**63, 2**62), (0, 2**63, 2**63), (0, 3 * 2**60 + 1, 2**60), (-(2**63), 2**63, 2**64 - 1), (2**53, 2**53 + 3),
    (2**63 - 1, -(2**63) - 1, -(2**62)), (2**63 - 1, 2**63), (2**64, 2**64), (2**64, 0), (0, 2**200, 2**200),
], ids=str)  # fmt: skip
def test_arange_of_large_integers(numbers, device):
    """The values equal those of range, even if the float quotient that NumPy uses as their number is inexact."""
    x = mg.arange(*numbers, device=device)
    assert (x.dtype, x.tolist()) == ("int64", list(range(*numbers)))


def test_arange_beyond_int64():
    for numbers in ((2**63, 2**63 + 2), (0, 2**64, 2**63), (2**64, 2**64 + 2)):
        refuses(ValueError, "arange", "int64", mg.arange, *numbers)
        assert mg.arange(*numbers, dtype="float32").tolist() == [float(n) for n in range(*numbers)]


def test_more_than_any_memory():
    """The error names the operation, whatever NumPy does with such a number: 2**63 gives it an empty array."""
    for n in (2**48, 10**18, 2**63 - 1, 2**63, 2**64, 1e18, 1e300):
        refuses(MemoryError, "arange", str(n), mg.arange, n)
        refuses(MemoryError, "arange", str(n), mg.arange, 0, -n, -1)
    for numbers in ((-1e308, 1e308, 1.0), (0, 1, 5e-324), (0, 10**300, 0.5)):
        refuses(MemoryError, "arange", "many", mg.arange, *numbers)
    for n in (2**24, 2**33, 2**63, 2**64):
        refuses(MemoryError, "eye", str(n), mg.eye, n)
    for n in (2**48, 10**18, 2**62, 2**63):
        refuses(MemoryError, "linspace", str(n), mg.linspace, 0, 1, n)
    wide = mg.broadcast_to(mg.ones(1), (2**24, 2**24))
    for triangle in (mg.tril, mg.triu):
        raises(MemoryError, rf"^\[{triangle.__name__}\] no memory for .* \({2**24}, {2**24}\)", triangle, wide)


def test_diagonals_far_away(device):
    """Any integer is accepted: beyond the corners, the triangle is empty or everything."""
    x = mg.ones((2, 3), device=device)
    zeros, ones = np.zeros((2, 3)), np.ones((2, 3))
    for k in (2, 3, 4, 2**62, 2**63 - 1, 2**63, 2**100):
        equals(mg.triu(x, k=k), np.triu(ones, min(k, 9)))
        equals(mg.tril(x, k=k), ones)
        equals(mg.triu(x, k=-k), ones)
        equals(mg.tril(x, k=-k), zeros)
        equals(mg.eye(2, 3, k=k + 1, device=device), zeros)
        equals(mg.eye(2, 3, k=-k, device=device), zeros)


@given(
    st.floats(-100, 100),
    st.floats(-100, 100),
    st.integers(0, 50),
    st.booleans(),
    st.sampled_from(["float32", "float64"]),
)
def test_linspace(device, start, stop, num, endpoint, dtype):
    x = mg.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device)
    equals(x, np.linspace(start, stop, num, endpoint=endpoint).astype(dtype))
    assert mg.linspace(0, 1, 3, device=device).dtype == "float32"


@pytest.mark.parametrize(("n", "m", "k"), [(3, None, 0), (3, 4, 1), (4, 3, -2), (0, 3, 0), (2, 2, 5)])
def test_eye(n, m, k, device):
    for dtype in (None, *DTYPES):
        x = mg.eye(n, m, k=k, dtype=dtype, device=device)
        assert x.dtype == (dtype or "float32")
        equals(x, np.eye(n, m, k))


def test_errors(device):
    refuses(ValueError, "arange", "nan", mg.arange, math.nan)
    refuses(ValueError, "arange", "finite", mg.arange, 10**400)
    refuses(ValueError, "arange", "finite", mg.arange, 0.5, 10**400)
    refuses(ValueError, "eye", "-2", mg.eye, 3, -2)
    refuses(ValueError, "tril", "(3,)", mg.tril, mg.ones(3, device=device))
    refuses(ValueError, "triu", "()", mg.triu, mg.ones((), device=device))
    assert mg.meshgrid() == []
    assert mg.tril([[1, 2], [3, 4]]).tolist() == [[1, 0], [3, 4]]
    assert [g.tolist() for g in mg.meshgrid([1, 2], [3])] == [[[1, 2]], [[3, 3]]]
    equals(mg.triu(tensor(np.full((2, 2), np.inf), device)), [[np.inf, np.inf], [0, np.inf]])


@pytest.mark.parametrize("make", [mg.tensor, mg.asarray])
@pytest.mark.parametrize("dtype, values", [
    ("int32", [0, 2**31]), ("int32", [-(2**31) - 1]), ("int32", [2.0**31]), ("int32", [-(2.0**31) - 1]),
    ("int32", np.array([2**40])), ("int64", np.array([2**63], np.uint64)), ("int64", [2.0**63]), ("int64", [np.nan, 1]),
    ("int64", [1, -np.inf]), ("int32", np.array([1, np.inf], np.float32)), ("int32", np.array([2**31], np.uint32)),
])  # fmt: skip
def test_numbers_that_do_not_fit_an_integer(make, dtype, values):
    refuses(ValueError, make.__name__, [dtype, str(np.max(values)), str(np.min(values))], make, values, dtype=dtype)


def test_numbers_that_just_fit_an_integer(device):
    for dtype, bits in (("int32", 32), ("int64", 64)):
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        assert mg.tensor([least, most], dtype=dtype, device=device).tolist() == [least, most]
        assert mg.tensor([float(least)], dtype=dtype, device=device).tolist() == [least]
    near = [-(2.0**31) - 0.5, 2.0**31 - 0.5]
    assert mg.tensor(np.array(near), dtype="int32", device=device).tolist() == [-(2**31), 2**31 - 1]
    assert mg.tensor([], dtype="int32", device=device).shape == (0,)
    assert mg.tensor([True, False], dtype="int32", device=device).tolist() == [1, 0]
