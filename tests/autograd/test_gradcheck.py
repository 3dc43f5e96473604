"""gradcheck: what it finds, what it takes, and what it leaves alone."""

import warnings

import numpy as np
import pytest
from checks import Exp, doubling, raises, refuses, tensor
from points import equals, plain, point

import minigrad as mg
from minigrad import nn


class WrongFirst(Exp):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 1.01


class WrongSecond(Exp):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y.detach()


def test_gradcheck_finds_wrong_derivatives(device):
    x = point(device, 0.5, 1)
    with pytest.raises(mg.GradientError, match=r"^\[gradcheck\] derivative 1 with respect to input 0 of shape \(2,\)"):
        mg.gradcheck(WrongFirst.apply, x)
    assert mg.gradcheck(WrongSecond.apply, x, order=1)
    refuses(mg.GradientError, "gradcheck", "derivative 2", mg.gradcheck, WrongSecond.apply, x)


def test_gradcheck_finds_a_gradient_that_ones_would_hide(device):
    """The correct backward is g - mean(g); a cotangent of ones cannot distinguish that from zero."""
    centered = doubling("Centered", lambda ctx, g: g * 0, lambda ctx, x: x - x.mean())
    raises(mg.GradientError, "derivative 1", mg.gradcheck, centered.apply, point(device, 1, 2, 3))


def test_gradcheck_draws_from_a_stream_of_its_own(device):
    """An input drawn from the same seed would equal the cotangent, for which a normalization's gradient is zero."""

    class Twice(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return mg.layer_norm(x, 5, eps=0.0)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            d = x - x.mean(axis=-1, keepdims=True)
            r = mg.rsqrt((d * d).mean(axis=-1, keepdims=True))
            y = d * r
            return 2 * r * (g - g.mean(axis=-1, keepdims=True) - y * (g * y).mean(axis=-1, keepdims=True))

    for seed in range(3):
        x = tensor(np.random.default_rng(seed).standard_normal((2, 5)), device, True)
        refuses(mg.GradientError, "gradcheck", "derivative 1", mg.gradcheck, Twice.apply, x, seed=seed)


class RandomBackward(Exp):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * mg.random.uniform(1 - 1e-9, 1 + 1e-9, y.shape, dtype="float64", device=y.device)


def test_gradcheck_notices_what_is_not_deterministic(device):
    """Of f itself, and of its gradient even if the difference is below every tolerance."""
    x = point(device, *np.linspace(0.5, 1, 16))
    with pytest.raises(mg.GradientError, match=r"^\[gradcheck\] expected a deterministic function.* gave two results"):
        mg.gradcheck(lambda x: [x * 2, nn.functional.dropout(x, 0.5)], x)
    counts = iter((1, 2, 2, 2, 2, 2))
    raises(mg.GradientError, r"deterministic.* gave two results", mg.gradcheck, lambda x: [x] * next(counts), x)
    raises(mg.GradientError, r"deterministic.* has two derivatives of order 1 ", mg.gradcheck, RandomBackward.apply, x)

    def seeded(x):
        mg.manual_seed(0)
        return nn.functional.dropout(x, 0.5) + mg.tensor(float("nan"), device=device) * (x.detach() * 0)[0]

    with pytest.raises(mg.GradientError, match="derivative 1"):  # NaN is no difference from itself
        mg.gradcheck(seeded, x)
    assert mg.gradcheck(lambda x: [mg.manual_seed(0), nn.functional.dropout(x, 0.5)][1], x)


def test_gradcheck_takes_tensors(device):
    """Other arguments have to be bound in a function of the tensors alone."""
    with pytest.raises(TypeError, match=r"^\[gradcheck\] expected tensors, got float"):
        mg.gradcheck(lambda x, factor: x * factor, [point(device, 1, 2), 1.5])
    with pytest.raises(TypeError, match=r"^\[gradcheck\] expected tensors, got float"):
        mg.gradcheck(lambda x: x.sum().item(), point(device, 1, 2))


def test_gradcheck_finds_a_missing_gradient(device):
    assert mg.gradcheck(lambda x: x * x.detach().sign(), point(device, 1, 2))
    raises(mg.GradientError, "derivative 1", mg.gradcheck, lambda x: x.detach() * 2, point(device, 1, 2))


def test_gradcheck_of_several_inputs_and_outputs(device):
    ints = tensor([1, 0], device)
    frozen = plain(device, 2, 3)
    assert mg.gradcheck(
        lambda a, i, b, c: (a[i] * b, c @ a, a.argmax(), c.sum()),
        [point(device, 1, 2), ints, frozen, point(device, 3, 4)],
    )
    assert mg.gradcheck(lambda x: x * 2, mg.zeros((0, 3), dtype="float64", device=device, requires_grad=True))
    assert mg.gradcheck(lambda x: x[0] * 0 + mg.ones((), dtype="float64", device=device), point(device, 1, 2))


def test_gradcheck_refuses(device):
    refuses(
        TypeError, "gradcheck", ["float32", "input 1"], mg.gradcheck, mg.multiply,
        [point(device, 1), mg.ones(1, device=device, requires_grad=True)],
    )  # fmt: skip
    refuses(ValueError, "gradcheck", "requires grad", mg.gradcheck, mg.exp, plain(device, 1))


def test_gradcheck_works_under_no_grad_and_leaves_the_inputs_alone(device):
    x = point(device, 1, 2)
    with mg.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mg.gradcheck(mg.tanh, x)
    assert x.grad is None
    equals(x, [1, 2])
