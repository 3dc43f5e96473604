"""Checkpoints: everything is restored or nothing, and an interrupted run ends with the same bits."""

import copy
import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import interrupted_run
import numpy as np
import pytest
from checks import array, raises, refuses

import minigrad as mg
from minigrad import data, nn, optim


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def bits(value):
    """The tree with each tensor replaced by its bytes, so that comparing trees compares bits."""
    if isinstance(value, mg.Tensor):
        return str(value.dtype), value.shape, array(value).tobytes()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(bits, value))
    return value.hex() if isinstance(value, float) else value


def state(run):
    """Return everything that a load may change."""
    return bits({"random": mg.random.get_state(), **{name: part.state_dict() for name, part in run.items()}})


BUILD = interrupted_run.parts


def parts(device):
    """The parts of interrupted_run, with the model and its batches on a device."""
    run = BUILD()
    if device != "cpu":
        run["model"].to(device)
        run["loader"].collate = lambda samples: tuple(x.to(device) for x in data.collate(samples))
    return run


def train(path, device, monkeypatch):
    """Return the run of interrupted_run on a device."""
    monkeypatch.setattr(interrupted_run, "parts", lambda: parts(device))
    return interrupted_run.train(path)


def tensors(value):
    """Yield the tensors of a tree."""
    if isinstance(value, dict):
        value = list(value.values())
    found = value if isinstance(value, list | tuple) else []
    return [value] if isinstance(value, mg.Tensor) else [x for item in found for x in tensors(item)]


def lies(run, device):
    """Check that every tensor of the parts, including the optimizer's, is on the device."""
    found = [x for name in ("model", "optimizer") if name in run for x in tensors(run[name].state_dict())]
    return bool(found) and {x.device for x in found} == {device}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, device):
    """The state and the losses of an uninterrupted run, and how long it took."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        if device != "cpu":
            train(tmp_path_factory.mktemp("first") / "run", device, monkeypatch)  # compiles the kernels
        start = time.perf_counter()
        run, losses = train(tmp_path_factory.mktemp("whole") / "run", device, monkeypatch)
        seconds = time.perf_counter() - start
    assert len(losses) == interrupted_run.STEPS
    assert lies(run, device)
    return state(run), losses, seconds


# ── interrupted runs ──


def test_kill(path, rng, tmp_path):
    """SIGKILL at random moments of the run: in a step, while saving, between steps."""
    folder = Path(mg.__file__).parent.parent
    command = [sys.executable, interrupted_run.__file__, str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    saved = []
    for _ in range(4):
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        ) as run:
            assert run.stdout.readline() == "ready\n"
            run.stdin.write("\n" * (interrupted_run.STEPS // 6))
            run.stdin.flush()
            while not path.exists() and run.poll() is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.15))
            run.kill()
        assert run.returncode == -signal.SIGKILL
        saved.append(len(mg.load_checkpoint(path)["losses"]))
    assert 0 < saved[-1] < interrupted_run.STEPS, saved
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, env=environment, capture_output=True)
    run = interrupted_run.parts()
    losses = mg.load_checkpoint(path, **run)["losses"]
    list(run["loader"])  # the state was saved with the last batch of the last epoch: this ends the epoch
    found = state(run)
    whole, expected_losses = interrupted_run.train(tmp_path / "whole")
    assert losses == expected_losses
    assert found == state(whole)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
def test_keyboard_interrupt(path, rng, whole, device, monkeypatch):
    """Ctrl-C at random moments, wherever the main thread is; the run is rebuilt and continues."""
    expected, expected_losses, seconds = whole
    enough = 8 if device == "cpu" else 3  # a run takes a second in the emulation

    def interrupt(*_):
        raise KeyboardInterrupt

    interrupts = finished = 0
    gc.disable()  # an interrupt in a callback of the collector would be lost
    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        while interrupts < enough or not finished:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.002, seconds) if interrupts < enough else 0)
                run, losses = train(path, device, monkeypatch)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            assert losses == expected_losses
            assert state(run) == expected
            assert lies(run, device)
            path.unlink()
            finished += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.enable()


@pytest.mark.parametrize("kind", ["SGD", "RMSprop", "Adagrad", "plateau", "sequential", "lambda"])
def test_every_optimizer_and_schedule_comes_back(path, kind, device):
    def fresh():
        layer = nn.Linear(3, 2, device=device)
        name = kind if hasattr(optim, kind) else "SGD"
        optimizer = getattr(optim, name)(layer.parameters(), lr=0.1, **({} if name == "Adagrad" else {"momentum": 0.9}))
        schedules = optim.lr_scheduler
        if kind == "plateau":
            scheduler = schedules.ReduceLROnPlateau(optimizer, patience=1)
        elif kind == "sequential":
            pair = [schedules.LinearLR(optimizer, 0.5, total_iters=3), schedules.ExponentialLR(optimizer, 0.9)]
            scheduler = schedules.SequentialLR(optimizer, pair, [3])
        else:
            scheduler = schedules.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
        return {"model": layer, "optimizer": optimizer, "scheduler": scheduler}

    def go_on(run, steps):
        for _ in range(steps):
            run["optimizer"].zero_grad()
            (run["model"](mg.random.normal(0.0, 1.0, (4, 3), device=device)) ** 2).sum().backward()
            run["optimizer"].step()
            run["scheduler"].step(*([1.0] if kind == "plateau" else []))
        return state(run)

    first = fresh()
    go_on(first, 4)
    mg.save_checkpoint(path, **first)
    expected = go_on(first, 4)
    second = fresh()
    mg.load_checkpoint(path, **second)
    assert lies(second, device)
    assert go_on(second, 4) == expected
    assert lies(second, device)


@pytest.mark.parametrize("source", [False, True], ids=["loaded", "saved"])
def test_a_run_goes_over_to_another_device(path, device, source):
    """Saved on the device and loaded on the CPU, or the other way round: the same bits, on each parameter's device."""
    first, second = (device, "cpu") if source else ("cpu", device)
    run = other_run(first)
    assert lies(run, first)
    mg.save_checkpoint(path, **run)
    expected = state(run)
    other = parts(second)
    mg.load_checkpoint(path, **other)
    assert state(other) == expected
    assert lies(other, second)
    assert len(other["optimizer"].state) == 10
    step(other)  # and training continues there
    assert lies(other, second)


