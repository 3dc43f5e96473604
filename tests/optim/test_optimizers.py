"""Optimizers: trajectories of PyTorch's for every option, groups, state, errors."""

import copy
import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
from checks import array, tensor

import minigrad as mg
from minigrad import nn, optim
from minigrad.engine.ops.optimizer import grad_norm as optimizer_norm

SHAPES = [(5, 3), (4,), (), (0, 2), (130, 70)]
STEPS = 25


def grid(**options):
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


CASES = [
    *[("SGD", o) for o in grid(lr=[0.1], momentum=[0.0, 0.9], dampening=[0.0, 0.3], weight_decay=[0.0, 0.1])],
    *[("SGD", o) for o in grid(lr=[0.1], momentum=[0.9], nesterov=[True], weight_decay=[0.0, 0.1])],
    *[("Adam", o) for o in grid(lr=[0.1], amsgrad=[False, True], weight_decay=[0.0, 0.1])],
    ("Adam", {"lr": 0.01, "betas": (0.5, 0.8), "eps": 1e-3}),
    *[("AdamW", o) for o in grid(lr=[0.1], amsgrad=[False, True], weight_decay=[0.0, 0.1])],
    ("AdamW", {}),
    *[("RMSprop", o) for o in grid(lr=[0.1], momentum=[0.0, 0.9], centered=[False, True], weight_decay=[0.0, 0.1])],
    ("RMSprop", {"alpha": 0.5, "eps": 1e-2}),
    *[("Adagrad", o) for o in grid(lr=[0.1], lr_decay=[0.0, 0.1], weight_decay=[0.0, 0.1])],
    ("Adagrad", {"initial_accumulator_value": 0.5, "eps": 1e-3}),
]


def gradients(step, rng):
    """Different in every step; the second parameter has none in steps 3 to 6, the last only from step 10."""
    return [
        None if (index == 1 and 3 <= step < 7) or (index == 4 and step < 10) else rng.standard_normal(shape)
        for index, shape in enumerate(SHAPES)
    ]


def pair(torch, dtype, device):
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]
    return [tensor(v, device, True) for v in values], [torch.tensor(v, requires_grad=True) for v in values]


def give(torch, ours, theirs, grads, dtype):
    for a, b, g in zip(ours, theirs, grads, strict=True):
        a.grad = None if g is None else mg.tensor(g, dtype=dtype, device=a.device)
        b.grad = None if g is None else torch.tensor(g.astype(dtype))


def agree(ours, theirs, dtype):
    close = {"rtol": 1e-12, "atol": 1e-13} if dtype == "float64" else {"rtol": 2e-4, "atol": 2e-5}
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(array(a), b.detach().numpy(), **close)


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
    """A parameter may hide entries of a softmax as -inf; no part of a rule that is switched off makes it NaN."""
    torch = pytest.importorskip("torch")
    values, rng = np.array([-np.inf, np.inf, 1.0, 2.0, -3.0, np.nan, 5.0]), np.random.default_rng(3)
    ours, theirs = [tensor(values, device, True)], [torch.tensor(values, requires_grad=True)]
    a, b = getattr(optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for step in range(4):
        grad = rng.standard_normal(7) * (np.arange(7) > 1)
        grad[3:5] = (np.inf, -np.inf) if step == 1 else grad[3:5]
        give(torch, ours, theirs, [grad], "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")


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


@pytest.mark.parametrize("name, options", CASES)
def test_state_dict_resumes_the_trajectory(name, options, device):
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(shape) for shape in SHAPES]
    first = [tensor(v, device, True) for v in values]
    optimizer = getattr(optim, name)(first, **options)

    def run(parameters, optimizer, start, stop):
        for step in range(start, stop):
            grads = gradients(step, np.random.default_rng(step))
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
    ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adagrad", {}),
])  # fmt: skip
def test_state_dict_goes_to_and_from_torch(name, options, device):
    torch = pytest.importorskip("torch")
    ours, theirs = pair(torch, "float64", device)
    a, b = getattr(optim, name)(ours, lr=0.1, **options), getattr(torch.optim, name)(theirs, lr=0.1, **options)
    rng = np.random.default_rng(2)
    for step in range(10, 15):
        give(torch, ours, theirs, gradients(step, rng), "float64")
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
    converted = copy.deepcopy(expected)
    for index, entries in state["state"].items():
        converted["state"][index] = {
            key: torch.tensor(float(value)) if key == "step" else torch.tensor(array(value).copy())
            for key, value in entries.items()
        }
    b.load_state_dict(converted)
    for step in range(15, 20):
        grads = gradients(step, rng)
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


