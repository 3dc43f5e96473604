"""The Python array API standard: data types, the namespace, devices, copies. (Its public suite: benchmarks/array_api.py.)"""

import math

import numpy as np
from checks import equals, raises, refuses, tensor

import minigrad as mg

DTYPES = ["bool", "int32", "int64", "float32", "float64"]


def test_limits():
    for name in ("float32", "float64"):
        ours, theirs = mg.finfo(name), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal) == (
            theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal,
        )  # fmt: skip
        assert {type(v) for v in ours[1:5]} == {float}
        assert mg.finfo(mg.zeros(1, dtype=name)).dtype is getattr(mg, name)
    for name in ("int32", "int64"):
        ours, theirs = mg.iinfo(getattr(mg, name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min, ours.dtype) == (theirs.bits, theirs.max, theirs.min, name)
    refuses(TypeError, "finfo", "int32", mg.finfo, "int32")
    refuses(TypeError, "iinfo", "bool", mg.iinfo, bool)
    refuses(TypeError, "finfo", "float16", mg.finfo, "float16")


def test_isdtype():
    kinds = {
        "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
        "numeric": "iuf",
    }  # fmt: skip
    for name in (*DTYPES, "uint8"):
        dtype = getattr(mg, name)
        for kind, letters in kinds.items():
            assert mg.isdtype(dtype, kind) == (dtype.kind in letters)
        assert mg.isdtype(dtype, dtype)
        assert mg.isdtype(name, ("complex floating", np.dtype(name)))
        assert not mg.isdtype(dtype, "complex floating")
    refuses(TypeError, "isdtype", "float16", mg.isdtype, mg.int32, "float16")


def test_result_type_is_that_of_a_sum(device):
    """Of two tensors, and of a tensor and a number, it is the dtype that an operation gives."""
    for a in DTYPES:
        x = mg.ones(2, dtype=a, device=device)
        for b in DTYPES:
            assert mg.result_type(x, getattr(mg, b)) == mg.maximum(x, mg.ones(2, dtype=b, device=device)).dtype
            assert mg.can_cast(a, b) == (mg.result_type(a, b) == b)
        for number in (True, 2, 2.5):
            assert mg.result_type(x, number) == mg.maximum(x, number).dtype == mg.result_type(number, a)
    assert (mg.result_type(1, 2), mg.result_type(1, 2.0), mg.result_type(True)) == (mg.int64, mg.float32, mg.bool)
    refuses(ValueError, "result_type", "none", mg.result_type)
    refuses(TypeError, "result_type", "'pluto'", mg.result_type, "pluto", 1)


def test_constants_and_names():
    assert mg.pow is mg.power
    assert (mg.e, mg.pi, mg.inf, mg.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(mg.nan)
    assert mg.ones(3)[:, mg.newaxis].shape == (3, 1)


def test_namespace(device):
    x = mg.ones(2, device=device)
    for version in (None, "2021.12", mg.__array_api_version__):
        assert x.__array_namespace__(api_version=version) is mg
    for version in ("2020.12", "2099.12", 3):
        refuses(ValueError, "array_namespace", repr(version), lambda v: x.__array_namespace__(api_version=v), version)
    info = mg.__array_namespace_info__()
    axes = info.capabilities()["max dimensions"]
    assert mg.ones((1,) * axes, device=device).ndim == axes
    raises(ValueError, "axes", mg.ones, (1,) * (axes + 1), device=device)
    assert info.default_device() == mg.ones(1).device
    assert x.device in info.devices()
    assert info.default_dtypes(device=device) == {
        "real floating": mg.ones(1).dtype, "integral": mg.tensor(1).dtype, "indexing": mg.argmax(x).dtype,
    }  # fmt: skip
    assert list(info.dtypes()) == DTYPES
    assert list(info.dtypes(kind=("bool", "signed integer"), device=device)) == DTYPES[:3]


def test_asarray_copies_as_asked(device):
    x = mg.ones(2, device=device)
    assert mg.asarray(x, copy=False) is x
    assert mg.asarray(x, copy=None) is x
    assert mg.asarray(x, copy=True).data_ptr() != x.data_ptr()
    leaf = mg.ones(2, device=device, requires_grad=True)
    assert mg.asarray(leaf, copy=False) is leaf
    for given, options in [
        (x, {"dtype": "float64"}), (leaf, {"dtype": "float64"}), ([1.0], {}), (2.0, {}),
        (np.ones(2)[::-1].astype(">f8"), {"dtype": "float64"}),
    ]:  # fmt: skip
        refuses(ValueError, "asarray", "copy=False", lambda g, **o: mg.asarray(g, copy=False, **o), given, **options)


def test_asarray_shares_memory_of_numpy():
    a = np.zeros(2, np.float32)
    x, y = mg.asarray(a, copy=False), mg.asarray(a, copy=True)
    a[0] = 3
    assert (x.tolist(), y.tolist()) == ([3, 0], [0, 0])
    locked = np.zeros(2)
    locked.setflags(write=False)
    odd = np.array([2, 1], np.uint8).view(bool)
    for given in (locked, odd):
        refuses(ValueError, "asarray", "copy=False", lambda g: mg.asarray(g, copy=False), given)


def test_copies_and_devices_of_dlpack(device):
    x = tensor(np.arange(3.0), device)
    assert mg.from_dlpack(x).data_ptr() == mg.from_dlpack(x, copy=False, device=device).data_ptr() == x.data_ptr()
    copy = mg.from_dlpack(x, copy=True)
    assert (copy.device, copy.tolist()) == (x.device, x.tolist())
    assert copy.data_ptr() != x.data_ptr()
    assert mg.from_dlpack(x, device="cpu").device == "cpu"
    odd = np.array([2, 1], np.uint8).view(bool)
    assert mg.from_dlpack(odd).tolist() == [True, True]
    refuses(ValueError, "asarray", "copy=False", lambda: mg.from_dlpack(odd, copy=False))
    if device != "cpu":
        refuses(ValueError, "from_dlpack", "copy=False", lambda: mg.from_dlpack(x, device="cpu", copy=False))


def test_devices_of_astype(device):
    x = mg.arange(3)
    y = mg.astype(x, "float32", device=device)
    assert (y.device, y.dtype, y.tolist()) == (mg.ones(1, device=device).device, "float32", [0, 1, 2])
    assert mg.astype(x, "int64", device="cpu", copy=False) is x
    assert mg.astype(x, "int64", device=device).data_ptr() != x.data_ptr()
    leaf = mg.ones(2, requires_grad=True)
    mg.astype(leaf, "float64", device=device).sum().backward()
    assert (leaf.grad.device, leaf.grad.tolist()) == ("cpu", [1, 1])
    assert x.to_device(device).device == y.device
    refuses(ValueError, "to_device", "stream", lambda: x.to_device("cpu", stream=1))


def test_methods_are_functions(device, rng):
    a = rng.standard_normal((2, 3, 4))
    x = tensor(a, device)
    equals(x.swapaxes(0, 2), a.swapaxes(0, 2))
    equals(x.mT.ravel(), a.mT.ravel())
    refuses(IndexError, "swapaxes", "3", mg.swapaxes, x, 0, 3)
    assert x.ravel().data_ptr() == x.data_ptr()
