"""Recording, the order of the backward pass, what it frees, and errors."""

import inspect
import os
import sys
import weakref

import numpy as np
import pytest
from checks import allocated, doubling, equals, leaf, raises, refuses

import minigrad as mg
from minigrad import nn

BLOCK = 4 << 20  # bytes of a tensor of a million float32


# ── accumulation ──────────────────────────────────────────────────────────────────────────────────


def test_leaves_accumulate_over_passes():
    x = leaf(1, 2)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    equals(x.grad, [5, 7])


def test_intermediate_gradients_do_not_persist():
    x = leaf(1, 2)
    y = x * x
    y.sum().backward()
    assert y.grad is None
    assert not y.is_leaf
    assert x.is_leaf


def test_a_diamond_sums_its_paths_once():
    x = leaf(2)
    a = x * x
    b, c = a * 3, a * a
    (b * c).backward()  # 3 x^6
    equals(x.grad, [18 * 2**5])


def test_a_tensor_used_many_times():
    x = leaf(1)
    y = x
    for _ in range(40):
        y = y + y
    y.backward()
    equals(x.grad, [2.0**40])


def test_both_operands_are_one_tensor():
    x = leaf(3)
    (x * x + x / x + (x - x)).backward()
    equals(x.grad, [6])


def test_visits_in_falling_order_of_making():
    x = leaf(1)
    a = x * 2
    b, c = a * 3, a * 5
    d = b + c
    seen = []
    for name, t in {"x": x, "a": a, "b": b, "c": c, "d": d}.items():
        t.register_hook(lambda g, name=name: seen.append(name))
    d.backward()
    assert seen == ["d", "c", "b", "a", "x"]
    equals(x.grad, [16])


# Operations whose gradient is the one that arrives, or a part of it, at both operands if they use both
PASS_ON = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "reshape": lambda a, b: a.reshape(2, 1), "a.T": lambda a, b: a[None].T,
    "slice": lambda a, b: a[::-1], "concat": lambda a, b: mg.concat([a, b]), "stack": lambda a, b: mg.stack([a, b]),
    "broadcast_to": lambda a, b: mg.broadcast_to(a, (1, 2)), "pad": lambda a, b: mg.pad(a, (1, 1)), "copy": lambda a, b: a.copy(),
    "split": lambda a, b: mg.split(mg.concat([a, b]), 2)[0] + b, "where": lambda a, b: mg.where(a > 0, a, b),
}  # fmt: skip
WRITES = {
    "in place": lambda x: x.fill_(9),
    "NumPy": lambda x: x.numpy().fill(9),
    "DLPack": lambda x: np.from_dlpack(x.detach()).fill(9),
}


@pytest.mark.parametrize("name", PASS_ON)
def test_gradients_have_memory_of_their_own(name):
    """Neither another pass nor a write to one grad shows in the cotangent, in another grad, or in what is still to come."""
    for create_graph in (False, True):
        a, b = leaf(1, 1), leaf(1, 1)
        seed = mg.ones_like(PASS_ON[name](a, b).detach())
        expected = [
            None if g is None else g.numpy() for g in mg.grad(PASS_ON[name](a, b), [a, b], seed, allow_unused=True)
        ]
        for times in (1, 2, 3):
            PASS_ON[name](a, b).backward(seed, create_graph=create_graph)
            for x, g in zip((a, b), expected, strict=True):
                assert x.grad is None if g is None else np.array_equal(x.grad.detach().numpy(), times * g)
            assert np.all(seed.numpy() == 1)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", PASS_ON)
def test_a_write_to_a_grad_stays_there(name, write):
    for given in (True, False):
        a, b = leaf(1, 1), leaf(1, 1)
        y = PASS_ON[name](a, b)
        seed = mg.ones_like(y.detach())
        y.backward(seed) if given else (y * 1).sum().backward()
        before = b.grad.numpy().copy() if b.grad is not None else None
        with mg.no_grad():
            WRITES[write](a.grad)
        equals(a.grad, [9, 9])
        assert np.all(seed.numpy() == 1)
        assert before is None or np.array_equal(b.grad.numpy(), before)


def test_accumulates_into_a_broadcast_grad():
    x = leaf(1, 1, 1)
    x.grad = mg.broadcast_to(mg.zeros(1, dtype="float64"), (3,))
    (x * mg.tensor([1.0, 2.0, 3.0], dtype="float64")).sum().backward()
    equals(x.grad, [1, 2, 3])


