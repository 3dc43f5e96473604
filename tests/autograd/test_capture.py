"""capture: recorded steps have the bits of plain ones, and what goes on changing does.

For every operation of the table, see also `Suite.test_captured` in helpers/checks.
"""

import warnings

import numpy as np
import pytest
from captured import bits, normal
from checks import agree, raises

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim
from minigrad.optim import lr_scheduler

# ── models: as many steps, the same bits ─────────────────────────────────────────────────────────


class Recurrent(nn.Module):
    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, 3)

    def forward(self, x):
        return self.out(self.layer(x)[0][-1])


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True, norm_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(mg.recompute(self.block)(x).mean(1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)), (5, 6)),
    "batch_norm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3)), (5, 6)),
    "renorm": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchRenorm1d(8), nn.Linear(8, 3)), (5, 6)),
    "spectral_norm": (lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 8)), nn.GELU(), nn.Linear(8, 3)), (5, 6)),
    "lenet": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.MaxPool2d(2), nn.GroupNorm(2, 4), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)), (5, 1, 12, 12)),
    "lnlstm": (lambda: Recurrent(nn.LSTM(6, 8, norm="layer", num_layers=2, dropout=0.2), 8), (7, 5, 6)),
    "bngru": (lambda: Recurrent(nn.GRU(6, 8, norm="batch", max_length=7), 8), (7, 5, 6)),
    "mingru": (lambda: Recurrent(nn.MinGRU(6, 8), 8), (7, 5, 6)),
    "transformer": (Attending, (5, 7, 8)),
}  # fmt: skip

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, maximize=True),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-2, centered=True, momentum=0.5),
    "adagrad": lambda p: optim.Adagrad(p, lr=1e-1, lr_decay=1e-2),
}


def train(make_model, shape, make_optimizer, captured, steps=100, inside=True, device="cpu"):
    """Train a model; return all results, the state at the end, and the step."""
    mg.manual_seed(0)
    rng = np.random.default_rng(1)
    model = make_model().to(device)
    optimizer = make_optimizer(model.parameters())
    momentum = {"momentum", "betas"} & set(optimizer.defaults)
    schedule = lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps + 1, cycle_momentum=bool(momentum))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.7)
        optimizer.step()
        if inside:
            schedule.step()
        return loss, norm

    step = mg.capture(step) if captured else step
    batch = 5
    results = []
    for _ in range(steps):
        loss, norm = step(normal(rng, *shape).to(device), mg.tensor(rng.integers(0, 3, batch), device=device))
        results += [float(loss), float(norm)]
        if not inside:
            schedule.step()
    state = bits(model.state_dict().values())
    state += bits([
        value for entries in optimizer.state.values() for value in entries.values() if not isinstance(value, int)
    ])  # fmt: skip
    state += bits([p.grad for p in model.parameters()])
    return results, state, [optimizer.param_groups[0]["lr"], mg.random.get_state()], step


@pytest.mark.parametrize("name", MODELS)
def test_models(name, device):
    steps = 100 if device == "cpu" else 20  # emulated kernels take long
    make = (*MODELS[name], OPTIMIZERS["adam"])
    plain, recorded = (train(*make, captured, steps, device=device) for captured in (False, True))
    assert plain[0] == recorded[0]
    assert len(set(plain[0])) > 1.5 * steps  # the steps differ
    agree(plain[1], recorded[1])
    assert plain[2] == recorded[2]
    assert recorded[3].recordings == 1


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_schedulers(name, inside):
    plain, recorded = (train(*MODELS["mlp"], OPTIMIZERS[name], captured, 30, inside) for captured in (False, True))
    assert plain[0] == recorded[0]
    agree(plain[1], recorded[1])
    assert plain[2] == recorded[2]


def test_an_optimizer_of_the_users_own():
    class Signs(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        def update(self, group, batch, grads):
            with mg.no_grad():
                for parameter, grad in zip(batch.parameters, grads, strict=True):
                    parameter -= group["lr"] * mg.sign(grad)

    plain, recorded = (
        train(*MODELS["mlp"], lambda p: Signs(p, 0.01), captured, 30, inside=False) for captured in (False, True)
    )
    assert plain[0] == recorded[0]
    agree(plain[1], recorded[1])


def test_derivatives_of_higher_order_and_a_function_without_parameters(rng):
    def curvature(x):
        x = x.detach().requires_grad_()
        (first,) = mg.grad((mg.sin(x) * x).sum(), [x], create_graph=True)
        return mg.grad((first * first).sum(), [x])[0]

    captured = mg.capture(curvature, warmup=0)
    for _ in range(4):
        x = normal(rng, 3, 4)
        agree([captured(x)], [curvature(x)])


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1:3], lambda x: mg.broadcast_to(x[0], (4, 6))]
)
def test_arguments_that_are_views(view, rng):
    w = normal(rng, 4, 4)

    def step(x):
        return (x @ w[: x.shape[1], :3]).exp() if x.shape[1] <= 4 else x.exp()

    captured = mg.capture(step, warmup=0)
    for _ in range(3):
        x = view(normal(rng, 4, 6))
        agree([captured(x)], [step(x)])
    assert captured.recordings == 1


