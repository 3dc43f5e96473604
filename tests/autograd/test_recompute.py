"""recompute: bits, memory, derivatives of every order, and what a second run repeats.

What it refuses is in test_recompute_refusals.py, what threads do in test_recompute_threads.py.
"""

import gc
from functools import partial

import numpy as np
import pytest
from checks import Cube, allocated, array, equals, leaf, near, refuses, tensor
from recomputed import WAYS, Counter, agree, plain

import minigrad as mg
from minigrad import nn, viz
from minigrad.nn import functional as F


def block(dropout=0.5, dtype="float32"):
    return nn.Sequential(
        nn.Linear(8, 32, dtype=dtype), nn.LayerNorm(32, dtype=dtype), nn.ReLU(), nn.Dropout(dropout),
        nn.Linear(32, 8, dtype=dtype),
    )  # fmt: skip


# ── the same bits ─────────────────────────────────────────────────────────────────────────────────


def modules():
    attention, lstm = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True), nn.LSTM(8, 8, norm="layer")
    return {
        "mlp": (block(), lambda f, h: f(h)),
        "attention": (attention, lambda f, h: f(h)),
        "lstm": (lstm, lambda f, h: f(h)[0] + f(h)[1][1]),  # a nested result
        "batch norm": (nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.2)), lambda f, h: f(h)),
        "spectral norm": (nn.utils.spectral_norm(nn.Linear(8, 8)), lambda f, h: f(h)),
        "renorm": (nn.BatchRenorm1d(5), lambda f, h: f(h)),
        "sync": (nn.SyncBatchNorm(5), lambda f, h: f(h)),
        "instance norm": (nn.InstanceNorm1d(5, track_running_stats=True), lambda f, h: f(h)),
    }


@pytest.mark.parametrize("kind", modules())
@pytest.mark.parametrize("create_graph", [False, True])
def test_bits_are_equal(kind, create_graph, device, rng):
    """Results, gradients, buffers, and the random numbers drawn during and after both passes."""
    values, cotangent = (rng.standard_normal((2, 5, 8)).astype(np.float32) for _ in range(2))
    found = []
    for way in WAYS:
        mg.manual_seed(1)
        module, call = modules()[kind]
        module.to(device)
        x = tensor(values, device, True)
        h = x * 2
        for _ in range(3):
            h = call(way(module), h)
        drawn = mg.random.normal(shape=(3,))
        wanted = [x, *module.parameters()]
        grads = mg.grad(h, wanted, tensor(cotangent, device), create_graph=create_graph, retain_graph=True)
        again = mg.grad(h, wanted, tensor(cotangent, device))
        found.append([h, drawn, *grads, *again, *module.buffers(), mg.random.normal(shape=(3,))])
    agree(found)


def test_grad_and_hooks(device, rng):
    """Backward adds to leaves; hooks of leaves, of arguments and of results run once, and so do those f registers."""
    found, calls = [], []
    values, cotangent = rng.standard_normal((4, 8)), rng.standard_normal((4, 8))
    for way in WAYS:
        mg.manual_seed(2)
        layer, seen = block(0.0, "float64").to(device), []

        def f(h, layer=layer, seen=seen):
            h = layer(h)
            h.register_hook(lambda g: seen.append("inner"))
            layer[0].bias.register_hook(lambda g: seen.append("captured"))
            return h * 2

        layer[0].weight.register_hook(lambda g, seen=seen: seen.append("leaf") or g * 2)
        x = tensor(values, device, True)
        h = x * 3
        h.register_hook(lambda g, seen=seen: seen.append("argument"))
        y = way(f)(h)
        y.register_hook(lambda g, seen=seen: seen.append("result") or g * 3)
        y.backward(tensor(cotangent, device))
        found.append([x.grad, *(p.grad for p in layer.parameters())])
        calls.append(seen)
    agree(found)
    assert calls[0] == calls[1]


def test_retained_gradient_of_a_result():
    def f(x):
        y = x * 2
        y.retain_grad()
        return y

    y = mg.recompute(f)(leaf(1.0, 2.0))
    (y * 3).sum().backward()
    equals(y.grad, [3.0, 3.0])