def test_multiple_outputs_with_some_unused():
    x = mg.tensor(np.arange(12.0).reshape(4, 3), requires_grad=True)
    first, _, third, _ = mg.unstack(x)
    (first * 2 + third * third).sum().backward()
    equals(x.grad, [[2, 2, 2], [0, 0, 0], [12, 14, 16], [0, 0, 0]])
    x.grad = None
    left, right = mg.split(x, 2, axis=0)
    right.sum().backward(retain_graph=True)
    left.sum().backward()
    equals(x.grad, np.ones((4, 3)))


# ── what is kept and freed ────────────────────────────────────────────────────────────────────────


def test_second_backward_needs_retain_graph():
    x = leaf(1, 2)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    equals(x.grad, [4, 8])
    refuses(mg.GradientError, "sum", ["freed by an earlier backward", "retain_graph=True"], y.backward)
    equals(x.grad, [4, 8])


def test_freed_part_below_a_new_operation():
    x = leaf(2)
    a = x * x
    a.backward()
    raises(mg.GradientError, "retain_graph", (a * 3).backward)


def test_grad_frees_only_what_it_ran():
    x = leaf(2)
    h = x.exp()
    y = (h * h).sum()
    g = mg.grad(y, h)
    h.backward(g)
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(4))


def test_memory_falls_as_backward_passes():
    before = allocated()
    x = mg.ones(1 << 20, requires_grad=True)
    y = x
    for _ in range(20):
        y = y.exp().log()
    y = y.sum()
    assert mg.memory_allocated() >= before + 21 * BLOCK
    at_the_end = []
    x.register_hook(lambda g: at_the_end.append(mg.memory_allocated()))
    y.backward()
    assert at_the_end[0] <= before + 2 * BLOCK + 4096
    assert mg.memory_allocated() <= before + 2 * BLOCK + 4096


def test_unused_forward_frees_itself():
    x = mg.ones(1 << 20, requires_grad=True)
    before = allocated()
    y = x
    for _ in range(5):
        y = (y * y).exp()
    assert mg.memory_allocated() >= before + 5 * BLOCK
    del y
    assert mg.memory_allocated() == before


def test_saves_only_what_backward_reads():
    x = mg.ones(1 << 20, requires_grad=True)
    before = allocated()
    y = x + 1 + 2 + 3 - x
    assert mg.memory_allocated() == before + BLOCK
    assert y.tape().saved_bytes == 0


@pytest.mark.parametrize("differentiate", [False, True])
def test_a_chain_of_a_million_operations(differentiate):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 100)
    try:
        x = leaf(1)
        before = allocated()
        y = x
        for _ in range(1_000_000):
            y = y * 1.0
        if differentiate:
            y.backward()
            equals(x.grad, [1])
            x.grad = None
        del y
        assert mg.memory_allocated() == before
    finally:
        sys.setrecursionlimit(limit)


def test_a_deep_graph_of_diamonds_and_functions():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    double, x = doubling("Double", forward=forward), leaf(1)
    before = allocated()
    for backward in (False, True):
        y = x
        for _ in range(20_000):
            y = double.apply(y * 0.5) * 0.5 + y * 0.5
        if backward:
            y.backward()
            equals(x.grad, [1])
            x.grad = None
        del y
        assert mg.memory_allocated() == before


def test_a_leaf_that_dies_or_stops_requiring_grad():
    x = leaf(1, 1, 1)
    y = (x * 2).sum()
    x.requires_grad = False
    del x
    others = [mg.ones(3, dtype="float64") for _ in range(100)]
    y.backward()
    assert all(t.grad is None for t in others)


def test_a_leaf_that_is_frozen_for_a_while():
    """Earlier operations and hooks wait for the leaf; while it is frozen it gets no gradient."""
    x = leaf(3, 5)
    x.register_hook(lambda g: g * 10)
    y = (x * x).sum()
    x.requires_grad_(False)
    y.backward(retain_graph=True)
    assert x.grad is None
    refuses(mg.GradientError, "grad", "a tensor of shape (2,) does not require grad", mg.grad, y, x, retain_graph=True)
    later = (x * x).sum()
    x.requires_grad_(True)
    assert not later.requires_grad
    equals(mg.grad(y, x, retain_graph=True), [60, 100])
    (y + (x * x).sum()).backward()  # from one part recorded before, and one after
    equals(x.grad, [120, 200])


def test_a_network_that_is_frozen_for_another_ones_step():
    """Like the discriminator of an adversarial pair, between its forward and backward pass."""
    net, found = nn.Linear(3, 2, dtype="float64"), []
    for freeze in (False, True):
        loss = (net(mg.ones((4, 3), dtype="float64")) ** 2).sum()
        if freeze:
            net.requires_grad_(False)
            net.requires_grad_(True)
        loss.backward()
        found.append([p.grad.tolist() for p in net.parameters()])
        net.zero_grad()
    assert found[0] == found[1]


