"""Optimizers: states that are edited between two steps."""

import math
from collections import defaultdict

import numpy as np
import pytest
from checks import array, near, raises
from optimizers import agree, give, gradients, pair, two_ones

import minigrad as mg
from minigrad import optim


def halve(library, optimizer, parameter):
    """Replace the tensors of one parameter's state."""
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
            if name == "Adagrad" and fresh:  # PyTorch's creates its state in the constructor, and never again
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
    """Steps write to that tensor, unless it must follow the parameter to another dtype or device."""
    x = mg.zeros((2, 3), device=device, requires_grad=True)
    optimizer = optim.Adam([x])
    x.grad = mg.ones((2, 3), device=device)
    optimizer.step()
    mine = optimizer.state[x]["exp_avg"] = mg.zeros((2, 3), device=device)
    optimizer.step()
    assert optimizer.state[x]["exp_avg"] is mine
    near(mine, np.full((2, 3), 0.1), rtol=1e-6)
    for other in (mg.zeros((2, 3), dtype="float64"), mg.zeros((3, 2), device=device).T,
                  mg.zeros((2, 3), device=device, requires_grad=True), np.zeros((2, 3))):  # fmt: skip
        optimizer.state[x]["exp_avg"] = other
        optimizer.step()
        found = optimizer.state[x]["exp_avg"]
        assert (found.dtype, found.device, found.is_contiguous(), found.requires_grad) == (
            x.dtype, x.device, True, False,
        )  # fmt: skip
        near(found, np.full((2, 3), 0.1), rtol=1e-6)


def test_a_state_of_momentum_for_one_of_two(device):
    """Each parameter of a group has its own state, even if only one has started."""
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
    x, y = two_ones(), two_ones()
    optimizer = optim.Adam([{"params": [x]}, {"params": [y]}])
    for p in (x, y):
        p.grad = mg.ones(2)
    optimizer.step()
    before = x.tolist(), y.tolist()
    edit(optimizer, y)
    raises(error, rf"^\[Adam\] {message}", optimizer.step)
    assert (x.tolist(), y.tolist()) == before
    optimizer.state = {}
    optimizer.step()
    assert optimizer.state[y]["step"] == 1


def test_a_first_step_without_memory_can_be_tried_again(monkeypatch):
    made = []

    def full(*args, **kwargs):
        made.append(args)
        if len(made) == 4:
            raise MemoryError
        return mg.full(*args, **kwargs)

    monkeypatch.setattr("minigrad.optim.optimizer.full", full)
    x, y = two_ones(), two_ones()
    optimizer = optim.Adam([x, y], lr=0.5)
    x.grad = y.grad = mg.ones(2)
    with pytest.raises(MemoryError):
        optimizer.step()
    assert x.tolist() == [1.0, 1.0]
    assert optimizer.state_dict()["state"] == {0: {}, 1: {}}
    optimizer.step()
    np.testing.assert_allclose([x.tolist(), y.tolist()], [[0.5, 0.5]] * 2, rtol=1e-6)
