"""Hooks of tensors: order, results, removal, and what they may do."""

import gc
import weakref

import numpy as np
import pytest
from checks import doubling, equals, leaf, raises, refuses

import minigrad as mg


def test_hooks_see_and_replace():
    x = leaf(1, 2)
    y = x * 2
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)
    y.sum().backward(retain_graph=True)
    assert seen == [[1, 1]]
    equals(x.grad, [22, 22])
    handle.remove()
    handle.remove()
    y.sum().backward()
    assert len(seen) == 1


def test_hook_on_a_leaf_and_on_one_of_several_outputs():
    x = mg.tensor(np.ones((3, 2)), requires_grad=True)
    x.register_hook(lambda g: g * 3)
    a, b, _ = mg.unstack(x)
    b.register_hook(lambda g: g * 10)
    (a + b * 2).sum().backward()
    equals(x.grad, [[3, 3], [60, 60], [0, 0]])


def test_hook_called_once_with_the_complete_gradient():
    x = leaf(1)
    h = x * 1
    seen = []
    h.register_hook(lambda g: seen.append(g.item()))
    (h * 2 + h * 3 + h.exp() * 0).backward()
    assert seen == [5]


def test_hook_that_keeps_its_tensor_keeps_it_unchanged():
    keep = mg.ones(2, dtype="float64")
    x = leaf(1, 1)
    x.register_hook(lambda g: keep)
    for _ in range(3):
        x.sum().backward()
    equals(x.grad, [3, 3])
    equals(keep, [1, 1])


def test_a_write_by_a_hook_stays_in_its_own_gradient():
    x, seed = leaf(1, 1), mg.ones(2, dtype="float64")
    z, y = x * 3, x * 2  # y is visited first

    def hook(g):
        g *= 10

    y.register_hook(hook)
    (y + z).backward(seed)
    equals(x.grad, [23, 23])
    equals(seed, [1, 1])


@pytest.mark.parametrize("bad", [mg.ones(3, dtype="float64"), 1.0, mg.ones(2), np.ones(2)])
def test_hook_that_returns_something_else(bad):
    x = leaf(1, 1)
    y = x * 2
    y.register_hook(lambda g: bad)
    refuses(mg.GradientError, "hook", "expected None or a gradient of shape (2,) and float64", y.sum().backward)


@pytest.mark.parametrize(
    "changed", ["its argument", "the result of a hook", "of Function.backward", "of mg.grad", "the leaf"]
)
def test_tensors_of_a_backward_pass_keep_their_shape(changed):
    """A hook that runs while they are in use cannot turn them into other tensors."""
    x, held = leaf(*range(4)), mg.ones(4, dtype="float64")
    add = doubling("Given", lambda ctx, g: (held, held), lambda ctx, x, y: x + y).apply
    a, b = x * 2, x * 3
    y = add(a, b) if changed == "of Function.backward" else a + b
    if changed == "the result of a hook":
        y.register_hook(lambda g: held)
    b.register_hook(lambda g: {"its argument": g, "the leaf": x}.get(changed, held).set_(mg.ones((), dtype="float64")))
    roots, seeds = ([a * 1, b], [held, held]) if changed == "of mg.grad" else ([y], [mg.ones(4, dtype="float64")])
    with pytest.raises(RuntimeError, match=r"^\[set_\] expected no operation to be running in this thread: .* a hook"):
        mg.grad(roots, [x], seeds)
    assert held.shape == x.shape == (4,)
    held.set_(mg.ones(2))  # the pass has ended


def test_grad_that_became_something_else():
    """A gradient that was replaced by another tensor does not fit the next one: nothing is written beyond its memory."""
    for other in (mg.zeros(3, dtype="float64"), mg.zeros(2), mg.zeros((2, 1), dtype="float64")):
        x = leaf(1, 1)
        x.sum().backward()
        x.grad.set_(other)
        for create_graph in (False, True):
            match = r"^\[backward\] expected the grad of a leaf to be of shape \(2,\)"
            raises(mg.GradientError, match, x.sum().backward, create_graph=create_graph)
        assert not other.astype("bool").any()


def test_grad_that_shares_memory_with_the_gradient_that_arrives():
    base = mg.tensor([1.0, 2, 3, 4])
    x = mg.zeros(3, requires_grad=True)
    x.grad = base[1:]
    x.backward(base[:3])
    equals(x.grad, [3, 5, 7])


def test_hook_that_raises_leaves_the_tape_as_it_was():
    x = leaf(1)
    y = x * 2
    handle = y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.backward(retain_graph=True)
    handle.remove()
    y.backward()
    equals(x.grad, [2])


def test_hook_needs_a_tensor_that_requires_grad():
    refuses(mg.GradientError, "register_hook", "(2,)", mg.ones(2).register_hook, print)


@pytest.mark.parametrize("on", ["leaf", "result"])
def test_cycles_through_hooks_are_collected(on):
    x = leaf(1, 1)
    y = x * 2
    dead = weakref.ref(x), weakref.ref(y)
    hooked = x if on == "leaf" else y
    hooked.register_hook(lambda g, own=hooked: None)
    del x, y, hooked
    gc.collect()
    assert [r() for r in dead] == [None, None]
