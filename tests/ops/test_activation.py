"""Activations and dropout: the table, kinks, extremes, NaN. (Accuracy: test_functions.py. Randomness: test_random.py.)"""

import math

import numpy as np
import pytest
from checks import Suite, array, refuses, tensor
from table import ACTIVATION

import minigrad as mg
from minigrad.nn import functional as F

NAMES = ["relu", "leaky_relu", "elu", "gelu", "silu", "softplus", "sigmoid", "tanh", "hardsigmoid"]
KINKS = {
    # x: the gradient of each activation at x
    "relu": {0.0: 0.0, 1e-30: 1.0, -1e-30: 0.0},
    "leaky_relu": {0.0: 0.01, 1e-30: 1.0, -1e-30: 0.01},
    "elu": {0.0: 1.0},
    "hardsigmoid": {-3.0: 0.0, 3.0: 0.0, 2.9: 1 / 6, -2.9: 1 / 6},
}


class TestTable(Suite):
    ops = ACTIVATION


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KINKS)
def test_kinks(name, dtype, device):
    """At kinks the gradient is PyTorch's choice, with and without create_graph."""
    torch = pytest.importorskip("torch")
    for point, expected in KINKS[name].items():
        other = torch.tensor([point], dtype=getattr(torch, dtype), requires_grad=True)
        (theirs,) = torch.autograd.grad(getattr(torch.nn.functional, name)(other).sum(), other)
        for create_graph in (False, True):
            x = tensor(np.array([point], dtype), device, True)
            g = mg.grad(getattr(F, name)(x), x, create_graph=create_graph).item()
            assert g == pytest.approx(expected, rel=1e-6)
            assert g == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_far_out(name, dtype, device):
    """Neither overflow nor NaN at ±1e4 and ±1e30, in values or gradients, with or without create_graph."""
    limits = {"relu": (0, 1), "leaky_relu": (0.01, 1), "elu": (0, 1), "gelu": (0, 1), "silu": (0, 1), "softplus": (0, 1),
              "sigmoid": (0, 0), "tanh": (0, 0), "hardsigmoid": (0, 0)}[name]  # fmt: skip
    x = tensor(np.array([-1e30, -1e4, 1e4, 1e30], dtype), device, True)
    y = getattr(F, name)(x)
    assert np.isfinite(array(y)).all()
    for create_graph in (False, True):
        g = array(mg.grad(y, x, mg.ones(4, dtype=dtype, device=device), retain_graph=True, create_graph=create_graph))
        np.testing.assert_allclose(g, [limits[0], limits[0], limits[1], limits[1]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_nan_stays_nan(name, dtype, device):
    """No activation hides divergence by turning NaN into a number. Both gradients, with and without create_graph, agree."""
    for n in (1, 40):
        a = np.zeros(n, dtype)
        a[n // 2] = np.nan
        x = tensor(a, device, True)
        y = getattr(F, name)(x)
        np.testing.assert_array_equal(np.isnan(array(y)), np.isnan(a))
        g = mg.full(n, 2, dtype=dtype, device=device)
        plain, recorded = (
            array(mg.grad(getattr(F, name)(x), x, g, create_graph=create_graph)) for create_graph in (False, True)
        )
        np.testing.assert_allclose(plain, recorded, rtol=1e-6)
        assert np.isfinite(np.delete(plain, n // 2)).all()


def test_parameters(device):
    x = tensor(np.array([-2.0, 3.0]), device)
    assert F.leaky_relu(x, 0.5).tolist() == [-1.0, 3.0]
    assert F.leaky_relu(x, negative_slope=0.0).tolist() == [0.0, 3.0]
    assert F.elu(x, 2.0).tolist() == [2 * math.expm1(-2.0), 3.0]


# ── dropout ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout(p, dtype, device):
    """Elements are 0 or x/(1 - p) in the proportion p; the gradient has the same mask, also with create_graph."""
    mg.manual_seed(3)
    a = np.linspace(1, 2, 40_001).astype(dtype)
    x = tensor(a, device, True)
    y = F.dropout(x, p)
    kept = array(y) != 0
    np.testing.assert_allclose(array(y)[kept], a[kept] / (1 - p), rtol=4 * np.finfo(dtype).eps)
    assert abs(kept.mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / a.size)
    for create_graph in (False, True):
        g = array(mg.grad(y, x, tensor(a, device), retain_graph=True, create_graph=create_graph))
        np.testing.assert_allclose(g, np.where(kept, a / (1 - p), 0), rtol=4 * np.finfo(dtype).eps)
    neighbors = np.corrcoef(kept[:-1], kept[1:])[0, 1]
    assert abs(neighbors) < 5 / math.sqrt(a.size)


def test_dropout_that_does_nothing(device):
    """Without training, or with p = 0, it returns x itself and uses no random numbers."""
    x, state = mg.ones(5, device=device), mg.random.get_state()
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert F.dropout(x, 1.0).tolist() == [0.0] * 5
    assert mg.random.get_state() == state


def test_dropout_is_linear_for_one_seed(device, rng):
    """gradcheck with the seed set inside the function."""

    def function(x):
        mg.manual_seed(11)
        return F.dropout(x, 0.4) ** 2

    assert mg.gradcheck(function, tensor(rng.standard_normal((5, 7)), device, True), rtol=1e-6, atol=1e-7)


def test_dropout_of_views_and_nothing(device):
    mg.manual_seed(1)
    x = mg.ones((40, 50), device=device)
    assert set(np.unique(array(F.dropout(x.T, 0.5)))) == {0.0, 2.0}
    assert F.dropout(mg.zeros((0, 3), device=device), 0.5).shape == (0, 3)
    assert F.dropout(mg.ones((), device=device), 0.5).item() in (0.0, 2.0)


def test_errors(device):
    n = mg.arange(3, device=device)
    for name in [*NAMES, "dropout"]:
        if name != "tanh":
            refuses(TypeError, name, "int64", getattr(F, name), n)
    for p in (-0.1, 1.5, math.nan):
        refuses(ValueError, "dropout", str(p), F.dropout, mg.ones(3, device=device), p)
