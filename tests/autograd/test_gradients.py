"""Derivatives of every order and kind: `grad`, functions of functions, and the modes."""

from functools import partial

import numpy as np
import pytest
from checks import doubling, raises, refuses, tensor
from hearers import Hearer, told_to
from points import equals, plain, point

import minigrad as mg

# ── grad ──────────────────────────────────────────────────────────────────────────────────────────


def test_grad_touches_nobodys_grad(device):
    x, w = point(device, 1, 2), point(device, 3, 4)
    equals(mg.grad((x * w).sum(), x), [3, 4])
    assert x.grad is None
    assert w.grad is None


def test_grad_shapes_of_the_result(device):
    x = point(device, 1, 2)
    assert isinstance(mg.grad(x.sum(), x), mg.Tensor)
    found = mg.grad(x.sum(), [x])
    assert isinstance(found, tuple)
    assert len(found) == 1


def test_grad_of_intermediates_and_of_their_inputs(device):
    x = point(device, 2)
    h = x * x
    y = h * h * x
    dx, dh = mg.grad(y, [x, h])
    equals(dh, [16])  # 2 h x
    equals(dx, [80])  # 5 x^4


def test_grad_with_respect_to_the_root_itself(device):
    x, seed = point(device, 1, 2), plain(device, 1, 1)
    y = x * 2
    found = mg.grad(y, y, seed)
    found.fill_(5)
    equals(seed, [1, 1])


def test_grad_of_several_roots(device):
    x = point(device, 1, 2)
    found = mg.grad([x.sum(), x * x, x * x], x, [None, plain(device, 1, 1), plain(device, 0, 10)])
    equals(found, [1 + 2, 1 + 4 + 40])


def test_grad_of_duplicates_and_of_several_outputs_has_separate_memory(device):
    x = point(device, 1, 2)
    a, b = mg.grad((x * x).sum(), [x, x])
    a.fill_(0)
    equals(b, [2, 4])
    m = tensor(np.ones((2, 2)), device, True)
    rows = mg.unstack(m)
    seed = plain(device, 1, 1)
    a, b = mg.grad(rows, rows, [seed, seed])
    a.fill_(7)
    equals(b, [1, 1])
    equals(seed, [1, 1])


def test_grad_of_the_unused(device):
    """An error, which leaves the tape as it is; None where it is allowed."""
    x, unused = point(device, 1, 2), point(device, 1, 2, 3)
    y = (x * x).sum()
    refuses(mg.GradientError, "grad", ["xs[1]", "(3,)", "allow_unused=True"], mg.grad, y, [x, unused])
    refuses(mg.GradientError, "grad", ["xs[0]", "(2,)"], mg.grad, (unused * (x.detach() > 1)[0]).sum(), x)
    dx, du = mg.grad(y, [x, unused], allow_unused=True)
    equals(dx, [2, 4])
    assert du is None


# x + y; its backward says that the first input has no gradient.
Silent = doubling("Silent", lambda ctx, g: (None, g), lambda ctx, x, y: x + y)


@pytest.mark.parametrize("allow_unused", [False, True])
def test_a_gradient_of_zero_is_not_unused(allow_unused, device):
    """Whatever the operation sends, the gradient of what y depends on is a tensor."""
    for f in (lambda x: x * 0, mg.floor, lambda x: x // 2, lambda x: x[:0], lambda x: Silent.apply(x, point(device, 1, 2)),
              lambda x: mg.where(x > 9, x, point(device, 1, 2)), lambda x: mg.unstack(Silent.apply(x * 1, x.detach()))[0]):  # fmt: skip
        x = point(device, 1, 2)
        y = f(x).sum() if f(x).requires_grad else (f(x) + x * 0).sum()
        found = mg.grad(y, x, allow_unused=allow_unused)
        equals(found, [0, 0])
        assert (found.dtype, found.device) == (x.dtype, x.device)


def test_functions_of_functions_give_zeros_for_the_unused(device):
    x, other = point(device, 1, 2), point(device, 3)
    equals(mg.value_and_grad(lambda a, b: a.sum(), argnums=(0, 1))(x, other)[1][1], [0])
    equals(mg.vjp(lambda a, b: a * 1, x, other)[1](plain(device, 1, 1))[1], [0])
    equals(mg.jacobian(lambda a: other * 1, x), [[0, 0]])
    equals(mg.hessian(lambda a: a.sum(), x), [[0, 0], [0, 0]])


