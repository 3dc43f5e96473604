"""Result dtypes: the array API's table for tensors, its rule for Python numbers, and each operation's own rule."""

from fractions import Fraction

import numpy as np
import pytest
from checks import equals, raises, refuses, tensor

import minigrad as mg

DTYPES = ["bool", "int32", "int64", "float32", "float64"]  # a mixture has the dtype that comes last
BINARY = ["add", "multiply", "maximum", "minimum"]
NUMERIC = ["subtract", "floor_divide", "remainder", "power"]
FLOATING = ["divide", "atan2"]
COMPARING = [
    "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor",
]  # fmt: skip


def operand(dtype, device, value=1):
    return tensor(np.full((2, 3), value, dtype), device)


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_two_tensors(first, second, device):
    """The later of the two in the order above; division and angles of integers are float32; comparisons are bool."""
    x, y = operand(first, device), operand(second, device)
    common = max(first, second, key=DTYPES.index)
    for name in BINARY:
        assert getattr(mg, name)(x, y).dtype == common, name
    for name in NUMERIC:
        if common == "bool":
            raises(TypeError, rf"^\[{name}\]", getattr(mg, name), x, y)
        else:
            assert getattr(mg, name)(x, y).dtype == common, name
    for name in FLOATING:
        assert getattr(mg, name)(x, y).dtype == (common if common.startswith("f") else "float32"), name
    for name in COMPARING:
        assert getattr(mg, name)(x, y).dtype == "bool", name
    assert mg.where(x > 0, x, y).dtype == common
    assert mg.matmul(x, y.T).dtype == common
    assert mg.concat([x, y]).dtype == mg.stack([x, y]).dtype == common
    assert mg.einsum("ij,ij->i", x, y).dtype == mg.vecdot(x, y).dtype == mg.tensordot(x, y.T, axes=1).dtype == common


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [bool, int, float, np.bool_, np.int64, np.float64, np.float32, np.int32, Fraction])
def test_a_tensor_and_a_number(dtype, kind, device):
    """A number is weak, whether NumPy's or Python's: it may change the kind (bool, int, float), but not the width."""
    x, number = operand(dtype, device), kind(1)
    wants = "bool" if kind in (bool, np.bool_) else "int64" if kind in (int, np.int64, np.int32) else "float32"
    order = {"bool": 0, "int32": 1, "int64": 1, "float32": 2, "float64": 2}
    common = dtype if order[dtype] >= order[wants] else wants
    for y in (
        x + number, number + x, x * number, mg.maximum(x, number), mg.where(x > 0, x, number),
        mg.where(x > 0, number, x),
    ):  # fmt: skip
        assert y.dtype == common
    assert (x == number).dtype == "bool"
    assert (x / number).dtype == (common if common.startswith("f") else "float32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype, device):
    """Sums of small integers are int64, positions are int64, extrema keep the dtype, moments are floats."""
    x = operand(dtype, device)
    summed = "int64" if dtype in ("bool", "int32") else dtype
    for name in ("sum", "prod"):
        assert getattr(mg, name)(x).dtype == summed
        assert getattr(mg, name)(x, dtype="float64").dtype == "float64"
    assert mg.cumulative_sum(x, axis=0).dtype == summed
    assert mg.max(x).dtype == mg.min(x).dtype == mg.sort(x).dtype == mg.unique_values(x).dtype == dtype
    assert mg.argmax(x).dtype == mg.argmin(x).dtype == mg.argsort(x).dtype == mg.nonzero(x)[0].dtype == "int64"
    assert mg.any(x).dtype == mg.all(x).dtype == "bool"
    for name in ("mean", "var", "std", "logsumexp"):
        if dtype.startswith("f"):
            assert getattr(mg, name)(x).dtype == dtype
        else:
            raises(TypeError, dtype, getattr(mg, name), x)


def test_gradients_have_the_dtype_of_their_tensor(device):
    """Through a product of mixed widths, each operand's gradient has its own dtype."""
    x, y = operand("float32", device).requires_grad_(), operand("float64", device).requires_grad_()
    n = operand("int64", device)
    (x * y + n).sum().backward()
    assert (x.grad.dtype, y.grad.dtype) == ("float32", "float64")
    equals(x.grad, 1)


def test_numbers_do_not_widen_results_by_their_precision(device):
    """With a float32 tensor, 0.1 is float32's 0.1."""
    x = mg.zeros(1, dtype="float32", device=device)
    assert (x + 0.1).item() == np.float32(0.1)
    assert ((x + 0.1) == 0.1).tolist() == [True]
    assert (x.astype("float64") + 0.1).item() == 0.1


def test_what_is_no_number(device):
    x = operand("float32", device)
    for other in (1j, np.complex64(1)):
        refuses(TypeError, "add", "1j" if other == 1j else "1", mg.add, x, other)
    for other in (np.ones(3, np.float16), np.ones(3, np.int8), ["a"]):
        raises(TypeError, r"^\[add\]", mg.add, x, other)
    for name in ("float16", "int8", "complex64", "nonsense", object, 3.5):
        raises(TypeError, r"^\[astype\]", x.astype, name)


def test_dtypes_are_equal_to_their_names():
    for name in DTYPES:
        dtype = getattr(mg, name)
        assert dtype == name
        assert dtype == np.dtype(name)
        assert np.dtype(dtype) == np.dtype(name)
        assert str(dtype) == name
        assert hash(dtype) == hash(getattr(mg, name))
        assert dtype != "float16"
        assert (dtype.name, dtype.itemsize) == (name, np.dtype(name).itemsize)


FLOATS_WITHOUT_A_DTYPE = {
    "data": lambda on: mg.tensor([1.5, 2], device=on),
    "shapes": lambda on: mg.zeros(2, device=on) + mg.ones(2, device=on) + mg.full((2,), 3, device=on) + mg.eye(2, device=on),
    "ranges": lambda on: mg.arange(0, 1, 0.5, device=on) + mg.linspace(0, 1, 2, device=on),
    "random": lambda on: mg.random.normal(shape=(2,), device=on) + mg.random.uniform(shape=(2,), device=on) + mg.rand(2, device=on),
    "padded": lambda on: mg.data.pad_sequences([[0.5], [1.5, 2.5]]),
    "quotient": lambda on: operand("int32", on) / 2,
    "two integers": lambda on: mg.atan2(operand("int64", on), operand("int32", on)),
    "function": lambda on: mg.exp(operand("int64", on)),
    "reciprocal": lambda on: mg.reciprocal(operand("int64", on)),
    "power": lambda on: operand("int64", on) ** 0.5,
    "number": lambda on: operand("bool", on) + 0.5,
    "chosen": lambda on: mg.where(operand("bool", on), 1.0, 2),
    "median": lambda on: mg.median(operand("int64", on)),
    "norm": lambda on: mg.linalg.vector_norm(operand("int64", on)),
}  # fmt: skip


@pytest.fixture
def float64_by_default():
    mg.set_default_dtype("float64")
    yield
    mg.set_default_dtype("float32")


@pytest.mark.parametrize("made", FLOATS_WITHOUT_A_DTYPE.values(), ids=FLOATS_WITHOUT_A_DTYPE)
def test_floats_without_a_dtype(made, device, float64_by_default):
    assert mg.get_default_dtype() == made(device).dtype == "float64"
    mg.set_default_dtype(mg.float32)
    assert mg.get_default_dtype() == made(device).dtype == "float32"


def test_the_default_dtype_changes_nothing_that_has_one(device, float64_by_default):
    x = operand("float32", device)
    for y in (x + 0.5, x * operand("int64", device), x / 3, mg.tensor(np.ones(2, np.float32)), mg.zeros_like(x)):
        assert y.dtype == "float32"
    assert (mg.zeros(2, dtype="float32").dtype, mg.zeros(2, dtype="int64").dtype) == ("float32", "int64")
    assert (repr(mg.ones(1)), repr(mg.ones(1, dtype="float32"))) == ("tensor([1.])", "tensor([1.], dtype=float32)")
    assert (repr(mg.ones(0, dtype="int64")), repr(mg.tensor([1]))) == ("tensor([], dtype=int64)", "tensor([1])")
    assert mg.result_type(mg.int32, 0.5) == mg.__array_namespace_info__().default_dtypes()["real floating"] == "float64"


def test_the_default_dtype_is_a_float():
    for name in ("int64", bool, "float16", None):
        refuses(TypeError, "set_default_dtype", "expected float32", mg.set_default_dtype, name)
    assert mg.get_default_dtype() == "float32"
