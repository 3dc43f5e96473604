"""Optimizers: valid and invalid parameters, groups and options."""

import math

import numpy as np
import pytest
from checks import raises, refuses
from optimizers import two_ones

import minigrad as mg
from minigrad import nn, optim
from minigrad.pytorch import POINTERS


@pytest.mark.parametrize("options", [
    {"lr": -1.0}, {"lr": math.nan}, {"weight_decay": -1.0},
])  # fmt: skip
@pytest.mark.parametrize("name", [
    "SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "Lion", "Adafactor", "Muon",
])  # fmt: skip
def test_options_out_of_range(name, options):
    key = next(iter(options))
    raises(ValueError, rf"\[{name}\] expected {key} >= 0, got", getattr(optim, name), [two_ones()], **options)
    refuses(ValueError, name, f"expected {key} >= 0, got", getattr(optim, name), [{"params": [two_ones()], **options}])


@pytest.mark.parametrize("build", [
    lambda: optim.SGD([two_ones()], momentum=-0.1), lambda: optim.SGD([two_ones()], nesterov=True),
    lambda: optim.SGD([two_ones()], momentum=0.9, dampening=0.1, nesterov=True),
    lambda: optim.Adam([two_ones()], betas=(1.0, 0.9)),
    lambda: optim.Adam([two_ones()], betas=(0.9, -0.1)), lambda: optim.AdamW([two_ones()], betas=(0.9,)),
    lambda: optim.Adam([two_ones()], eps=-1e-8), lambda: optim.RMSprop([two_ones()], alpha=-1.0),
    lambda: optim.RMSprop([two_ones()], momentum=-1.0), lambda: optim.Adagrad([two_ones()], lr_decay=-1.0),
    lambda: optim.Adagrad([two_ones()], initial_accumulator_value=-1.0),
    lambda: optim.NAdam([two_ones()], momentum_decay=-1.0), lambda: optim.RAdam([two_ones()], betas=(0.9, 1.0)),
    lambda: optim.Adadelta([two_ones()], rho=-1.0), lambda: optim.Lion([two_ones()], betas=(0.9, 1.0)),
    lambda: optim.Muon([two_ones()]), lambda: optim.Muon([mg.ones((2, 2))], adjust_lr_fn="best"),
    lambda: optim.Muon([mg.ones((2, 2))], ns_coefficients=(1.0, 2.0)),
    lambda: optim.Adafactor([two_ones()], beta2_decay=0.1), lambda: optim.Adafactor([two_ones()], d=0.5),
    lambda: optim.Adafactor([two_ones()], eps=(-1.0, 1e-3)), lambda: optim.Adafactor([two_ones()], eps=(1.0,)),
])  # fmt: skip
def test_more_options_out_of_range(build):
    raises(ValueError, r"^\[(SGD|[NR]?AdamW?|RMSprop|Ada\w+|Lion|Muon)\] ", build)


def test_a_rate_in_a_tensor_is_a_number_of_each_group():
    """PyTorch's groups and optimizers share the tensor, and a plateau with the factor 0.5 divides their rate by 4."""
    lr = mg.tensor(0.5)
    optimizer, other = optim.SGD([{"params": [two_ones()]}, {"params": [two_ones()]}], lr), optim.SGD([two_ones()], lr)
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    for _ in range(2):
        plateau.step(1.0)
    assert [group["lr"] for group in optimizer.param_groups + other.param_groups] == [0.25, 0.25, 0.5]
    assert lr.item() == 0.5


@pytest.mark.parametrize("name, change, error, message", [
    ("Adam", {"betas": (0.9,)}, ValueError, r"expected two betas, got \(0.9,\)"),
    ("Adam", {"betas": 0.9}, TypeError, "expected two betas, got 0.9"),
    ("AdamW", {"betas": (0.9, 1.0)}, ValueError, r"expected two betas in \[0, 1\)"),
    *((name, {"lr": "x"}, TypeError, "expected a number lr, got 'x'") for name in ("SGD", "Adam", "RMSprop", "Adagrad")),
    *((name, {"weight_decay": None}, TypeError, "expected a number weight_decay, got None") for name in ("SGD", "Adagrad")),
    ("RMSprop", {"momentum": -1.0}, ValueError, "expected momentum >= 0, got -1.0"),
    ("SGD", {"nesterov": True}, ValueError, "nesterov: expected momentum > 0"),
    ("Adam", {"lr": 10**400}, ValueError, "expected lr within the range of floats"),
    ("SGD", None, ValueError, "expected groups with lr, got"),
])  # fmt: skip
def test_options_set_between_steps_are_checked_before_any_move(name, change, error, message):
    x, y = two_ones(), two_ones()
    optimizer = getattr(optim, name)([{"params": [x]}, {"params": [y]}])
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    before, group = x.tolist(), optimizer.param_groups[1]
    good = dict(group)
    if change is None:
        del group["lr"]
    else:
        group.update(change)
    for _ in range(2):
        raises(error, rf"^\[{name}\] {message}", optimizer.step)
        assert x.tolist() == y.tolist() == before
    group.clear()
    group.update(good)
    optimizer.step()
    assert x.tolist() == y.tolist() != before


