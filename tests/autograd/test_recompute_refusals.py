"""recompute refuses second runs that would differ: after writes, replaced tensors, changed modes, other operations."""

import time

import numpy as np
import pytest
from checks import allocated, array, equals, leaf, near, raises, refuses, tensor
from recomputed import WAYS, Counter, agree

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def test_refused_at_once(device):
    x = tensor(np.ones(3), device)
    w = tensor(np.ones(3), device, True)
    refuses(TypeError, "recompute", "int", mg.recompute, 3)

    def writes(x):
        x += 1
        return x * w

    refuses(mg.GradientError, "recompute", "argument 0", lambda: mg.recompute(writes)(w * 1))
    nested = mg.recompute(lambda xs: writes(xs[0]))
    refuses(mg.GradientError, "recompute", "a tensor in argument 'xs'", lambda: nested(xs=[w * 1]))
    refuses(mg.GradientError, "recompute", "calls backward", mg.recompute(lambda w: (w * w).sum().backward()), w)

    c = tensor(np.ones(3), device)

    def captures(x):
        y = x * c
        c.__imul__(x)
        return y

    refuses(mg.GradientError, "recompute", ["(3,)", "copy"], mg.recompute(captures), w)
    refuses(mg.GradientError, "set_", "recompute", mg.recompute(lambda x: x * mg.zeros(3).set_(mg.ones(3))), w)
    refuses(TypeError, "recompute", "recompute(f)(x)", mg.recompute, mg.exp, w)
    total = mg.recompute(lambda xs: sum(x * w for x in xs))
    refuses(TypeError, "recompute", ["generator", "list"], total, (x for _ in range(2)))
    refuses(TypeError, "recompute", ["list_iterator"], total, xs=iter([x, x]))

    def yields(x):
        yield x * w

    async def waits(x):
        return x * w

    refuses(TypeError, "recompute", "generator", mg.recompute(yields), x)
    refuses(TypeError, "recompute", "coroutine", mg.recompute(waits), x)


def test_a_module_keeps_the_module_and_not_its_wrapper():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = mg.recompute(layer)

    layer = nn.Linear(2, 2)
    refuses(TypeError, "Net", ["'block'", "mg.recompute(self.block)(x)"], Net)


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.frozen = nn.Parameter(mg.full(2, 2.0)), nn.Parameter(mg.full(2, 3.0), requires_grad=False)
        self.register_buffer("scale", mg.full(2, 4.0))
        self.index = mg.tensor([0, 1])
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x * self.w * mg.exp(self.frozen) + self.scale * 2)[self.index]


def write(x):
    with mg.no_grad():
        x *= 5 if x.dtype.kind == "f" else 0


@pytest.mark.parametrize("what", ["w", "frozen", "scale", "index"])
def test_a_tensor_that_is_written_meanwhile(what):
    """Even where the plain function saves nothing of it, as the second run reads it."""
    m, x = Weighted(), mg.ones(2, requires_grad=True)
    y = mg.recompute(m)(x)
    write(getattr(m, what))
    refuses(mg.GradientError, "recompute", [f"Weighted.{what}", "written in place"], y.sum().backward)
    assert x.grad is None


READERS = {
    "saved": lambda x, c: x * c,
    "not saved": lambda x, c: mg.exp(x + c),
    "not recorded": lambda x, c: x * mg.exp(c),
    "detached": lambda x, c: x * c.detach()[0],
    "condition": lambda x, c: mg.where(c > 2, x, 0 * x),
    "index": lambda x, c: mg.exp(x)[c.astype("int64") - 2],
    "labels": lambda x, c: F.cross_entropy(mg.stack([x, 2 * x]), c.astype("int64") - 2),
    "item": lambda x, c: x * c[0].item(),
    "values": lambda x, c: x * c.tolist()[0],
    "number": lambda x, c: x * float(c.min()) * int(c.max()),
    "truth": lambda x, c: x * 2 if c[0] else x * 3,
}
CONSTANT_READERS = {
    "list": lambda x, c: x * mg.tensor([c, c]),
    "array": lambda x, c: x * np.asarray(c),
    "DLPack": lambda x, c: x * mg.from_dlpack(np.from_dlpack(c)),
    "scalar": lambda x, c: x**2 * F.leaky_relu(x, c[0]),
}


