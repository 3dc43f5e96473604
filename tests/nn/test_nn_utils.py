"""Clipping and flattening."""

import math

import numpy as np
import pytest
from checks import array, equals, near, raises

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import utils

SHAPES = [(3, 4), (5,), (), (0, 2)]


def parameters(device, dtype="float32", scale=1.0):
    rng = np.random.default_rng(0)
    found = []
    for shape in SHAPES:
        parameter = mg.zeros(shape, dtype=dtype, device=device, requires_grad=True)
        parameter.grad = mg.tensor(scale * rng.standard_normal(shape), dtype=dtype, device=device)
        found.append(parameter)
    return [*found, mg.zeros(2, device=device, requires_grad=True)]


def torch_parameters(torch, ours):
    found = []
    for parameter in ours:
        copy = torch.tensor(parameter.tolist(), dtype=getattr(torch, str(parameter.dtype))).reshape(parameter.shape)
        copy.requires_grad_()
        copy.grad = None if parameter.grad is None else torch.tensor(array(parameter.grad).copy())
        found.append(copy)
    return found


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.5, 100.0, 0.0])
def test_clip_grad_norm(norm_type, max_norm, device):
    torch = pytest.importorskip("torch")
    ours = parameters(device, "float64")
    theirs = torch_parameters(torch, ours)
    norm = utils.clip_grad_norm_(ours, max_norm, norm_type)
    present = [p for p in theirs if p.grad is None or p.grad.numel()]  # inf: PyTorch cannot take the norm of nothing
    assert norm == pytest.approx(torch.nn.utils.clip_grad_norm_(present, max_norm, norm_type).item(), rel=1e-12)
    assert isinstance(norm, float)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.grad is None) == (b.grad is None)
        if a.grad is not None:
            near(a.grad, b.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("norm_type", [2.0, 3.0, math.inf])
def test_clip_grad_norm_over_two_dtypes(norm_type, device):
    mixed = parameters(device, "float32") + parameters(device, "float64")
    flat = np.concatenate([array(p.grad).ravel().astype(np.float64) for p in mixed if p.grad is not None])
    expected = np.linalg.norm(flat, norm_type)
    assert utils.clip_grad_norm_(mixed, 1.0, norm_type) == pytest.approx(expected, rel=1e-6)
    flat = np.concatenate([array(p.grad).ravel().astype(np.float64) for p in mixed if p.grad is not None])
    assert np.linalg.norm(flat, norm_type) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0])
@pytest.mark.parametrize(
    "size, dtype", [(1e200, "float64"), (1e-200, "float64"), (1e30, "float32"), (1e-30, "float32")]
)
def test_clip_grad_norm_where_powers_leave_the_range(size, dtype, norm_type, device):
    x, y = (mg.zeros(2, dtype=dtype, device=device, requires_grad=True) for _ in range(2))
    x.grad, y.grad = (mg.tensor(np.array(a) * size, dtype=dtype, device=device) for a in ([3.0, 0.0], [0.0, -4.0]))
    expected = np.linalg.norm([3.0, 4.0], norm_type)
    assert utils.clip_grad_norm_([x, y], max(size, 1.0), norm_type) / size == pytest.approx(expected, rel=1e-6)
    shrunk = np.array([[3.0, 0.0], [0.0, -4.0]]) * (1 / expected if size > 1 else 1)
    np.testing.assert_allclose([array(x.grad) / size, array(y.grad) / size], shrunk, rtol=1e-6)


@pytest.mark.parametrize("values, p, dtype", [
    ([6e-3, *[5e-3] * 10_000], 20, "float32"), ([1.2e-15] * 4, 3, "float32"),
    ([1.5e-15, *[1e-15] * 1000], 3, "float32"), ([3e-162] * 4, 2, "float64"),
])  # fmt: skip
def test_clip_grad_norm_where_some_powers_vanish(values, p, dtype, device):
    x = mg.zeros(len(values), dtype=dtype, device=device, requires_grad=True)
    x.grad = mg.tensor(values, dtype=dtype, device=device)
    exact = max(values) * np.linalg.norm(np.array(values) / max(values), p)
    assert utils.clip_grad_norm_([x], 1.0, p) == pytest.approx(exact, rel=1e-5)


def test_clip_grad_norm_of_norms_whose_powers_leave_the_range(device):
    x = mg.zeros(1, dtype="float64", device=device, requires_grad=True)
    y = mg.zeros(1, device=device, requires_grad=True)
    x.grad, y.grad = mg.tensor([1e200], dtype="float64", device=device), mg.ones(1, device=device)
    assert utils.clip_grad_norm_([x, y], 1.0) == 1e200
    y.grad, x.grad = mg.ones(1, device=device), None
    assert utils.clip_grad_norm_([y] * 5, 1.0, norm_type=1e-3) == math.inf  # 5 ** 1000


