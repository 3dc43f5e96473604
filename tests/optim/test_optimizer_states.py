"""Optimizers: state dicts that are saved, loaded and damaged."""

import copy
import math

import numpy as np
import pytest
from checks import array, raises, tensor
from optimizers import CASES, COMPOSED, SHAPES, STEPS, agree, give, gradients, pair, two_ones

import minigrad as mg
from minigrad import nn, optim


@pytest.mark.parametrize("name, options", CASES)
def test_state_dict_resumes_the_trajectory(name, options, device):
    rng = np.random.default_rng(1)
    shapes = COMPOSED.get(name, SHAPES)
    values = [rng.standard_normal(shape) for shape in shapes]
    first = [tensor(v, device, True) for v in values]
    optimizer = getattr(optim, name)(first, **options)

    def run(parameters, optimizer, start, stop):
        for step in range(start, stop):
            grads = gradients(step, np.random.default_rng(step), shapes)
            for parameter, g in zip(parameters, grads, strict=True):
                parameter.grad = None if g is None else tensor(g, device)
            optimizer.step()

    run(first, optimizer, 0, 12)
    saved = copy.deepcopy(optimizer.state_dict())
    second = [mg.tensor(p.detach(), requires_grad=True) for p in first]
    resumed = getattr(optim, name)(second, lr=123.0)
    resumed.load_state_dict(saved)
    run(first, optimizer, 12, STEPS)
    run(second, resumed, 12, STEPS)
    for a, b in zip(first, second, strict=True):
        assert a.tolist() == b.tolist()
    assert resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("AdamW", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adagrad", {}), ("NAdam", {"decoupled_weight_decay": True}),
    ("RAdam", {}), ("Adadelta", {}), ("Adafactor", {}), ("Muon", {}),
])  # fmt: skip
def test_state_dict_goes_to_and_from_torch(name, options, device, torch):
    shapes = COMPOSED.get(name, SHAPES)
    ours, theirs = pair(torch, "float64", device, shapes)
    a, b = getattr(optim, name)(ours, lr=0.1, **options), getattr(torch.optim, name)(theirs, lr=0.1, **options)
    rng = np.random.default_rng(2)
    for step in range(10, 15):
        give(torch, ours, theirs, gradients(step, rng, shapes), "float64")
        a.step()
        b.step()
    state, expected = a.state_dict(), b.state_dict()
    assert state["state"].keys() == expected["state"].keys()
    assert state["param_groups"][0]["params"] == expected["param_groups"][0]["params"]
    for index, entries in state["state"].items():
        assert entries.keys() == expected["state"][index].keys()
        for key, value in entries.items():
            theirs_value = expected["state"][index][key].numpy()
            value = array(value) if isinstance(value, mg.Tensor) else value
            np.testing.assert_allclose(value, theirs_value, rtol=1e-11, atol=1e-14, err_msg=key)

    more = [mg.tensor(p.detach(), requires_grad=True) for p in ours]
    loaded = getattr(optim, name)(more)
    loaded.load_state_dict(expected)
    with pytest.raises(TypeError, match=r"got a generator: PyTorch's .* PyTorch's tensors, torch.tensor\(x.numpy"):
        b.load_state_dict(state)
    for index, entries in state["state"].items():
        state["state"][index] = {
            key: torch.tensor(array(value)) if isinstance(value, mg.Tensor) else value for key, value in entries.items()
        }
    b.load_state_dict(state)
    for step in range(15, 20):
        grads = gradients(step, rng, shapes)
        give(torch, more, theirs, grads, "float64")
        loaded.step()
        b.step()
    agree(more, theirs, "float64")


def test_state_dict_shares_tensors_and_loading_copies_them():
    x, y = mg.ones(2, requires_grad=True), mg.ones(2, requires_grad=True)
    a, b = optim.Adam([x]), optim.Adam([y])
    x.grad = y.grad = mg.ones(2)
    a.step()
    saved = a.state_dict()
    assert saved["state"][0]["exp_avg"] is a.state[x]["exp_avg"]
    b.load_state_dict(saved)
    before = saved["state"][0]["exp_avg"].tolist()
    b.step()
    assert saved["state"][0]["exp_avg"].tolist() == before
    assert b.state[y]["step"] == 2
    assert a.state[x]["step"] == 1


