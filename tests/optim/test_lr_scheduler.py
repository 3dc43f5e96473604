"""Schedules against PyTorch's, alone, in sequence and multiplied; state; errors."""

import warnings

import numpy as np
import pytest
from checks import agree, raises, refuses
from peers import torch

import minigrad as mg
from minigrad import optim
from minigrad.optim import lr_scheduler as ours

STEPS = 40


def optimizers(torch, name="SGD", **options):
    """Make one of our optimizers and one of PyTorch's, with two groups of rates 0.1 and 0.3."""
    for package, module in ((mg, optim), (torch, torch.optim)):
        first, second = (package.zeros(n, requires_grad=True) for n in (1, 2))
        yield getattr(module, name)([{"params": [first]}, {"params": [second], "lr": 0.3}], lr=0.1, **options)


def rates(optimizer):
    return [group["lr"] for group in optimizer.param_groups]


def run(build, torch, steps=STEPS, name="SGD", **options):
    """Return the rates and momenta that `build(lr_scheduler module, optimizer)` gives for us and for PyTorch."""
    found = []
    for module, optimizer in zip((ours, torch.optim.lr_scheduler), optimizers(torch, name, **options), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            schedulers = build(module, optimizer)
            schedulers = schedulers if isinstance(schedulers, list) else [schedulers]
            trace = []
            for _ in range(steps + 1):
                momenta = [group.get("momentum", group.get("betas", (0,))[0]) for group in optimizer.param_groups]
                trace.append(rates(optimizer) + momenta)
                for scheduler in schedulers:
                    scheduler.step()
        found.append(trace)
        assert schedulers[-1].get_last_lr() == rates(optimizer)
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-14)
    return found[0]


CASES = {
    "lambda": lambda m, o: m.LambdaLR(o, lambda t: 0.95**t),
    "lambdas": lambda m, o: m.LambdaLR(o, [lambda t: 0.95**t, lambda t: 1 / (1 + t)]),
    "step": lambda m, o: m.StepLR(o, 7, 0.5),
    "multi_step": lambda m, o: m.MultiStepLR(o, [30, 5, 5, 12], 0.3),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.9),
    "linear": lambda m, o: m.LinearLR(o),
    "linear_down": lambda m, o: m.LinearLR(o, 0.8, 0.1, 13),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 15),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5),
    "restarts_mult": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.01),
    "constant": lambda m, o: m.ConstantLR(o, 0.2, total_iters=7),
    "polynomial": lambda m, o: m.PolynomialLR(o, 20, power=1.5),
    "cosine_eta_min": lambda m, o: m.CosineAnnealingLR(o, 15, eta_min=0.01),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda t: 1 - 1 / (t + 2)),
    "cyclic": lambda m, o: m.CyclicLR(o, 0.1, [1.0, 2.0], 4, 7),
    "cyclic_halved": lambda m, o: m.CyclicLR(o, [0.1, 0.2], 1.0, 5, mode="triangular2", base_momentum=[0.1, 0.2]),
    "cyclic_exponential": lambda m, o: m.CyclicLR(o, 0.1, 1.0, 3, mode="exp_range", gamma=0.9),
    "cyclic_scale": lambda m, o: m.CyclicLR(o, 0.1, 1.0, 5, scale_fn=lambda c: 1 / c, cycle_momentum=False),
    "cyclic_steps": lambda m, o: m.CyclicLR(o, 0.1, 1.0, 5, scale_fn=lambda t: 1 / (1 + t), scale_mode="iterations"),
    "chained": lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.1), m.ExponentialLR(o, 0.9), m.StepLR(o, 4, 0.5)]),
    "one_cycle": lambda m, o: m.OneCycleLR(o, 1.0, total_steps=STEPS + 1),
    "one_cycle_epochs": lambda m, o: m.OneCycleLR(o, [1.0, 2.0], epochs=7, steps_per_epoch=6, pct_start=0.5),
    "one_cycle_linear": lambda m, o: m.OneCycleLR(o, 1.0, STEPS + 1, anneal_strategy="linear", div_factor=10.0),
    "one_cycle_three": lambda m, o: m.OneCycleLR(o, 1.0, STEPS + 1, three_phase=True, final_div_factor=100.0),
    "one_cycle_still": lambda m, o: m.OneCycleLR(o, 1.0, STEPS + 1, cycle_momentum=False),
}