# ── what is stored ──


def test_values(path):
    values = {
        "none": None, "flag": True, "epoch": 3, "huge": 2**80, "loss": 0.1, "text": "ключ \ud800 $", "empty": [], "tuple": (1, (2.5,), []),
        "nested": {"a.b": [{"c": ()}], "": {}}, "numbers": {0: "zero", (1, 2): "pair", None: 0, True: 1.5}, "odd": {"$tensor": 1, "$dict": {"$": 2}},
        "limits": [math.inf, -math.inf, -0.0, 5e-324],
    }  # fmt: skip
    mg.save_checkpoint(path, **values)
    loaded = mg.load_checkpoint(path)
    assert bits(loaded) == bits(values)
    assert list(loaded) == list(values)
    mg.save_checkpoint(path, nan=math.nan, scalars=[np.float32(0.5), np.int64(3), np.bool_(True)])
    loaded = mg.load_checkpoint(path)
    assert math.isnan(loaded["nan"])
    assert [(type(x), x) for x in loaded["scalars"]] == [(float, 0.5), (int, 3), (bool, True)]


def test_tensors_are_stored_as_tensors(path, device):
    x, y = mg.arange(3, device=device), mg.tensor([[0.5]], dtype="float64", device=device)
    extra = {"a.b": x, "a": {"b": y}, "list": [x.astype("bool")]}
    mg.save_checkpoint(path, model=nn.Linear(2, 1, device=device), extra=extra)
    assert set(mg.load(path)) == {"model.weight", "model.bias", "extra.a.b", "extra.a.b'", "extra.list.0"}
    assert bits(mg.load_checkpoint(path)["extra"]) == bits(extra)


def test_parts_without_an_object_come_as_states(path, device):
    layer, tokenizer = nn.Linear(2, 1, device=device), data.Tokenizer()
    tokenizer.fit(["a b a"])
    mg.save_checkpoint(path, model=layer, words=tokenizer, epoch=3)
    values = mg.load_checkpoint(path, words=data.Tokenizer())
    assert bits(values) == bits({"model": layer.state_dict(), "epoch": 3})
    assert {x.device for x in tensors(values)} == {"cpu"}
    other = data.Tokenizer()
    mg.load_checkpoint(path, words=other)
    assert other.vocabulary == {"a": 1, "b": 2}
    assert mg.load_checkpoint(path, words=other, model=layer) == {"epoch": 3}
    assert layer.weight.device == device


def test_random_numbers_go_on(path, device):
    mg.manual_seed(2**64 - 1)
    mg.random.normal(shape=10, device=device)
    mg.save_checkpoint(path)
    expected = mg.random.normal(shape=10, device=device).tolist()
    mg.manual_seed(0)
    assert mg.load_checkpoint(path) == {}
    assert mg.random.normal(shape=10, device=device).tolist() == expected