def test_state_dict_leaves_out_what_is_trained_no_more():
    x, y = two_ones(), two_ones()
    optimizer = optim.Adam([x])
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    optimizer.param_groups[0]["params"][0] = y
    assert optimizer.state_dict()["state"] == {}
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [0]


def test_load_state_dict_errors_change_nothing():
    x = [mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)]
    optimizer = optim.Adam(x, lr=0.5)
    for parameter in x:
        parameter.grad = mg.ones(parameter.shape)
    optimizer.step()
    saved = optimizer.state_dict()
    wrong_size, wrong_shape, wrong_option, decoupled = (copy.deepcopy(saved) for _ in range(4))
    wrong_size["param_groups"][0]["params"] = [0]
    wrong_shape["state"][1]["exp_avg"] = mg.zeros(7)
    wrong_option["param_groups"][0]["lr"] = -1.0
    decoupled["param_groups"][0]["decoupled_weight_decay"] = True
    for wrong, message in (
        (wrong_size, r"groups of \[2\]"), (wrong_shape, r"exp_avg.*\(3,\), got \(7,\)"), (wrong_option, "lr"),
        (decoupled, "decoupled_weight_decay=False, got True"),
    ):  # fmt: skip
        raises(ValueError, rf"\[Adam\].*{message}", optimizer.load_state_dict, wrong)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.state[x[0]]["step"] == 1


def test_a_state_without_maximize_descends():
    """As older versions saved it; one that maximizes goes on to."""
    x = two_ones()
    optimizer = optim.SGD([x], lr=0.5, maximize=True)
    saved = optimizer.state_dict()
    for state, expected in (
        (saved, [2.0, 2.0]),
        ({**saved, "param_groups": [dict(saved["param_groups"][0])]}, [1.0, 1.0]),
    ):
        if state is not saved:
            del state["param_groups"][0]["maximize"]
        optimizer.load_state_dict(state)
        x.grad = mg.full(2, 2.0)
        optimizer.step()
        assert x.tolist() == expected


@pytest.mark.parametrize("name, options, off", [
    ("SGD", {"lr_in_momentum": True, "momentum": 0.9}, "lr_in_momentum"), ("RMSprop", {}, "eps_in_sqrt"),
    ("Adam", {}, "eps_before_correction"), ("Adagrad", {}, "eps_in_sqrt"),
])  # fmt: skip
def test_a_state_without_an_option_has_it_off(name, options, off):
    """As older versions and PyTorch saved it; but AdamW's decay, which is no option there, stays decoupled."""
    optimizer = getattr(optim, name)([two_ones()], **{**options, off: True})
    saved = optimizer.state_dict()
    assert saved["param_groups"][0].pop(off) is True
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0][off] is False
    optimizer = optim.AdamW([two_ones()])
    saved = optimizer.state_dict()
    assert saved["param_groups"][0].pop("decoupled_weight_decay") is True
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def change(*keys, **values):
    """Drop or set entries of the second parameter's state."""

    def damage(saved):
        for key in keys:
            del saved["state"][1][key]
        saved["state"][1].update(values)

    return damage