@pytest.mark.parametrize("build, rates", [
    (lambda o: ours.StepLR(o, 2, 0.1), (1, 1, 0.1, 0.1)),
    (lambda o: ours.MultiStepLR(o, [1, 3], 0.1), (1, 0.1, 0.1, 0.01)),
    (lambda o: ours.ExponentialLR(o, 0.5), (1, 1 / 2, 1 / 4, 1 / 8)),
    (lambda o: ours.LambdaLR(o, lambda t: 1 / (t + 1)), (1, 1 / 2, 1 / 3, 1 / 4)),
    (lambda o: ours.ConstantLR(o, 0.2, 2), (0.2, 0.2, 1, 1)),
    (lambda o: ours.LinearLR(o, 0.5, 1, 2), (1 / 2, 3 / 4, 1, 1)),
    (lambda o: ours.PolynomialLR(o, 4, 2), (1, 9 / 16, 1 / 4, 1 / 16)),
    (lambda o: ours.CosineAnnealingLR(o, 3), (1, 3 / 4, 1 / 4, 0)),
    (lambda o: ours.CosineAnnealingWarmRestarts(o, 2), (1, 1 / 2, 1, 1 / 2)),
])  # fmt: skip
def test_rates_follow_the_formula(build, rates):
    optimizer, found = optim.SGD([mg.ones(1, requires_grad=True)], lr=1.0), []
    schedule = build(optimizer)
    for _ in rates:
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    np.testing.assert_allclose(found, rates, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("schedule", CASES)
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_sequence_is_pytorchs(schedule, name):
    trace = run(CASES[schedule], torch, name=name)
    assert len({row[0] for row in trace}) > 1


def test_sequential_is_pytorchs():
    for build in (
        lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1, total_iters=5), m.CosineAnnealingLR(o, 35)], [5]),
        lambda m, o: m.SequentialLR(o, [m.ExponentialLR(o, 0.8), m.StepLR(o, 3, 0.5), m.LinearLR(o)], [4, 20]),
        lambda m, o: m.SequentialLR(o, [m.LambdaLR(o, lambda t: 1 / (1 + t)), m.MultiStepLR(o, [3, 6])], [10]),
        lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1, total_iters=3), m.OneCycleLR(o, 1.0, STEPS)], [3]),
        lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1), m.ExponentialLR(o, 0.9)], [0]),
    ):
        run(build, torch)


def test_a_sequence_in_a_sequence():
    """PyTorch's inner sequence is one step ahead."""
    flat, nested = one(), one()
    inner = ours.SequentialLR(nested, [ours.LinearLR(nested), ours.StepLR(nested, 3)], [5])
    pair = [
        ours.SequentialLR(flat, [ours.LinearLR(flat), ours.StepLR(flat, 3), ours.CosineAnnealingLR(flat, 9)], [5, 12]),
        ours.SequentialLR(nested, [inner, ours.CosineAnnealingLR(nested, 9)], [12]),
    ]
    for _ in range(20):
        assert rates(flat) == rates(nested) == pair[1].get_last_lr()
        for scheduler in pair:
            scheduler.step()


@pytest.mark.parametrize(
    ("patience", "cooldown", "threshold", "metrics", "expected"),
    [
        (2, 0, 0.05, [4.74, 4.7, 5.3, 5.2, 5.1, 4.6, 4.9, 4.8], [1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125]),
        (2, 2, 0.0, [5, 6, 4, 4.2, 4.2, 4.4, 4.5, 4.5, 4.6, 4.7], [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25]),
    ],
)
def test_the_plateau_of_keras(patience, cooldown, threshold, metrics, expected):
    """Keras 3.15.1 waits for one step less than PyTorch with the same patience, and cools down for one step less."""
    optimizer = one()
    waits = {"patience": patience - 1, "cooldown": max(cooldown - 1, 0)}
    plateau = ours.ReduceLROnPlateau(optimizer, factor=0.5, **waits, threshold=threshold, threshold_mode="abs")
    start, found = optimizer.param_groups[0]["lr"], []
    for metric in metrics:
        plateau.step(metric)
        found.append(optimizer.param_groups[0]["lr"] / start)
    assert found == expected


def test_schedules_multiply():
    """Two schedules on one optimizer, as PyTorch chains them."""
    run(lambda m, o: [m.ExponentialLR(o, 0.9), m.MultiStepLR(o, [5, 20], 0.3)], torch)
    run(lambda m, o: [m.LinearLR(o, 0.5, total_iters=10), m.StepLR(o, 4, 0.5), m.CosineAnnealingLR(o, 100)], torch)


