"""capture: a run is recorded anew when modules have changed, their arguments, or tensors."""

import functools
import weakref
from dataclasses import dataclass, field

import pytest
from captured import bits, check, normal, run
from checks import agree, raises

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim

FACTOR = 1.0  # changed by a test


class Scaled(nn.Module):
    """Its methods read what `forward` does not, which the tests do not call."""

    shared = 1.0

    def __init__(self):
        super().__init__()
        self.beta, self.options, self.part = 2.0, {"gamma": 1.0}, nn.Linear(3, 3)

    def modes(self, x):
        return x * 2 if self.training else x * 3

    def drops(self, x):
        return F.dropout(x, 0.5, training=self.training)

    def loss(self, x):
        return self.part(x).sum() * self.beta * self.options["gamma"] * self.shared

    def weighted(self, x):
        return x @ self.part.weight

    def computed(self, x):
        return x * getattr(self, "be" + "ta")

    @mg.capture
    def decorated(self, x):
        return Scaled.loss(self, x)


@dataclass
class Trainer:
    model: nn.Module = field(default_factory=Scaled)
    history: list = field(default_factory=list)
    epoch: int = 0

    def __post_init__(self):
        self.other = Scaled()
        self.other.beta = 3.0

    def step(self, x):
        return self.model.loss(x)


MODULE_CHANGES = {
    "mode": ("modes", lambda m: m.eval()),
    "dropout": ("drops", lambda m: m.eval()),
    "option": ("loss", lambda m: setattr(m, "beta", 3.0)),
    "computed name": ("computed", lambda m: setattr(m, "beta", 3.0)),
    "dict": ("loss", lambda m: m.options.update(gamma=2.0)),
    "class": ("loss", lambda m: setattr(m, "shared", 2.0)),
    "sublayer": ("loss", lambda m: setattr(m, "part", nn.Identity())),
    "parameter": ("weighted", lambda m: setattr(m.part, "weight", nn.Parameter(mg.ones((3, 3))))),
}


@pytest.mark.parametrize("how", ["method", "partial", "variable", "argument", "list", "dict", "weak reference"])
@pytest.mark.parametrize("name", MODULE_CHANGES)
def test_changes_of_a_module_whose_methods_run(name, how):
    method, change = MODULE_CHANGES[name]
    function, model = getattr(Scaled, method), Scaled()
    box, boxes, reference = [model], {"a": [model]}, weakref.ref(model)
    step = {
        "method": getattr(model, method),
        "partial": functools.partial(functools.partial(function), model),
        "variable": lambda x: function(model, x),
        "argument": lambda x, m: function(m, x),
        "list": lambda x: function(box[0], x),
        "dict": lambda x: function(boxes["a"][0], x),
        "weak reference": lambda x: function(reference(), x),
    }[how]
    check(step, lambda: change(model), *([model] if how == "argument" else []))


def test_changes_of_a_module_with_a_captured_method():
    model = Scaled()
    check(lambda x: Scaled.loss(model, x), lambda: setattr(model, "beta", 3.0), captured=model.decorated)


@pytest.mark.parametrize("change", [
    lambda trainer: setattr(trainer.model, "beta", 3.0),
    lambda trainer: setattr(trainer, "model", trainer.other),
    lambda trainer: setattr(trainer.model, "loss", lambda x: x),
])  # fmt: skip
def test_changes_of_an_object_that_holds_the_module(change):
    trainer = Trainer()
    check(trainer.step, lambda: change(trainer))


def test_changes_of_what_the_function_does_not_read(rng):
    trainer, x = Trainer(), normal(rng, 2, 3)
    captured = mg.capture(trainer.step)
    for epoch in range(20):
        trainer.history.append(run(captured, x).item())
        trainer.epoch = epoch
        trainer.model.beta = float("2.0")  # an equal number
    assert captured.recordings == 1
    assert len(set(trainer.history)) == 1


def test_recorded_anew_for_other_shapes_dtypes_numbers_and_modes(rng):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    captured = mg.capture(lambda x, scale=1.0: model(x).sum() * scale, warmup=0)
    captured(normal(rng, 2, 3))
    captured(normal(rng, 2, 3))
    assert captured.recordings == 1
    captured(normal(rng, 5, 3))
    captured(normal(rng, 2, 3), 2.0)
    captured(normal(rng, 2, 3), scale=2.0)
    assert captured.recordings == 4
    model.eval()
    x = normal(rng, 2, 3)
    for _ in range(2):
        assert captured(x).item() == model(x).sum().item()
    assert captured.recordings == 5
    model.train()
    captured(x)
    with mg.no_grad():
        captured(x)
    assert captured.recordings == 6