@pytest.mark.parametrize("f", [*READERS.values(), *CONSTANT_READERS.values()], ids=[*READERS, *CONSTANT_READERS])
def test_constants_that_are_written_meanwhile(f):
    c, x = mg.tensor([2.0, 3.0]), mg.ones(2, requires_grad=True)
    y = mg.recompute(lambda x: f(x, c))(x)
    c *= 2
    refuses(mg.GradientError, "recompute", ["(2,)", "written in place"], y.sum().backward)


@pytest.mark.parametrize("f", READERS.values(), ids=READERS)
def test_computed_tensors_that_are_written_meanwhile(f):
    """Tensors with a history, whose write is recorded."""
    x = mg.ones(2, requires_grad=True)
    h = x * 0 + 2
    y = mg.recompute(lambda x: f(x, h))(x)
    h += 1
    refuses(mg.GradientError, "recompute", ["(2,)", "written in place"], y.sum().backward)


def test_an_argument_that_is_written_meanwhile():
    h = mg.ones(2, requires_grad=True) * 2
    y = mg.recompute(lambda h: h * h)(h)
    h += 1
    refuses(mg.GradientError, "recompute", ["argument 0", "written in place"], y.sum().backward)


def test_a_tensor_that_is_replaced_meanwhile():
    for name, new, what in (
        ("w", nn.Parameter(mg.full(2, 5.0)), "got a read of Weighted.w, which"),
        ("frozen", nn.Parameter(mg.full(2, 5.0), requires_grad=False), "got a read of Weighted.frozen, which"),
        ("scale", mg.full(2, 5.0), "got a read of Weighted.scale, which"),
        ("index", mg.tensor([1, 0]), "got a read of Weighted.index, which"),
        ("drop", nn.ReLU(), "a call of ReLU"),
    ):
        m, x = Weighted(), mg.ones(2, requires_grad=True)
        y = mg.recompute(m)(x)
        setattr(m, name, new)
        refuses(mg.GradientError, "recompute", what, y.sum().backward)
    held = [mg.tensor([2.0, 3.0])]
    y = mg.recompute(lambda x: x * mg.exp(held[0]))(x)
    first, held[0] = held[0], mg.tensor([2.0, 3.0])
    refuses(mg.GradientError, "recompute", "instead of a read of a tensor of shape (2,)", y.sum().backward)
    held[0] = first
    y.sum().backward()
    near(x.grad, np.exp([2, 3]), rtol=1e-6)


def swap(c):
    c["a"], c["b"] = c["b"], c["a"]


MEANWHILE = {
    "swapped": (lambda x, c: x * mg.exp(c["a"]) - mg.sin(c["b"] * x), swap),
    "reversed": (lambda x, c: x * mg.exp(c["list"][0]) * mg.sin(c["list"][1]), lambda c: c["list"].reverse()),
    "added": (lambda x, c: x * mg.exp(sum(c["list"][1:], c["list"][0])), lambda c: c["list"].append(c["a"])),
    "removed": (lambda x, c: x * mg.exp(sum(c["list"])), lambda c: c["list"].pop()),
    "replaced by a result": (lambda x, c: x * c["a"], lambda c: c.update(a=c["a"] + 0)),
    "read otherwise": (lambda x, c: x * float(c["a"].sum()) - mg.exp(c["a"]), swap),
}


@pytest.mark.parametrize("how", MEANWHILE)
def test_constants_that_change_places_meanwhile(how):
    f, change = MEANWHILE[how]
    a, b = mg.tensor([1.0, 2.0]), mg.tensor([3.0, 4.0])
    c, x = {"a": a, "b": b, "list": [a, b]}, mg.ones(2, requires_grad=True)
    y = mg.recompute(lambda x: f(x, c))(x)
    change(c)
    refuses(mg.GradientError, "recompute", "read", y.sum().backward)
    assert x.grad is None