def test_load_state_dict_errors_change_nothing():
    x = [mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)]
    optimizer = optim.Adam(x, lr=0.5)
    for parameter in x:
        parameter.grad = mg.ones(parameter.shape)
    optimizer.step()
    saved = optimizer.state_dict()
    wrong_size, wrong_shape, wrong_option, maximizing, decoupled = (copy.deepcopy(saved) for _ in range(5))
    wrong_size["param_groups"][0]["params"] = [0]
    wrong_shape["state"][1]["exp_avg"] = mg.zeros(7)
    wrong_option["param_groups"][0]["lr"] = -1.0
    maximizing["param_groups"][0]["maximize"] = True
    decoupled["param_groups"][0]["decoupled_weight_decay"] = True
    for wrong, message in (
        (wrong_size, r"groups of \[2\]"), (wrong_shape, r"exp_avg.*\(3,\), got \(7,\)"), (wrong_option, "lr"),
        (maximizing, "maximize=False, got True"), (decoupled, "decoupled_weight_decay=False, got True"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"\[Adam\].*{message}"):
            optimizer.load_state_dict(wrong)
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.state[x[0]]["step"] == 1


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
    """Whatever is missing or wrong: the error says so, and options and state stay."""
    first, buffer = needed[1] if needed else "momentum_buffer", {"SGD": "momentum_buffer", "RMSprop": "grad_avg"}.get(name)
    x = [leaf(), mg.ones(3, requires_grad=True)]
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
        (change(step=2.5), ValueError, "expected a whole number step, got 2.5"),
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
        with pytest.raises(error, match=rf"^\[{name}\] {message}"):
            optimizer.load_state_dict(wrong)
        assert str(optimizer.state_dict()) == before
    for wrong in (5, None, [saved]):
        with pytest.raises(TypeError, match=rf"^\[{name}\] expected a state dict with 'param_groups' and 'state', got"):
            optimizer.load_state_dict(wrong)
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_state_of_what_has_not_begun_is_loaded(device):
    """No state, an empty one, and buffers that only a later option needs."""
    torch = pytest.importorskip("torch")
    x, y = (mg.ones(2, device=device, requires_grad=True) for _ in range(2))
    theirs = [torch.ones(2, requires_grad=True) for _ in range(2)]
    x.grad, theirs[0].grad = mg.ones(2, device=device), torch.ones(2)
    for name in ("SGD", "Adam", "RMSprop"):
        optimizer, other = getattr(optim, name)([x, y]), getattr(torch.optim, name)(theirs)
        other.step()
        optimizer.load_state_dict(other.state_dict())
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.load_state_dict({**optimizer.state_dict(), "state": {0: {}}})
        option = {"SGD": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "RMSprop": {"momentum": 0.9, "centered": True}}[name]
        optimizer.param_groups[0].update(option)
        optimizer.load_state_dict(optimizer.state_dict())
        optimizer.step()
        assert optimizer.state[x].keys() == {*optimizer.needed, *optimizer.optional}
        assert y not in optimizer.state


def test_checkpoint_says_which_part_is_not_an_optimizers(tmp_path):
    layer = nn.Linear(2, 1)
    mg.save_checkpoint(tmp_path / "run", optimizer=layer)
    with pytest.raises(ValueError, match=r"run: optimizer: \[Adam\] expected a state dict with 'param_groups' and 'state', got weight, bias"):
        mg.load_checkpoint(tmp_path / "run", optimizer=optim.Adam(layer.parameters()))


# ── edits of the state ──

def halve(library, optimizer, parameter):
    """Put other tensors in the place of those of one parameter's state."""
    state = optimizer.state[parameter]
    for name, value in state.items():
        if name != "step":
            state[name] = library.full_like(value, 0.5)


EDITS = {
    "all forgotten": lambda library, o, p: o.state.clear(),
    "another state": lambda library, o, p: setattr(o, "state", defaultdict(dict)),
    "one deleted": lambda library, o, p: o.state.pop(p),
    "one emptied": lambda library, o, p: o.state[p].clear(),
    "one in another dict": lambda library, o, p: o.state.update({p: {**o.state[p]}}),
    "one replaced": lambda library, o, p: o.state.update({p: {}}),
    "other tensors": halve,
    "steps": lambda library, o, p: o.state[p].update(step=library.full_like(p, 40.0).sum() / math.prod(p.shape)),
}


@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9, "dampening": 0.5}), ("Adam", {"amsgrad": True}), ("AdamW", {}),
    ("RMSprop", {"momentum": 0.9, "centered": True}), ("Adagrad", {"lr_decay": 0.1}),
])  # fmt: skip
@pytest.mark.parametrize("edit", EDITS)
def test_the_next_step_uses_the_edited_state(name, options, edit, device):
    torch = pytest.importorskip("torch")
    fresh = edit in ("all forgotten", "another state", "one deleted", "one emptied", "one replaced")
    ours, theirs = pair(torch, "float64", device)
    a, b = getattr(optim, name)(ours, lr=0.1, **options), getattr(torch.optim, name)(theirs, lr=0.1, **options)
    rng = np.random.default_rng(2)
    for step in range(10, 19):
        if step in (12, 15):
            with mg.no_grad(), torch.no_grad():
                EDITS[edit](mg, a, ours[0])
                EDITS[edit](torch, b, theirs[0])
            if name == "Adagrad" and fresh:     # PyTorch's makes its state when it is made itself, and never again
                for p in theirs:
                    if not b.state[p]:
                        b.state[p] = {"step": torch.tensor(0.0), "sum": torch.zeros_like(p)}
            else:
                assert a.state_dict()["state"].keys() == b.state_dict()["state"].keys()
        give(torch, ours, theirs, gradients(step, rng), "float64")
        a.step()
        b.step()
        agree(ours, theirs, "float64")
        for index, entries in b.state_dict()["state"].items():
            for key, value in entries.items():
                mine = a.state_dict()["state"][index][key]
                mine = array(mine) if isinstance(mine, mg.Tensor) else mine
                np.testing.assert_allclose(mine, value.numpy(), rtol=1e-11, atol=1e-14, err_msg=key)