def test_clip_grad_norm_of_one_tensor_and_of_none(device):
    x = mg.zeros(2, device=device, requires_grad=True)
    assert utils.clip_grad_norm_(x, 1.0) == 0.0
    assert utils.clip_grad_norm_([], 1.0) == 0.0
    x.grad = mg.tensor([3.0, 4.0], device=device)
    assert utils.clip_grad_norm_(x, 1.0) == 5.0
    np.testing.assert_allclose(x.grad.tolist(), [0.6, 0.8], rtol=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_clip_grad_norm_not_finite(bad, device):
    x, y = (mg.zeros(n, device=device, requires_grad=True) for n in (2, 1))
    x.grad, y.grad = mg.tensor([bad, 1.0], device=device), mg.ones(1, device=device)
    with pytest.raises(ValueError, match=r"\[clip_grad_norm_\] expected gradients with a finite norm, got"):
        utils.clip_grad_norm_([x, y], 1.0, error_if_nonfinite=True)
    assert y.grad.tolist() == [1.0]
    assert not math.isfinite(utils.clip_grad_norm_([x, y], 1.0))
    assert y.grad.tolist() == [0.0] if math.isinf(bad) else math.isnan(y.grad.item())


def test_clip_grad_value(device):
    ours = parameters(device, scale=3.0)
    grads = [p.grad for p in ours]
    expected = [None if g is None else np.clip(array(g), -0.7, 0.7) for g in grads]
    utils.clip_grad_value_(ours, 0.7)
    for p, grad, e in zip(ours, grads, expected, strict=True):
        assert p.grad is grad
        if grad is not None:
            equals(grad, e)


def test_clipping_is_not_recorded(device):
    for clip in (utils.clip_grad_norm_, utils.clip_grad_value_):
        x = mg.tensor([3.0, 4.0], device=device, requires_grad=True)
        (x * x).sum().backward(create_graph=True)
        kept = x.grad * x.grad  # holds the gradient's memory
        clip([x], 1.0)
        assert max(x.grad.tolist()) <= 1
        raises(mg.GradientError, "in place", kept.sum().backward)
        x.grad = None


def test_clip_a_gradient_that_is_a_view(device):
    x = mg.zeros((2, 3), device=device, requires_grad=True)
    x.grad = mg.ones((3, 2), device=device).T
    assert utils.clip_grad_norm_([x], 1.0) == pytest.approx(math.sqrt(6))
    near(x.grad, np.full((2, 3), 1 / math.sqrt(6)), rtol=1e-5)


@pytest.mark.parametrize("clip", [
    lambda x: utils.clip_grad_norm_(x, -1.0), lambda x: utils.clip_grad_norm_(x, math.nan),
    lambda x: utils.clip_grad_norm_(x, 1.0, 0.0), lambda x: utils.clip_grad_value_(x, -1.0),
])  # fmt: skip
def test_clip_errors(clip, device):
    raises(ValueError, r"\[clip_grad_(norm|value)_\] expected", clip, parameters(device))


def test_optim_has_the_same_functions():
    assert optim.clip_grad_norm_ is utils.clip_grad_norm_
    assert optim.clip_grad_value_ is utils.clip_grad_value_


@pytest.mark.parametrize("clip", [utils.clip_grad_norm_, utils.clip_grad_value_])
def test_clipping_what_is_no_tensor(clip):
    x = mg.ones(2, requires_grad=True)
    x.grad = mg.ones(2)
    for wrong, got in ((5, "int"), (None, "NoneType"), (nn.Linear(2, 1), "Linear")):
        match = rf"^\[{clip.__name__}\] expected a tensor or an iterable of tensors, got {got}$"
        raises(TypeError, match, clip, wrong, 0.5)
    for wrong, got in (([x, 5], "int"), ([x, None], "NoneType"), ({"x": x}, "str"), (iter([x, np.ones(2)]), "ndarray")):
        raises(TypeError, rf"^\[{clip.__name__}\] expected tensors, got {got}$", clip, wrong, 0.5)
    assert x.grad.tolist() == [1.0, 1.0]


def test_vector_round_trip(device):
    a, b = nn.Linear(3, 2, device=device), nn.Linear(3, 2, device=device)
    vector = utils.parameters_to_vector(a.parameters())
    assert vector.shape == (8,)
    utils.vector_to_parameters(vector.detach(), b.parameters())
    assert (b.weight.tolist(), b.bias.tolist()) == (a.weight.tolist(), a.bias.tolist())
    g = mg.random.normal(0.0, 1.0, (8,), device=device)
    vector.backward(g)
    assert np.concatenate([array(a.weight.grad).ravel(), array(a.bias.grad)]).tolist() == g.tolist()


def test_vector_errors(device):
    layer = nn.Linear(3, 2, device=device)
    before = layer.weight.tolist()
    for shape in (7, 9, (8, 1)):
        with pytest.raises(ValueError, match=r"\[vector_to_parameters\] expected a vector of shape \(8,\)"):
            utils.vector_to_parameters(mg.zeros(shape, device=device), layer.parameters())
    assert layer.weight.tolist() == before
    raises(ValueError, "at least one", utils.parameters_to_vector, [])