class Stateful(nn.Module):
    """A state that each call replaces, in one of several ways."""

    def __init__(self, how):
        super().__init__()
        self.how, self.past = how, [mg.ones(2)]
        self.register_buffer("n", mg.ones(2))

    def forward(self, x):
        if self.how == "appended":
            self.past.append(x.detach() * 2)
            return x * sum(self.past)
        if self.how == "recurrent":
            h = mg.tanh(x * self.n)
            self.n = h.detach()
            return h
        if self.how == "once" and not hasattr(self, "made"):
            self.made = mg.exp(self.n)
            return x * self.made
        self.n = self.n + 1
        return x * self.n


@pytest.mark.parametrize("how", ["appended", "recurrent", "once", "counted"])
def test_a_state_that_is_replaced(how):
    x = mg.ones(2, requires_grad=True)
    y = mg.recompute(Stateful(how))(x)
    refuses(mg.GradientError, "recompute", ["read", "in place"], y.sum().backward)
    assert x.grad is None


def test_tensors_of_its_own():
    """Buffers that f makes, fills and returns, which its caller may write to, are no captured tensors."""

    def f(x):
        z = mg.zeros(2)
        z += 1
        z[0] = 3
        return x * z, z, (x.detach() * 2)[:1]

    x = mg.ones(2, requires_grad=True)
    y, z, m = mg.recompute(f)(x)
    z *= 0
    m *= 0
    y.sum().backward()
    equals(x.grad, [3, 1])


def test_a_leaf_of_its_own_that_is_kept():
    """Its gradient would go to the leaf that the second run makes."""
    kept = []

    def f(x):
        w = mg.ones(2, requires_grad=True)
        kept.append(w)
        return x * w

    x = mg.ones(2, requires_grad=True)
    refuses(mg.GradientError, "recompute", ["keeps no leaf", "outside"], mg.recompute(f), x)


def test_passes_within_over_another_run():
    """f differentiates what older functions computed, nested and given to recompute; its pass runs them again."""
    found = []
    for way in WAYS:
        x, w = leaf(1.0, 2.0), leaf(0.5, 0.25)
        inner = way(lambda z, w=w, way=way: way(lambda v: mg.exp(v) * mg.sin(w))(mg.tanh(z)) * w)
        h = inner(w * 2)

        def f(x, h=h, w=w):
            (g,) = mg.grad((h * h).sum(), [w], create_graph=True, retain_graph=True)
            return x * x * g * mg.grad(h.sum(), w, create_graph=True, retain_graph=True)

        found.append(mg.grad(way(f)(x).sum(), [x, w], retain_graph=True))
    for a, b in zip(*found, strict=True):  # sums of gradients that are differentiated have another order
        near(a, array(b), rtol=1e-13)


def test_many_constants():
    """Reading n tensors takes n steps, and no copies of them."""
    constants = [mg.ones((64, 64)) for _ in range(400)]
    x = mg.ones((64, 64), requires_grad=True)
    f = mg.recompute(lambda x: sum(x * (c * 1) for c in constants).mean())
    before, y = allocated(), f(x)
    assert allocated() - before < 4 * x.nbytes
    begin = time.process_time()
    y.backward()
    assert time.process_time() - begin < 2
    equals(x.grad.sum(), 400)


def test_modes_that_change_meanwhile():
    for module in (nn.Dropout(0.5), nn.BatchNorm1d(2), nn.Sequential(nn.Linear(2, 2))):
        x = mg.ones((3, 2), requires_grad=True)
        y = mg.recompute(module)(x)
        buffers = [array(b) for b in module.buffers()]
        module.eval()
        what = f"a call of {type(module).__name__} in evaluation, instead"
        refuses(mg.GradientError, "recompute", what, y.sum().backward)
        agree([buffers, list(module.buffers())])
    layer = nn.Linear(2, 2)
    y = mg.recompute(layer)(x)
    layer.weight.requires_grad_(False)
    refuses(mg.GradientError, "recompute", "weight, which does not require grad, instead", y.sum().backward)
    y = mg.recompute(layer)(x)
    layer.weight.requires_grad_(True)
    refuses(mg.GradientError, "recompute", "weight, which requires grad, instead", y.sum().backward)
    y = mg.recompute(layer)(x)
    layer.to(dtype="float64")
    raises(mg.GradientError, "became another tensor", y.sum().backward)


