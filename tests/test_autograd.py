"""Derivatives of every order and kind: `grad`, functions of functions, `Function`, the modes and `gradcheck`."""

import gc
import threading
import warnings
from functools import partial

import numpy as np
import pytest
from checks import refuses

import minigrad as mg
import minigrad.nn.functional as F


def point(*values):
    return mg.tensor(list(values), dtype="float64", requires_grad=True)


def plain(*values):
    return mg.tensor(list(values), dtype="float64")


def allocated():
    gc.collect()
    return mg.memory_allocated()


def equals(x, expected):
    np.testing.assert_allclose(x.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


# ── grad ──────────────────────────────────────────────────────────────────────────────────────────


def test_grad_touches_nobodys_grad():
    x, w = point(1, 2), point(3, 4)
    equals(mg.grad((x * w).sum(), x), [3, 4])
    assert x.grad is None
    assert w.grad is None


def test_grad_shapes_of_the_result():
    x = point(1, 2)
    assert isinstance(mg.grad(x.sum(), x), mg.Tensor)
    found = mg.grad(x.sum(), [x])
    assert isinstance(found, tuple)
    assert len(found) == 1


def test_grad_of_intermediates_and_what_lies_behind_them():
    x = point(2)
    h = x * x
    y = h * h * x
    dx, dh = mg.grad(y, [x, h])
    equals(dh, [16])  # 2 h x
    equals(dx, [80])  # 5 x^4


def test_grad_with_respect_to_the_root_itself():
    x, seed = point(1, 2), plain(1, 1)
    y = x * 2
    found = mg.grad(y, y, seed)
    found.fill_(5)
    equals(seed, [1, 1])


def test_grad_of_several_roots():
    x = point(1, 2)
    found = mg.grad([x.sum(), x * x, x * x], x, [None, plain(1, 1), plain(0, 10)])
    equals(found, [1 + 2, 1 + 4 + 40])


def test_grad_of_duplicates_and_of_several_outputs_has_separate_memory():
    x = point(1, 2)
    a, b = mg.grad((x * x).sum(), [x, x])
    a.fill_(0)
    equals(b, [2, 4])
    m = mg.tensor(np.ones((2, 2)), requires_grad=True)
    rows = mg.unstack(m)
    seed = plain(1, 1)
    a, b = mg.grad(rows, rows, [seed, seed])
    a.fill_(7)
    equals(b, [1, 1])
    equals(seed, [1, 1])


def test_grad_of_the_unused():
    x, unused = point(1, 2), point(1, 2, 3)
    dx, du = mg.grad(x.sum(), [x, unused])
    equals(du, [0, 0, 0])
    equals(dx, [1, 1])
    dx, du = mg.grad(x.sum(), [x, unused], allow_unused=True)
    assert du is None


def test_grad_through_unused_outputs():
    m = mg.tensor(np.ones((3, 2)), requires_grad=True)
    rows = mg.unstack(m)
    used, unused = mg.grad((rows[1] ** 2).sum(), [rows[1], rows[2]])
    equals(used, [2, 2])
    equals(unused, [0, 0])


def test_grad_refuses():
    x, y = point(1, 2), plain(1, 2)
    refuses(mg.GradientError, "grad", "(2,)", mg.grad, x.sum(), y)
    refuses(mg.GradientError, "backward", "()", mg.grad, y.sum(), x)
    refuses(mg.GradientError, "backward", "(2,)", mg.grad, x * 1, x)
    refuses(ValueError, "grad", "2 tensors", partial(mg.grad, [x.sum(), x.sum()], x), y)
    refuses(ValueError, "grad", ["2 tensors", "got 1"], partial(mg.grad, [x.sum(), x.sum()], x), [y])


def test_create_graph_under_no_grad():
    x = point(1, 2)
    y = (x**3).sum()
    with mg.no_grad():
        g = mg.grad(y, x, create_graph=True)
    assert g.requires_grad
    equals(mg.grad(g.sum(), x), [6, 12])


def test_backward_with_create_graph():
    x = point(2)
    (x**3).backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.backward()
    equals(x.grad, [12])


def test_a_deep_chain_to_second_order():
    x = point(1)
    y = x
    for _ in range(5000):
        y = y.sin()
    g = mg.grad(y, x, create_graph=True)
    assert np.isfinite(mg.grad(g, x).item())


# ── every order, against PyTorch ──────────────────────────────────────────────────────────────────

LABELS = np.array([0, 3, 2, -100])
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.25, 1.5])
ROWS = np.array([0, 2, 2])


