"""The engine's own functions, tensors that were never initialized, sizes that overflow, and writes from another thread: each
ends in a result or in a Python exception."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from checks import raises, refuses
from hostile import REFUSALS, group, survives

import minigrad as mg
import minigrad.nn.functional as F
from minigrad.engine.devices import backend, cpu
from minigrad.engine.memory import array
from minigrad.engine.ops import gather, optimizer, recurrent
from minigrad.engine.tape import backward, hooks, inspection, python_function
from minigrad.engine.tape import record as tape
from minigrad.engine.tensor import tensor as engine_tensor

# ── conversions that change the tensor ────────────────────────────────────────────────────────────


# ── the engine's own functions, and objects that were never initialized ───────────────────────────

ENGINE = {
    "leaf": lambda: tape.leaf(None),
    "maker": lambda: tape.maker(None),
    "maker of a leaf": lambda: tape.maker(mg.ones(1)),
    "add_hook": lambda: hooks.add_hook(None, print),
    "result type": lambda: array.set_result_type(int),
    "register": lambda: backend.register(64, cpu.CPU()),
    "register None": lambda: backend.register(0, None),
    "intercept": lambda: backend.intercept(lambda device, instance: None),
    "end intercept": lambda: backend.intercept(None),
    "entries": lambda: inspection.entries(None),
    "contents": lambda: inspection.contents(None),
    "differentiate": lambda: backward.differentiate([None], [None], None, False, False),
    "record_function": lambda: python_function.record_function("f", [mg.ones(1, requires_grad=True)], [5], None, ()),
    "attach": lambda: python_function.attach(None, None, 0),
    "update rule": lambda: optimizer.Rule("sgd", 2)([None], [None], [None], 0.1),
    "an unknown update rule": lambda: optimizer.Rule("none", 2),
    **{
        f"{name} with {len(states)} states": lambda name=name, states=states, count=count: optimizer.Rule(name, 2)(
            [mg.ones(3)], [mg.ones(3)], [None if n is None else [mg.zeros(3)] for n in states], *[0.1] * count)
        for name, states, count in (("adagrad", (), 3), ("adagrad", (None,), 3), ("adam", (1,), 10),
                                    ("rmsprop", (None, 1), 8), ("sgd", (1, 1, 1, 1), 7))
    },
    "grad_norm": lambda: optimizer.grad_norm(None),
    "recurrent": lambda: recurrent.recurrent(None, mg.ones((1, 1, 1)), mg.ones((1, 1)), None, mg.ones((1, 1))),
    "a cell": lambda: recurrent.Cell.__new__(recurrent.Cell),
    "lengths": lambda: recurrent.Lengths.__new__(recurrent.Lengths),
    "look_up": lambda: gather.look_up(mg.ones((2, 1 << 20)), mg.tensor([1 << 20])),
    "a data type": lambda: type(mg.float32)("float32", 4, "f", 99),
    "rebuild": lambda: engine_tensor.rebuild(int, np.arange(3), "cpu", False),
    "rebuild None": lambda: engine_tensor.rebuild(mg.Tensor, None, "cpu", False),
    "rebuild nothing": lambda: engine_tensor.rebuild(
        type("Nothing", (mg.Tensor,), {"__new__": lambda cls: None}), np.arange(3), "cpu", False),
    "rebuild another": lambda: engine_tensor.rebuild(
        type("Other", (mg.Tensor,), {"__new__": lambda cls: mg.ones(3)}), np.arange(3), "cpu", False),
    "dlpack of another device": lambda: mg.from_dlpack(type("Foreign", (), {
        "__dlpack_device__": lambda self: (2, 0), "__dlpack__": lambda self, **_: None})()),
    "a table that lies": lambda: F.embedding(mg.tensor([1 << 30]), type("Table", (mg.Tensor,), {
        "shape": (1 << 31, 4), "ndim": 2})(mg.ones((2, 4)))),
    "steps that lie": lambda: recurrent.recurrent(recurrent.Cell("rnn_tanh"), type("Steps", (mg.Tensor,), {
        "shape": (1 << 20, 1, 1)})(mg.ones((1, 1, 1))), mg.ones((1, 1)), None, mg.ones((1, 1))),
    "a mask that lies": lambda: mg.ones((2, 2))[type("Mask", (mg.Tensor,), {"shape": (2, 2), "ndim": 2})(
        mg.ones((9, 9), dtype="bool"))],
}  # fmt: skip


@group
def engine():
    return ENGINE


def test_engine_functions():
    """Functions of private modules also reject invalid arguments, above all None."""
    ends = survives("engine")
    fine = {name for name, end in ends.items() if end == "result"}
    assert fine == {"maker of a leaf", "end intercept", "steps that lie"}
    assert set(ends.values()) <= {"result", "RuntimeError", *REFUSALS}


def test_a_gpu_before_cuda_is_connected():
    code = "from minigrad.engine.devices.cuda import Current\nCurrent(0).__enter__()"
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 1
    assert "RuntimeError: [cuda] expected cuda:0" in done.stderr


@group
def uninitialized():
    """Every method and every public function of a tensor whose __init__ never ran."""

    def new():
        return mg.Tensor.__new__(mg.Tensor)

    cases = {}
    for name in sorted(set(dir(mg.zeros(1))) - set(dir(object)) | {"__eq__", "__repr__", "__reduce__", "__init__"}):
        if callable(getattr(mg.Tensor, name)):
            for count in range(3):
                cases[f"x.{name}, {count}"] = lambda name=name, count=count: getattr(new(), name)(
                    *[new() for _ in range(count)]
                )
        else:
            cases[f"x.{name}"] = lambda name=name: getattr(new(), name)
    functions = {f"mg.{name}": getattr(mg, name) for name in dir(mg) if not name.startswith("_")}
    functions |= {f"F.{name}": getattr(F, name) for name in F.__all__}
    for name, function in functions.items():
        if callable(function) and not isinstance(function, type) and name != "mg.set_num_threads":
            for count in (1, 2, 3):
                cases[f"{name}, {count}"] = lambda function=function, count=count: function(
                    *[new() for _ in range(count)]
                )
    x = mg.ones(3)
    cases["x.set_"] = lambda: (x.set_(new()), x + 1, x.sum(), x[:], mg.zeros(3).set_(x))
    cases["itself"] = lambda: (lambda y: (y.__init__(y), y + 1))(new())
    cases["twice"] = lambda: (x.__init__(mg.ones(5), True), x.__init__(mg.ones((2, 2))), x.sum())
    return cases


def test_uninitialized():
    ends = survives("uninitialized")
    assert ends["mg.sum, 1"] == ends["F.relu, 1"] == "TypeError"


def test_full_of_nothing():
    """None is not a number: it once meant uninitialized memory."""
    x = mg.ones(3)
    for op, call in (("full", lambda: mg.full(3, None)), ("full", lambda: mg.full(3, None, dtype="float32")),
                     ("full_like", lambda: mg.full_like(x, None)), ("fill_", lambda: x.fill_(None))):  # fmt: skip
        refuses(TypeError, op, "None", call)


def test_rebuilt_by_a_file():
    """A pickle may request integers that require grad, which no call of the library creates."""
    refuses(TypeError, "rebuild", "int64", engine_tensor.rebuild, mg.Tensor, np.arange(3), "cpu", True)
    y = engine_tensor.rebuild(mg.nn.Parameter, np.ones(3, np.float32), "cpu", True)
    assert type(y) is mg.nn.Parameter
    assert y.requires_grad


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────

SIZES = {
    "split": lambda: mg.split(mg.ones(0), 2**40),
    "split of nothing": lambda: mg.split(mg.zeros((2**40, 0)), 2**40),
    "unstack": lambda: mg.unstack(mg.zeros((2**40, 0))),
    "iterate": lambda: list(mg.zeros((2**40, 0))),
    "cumulative_sum": lambda: mg.zeros((2**40, 0)).cumulative_sum(1),
    "concat": lambda: mg.concat([mg.zeros((2**62, 0))] * 3),
    "indices": lambda: mg.zeros((2**62, 2**62, 0))[[5], [7]],
    "broadcast_to": lambda: mg.broadcast_to(mg.zeros((0, 1)), (0, 2**62)) + 1,
    "reshape": lambda: mg.reshape(mg.zeros(0), (0, 2**62, 2**62)) + 1,
    "slice": lambda: mg.zeros((2**62, 0))[:: 2**61] + mg.zeros((2, 0)),
    "conv2d": lambda: F.conv2d(mg.ones((1, 3, 3)), mg.ones((1, 1, 2, 2)), None, 2**31 - 1, 2**31 - 1, 2**31 - 1),
    "conv2d groups": lambda: F.conv2d(mg.zeros((1, 0, 3, 3)), mg.zeros((0, 4, 2, 2)), groups=2**62),
    "max_pool2d": lambda: F.max_pool2d(mg.ones((1, 3, 3)), 2**31 - 1, 2**31 - 1, 2**30 - 1, 1, True),
    "max_pool2d dilation": lambda: F.max_pool2d(mg.ones((1, 3, 3)), 2**31 - 1, 1, 2**31 - 1, 2**31 - 1),
    "avg_pool2d": lambda: F.avg_pool2d(mg.ones((1, 3, 3)), 2**31 - 1, padding=2**30 - 1),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(mg.zeros((0, 1, 2**40, 1)), (2**20, 1)),
    "one_hot": lambda: F.one_hot(mg.tensor([2**62])),
    "floor_divide": lambda: mg.tensor([-(2**63)]) // -1,
    "remainder": lambda: mg.tensor([-(2**31)], dtype="int32") % -1,
    "embedding": lambda: F.embedding(mg.zeros((2**40, 0), dtype="int64"), mg.zeros((3, 0))),
    "softmax": lambda: mg.softmax(mg.zeros((2**40, 0)), 1),
    "take_along_axis": lambda: mg.take_along_axis(mg.zeros((2, 2**40, 0)), mg.zeros((1, 2**40, 0), dtype="int64"), 0),
    "sum": lambda: mg.zeros((3, 2**62, 0), requires_grad=True).sum(0).sum().backward(),
    "prod": lambda: mg.zeros((2**40, 0), requires_grad=True).prod(0).sum().backward(),
}


@group
def sizes():
    return SIZES


def test_sizes():
    """Overflowing lengths and many empty rows take no time: the work is bounded by the number of elements."""
    ends = survives("sizes")
    assert set(ends.values()) <= {"result", *REFUSALS}


def test_sizes_of_foreign_memory():
    """A repeated element makes an array of any size, which is not read element by element."""
    one, byte = np.ones(1, "f"), np.ones(1, "?")
    refuses(ValueError, "shape", "too many elements", mg.asarray, np.lib.stride_tricks.as_strided(one, (2**59,), (0,)))
    for value in (1, 2):
        byte.view("u1")[:] = value
        x = np.lib.stride_tricks.as_strided(byte, (2**57,), (0,))
        if value == 1:
            assert mg.asarray(x).shape == (2**57,)
        else:
            with pytest.raises(MemoryError):
                mg.asarray(x)


def test_shapes_of_a_subclass_of_tuple():
    shape = type("Shape", (tuple,), {})((2, 3))
    assert mg.broadcast_to(mg.ones(3), shape).shape == mg.zeros(shape).shape == mg.ones(6).reshape(shape).shape


def test_code_of_a_module_without_a_name():
    exec("with mg.record_source(): y = x * 2", names := {"mg": mg, "x": mg.ones(1, requires_grad=True), "__name__": 1})
    names["y"].backward()
    raises(mg.GradientError, "recorded at <string>:1", names["y"].backward)


def test_many_sections():
    """Many empty pieces are possible, but not an arbitrary number."""
    assert [x.shape for x in mg.split(mg.ones(0), 3)] == [(0,)] * 3
    assert len(mg.split(mg.ones((0, 2)), 1 << 16)) == 1 << 16
    refuses(ValueError, "split", ["65536", "65537"], mg.split, mg.ones(0), (1 << 16) + 1)
    assert len(mg.split(mg.ones(70_000), 70_000)) == 70_000
    refuses(ValueError, "unstack", "65536", mg.unstack, mg.ones((1 << 20, 0)))


def test_product_of_integers_in_little_memory():
    """The terms of an integer product, 4 GB here, are not all in memory at once."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (256, 4096)), rng.integers(-9, 9, (4096, 8))
    before = mg.memory_allocated() + mg.memory_cached()
    y = mg.tensor(a) @ mg.tensor(b)
    assert mg.memory_allocated() + mg.memory_cached() - before < 1 << 26
    np.testing.assert_array_equal(y.numpy(), a @ b)
    assert (mg.tensor(a > 8) @ mg.tensor(b > 8)).tolist() == ((a > 8) @ (b > 8)).tolist()


