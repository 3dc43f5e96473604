"""Operations of your own: `Function`, and `gradcheck`, which finds errors in their gradients."""

import numpy as np
import pytest
from checks import Exp, Same, allocated, array, doubling, raises, refuses
from points import equals, plain, point

import minigrad as mg

# ── Function ──────────────────────────────────────────────────────────────────────────────────────


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


class SquaredRelu(mg.Function):
    """Saves an intermediate result."""

    @staticmethod
    def forward(ctx, x, results):
        r = mg.maximum(x, 0)
        ctx.save_for_backward(x > 0, r)
        return (r * r, r)[:results]

    @staticmethod
    def backward(ctx, g, *of_r):
        positive, r = ctx.saved_tensors
        return 2 * g * r + mg.where(positive, sum(of_r), 0), None


def test_a_saved_value_that_is_no_result_is_refused_to_second_derivatives(device):
    """A second derivative would treat it as a constant; saved masks, arguments and results are fine."""
    x = point(device, -1, 0.5, 2)
    equals(mg.grad(SquaredRelu.apply(x, 1)[0].sum(), x), [0, 1, 4])
    for differentiate in (
        lambda: mg.grad(SquaredRelu.apply(x, 1)[0].sum(), x, create_graph=True),
        lambda: mg.gradcheck(lambda x: SquaredRelu.apply(x, 1)[0], x),
    ):
        refuses(mg.GradientError, "SquaredRelu", "saved tensor 1", differentiate)
    assert mg.gradcheck(lambda x: SquaredRelu.apply(x, 2)[0], x)
    assert mg.gradcheck(lambda x: mg.stack(SquaredRelu.apply(x, 2)), x)


def test_function_to_third_order(device):
    x = point(device, 0.5, -1)
    assert mg.gradcheck(Exp.apply, x, order=3)
    assert mg.gradcheck(lambda a, b: Product.apply(a, 3, b), [point(device, 0.5, 2), point(device, 1.5, 1)], order=3)
    g = mg.grad(Exp.apply(x).sum(), x, create_graph=True)
    g = mg.grad(g.sum(), x, create_graph=True)
    equals(mg.grad(g.sum(), x), np.exp([0.5, -1]))


def test_function_with_an_unused_result(device):
    a, b = point(device, 2), point(device, 5)
    product, _ = Product.apply(a, 3, b)
    product.backward()
    equals(a.grad, [5])
    equals(b.grad, [2])


