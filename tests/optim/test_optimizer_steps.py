"""Optimizers: the reads and writes of a step, and gradients before and after it."""

import itertools

import numpy as np
import pytest
from checks import array, near, raises, tensor

import minigrad as mg
from minigrad import nn, optim
from minigrad.engine.ops.optimizer import grad_norm as optimizer_norm


def scaled(g, square, t):
    """Return Adam's direction from its running means, `square` that of g², after t steps."""
    return (g / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)


# One step of each rule: (parameter, gradient, two states that begin at zero, number of the step) to what they become.
RULES = {
    "SGD": lambda x, g, m, v, t: (x - 0.1 * (m := 0.9 * m + g), m, v),
    "Adam": lambda x, g, m, v, t: (
        x - 0.1 * scaled(m := 0.9 * m + 0.1 * g, v := 0.999 * v + 0.001 * g * g, t), m, v
    ),
    "AdamW": lambda x, g, m, v, t: (
        0.999 * x - 0.1 * scaled(m := 0.9 * m + 0.1 * g, v := 0.999 * v + 0.001 * g * g, t), m, v
    ),
    "RMSprop": lambda x, g, m, v, t: (x - 0.1 * g / (np.sqrt(v := 0.99 * v + 0.01 * g * g) + 1e-8), m, v),
    "Adagrad": lambda x, g, m, v, t: (x - 0.1 * g / (np.sqrt(v := v + g * g) + 1e-10), m, v),
    "Adadelta": lambda x, g, m, v, t: (
        x - 0.1 * (d := np.sqrt(m + 1e-6) / np.sqrt((v := 0.9 * v + 0.1 * g * g) + 1e-6) * g), 0.9 * m + 0.1 * d * d, v
    ),
    "Lion": lambda x, g, m, v, t: (x - 0.1 * np.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g, v),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_steps_follow_the_formula(name, device, rng):
    x, m, v = rng.standard_normal(5), np.zeros(5), np.zeros(5)
    parameter = tensor(x, device, True)
    optimizer = getattr(optim, name)([parameter], lr=0.1, **({"momentum": 0.9} if name == "SGD" else {}))
    for t in range(1, 5):
        g = rng.standard_normal(5)
        parameter.grad = tensor(g, device)
        optimizer.step()
        x, m, v = RULES[name](x, g, m, v, t)
        near(parameter, x, rtol=1e-12)


@pytest.mark.parametrize("name, options", [
    ("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("Adagrad", {}), ("Adadelta", {}), ("Lion", {"weight_decay": 0.1}),
])  # fmt: skip
def test_many_tensors_are_updated_like_one(name, options, device):
    """Make more than a GPU kernel takes at once, some empty, some at addresses that are not aligned for vectors."""
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
    """An optimizer that kept references to them would double their memory."""
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
    raises(mg.GradientError, "in place", loss.backward)


def test_a_parameter_that_moves_is_planned_anew():
    """A kernel call updates tensors of one device, even if tensors have moved since the last step."""

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


@pytest.mark.parametrize("name, options", [
    ("Muon", {}), ("Adafactor", {}), ("NAdam", {}), ("RAdam", {}), ("Lion", {}),
    ("SGD", {"momentum": 0.9, "lr_in_momentum": True, "weight_decay": 0.1, "decoupled_weight_decay": True}),
])  # fmt: skip
def test_captured_steps_with_a_changing_rate(name, options, device):
    """They are those without capture, and from the second one on, memory does not grow."""
    x, found = tensor(np.random.default_rng(0).standard_normal((8, 5)), device), []
    for decorate in (mg.capture, lambda step: step):
        weight = tensor(np.random.default_rng(1).standard_normal((5, 3)), device, True)
        optimizer, memory = getattr(optim, name)([weight], **options), []

        @decorate
        def step(x, weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            loss = ((x @ weight) ** 2).mean()
            loss.backward()
            optimizer.step()

        for t in range(8):
            optimizer.param_groups[0]["lr"] = 0.01 * (1 + t % 3)
            step(x)
            memory.append(mg.memory_allocated())
        assert len({*memory[3:]}) == 1
        found.append(array(weight))
    np.testing.assert_array_equal(*found)


def test_training_lowers_the_loss():
    mg.manual_seed(0)
    x = mg.random.normal(0.0, 1.0, (64, 4))
    y = x @ mg.random.normal(0.0, 1.0, (4, 1))
    for name, options in (("SGD", {"lr": 0.1}), ("Adam", {"lr": 0.1}), ("AdamW", {"lr": 0.1}), ("RMSprop", {"lr": 0.02}),
                          ("Adagrad", {"lr": 0.5}), ("NAdam", {"lr": 0.1}), ("RAdam", {"lr": 0.1}), ("Lion", {"lr": 0.05}),
                          ("Adadelta", {"lr": 20.0}), ("Adafactor", {"lr": 0.1}), ("Muon", {"lr": 0.1})):  # fmt: skip
        model = nn.Linear(4, 1, bias=name != "Muon")
        optimizer = getattr(optim, name)(model.parameters(), **options)
        losses = []
        for _ in range(100):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.05 * losses[0], name