def test_create_graph_ties_a_leaf_to_its_gradient_until_that_is_none():
    x = leaf(1, 2)
    before = allocated()
    y = (x * x * x).sum()
    y.backward(create_graph=True)
    dead = weakref.ref(x)
    del x, y
    assert allocated() > before  # even the collector does not find the cycle leaf -> grad -> tape -> leaf
    equals(dead().grad, [3, 12])
    dead().grad = None
    assert dead() is None


def test_grad_with_create_graph_ties_nothing():
    x = leaf(1, 2)
    dead = weakref.ref(x)
    g = mg.grad((x * x * x).sum(), x, create_graph=True)
    equals(g, [3, 12])
    del g, x
    assert dead() is None


# ── roots and seeds ───────────────────────────────────────────────────────────────────────────────


def test_backward_refuses():
    x = leaf(1, 2)
    one = mg.ones(2, dtype="float64")
    refuses(mg.GradientError, "backward", "(2,)", mg.Tensor.backward, x)
    refuses(mg.GradientError, "backward", "(2,)", mg.Tensor.backward, one)
    refuses(mg.GradientError, "backward", ["(2,)", "(3,)"], mg.Tensor.backward, x, mg.ones(3, dtype="float64"))
    refuses(mg.GradientError, "backward", ["float64", "float32"], mg.Tensor.backward, x, mg.ones(2))
    refuses(TypeError, "backward", "ndarray", mg.Tensor.backward, x, np.ones(2))
    refuses(TypeError, "backward", "float", mg.Tensor.backward, x, 1.0)
    assert x.grad is None


def test_a_gradient_that_is_another_librarys():
    y = mg.ones(2, requires_grad=True) * 2
    theirs = type("Tensor", (), {"__module__": "torch.parts"})()
    raises(TypeError, r"^\[backward\] expected a tensor as the gradient, got torch.Tensor$", y.backward, theirs)


def test_gradient_of_the_wrong_shape_into_one_of_several_outputs():
    x = mg.ones((2, 1000), requires_grad=True)
    a, _ = mg.unstack(x)
    refuses(mg.GradientError, "backward", ["(1000,)", "(1,)"], a.backward, mg.ones(1))


def test_backward_of_a_leaf():
    x = leaf(5)
    x.backward()
    equals(x.grad, [1])


def test_one_element_of_any_shape_needs_no_gradient():
    x = mg.ones((1, 1, 1), requires_grad=True)
    (x * 3).backward()
    equals(x.grad, [[[3]]])


# ── the tape as a table ───────────────────────────────────────────────────────────────────────────


def test_tape_rows():
    x = mg.ones((2, 3), requires_grad=True)
    w = mg.ones((2, 3))
    with mg.record_source():
        y = (x * w).sum()
    rows = y.tape()
    assert [row["op"] for row in rows] == ["leaf", "multiply", "sum"]
    assert [row["inputs"] for row in rows] == [[], [0, None], [1]]
    assert [row["shape"] for row in rows] == [(2, 3), (2, 3), ()]
    assert [row["saved_bytes"] for row in rows] == [0, 24, 0]
    assert all(row["dtype"] == "float32" for row in rows)
    assert rows[1]["where"].startswith(__file__)
    assert rows.saved_bytes == 24
    assert len(rows) == 3
    assert rows[-1]["op"] == "sum"
    lines = repr(rows).splitlines()
    assert lines[0].split() == ["#", "op", "inputs", "shape", "dtype", "saved", "bytes", "source"]
    assert lines[2].split()[:4] == ["1", "multiply", "0,", "-"]
    assert rows[1]["where"].endswith(f"test_tape.py:{lines[2].rpartition(':')[2]}")
    assert os.path.dirname(__file__) not in repr(rows)  # the table names a file without its folders


def test_tape_without_sources_and_without_history():
    x = mg.ones(1, requires_grad=True)
    assert x.exp().tape()[1]["where"] is None
    assert "source" not in repr(x.exp().tape())
    assert len(x.tape()) == 1
    assert len(mg.ones(1).tape()) == 0


def test_errors_tell_the_recorded_line():
    x = leaf(1)
    with mg.record_source():
        y = x * x
    y.backward()
    raises(mg.GradientError, r"recorded at .*test_tape\.py:\d+", y.backward)
