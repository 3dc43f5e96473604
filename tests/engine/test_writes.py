"""In-place operators and writes to elements."""

import numpy as np
import pytest
from checks import equals, raises, refuses

import minigrad as mg
from minigrad import nn

# ── printing and conversion ───────────────────────────────────────────────────────────────────────


# ── in-place operators ────────────────────────────────────────────────────────────────────────────


def test_in_place_operators_keep_object_memory_and_dtype(device):
    for dtype in ("float32", "float64", "int64"):
        x = mg.ones((2, 3), dtype=dtype, device=device)
        y, address, version = x, x.data_ptr(), x.version
        x += 2
        x *= mg.tensor([1, 2, 3], dtype=dtype, device=device)
        x -= mg.ones((2, 1), dtype=dtype, device=device)
        assert x is y
        assert (x.data_ptr(), x.dtype, x.version) == (address, dtype, version + 3)
        equals(x, [[2, 5, 8]] * 2)
    flags = mg.tensor([True, False], device=device)
    flags ^= True
    equals(flags, [False, True])


def test_in_place_on_overlapping_memory(device):
    x = mg.tensor(np.arange(6.0), device=device)
    x[1:] += x[:-1]
    equals(x, [0, 1, 3, 5, 7, 9])
    m = mg.tensor(np.arange(4.0).reshape(2, 2), device=device)
    m += m.T
    equals(m, [[0, 3], [3, 6]])


def test_in_place_dtype_rules(device):
    single, ints = mg.ones(2, device=device), mg.ones(2, dtype="int64", device=device)
    refuses(TypeError, "/=", ["float32", "int64"], ints.__itruediv__, 2)
    refuses(TypeError, "+=", ["float32", "int64"], ints.__iadd__, 0.5)
    refuses(TypeError, "+=", ["float64", "float32"], single.__iadd__, mg.ones(2, dtype="float64", device=device))
    single += ints
    equals(single, [2, 2])
    double = mg.ones(2, dtype="float64", device=device)
    double += single
    assert double.dtype == "float64"
    refuses(ValueError, "+=", ["(3, 2)", "(2,)"], single.__iadd__, mg.ones((3, 2), device=device))
    equals(single, [2, 2])


# ── writes ────────────────────────────────────────────────────────────────────────────────────────


def test_fill_zero_copy(device):
    x = mg.zeros((2, 2), device=device)
    version = x.version
    assert x.fill_(3) is x
    equals(x, [[3, 3], [3, 3]])
    assert x.zero_() is x
    equals(x, np.zeros((2, 2)))
    assert x.copy_([1, 2]) is x
    equals(x, [[1, 2], [1, 2]])
    x.fill_(mg.tensor(7.0, device=device))
    equals(x, [[7, 7], [7, 7]])
    assert x.version == version + 4
    x.T[0].fill_(1)
    equals(x, [[1, 7], [1, 7]])
    assert x.version == version + 5


def test_fill_refuses(device):
    for dtype, value in (("int64", 1.5), ("int64", float("nan")), ("int64", float("inf")), ("int32", 1 << 40)):
        x = mg.zeros(2, dtype=dtype, device=device)
        with pytest.raises((TypeError, OverflowError)):
            x.fill_(value)
        equals(x, [0, 0])
    with pytest.raises((TypeError, ValueError)):
        mg.zeros(2, device=device).fill_("a")
    raises(ValueError, r"\(3,\)", mg.zeros(2, device=device).copy_, mg.zeros(3, device=device))


def test_set_(device):
    x = nn.Parameter(mg.ones(2, device=device))
    x.sum().backward()
    source = mg.tensor([[1, 2, 3]], device=device)
    version = x.version
    with pytest.raises(TypeError):
        x.set_(np.ones(3))
    x.requires_grad_(False)
    assert x.set_(source) is x
    assert (x.shape, x.dtype, x.data_ptr()) == ((1, 3), "int64", source.data_ptr())
    assert x.device == device
    assert x.version > version
    assert x.grad is None
    y = mg.ones(2, requires_grad=True, device=device) * 2
    refuses(mg.GradientError, "set_", "leaf", y.set_, mg.ones(2, device=device))