def test_a_tensor_put_into_the_state_stays_there(device):
    """It is the one that steps write, unless it has to follow the parameter to another dtype or device."""
    x = mg.zeros((2, 3), device=device, requires_grad=True)
    optimizer = optim.Adam([x])
    x.grad = mg.ones((2, 3), device=device)
    optimizer.step()
    mine = optimizer.state[x]["exp_avg"] = mg.zeros((2, 3), device=device)
    optimizer.step()
    assert optimizer.state[x]["exp_avg"] is mine
    np.testing.assert_allclose(array(mine), np.full((2, 3), 0.1), rtol=1e-6)
    for other in (mg.zeros((2, 3), dtype="float64"), mg.zeros((3, 2), device=device).T,
                  mg.zeros((2, 3), device=device, requires_grad=True), np.zeros((2, 3))):  # fmt: skip
        optimizer.state[x]["exp_avg"] = other
        optimizer.step()
        found = optimizer.state[x]["exp_avg"]
        assert (found.dtype, found.device, found.is_contiguous(), found.requires_grad) == (x.dtype, x.device, True, False)
        np.testing.assert_allclose(array(found), np.full((2, 3), 0.1), rtol=1e-6)


def test_a_state_of_momentum_for_one_of_two(device):
    """Each of a group's parameters has a state of its own, also where only one has begun."""
    x, y = (mg.zeros(1, dtype="float64", device=device, requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([x, y], lr=1.0, dampening=0.5)
    x.grad = y.grad = mg.ones(1, dtype="float64", device=device)
    optimizer.step()
    optimizer.state[y]["momentum_buffer"] = mg.ones(1, dtype="float64", device=device)
    optimizer.param_groups[0]["momentum"] = 0.5
    optimizer.step()
    assert (x.item(), y.item()) == (-2.0, -2.0)
    assert [optimizer.state[p]["momentum_buffer"].item() for p in (x, y)] == [1.0, 1.0]
    optimizer.step()
    assert (x.item(), y.item()) == (-3.0, -3.0)


@pytest.mark.parametrize("edit, error, message", [
    (lambda o, p: o.state[p].update(exp_avg=mg.zeros(7)), ValueError, r"exp_avg: expected shape \(2,\), got \(7,\)"),
    (lambda o, p: o.state[p].update(exp_avg=mg.zeros(2, dtype="int64")), TypeError, "exp_avg: expected floating-point elements, got int64"),
    (lambda o, p: o.state[p].update(exp_avg=5.0), TypeError, "exp_avg: expected a tensor, got 5.0"),
    (lambda o, p: o.state[p].update(max_exp_avg_sq="x"), TypeError, "max_exp_avg_sq: expected a tensor, got 'x'"),
    (lambda o, p: o.state[p].update(exp_avg=None), ValueError, "expected step, exp_avg, exp_avg_sq in the state .*, got exp_avg_sq, step"),
    (lambda o, p: o.state[p].pop("step"), ValueError, "expected step, exp_avg, exp_avg_sq in the state .*, got exp_avg, exp_avg_sq"),
    (lambda o, p: o.state[p].update(step=-5), ValueError, "expected step from 0 to .*, got -5"),
    (lambda o, p: o.state[p].update(step="3"), TypeError, "expected a number step, got '3'"),
    (lambda o, p: o.state.update({p: 3}), TypeError, r"expected a dict as the state of a parameter of shape \(2,\), got 3"),
    (lambda o, p: setattr(o, "state", None), TypeError, "expected state to be a dict, got None"),
])  # fmt: skip
def test_a_state_that_is_none_moves_nothing(edit, error, message):
    x, y = leaf(), leaf()
    optimizer = optim.Adam([{"params": [x]}, {"params": [y]}])
    for p in (x, y):
        p.grad = mg.ones(2)
    optimizer.step()
    before = x.tolist(), y.tolist()
    edit(optimizer, y)
    with pytest.raises(error, match=rf"^\[Adam\] {message}"):
        optimizer.step()
    assert (x.tolist(), y.tolist()) == before
    optimizer.state = {}
    optimizer.step()
    assert optimizer.state[y]["step"] == 1


def test_a_first_step_without_memory_can_be_tried_again(monkeypatch):
    made = []

    def full_like(*args, **kwargs):
        made.append(args)
        if len(made) == 4:
            raise MemoryError
        return mg.full_like(*args, **kwargs)

    monkeypatch.setattr("minigrad.optim.optimizer.full_like", full_like)
    x, y = leaf(), leaf()
    optimizer = optim.Adam([x, y], lr=0.5)
    x.grad = y.grad = mg.ones(2)
    with pytest.raises(MemoryError):
        optimizer.step()
    assert x.tolist() == [1.0, 1.0]
    assert optimizer.state_dict()["state"] == {0: {}, 1: {}}
    optimizer.step()
    np.testing.assert_allclose([x.tolist(), y.tolist()], [[0.5, 0.5]] * 2, rtol=1e-6)


def test_state_dict_leaves_out_what_is_trained_no_more():
    x, y = leaf(), leaf()
    optimizer = optim.Adam([x])
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    optimizer.param_groups[0]["params"][0] = y
    assert optimizer.state_dict()["state"] == {}
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [0]


# ── steps ──

@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {}),
])  # fmt: skip
def test_many_tensors_are_updated_like_one(name, options, device):
    """More than a kernel on a GPU takes at once, some of them empty, some at addresses that no vector may have."""
    rng = np.random.default_rng(0)
    sizes = [0, 1, 3, 1024, 1025, *rng.integers(0, 9, 145).tolist()]
    values, grads = (rng.standard_normal(sum(sizes)) for _ in range(2))
    ends = np.cumsum([0, *sizes])

    def run(parameters, gs):
        optimizer = getattr(optim, name)(parameters, lr=0.1, **options)
        for factor in (1.0, -0.5, 2.0):
            for p, g in zip(parameters, gs, strict=True):
                p.grad = g * factor
            optimizer.step()
        return np.concatenate([array(p) for p in parameters])

    whole = tensor(values, device)
    parts = [whole[a:b] for a, b in itertools.pairwise(ends)]
    for part in parts:
        part.requires_grad = True
    found = run(parts, [tensor(grads[a:b], device) for a, b in itertools.pairwise(ends)])
    np.testing.assert_array_equal(found, run([tensor(values, device, True)], [tensor(grads, device)]))
    norm = optimizer_norm([tensor(grads[a:b], device) for a, b in itertools.pairwise(ends)])
    assert norm == pytest.approx(np.linalg.norm(grads), rel=1e-13)


