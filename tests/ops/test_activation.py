"""Activations and dropout: the table, kinks, extremes, NaN. (Accuracy: test_functions.py. Randomness: test_random.py.)"""

import math

import numpy as np
import pytest
from checks import Suite, array, near, refuses, tensor
from peers import torch
from table import ACTIVATION

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

# The gradients of each activation far out on both sides.
LIMITS = {
    "relu": (0, 1), "leaky_relu": (0.01, 1), "elu": (0, 1), "selu": (0, 1.0507009873554805), "gelu": (0, 1), "silu": (0, 1),
    "mish": (0, 1), "hardswish": (0, 1), "softplus": (0, 1), "logsigmoid": (1, 0), "sigmoid": (0, 0), "tanh": (0, 0),
    "hardsigmoid": (0, 0),
}  # fmt: skip
FUNCTIONS = {name: getattr(F, name) for name in LIMITS} | {
    "gelu by tanh": lambda x: F.gelu(x, "tanh"),
    "softplus with beta": lambda x: F.softplus(x, 2.0, 20.0),
    "prelu": lambda x: F.prelu(x, mg.full(1, 0.25, dtype=x.dtype, device=x.device)),
}
LIMITS |= {"gelu by tanh": (0, 1), "softplus with beta": (0, 1), "prelu": (0.25, 1)}
KINKS = {
    # x: the gradient of each activation at x
    "relu": {0.0: 0.0, 1e-30: 1.0, -1e-30: 0.0},
    "leaky_relu": {0.0: 0.01, 1e-30: 1.0, -1e-30: 0.01},
    "elu": {0.0: 1.0},
    "selu": {1e-30: 1.0507009873554805},
    "hardsigmoid": {-3.0: 0.0, 3.0: 0.0, 2.9: 1 / 6, -2.9: 1 / 6},
    "hardswish": {-3.0: 0.0, 3.0: 1.0, 0.0: 0.5},
}


class TestTable(Suite):
    ops = ACTIVATION


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", KINKS)
def test_kinks(name, dtype, device):
    """At kinks the gradient is PyTorch's choice, with and without create_graph."""
    for point, expected in KINKS[name].items():
        other = torch.tensor([point], dtype=getattr(torch, dtype), requires_grad=True)
        (theirs,) = torch.autograd.grad(getattr(torch.nn.functional, name)(other).sum(), other)
        for create_graph in (False, True):
            x = tensor(np.array([point], dtype), device, True)
            g = mg.grad(getattr(F, name)(x), x, create_graph=create_graph).item()
            assert g == pytest.approx(expected, rel=1e-6)
            assert g == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LIMITS)
