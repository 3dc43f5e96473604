"""NumPy's functions beside other classes: protocols, masks, subclasses, and when NumPy's part is loaded."""

import subprocess
import sys

import numpy as np
import pytest
from checks import raises

import minigrad as mg


class Foreign:
    """A class with protocols of its own."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return "foreign ufunc"

    def __array_function__(self, function, types, args, options):
        return "foreign function"


class Refusing(np.ndarray):
    __array_ufunc__ = None


class Own(np.ndarray):
    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return "own ufunc"

    def __array_function__(self, function, types, args, options):
        return "own function"


@pytest.mark.parametrize("other", [Foreign(), np.ones(2).view(Own)], ids=["class", "subclass"])
def test_other_protocols_come_first(other):
    x = mg.ones(2, requires_grad=True)
    assert np.add(x, other).endswith("ufunc")
    assert np.add(other, x).endswith("ufunc")
    assert np.concatenate([x, other]).endswith("function")
    with pytest.raises(TypeError):
        np.add(x, np.ones(2).view(Refusing))


def test_masks_are_kept():
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for y in (masked * mg.ones(2), np.add(masked, mg.ones(2)), np.add(mg.ones(2), masked)):
        assert y.mask.tolist() == [False, True]
    for call in (lambda x: masked * x, lambda x: np.add(x, masked), lambda x: np.concatenate([masked, x])):
        raises(TypeError, "requires grad", call, mg.ones(2, requires_grad=True))


def test_subclasses_of_tensors():
    class Named(mg.Tensor):
        def __array_function__(self, function, types, args, options):
            return function.__name__, super().__array_function__(function, types, args, options)

    x = Named([1.0, 2.0], requires_grad=True)
    assert np.sin(x).requires_grad
    name, total = np.sum(x)
    assert name == "sum"
    assert total.requires_grad
    p = mg.nn.Parameter(mg.ones(2))
    np.sum(np.ones(2) * p).backward()
    assert p.grad.tolist() == [1, 1]


def test_like():
    """`np.zeros(3, like=x)` would have to know of dtypes and devices."""
    raises(TypeError, "no implementation", np.zeros, 3, like=mg.ones(2))


def test_nothing_is_loaded_before_numpy_is_given_a_tensor():
    program = """
import sys
import numpy as np
import minigrad as mg
x = mg.ones(2)
x * np.ones(2), np.asarray(x), np.array([x, x]), hasattr(x, "__array_function__")
assert "minigrad.interop.numpy_protocol" not in sys.modules
np.ones(2) * x
assert "minigrad.interop.numpy_protocol" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