def test_two_dtypes_in_one_group(device):
    x, y = (mg.ones(2, dtype=dtype, device=device, requires_grad=True) for dtype in ("float32", "float64"))
    optimizer = optim.Adam([x, y], lr=0.5)
    x.grad, y.grad = mg.ones(2, device=device), mg.ones(2, dtype="float64", device=device)
    optimizer.step()
    np.testing.assert_allclose([x.tolist(), y.tolist()], [[0.5, 0.5]] * 2, rtol=1e-6)


def test_a_gradient_that_is_a_view(device):
    x = mg.zeros((2, 3), requires_grad=True, device=device)
    x.grad = mg.tensor(np.arange(6.0).reshape(3, 2), dtype="float32", device=device).T
    optim.SGD([x], lr=1.0).step()
    assert x.tolist() == (-np.arange(6.0).reshape(3, 2).T).tolist()


def test_a_parameter_that_is_replaced():
    x, y = mg.zeros(2, requires_grad=True), mg.zeros(2, requires_grad=True)
    optimizer = optim.Adam([x], lr=0.5)
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    optimizer.param_groups[0]["params"][0] = y
    optimizer.step()
    assert x.tolist() == y.tolist() == [-0.5, -0.5]
    assert optimizer.state[y]["step"] == 1


def test_gradients_are_let_go():
    """An optimizer that held on to them would double the memory they need."""
    x = mg.zeros(1000, requires_grad=True)
    optimizer = optim.SGD([x])
    before = mg.memory_allocated()
    x.grad = mg.ones(1000)
    optimizer.step()
    optimizer.zero_grad()
    assert mg.memory_allocated() == before


