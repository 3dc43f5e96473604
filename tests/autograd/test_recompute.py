"""recompute: bits and memory, what f may read, random numbers, buffers, orders, and what is refused."""

import gc
from functools import partial

import numpy as np
import pytest
from checks import allocated, array, refuses, tensor

import minigrad as mg
from minigrad import nn


def block(device, dropout=0.5):
    return nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Dropout(dropout), nn.Linear(32, 8)).to(
        device
    )


def modules(device):
    attention = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True).to(device)
    lstm = nn.LSTM(8, 8, norm="layer").to(device)
    return {"mlp": block(device), "attention": attention, "lstm": lambda x: lstm(x)[0], "parts": lambda x: attention(lstm(x)[0])}  # fmt: skip


@pytest.mark.parametrize("kind", ["mlp", "attention", "lstm", "parts"])
def test_bits_are_equal(kind, device, rng):
    """Results, gradients of arguments and of captured parameters, and the random numbers drawn afterwards."""
    mg.manual_seed(1)
    f = modules(device)[kind]
    inner = f if isinstance(f, nn.Module) else None
    found = []
    values, cotangent = rng.standard_normal((2, 5, 8)).astype(np.float32), rng.standard_normal((2, 5, 8))
    for g in (f, mg.recompute(f)):
        mg.manual_seed(2)
        x = tensor(values, device, True)
        h = x * 2
        for _ in range(3):
            h = g(h)
        after = mg.random.normal(shape=(3,))
        wanted = [x, *(inner.parameters() if inner else ())]
        grads = mg.grad(h, wanted, tensor(cotangent.astype(np.float32), device), retain_graph=True)
        again = mg.grad(h, wanted, tensor(cotangent.astype(np.float32), device))
        drawn = mg.random.normal(shape=(3,))
        found.append([h, after, *grads, *again, drawn])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(array(a), array(b))


def test_backward_adds_to_leaves_and_runs_hooks(device, rng):
    layer = nn.Linear(3, 2, dtype="float64").to(device)
    x, g = tensor(rng.standard_normal((4, 3)), device, True), tensor(rng.standard_normal((4, 2)), device)
    layer.weight.register_hook(lambda grad: grad * 2)
    mg.recompute(layer)(x).backward(g)
    np.testing.assert_allclose(array(layer.weight.grad), 2 * array(g).T @ array(x), rtol=1e-12)
    np.testing.assert_allclose(array(x.grad), array(g) @ array(layer.weight), rtol=1e-12)


def test_several_arguments_and_results(device, rng):
    """Keywords, values other than tensors, tensors without a gradient, and a result that is not used."""

    def f(x, power, *, scale, y):
        return (x**power) * scale, y.sum(), x > 0

    x, y = tensor(rng.uniform(1, 2, 4), device, True), tensor(rng.standard_normal(4), device, True)
    scale = tensor(rng.standard_normal(4), device)
    first, total, positive = mg.recompute(f)(x, 3, scale=scale, y=y)
    assert positive.dtype == "bool"
    assert not positive.requires_grad
    np.testing.assert_allclose(total.item(), array(y).sum())
    g = rng.standard_normal(4)
    dx, dy = mg.grad(first, [x, y], tensor(g, device), allow_unused=True)
    np.testing.assert_allclose(array(dx), 3 * array(x) ** 2 * array(scale) * g, rtol=1e-12)
    assert dy is None or not array(dy).any()


def test_orders(device, rng):
    layer = block(device, 0.0).to(dtype="float64")
    f = mg.recompute(lambda x: mg.recompute(lambda z: mg.tanh(layer(z)))(x * x))
    mg.gradcheck(f, [tensor(rng.standard_normal((2, 8)), device, True)], order=2)


def test_buffers_change_once(device, rng):
    """Of a module, of the owner of a method, and of what a function has in its closure."""

    def calling(norm):
        return lambda x: norm(x)

    values = rng.standard_normal((6, 8)).astype(np.float32)
    states = []
    for recomputed in (False, True):
        norm = nn.BatchNorm1d(8).to(device)
        for f in (norm, norm.forward, calling(norm), partial(calling(norm))):
            x = tensor(values, device, True)
            (mg.recompute(f) if recomputed else f)(x).sum().backward()
        states.append([array(b) for b in norm.buffers()])
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


def test_memory():
    """A stack of 48 blocks keeps 48 arguments, and the intermediate results of no block."""
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(48)]
    kept = []
    for wrap in (lambda f: f, mg.recompute):
        x = mg.ones((512, 64), requires_grad=True)
        gc.collect()
        before = allocated()
        h = x
        for f in blocks:
            h = h + wrap(f)(h)
        kept.append(allocated() - before)
        h.sum().backward()
        del h
    argument = 512 * 64 * 4
    assert kept[1] < 48 * argument * 1.1
    assert kept[0] > 48 * argument * 8


def test_no_grad_calls_f_once():
    calls = []
    f = mg.recompute(lambda x: calls.append(1) or x * 2)
    with mg.no_grad():
        f(mg.ones(2, requires_grad=True))
    f(mg.ones(2))
    assert len(calls) == 2


def test_refusals(device):
    x = tensor(np.ones(3), device, True)
    refuses(TypeError, "recompute", "int", mg.recompute, 3)
    refuses(TypeError, "recompute", "float", mg.recompute(lambda x: 1.0), x)
    refuses(TypeError, "recompute", "list", mg.recompute(lambda xs: xs[0] * 2), [x])
    h = x * 2
    refuses(mg.GradientError, "recompute", "make that tensor an argument", mg.recompute(lambda x: x * h), x)
    sizes = iter((2, 3))
    y = mg.recompute(lambda x: x[: next(sizes)] * 2)(x)
    refuses(mg.GradientError, "recompute", ["(2,)", "(3,)"], y.backward, tensor(np.ones(2), device))
    h = x * 2
    y = mg.recompute(lambda h: h * h)(h)
    h += 1
    with pytest.raises(mg.GradientError, match="in place"):
        y.sum().backward()
    failing = iter((1, 0))
    y = mg.recompute(lambda x: x / 2 if next(failing) else 1 / 0)(x)
    state = mg.random.get_state()
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert mg.random.get_state() == state
