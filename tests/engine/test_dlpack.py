"""DLPack in both directions, and devices of other libraries."""

import ctypes
import gc
import sys
import warnings

import numpy as np
import pytest
from checks import Exporter, allocated, raises, refuses
from peers import torch
from shared import DTYPES, VIEWS, Capsule, matrix
from threaded import python

import minigrad as mg


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_dlpack_with_numpy(dtype, view):
    x = VIEWS[view](mg.tensor(matrix(dtype)))
    a = np.from_dlpack(x)
    expected = VIEWS[view](matrix(dtype))
    np.testing.assert_array_equal(a, expected)
    assert a.dtype == dtype
    y = mg.from_dlpack(a.copy())
    np.testing.assert_array_equal(y.numpy(), expected)
    if a.size:
        assert np.shares_memory(a, x.numpy()) == (view != "reversed")  # not every library has negative strides
        a[...] = 1
        assert (x.numpy() == 1).all() == (view != "reversed")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_dlpack_with_torch(dtype, view):
    x = VIEWS[view](mg.tensor(matrix(dtype)))
    t = torch.from_dlpack(x)
    assert t.dtype == getattr(torch, dtype)
    np.testing.assert_array_equal(t.numpy(), x.numpy())
    y = mg.from_dlpack(t)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    if x.size and view != "reversed":
        t.fill_(0)
        assert not x.any()
        y.fill_(1)
        assert x.all()


def test_dlpack_lifetimes():
    before = allocated()
    x = mg.full((1000,), 3.0)
    t = torch.from_dlpack(x[5:])
    del x
    junk = [mg.zeros(1000) for _ in range(10)]
    assert (t == 3).all()
    del t, junk
    assert allocated() == before
    y = mg.from_dlpack(torch.full((1000,), 2.0))[1:]
    gc.collect()
    assert (y.numpy() == 2).all()


def test_unused_capsules_are_freed():
    before = mg.memory_allocated()
    for _ in range(100):
        mg.zeros(1000).__dlpack__()
        mg.zeros(1000).__dlpack__(max_version=(1, 0))
    assert mg.memory_allocated() == before


GIVEN_BACK_LATE = """
import ctypes
import minigrad as mg
class Managed(ctypes.Structure):
    _fields_ = [("tensor", ctypes.c_char * 48), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]
pointer, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
capsule, used = mg.ones(3).__dlpack__(), b"used_dltensor"
address = pointer(capsule, b"dltensor")
rename(capsule, used)
at_exit = ctypes.CDLL(None).__cxa_atexit        # runs what the destructor of a static C++ object would
at_exit.argtypes = [ctypes.c_void_p] * 3
at_exit(Managed.from_address(address).deleter, address, None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="__cxa_atexit is called by its name in Linux's C library")
def test_an_export_given_back_after_the_interpreter_has_ended():
    python(GIVEN_BACK_LATE)


class Versioned(ctypes.Structure):
    """The first fields of DLPack's DLManagedTensorVersioned."""

    _fields_ = [
        ("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    ]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("copy", [None, True, False])
def test_exported_strides(view, copy, device):
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    x = VIEWS[view](mg.tensor(matrix(), device=device))
    options = {"max_version": (1, 0), "stream": None if device == "cpu" else 1}
    if view == "reversed" and copy is False:
        with pytest.raises(BufferError, match=r"^\[dlpack\] expected strides of 0 or more.*contiguous"):
            x.__dlpack__(copy=copy, **options)
        return
    capsule = x.__dlpack__(copy=copy, **options)
    found = Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
    assert all(found.strides[k] >= 0 for k in range(found.ndim))
    assert (found.flags, found.data == x.data_ptr()) == ((2, False) if copy or view == "reversed" else (0, True))


def test_dlpack_arguments():
    x = mg.ones(3)
    assert x.__dlpack_device__() == (1, 0)
    assert not np.shares_memory(np.from_dlpack(x, copy=True), x.numpy())
    x.__dlpack__(max_version=(1, 0), dl_device=(1, 0))
    raises(BufferError, r"^\[dlpack\]", x.__dlpack__, dl_device=(2, 0))
    raises(BufferError, r"^\[dlpack\].*detach", mg.ones(2, requires_grad=True).__dlpack__)


def test_from_dlpack_refuses():
    for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.complex64):
        raises(TypeError, r"^\[from_dlpack\]", mg.from_dlpack, torch.zeros(2, dtype=dtype))
    refuses(ValueError, "from_dlpack", "9", mg.from_dlpack, torch.zeros((1,) * 9))
    refuses(TypeError, "from_dlpack", "list", mg.from_dlpack, [1, 2])

    class Once:
        capsule = mg.zeros(3).__dlpack__()

        def __dlpack__(self, **options):
            return self.capsule

        def __dlpack_device__(self):
            return 1, 0

    assert mg.from_dlpack(Once()).tolist() == [0, 0, 0]
    raises(TypeError, "unused capsule", mg.from_dlpack, Once())


@pytest.mark.parametrize("make", [mg.from_dlpack, mg.asarray])
def test_what_is_read_only_is_copied(make):
    a = matrix()
    a.flags.writeable = False
    x = make(Capsule(a))
    x.fill_(0)
    np.testing.assert_array_equal(a, matrix())
    refuses(ValueError, make.__name__, ["expected memory that can be shared", "Capsule"], make, Capsule(a), copy=False)


@pytest.mark.filterwarnings("error")
def test_exporters_of_another_version():
    class Old(Capsule):
        def __init__(self, a):
            self.a, self.__dlpack_device__ = a, a.__dlpack_device__

        def __dlpack__(self, *, stream=None):
            return self.a.__dlpack__()

    class Arrow(Old):
        """As an array of pyarrow: its bits are not for DLPack, and capsules without a version are deprecated."""

        def __dlpack__(self, *, stream=None, max_version=None):
            if max_version is None:
                warnings.warn("Exporting an unversioned DLPack capsule is deprecated", DeprecationWarning, stacklevel=2)
            if self.a.dtype == bool:
                raise TypeError("Bit-packed boolean data type not supported by DLPack")
            return self.a.__dlpack__(max_version=max_version)

        def __array__(self, dtype=None, copy=None):
            return self.a

    a = matrix()
    for x in (mg.asarray(Old(a)), mg.asarray(Arrow(a)), mg.from_dlpack(Arrow(a))):
        x[0, 0] = a[0, 0] + 1
        assert x.tolist() == a.tolist()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert mg.asarray(Arrow(a > 2)).tolist() == (a > 2).tolist()
    assert not warned
    raises(TypeError, "Bit-packed", mg.from_dlpack, Arrow(a > 2))


class Table:
    """A table of pandas, polars or Arrow, for NumPy: no dtype, and objects if the columns have no common one."""

    def __init__(self, values, kind):
        self.values, self.kind = values, kind

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype or self.kind)