def test_several_arguments_and_results(device, rng):
    """Keywords, nests, other values, a tensor of integers, a detached result, an argument that is not used."""

    def f(xs, power, *, scale, other):
        return {"y": (xs["a"] ** power) * scale, "rest": [xs["b"][0].detach() * 3, xs["a"] > 0, None, "text"]}

    a, b, other = (tensor(rng.uniform(1, 2, 4), device, True) for _ in range(3))
    scale, g = tensor(rng.standard_normal(4), device), rng.standard_normal(4)
    result = mg.recompute(f)({"a": a, "b": (b,)}, 3, scale=scale, other=other)
    assert [type(r) for r in result["rest"]] == [mg.Tensor, mg.Tensor, type(None), str]
    assert not result["rest"][0].requires_grad
    assert result["rest"][1].dtype == "bool"
    da, db, do = mg.grad(result["y"], [a, b, other], tensor(g, device), allow_unused=True)
    near(da, 3 * array(a) ** 2 * array(scale) * g, rtol=1e-12)
    assert db is do is None
    y = mg.recompute(f)({"a": a, "b": [b]}, 2, scale=1, other=other)["y"]
    refuses(mg.GradientError, "grad", "allow_unused", mg.grad, y.sum(), [other])


@pytest.mark.parametrize("f", [lambda x: x, lambda x: x[::-1], lambda x: (x, x), lambda x: (x * x, 1)], ids=range(4))
def test_results_that_are_arguments(f, rng):
    found = []
    for way in WAYS:
        x = leaf(1.0, 2.0)
        y = way(f)(x * 3)
        s = y.sum() if isinstance(y, mg.Tensor) else (y[0] + 2 * y[1]).sum()
        found.append(mg.grad(s * s, [x], create_graph=True))
    agree(found)


def test_written_results():
    """A result may be written in place: the second run computes what the derivative of exp reads."""
    x = leaf(1.0, 2.0)
    y = mg.recompute(mg.exp)(x)
    y += 1
    y.sum().backward()
    np.testing.assert_allclose(array(x.grad), np.exp(array(x)))


def test_in_place_within():
    """Recorded writes to tensors of f's own."""
    found = []
    for way in WAYS:
        x = leaf(1.0, 2.0)

        @way
        def f(x):
            h = mg.exp(x)
            s = h * h
            s += h
            total = mg.zeros(2, dtype="float64")
            total += s * x
            total[0] = x[1]
            return total

        found.append([*mg.grad(f(x).sum(), [x], create_graph=True)])
        found[-1] += mg.grad(found[-1][0].sum(), [x])
    agree(found)


# ── memory ────────────────────────────────────────────────────────────────────────────────────────


def test_memory():
    """A stack of 48 blocks keeps 48 arguments, and the backward pass adds the values of one block."""
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(48)]
    argument = 512 * 64 * 4
    kept, most = [], []
    for way in WAYS:
        x = mg.ones((512, 64), requires_grad=True)
        before, used = allocated(), []

        def measured(f, h, used=used):
            y = f(h)
            used.append(mg.memory_allocated())
            return y

        h = x
        for f in blocks:
            h = h + way(measured)(f, h)
        kept.append(allocated() - before)
        h.sum().backward()
        most.append(max(used) - before)
        del h
        for f in blocks:
            f.zero_grad()
        x.grad = None
        assert allocated() - before < argument
    assert kept[1] < 48 * argument * 1.1
    assert kept[0] > 48 * argument * 8
    assert most[1] < most[0] / 5


@pytest.mark.parametrize("how", ["used", "unused", "failed", "recorded", "nested"])
def test_nothing_is_left(how):
    layer = nn.Linear(64, 64)

    def fails(x):
        y = layer(x)
        raise ArithmeticError(y.shape)

    def step():
        x = mg.ones((100, 64), requires_grad=True)
        inner = mg.recompute(layer)
        if how == "failed":
            with pytest.raises(ArithmeticError):
                mg.recompute(fails)(x * 1)
            return
        y = mg.recompute(lambda x: inner(layer(x)) if how == "nested" else mg.tanh(layer(x)))(x * 1)
        if how == "recorded":
            (g,) = mg.grad(y.sum(), [x], create_graph=True)
            g.sum().backward()
        elif how != "unused":
            y.sum().backward()
        layer.zero_grad()

    step()
    before = allocated()
    gc.disable()
    try:
        for _ in range(3):
            step()
        assert mg.memory_allocated() - before < 100
    finally:
        gc.enable()


# ── derivatives of higher order ───────────────────────────────────────────────────────────────────


def test_a_captured_leaf_is_counted_once():
    w, x = leaf(2.0), leaf(1.5)
    for way in WAYS:
        f = way(lambda h: h * w)
        for create_graph in (False, True):
            assert mg.grad(f(w).sum(), w, create_graph=create_graph).item() == 4
            assert [g.item() for g in mg.grad(f(f(x)).sum(), [x, w], create_graph=create_graph)] == [4, 6]