TOGETHER = {
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 4),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.9),
    "rise": lambda m, o: m.LambdaLR(o, lambda t: min(1, t / 3)),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 3, 2, eta_min=0.01),
    "linear": lambda m, o: m.LinearLR(o, 1.0, 0.0, total_iters=5),
    "step": lambda m, o: m.StepLR(o, 3, 0.5),
    "constant": lambda m, o: m.ConstantLR(o, 0.0, total_iters=2),
    "sequence": lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1), m.CosineAnnealingLR(o, 3)], [4]),
    "cycle": lambda m, o: m.OneCycleLR(o, 1.0, 60, cycle_momentum=False),
    "plateau": lambda m, o: m.ReduceLROnPlateau(o, factor=0.5, patience=1),
}


@pytest.mark.parametrize("seed", range(12))
def test_rates_are_products(seed):
    """Each factor is a function of its schedule's steps, whatever the order of steps, changes by hand, and restarts.

    A program that resumes creates its schedules before or after the optimizer's state is loaded.
    """
    rng = np.random.default_rng(seed)
    names = ["cycle"] * (seed % 3 == 0) + rng.permutation(sorted(TOGETHER.keys() - {"cycle", "plateau"}))[:3].tolist()
    groups = 2

    def start():
        rates = (0.1, 0.3, 0.7)[:groups]
        return optim.SGD([{"params": [mg.zeros(1, requires_grad=True)], "lr": lr} for lr in rates], lr=0.1)

    def schedules(optimizer):
        return [TOGETHER[name](ours, optimizer) for name in [*names, "plateau"]]

    optimizer = start()
    *made, plateau = schedules(optimizer)
    cycle = names[0] == "cycle"
    plain = [1 / 25] * 2 if cycle else [0.1, 0.3]  # the rate without any schedule
    counts, before = [0] * len(made), [[made[i].base_lrs[k] for k in range(2)] for i in range(len(made))]

    def product(k):
        return plain[k] * np.prod([
            one.lr_at(k, count) / base[k] for one, count, base in zip(made, counts, before, strict=True)
        ])  # fmt: skip

    for _ in range(60):
        event = rng.integers(6)
        if event < 3:
            index = rng.integers(len(made))
            made[index].step()
            counts[index] += 1
        elif event == 3:
            k = rng.integers(groups)
            optimizer.param_groups[k]["lr"] *= 0.8
            plain[k] *= 0.8 if optimizer.param_groups[k]["lr"] else 1
        elif event == 4:
            held = rates(optimizer)
            plateau.step(1.0)
            plain = [p * 0.5 if now != was else p for p, was, now in zip(plain, held, rates(optimizer), strict=True)]
        else:
            states, held = [one.state_dict() for one in [*made, plateau]], optimizer.state_dict()
            optimizer = start()
            order = rng.integers(3)
            if order == 0:
                optimizer.load_state_dict(held)
            again = schedules(optimizer)
            if order == 1:
                optimizer.load_state_dict(held)
            for one, state in zip(again, states, strict=True):
                one.load_state_dict(state)
            if order == 2:
                optimizer.load_state_dict(held)
            *made, plateau = again
        np.testing.assert_allclose(rates(optimizer), [product(k) for k in range(groups)], rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("build", [
    lambda o, **more: ours.SequentialLR(o, [ours.LinearLR(o, 0.1, total_iters=4), ours.ExponentialLR(o, 0.5)], [4], **more),
    lambda o, **more: ours.SequentialLR(o, [ours.CosineAnnealingLR(o, 2, **more), ours.StepLR(o, 2, **more)], [5], **more),
    lambda o, **more: ours.CosineAnnealingLR(o, 3, **more), lambda o, **more: ours.PolynomialLR(o, 3, **more),
])  # fmt: skip
def test_resume_by_last_epoch(build):
    """The rates of the optimizer's state are those of the step, at any step, also where they are 0."""
    for done in range(1, 9):
        whole = one()
        scheduler = build(whole)
        for _ in range(done):
            scheduler.step()
        optimizer = one()
        optimizer.load_state_dict(whole.state_dict())
        resumed = build(optimizer, last_epoch=done - 1)
        for _ in range(6):
            np.testing.assert_allclose(rates(optimizer), rates(whole), rtol=1e-12, atol=1e-16)
            scheduler.step()
            resumed.step()


def test_a_rate_set_by_hand_at_zero():
    """It stays where the schedule ends, and is what a schedule that goes on, or a new one, multiplies."""
    optimizer = one()
    ended, decay = ours.PolynomialLR(optimizer, 2), ours.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        ended.step()
    optimizer.param_groups[0]["lr"] = 0.2
    decay.step()
    ended.step()
    np.testing.assert_allclose(rates(optimizer), [0.1])
    ours.StepLR(optimizer, 1, 0.5).step()
    np.testing.assert_allclose(rates(optimizer), [0.05])
    optimizer = one()
    cosine = ours.CosineAnnealingLR(optimizer, 2)
    for _ in range(6):  # the second zero
        cosine.step()
    optimizer.param_groups[0]["lr"] = 0.2
    cosine.step()
    np.testing.assert_allclose(rates(optimizer), [0.1])


def test_a_change_by_hand_stays():
    a, b = optimizers(torch)
    for optimizer, module in ((a, ours), (b, torch.optim.lr_scheduler)):
        scheduler = module.ExponentialLR(optimizer, 0.5)
        scheduler.optimizer.step()
        scheduler.step()
        for rate in (0.0, 10.0):  # a group that is frozen for a while has no old factor
            optimizer.param_groups[0]["lr"] = rate
            scheduler.step()
    np.testing.assert_allclose(rates(a), rates(b))


PLATEAUS = [
    {}, {"patience": 2}, {"patience": 0, "cooldown": 3}, {"mode": "max", "patience": 1},
    {"patience": 1, "threshold": 0.1, "factor": 0.5},
    {"patience": 1, "threshold": 0.2, "threshold_mode": "abs"}, {"patience": 1, "min_lr": [0.05, 0.001], "factor": 0.5},
    {"mode": "max", "patience": 1, "threshold": 0.2, "threshold_mode": "abs"},
    {"patience": 0, "eps": 0.05, "factor": 0.5},
]  # fmt: skip


@pytest.mark.parametrize("options", PLATEAUS)
@pytest.mark.parametrize("sign", [1, -1])
def test_plateau_is_pytorchs(options, sign):
    losses = sign * (np.random.default_rng(0).random(60) + np.linspace(2, 0, 60))
    losses[7] = np.nan
    found = []
    for module, optimizer in zip((ours, torch.optim.lr_scheduler), optimizers(torch), strict=True):
        scheduler = module.ReduceLROnPlateau(optimizer, **{"patience": 5, **options})
        trace = []
        for loss in losses:
            scheduler.step(loss)
            trace.append(rates(optimizer))
        found.append(trace)
    np.testing.assert_allclose(*found, rtol=1e-12)


def test_plateau_takes_a_tensor(device):
    optimizer = optim.SGD([mg.zeros(1, requires_grad=True, device=device)], lr=1.0)
    scheduler = ours.ReduceLROnPlateau(optimizer, patience=0)
    for _ in range(2):
        scheduler.step(mg.tensor(1.0, device=device))
    assert scheduler.get_last_lr() == [0.1]


def make(kind, optimizer):
    return {
        "chained": lambda: ours.ChainedScheduler([ours.LinearLR(optimizer), ours.StepLR(optimizer, 3)]),
        "cosine": lambda: ours.CosineAnnealingLR(optimizer, 15),
        "cyclic": lambda: ours.CyclicLR(optimizer, 0.1, 1.0, 4, scale_fn=lambda c: 1 / c),
        "multiplicative": lambda: ours.MultiplicativeLR(optimizer, lambda t: 1 - 1 / (t + 2)),
        "lambda": lambda: ours.LambdaLR(optimizer, lambda t: 0.9**t),
        "one_cycle": lambda: ours.OneCycleLR(optimizer, 1.0, 30),
        "plateau": lambda: ours.ReduceLROnPlateau(optimizer, patience=1),
        "sequential": lambda: ours.SequentialLR(
            optimizer, [ours.LinearLR(optimizer), ours.MultiStepLR(optimizer, [3, 6])], [5]),
    }[kind]()  # fmt: skip


@pytest.mark.parametrize("kind", [
    "chained", "cosine", "cyclic", "lambda", "multiplicative", "one_cycle", "plateau", "sequential",
])  # fmt: skip
@pytest.mark.parametrize("stop", [3, 5, 11])
def test_state_dict_resumes(kind, stop, device):
    def fresh():
        optimizer = optim.SGD([mg.zeros(1, requires_grad=True, device=device)], lr=0.5, momentum=0.9)
        return optimizer, make(kind, optimizer)

    def advance(scheduler, count):
        found = []
        for _ in range(count):
            scheduler.step(1.0) if kind == "plateau" else scheduler.step()
            found.append(scheduler.get_last_lr()[0])
        return found

    optimizer, scheduler = fresh()
    advance(scheduler, stop)
    optimizer2, resumed = fresh()
    optimizer2.load_state_dict(optimizer.state_dict())
    resumed.load_state_dict(scheduler.state_dict())
    assert advance(scheduler, 12) == advance(resumed, 12)
    assert optimizer.param_groups[0]["momentum"] == optimizer2.param_groups[0]["momentum"]


def test_rates_reach_the_parameters(device):
    x = mg.zeros(1, requires_grad=True, device=device)
    optimizer = optim.SGD([x], lr=1.0)
    scheduler = ours.ExponentialLR(optimizer, 0.5)
    for _ in range(3):
        x.grad = mg.ones(1, device=device)
        optimizer.step()
        scheduler.step()
    assert x.tolist() == [-1.75]


@pytest.mark.parametrize("schedule", ["step", "multi_step", "exponential", "linear", "cosine"])
def test_a_group_that_is_added_later(schedule):
    """Its own rate changes by the factors of the others, as in PyTorch."""
    found = []
    for package, module, optimizer in zip(
        (mg, torch), (ours, torch.optim.lr_scheduler), optimizers(torch), strict=True
    ):
        scheduler = CASES[schedule](module, optimizer)
        trace = []
        for k in range(12):
            if k == 5:
                optimizer.add_param_group({"params": [package.zeros(1, requires_grad=True)], "lr": 0.7})
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scheduler.step()
            trace.append(rates(optimizer))
        assert scheduler.get_last_lr() == rates(optimizer)
        found.append(trace)
    agree(*found, rtol=1e-12)


@pytest.mark.parametrize("schedule", ["lambda", "lambdas", "one_cycle", "plateau"])
def test_a_group_that_is_added_to_a_schedule_of_each_groups_own(schedule):
    """Its option was not given, so it is rejected before anything changes."""
    optimizer = optim.SGD([{"params": [mg.zeros(n, requires_grad=True)]} for n in (1, 2)], lr=0.1, momentum=0.5)
    scheduler = ours.ReduceLROnPlateau(optimizer) if schedule == "plateau" else CASES[schedule](ours, optimizer)
    optimizer.add_param_group({"params": [mg.zeros(3, requires_grad=True)]})
    state, before = scheduler.state_dict(), rates(optimizer)
    with pytest.raises(ValueError, match=r"^\[\w+\] expected the 2 parameter groups that it was given \w+ for, got 3"):
        scheduler.step(*[1.0] * (schedule == "plateau"))
    assert (scheduler.state_dict(), rates(optimizer)) == (state, before)


def late():
    """Make an optimizer and schedules in sequence, with a group added in the middle of the first one."""
    optimizer = one()
    scheduler = ours.SequentialLR(
        optimizer, [ours.LinearLR(optimizer, 0.5, total_iters=2), ours.ExponentialLR(optimizer, 0.5)], [2]
    )
    scheduler.step()
    optimizer.add_param_group({"params": [mg.zeros(2, requires_grad=True)], "lr": 0.8})
    return optimizer, scheduler


def test_a_state_with_a_later_group_resumes():
    """The state loads in a run that has the group from the start, and in one that adds it later."""
    optimizer, scheduler = late()
    for _ in range(3):
        scheduler.step()
    state, held, expected = scheduler.state_dict(), optimizer.state_dict(), []
    for _ in range(4):
        scheduler.step()
        expected.append(rates(optimizer))
    whole = optim.SGD([{"params": [mg.zeros(n, requires_grad=True)]} for n in (1, 2)], lr=0.1)
    again = ours.SequentialLR(whole, [ours.LinearLR(whole, 0.5, total_iters=2), ours.ExponentialLR(whole, 0.5)], [2])
    for optimizer, scheduler in ((whole, again), late()):
        scheduler.load_state_dict(state)
        optimizer.load_state_dict(held)
        found = []
        for _ in range(4):
            scheduler.step()
            found.append(rates(optimizer))
        assert found == expected


def test_a_saved_state_stays_as_it_was():
    optimizer = one()
    scheduler = ours.ExponentialLR(optimizer, 0.5)
    state = scheduler.state_dict()
    before = repr(state)
    optimizer.add_param_group({"params": [mg.zeros(2, requires_grad=True)]})
    scheduler.step()
    assert repr(state) == before
    ours.ExponentialLR(one(), 0.5).load_state_dict(state)


def one():
    return optim.SGD([mg.zeros(1, requires_grad=True)], lr=0.1)


@pytest.mark.parametrize("build", [
    lambda: ours.StepLR(one(), 0), lambda: ours.LinearLR(one(), 0.0), lambda: ours.LinearLR(one(), 1.5),
    lambda: ours.LinearLR(one(), end_factor=2.0), lambda: ours.LinearLR(one(), total_iters=0),
    lambda: ours.CosineAnnealingLR(one(), 0), lambda: ours.OneCycleLR(one(), 1.0),
    lambda: ours.OneCycleLR(one(), 1.0, epochs=3), lambda: ours.OneCycleLR(one(), 1.0, 0),
    lambda: ours.OneCycleLR(one(), 1.0, 10, pct_start=2.0), lambda: ours.OneCycleLR(one(), 1.0, 10, div_factor=0),
    lambda: ours.OneCycleLR(one(), 1.0, 10, final_div_factor=0.0), lambda: ours.OneCycleLR(one(), 1.0, 10, div_factor=-2.0),
    lambda: ours.OneCycleLR(one(), 1.0, 10, anneal_strategy="x"), lambda: ours.OneCycleLR(one(), [1.0, 2.0], 10),
    lambda: ours.OneCycleLR(optim.Adagrad([mg.zeros(1, requires_grad=True)]), 1.0, 10),
    lambda: ours.LambdaLR(one(), [abs, abs]), lambda: ours.SequentialLR(one(), [], []),
    lambda: ours.SequentialLR(o := one(), [ours.StepLR(o, 3)], [3]),
    lambda: ours.SequentialLR(one(), [ours.StepLR(one(), 3)], []), lambda: ours.ReduceLROnPlateau(one(), mode="least"),
    lambda: ours.ReduceLROnPlateau(one(), factor=1.0), lambda: ours.ReduceLROnPlateau(one(), threshold_mode="x"),
    lambda: ours.CyclicLR(one(), 0.1, 1.0, 0), lambda: ours.CyclicLR(one(), 0.1, 1.0, step_size_down=0),
    lambda: ours.CyclicLR(one(), 0.1, 1.0, mode="x"), lambda: ours.CyclicLR(one(), 0.1, [1.0, 2.0]),
    lambda: ours.CyclicLR(optim.Adagrad([mg.zeros(1, requires_grad=True)]), 0.1, 1.0), lambda: ours.ChainedScheduler([]),
    lambda: ours.ChainedScheduler([ours.StepLR(one(), 3), ours.StepLR(one(), 3)]),
    lambda: ours.ReduceLROnPlateau(one(), min_lr=[0.1, 0.2]), lambda: ours.StepLR(one(), 3, last_epoch=5),
])  # fmt: skip
def test_bad_options(build):
    raises(ValueError, r"\[\w+\]", build)


def test_no_iterations():
    """PyTorch keeps base · factor; its own closed formula, and ours, is base."""
    optimizer = one()
    ours.ConstantLR(optimizer, 0.5, total_iters=0).step()
    assert rates(optimizer) == [0.1]


def test_wrong_types():
    for build in (lambda o: ours.StepLR(o, 3), lambda o: ours.LambdaLR(o, abs), lambda o: ours.ReduceLROnPlateau(o)):
        raises(TypeError, "expected an Optimizer, got list", build, [mg.zeros(1)])
    optimizer = one()
    for wrong in (3, [3]):
        with pytest.raises(TypeError, match=r"^\[LambdaLR\] expected a function of the epoch for lr_lambda, got 3"):
            ours.LambdaLR(optimizer, wrong)
    raises(TypeError, r"\[SequentialLR\]", ours.SequentialLR, optimizer, [ours.ReduceLROnPlateau(optimizer)], [])
    with pytest.raises(TypeError, match=r"^\[ChainedScheduler\] expected schedulers whose step\(\) has no arguments"):
        ours.ChainedScheduler([ours.ReduceLROnPlateau(optimizer)])


def test_one_cycle_ends():
    scheduler = ours.OneCycleLR(one(), 1.0, 10)
    for _ in range(10):
        scheduler.step()
    refuses(ValueError, "OneCycleLR", "expected at most 10 steps", scheduler.step)
