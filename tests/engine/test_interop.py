"""Memory shared with NumPy, the buffer protocol and DLPack: ownership, lifetime, and errors."""

import ctypes
import gc
import weakref

import numpy as np
import pytest
from checks import raises, refuses
from shared import DTYPES, VIEWS, Capsule, matrix
from threaded import python

import minigrad as mg

# ── NumPy ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_asarray_and_numpy_share_memory(dtype, view):
    base = matrix(dtype)
    a = VIEWS[view](base)
    a = a if isinstance(a, np.ndarray) else base[1:2, 1:2].reshape(())
    x = mg.asarray(a)
    assert (x.shape, x.dtype) == (a.shape, dtype)
    if a.size > 1:
        assert x.strides == a.strides
    back = x.numpy()
    np.testing.assert_array_equal(back, a)
    assert back.dtype == a.dtype
    if a.size:
        assert np.shares_memory(back, base)
        a[...] = 1
        assert (x.numpy() == 1).all()
        back[...] = 0
        assert not a.any()


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_tensors_as_arrays(view):
    x = mg.tensor(matrix())
    np.testing.assert_array_equal(np.asarray(VIEWS[view](x)), VIEWS[view](matrix()))


def test_tensor_copies():
    a = matrix()
    for source in (a, mg.asarray(a)):
        x = mg.tensor(source)
        x.fill_(0)
        np.testing.assert_array_equal(a, matrix())


def test_asarray_copies_where_it_must():
    a = matrix()
    for x in (mg.asarray(a, dtype="float32"), mg.asarray(a.tolist())):
        assert x.dtype == "float32"
        x.fill_(0)
    frozen = matrix()
    frozen.flags.writeable = False
    x = mg.asarray(frozen)
    x.fill_(0)
    np.testing.assert_array_equal(a, matrix())
    np.testing.assert_array_equal(frozen, matrix())
    odd = np.zeros(3, dtype=[("byte", "i1"), ("value", "f8")])["value"]  # strides that are not a multiple of 8
    np.testing.assert_array_equal(mg.asarray(odd).numpy(), odd)


@pytest.mark.parametrize("make", [
    mg.asarray, mg.tensor, mg.from_dlpack, lambda a: mg.asarray(Capsule(a)), lambda a: mg.tensor(Capsule(a)),
])  # fmt: skip
def test_bytes_that_were_made_to_be_bools(make):
    odd = np.array([7, 0, 2, 255], np.uint8).view(bool)
    for a in (odd, odd[::-1]):
        x = make(a)
        assert (x.sum().item(), (~x).sum().item(), x.astype("int64").sum().item()) == (3, 1, 3)
        assert (x == mg.tensor(a != 0)).all().item()
    shared = mg.asarray(plain := np.array([True, False]))
    plain[1] = True
    assert shared.tolist() == [True, True]


def test_asarray_keeps_the_history(device):
    x = mg.ones(2, device=device, requires_grad=True)
    y = x * 3
    assert mg.asarray(y) is y
    assert mg.asarray(y, dtype="float32") is y
    mg.asarray(y, dtype="float64").sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    (dx,) = mg.grad(mg.asarray(x * x, device="cpu").sum(), [x])
    assert (dx.tolist(), dx.device) == ([2.0, 2.0], x.device)
    for options in ({}, {"dtype": "float32"}, {"dtype": "float64"}, {"device": "cpu"}):
        y = x * 3
        copy = mg.asarray(y, copy=True, **options)
        assert copy.data_ptr() != y.data_ptr()
        assert mg.grad((copy * 2).sum(), [x])[0].tolist() == [6.0, 6.0]
    assert not mg.asarray(y, dtype="int64").requires_grad
    assert mg.asarray(y, requires_grad=True).is_leaf


STANDARD = """
import minigrad as mg, numpy as np, scipy.special
x = mg.tensor([2.0, 1.0, 0.0], dtype="float64", requires_grad=True)
(found,) = mg.grad(scipy.special.logsumexp(x), [x])
np.testing.assert_allclose(found.numpy(), scipy.special.softmax([2.0, 1.0, 0.0]), rtol=1e-14)
"""