def test_writes_from_outside_are_seen_and_replaced_tensors_are_recorded_anew(rng):
    model = nn.Linear(3, 2)
    captured = mg.capture(lambda x: model(x), warmup=0)
    x = normal(rng, 4, 3)
    captured(x)
    model.load_state_dict(nn.Linear(3, 2).state_dict())
    agree([captured(x)], [model(x)])
    assert captured.recordings == 1
    model.weight = nn.Parameter(normal(rng, 2, 3))
    agree([captured(x)], [model(x)])
    assert captured.recordings == 2
    model.bias.requires_grad_(False)
    captured(x)
    assert captured.recordings == 3


def mlp():
    return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2))


@pytest.mark.parametrize("change", [
    lambda model: setattr(model[0], "weight", nn.Parameter(mg.ones((3, 3)))),
    lambda model: model.append(nn.ReLU()),
    lambda model: setattr(model[1], "p", 0.1),
    lambda model: setattr(model[2], "bias", None),
    lambda model: model.eval(),
    lambda model: model[0].weight.requires_grad_(False),
])  # fmt: skip
def test_changes_of_modules_are_seen(change, rng):
    """With a backward pass and an optimizer, which hold the old parameters."""
    xs, found = [normal(rng, 4, 3) for _ in range(8)], []
    for captured in (False, True):
        mg.manual_seed(0)
        model = mlp()
        before = list(model.parameters())
        optimizer = optim.SGD(model.parameters(), 0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = mg.capture(step, warmup=0) if captured else step
        seen = []
        for k, x in enumerate(xs):
            if k == 4:
                change(model)
            seen.append(step(x).item())
        found.append((seen, bits([*model.parameters(), *before])))
        assert not captured or 2 <= step.recordings <= 3  # the gradient of a new parameter is not set to None
    assert found[0][0] == found[1][0]
    agree(found[0][1], found[1][1])


class Listed(nn.Module):
    """Layers in a list, and one in a dict, of which only methods of other names are called."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
        self.scale = 2.0

    def encode(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x) * self.scale

    forward = encode


@pytest.mark.parametrize("name", ["encode", "__call__"])
@pytest.mark.parametrize("change", [
    lambda model: model.layers.__setitem__(0, nn.Linear(3, 3)),
    lambda model: model.heads.__setitem__("a", nn.Linear(3, 2)),
    lambda model: setattr(model, "scale", 3.0),
])  # fmt: skip
def test_changes_of_modules_in_modules_are_seen(change, name, rng):
    model = Listed()
    captured = mg.capture(lambda x: getattr(model, name)(x), warmup=0)
    xs = [normal(rng, 4, 3) for _ in range(4)]
    for k, x in enumerate(xs):
        if k == 2:
            change(model)
        agree([captured(x)], [getattr(model, name)(x)])
    assert captured.recordings == 2


def test_another_layout_is_seen(rng):
    w = normal(rng, 3, 3)
    captured, x = mg.capture(lambda x: x @ w, warmup=0), normal(rng, 2, 3)
    captured(x)
    w.set_(w.T)
    agree([captured(x)], [x @ w])


def test_changes_of_variables_are_seen(monkeypatch, rng):
    """Those of the function around it, and global ones."""
    factor, model = 1.0, nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean() * factor * FACTOR
        loss.backward()
        optimizer.step()
        return loss

    global FACTOR
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    captured, x = mg.capture(step, warmup=0), normal(rng, 4, 3)

    def check():
        state = mg.random.get_state(), [p.copy() for p in model.parameters()]
        expected = step(x).item(), bits(model.parameters())
        with mg.no_grad():
            for p, q in zip(model.parameters(), state[1], strict=True):
                p.copy_(q)
        assert captured(x).item() == expected[0]
        agree(bits(model.parameters()), expected[1])

    check()
    check()
    assert captured.recordings == 1
    factor = 2.0
    check()
    FACTOR = 3.0
    check()
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.2)
    check()
    assert captured.recordings == 4
    optimizer.add_param_group({"params": [nn.Parameter(mg.ones(2))]})
    check()
    assert captured.recordings == 5


@pytest.mark.parametrize("add", [
    lambda model: model[0].register_forward_hook(lambda *_: None),
    lambda model: model[0].weight.register_hook(lambda g: g * 2),
])  # fmt: skip
def test_hooks_that_are_added_later_are_seen(add, rng):
    model = mlp()

    def step(x):
        model.zero_grad()
        model(x).sum().backward()

    captured = mg.capture(step, warmup=0)
    captured(normal(rng, 4, 3))
    captured(normal(rng, 4, 3))
    add(model)
    raises(mg.CaptureError, "hook", captured, normal(rng, 4, 3))