@pytest.mark.parametrize("f", [lambda x: x @ x, mg.sin])
def test_a_precision_that_changes_meanwhile(f):
    try:
        mg.set_float32_matmul_precision("high")
        x = mg.ones((2, 2), requires_grad=True)
        y = mg.recompute(lambda x: f(x) * 2)(x)
        mg.set_float32_matmul_precision("highest")
        what = "highest precision of products, instead of high precision"
        refuses(mg.GradientError, "recompute", what, y.sum().backward)
        mg.set_float32_matmul_precision("high")
        y.sum().backward()
        equals(x.grad, mg.grad((f(x) * 2).sum(), [x])[0])
    finally:
        mg.set_float32_matmul_precision("highest")


def test_a_precision_that_the_function_changes():
    def f(x):
        mg.set_float32_matmul_precision("medium")
        y = x @ x
        mg.set_float32_matmul_precision("highest")
        return y @ x

    x = mg.tensor(np.random.default_rng(0).standard_normal((20, 20)), dtype="float32", requires_grad=True)
    agree([mg.grad(mg.recompute(f)(x).sum(), [x]), mg.grad(f(x).sum(), [x])])


def changing(*values):
    """A function of no argument that returns each value in turn."""
    return iter(values).__next__


def test_a_second_run_that_differs():
    x = mg.ones(3, requires_grad=True)
    for f, what in (
        (lambda x, n: mg.exp(x[:n]), ["[slice], (2,) float32 on cpu, with", "instead of [slice], (3,)"]),
        (
            lambda x, n: mg.exp(x).astype("float64" if n == 2 else "float32"),
            ["[astype], (3,) float64 on cpu", "instead of [copy], (3,) float32"],
        ),
        (lambda x, n: mg.exp(x) if n == 3 else mg.sin(x), ["[sin], (3,)", "instead of [exp], (3,)"]),
        (lambda x, n: mg.exp(x) if n == 3 else mg.exp(x) * 2, "with 2.0, instead of 1 results"),
        (lambda x, n: mg.exp(x) if n == 2 else mg.exp(x) * 2, "got 1 results that require grad, instead of [multiply]"),
        (lambda x, n: mg.exp(x) * n, ["[multiply], (3,) float32 on cpu, with 2.0", "on cpu, with 3.0"]),
        (lambda x, n: x ** (n + 0.5), "[power], (3,) float32 on cpu, with 2.5, instead"),
        (lambda x, n: mg.exp(x) * mg.random.uniform(shape=4 * n).sum(), "2 blocks of random numbers, instead of 3"),
    ):
        n = changing(3, 2)
        y = mg.recompute(lambda x, f=f, n=n: f(x, n()))(x)
        refuses(mg.GradientError, "recompute", what, y.sum().backward)
    n = changing(3, 2)

    def catches(x):
        try:
            return mg.exp(x) if n() == 3 else mg.sin(x)
        except mg.GradientError:
            return mg.exp(x)

    parts = ["[sin], (3,)", "instead of [exp], (3,)"]
    refuses(mg.GradientError, "recompute", parts, mg.recompute(catches)(x).sum().backward)


def test_an_error_in_the_second_run():
    """It names recompute; gradients, generator, buffers and the tape are as before it, and a new try succeeds."""
    failing = changing(False, True, False)
    m, x = Counter(), tensor(np.arange(6.0).reshape(3, 2), "cpu", True)

    def f(x):
        y = m(x) * F.dropout(x)
        if failing():
            raise ArithmeticError("no")
        return y

    y = mg.recompute(f)(x)
    state, buffers, kept = mg.random.get_state(), [array(b).copy() for b in m.buffers()], allocated()
    with pytest.raises(ArithmeticError) as caught:
        y.backward(mg.ones((3, 2), dtype="float64"))
    assert any("recompute" in note for note in caught.value.__notes__)
    del caught
    assert mg.random.get_state() == state
    agree([buffers, list(m.buffers())])
    assert x.grad is m.norm.weight.grad is None
    assert allocated() == kept
    y.backward(mg.ones((3, 2), dtype="float64"))
    agree([buffers, list(m.buffers())])
    assert x.grad is not None