def test_what_cannot_be_saved(path):
    for value, message in (
        ({"a": [object()]}, r"object at extra\.a\.0"), ({1, 2}, "set"), ([nn.Linear(1, 1)], r"Linear at extra\.0"),
        (b"x", "bytes"), ({"a": 1j}, "complex"),
    ):  # fmt: skip
        raises(TypeError, rf"\[save_checkpoint\] expected .*got {message}", mg.save_checkpoint, path, extra=value)
    assert not path.exists()
    raises(FileNotFoundError, "absent/run'", mg.save_checkpoint, path.parent / "absent" / "run")


def test_what_json_cannot_hold(path):
    inside, deep = [], []
    inside.append(inside)
    for _ in range(100_000):
        deep = [deep]
    for value in (inside, deep, {"a": 10**5000}):
        with pytest.raises(ValueError, match=r"^\[save_checkpoint\] expected values that JSON can hold, got "):
            mg.save_checkpoint(path, extra=value)
    refuses(TypeError, "save_checkpoint", ["expected", "got type at model"], mg.save_checkpoint, path, model=nn.Linear)
    assert not path.exists()


# ── all or nothing ──


def step(run):
    """One step of training on the next batch of the loader."""
    for x, y in run["loader"]:
        nn.functional.cross_entropy(run["model"](x), y).backward()
        run["optimizer"].step()
        run["scheduler"].step()
        break


def other_run(device):
    """Return parts that match those of interrupted_run, in another state."""
    run = parts(device)
    step(run)
    return run


def refused(path, run, error, match, **more):
    """Loading raises an error and changes nothing."""
    before = copy.deepcopy(state(run))
    devices = [x.device for part in run.values() for x in tensors(part.state_dict())]
    raises(error, match, mg.load_checkpoint, path, **run, **more)
    assert state(run) == before
    assert [x.device for part in run.values() for x in tensors(part.state_dict())] == devices


@pytest.fixture
def saved(path, device):
    mg.save_checkpoint(path, **parts(device))
    return path


def test_a_part_is_missing(saved, device):
    message = r"run.safetensors: expected words, got model, optimizer"
    refused(saved, other_run(device), ValueError, message, words=data.Tokenizer())
    refused(saved, other_run(device), TypeError, r"expected objects with state_dict.*got int for 'epoch'", epoch=3)


@pytest.mark.parametrize("name, part, message", [
    ("model", lambda run: nn.Linear(3, 2, device=run["model"][0].weight.device), r"model: \[Linear\] this state_dict does not fit"),
    ("optimizer", lambda run: optim.AdamW(run["model"].parameters()), r"optimizer: \[AdamW\] expected groups of \[10\]"),
    ("optimizer", lambda run: optim.SGD([{"params": group["params"]} for group in run["optimizer"].param_groups]), r"\[SGD\] expected groups with momentum"),
    ("scheduler", lambda run: optim.lr_scheduler.StepLR(run["optimizer"], 3), r"scheduler: \[StepLR\] expected a state with"),
    ("loader", lambda run: data.DataLoader(run["loader"].dataset, 5), r"loader: \[DataLoader\] expected the state of a loader"),
    ("loader", lambda run: data.Tokenizer(), r"loader: \[Tokenizer\] expected a state"),
])  # fmt: skip
@pytest.mark.parametrize("last", [True, False])
def test_a_part_does_not_fit(saved, name, part, message, last, device):
    run = other_run(device)
    new = {name: part(run)}
    rest = {key: value for key, value in run.items() if key != name}
    refused(saved, {**rest, **new} if last else {**new, **rest}, ValueError, message)