def test_far_out(name, dtype, device):
    """Neither overflow nor NaN at ±1e4 and ±1e30, in values or gradients, with or without create_graph."""
    limits = LIMITS[name]
    x = tensor(np.array([-1e30, -1e4, 1e4, 1e30], dtype), device, True)
    y = FUNCTIONS[name](x)
    near(y, array(x) * [limits[0], limits[0], limits[1], limits[1]], rtol=1e-6, atol=2)
    for create_graph in (False, True):
        g = array(mg.grad(y, x, mg.ones(4, dtype=dtype, device=device), retain_graph=True, create_graph=create_graph))
        np.testing.assert_allclose(g, [limits[0], limits[0], limits[1], limits[1]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LIMITS)
def test_nan_stays_nan(name, dtype, device):
    """No activation hides divergence by turning NaN into a number. Both gradients, with and without create_graph, agree."""
    for n in (1, 40):
        a = np.zeros(n, dtype)
        a[n // 2] = np.nan
        x = tensor(a, device, True)
        y = FUNCTIONS[name](x)
        np.testing.assert_array_equal(np.isnan(array(y)), np.isnan(a))
        g = mg.full(n, 2, dtype=dtype, device=device)
        plain, recorded = (
            array(mg.grad(FUNCTIONS[name](x), x, g, create_graph=create_graph)) for create_graph in (False, True)
        )
        np.testing.assert_allclose(plain, recorded, rtol=1e-6)
        assert np.isfinite(np.delete(plain, n // 2)).all()


def test_small_results_of_gelu(device):
    """x (1 + tanh z) / 2 would be 0 below -5.5 in float32, and so would its derivative."""
    x = tensor(np.array([-8.0, -6.0, -5.0], np.float32), device, True)
    exact = array(x).astype(float)
    z = math.sqrt(2 / math.pi) * (exact + 0.044715 * exact**3)
    slope, s = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * exact**2), 1 / (1 + np.exp(-2 * z))
    y = F.gelu(x, "tanh")
    near(y, exact * s, rtol=1e-5)
    for create_graph in (False, True):
        g = mg.grad(y, x, mg.ones(3, device=device), retain_graph=True, create_graph=create_graph)
        near(g, s + 2 * exact * s * (1 - s) * slope, rtol=1e-5)


def test_normalized_zeros(device):
    """Zeros stay zeros, with finite gradients of both orders; PyTorch's are the same."""
    values = np.array([[0.0, 0.0], [3.0, -4.0], [1e-13, 0.0]])
    x, other = tensor(values, device, True), torch.tensor(values, requires_grad=True)
    y, theirs = F.normalize(x), torch.nn.functional.normalize(other)
    g = np.array([[1.0, -2.0], [0.5, 3.0], [2.0, 1.0]])
    near(y, theirs.detach().numpy(), rtol=1e-12)
    ours = mg.grad(y, x, tensor(g, device), create_graph=True)
    expected = torch.autograd.grad(theirs, other, torch.tensor(g))[0].numpy()
    near(ours, expected, rtol=1e-12)
    assert np.isfinite(array(mg.grad(ours, x, tensor(g, device)))).all()
    for p, norm in ((1, 7.0), (math.inf, 4.0)):
        np.testing.assert_allclose(array(F.normalize(x, p, axis=1))[1], np.array([3.0, -4.0]) / norm)


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
    for name in [*(name for name in LIMITS if " " not in name), "glu", "normalize", "dropout"]:
        if name not in ("tanh", "prelu"):
            refuses(TypeError, name, "int64", getattr(F, name), n)
    refuses(TypeError, "prelu", "int64", F.prelu, n, mg.ones(1, device=device))
    x = mg.ones((2, 3), device=device)
    for call, name, numbers in [
        (lambda: F.glu(x), "glu", "(2, 3)"),
        (lambda: F.softplus(x, 0), "softplus", "beta other than 0"),
        (lambda: F.gelu(x, "erf"), "gelu", "'erf'"),
        (lambda: F.prelu(x, mg.ones(2, device=device)), "prelu", "(2, 3)"),
        (lambda: F.prelu(x, mg.ones((1, 3), device=device)), "prelu", "(1, 3)"),
        (lambda: F.prelu(x[0], mg.ones(3, device=device)), "prelu", "(3,)"),
        (lambda: nn.GELU("erf"), "GELU", "'erf'"),
        (lambda: nn.Softplus(0), "Softplus", "beta other than 0"),
        (lambda: nn.PReLU(0), "PReLU", "num_parameters >= 1"),
        (lambda: F.normalize(x, eps=-1), "normalize", "eps >= 0"),
    ]:
        refuses(ValueError, name, numbers, call)
    refuses(TypeError, "prelu", 'astype("float64")', F.prelu, x, mg.ones(1, dtype="float64", device=device))
    refuses(IndexError, "glu", "2 axes", F.glu, x, 2)
    refuses(IndexError, "normalize", "(3,)", F.normalize, x[0])
    for p in (-0.1, 1.5, math.nan):
        refuses(ValueError, "dropout", str(p), F.dropout, mg.ones(3, device=device), p)
