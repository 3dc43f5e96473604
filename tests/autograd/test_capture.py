"""capture: recorded steps have the bits of plain ones, what goes on changing does, and what cannot be recorded raises.

For every operation of the table, see also `Suite.test_captured` in helpers/checks.
"""

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim
from minigrad.optim import lr_scheduler

FACTOR = 1.0  # changed by a test


def normal(rng, *shape):
    return mg.tensor(rng.standard_normal(shape).astype("float32"))


def bits(tensors):
    return [x.detach().to("cpu").numpy().copy() for x in tensors]


def equal(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


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
    equal(plain[1], recorded[1])
    assert plain[2] == recorded[2]
    assert recorded[3].recordings == 1


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_schedulers(name, inside):
    plain, recorded = (train(*MODELS["mlp"], OPTIMIZERS[name], captured, 30, inside) for captured in (False, True))
    assert plain[0] == recorded[0]
    equal(plain[1], recorded[1])
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
    equal(plain[1], recorded[1])


def test_derivatives_of_higher_order_and_a_function_without_parameters(rng):
    def curvature(x):
        x = x.detach().requires_grad_()
        (first,) = mg.grad((mg.sin(x) * x).sum(), [x], create_graph=True)
        return mg.grad((first * first).sum(), [x])[0]

    captured = mg.capture(curvature, warmup=0)
    for _ in range(4):
        x = normal(rng, 3, 4)
        equal(bits([captured(x)]), bits([curvature(x)]))


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
        equal(bits([captured(x)]), bits([step(x)]))
    assert captured.recordings == 1


# ── what a recording depends on ───────────────────────────────────────────────────────────────────


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
    equal(bits([captured(x)]), bits([model(x)]))
    assert captured.recordings == 1
    model.weight = nn.Parameter(normal(rng, 2, 3))
    equal(bits([captured(x)]), bits([model(x)]))
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
    equal(found[0][1], found[1][1])


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
        equal(bits([captured(x)]), bits([getattr(model, name)(x)]))
    assert captured.recordings == 2


def test_another_layout_is_seen(rng):
    w = normal(rng, 3, 3)
    captured, x = mg.capture(lambda x: x @ w, warmup=0), normal(rng, 2, 3)
    captured(x)
    w.set_(w.T)
    equal(bits([captured(x)]), bits([x @ w]))


def test_changes_of_variables_are_seen(rng):
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
    FACTOR = 1.0
    captured, x = mg.capture(step, warmup=0), normal(rng, 4, 3)

    def check():
        state = mg.random.get_state(), [p.copy() for p in model.parameters()]
        expected = step(x).item(), bits(model.parameters())
        with mg.no_grad():
            for p, q in zip(model.parameters(), state[1], strict=True):
                p.copy_(q)
        assert captured(x).item() == expected[0]
        equal(bits(model.parameters()), expected[1])

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
    with pytest.raises(mg.CaptureError, match="hook"):
        captured(normal(rng, 4, 3))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_borders(mode, rng):
    w = mg.ones(8, requires_grad=True)

    def step(x):
        y = F.pad(x * w, (1, 2), mode=mode)
        return y, *mg.grad(y, [w], y)

    captured = mg.capture(step, warmup=1)
    for _ in range(3):
        x = normal(rng, 2, 8)
        for ours, theirs in zip(captured(x), step(x), strict=True):
            equal(bits([ours]), bits([theirs]))
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
        for ours, theirs in zip(captured(x, y), step(x, y), strict=True):
            equal(bits([ours]), bits([theirs]))
    assert captured.recordings == 1


@pytest.mark.parametrize(
    "loss", [F.binary_cross_entropy_with_logits, lambda x, y: F.binary_cross_entropy(mg.sigmoid(x), y), F.cross_entropy]
)
def test_probabilities_are_checked_in_each_run(loss, rng):
    captured, x = mg.capture(loss, warmup=0), normal(rng, 4, 3)
    for _ in range(3):
        y = mg.softmax(normal(rng, 4, 3), -1)
        assert captured(x, y).item() == loss(x, y).item()
    with pytest.raises(ValueError, match="expected"):
        captured(x, mg.full((4, 3), np.nan))
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
        equal(ours, bits([step(x, lengths), *(p.grad for p in layer.parameters())]))
    with pytest.raises(ValueError, match="expected lengths from 0 to 5, got 6"):
        captured(normal(rng, 5, 3, 3), mg.tensor([1, 6, 2]))
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
        equal(bits([captured(x)]), bits([x * 2]))
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
    equal(*found)
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
    equal(*found)


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
    with pytest.raises(mg.GradientError, match="written in place"):
        y.backward()


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
    with pytest.raises(mg.GradientError, match="written in place"):
        y.backward()


def test_a_method(rng):
    class Trainer:
        def __init__(self, factor):
            self.factor = factor

        @mg.capture
        def step(self, x):
            return x * self.factor

    x, trainers = normal(rng, 3), [Trainer(2.0), Trainer(3.0)]
    for _ in range(4):
        for trainer in trainers:
            equal(bits([trainer.step(x)]), bits([x * trainer.factor]))
    assert [trainer.step.recordings for trainer in trainers] == [1, 1]
    kept = [weakref.ref(trainer) for trainer in trainers]
    del trainers, trainer
    gc.collect()
    assert [one() for one in kept] == [None, None]


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def hooked(x):
    layer = nn.Linear(3, 3)
    layer.register_forward_hook(lambda *_: None)
    return layer(x)


def gradient_hook(x):
    y = x.detach().requires_grad_()
    z = y * 2
    z.register_hook(lambda g: None)
    z.sum().backward()


ARRAY = np.ones(3, np.float32)
HOOKED = mg.ones(3, requires_grad=True)


class DLPack:
    """An array of another library, which NumPy does not know."""

    def __dlpack__(self, **options):
        return ARRAY.__dlpack__(**options)

    def __dlpack_device__(self):
        return ARRAY.__dlpack_device__()


@pytest.mark.parametrize("step, message", [
    (lambda x: x.sum().item(), "a tensor whose values are read"),
    (lambda x: x if x.sum() > 0 else -x, "a tensor whose values are read"),
    (lambda x: float(x.sum()), "a tensor whose values are read"),
    (lambda x: str(x), "a tensor whose values are read"),
    (lambda x: x.numpy().sum(), "a tensor whose values are read"),
    (lambda x: np.asarray(x), "a tensor whose values are read"),
    (lambda x: x.tolist(), "a tensor whose values are read"),
    (lambda x: x[x > 0], "nonzero, whose result has a shape that depends on values"),
    (lambda x: x + ARRAY, "a conversion from ndarray"),
    (lambda x: x + mg.tensor(ARRAY), "a conversion from ndarray"),
    (lambda x: x + mg.asarray(ARRAY), "a conversion from ndarray"),
    (lambda x: x + mg.from_dlpack(ARRAY), "from_dlpack of ndarray"),
    (lambda x: x + mg.asarray(DLPack()), "a conversion from DLPack"),
    (lambda x: mg.tensor(x), "tensor with a tensor"),
    (hooked, "a module's hook"),
    (gradient_hook, "a hook"),
    (lambda x: HOOKED.set_(x), "set_"),
    (lambda x: optim.SGD([HOOKED], 0.1).step(lambda: None), "SGD.step with arguments"),
    (lambda x: optim.LBFGS([HOOKED]).step(lambda: (HOOKED * x).sum()), "LBFGS.step with arguments"),
])  # fmt: skip
def test_what_would_not_be_repeated(step, message):
    captured = mg.capture(step, warmup=0)
    x = mg.ones(3)
    with pytest.raises(
        mg.CaptureError,
        match=rf"\[capture\] expected a step that runs again without Python, got {message}.*, at .*test_capture.py:\d+",
    ):
        captured(x)
    # nothing is left of the attempt
    assert mg.capture(lambda x: x * 2, warmup=0)(x).tolist() == [2, 2, 2]
    assert x.sum().item() == 3


def test_other_errors(rng):
    x = mg.ones(3)
    with pytest.raises(TypeError, match=r"\[capture\] expected a function, got int"):
        mg.capture(3)
    with pytest.raises(ValueError, match=r"\[capture\] expected warmup >= 0, got -1"):
        mg.capture(abs, warmup=-1)
    with pytest.raises(TypeError, match=r"\[capture\] expected tensors as arguments, got ndarray"):
        mg.capture(mg.exp)(ARRAY)
    with pytest.raises(TypeError, match=r"\[capture\] expected arguments that are tensors.*got set"):
        mg.capture(lambda s: x)({1})
    with pytest.raises(ValueError, match=r"\[capture\] expected arguments that do not require grad"):
        mg.capture(mg.exp)(HOOKED)
    with pytest.raises(mg.CaptureError, match=r"\[capture\] expected a step that leaves its arguments as they are"):
        mg.capture(lambda x: x.add_(1), warmup=0)(x)
    with pytest.raises(mg.CaptureError, match=r"\[capture\] expected a step that returns tensors.*got object"):
        mg.capture(lambda x: object(), warmup=0)(x)


def carried(box):
    def step(x):
        box["h"] = (box["h"] * 0.5 + x).tanh()
        return box["h"].sum()

    return step


def kept_for_later(box):
    def step(x):
        if "b" not in box:
            box["b"] = mg.zeros(3)
        box["b"] += x
        return box["b"].sum()

    return step


def logged(box):
    def step(x):
        box.setdefault("log", []).append(x.sum())

    return step


@pytest.mark.parametrize("make", [carried, kept_for_later, logged])
def test_a_step_that_stores_what_is_overwritten(make):
    with pytest.raises(
        mg.CaptureError, match=r"expected a step that keeps no tensor of a run.*stores \d+ bytes outside"
    ):
        mg.capture(make({"h": mg.ones(3)}), warmup=0)(mg.ones(3))


def test_arguments_that_the_step_changes(rng):
    model = nn.Linear(3, 3)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x, w):
        optimizer.zero_grad()
        (model(x) ** 2).mean().backward()
        optimizer.step()
        return (w * 2).sum()

    with pytest.raises(mg.CaptureError, match="expected arguments with memory of their own"):
        mg.capture(step, warmup=0)(mg.ones((4, 3)), model.weight.detach())
    captured = mg.capture(step, warmup=0)
    captured(mg.ones((4, 3)), mg.ones((3, 3)))
    with pytest.raises(mg.CaptureError, match="expected arguments with memory of their own"):
        captured(mg.ones((4, 3)), model.weight.detach())
    with pytest.raises(mg.CaptureError, match=r"lets an argument of shape .* require grad"):
        mg.capture(lambda x: x.requires_grad_().sum(), warmup=0)(mg.ones(3))


