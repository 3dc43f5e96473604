"""Optimizers: trajectories equal PyTorch's for every option, in groups, with infinities, with changing options."""

import numpy as np
import pytest
from checks import near, tensor
from optimizers import CASES, COMPOSED, KERNELS, OURS, SHAPES, STEPS, agree, give, gradients, pair

from minigrad import optim


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, options", CASES)
def test_trajectory_is_pytorchs(name, options, dtype, device, torch):
    shapes = COMPOSED.get(name, SHAPES)
    ours, theirs = pair(torch, dtype, device, shapes)
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    assert a.defaults.keys() - b.defaults.keys() <= OURS
    assert {key: a.defaults[key] for key in a.defaults.keys() & b.defaults.keys()}.items() <= b.defaults.items()
    rng = np.random.default_rng(2)
    for step in range(STEPS):
        for group in (*a.param_groups, *b.param_groups):
            group["lr"] *= 0.97
        give(torch, ours, theirs, gradients(step, rng, shapes), dtype)
        a.step()
        b.step()
        agree(ours, theirs, dtype)


@pytest.mark.parametrize("name, options", KERNELS)
def test_infinities_stay_what_pytorch_makes_of_them(name, options, device, torch):
    """A parameter may mask entries of a softmax with -inf; disabled parts of a rule do not turn it into NaN."""
    values, rng = np.array([-np.inf, np.inf, 1.0, 2.0, -3.0, np.nan, 5.0]), np.random.default_rng(3)
    ours, theirs = [tensor(values, device, True)], [torch.tensor(values, requires_grad=True)]
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(4):
        grad = rng.standard_normal(7) * (np.arange(7) > 1)
        if step == 1 and name != "RAdam":  # PyTorch's, whose first steps follow m, makes it NaN only in the next step
            grad[3:5] = (np.inf, -np.inf)
        grad[6] = np.nan if step == 2 else grad[6]
        give(torch, ours, theirs, [grad], "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")
    if options.get("amsgrad"):
        largest = a.state[ours[0]]["max_exp_avg_sq"], b.state[theirs[0]]["max_exp_avg_sq"]
        near(largest[0], largest[1].numpy(), rtol=1e-12)


@pytest.mark.parametrize("name, options, dtype, scale", [
    (name, options, dtype, scale)
    for name, options in KERNELS for dtype, scale in (("float32", 1.0), ("float64", 2.0**500))
    if name not in ("SGD", "RAdam")  # the first steps of RAdam grow with the gradient
])  # fmt: skip
def test_squares_that_overflow(name, options, dtype, scale, device, torch):
    """The steps are those of PyTorch in float64 with gradients whose squares do not overflow; infinities stay visible.

    Only steps of large gradients can be compared in float64: there they are scaled, and eps and decay are not.
    """
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


def test_a_square_that_overflows_before_its_mean(device, torch):
    """The state is PyTorch's, which multiplies by 1 - β₂ first."""
    ours = [tensor(np.ones(3, "float32"), device, True)]
    theirs = [torch.ones(3, dtype=torch.float32, requires_grad=True)]
    a, b = optim.Adam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for factor in (1e20, 1e19, 1.0):
        give(torch, ours, theirs, [np.array([1.0, -2.0, 3.0]) * factor], "float32")
        a.step()
        b.step()
        agree(ours, theirs, "float32")
        squares = a.state[ours[0]]["exp_avg_sq"], b.state[theirs[0]]["exp_avg_sq"]
        near(squares[0], squares[1].numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", [
    "SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Adafactor", "Muon",
])  # fmt: skip
def test_groups_and_options_that_change(name, device, torch):
    shapes = COMPOSED.get(name, SHAPES)
    ours, theirs = pair(torch, "float64", device, shapes)
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
        give(torch, ours, theirs, gradients(step, rng, shapes), "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")


def test_momentum_switched_on_later(device, torch):
    """The first step with momentum sets the buffer, whenever it comes."""
    ours, theirs = pair(torch, "float64", device)
    a, b = optim.SGD(ours, lr=0.1, dampening=0.5), torch.optim.SGD(theirs, lr=0.1, dampening=0.5)
    rng = np.random.default_rng(2)
    for step in range(10):
        a.param_groups[0]["momentum"] = b.param_groups[0]["momentum"] = 0.9 if step >= 4 else 0.0
        give(torch, ours, theirs, gradients(step, rng), "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")