def test_options_that_a_failed_load_brought_are_gone_again(saved, device):
    """The checkpoint's groups have the schedule's "initial_lr", which these do not."""
    run = {name: part for name, part in parts(device).items() if name in ("model", "loader")}
    groups = [{"params": [p for p in run["model"].parameters() if p.ndim == n]} for n in (1, 2)]
    run = {"optimizer": optim.AdamW(groups), **run}
    run["loader"].batch_size = 5
    refused(saved, run, ValueError, "loader")
    assert "initial_lr" not in run["optimizer"].param_groups[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_part_that_fails_while_it_loads(path, error, device):
    class Half:
        """Loads one of two values, then raises an error, unless it is given its own state."""

        def __init__(self, a, b):
            self.a, self.b = a, b

        def state_dict(self):
            return {"a": self.a, "b": self.b}

        def load_state_dict(self, state):
            self.a = state["a"]
            if state["b"] == "bad":
                raise error("stopped")
            self.b = state["b"]

    mg.save_checkpoint(path, **parts(device), half=Half(1, "bad"))
    raised = ValueError if error is RuntimeError else KeyboardInterrupt
    refused(path, {**other_run(device), "half": Half(3, 4)}, raised, "stopped")


def test_a_file_cut_anywhere(saved, device):
    content = saved.read_bytes()
    run = other_run(device)
    for length in range(0, len(content), 97):
        saved.write_bytes(content[:length])
        refused(saved, run, ValueError, "run.safetensors")


def test_files_that_are_no_checkpoints(path, device):
    run = other_run(device)
    mg.save(run["model"], path)
    refused(path, run, ValueError, "expected the format 'minigrad checkpoint 1', got None: try load")
    mg.save(run["model"], path, metadata={"format": "minigrad checkpoint 9"})
    refused(path, run, ValueError, "got 'minigrad checkpoint 9'")
    with pytest.raises(FileNotFoundError):
        mg.load_checkpoint(path.parent / "absent")


RANDOM = {"seed": 1, "position": 2}


@pytest.mark.parametrize("content", [
    None, "", "{", "[]", "3", "{}", '{"parts": []}', '{"parts": {}}', {"parts": {"model": {"$tensor": "absent"}}, "random": RANDOM},
    {"parts": {"model": {"$tensor": ["a"]}}, "random": RANDOM}, {"parts": {"model": {"$dict": 3}}, "random": RANDOM},
    {"parts": {"model": {"$dict": [[[], 1]]}}, "random": RANDOM}, {"parts": {"model": {"$tuple": None}}, "random": RANDOM},
    '{"parts": {"model": ' + "[" * 100_000 + "]" * 100_000 + '}, "random": {}}',
    {"parts": {"model": 3}, "random": RANDOM}, {"parts": {"model": {}}, "random": RANDOM}, {"parts": {"model": None}, "random": RANDOM},
    *({"parts": {"model": {"weight": {"$tensor": "weight"}, "bias": {"$tensor": "bias"}}}, "random": random}
      for random in (None, {}, [1, 2], {"seed": -1, "position": 0}, {"seed": 1, "position": "2"}, {"seed": 2**64, "position": 0},
                     {"seed": 1, "position": None}, {"seed": 1.5, "position": 1})),
])  # fmt: skip
def test_hostile_states(path, content, device):
    metadata = {"format": "minigrad checkpoint 1"}
    if content is not None:
        metadata["state"] = content if isinstance(content, str) else json.dumps(content)
    layer = nn.Linear(2, 1, device=device)
    mg.save(layer, path, metadata=metadata)
    refused(path, {"model": nn.Linear(2, 1, device=device)}, ValueError, r"\[load_checkpoint\] .*run.safetensors")


@pytest.mark.parametrize("change", [
    lambda s: s.clear(), lambda s: s.update(base_lrs=3), lambda s: s.update(base_lrs=[0.1]), lambda s: s.update(last_epoch="3"),
    lambda s: s.update(optimizer=3), lambda s: s.update(_values=[]), lambda s: s.update(_values=None), lambda s: s.pop("turns"), lambda s: s.update(total_steps=None) or s.pop("ends"),
])  # fmt: skip
def test_states_of_schedules_that_do_not_fit(path, change):
    run = other_run("cpu")
    wrong = run["scheduler"].state_dict()
    change(wrong)
    mg.save_checkpoint(path, scheduler=wrong)
    refused(path, {"scheduler": run["scheduler"]}, ValueError, r"scheduler: \[OneCycleLR\] expected")


def test_sequences_of_schedules_take_over_all_or_nothing():
    optimizer = optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    pair = [optim.lr_scheduler.StepLR(optimizer, 2), optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]
    scheduler = optim.lr_scheduler.SequentialLR(optimizer, pair, [3])
    before = copy.deepcopy(scheduler.state_dict())
    wrong = copy.deepcopy(before)
    wrong["schedulers"][0]["last_epoch"] = 7
    del wrong["schedulers"][1]["gamma"]
    for states in (wrong, {**before, "schedulers": before["schedulers"][:1]}, {**before, "milestones": [1, 2]}, {}):
        raises(ValueError, r"\[(SequentialLR|ExponentialLR)\] expected", scheduler.load_state_dict, states)
        assert scheduler.state_dict() == before
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    refuses(ValueError, "ReduceLROnPlateau", "expected a state with", plateau.load_state_dict, before)