def test_labels_and_indices_are_checked_in_each_run(rng):
    logits, table = normal(rng, 4, 3), normal(rng, 5, 2)
    loss = mg.capture(lambda y: F.cross_entropy(logits, y), warmup=0)
    rows = mg.capture(lambda i: F.embedding(i, table), warmup=0)
    for step in (loss, rows):
        step(mg.tensor([0, 1, 2, 1]))
        with pytest.raises(IndexError, match=r"got 7|index 7"):
            step(mg.tensor([0, 1, 7, 1]))
    y = mg.tensor([2, 2, 0, 1])
    assert loss(y).item() == F.cross_entropy(logits, y).item()
    equal(bits([rows(y)]), bits([table[y]]))


def test_an_error_of_the_recorded_call_leaves_nothing(rng):
    def step(x, fails):
        y = x * 2
        if fails:
            raise ArithmeticError("of the step")
        return y

    captured = mg.capture(step, warmup=0)
    with pytest.raises(ArithmeticError):
        captured(mg.ones(3), True)
    assert captured(mg.ones(3), False).tolist() == [2, 2, 2]
    assert captured.recordings == 1


# ── memory, threads, nesting ──────────────────────────────────────────────────────────────────────


def test_memory_is_kept_for_the_recording_and_given_back_with_it(rng):
    gc.collect()
    before = mg.memory_allocated()
    model = nn.Sequential(nn.Linear(50, 60), nn.LayerNorm(60), nn.Linear(60, 4))
    kept = weakref.ref(model)

    def make(model):
        def step(x):
            model.zero_grad()
            loss = model(x).logsumexp(-1).sum()
            loss.backward()
            return loss

        return mg.capture(step, warmup=0)

    captured = make(model)
    x = normal(rng, 20, 50)
    expected = [captured(x).item() for _ in range(3)]
    gradient = model[0].weight.grad
    values = gradient.numpy().copy()
    held = mg.memory_allocated()
    for _ in range(50):
        captured(x)
    assert mg.memory_allocated() == held
    assert len(set(expected)) == 1
    del captured
    model.zero_grad()
    gc.collect()
    rubbish = [mg.full(n, np.nan) for n in (60, 240, 3000, 1000, 1200)]
    np.testing.assert_array_equal(gradient.numpy(), values)  # a tensor that outlives the recording keeps its memory
    del model, gradient, rubbish, x
    gc.collect()
    assert kept() is None
    assert mg.memory_allocated() == before