def test_code_for_the_array_standard_copies_with_asarray():
    python(STANDARD, SCIPY_ARRAY_API="1")


def test_functions_of_numbers_refuse_what_requires_grad():
    x = mg.tensor(3.0, requires_grad=True)
    for call in (lambda: mg.arange(x), lambda: mg.quantile(mg.ones(3), x / 4)):
        raises(TypeError, r"gradient.*detach\(\)", call)


def test_tensors_in_lists():
    x, y = mg.tensor(1.0, requires_grad=True), mg.tensor(2.0)
    for make in (mg.tensor, mg.asarray):
        assert make([y, [y]][:1]).tolist() == [2.0]
        with pytest.raises(TypeError, match=r"list \(Tensor, Tensor\), whose \[0\] is one: mg\.stack") as error:
            make([x, y])
        assert "numpy()" not in str(error.value)


def test_array_protocol():
    x = mg.tensor([1.0, 2.0])
    assert np.asarray(x).dtype == np.float32
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.shares_memory(x.to_numpy(), x.numpy())
    assert not np.shares_memory(np.array(x), x.numpy())
    assert np.asarray(x, dtype="int64").dtype == np.int64
    raises(ValueError, r"^\[numpy\]", x.__array__, dtype="int64", copy=False)
    assert np.stack([x, x]).shape == (2, 2)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_arrays_have_the_c_type_of_numpy(dtype):
    """NumPy has two types of 64 bits, which are equal, but some libraries accept one of them alone."""
    x = mg.ones(2, dtype=dtype)
    assert {x.numpy().dtype.num, np.asarray(x).dtype.num, np.from_dlpack(x).dtype.num} == {np.dtype(dtype).num}


def test_numpy_refuses_what_requires_grad():
    x = mg.ones(2, requires_grad=True)
    for y in (x, x * 2):
        refuses(TypeError, "numpy", "detach().numpy()", y.numpy)
    with mg.no_grad():
        np.testing.assert_array_equal((x * 2).numpy(), [2, 2])
    np.testing.assert_array_equal(x.detach().numpy(), [1, 1])


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">i8"])
def test_other_endianness_is_converted(dtype):
    a = matrix(dtype)
    for make in (mg.asarray, mg.tensor):
        x = make(a)
        np.testing.assert_array_equal(x.numpy(), matrix(dtype[1:]))
        assert x.numpy().dtype == np.dtype(dtype[1:])


@pytest.mark.parametrize("dtype", ["float16", "int8", "int16", "uint16", "uint32", "uint64"])
def test_other_numbers_need_a_dtype(dtype):
    a = np.array([1, 2], dtype=dtype)
    for make in (mg.asarray, mg.tensor):
        refuses(TypeError, make.__name__, str(dtype), make, a)
        x = make(a, dtype="float32")
        np.testing.assert_array_equal(x.numpy(), [1, 2])
        assert x.dtype == "float32"


@pytest.mark.parametrize("data", [
    np.zeros(2, "complex64"), np.zeros(2, "S3"), np.zeros(2, "M8[s]"), np.zeros(2, "longdouble"), "text", None,
    object(), [[1, 2], [None, 3]], ["a"],
], ids=lambda value: str(value)[:20].split(" at ")[0])  # fmt: skip
def test_what_is_not_numbers(data):
    with pytest.raises((TypeError, ValueError)):
        mg.tensor(data)


class Variable:
    """A variable of netCDF4, which NumPy reads as an array with a mask."""

    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_greater(np.array([1.0, 1e36]), 1e30)


@pytest.mark.parametrize("use", [
    mg.tensor, mg.asarray, lambda a: mg.add(mg.ones(2), a), lambda a: mg.ones(2).__setitem__(slice(None), a),
    lambda a: mg.data.TensorDataset(a)[0:2],
])  # fmt: skip
def test_masked_elements_are_no_numbers(use):
    for masked in (Variable(), np.asanyarray(Variable())):
        raises(ValueError, r"1 masked elements.*x\.filled", use, masked)
    use(np.ma.masked_array([1.0, 2.0]))