# ── results, gradients and checks of each run ─────────────────────────────────────────────────────


def test_results_have_memory_of_their_own_and_no_history(rng):
    w = normal(rng, 3).requires_grad_()
    captured = mg.capture(lambda x: {"y": x * w, "more": (x.sum(), [None, 2, "a"])}, warmup=1)
    xs = [normal(rng, 3) for _ in range(5)]
    found = [captured(x) for x in xs]
    for x, result in zip(xs, found, strict=True):
        np.testing.assert_array_equal(result["y"].numpy(), (x * w.detach()).numpy())
        assert not result["y"].requires_grad
        assert result["more"][1] == [None, 2, "a"]
        assert result["more"][0].item() == x.sum().item()


def test_a_tensor_from_outside_is_returned_itself(rng):
    w = normal(rng, 3)
    captured = mg.capture(lambda x: (x + w, w), warmup=0)
    assert all(captured(w)[1] is w for _ in range(3))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_borders(mode, rng):
    w = mg.ones(8, requires_grad=True)

    def step(x):
        y = F.pad(x * w, (1, 2), mode=mode)
        return y, *mg.grad(y, [w], y)

    captured = mg.capture(step, warmup=1)
    for _ in range(3):
        x = normal(rng, 2, 8)
        agree(captured(x), step(x))
    assert captured.recordings == 1


def test_what_the_run_makes_is_made_in_each(rng):
    """A module, a leaf, and a seed within the step need no new recordings."""
    w = mg.ones(3, requires_grad=True)

    def step(x, y):
        mg.manual_seed(5)
        x = F.dropout(x, 0.5).detach().requires_grad_()
        w.grad = None
        loss = nn.CrossEntropyLoss()(x * w, y)
        loss.backward()
        return loss, x.grad

    captured, y = mg.capture(step, warmup=1), mg.tensor([0, 2])
    for _ in range(5):
        x = normal(rng, 2, 3)
        agree(captured(x, y), step(x, y))
    assert captured.recordings == 1


@pytest.mark.parametrize(
    "loss", [F.binary_cross_entropy_with_logits, lambda x, y: F.binary_cross_entropy(mg.sigmoid(x), y), F.cross_entropy]
)
def test_probabilities_are_checked_in_each_run(loss, rng):
    captured, x = mg.capture(loss, warmup=0), normal(rng, 4, 3)
    for _ in range(3):
        y = mg.softmax(normal(rng, 4, 3), -1)
        assert captured(x, y).item() == loss(x, y).item()
    raises(ValueError, "expected", captured, x, mg.full((4, 3), np.nan))
    assert captured.recordings == 1


@pytest.mark.parametrize("layer", [lambda: nn.LSTM(3, 4, norm="layer"), lambda: nn.GRU(3, 4), lambda: nn.MinGRU(3, 4)])
def test_lengths_are_checked_in_each_run(layer, rng):
    layer = layer()

    def step(x, lengths):
        layer.zero_grad()
        y = layer(x, lengths=lengths)[0]
        (y * y).sum().backward()
        return y

    captured = mg.capture(step, warmup=0)
    for lengths in ([5, 2, 3], [1, 5, 5], [0, 4, 2]):
        x, lengths = normal(rng, 5, 3, 3), mg.tensor(lengths)
        ours = bits([captured(x, lengths), *(p.grad for p in layer.parameters())])
        agree(ours, bits([step(x, lengths), *(p.grad for p in layer.parameters())]))
    raises(ValueError, "expected lengths from 0 to 5, got 6", captured, normal(rng, 5, 3, 3), mg.tensor([1, 6, 2]))
    assert captured.recordings == 1


def test_many_kinds_of_arguments(rng):
    captured = mg.capture(lambda x, i: x * i)
    with pytest.warns(UserWarning, match="100 kinds of arguments have been passed"):
        [captured(mg.ones(2), i) for i in range(102)]
    for _ in range(3):
        captured(mg.ones(2), -1)
    assert captured.recordings == 1


def test_results_without_history_are_announced(rng):
    w = mg.ones(3, requires_grad=True)
    captured = mg.capture(lambda x: x * w, warmup=0)
    with pytest.warns(UserWarning, match="the results of <lambda> have no history"):
        captured(normal(rng, 3))