def test_memory_that_the_kernels_use_outlives_its_tensors(rng):
    """Even where Python no longer holds a tensor that was read: another recording is made, but nothing is corrupted."""
    holder = {"w": normal(rng, 1000)}
    captured = mg.capture(lambda x: x * holder["w"], warmup=0)
    x = normal(rng, 1000)
    captured(x)
    expected = holder["w"].numpy().copy()
    del holder["w"]
    gc.collect()
    rubbish = [mg.full(1000, np.nan) for _ in range(20)]
    holder["w"] = mg.tensor(expected)
    np.testing.assert_array_equal(captured(x).numpy(), x.numpy() * expected)
    assert captured.recordings == 2
    del rubbish


def test_steps_within_steps_and_recompute(rng):
    inner = mg.capture(lambda x: (x * 2).exp(), warmup=0)
    outer = mg.capture(lambda x: inner(x) + 1, warmup=0)
    x = normal(rng, 3)
    for _ in range(3):
        equal(bits([outer(x)]), bits([(x * 2).exp() + 1]))
    assert (inner.recordings, outer.recordings) == (0, 1)
    w = mg.ones(3, requires_grad=True)
    scaled = mg.capture(lambda x: x * w)

    @mg.capture
    def through(x):
        w.grad = None
        scaled(x).sum().backward()

    for _ in range(4):  # captured functions within another run plainly, from the first call on
        through(x)
        equal(bits([w.grad]), bits([x]))
    y = normal(rng, 3).requires_grad_()
    mg.recompute(inner)(y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), 2 * np.exp(2 * y.detach().numpy()), rtol=1e-6)