def test_gradcheck_with_weights_upstream_and_captured(device, rng):
    def f(x, w):
        g = mg.recompute(lambda h: mg.tanh(h * w) * mg.recompute(mg.sin)(h + w))
        return g(g(x * w))

    mg.gradcheck(f, [tensor(rng.standard_normal((2, 3)), device, True), tensor(rng.standard_normal(3), device, True)])


def test_gradcheck_of_modules(device, rng):
    layer = block(0.0, "float64").to(device)
    attention = nn.MultiheadAttention(8, 2, batch_first=True, dtype="float64").to(device)
    f = mg.recompute(lambda x: layer(attention(x, x, x)[0]) + mg.recompute(Cube.apply)(x))
    mg.gradcheck(f, [tensor(rng.standard_normal((1, 3, 8)), device, True)])


def test_third_order(rng):
    found = []
    values = rng.standard_normal(3)
    for way in WAYS:
        x, w = leaf(*values), leaf(0.7, 0.2, -0.4)
        f = way(lambda z, w=w: mg.sin(z * z * w) + Cube.apply(z))
        y = f(f(x)).sum()
        for _ in range(3):
            dx, dw = mg.grad(y, [x, w], create_graph=True)
            y = (dx * dw).sum()
        found.append([dx, dw])
    for a, b in zip(*found, strict=True):  # sums of gradients that are differentiated have another order
        near(a, array(b), rtol=1e-13)


@pytest.mark.parametrize("way", WAYS)
def test_functions_of_functions(way, rng):
    w, x, v = leaf(0.7, 0.2), tensor(rng.standard_normal(2), "cpu"), tensor(rng.standard_normal(2), "cpu")
    f = way(lambda z: mg.sin(z * z * w))
    s, c, z, u = np.sin(array(x) ** 2 * array(w)), np.cos(array(x) ** 2 * array(w)), array(x), array(w)
    first, second = 2 * z * u * c, 2 * u * c - (2 * z * u) ** 2 * s
    near(mg.jvp(f, x, v)[1], first * array(v), rtol=1e-12)
    near(mg.jacobian(f, x), np.diag(first), rtol=1e-12)
    near(mg.hvp(lambda z: f(z).sum(), x, v), second * array(v), rtol=1e-12)
    near(mg.hessian(lambda z: f(z).sum(), x), np.diag(second), rtol=1e-12)


def test_gradients_within(rng):
    """f may differentiate, with leaves of its own, with jvp, and along captured tensors with a history."""
    values = rng.standard_normal((2, 3))

    def penalty(x, w):
        z = x.detach().requires_grad_()
        z.register_hook(lambda g: g * 2)
        (once,) = mg.grad((z**3 * w).sum(), [z], create_graph=True)
        (g,) = mg.grad((mg.exp(x) * w).sum(), [x], create_graph=True)
        return g * g * w + once + mg.jvp(mg.sin, x, w)[1]

    found = []
    for way in WAYS:
        x, w = (leaf(*v) for v in values)
        h = w * 2
        y = way(lambda x, h=h: penalty(x * 1, h))(x)
        grads = mg.grad(y.sum(), [x, w], create_graph=True)
        found.append([y, *grads, *mg.grad((grads[0] * grads[1]).sum(), [x, w])])
    agree(found)


def test_gradients_within_of_what_was_computed_before(rng):
    """The gradient leads to operations whose results f does not read."""
    values = rng.standard_normal(3)

    def gradients(way):
        x, s = leaf(values), leaf(values)
        loss = mg.tanh(x).sum()
        way(lambda s: (mg.grad(loss, [x], create_graph=True)[0] * s).sum())(s).backward()
        return x.grad, s.grad

    agree([gradients(way) for way in WAYS])


def test_nested_captures():
    """An inner function that captures the argument of the outer one, or one of its results."""
    for create_graph in (False, True):
        x = leaf(1.0, 2.0)
        f = mg.recompute(lambda x: mg.recompute(lambda z: z * x)(x * 2))
        equals(mg.grad(f(x * 3).sum(), x, create_graph=create_graph).detach(), [36, 72])


# ── the state of the first run ────────────────────────────────────────────────────────────────────