def test_zero_grad():
    x, y = mg.ones(2, requires_grad=True), mg.ones(2, requires_grad=True)
    optimizer = optim.SGD([x, y])
    x.grad = mg.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert x.grad.tolist() == [0.0, 0.0]
    assert y.grad is None
    optimizer.zero_grad()
    assert x.grad is None


def test_closure():
    x = mg.tensor([3.0], requires_grad=True)
    optimizer = optim.SGD([x], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        return loss

    with mg.no_grad():
        assert optimizer.step(closure).item() == 9.0
    assert x.tolist() == [0.0]
    assert optimizer.step() is None


def test_step_bumps_versions():
    """A parameter saved for backward must not change unnoticed."""
    layer = nn.Linear(2, 2)
    optimizer = optim.SGD(layer.parameters())
    x = mg.ones((1, 2), requires_grad=True)
    loss = layer(x).sum()
    for parameter in layer.parameters():
        parameter.grad = mg.ones(parameter.shape)
    optimizer.step()
    with pytest.raises(mg.GradientError, match="in place"):
        loss.backward()


def test_training_lowers_the_loss():
    mg.manual_seed(0)
    x = mg.random.normal(0.0, 1.0, (64, 4))
    y = x @ mg.random.normal(0.0, 1.0, (4, 1))
    for name, options in (("SGD", {"lr": 0.1}), ("Adam", {"lr": 0.1}), ("AdamW", {"lr": 0.1}), ("RMSprop", {"lr": 0.02}),
                          ("Adagrad", {"lr": 0.5})):  # fmt: skip
        model = nn.Linear(4, 1)
        optimizer = getattr(optim, name)(model.parameters(), **options)
        losses = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.05 * losses[0], name


def test_a_parameter_that_moves_is_planned_anew():
    """What a kernel call updates lies on one device, also when tensors have moved since the last step."""

    class Records(optim.Optimizer):
        def update(self, group, batch, grads):
            steps[-1].append([(p.device, g.device) for p, g in zip(batch.parameters, grads, strict=True)])

    a, b = (mg.zeros(3, dtype="float64", requires_grad=True) for _ in range(2))
    optimizer, steps = Records([a, b], {}), []
    for device in ("cpu", "cuda:0", "cuda:0"):
        if steps and b.device == "cpu":
            b.set_(mg.zeros(3, dtype="float64", device="cuda"))
            b.requires_grad = True
        for p in (a, b):
            p.grad = mg.ones(3, dtype="float64", device="cuda") if p.device != "cpu" else mg.ones(3, dtype="float64")
        steps.append([])
        optimizer.step()
        together = [("cpu", "cpu"), (device, device)]
        assert steps[-1] == ([together] if device == "cpu" else [[pair] for pair in together])


# ── errors ──

def leaf():
    return mg.ones(2, requires_grad=True)


@pytest.mark.parametrize("options", [
    {"lr": -1.0}, {"lr": math.nan}, {"weight_decay": -1.0},
])  # fmt: skip
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_options_out_of_range(name, options):
    key = next(iter(options))
    with pytest.raises(ValueError, match=rf"\[{name}\] expected {key} >= 0, got"):
        getattr(optim, name)([leaf()], **options)
    with pytest.raises(ValueError, match=rf"\[{name}\] expected {key} >= 0, got"):
        getattr(optim, name)([{"params": [leaf()], **options}])


@pytest.mark.parametrize("build", [
    lambda: optim.SGD([leaf()], momentum=-0.1), lambda: optim.SGD([leaf()], nesterov=True),
    lambda: optim.SGD([leaf()], momentum=0.9, dampening=0.1, nesterov=True),
    lambda: optim.Adam([leaf()], betas=(1.0, 0.9)),
    lambda: optim.Adam([leaf()], betas=(0.9, -0.1)), lambda: optim.AdamW([leaf()], betas=(0.9,)),
    lambda: optim.Adam([leaf()], eps=-1e-8), lambda: optim.RMSprop([leaf()], alpha=-1.0),
    lambda: optim.RMSprop([leaf()], momentum=-1.0), lambda: optim.Adagrad([leaf()], lr_decay=-1.0),
    lambda: optim.Adagrad([leaf()], initial_accumulator_value=-1.0),
])  # fmt: skip
def test_more_options_out_of_range(build):
    with pytest.raises(ValueError, match=r"\[(SGD|AdamW?|RMSprop|Adagrad)\]"):
        build()


@pytest.mark.parametrize("name, change, error, message", [
    ("Adam", {"betas": (0.9,)}, ValueError, r"expected two betas, got \(0.9,\)"),
    ("Adam", {"betas": 0.9}, TypeError, "expected two betas, got 0.9"),
    ("AdamW", {"betas": (0.9, 1.0)}, ValueError, r"expected two betas in \[0, 1\)"),
    *((name, {"lr": "x"}, TypeError, "expected a number lr, got 'x'") for name in ("SGD", "Adam", "RMSprop", "Adagrad")),
    *((name, {"weight_decay": None}, TypeError, "expected a number weight_decay, got None") for name in ("SGD", "Adagrad")),
    ("RMSprop", {"momentum": -1.0}, ValueError, "expected momentum >= 0, got -1.0"),
    ("SGD", {"nesterov": True}, ValueError, "nesterov: expected momentum > 0"),
    ("SGD", {"maximize": True}, ValueError, "expected maximize=False, got True"),
    ("SGD", None, ValueError, "expected groups with lr, got"),
])  # fmt: skip
def test_options_set_between_steps_are_checked_before_any_move(name, change, error, message):
    x, y = leaf(), leaf()
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
        with pytest.raises(error, match=rf"^\[{name}\] {message}"):
            optimizer.step()
        assert x.tolist() == y.tolist() == before
    group.clear()
    group.update(good)
    optimizer.step()
    assert x.tolist() == y.tolist() != before


def test_wrong_parameters():
    x = leaf()
    for params in ([], iter([])):
        with pytest.raises(ValueError, match=r"\[SGD\] expected at least one parameter, got none"):
            optim.SGD(params)
    for params in (x, {x}, "weights", {"params": [x]}):
        with pytest.raises(TypeError, match=r"\[SGD\] expected a list of tensors or of groups"):
            optim.SGD(params)
    for params in ([np.ones(2)], [("weight", x)], [3.0], [x, None]):
        with pytest.raises(TypeError, match=r"^\[SGD\] expected tensors, got \w+$"):
            optim.SGD(params)
    for group in ({"lr": 0.1}, [x]):
        with pytest.raises(TypeError, match="key 'params'"):
            optim.SGD([x]).add_param_group(group)
    with pytest.raises(TypeError, match="no order"):
        optim.SGD([{"params": {x}}])
    with pytest.raises(ValueError, match="given twice"):
        optim.SGD([x, x])
    with pytest.raises(ValueError, match="given twice"):
        optim.SGD([{"params": [x]}, {"params": [leaf(), x]}])
    with pytest.raises(ValueError, match="expected leaves"):
        optim.SGD([x * 2])


def test_a_refused_group_leaves_no_trace():
    x, y = leaf(), leaf()
    optimizer = optim.SGD([x])
    with pytest.raises(ValueError, match="lr"):
        optimizer.add_param_group({"params": [y], "lr": -1.0})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [y]})
    x.grad = y.grad = mg.ones(2)
    optimizer.step()
    assert x.tolist() == y.tolist()


def test_repr():
    assert repr(optim.SGD([leaf()], lr=0.1)) == (
        "SGD (\nParameter group 0\n    dampening: 0.0\n    lr: 0.1\n    momentum: 0.0\n    nesterov: False\n"
        "    weight_decay: 0.0\n)"
    )