def test_a_profile_sees_the_operations(rng):
    captured = mg.capture(lambda x: x.exp() * 2, warmup=0)
    x = normal(rng, 3)
    captured(x)
    with mg.profile() as report:
        equal(bits([captured(x)]), bits([x.exp() * 2]))
    assert "exp" in str(report)
    with mg.detect_anomaly():
        captured(x)
    captured(x)
    assert captured.recordings == 1


def test_a_call_during_a_call_is_an_error(rng):
    entered, go_on = threading.Event(), threading.Event()

    w = normal(rng, 3).requires_grad_()
    optimizer = optim.SGD([w], 0.1)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    captured = mg.capture(step, warmup=0)
    captured(mg.ones(3))

    def slow(*_):
        entered.set()
        go_on.wait(10)

    optimizer.update = slow
    thread = threading.Thread(target=captured, args=(mg.ones(3),))
    thread.start()
    try:
        assert entered.wait(10)
        with pytest.raises(mg.CaptureError, match="one call at a time"):
            captured(mg.ones(3))
    finally:
        go_on.set()
        thread.join()


def test_one_recording_at_a_time(rng):
    """While another thread records, a call runs as usual, and its kernels are not mixed with the recorded ones."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(x):
        y = x * 2
        inside.set()
        assert go_on.wait(10)
        return y + 1

    first, second = mg.capture(slow, warmup=0), mg.capture(lambda x: x * 3, warmup=0)
    results = []
    thread = threading.Thread(target=lambda: results.append(first(mg.ones(3)).tolist()))
    thread.start()
    try:
        assert inside.wait(10)
        assert second(mg.ones(3)).tolist() == [3, 3, 3]
        assert (mg.ones(3) + 1).sum().item() == 6  # values may be read here
        assert second.recordings == 0
    finally:
        go_on.set()
        thread.join()
    assert results == [[3, 3, 3]]
    assert first(mg.full(3, 2.0)).tolist() == [5, 5, 5]
    assert second(mg.ones(3)).tolist() == [3, 3, 3]
    assert (first.recordings, second.recordings) == (1, 1)


def test_the_table_lists_kernels_and_calls(rng):
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)

    @mg.capture
    def step(x):
        """The step."""
        optimizer.zero_grad()
        loss = mg.tanh(model(x)).sum()
        loss.backward()
        optimizer.step()
        return loss

    assert step.table() == "step: nothing is recorded yet"
    assert step.__doc__ == "The step."
    for _ in range(3):
        step(normal(rng, 4, 3))
    assert repr(step) == "<captured step: 1 recorded>"
    rows = [line.split() for line in step.table().splitlines()[1:]]
    names = [(row[0], row[1]) for row in rows]
    assert names.index(("linear", "forward")) < names.index(("tanh", "forward")) < names.index(("tanh", "backward"))
    assert names[-1] == ("SGD.step", "call")