# ── threads ───────────────────────────────────────────────────────────────────────────────────────


def raced(call, holds, seconds=0.3, dtype="int64"):
    """Call while another thread writes invalid numbers to a NumPy view of the same memory."""
    n, stop = 1 << 16, threading.Event()
    good, bad = np.zeros(n, dtype), np.full(n, 1 << 40).astype(dtype)
    values = good.copy()
    x = mg.asarray(values)

    def write():
        while not stop.is_set():
            for numbers in (bad, good, good, good, good):  # rarely invalid, so that checks find nothing
                np.copyto(values, numbers)  # without the GIL

    def case():
        writer = threading.Thread(target=write)
        writer.start()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                try:
                    result = call(x, n)
                except (IndexError, ValueError):
                    continue
                assert holds(result, n)
        finally:
            stop.set()
            writer.join()

    return case


@group
def threads():
    table = mg.ones((4, 16))
    logits = mg.ones((1 << 16, 16))

    def is_permutation(order, n):
        return (np.bincount(order.numpy(), minlength=n) == 1).all()

    return {
        "take": raced(lambda x, n: mg.take(table, x, axis=0), lambda y, n: bool((y == 1).all())),
        "index": raced(lambda x, n: table[x], lambda y, n: bool((y == 1).all())),
        "embedding": raced(lambda x, n: F.embedding(x, table), lambda y, n: bool((y == 1).all())),
        "cross_entropy": raced(
            lambda x, n: mg.cross_entropy(logits, x), lambda y, n: abs(y.item() - np.log(16)) < 1e-4
        ),
        "nll_loss": raced(lambda x, n: F.nll_loss(logits, x), lambda y, n: y.item() == -1),
        "lengths": raced(lambda x, n: recurrent.Lengths(x, 3, n), lambda y, n: y.values.max().item() <= 3, 1.5),
        "nonzero": raced(lambda x, n: mg.nonzero(x)[0], lambda y, n: y.size == 0 or y.max().item() < n),
        "nonzero of a mask": raced(
            lambda x, n: mg.nonzero(x)[0], lambda y, n: bool(((y >= 0) & (y < n)).all()), dtype="bool"
        ),
        "argsort": raced(lambda x, n: mg.argsort(x), is_permutation),
        "unique": raced(lambda x, n: mg.unique_values(x), lambda y, n: y.size <= 3),
    }


def test_writes_from_another_thread():
    """Values are checked, counted or sorted in memory that nobody else can write."""
    assert set(survives("threads").values()) == {"result"}
