"""Derivatives of derivatives of every fused and primitive operation, against PyTorch."""

from functools import partial

import numpy as np
import pytest
from checks import agree, array, near, tensor

import minigrad as mg
import minigrad.nn.functional as F
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

LABELS = np.array([0, 3, 2, -100])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25, 1.5])
ROWS = np.array([0, 2, 2])


def assign(write, x, v):
    x = x * 1
    write(x, v)
    return x * x


def write_slice(x, v):
    x[1:, ::2] = v


def torch_functions():
    torch = pytest.importorskip("torch")
    return torch, torch.nn.functional


def composed_layer_norm(t, *axes):
    """Not PyTorch's own layer_norm, whose third derivative is wrong (2.13)."""

    def layer_norm(x, weight=1.0, bias=0.0):
        centered = x - x.mean(axes, keepdim=True)
        return centered / t.sqrt((centered * centered).mean(axes, keepdim=True) + 1e-5) * weight + bias

    return layer_norm


# name: (minigrad's function, PyTorch's as a function of torch and torch.nn.functional, shapes, whether positive)
HIGHER = {
    "layer_norm": (lambda x, w, b: mg.layer_norm(x, 5, w, b), lambda t, f: composed_layer_norm(t, -1), [(3, 5), 5, 5]),
    "layer_norm plain": (lambda x: mg.layer_norm(x, 5), lambda t, f: composed_layer_norm(t, -1), [(3, 5)]),
    "layer_norm two axes": (
        lambda x, w: mg.layer_norm(x, (2, 3), w), lambda t, f: composed_layer_norm(t, -2, -1), [(2, 2, 3), (2, 3)]
    ),
    "rms_norm": (
        lambda x, w: mg.rms_norm(x, 5, w, 1e-5),
        lambda t, f: lambda x, w: x / t.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w,
        [(3, 5), 5],
    ),
    "group_norm": (
        lambda x, w, b: mg.group_norm(x.reshape((2, 2, 3)), 1, w, b),
        lambda t, f: lambda x, w, b: composed_layer_norm(t, -2, -1)(x.reshape(2, 2, 3), w[:, None], b[:, None]),
        [(4, 3), 2, 2],
    ),
    "instance_norm": (
        lambda x, w: mg.instance_norm(x, weight=w), lambda t, f: lambda x, w: composed_layer_norm(t, -1)(x, w[:, None]), [(2, 3, 4), 3]
    ),
    "batch_norm_train": (
        lambda x, w, b: batch_norm_train(x, w, b)[0],
        lambda t, f: lambda x, w, b: composed_layer_norm(t, 0, 2)(x, w[:, None], b[:, None]),
        [(3, 2, 2), 2, 2],
    ),
    "batch_norm_eval": (
        lambda x, m, v, w: batch_norm_eval(x, m, v * v, w),
        lambda t, f: lambda x, m, v, w: (x - m) / t.sqrt(v * v + 1e-5) * w,
        [(3, 2), 2, 2, 2],
        True,
    ),
    "cross_entropy": (
        lambda x: mg.cross_entropy(x, tensor(LABELS, x.device)),
        lambda t, f: lambda x: f.cross_entropy(x, t.tensor(LABELS)),
        [(4, 5)],
    ),
    "cross_entropy weighted": (
        lambda x: mg.cross_entropy(x, tensor(LABELS, x.device), weight=tensor(WEIGHTS, x.device), label_smoothing=0.1),
        lambda t, f: lambda x: f.cross_entropy(x, t.tensor(LABELS), weight=t.tensor(WEIGHTS), label_smoothing=0.1),
        [(4, 5)],
    ),
    "cross_entropy none": (
        lambda x: mg.cross_entropy(x, tensor(LABELS, x.device), reduction="none"),
        lambda t, f: lambda x: f.cross_entropy(x, t.tensor(LABELS), reduction="none"),
        [(4, 5)],
    ),
    "linear": (mg.linear, lambda t, f: f.linear, [(2, 3, 4), (5, 4), 5]),
    "linear without bias": (mg.linear, lambda t, f: f.linear, [(3, 4), (5, 4)]),
    "linear of one tensor": (lambda a: mg.linear(a, a, a[0]), lambda t, f: lambda a: f.linear(a, a, a[0]), [(4, 4)]),
    "softmax": (lambda x: mg.softmax(x, 0), lambda t, f: lambda x: t.softmax(x, 0), [(3, 4)]),
    "log_softmax": (lambda x: mg.log_softmax(x, 1), lambda t, f: lambda x: t.log_softmax(x, 1), [(3, 4)]),
    "logsumexp": (lambda x: mg.logsumexp(x, 1), lambda t, f: lambda x: t.logsumexp(x, 1), [(3, 4)]),
    "var": (lambda x: mg.var(x, 1, correction=1), lambda t, f: lambda x: t.var(x, 1), [(3, 4)]),
    "std": (lambda x: mg.std(x, 1), lambda t, f: lambda x: t.std(x, 1, correction=0), [(3, 4)]),
    "prod": (lambda x: mg.prod(x, 1), lambda t, f: lambda x: t.prod(x, 1), [(3, 4)]),
    "matmul": (lambda a, b: a @ b, lambda t, f: t.matmul, [(2, 1, 3, 4), (6, 4, 5)]),
    "matmul vector": (lambda a, b: a @ b, lambda t, f: t.matmul, [(3, 4), 4]),
    "einsum": (partial(mg.einsum, "ij,kj->ik"), lambda t, f: partial(t.einsum, "ij,kj->ik"), [(3, 4), (2, 4)]),
    "cumulative_sum": (lambda x: mg.cumulative_sum(x, axis=1), lambda t, f: lambda x: t.cumsum(x, 1), [(3, 4)]),
    "max": (lambda x: mg.max(x, 1), lambda t, f: lambda x: t.amax(x, 1), [(3, 4)]),
    "sort": (mg.sort, lambda t, f: lambda x: t.sort(x)[0], [(3, 4)]),
    "take": (lambda x: mg.take(x, tensor(ROWS, x.device), axis=0), lambda t, f: lambda x: x[ROWS], [(3, 4)]),
    "index": (lambda x: x[tensor(ROWS, x.device), 1:], lambda t, f: lambda x: x[ROWS, 1:], [(3, 4)]),
    "unstack": (lambda x: mg.unstack(x)[0] * mg.unstack(x)[2], lambda t, f: lambda x: x[0] * x[2], [(3, 4)]),
    "concat": (
        lambda a, b: mg.concat([a, b, a * b], 1) ** 2,
        lambda t, f: lambda a, b: t.cat([a, b, a * b], 1) ** 2,
        [(3, 4), (3, 4)],
    ),
    "where": (
        lambda a, b: mg.where(a > b, a * a, b), lambda t, f: lambda a, b: t.where(a > b, a * a, b), [(3, 4), (3, 4)]
    ),
    "power": (lambda a, b: a**b, lambda t, f: t.pow, [(3, 4), (3, 4)], True),
    "divide": (lambda a, b: a / b, lambda t, f: t.divide, [(3, 4), 4], True),
    "remainder": (lambda a, b: a % b, lambda t, f: t.remainder, [(3, 4), (3, 4)], True),
    "write a slice": (
        partial(assign, write_slice), lambda t, f: partial(assign, write_slice), [(3, 4), (2, 2)],
    ),
    "write rows": (
        partial(assign, lambda x, v: x.__setitem__(np.array([0, 2]), v)),
        lambda t, f: partial(assign, lambda x, v: x.__setitem__(np.array([0, 2]), v)),
        [(3, 4), (2, 4)],
    ),
    **{
        name: (getattr(F, name), lambda t, f, name=name: getattr(f, name), [(3, 4)])
        for name in "gelu silu softplus sigmoid tanh relu elu leaky_relu".split()
    },
    # PyTorch's own hardsigmoid has float32's 1/6
    "hardsigmoid": (F.hardsigmoid, lambda t, f: lambda x: t.clamp(x / 6 + 0.5, 0, 1), [(3, 4)]),
    **{
        name: (getattr(mg, name), lambda t, f, name=name: getattr(t, name), [(3, 4)], True)
        for name in "exp expm1 exp2 log log1p log2 log10 sqrt rsqrt reciprocal erf".split()
        + "sin cos tan asinh atan sinh cosh".split()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HIGHER)
def test_three_orders_against_torch(name, device, rng):
    torch, functional = torch_functions()
    ours, theirs, shapes, *positive = HIGHER[name]
    values = [rng.standard_normal(shape) for shape in shapes]
    if positive:
        values = [np.abs(v) + 0.5 for v in values]
    xs = [tensor(v, device, True) for v in values]
    ts = [torch.tensor(v, requires_grad=True) for v in values]
    y, t = ours(*[x * 1.0 for x in xs]), theirs(torch, functional)(*[x * 1.0 for x in ts])
    for order in (1, 2, 3):
        near(y, t.detach().numpy(), rtol=1e-9, atol=1e-9)
        c = rng.standard_normal(tuple(t.shape))
        gs = mg.grad(y, xs, tensor(c, device), create_graph=True)
        es = torch.autograd.grad(t, ts, torch.tensor(c), create_graph=True, materialize_grads=True)
        for g, e in zip(gs, es, strict=True):
            assert g.device == device
            near(g, e.detach().numpy(), rtol=1e-7, atol=1e-8, err_msg=f"order {order}")
        # Plus a term in the inputs themselves, so that a derivative that is zero can be differentiated again.
        weights = [rng.standard_normal(g.shape) for g in gs]
        y = sum((tensor(w, device) * g * g * x).sum() for w, g, x in zip(weights, gs, xs, strict=True))
        t = sum((torch.tensor(w) * g * g * x).sum() for w, g, x in zip(weights, es, ts, strict=True))


@pytest.mark.parametrize("ours", [lambda x, w, b: mg.layer_norm(x, 5, w, b), mg.linear])
def test_plain_and_recorded_backward_agree(ours, device, rng):
    shapes = [(3, 5), (5,), (5,)] if ours is not mg.linear else [(3, 5), (5, 5), (5,)]
    xs = [tensor(rng.standard_normal(s), device, True) for s in shapes]
    # The operation's inputs are intermediates here: a nested pass must not add to their gradients twice.
    y = ours(*[x * 2 for x in xs])
    c = tensor(rng.standard_normal(y.shape), device)
    one, other = (mg.grad(y, xs, c, retain_graph=True, create_graph=create) for create in (False, True))
    agree(one, other, rtol=1e-10, atol=1e-12)


def test_the_recorded_gradient_of_one_input_among_others(device, rng):
    """The others require grad but are not requested, so the pass through the composition must not reach them."""
    x, w, b = (tensor(rng.standard_normal(s), device, True) for s in ((3, 5), 5, 5))
    c = tensor(rng.standard_normal((3, 5)), device)
    for wanted in (x, w, b):
        (together,) = [
            g for g, v in zip(mg.grad(mg.layer_norm(x, 5, w, b), [x, w, b], c), (x, w, b), strict=True) if v is wanted
        ]
        alone = mg.grad(mg.layer_norm(x, 5, w, b), wanted, c, create_graph=True)
        near(alone, array(together), rtol=1e-10, atol=1e-12)
    dx = mg.grad(mg.layer_norm(x, 5, w, b), x, c, create_graph=True)
    mixed = array(mg.grad(dx.sum() + (dx * dx).sum(), w))  # dx is a function of w as well
    step, numeric = 1e-6, np.zeros(5)
    for k in range(5):
        for sign in (1, -1):
            moved = tensor(array(w) + sign * step * np.eye(5)[k], device)
            d = array(mg.grad(mg.layer_norm(x, 5, moved, b), x, c))
            numeric[k] += sign * (d.sum() + (d * d).sum()) / (2 * step)
    np.testing.assert_allclose(mixed, numeric, rtol=1e-6, atol=1e-6)