def test_grad_through_unused_outputs(device):
    m = tensor(np.ones((3, 2)), device, True)
    rows = mg.unstack(m)
    y = (rows[1] ** 2).sum() + (rows[0] // 1).sum()
    refuses(mg.GradientError, "grad", ["xs[2]", "(2,)"], mg.grad, y, rows)
    zero, used, unused = mg.grad([y, rows[0]], rows, [None, rows[0].detach() * 0], allow_unused=True)
    equals(zero, [0, 0])
    equals(used, [2, 2])
    assert unused is None


def test_grad_refuses(device):
    x, y = point(device, 1, 2), plain(device, 1, 2)
    refuses(mg.GradientError, "grad", "(2,)", mg.grad, x.sum(), y)
    refuses(mg.GradientError, "grad", "()", mg.grad, y.sum(), x)
    refuses(mg.GradientError, "grad", "(2,)", mg.grad, x * 1, x)
    refuses(ValueError, "grad", "2 tensors", partial(mg.grad, [x.sum(), x.sum()], x), y)
    refuses(ValueError, "grad", ["2 tensors", "got 1"], partial(mg.grad, [x.sum(), x.sum()], x), [y])


def test_create_graph_under_no_grad(device):
    x = point(device, 1, 2)
    y = (x**3).sum()
    with mg.no_grad():
        g = mg.grad(y, x, create_graph=True)
    assert g.requires_grad
    equals(mg.grad(g.sum(), x), [6, 12])


def test_backward_with_create_graph(device):
    x = point(device, 2)
    (x**3).backward(create_graph=True)
    g = x.grad
    x.grad = None
    g.backward()
    equals(x.grad, [12])


def test_a_deep_chain_to_second_order():
    x = point("cpu", 1)
    y = x
    for _ in range(5000):
        y = y.sin()
    g = mg.grad(y, x, create_graph=True)
    assert np.isfinite(mg.grad(g, x).item())


# ── functions of functions ────────────────────────────────────────────────────────────────────────


def cube(x):
    return (x**3).sum()


def test_value_and_grad(device):
    y, g = mg.value_and_grad(cube)(plain(device, 1, 2))
    equals(y, 9)
    equals(g, [3, 12])
    assert not y.requires_grad
    assert not g.requires_grad
    both = mg.value_and_grad(lambda a, b, k: (a * b * b).sum() * k, argnums=(0, 1))
    y, (ga, gb) = both(plain(device, 2), plain(device, 3), k=2)
    equals(y, 36)
    equals(ga, [18])
    equals(gb, [24])
    # an array is on the CPU, wherever the other arguments are
    _, g = mg.value_and_grad(lambda a, b: (a.to("cpu") * b).sum(), argnums=1)(plain(device, 2), np.array([3.0]))
    equals(g, [2])


def test_value_and_grad_leaves_the_arguments_alone(device):
    x, w = plain(device, 1, 2), point(device, 3, 4)
    mg.value_and_grad(lambda x, w: (x * w).sum(), argnums=(0, 1))(x, w)
    assert not x.requires_grad
    assert w.grad is None
    with mg.no_grad():
        y, g = mg.value_and_grad(cube)(w)
    assert not y.requires_grad
    assert not g.requires_grad
    equals(g, [27, 48])


def test_value_and_grad_of_constants_and_errors(device):
    _, g = mg.value_and_grad(lambda x: mg.ones((), device=device))(plain(device, 1, 2))
    equals(g, [0, 0])
    raises(mg.GradientError, r"\(2,\)", mg.value_and_grad(lambda x: x * 2), plain(device, 1, 2))
    refuses(TypeError, "grad", "float", mg.value_and_grad(lambda x: 2.0), plain(device, 1, 2))


def test_grad_looks_at_nothing_older_than_its_targets(device):
    """The tape before a target may have been freed, and is not visited."""
    x = tensor(2.0, device, True)
    h = x * x
    h.backward()
    assert mg.grad(h**3, h).item() == 48
    raises(mg.GradientError, "retain_graph", mg.grad, h**3, x)


def test_value_and_grad_inside_itself(device):
    def slope(x):
        return mg.value_and_grad(cube)(x)[1].sum()

    equals(mg.value_and_grad(slope)(plain(device, 2, 3))[1], [12, 18])
    equals(mg.value_and_grad(lambda x: mg.value_and_grad(slope)(x)[1].sum())(plain(device, 2, 3))[1], [6, 6])
    # the value is differentiable as well
    equals(mg.value_and_grad(lambda x: mg.value_and_grad(cube)(x)[0] * 2)(plain(device, 2, 3))[1], [24, 54])


def test_value_and_grad_of_captured_tensors(device):
    def outer(w):
        return mg.value_and_grad(lambda x: (w * x * x).sum())(plain(device, 2))[1].sum()

    equals(mg.value_and_grad(outer)(plain(device, 5))[1], [4])
    w = point(device, 3)
    _, g = mg.value_and_grad(lambda x: (w * x * x).sum())(plain(device, 2))  # a gradient penalty
    equals(g, [12])
    (g * g).sum().backward()
    equals(w.grad, [2 * 12 * 4])


def test_value_and_grad_of_an_argument_with_a_history(device):
    x = point(device, 2)
    _, g = mg.value_and_grad(cube)(x * x)
    g.sum().backward()  # 3 x^4
    equals(x.grad, [96])


def test_functions_of_functions_record_what_the_function_does_and_no_more(device):
    """Finding out whether a result depends on more than the points records nothing."""
    with told_to(Hearer()) as hearer:
        mg.value_and_grad(lambda x: (x * x).sum())(plain(device, 1, 2))
        mg.vjp(mg.exp, plain(device, 1, 2))
    recorded = [event for event in hearer.heard if not event.endswith(("backward", "left"))]
    assert recorded == ["multiply", "sum", "exp"]


def test_vjp(device):
    y, pull_back = mg.vjp(lambda a, b: a * b, plain(device, 1, 2), plain(device, 3, 4))
    assert not y.requires_grad
    equals(y, [3, 8])
    for _ in range(2):
        ga, gb = pull_back(plain(device, 1, 10))
        equals(ga, [3, 40])
        equals(gb, [1, 20])
    _, pull_back = mg.vjp(lambda a: mg.ones(2, device=device), plain(device, 1, 2))
    equals(pull_back(plain(device, 1, 1)), [0, 0])


def test_vjp_can_be_differentiated_in_point_and_cotangent(device):
    x, c = point(device, 2, 3), point(device, 5, 7)
    _, pull_back = mg.vjp(lambda x: x**3, x)
    dx, dc = mg.grad(pull_back(c).sum(), [x, c])
    equals(dx, [60, 126])  # 6 x c
    equals(dc, [12, 27])
    _, pull_back = mg.vjp(lambda x: x**3, plain(device, 2, 3))
    equals(mg.grad(pull_back(c).sum(), c), [12, 27])


def test_jacobian(device):
    a = np.arange(6.0).reshape(2, 3)
    equals(mg.jacobian(lambda x: tensor(a, device) @ x, plain(device, 1, 2, 3)), a)
    j = mg.jacobian(lambda x: x.reshape(2, 2).T * 1, plain(device, 1, 2, 3, 4))
    assert j.shape == (2, 2, 4)
    equals(j.reshape(4, 4), np.eye(4)[[0, 2, 1, 3]])
    equals(mg.jacobian(lambda x: mg.ones(2, device=device), plain(device, 1, 2, 3)), np.zeros((2, 3)))
    assert mg.jacobian(lambda x: x[:0], plain(device, 1, 2)).shape == (0, 2)
    assert mg.jacobian(lambda x: x.sum(), plain(device, 1, 2)).shape == (2,)


def test_hessian(device):
    a = np.array([[2.0, 1, 0], [1, 5, 2], [0, 2, 7]])
    equals(mg.hessian(lambda x: 0.5 * (x @ tensor(a, device) @ x), plain(device, 1, 2, 3)), a)
    h = mg.hessian(lambda x: (x * x).sum(), mg.ones((2, 2), dtype="float64", device=device))
    assert h.shape == (2, 2, 2, 2)
    equals(h.reshape(4, 4), 2 * np.eye(4))
    equals(mg.hessian(lambda x: mg.layer_norm(x, 3)[0] * 0 + x.sum(), plain(device, 1, 2, 3)), np.zeros((3, 3)))
    refuses(ValueError, "hessian", "(3,)", mg.hessian, lambda x: x * x, plain(device, 1, 2, 3))


def test_a_jacobian_that_does_not_fit_is_refused_before_the_first_pass(device):
    x = mg.ones(2**23, device=device)
    passes = []

    def f(x):
        y = x * x
        y.register_hook(passes.append)
        return y

    with pytest.raises(MemoryError):
        mg.jacobian(f, x)
    assert not passes


def test_jacobian_and_hessian_can_be_differentiated(device):
    x = point(device, 2, 3)
    equals(mg.grad(mg.jacobian(lambda x: x**3, x).sum(), x), [12, 18])
    equals(mg.grad(mg.hessian(lambda x: (x**4).sum(), x).sum(), x), [48, 72])  # 24 x
    third = mg.jacobian(lambda x: mg.hessian(lambda z: (z**3).sum(), x), plain(device, 1, 2))
    assert third.shape == (2, 2, 2)
    assert third[0, 0, 0].item() == third[1, 1, 1].item() == 6
