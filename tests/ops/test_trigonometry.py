"""Circular and hyperbolic functions: the table, the quadrants, large arguments. (Accuracy: test_functions.py.)"""

import math

import numpy as np
import pytest
from checks import Suite, array, tensor
from table import TRIGONOMETRY

import minigrad as mg


class TestTable(Suite):
    ops = TRIGONOMETRY


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quadrants(dtype, device):
    """atan2 of zeros and infinities of either sign."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    ours = array(mg.atan2(tensor(values, device)[:, None], tensor(values, device)))
    np.testing.assert_allclose(ours, np.arctan2(values[:, None], values), rtol=4 * np.finfo(dtype).eps)
    zeros = ours == 0
    np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(np.arctan2(values[:, None], values)[zeros]))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name, device):
    """float32 angles whose spacing is far larger than the period, alone and among small ones."""
    values = np.array([2.0**24 - 1, 2.0**24, 1e8, -3e15, 1e30, 3.4e38, 0.5, -1.0], np.float32)
    for x in (values, np.concatenate([np.linspace(-9, 9, 300, dtype=np.float32), values])):
        exact = getattr(np, name)(x.astype(np.float64))
        np.testing.assert_allclose(array(getattr(mg, name)(tensor(x, device))), exact, rtol=2e-7, atol=1e-7)


def test_multiples_of_pi(device):
    """sin keeps its digits near its zeros, as the range reduction is not in float32."""
    x = (np.arange(1, 2000) * math.pi).astype(np.float32)
    np.testing.assert_allclose(array(mg.sin(tensor(x, device))), np.sin(x.astype(np.float64)), rtol=3e-7)


def test_saturation(device):
    """tanh and its gradient far out: exactly ±1 and 0, never NaN."""
    x = tensor(np.array([-1e30, -50, 50, 1e30], np.float32), device, True)
    y = mg.tanh(x)
    assert y.tolist() == [-1, -1, 1, 1]
    y.backward(mg.ones(4, device=device))
    assert x.grad.tolist() == [0, 0, 0, 0]
