"""Vectors of float64 to differentiate at, and how results are compared with numbers."""

import numpy as np
from checks import array

import minigrad as mg


def point(device, *values):
    return mg.tensor(list(values), dtype="float64", device=device, requires_grad=True)


def plain(device, *values):
    return mg.tensor(list(values), dtype="float64", device=device)


def equals(x, expected):
    np.testing.assert_allclose(array(x), expected, rtol=1e-12, atol=1e-12)