def test_wrong_parameters():
    x = two_ones()
    for params in ([], iter([])):
        refuses(ValueError, "SGD", "expected at least one parameter, got none", optim.SGD, params)
    for params in (x, {x}, "weights", {"params": [x]}):
        refuses(TypeError, "SGD", "expected a list of tensors or of groups", optim.SGD, params)
    with pytest.raises(TypeError, match=r"^\[SGD\] expected a list of .*, got a Sequential: use its parameters\(\)$"):
        optim.SGD(nn.Sequential(nn.Linear(2, 2)))
    for params in ([np.ones(2)], [("weight", None)], [3.0], [x, None]):
        raises(TypeError, r"^\[SGD\] expected tensors, got \w+$", optim.SGD, params)
    raises(TypeError, r"^\[SGD\] expected tensors, got tuple \(int, Tensor\), whose \[1\] is one$", optim.SGD, [(0, x)])
    for group in ({"lr": 0.1}, [x]):
        raises(TypeError, "key 'params'", optim.SGD([x]).add_param_group, group)
    raises(TypeError, "no order", optim.SGD, [{"params": {x}}])
    raises(ValueError, "expected distinct parameters", optim.SGD, [x, x])
    raises(ValueError, "expected distinct parameters", optim.SGD, [{"params": [x]}, {"params": [two_ones(), x]}])
    raises(ValueError, "expected leaves", optim.SGD, [x * 2])


def test_named_parameters():
    """The names are kept in the group and in the state, which fits optimizers without names."""
    torch = pytest.importorskip("torch")
    model, theirs = nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for params in (lambda m: m.named_parameters(), lambda m: [{"params": m.named_parameters()}]):
        optimizer, other = optim.SGD(params(model), momentum=0.5), torch.optim.SGD(params(theirs), momentum=0.5)
        assert optimizer.param_groups[0]["param_names"] == other.param_groups[0]["param_names"] == ["weight", "bias"]
    model(mg.ones((1, 2))).sum().backward()
    optimizer.step()
    assert optimizer.state[model.weight]["momentum_buffer"].tolist() == [[1, 1], [1, 1]]
    plain = optim.SGD(model.parameters(), momentum=0.5)
    state = plain.state_dict()
    plain.load_state_dict(optimizer.state_dict())
    assert plain.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    with pytest.raises(ValueError, match=r"^\[SGD\] expected a name for each tensor or for none, got 1 names"):
        optim.SGD([("weight", model.weight), model.bias])


def test_hooks_say_what_to_write():
    optimizer = optim.SGD([two_ones()])
    for name in POINTERS["minigrad.optim.Optimizer"]:
        raises(AttributeError, rf"^\[{name}\] is not available: c.*`optimizer\.\w+\(", getattr, optimizer, name)
    with pytest.raises(AttributeError, match=r"^'SGD' object has no attribute 'registered'$"):
        _ = optimizer.registered


def test_a_refused_group_leaves_no_trace():
    x, y = two_ones(), two_ones()
    optimizer = optim.SGD([x])
    raises(ValueError, "lr", optimizer.add_param_group, {"params": [y], "lr": -1.0})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [y]})
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    assert x.tolist() == y.tolist()


def test_repr():
    assert repr(optim.SGD([two_ones()], lr=0.1)) == (
        "SGD (\nParameter group 0\n    dampening: 0.0\n    decoupled_weight_decay: False\n    lr: 0.1\n"
        "    lr_in_momentum: False\n    maximize: False\n    momentum: 0.0\n    nesterov: False\n    weight_decay: 0.0\n)"
    )