@pytest.mark.parametrize("make", [mg.tensor, mg.asarray])
def test_tables(make):
    values = [[1764230400.0, 1.0], [1764230401.0, 2.0]]
    x = make(Table(values, "float64"))
    assert (x.dtype, x.tolist()) == ("float64", values)
    assert make([Table(values, "float64")]).dtype == "float64"
    refuses(TypeError, make.__name__, ["expected numbers", "x.to_numpy('float32')"], make, Table(values, object))
    for dtype in ("float64", "float32", "int32"):
        x = make(Table(values, object), dtype=dtype)
        assert (x.dtype, x.tolist()) == (dtype, np.array(values, dtype).tolist())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "int16"])
def test_other_numbers_of_torch_need_a_dtype(name, view):
    values = VIEWS["contiguous" if view == "reversed" else view](torch.arange(12.0).reshape(3, 4))
    given = values.to(getattr(torch, name))
    for make in (mg.tensor, mg.asarray):
        for dtype in ("float32", "float64", "int64"):
            x = make(given, dtype=dtype)
            assert (x.dtype, x.tolist()) == (dtype, values.tolist())
        refuses(TypeError, make.__name__, [f"got {name}:", "x.float", "dtype='float32'"], make, given)
    refuses(TypeError, "from_dlpack", [f"got {name}:", "x.float", "dtype='float32'"], mg.from_dlpack, given)


def test_what_torch_does_not_export():
    refuses(TypeError, "asarray", "require gradient", mg.asarray, torch.ones(2, requires_grad=True))


def test_from_dlpack_wants_both_methods():
    class Half:
        def __dlpack__(self, **options):
            raise AssertionError("called without asking for the device")

    with pytest.raises(TypeError, match=r"^\[from_dlpack\] expected an object with __dlpack__ and __dlpack_device__"):
        mg.from_dlpack(Half())


# ── other devices ──


def test_an_array_keeps_its_device():
    """Nothing moves to the CPU implicitly."""
    theirs = Exporter(mg.arange(3, dtype="float64", device="cuda"))
    x = mg.from_dlpack(theirs)
    assert x.device == "cuda:0"
    assert x.data_ptr() == theirs.x.data_ptr()
    for y in (mg.asarray(x), mg.asarray(x, dtype="float64"), mg.asarray(theirs), mg.Tensor(x)):
        assert y.device == "cuda:0"
    assert mg.asarray(x) is x
    assert mg.asarray(x, requires_grad=True).data_ptr() == x.data_ptr()
    assert mg.asarray(x, device="cpu").device == "cpu"  # `device` requests the move
    refuses(ValueError, "add", "cuda:0 and cpu", mg.add, theirs, mg.ones(3))


def test_memory_on_a_gpu_that_is_not_there():
    class Elsewhere(Exporter):
        def __dlpack_device__(self):
            return 2, mg.cuda.device_count()

    refuses(RuntimeError, "dlpack", "expected a GPU from", mg.from_dlpack, Elsewhere(mg.ones(3)))