def test_sparse_arrays():
    class Sparse:  # as an array of scipy.sparse
        def toarray(self):
            return matrix()

    class Refusing:  # as an array of the package sparse
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("use the todense method")

    refuses(TypeError, "tensor", ["Sparse", "x.toarray()"], mg.tensor, Sparse())
    refuses(TypeError, "tensor", ["Refusing", "todense"], mg.tensor, Refusing())


def test_ragged_lists():
    raises(ValueError, "shape", mg.tensor, [[1, 2], [3]])


def test_python_scalars_and_lists_take_the_default_dtypes():
    assert mg.tensor(1.5).dtype == mg.tensor([1.5]).dtype == mg.tensor([1, 2.5]).dtype == "float32"
    assert mg.tensor(1).dtype == mg.tensor([1]).dtype == "int64"
    assert mg.tensor(True).dtype == "bool"
    assert mg.tensor(np.float64(1)).dtype == "float64"
    assert mg.tensor(np.float32(1)).dtype == "float32"


def test_other_exporters():
    from array import array

    a = array("d", [1.0, 2.0])
    x = mg.asarray(a)
    a[0] = 5.0
    assert x.tolist() == [5.0, 2.0]
    assert mg.asarray(memoryview(a)).tolist() == [5.0, 2.0]
    b = ((ctypes.c_float * 3) * 2)((1, 2, 3), (4, 5, 6))  # its buffer has no strides
    x = mg.asarray(b)
    b[1][0] = 7
    assert x.tolist() == [[1.0, 2.0, 3.0], [7.0, 5.0, 6.0]]
    assert mg.asarray(ctypes.c_int32(3)).tolist() == 3


# ── lifetimes ─────────────────────────────────────────────────────────────────────────────────────


def test_an_array_outlives_its_tensor():
    before = mg.memory_allocated()
    x = mg.full((1000,), 3.0)
    a = x.numpy()
    view = a[10:]
    del x, a
    junk = [mg.zeros(1000) for _ in range(10)]
    assert (view == 3).all()
    del view, junk
    assert mg.memory_allocated() == before


def test_a_tensor_outlives_its_array():
    a = np.full(100_000, 3.0)
    dead = weakref.ref(a)
    x = mg.asarray(a)
    y = x[5:]
    del a, x
    gc.collect()
    assert dead() is not None
    assert (y.numpy() == 3).all()
    del y
    gc.collect()
    assert dead() is None


@pytest.mark.parametrize("export", [lambda x: x.numpy(), np.from_dlpack], ids=["buffer", "dlpack"])
def test_an_export_survives_that_the_tensor_becomes_another(export):
    x = mg.zeros(1000)
    a = export(x)
    x.set_(mg.ones(3))
    junk = [mg.full((1000,), 7.0) for _ in range(10)]
    assert (a == 0).all()
    del junk


# ── buffer flags ──────────────────────────────────────────────────────────────────────────────────


class Buffer(ctypes.Structure):
    _fields_ = [
        ("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int), ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p),
    ]  # fmt: skip


FLAGS = {"SIMPLE": 0, "ND": 8, "STRIDES": 24, "C": 0x38, "F": 0x58, "ANY": 0x98, "FULL": 0x11C}


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("layout", ["dense", "transposed", "vector"])
def test_buffer_flags(flag, layout):
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes, release.argtypes = [ctypes.py_object, ctypes.POINTER(Buffer), ctypes.c_int], [ctypes.POINTER(Buffer)]
    x = {"dense": mg.zeros((3, 4)), "transposed": mg.zeros((3, 4)).T, "vector": mg.zeros(3)}[layout]
    fits = {"dense": flag != "F", "transposed": flag in ("STRIDES", "FULL"), "vector": True}[layout]
    buffer = Buffer()
    if not fits:
        raises(BufferError, r"^\[numpy\]", get, x, buffer, FLAGS[flag])
        return
    get(x, buffer, FLAGS[flag])
    assert (buffer.len, buffer.itemsize, buffer.ndim, buffer.readonly) == (x.nbytes, 4, x.ndim, 0)
    assert bool(buffer.shape) == (flag != "SIMPLE")
    assert bool(buffer.strides) == (flag not in ("SIMPLE", "ND"))
    assert buffer.format == (b"f" if flag == "FULL" else None)
    release(buffer)