def ways_to_call():
    return {
        "module": lambda m: mg.recompute(m),
        "method": lambda m: mg.recompute(m.forward),
        "decorated": lambda m: m.decorated,
        "lambda": lambda m: mg.recompute(lambda x: m(x)),
        "partial": lambda m: mg.recompute(partial(lambda module, x: module(x), m)),
        "argument": lambda m: lambda x: mg.recompute(lambda module, x: module(x))(m, x),
        "list": lambda m: mg.recompute(lambda x, modules=(m,): modules[0](x)),
        "nested": lambda m: mg.recompute(lambda x: mg.recompute(m)(x)),
    }


@pytest.mark.parametrize("how", ways_to_call())
def test_buffers_move_once(how, rng):
    """And the second run reads their first values, even if later calls have moved them."""
    values = rng.standard_normal((3, 5, 2))
    found = []
    for wrap in (plain, ways_to_call()[how]):
        m, xs, ys = Counter(), [tensor(v, "cpu", True) for v in values], []
        f = wrap(m)
        kept = m.n.detach()  # a view of the same memory
        for x in xs:
            ys.append(f(x))
        for y in ys:
            y.sum().backward()
        found.append([*(x.grad for x in xs), *m.buffers(), kept])
    agree(found)
    assert found[1][-1].item() == 3


def test_arguments_that_are_written():
    """Arguments, parts that share memory, and views move once, and each second run reads what its first has read."""

    def f(x, s, pair):
        y = x * s.copy() * pair[1][0].item()
        with mg.no_grad():
            for part in (s, pair[0], s[1:], s):
                part += 1
        return y * s.copy()

    found = []
    for way in WAYS:
        x, s = leaf(1.0, 2.0), mg.tensor([1.0, 2.0], dtype="float64")
        ys = [way(f)(x, s, [s[:1], s.detach()]) for _ in range(3)]
        for y in ys:
            y.sum().backward()
        found.append([x.grad, s])
    agree(found)
    equals(found[1][1], [10, 11])


def test_the_generator_goes_on():
    """Seeding and drawing in f has its effect once."""
    states = []
    for way in WAYS:
        mg.manual_seed(3)
        x = mg.ones(8, requires_grad=True)

        @way
        def f(x):
            mg.manual_seed(7)
            return x * mg.random.uniform(shape=8) * F.dropout(x)

        y = f(x)
        mg.random.normal(shape=5)
        y.sum().backward()
        states.append((mg.random.get_state(), y.tolist(), x.grad.tolist()))
    assert states[0] == states[1]


def test_calls_of_f():
    """Once if nothing is recorded or no pass arrives, and once more for each pass."""
    calls = []
    f = mg.recompute(lambda x: calls.append(1) or mg.exp(x))
    x = leaf(1.0, 2.0)
    with mg.no_grad():
        assert not f(x).requires_grad
    assert not f(x.detach()).requires_grad
    f(x)
    assert len(calls) == 3
    y = f(x).sum()
    for _ in range(3):
        y.backward(retain_graph=True)
    assert len(calls) == 7
    np.testing.assert_allclose(array(x.grad), 3 * np.exp(array(x)))
    y.backward()
    refuses(mg.GradientError, "sum", "retain_graph", y.backward)


def test_the_name_and_the_signature_stay():
    assert mg.recompute(Counter.forward).__name__ == "forward"
    assert mg.recompute(partial(print)).__name__ == "recomputed"


# ── what the tools show ───────────────────────────────────────────────────────────────────────────


def test_tape_and_explore(tmp_path):
    """Both show the call, with nothing saved; the page shows the operations of its second run, too."""
    x = leaf(1.0, 2.0)
    y = mg.recompute(lambda x: mg.exp(x) * x)(x).sum()
    rows = y.tape()
    assert [row["op"] for row in rows] == ["leaf", "recompute", "sum"]
    assert [row["saved_bytes"] for row in rows] == [0, 0, 0]
    page = viz.explore(y, tmp_path / "tape.html")
    assert "recompute" in page.path.read_text(encoding="utf-8")
    assert x.grad is None
    assert [row["saved_bytes"] for row in y.tape()] == [0, 0, 0]


def test_profile():
    x = leaf(1.0, 2.0)
    with mg.profile() as p:
        mg.recompute(lambda x: mg.exp(x) * x)(x).sum().backward()
    assert "exp" in str(p)


def test_pytorchs_name():
    with pytest.raises(ImportError, match=r"\[checkpoint\] is `mg.recompute"):
        from minigrad.utils.checkpoint import checkpoint  # noqa: F401
