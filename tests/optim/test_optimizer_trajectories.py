"""Optimizers: trajectories equal PyTorch's for every option, in groups, with infinities, with changing options."""

import numpy as np
import pytest
from checks import array, tensor
from optimizers import CASES, STEPS, agree, give, gradients, pair

from minigrad import optim


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, options", CASES)
def test_trajectory_is_pytorchs(name, options, dtype, device):
    torch = pytest.importorskip("torch")
    ours, theirs = pair(torch, dtype, device)
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    assert {key: a.defaults[key] for key in a.defaults} == {key: b.defaults[key] for key in a.defaults}
    rng = np.random.default_rng(2)
    for step in range(STEPS):
        give(torch, ours, theirs, gradients(step, rng), dtype)
        a.step()
        b.step()
        agree(ours, theirs, dtype)


@pytest.mark.parametrize("name, options", CASES)
def test_infinities_stay_what_pytorch_makes_of_them(name, options, device):
    """A parameter may mask entries of a softmax with -inf; disabled parts of a rule do not turn it into NaN."""
    torch = pytest.importorskip("torch")
    values, rng = np.array([-np.inf, np.inf, 1.0, 2.0, -3.0, np.nan, 5.0]), np.random.default_rng(3)
    ours, theirs = [tensor(values, device, True)], [torch.tensor(values, requires_grad=True)]
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(4):
        grad = rng.standard_normal(7) * (np.arange(7) > 1)
        grad[3:5] = (np.inf, -np.inf) if step == 1 else grad[3:5]
        grad[6] = np.nan if step == 2 else grad[6]
        give(torch, ours, theirs, [grad], "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")
    if options.get("amsgrad"):
        largest = a.state[ours[0]]["max_exp_avg_sq"], b.state[theirs[0]]["max_exp_avg_sq"]
        np.testing.assert_allclose(array(largest[0]), largest[1].numpy(), rtol=1e-12)


@pytest.mark.parametrize("dtype, scale", [("float32", 1.0), ("float64", 2.0**500)])
@pytest.mark.parametrize("name, options", [(name, options) for name, options in CASES if name != "SGD"])
def test_squares_that_overflow(name, options, dtype, scale, device):
    """The steps are those of PyTorch in float64 with gradients whose squares do not overflow; infinities stay visible.

    Only steps of large gradients can be compared in float64: there they are scaled, and eps and decay are not.
    """
    torch = pytest.importorskip("torch")
    ours, theirs = pair(torch, dtype, device)
    theirs = [p.detach().double().requires_grad_() for p in theirs]
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    rng = np.random.default_rng(4)
    for factor in (2e19, 1e20, 3e20, 1e30, 1e37, 1e25, 1e20, *[1e10, 1.0] * (scale == 1), np.inf):
        for x, y in zip(ours, theirs, strict=True):
            grad = rng.standard_normal(y.shape).astype(dtype) * np.array(factor if factor < np.inf else 1.0, dtype)
            if factor == np.inf and grad.size:
                grad.flat[0] = np.inf
            x.grad = tensor((grad * np.array(scale, dtype)).astype(dtype), device)
            y.grad = torch.tensor(grad.astype("float64"))
        a.step()
        b.step()
        agree(ours, theirs, "float32")


def test_a_square_that_overflows_before_its_mean(device):
    """The state is PyTorch's, which multiplies by 1 - β₂ first."""
    torch = pytest.importorskip("torch")
    ours, theirs = [tensor(np.ones(3, "float32"), device, True)], [torch.ones(3, requires_grad=True)]
    a, b = optim.Adam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for factor in (1e20, 1e19, 1.0):
        give(torch, ours, theirs, [np.array([1.0, -2.0, 3.0]) * factor], "float32")
        a.step()
        b.step()
        agree(ours, theirs, "float32")
        squares = a.state[ours[0]]["exp_avg_sq"], b.state[theirs[0]]["exp_avg_sq"]
        np.testing.assert_allclose(array(squares[0]), squares[1].numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_groups_and_options_that_change(name, device):
    torch = pytest.importorskip("torch")
    ours, theirs = pair(torch, "float64", device)
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    a = getattr(optim, name)([{"params": ours[:2]}, {"params": ours[2:4], "lr": 0.2}], lr=0.05, **options)
    b = getattr(torch.optim, name)([{"params": theirs[:2]}, {"params": theirs[2:4], "lr": 0.2}], lr=0.05, **options)
    rng = np.random.default_rng(2)
    for step in range(STEPS):
        if step == 8:
            for optimizer, values in ((a, ours), (b, theirs)):
                optimizer.add_param_group({"params": values[4], "weight_decay": 0.1})
        if step == 12:
            for optimizer in (a, b):
                optimizer.param_groups[0]["lr"] = 0.01
                optimizer.param_groups[1]["weight_decay"] = 0.2
        give(torch, ours, theirs, gradients(step, rng), "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")


def test_momentum_switched_on_later(device):
    """The first step with momentum sets the buffer, whenever it comes."""
    torch = pytest.importorskip("torch")
    ours, theirs = pair(torch, "float64", device)
    a, b = optim.SGD(ours, lr=0.1, dampening=0.5), torch.optim.SGD(theirs, lr=0.1, dampening=0.5)
    rng = np.random.default_rng(2)
    for step in range(10):
        a.param_groups[0]["momentum"] = b.param_groups[0]["momentum"] = 0.9 if step >= 4 else 0.0
        give(torch, ours, theirs, gradients(step, rng), "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")