def test_the_limit(rng):
    captured = mg.capture(lambda x: x * 2, warmup=0, limit=2)
    for n in (1, 2):
        captured(normal(rng, n))
    with pytest.warns(UserWarning, match=r"\[capture\] 2 runs of <lambda> have been recorded"):
        captured(normal(rng, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = normal(rng, 3)
        agree([captured(x)], [x * 2])
    assert captured.recordings == 2


def test_gradients_accumulate_and_are_found(rng):
    """Forward and backward are captured, the rest is not: gradients add up until they are set to None."""

    def make():
        mg.manual_seed(0)
        model = nn.Linear(3, 2)

        def step(x):
            loss = (model(x) ** 2).sum()
            loss.backward()
            return loss

        return model, step

    xs = [normal(rng, 4, 3) for _ in range(12)]
    found = []
    for captured in (False, True):
        model, step = make()
        step = mg.capture(step, warmup=0) if captured else step
        seen = []
        for k, x in enumerate(xs):
            step(x)
            seen += bits([model.weight.grad, model.bias.grad])
            if k % 4 == 3:
                model.zero_grad()
            if k == 6:
                model.weight.grad = mg.ones((2, 3))
        found.append(seen)
        recordings = step.recordings if captured else None
    agree(*found)
    assert 2 <= recordings <= 6


def test_calls_find_the_gradients_of_their_time(rng):
    """Two optimizers' steps in one: each finds the gradients that were there when it was called."""

    def make():
        a, b = mg.ones(3, requires_grad=True), mg.ones(3, requires_grad=True)
        first, second = optim.SGD([a], 0.1), optim.Adam([a, b], 0.1)

        def step(x):
            first.zero_grad()
            (a * x).exp().sum().backward()
            first.step()
            second.zero_grad()
            (a * b * x).sin().sum().backward()
            second.step()
            second.zero_grad()

        return a, b, step

    xs, found = [normal(rng, 3) for _ in range(8)], []
    for captured in (False, True):
        a, b, step = make()
        step = mg.capture(step) if captured else step
        for x in xs:
            step(x)
        found.append(bits([a, b]))
        assert a.grad is None
    agree(*found)


def test_an_optimizer_that_uses_the_gradients_of_the_call_before_is_refused(rng):
    """The next run overwrites them, with temporary tensors, before the optimizer sees them."""
    w = mg.ones(3, requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)

    def late(x):
        [mg.exp(x * i) for i in range(5)]
        optimizer.step()
        optimizer.zero_grad()
        (w * x).sum().backward()

    def clipped(x):
        nn.utils.clip_grad_norm_([w], 1.0)
        optimizer.zero_grad()
        (w * x).sum().backward()

    for step in (late, clipped):
        captured = mg.capture(step, warmup=1)
        captured(normal(rng, 3))
        with pytest.raises(mg.CaptureError, match="expected an optimizer that uses the gradients of its own call"):
            captured(normal(rng, 3))

    # each a function of its own
    backward = mg.capture(lambda x: (w * x).sum().backward(), warmup=0)
    update = mg.capture(lambda: (optimizer.step(), optimizer.zero_grad())[1], warmup=0)
    with mg.no_grad():
        w.copy_(mg.ones(3))
    optimizer.zero_grad()
    expected = np.ones(3, np.float32)
    for _ in range(5):
        x = normal(rng, 3)
        backward(x)
        update()
        expected -= np.float32(0.1) * x.numpy()
        np.testing.assert_allclose(w.detach().numpy(), expected, rtol=1e-6)


def test_a_history_that_a_call_keeps_is_not_stored(rng):
    layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    captured = mg.capture(lambda x: layers(x), warmup=0)
    with pytest.warns(UserWarning, match="no history"):
        captured(normal(rng, 5, 3))
    assert captured.recordings == 1


def test_a_call_that_replaces_gradients_is_refused(rng):
    w = mg.ones((3, 3), requires_grad=True)

    def step(x):
        w.grad = x.T
        nn.utils.clip_grad_norm_([w], 1.0)

    with pytest.raises(mg.CaptureError, match="clip_grad_norm_, which replaces gradients: make them contiguous first"):
        mg.capture(step, warmup=0)(normal(rng, 3, 3))


def test_gradients_that_others_save_are_known_to_be_overwritten(rng):
    w = normal(rng, 3).requires_grad_()

    def step(x):
        w.grad = None
        (w * x).sum().backward()

    captured = mg.capture(step, warmup=0)
    captured(normal(rng, 3))
    y = (w * w.grad).sum()
    captured(normal(rng, 3))
    raises(mg.GradientError, "written in place", y.backward)


def test_tensors_from_outside_are_known_to_be_written():
    norm, w = nn.BatchNorm1d(2), mg.ones(2, requires_grad=True)

    def step(x):
        w.detach().mul_(0.5)
        return norm(x)

    captured = mg.capture(step, warmup=0)
    x = mg.random.normal(shape=(4, 2))
    captured(x)
    y = (w * w).sum()
    before = norm.running_mean.version
    captured(x)
    assert norm.running_mean.version > before
    assert w.tolist() == [0.25, 0.25]
    raises(mg.GradientError, "written in place", y.backward)
