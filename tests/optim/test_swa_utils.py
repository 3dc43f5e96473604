"""Averaged models and their schedule, against PyTorch's and by hand."""

import itertools

import numpy as np
import pytest
from checks import near, refuses, tensor

import minigrad as mg
from minigrad import nn, optim
from minigrad.optim import lr_scheduler, swa_utils


def networks(torch, device):
    """Make the same network in both libraries, and functions that give both the same new values."""
    pair = [
        library.Sequential(library.Linear(3, 4), library.BatchNorm1d(4, momentum=0.2), library.Linear(4, 2))
        for library in (nn, torch.nn)
    ]
    ours, theirs = pair[0].to("float64").to(device), pair[1].double()
    rng = np.random.default_rng(3)

    def change():
        state = {
            name: rng.integers(1, 9) if value.ndim == 0 else rng.random(value.shape)
            for name, value in theirs.state_dict().items()
        }
        ours.load_state_dict({name: tensor(np.asarray(value), device) for name, value in state.items()})
        theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})

    return ours, theirs, change


def same_state(ours, theirs, without=()):
    state, expected = ours.state_dict(), theirs.state_dict()
    assert state.keys() == expected.keys()
    for name in state.keys() - {*without}:
        near(state[name], expected[name].numpy(), rtol=1e-13, err_msg=name)


AVERAGES = {
    "equal weights": lambda m: {},
    "avg_fn": lambda m: {"avg_fn": m.get_ema_avg_fn(0.7)},
    "multi_avg_fn": lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.7)},
    "equal weights, lists": lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
    "a function": lambda m: {"avg_fn": lambda average, value, count: average + count * value},
}


@pytest.mark.parametrize("use_buffers", [False, True])
@pytest.mark.parametrize("kind", AVERAGES)
def test_averages_are_pytorchs(kind, use_buffers, device, torch):
    """The count of batches, an integer, is copied; PyTorch rounds it down or, with equal weights, refuses."""
    if use_buffers and "weights" in kind:
        kind = "avg_fn"
    ours, theirs, change = networks(torch, device)
    a = swa_utils.AveragedModel(ours, use_buffers=use_buffers, **AVERAGES[kind](swa_utils))
    b = torch.optim.swa_utils.AveragedModel(
        theirs, use_buffers=use_buffers, **AVERAGES[kind](torch.optim.swa_utils)
    )  # fmt: skip
    for _ in range(4):
        change()
        a.update_parameters(ours)
        b.update_parameters(theirs)
        same_state(a, b, ["module.1.num_batches_tracked"] if use_buffers else [])
        assert a.module[1].num_batches_tracked.item() == ours[1].num_batches_tracked.item()
    x = np.random.default_rng(1).random((5, 3))
    a.eval()
    b.eval()
    near(a(tensor(x, device)), b(torch.tensor(x)).detach().numpy(), rtol=1e-12)
    again = swa_utils.AveragedModel(ours)
    again.load_state_dict(b.state_dict())
    same_state(again, b)


def test_statistics_are_pytorchs(device, torch):
    ours, theirs, change = networks(torch, device)
    change()
    rng = np.random.default_rng(1)
    batches = [rng.standard_normal((n, 3)) for n in (4, 4, 2)]
    ours[2].eval()
    swa_utils.update_bn([(x, 1) for x in (tensor(b) for b in batches)], ours, device)
    torch.optim.swa_utils.update_bn([torch.tensor(b) for b in batches], theirs)
    same_state(ours, theirs)
    assert ours[1].momentum == 0.2
    assert [module.training for module in ours.modules()] == [True, True, True, False]
    with pytest.raises(ZeroDivisionError):
        swa_utils.update_bn((1 / 0 for _ in range(1)), ours)
    assert ours[1].momentum == 0.2


def test_a_network_without_batch_norm_is_not_called():
    swa_utils.update_bn([None], nn.Linear(1, 1))


@pytest.mark.parametrize("epochs, strategy", [*itertools.product([0, 1, 4], ["cos", "linear"])])
def test_rates_are_pytorchs(epochs, strategy, torch):
    """Alone, and after another schedule, from whose rate it begins."""
    found = []
    for library, utils, schedules in (
        (mg, swa_utils, lr_scheduler), (torch, torch.optim.swa_utils, torch.optim.lr_scheduler),
    ):  # fmt: skip
        for start in (0, 6):
            groups = [{"params": [library.zeros(1, requires_grad=True)], "lr": lr} for lr in (1.0, 0.5)]
            optimizer = library.optim.SGD(groups, lr=0.1)
            other = schedules.ExponentialLR(optimizer, 0.8)
            swa = utils.SWALR(optimizer, [0.05, 0.3], anneal_epochs=epochs, anneal_strategy=strategy)
            for epoch in range(15):
                found.append([group["lr"] for group in optimizer.param_groups])
                optimizer.step()
                (swa if epoch >= start else other).step()
    np.testing.assert_allclose(found[:30], found[30:], rtol=1e-12)
    assert swa.get_last_lr() == [0.05, 0.3]


def test_a_schedule_resumes():
    def start():
        optimizer = optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
        return optimizer, lr_scheduler.StepLR(optimizer, 1, 0.5), swa_utils.SWALR(optimizer, 0.05, 5)

    first, second = start(), start()
    for scheduler in (first[1], first[2], first[2]):
        scheduler.step()
    for new, old in zip(second, first, strict=True):
        new.load_state_dict(old.state_dict())
    for _ in range(4):
        assert first[0].param_groups[0]["lr"] == second[0].param_groups[0]["lr"]
        first[2].step()
        second[2].step()


def test_wrong_models():
    def refused(error, message, call, *args, **options):
        refuses(error, "AveragedModel", message, call, *args, **options)

    layer, wide, bare = nn.Linear(1, 1), nn.Linear(2, 1), nn.Linear(1, 1, bias=False)
    averaged = swa_utils.AveragedModel(layer)
    both = {"avg_fn": swa_utils.get_swa_avg_fn(), "multi_avg_fn": swa_utils.get_swa_multi_avg_fn()}
    refused(TypeError, "expected a Module, got list", swa_utils.AveragedModel, [])
    refused(ValueError, "expected avg_fn or multi_avg_fn, got both", swa_utils.AveragedModel, layer, **both)
    refused(ValueError, "bias: expected shape (1,), got None", averaged.update_parameters, bare)
    refused(ValueError, "weight: expected shape (1, 1), got (1, 2)", averaged.update_parameters, wide)
    assert averaged.n_averaged.item() == 0


def test_wrong_options():
    optimizer = optim.SGD([mg.zeros(1, requires_grad=True)])
    refuses(ValueError, "get_ema_avg_fn", "expected decay from 0 to 1, got 2", swa_utils.get_ema_avg_fn, 2.0)
    refuses(
        ValueError, "SWALR", "expected anneal_strategy 'cos' or 'linear', got 'x'", swa_utils.SWALR, optimizer, 0.1, 3,
        "x",
    )  # fmt: skip
    refuses(ValueError, "SWALR", "expected 1 values of swa_lr, got 2", swa_utils.SWALR, optimizer, [0.1, 0.2])
    scheduler = swa_utils.SWALR(optimizer, 0.1)
    optimizer.add_param_group({"params": [mg.zeros(1, requires_grad=True)]})
    refuses(ValueError, "SWALR", "expected the 1 parameter groups that it was given swa_lr for", scheduler.step)