@pytest.mark.parametrize("name, needed", [
    ("Adam", ("step", "exp_avg", "exp_avg_sq")), ("AdamW", ("step", "exp_avg", "exp_avg_sq")),
    ("RMSprop", ("step", "square_avg")), ("Adagrad", ("step", "sum")), ("SGD", ()),
])  # fmt: skip
def test_damaged_state_is_refused_whole(name, needed):
    """The error names what is missing or wrong, and options and state do not change."""
    first = needed[1] if needed else "momentum_buffer"
    buffer = {"SGD": "momentum_buffer", "RMSprop": "grad_avg"}.get(name)
    x = [two_ones(), mg.ones(3, requires_grad=True)]
    options = {"SGD": {"momentum": 0.9}, "RMSprop": {"centered": True}}.get(name, {})
    optimizer = getattr(optim, name)(x, lr=0.5, **options)
    for parameter in x:
        parameter.grad = mg.ones(parameter.shape)
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.25
    whole = rf"expected {', '.join(needed)} in the state of a parameter of shape \(3,\), got "
    cases = [
        *((change(key), ValueError, whole) for key in needed),
        *((change(**{key: None}), ValueError, whole) for key in needed),
        *((change(step=step), ValueError, "expected step from 0 to 9007199254740992, got") for step in (-5, 2**70, math.nan)),
        (change(step=2.5), ValueError, "expected an integer step, got 2.5"),
        (change(step="3"), TypeError, "expected a number step, got '3'"),
        *((change(**{key: 5.0}), TypeError, f"{key}: expected a tensor, got 5.0") for key in {first, buffer or first}),
        (change(**{first: {}}), TypeError, f"{first}: expected a tensor, got {{}}"),
        (change(**{first: mg.zeros(3, dtype="bool")}), TypeError, f"{first}: expected floating-point elements, got bool"),
        (change(**{first: mg.zeros(7)}), ValueError, rf"{first}: expected shape \(3,\), got \(7,\)"),
        (lambda s: s.clear(), ValueError, "expected a state dict with 'param_groups' and 'state', got an empty one"),
        (lambda s: s.pop("state"), ValueError, "expected a state dict with 'param_groups' and 'state', got param_groups"),
        (lambda s: s["state"].update({7: {}}), ValueError, r"expected states of parameters \[0, 1\], got one of 7"),
        (lambda s: s.update(state=None), TypeError, "expected a dict under 'state', got None"),
        (lambda s: s["state"].update({1: None}), TypeError, r"expected a dict as the state of a parameter of shape \(3,\), got None"),
        (lambda s: s.update(param_groups=3), TypeError, "expected a list under 'param_groups', got 3"),
        (lambda s: s["param_groups"][0].pop("params"), TypeError, "expected groups with a list of integers under 'params'"),
        (lambda s: s["param_groups"][0].update(params=[[0], 1]), TypeError, "expected groups with a list of integers under 'params'"),
        (lambda s: s["param_groups"][0].update(params=[0, 0]), ValueError, r"expected each parameter once under 'params', got \[0, 0\]"),
        (lambda s: s.update(param_groups=[5]), TypeError, "expected groups with a list of integers under 'params', got 5"),
        (lambda s: s["param_groups"][0].update(lr="x"), TypeError, "expected a number lr, got 'x'"),
        (lambda s: s["param_groups"][0].pop("lr"), ValueError, "expected groups with lr, got"),
    ]  # fmt: skip
    before = str(optimizer.state_dict())
    for damage, error, message in cases:
        wrong = copy.deepcopy(saved)
        damage(wrong)
        raises(error, rf"^\[{name}\] {message}", optimizer.load_state_dict, wrong)
        assert str(optimizer.state_dict()) == before
    for wrong in (5, None, [saved]):
        with pytest.raises(TypeError, match=rf"^\[{name}\] expected a state dict with 'param_groups' and 'state', got"):
            optimizer.load_state_dict(wrong)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_state_of_what_has_not_begun_is_loaded(device, torch):
    """Load no state, an empty one, and one without buffers that only a later option needs."""
    x, y = (mg.ones(2, device=device, requires_grad=True) for _ in range(2))
    theirs = [torch.ones(2, requires_grad=True) for _ in range(2)]
    x.grad, theirs[0].grad = mg.ones(2, device=device), torch.ones(2)
    for name in ("SGD", "Adam", "RMSprop"):
        optimizer, other = getattr(optim, name)([x, y]), getattr(torch.optim, name)(theirs)
        other.step()
        optimizer.load_state_dict(other.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: {}}})
        option = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"momentum": 0.9, "centered": True}}[
            name
        ]
        optimizer.param_groups[0].update(option)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        assert optimizer.state[x].keys() == {*optimizer.needed, *optimizer.optional}
        assert y not in optimizer.state


def test_checkpoint_says_which_part_is_not_an_optimizers(tmp_path):
    layer = nn.Linear(2, 1)
    mg.save_checkpoint(tmp_path / "run", optimizer=layer)
    match = r"run: optimizer: \[Adam\] expected a state dict with 'param_groups' and 'state', got weight, bias"
    raises(ValueError, match, mg.load_checkpoint, tmp_path / "run", optimizer=optim.Adam(layer.parameters()))