def test_function_that_returns_one_tensor_twice(device):
    class Twice(mg.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(y)
            return y, y

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 20 * h

    x = point(device, 1)
    a, b = Twice.apply(x)
    assert a is not b
    equals(mg.grad(a, x, retain_graph=True), [2])
    equals(mg.grad(b, x, retain_graph=True), [20])
    equals(mg.grad(a + b, x), [22])


def test_function_that_hands_its_argument_through(device):
    x = point(device, 3)
    y = Same.apply(x)
    assert y is not x
    assert x.is_leaf
    y.backward()
    equals(x.grad, [9])
    constant = plain(device, 2)
    assert not Same.apply(constant).requires_grad


def test_function_with_integer_results(device):
    class Top(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.argmax()

        @staticmethod
        def backward(ctx, g, index):
            assert index.dtype == "int64"
            return g * 2

    x = point(device, 1, 3, 2)
    y, k = Top.apply(x)
    assert k.item() == 1
    assert not k.requires_grad
    y.sum().backward()
    equals(x.grad, [2, 2, 2])


def test_function_is_not_recorded_where_nothing_is(device):
    for x in (plain(device, 1), point(device, 1)):
        with mg.no_grad():
            assert not Exp.apply(x).requires_grad
    assert not Exp.apply(plain(device, 1)).requires_grad


def test_function_errors(device):
    class Returns(mg.Function):
        @staticmethod
        def forward(ctx, x, result):
            return result

        @staticmethod
        def backward(ctx, g):
            return g

    x = point(device, 1, 2)
    for result in (None, 1.0, (), (x.detach(), 3)):
        refuses(TypeError, "Returns", "expected a tensor or a tuple of tensors", Returns.apply, x, result)
    y = Returns.apply(x, plain(device, 1, 2))
    refuses(mg.GradientError, "Returns", ["expected 2 gradients", "got 1"], y.sum().backward)
    for method in ("forward", "backward"):
        raises(NotImplementedError, method, getattr(mg.Function, method), None)

    class Saves(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)

    refuses(TypeError, "save_for_backward", "int", Saves.apply, x)


class Total(mg.Function):
    """The sum of the tensors in a container, which are not arguments of their own."""

    @staticmethod
    def forward(ctx, held, scale):
        ctx.scale = scale
        while not isinstance(held, mg.Tensor):
            held = next(iter(held.values() if isinstance(held, dict) else held))
        return held * scale

    @staticmethod
    def backward(ctx, g):
        return None, g * ctx.scale


WRAPPED = {
    "list": lambda x: [x], "tuple": lambda x: (x, 1), "dict": lambda x: {"x": x}, "deep": lambda x: ([{"x": (x,)}], None),
}  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_function_refuses_tensors_within_containers(wrap, device):
    """They would silently get no gradient."""
    x = point(device, 1, 2)
    for leaf in (x, x * 2):
        held = wrap(leaf)
        refuses(TypeError, "Total", ["argument 0", type(held).__name__], Total.apply, held, 3)
        refuses(TypeError, "Total", ["argument 0", type(held).__name__], Total.apply, held, point(device, 3, 3))
    with mg.no_grad():
        equals(Total.apply(wrap(x), 3), [3, 6])
    equals(Total.apply(wrap(x.detach()), 3), [3, 6])


def test_function_takes_a_container_that_holds_itself(device):
    held = [plain(device, 1)]
    held.append(held)
    equals(Total.apply(held, 3), [3])


@pytest.mark.parametrize("gradient, error", [
    (lambda device: mg.ones(3, dtype="float64", device=device), mg.GradientError),
    (lambda device: mg.ones(2, device=device), mg.GradientError), (lambda device: np.ones(2), TypeError),
    (lambda device: 1.0, TypeError),
])  # fmt: skip
@pytest.mark.parametrize("before", [lambda x: x * 1, lambda x: mg.unstack(mg.stack([x, x]))[1]])
def test_function_backward_of_the_wrong_kind(gradient, error, before, device):
    x, bad = point(device, 1, 2), doubling("Bad", lambda ctx, g: gradient(device))
    raises(error, r"^\[Bad\]", bad.apply(before(x)).sum().backward)
    assert x.grad is None


def test_function_saved_tensor_written_since(device):
    a, b = point(device, 2), point(device, 5)
    h = a * 1
    product, _ = Product.apply(h, 3, b)
    with mg.no_grad():
        h += 1
    refuses(mg.GradientError, "Product", "written in place", product.backward)
    y = Exp.apply(a)
    with mg.no_grad():
        y += 1
    refuses(mg.GradientError, "Exp", "written in place", y.backward)


def test_function_keeps_only_what_it_saved():
    x = mg.ones(1 << 20, requires_grad=True)
    before = allocated()
    y = doubling("Double").apply(x + 1)
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


def test_a_result_that_its_context_holds_is_freed():
    """The garbage collector sees the cycle from the result over its node and the context."""

    class Noting(mg.Function):
        @staticmethod
        def forward(ctx, x, notes):
            ctx.notes = notes
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 3 * h, None

    x = mg.ones(1000, requires_grad=True)
    before = allocated()
    for k in range(2):
        notes = []
        notes.append(Noting.apply(x, notes)[k])
    del notes
    assert allocated() == before


def test_exception_in_backward(device):
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

    x = point(device, 1, 2)
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
    raises(mg.GradientError, "retain_graph", y.backward)
    assert x.grad is None


# A backward that differentiates in each possible way; f still has derivatives at order three and above.


def by_value_and_grad(f, x, y):
    return mg.value_and_grad(lambda x: f(x).sum())(x)[1]


def by_vjp(f, x, y):
    _, pull_back = mg.vjp(f, x)
    return pull_back(mg.ones(x.shape, dtype=x.dtype, device=x.device))


def by_grad_at_the_saved_input(f, x, y):
    with mg.enable_grad():
        return mg.grad(f(x).sum(), x, create_graph=True)


def by_grad_at_the_saved_output(f, x, y):
    """y² at the operation's own result, whose node is running."""
    with mg.enable_grad():
        twice = mg.grad((y * y).sum(), y, create_graph=True)
    return twice / (2 * y) * by_value_and_grad(f, x, y)


@pytest.mark.parametrize("way", [
    by_value_and_grad, by_vjp, by_grad_at_the_saved_input, by_grad_at_the_saved_output,
], ids=lambda f: f.__name__)  # fmt: skip
def test_grad_inside_backward(way, device):
    def f(x):
        return mg.sin(x) * x**3

    class Nested(mg.Function):
        @staticmethod
        def forward(ctx, x):
            y = f(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            return g * way(f, *ctx.saved_tensors)

    x = point(device, 1, 2)
    expected = 3 * 4 * x**2 * 2 * mg.sin(2 * x) + 2 * mg.cos(2 * x) * (2 * x) ** 3
    for create_graph in (False, True):  # at an intermediate result, which the outer pass is about to visit
        equals(mg.grad(Nested.apply(x * 2).sum(), x, create_graph=create_graph), array(expected))
    Nested.apply(x * 2).sum().backward()
    equals(x.grad, array(expected))
    assert mg.gradcheck(Nested.apply, point(device, 1, 2), order=3)  # at a leaf
    assert mg.gradcheck(lambda x: Nested.apply(mg.tanh(x)) * x, point(device, 0.5, -0.7), order=3)
    assert mg.gradcheck(lambda x: Nested.apply(Nested.apply(x)), point(device, 0.9, -0.7), order=2)


def test_grad_of_the_same_graph_inside_backward(device):
    """The outer pass finds the nodes that it shares with the inner one unchanged: gradients gathered, nothing freed."""
    x = point(device, 1, 2)
    h = x * 2
    y, other = h * h, mg.unstack(h)
    found = []

    @mg.enable_grad()
    def differentiate_again(ctx, g):
        found.append(mg.grad(y.sum() + other[1], x))
        (y.sum() * 3).backward()
        return g

    # y and the pieces have gathered a gradient when the inner pass reaches them: their makers are visited after Again
    again = doubling("Again", differentiate_again, lambda ctx, x: x * 1)
    (again.apply(y * 1).sum() + y.sum() + 10 * other[0] + other[1]).backward()
    equals(found[0], [8, 18])
    equals(x.grad, [3 * 8 + 16 + 20, 3 * 16 + 32 + 2])


def test_failure_of_a_grad_inside_backward(device):
    x = point(device, 1, 2)
    y = x * x

    @mg.enable_grad()
    def fail_within(ctx, g):
        mg.grad(doubling("Breaks", lambda ctx, g: 1 / 0).apply(y).sum(), x)

    z = doubling("Fails", fail_within).apply(y).sum() + y.sum()
    with pytest.raises(ZeroDivisionError):
        z.backward()
    assert mg.is_grad_enabled()
    y.sum().backward()
    equals(x.grad, [2, 4])