def assign(write, x, v):
    x = x * 1
    write(x, v)
    return x * x


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
    "cross_entropy": (
        lambda x: mg.cross_entropy(x, mg.tensor(LABELS)), lambda t, f: lambda x: f.cross_entropy(x, t.tensor(LABELS)), [(4, 5)]
    ),
    "cross_entropy weighted": (
        lambda x: mg.cross_entropy(x, mg.tensor(LABELS), weight=mg.tensor(WEIGHTS), label_smoothing=0.1),
        lambda t, f: lambda x: f.cross_entropy(x, t.tensor(LABELS), weight=t.tensor(WEIGHTS), label_smoothing=0.1),
        [(4, 5)],
    ),
    "cross_entropy none": (
        lambda x: mg.cross_entropy(x, mg.tensor(LABELS), reduction="none"),
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
    "einsum": (lambda a, b: mg.einsum("ij,kj->ik", a, b), lambda t, f: lambda a, b: t.einsum("ij,kj->ik", a, b), [(3, 4), (2, 4)]),
    "cumulative_sum": (lambda x: mg.cumulative_sum(x, axis=1), lambda t, f: lambda x: t.cumsum(x, 1), [(3, 4)]),
    "max": (lambda x: mg.max(x, 1), lambda t, f: lambda x: t.amax(x, 1), [(3, 4)]),
    "sort": (mg.sort, lambda t, f: lambda x: t.sort(x)[0], [(3, 4)]),
    "take": (lambda x: mg.take(x, mg.tensor(ROWS), axis=0), lambda t, f: lambda x: x[ROWS], [(3, 4)]),
    "index": (lambda x: x[mg.tensor(ROWS), 1:], lambda t, f: lambda x: x[ROWS, 1:], [(3, 4)]),
    "unstack": (lambda x: mg.unstack(x)[0] * mg.unstack(x)[2], lambda t, f: lambda x: x[0] * x[2], [(3, 4)]),
    "concat": (lambda a, b: mg.concat([a, b, a * b], 1) ** 2, lambda t, f: lambda a, b: t.cat([a, b, a * b], 1) ** 2, [(3, 4), (3, 2)][:1] * 2),
    "where": (lambda a, b: mg.where(a > b, a * a, b), lambda t, f: lambda a, b: t.where(a > b, a * a, b), [(3, 4), (3, 4)]),
    "power": (lambda a, b: a**b, lambda t, f: t.pow, [(3, 4), (3, 4)], True),
    "divide": (lambda a, b: a / b, lambda t, f: t.divide, [(3, 4), 4], True),
    "remainder": (lambda a, b: a % b, lambda t, f: t.remainder, [(3, 4), (3, 4)], True),
    "write a slice": (
        partial(assign, lambda x, v: x.__setitem__((slice(1, None), slice(None, None, 2)), v)),
        lambda t, f: partial(assign, lambda x, v: x.__setitem__((slice(1, None), slice(None, None, 2)), v)),
        [(3, 4), (2, 2)],
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
    "hardsigmoid": (F.hardsigmoid, lambda t, f: lambda x: t.clamp(x / 6 + 0.5, 0, 1), [(3, 4)]),  # its own is of float32's 1/6
    **{
        name: (getattr(mg, name), lambda t, f, name=name: getattr(t, name), [(3, 4)], True)
        for name in "exp expm1 exp2 sin cos tan asinh atan sinh cosh erf log log1p log2 log10 sqrt rsqrt reciprocal".split()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", HIGHER)
def test_three_orders_against_torch(name, rng):
    torch, functional = torch_functions()
    ours, theirs, shapes, *positive = HIGHER[name]
    values = [rng.standard_normal(shape) for shape in shapes]
    if positive:
        values = [np.abs(v) + 0.5 for v in values]
    xs = [mg.tensor(v, requires_grad=True) for v in values]
    ts = [torch.tensor(v, requires_grad=True) for v in values]
    y, t = ours(*[x * 1.0 for x in xs]), theirs(torch, functional)(*[x * 1.0 for x in ts])
    for order in (1, 2, 3):
        np.testing.assert_allclose(y.detach().numpy(), t.detach().numpy(), rtol=1e-9, atol=1e-9)
        c = rng.standard_normal(tuple(t.shape))
        gs = mg.grad(y, xs, mg.tensor(c), create_graph=True)
        es = torch.autograd.grad(t, ts, torch.tensor(c), create_graph=True, materialize_grads=True)
        for g, e in zip(gs, es, strict=True):
            np.testing.assert_allclose(g.detach().numpy(), e.detach().numpy(), rtol=1e-7, atol=1e-8, err_msg=f"order {order}")
        # Plus a term in the inputs themselves, so that a derivative that ended in zero can be asked for again.
        weights = [rng.standard_normal(g.shape) for g in gs]
        y = sum((mg.tensor(w) * g * g * x).sum() for w, g, x in zip(weights, gs, xs, strict=True))
        t = sum((torch.tensor(w) * g * g * x).sum() for w, g, x in zip(weights, es, ts, strict=True))


@pytest.mark.parametrize("ours", [lambda x, w, b: mg.layer_norm(x, 5, w, b), mg.linear])
def test_plain_and_recorded_backward_agree(ours, rng):
    shapes = [(3, 5), (5,), (5,)] if ours is not mg.linear else [(3, 5), (5, 5), (5,)]
    xs = [mg.tensor(rng.standard_normal(s), requires_grad=True) for s in shapes]
    # The operation's inputs are intermediates here: a walk inside the walk must not feed them twice.
    y = ours(*[x * 2 for x in xs])
    c = mg.tensor(rng.standard_normal(y.shape))
    one, other = (mg.grad(y, xs, c, retain_graph=True, create_graph=create) for create in (False, True))
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-10, atol=1e-12)


# ── functions of functions ────────────────────────────────────────────────────────────────────────


def cube(x):
    return (x**3).sum()


def test_value_and_grad():
    y, g = mg.value_and_grad(cube)(plain(1, 2))
    equals(y, 9)
    equals(g, [3, 12])
    assert not y.requires_grad
    assert not g.requires_grad
    y, (ga, gb) = mg.value_and_grad(lambda a, b, k: (a * b * b).sum() * k, argnums=(0, 1))(plain(2), plain(3), k=2)
    equals(y, 36)
    equals(ga, [18])
    equals(gb, [24])
    y, g = mg.value_and_grad(lambda a, b: (a * b).sum(), argnums=1)(plain(2), np.array([3.0]))
    equals(g, [2])


def test_value_and_grad_leaves_the_arguments_alone():
    x, w = plain(1, 2), point(3, 4)
    mg.value_and_grad(lambda x, w: (x * w).sum(), argnums=(0, 1))(x, w)
    assert not x.requires_grad
    assert w.grad is None
    with mg.no_grad():
        y, g = mg.value_and_grad(cube)(w)
    assert not y.requires_grad
    assert not g.requires_grad
    equals(g, [27, 48])


def test_value_and_grad_of_constants_and_errors():
    y, g = mg.value_and_grad(lambda x: mg.ones(()))(plain(1, 2))
    equals(g, [0, 0])
    with pytest.raises(mg.GradientError, match=r"\(2,\)"):
        mg.value_and_grad(lambda x: x * 2)(plain(1, 2))
    with pytest.raises(TypeError, match=r"\[grad\].*float"):
        mg.value_and_grad(lambda x: 2.0)(plain(1, 2))


def test_value_and_grad_inside_itself():
    def slope(x):
        return mg.value_and_grad(cube)(x)[1].sum()

    equals(mg.value_and_grad(slope)(plain(2, 3))[1], [12, 18])
    equals(mg.value_and_grad(lambda x: mg.value_and_grad(slope)(x)[1].sum())(plain(2, 3))[1], [6, 6])
    # the value is differentiable, too
    equals(mg.value_and_grad(lambda x: mg.value_and_grad(cube)(x)[0] * 2)(plain(2, 3))[1], [24, 54])


def test_value_and_grad_of_captured_tensors():
    def outer(w):
        return mg.value_and_grad(lambda x: (w * x * x).sum())(plain(2))[1].sum()

    equals(mg.value_and_grad(outer)(plain(5))[1], [4])
    w = point(3)
    y, g = mg.value_and_grad(lambda x: (w * x * x).sum())(plain(2))  # a gradient penalty
    equals(g, [12])
    (g * g).sum().backward()
    equals(w.grad, [2 * 12 * 4])


def test_value_and_grad_of_an_argument_with_a_history():
    x = point(2)
    _, g = mg.value_and_grad(cube)(x * x)
    g.sum().backward()  # 3 x^4
    equals(x.grad, [96])


def test_vjp():
    y, pull_back = mg.vjp(lambda a, b: a * b, plain(1, 2), plain(3, 4))
    assert not y.requires_grad
    equals(y, [3, 8])
    for _ in range(2):
        ga, gb = pull_back(plain(1, 10))
        equals(ga, [3, 40])
        equals(gb, [1, 20])
    y, pull_back = mg.vjp(lambda a: mg.ones(2), plain(1, 2))
    equals(pull_back(plain(1, 1)), [0, 0])


def test_vjp_can_be_differentiated_in_point_and_cotangent():
    x, c = point(2, 3), point(5, 7)
    _, pull_back = mg.vjp(lambda x: x**3, x)
    dx, dc = mg.grad(pull_back(c).sum(), [x, c])
    equals(dx, [60, 126])  # 6 x c
    equals(dc, [12, 27])
    _, pull_back = mg.vjp(lambda x: x**3, plain(2, 3))
    equals(mg.grad(pull_back(c).sum(), c), [12, 27])


def test_jacobian():
    a = np.arange(6.0).reshape(2, 3)
    equals(mg.jacobian(lambda x: mg.tensor(a) @ x, plain(1, 2, 3)), a)
    j = mg.jacobian(lambda x: x.reshape(2, 2).T * 1, plain(1, 2, 3, 4))
    assert j.shape == (2, 2, 4)
    equals(j.reshape(4, 4), np.eye(4)[[0, 2, 1, 3]])
    equals(mg.jacobian(lambda x: mg.ones(2), plain(1, 2, 3)), np.zeros((2, 3)))
    assert mg.jacobian(lambda x: x[:0], plain(1, 2)).shape == (0, 2)
    assert mg.jacobian(lambda x: x.sum(), plain(1, 2)).shape == (2,)


def test_hessian():
    a = np.array([[2.0, 1, 0], [1, 5, 2], [0, 2, 7]])
    equals(mg.hessian(lambda x: 0.5 * (x @ mg.tensor(a) @ x), plain(1, 2, 3)), a)
    h = mg.hessian(lambda x: (x * x).sum(), mg.ones((2, 2), dtype="float64"))
    assert h.shape == (2, 2, 2, 2)
    equals(h.reshape(4, 4), 2 * np.eye(4))
    equals(mg.hessian(lambda x: mg.layer_norm(x, 3)[0] * 0 + x.sum(), plain(1, 2, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"^\[hessian\].*\(3,\)"):
        mg.hessian(lambda x: x * x, plain(1, 2, 3))


def test_jacobian_and_hessian_can_be_differentiated():
    x = point(2, 3)
    equals(mg.grad(mg.jacobian(lambda x: x**3, x).sum(), x), [12, 18])
    equals(mg.grad(mg.hessian(lambda x: (x**4).sum(), x).sum(), x), [48, 72])  # 24 x
    third = mg.jacobian(lambda x: mg.hessian(lambda z: (z**3).sum(), x), plain(1, 2))
    assert third.shape == (2, 2, 2)
    assert third[0, 0, 0].item() == third[1, 1, 1].item() == 6


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────


def test_no_grad_and_enable_grad():
    x = point(1)
    with mg.no_grad():
        assert not mg.is_grad_enabled()
        assert not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()


def test_modes_end_with_an_exception_and_can_be_entered_again():
    mode = mg.no_grad()
    with pytest.raises(ZeroDivisionError), mode:
        with mode:
            pass
        assert not mg.is_grad_enabled()
        raise ZeroDivisionError
    assert mg.is_grad_enabled()


def test_modes_as_decorators():
    @mg.no_grad()
    def f(n):
        """Count down."""
        assert not mg.is_grad_enabled()
        return g(n)

    @mg.enable_grad()
    def g(n):
        assert mg.is_grad_enabled()
        return f(n - 1) if n else 7

    assert f(3) == 7
    assert mg.is_grad_enabled()
    assert f.__name__ == "f"
    assert f.__doc__ == "Count down."


def test_modes_refuse_generators():
    def generator():
        yield 1

    async def coroutine():
        pass

    for function in (generator, coroutine):
        refuses(TypeError, "no_grad", function.__name__, mg.no_grad(), function)


def test_modes_belong_to_the_thread():
    mode, seen, inside = mg.no_grad(), [], threading.Barrier(4)

    def work(k):
        for _ in range(50):
            with mode:
                inside.wait()
                ok = not mg.is_grad_enabled()
            seen.append(ok and mg.is_grad_enabled())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    with mg.no_grad():
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert seen == [True] * 200


def test_detect_anomaly():
    x = mg.tensor([0.0, 1.0], requires_grad=True)
    with mg.detect_anomaly():
        y = x.sqrt()
        with pytest.raises(mg.GradientError, match=r"^\[sqrt\].*NaN or infinity.*\(2,\).*test_autograd\.py:\d+"):
            y.sum().backward()
        (x * 2).sum().backward()
    x.sqrt().sum().backward()
    assert np.isinf(x.grad.numpy()[0])


# ── Function ──────────────────────────────────────────────────────────────────────────────────────


class Exp(mg.Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


class Product(mg.Function):
    """Saves its inputs, takes a number, returns two results."""

    @staticmethod
    def forward(ctx, a, power, b):
        ctx.save_for_backward(a, None, b)
        ctx.power = power
        return a * b, a**power

    @staticmethod
    def backward(ctx, g, h):
        a, nothing, b = ctx.saved_tensors
        assert nothing is None
        assert ctx.needs_input_grad == (True, False, True)
        return g * b + h * ctx.power * a ** (ctx.power - 1), None, g * a


def test_function_to_third_order():
    x = point(0.5, -1)
    assert mg.gradcheck(Exp.apply, x, order=3)
    assert mg.gradcheck(lambda a, b: Product.apply(a, 3, b), [point(0.5, 2), point(1.5, 1)], order=3)
    g = mg.grad(Exp.apply(x).sum(), x, create_graph=True)
    g = mg.grad(g.sum(), x, create_graph=True)
    equals(mg.grad(g.sum(), x), np.exp([0.5, -1]))


def test_function_with_an_unused_result():
    a, b = point(2), point(5)
    product, _ = Product.apply(a, 3, b)
    product.backward()
    equals(a.grad, [5])
    equals(b.grad, [2])


def test_function_that_returns_one_tensor_twice():
    class Twice(mg.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(y)
            return y, y

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 20 * h

    x = point(1)
    a, b = Twice.apply(x)
    assert a is not b
    equals(mg.grad(a, x, retain_graph=True), [2])
    equals(mg.grad(b, x, retain_graph=True), [20])
    equals(mg.grad(a + b, x), [22])


def test_function_that_hands_its_argument_through():
    class Scaled(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0]

    x = point(3)
    y = Scaled.apply(x)
    assert y is not x
    assert x.is_leaf
    y.backward()
    equals(x.grad, [3])
    constant = plain(2)
    assert not Scaled.apply(constant).requires_grad


def test_function_with_integer_results():
    class Top(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.argmax()

        @staticmethod
        def backward(ctx, g, index):
            assert index.dtype == "int64"
            return g * 2

    x = point(1, 3, 2)
    y, k = Top.apply(x)
    assert k.item() == 1
    assert not k.requires_grad
    y.sum().backward()
    equals(x.grad, [2, 2, 2])


def test_function_is_not_recorded_where_nothing_is():
    for x in (plain(1), point(1)):
        with mg.no_grad():
            assert not Exp.apply(x).requires_grad
    assert not Exp.apply(plain(1)).requires_grad


def test_function_errors():
    class Returns(mg.Function):
        @staticmethod
        def forward(ctx, x, result):
            return result

        @staticmethod
        def backward(ctx, g):
            return g

    x = point(1, 2)
    for result in (None, 1.0, (), (x, 3)):
        refuses(TypeError, "Returns", "expected a tensor or a tuple of tensors", Returns.apply, x, result)
    y = Returns.apply(x, plain(1, 2))
    refuses(mg.GradientError, "Returns", ["expected 2 gradients", "got 1"], y.sum().backward)
    for method in ("forward", "backward"):
        with pytest.raises(NotImplementedError, match=method):
            getattr(mg.Function, method)(None)

    class Saves(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    refuses(TypeError, "save_for_backward", "int", Saves.apply, x)


@pytest.mark.parametrize(
    "gradient, error",
    [(mg.ones(3, dtype="float64"), mg.GradientError), (mg.ones(2), mg.GradientError), (np.ones(2), TypeError), (1.0, TypeError)],
)
@pytest.mark.parametrize("behind", [lambda x: x * 1, lambda x: mg.unstack(mg.stack([x, x]))[1]])
def test_function_backward_of_the_wrong_kind(gradient, error, behind):
    class Bad(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return gradient

    x = point(1, 2)
    with pytest.raises(error, match=r"^\[Bad\]"):
        Bad.apply(behind(x)).sum().backward()
    assert x.grad is None


def test_function_saved_tensor_written_since():
    a, b = point(2), point(5)
    h = a * 1
    product, _ = Product.apply(h, 3, b)
    with mg.no_grad():
        h += 1
    with pytest.raises(mg.GradientError, match=r"^\[Product\].*written in place"):
        product.backward()
    y = Exp.apply(a)
    with mg.no_grad():
        y += 1
    with pytest.raises(mg.GradientError, match=r"^\[Exp\].*written in place"):
        y.backward()


def test_function_keeps_only_what_it_saved():
    class Plus(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1

        @staticmethod
        def backward(ctx, g):
            return g

    x = mg.ones(1 << 20, requires_grad=True)
    before = allocated()
    y = Plus.apply(x * 2)
    assert mg.memory_allocated() <= before + (4 << 20) + 4096
    y += 1
    y = y.sum()
    assert mg.memory_allocated() <= before + 4096
    y.backward()
    assert (x.grad.numpy() == 2).all()


def test_function_frees_saved_tensors():
    x = mg.ones(1 << 20, requires_grad=True)
    before = allocated()
    y = Exp.apply(x)
    del y
    assert mg.memory_allocated() == before
    y = Exp.apply(x).sum()
    y.backward()
    x.grad = None
    assert mg.memory_allocated() <= before + 4096


def test_exception_in_backward():
    class Fails(mg.Function):
        broken = True

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if Fails.broken:
                raise ZeroDivisionError
            return g * 2

    x = point(1, 2)
    y = Fails.apply(x * 3).sum()
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    assert mg.is_grad_enabled()
    Fails.broken = False
    y.backward()
    equals(x.grad, [6, 6])
    Fails.broken, x.grad = True, None
    y = Fails.apply(x * 3).sum()
    with pytest.raises(ZeroDivisionError):
        y.backward()
    with pytest.raises(mg.GradientError, match="retain_graph"):
        y.backward()
    assert x.grad is None


def test_grad_inside_backward():
    class Nested(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * mg.value_and_grad(cube)(x)[1]

    x = point(1, 2)
    Nested.apply(x * 2).sum().backward()
    equals(x.grad, [24, 96])
    assert mg.gradcheck(Nested.apply, point(1, 2), order=1)


def test_grad_of_the_same_graph_inside_backward():
    x = point(1, 2)
    y = x * 2

    class Again(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            with mg.enable_grad():
                mg.grad(y.sum(), x, retain_graph=True)
            return g

    with pytest.raises(mg.GradientError, match="inside another"):
        Again.apply(y).sum().backward()
    x.grad = None
    y.sum().backward()
    equals(x.grad, [2, 2])


# ── gradcheck ─────────────────────────────────────────────────────────────────────────────────────


class WrongFirst(Exp):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 1.01


class WrongSecond(Exp):
    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y.detach()


def test_gradcheck_finds_wrong_derivatives():
    x = point(0.5, 1)
    with pytest.raises(mg.GradientError, match=r"^\[gradcheck\] derivative 1 with respect to input 0 of shape \(2,\)"):
        mg.gradcheck(WrongFirst.apply, x)
    assert mg.gradcheck(WrongSecond.apply, x, order=1)
    with pytest.raises(mg.GradientError, match=r"^\[gradcheck\] derivative 2"):
        mg.gradcheck(WrongSecond.apply, x)


def test_gradcheck_finds_a_gradient_that_ones_would_hide():
    class Centered(mg.Function):
        """Its true backward is g - mean(g); ones cannot tell it from zero."""

        @staticmethod
        def forward(ctx, x):
            return x - x.mean()

        @staticmethod
        def backward(ctx, g):
            return g * 0

    with pytest.raises(mg.GradientError, match="derivative 1"):
        mg.gradcheck(Centered.apply, point(1, 2, 3))


def test_gradcheck_finds_a_missing_gradient():
    assert mg.gradcheck(lambda x: x * x.detach().sign(), point(1, 2))
    with pytest.raises(mg.GradientError, match="derivative 1"):
        mg.gradcheck(lambda x: x.detach() * 2, point(1, 2))


def test_gradcheck_of_several_inputs_and_outputs():
    ints = mg.tensor([1, 0])
    frozen = plain(2, 3)
    assert mg.gradcheck(lambda a, i, b, c: (a[i] * b, c @ a, a.argmax(), c.sum()), [point(1, 2), ints, frozen, point(3, 4)])
    assert mg.gradcheck(lambda x: x * 2, mg.zeros((0, 3), dtype="float64", requires_grad=True))
    assert mg.gradcheck(lambda x: x[0] * 0 + mg.ones((), dtype="float64"), point(1, 2))


def test_gradcheck_refuses():
    refuses(TypeError, "gradcheck", ["float32", "input 1"], mg.gradcheck, mg.multiply, [point(1), mg.ones(1, requires_grad=True)])
    refuses(ValueError, "gradcheck", "requires grad", mg.gradcheck, mg.exp, plain(1))


def test_gradcheck_works_under_no_grad_and_leaves_the_inputs_alone():
    x = point(1, 2)
    with mg.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert mg.gradcheck(mg.tanh, x)
    assert x.grad is None
    equals(x, [1, 2])
