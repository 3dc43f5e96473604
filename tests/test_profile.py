"""A profile sees every kernel once, under the operation that started it, with the work it did; and leaves nothing behind."""

import contextlib
import gc
import inspect
import json
import subprocess
import sys
import threading
import weakref
from collections import Counter

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim, work
from minigrad.engine import tape
from minigrad.engine.backend import Backend
from minigrad.nn import functional as F


def named(p, phase):
    """(operation, kernel) of every event of a phase, in order."""
    return [(event.op, event.kernel) for event in p.events if event.phase == phase]


def test_kernels_count_for_the_operation_that_started_them(device):
    w = mg.ones((5, 3), device=device, requires_grad=True)
    x = mg.ones((4, 5), device=device)
    with mg.profile() as p:
        y = F.softmax(x @ w).exp().sum()
        y.backward()
    assert named(p, "forward") == [("matmul", "gemm"), ("softmax", "softmax"), ("exp", "exp"), ("sum", "sum")]
    assert [op for op, _ in named(p, "backward")] == ["exp", "softmax", "matmul"]
    assert named(p, "other") == [("fill", "fill")]  # the gradient of y itself
    assert {event.device for event in p.events} == {w.device}


def test_a_fused_operation_is_one_call():
    """All kernels of an operation share a call, and two runs of it do not."""
    labels = mg.zeros(4, dtype=mg.int64)
    z = mg.ones((4, 3), requires_grad=True)
    with mg.profile() as p:
        for _ in range(2):
            F.cross_entropy(z, labels, reduction="sum")
    calls = Counter(event.call for event in p.events if event.op == "cross_entropy")
    assert len(calls) == 2
    assert set(calls.values()) == {2}  # the labels are checked, then the losses computed
    assert {event.kernel for event in p.events if event.op == "cross_entropy"} == {"class_labels", "cross_entropy"}


def test_kernels_of_no_operation_count_under_their_own_names():
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), 0.1)
    model(mg.ones((1, 3))).sum().backward()
    with mg.profile() as p:
        optimizer.step()
        y = mg.ones(3) > 0
    assert y.numpy().all()
    assert {event.phase for event in p.events} == {"other"}
    assert [event.op for event in p.events] == [event.kernel for event in p.events]
    assert {event.op for event in p.events} == {"adam", "fill", "gt"}


def test_what_is_not_recorded_counts_for_its_operation():
    x, w = mg.ones((4, 3)), mg.ones((3, 2), requires_grad=True)
    with mg.profile() as p:
        with mg.no_grad():
            x @ w
        (x / 2.0) @ w  # the division is not recorded, and no part of the product
    assert named(p, "forward") == [
        ("matmul", "gemm"), ("divide", "fill"), ("divide", "divide"), ("matmul", "gemm")
    ]  # fmt: skip
    assert named(p, "other") == []


def test_what_is_not_recorded_is_no_part_of_what_the_same_line_records_next():
    c, w = mg.ones(3), mg.ones(3, requires_grad=True)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    x = mg.ones((1, 3))
    with mg.profile() as p:
        [t.exp() for t in (c, c, w)]
        model(x)
    assert named(p, "forward") == [("exp", "exp")] * 3 + [("linear", "gemm")] * 2
    assert len({event.call for event in p.events}) == 5


def test_functions_that_follow_each_other_in_memory():
    """The frame of one that has ended may be where that of the next one is, at the same place of its code."""
    x, y = mg.ones(3), mg.ones(3)
    functions = [lambda: x > y, lambda: x / y] * 3
    with mg.profile() as p:
        for function in functions:
            function()
    assert named(p, "other") == [("gt", "gt")] * 3
    assert named(p, "forward") == [("divide", "divide")] * 3


def test_a_function_of_ones_own():
    class Cube(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * g * x * x

    x = mg.ones(3, requires_grad=True)
    with mg.profile() as p:
        y = Cube.apply(x)
        y.sum().backward()
        Cube.apply(mg.ones(2))
    assert named(p, "forward") == [("Cube", "mul"), ("Cube", "mul"), ("sum", "sum"), ("Cube", "mul"), ("Cube", "mul")]
    assert len({event.call for event in p.events if event.phase == "forward"}) == 3
    assert [kernel for op, kernel in named(p, "backward") if op == "Cube" and kernel != "fill"] == ["mul"] * 3


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_function_inside_of_another_is_a_part_of_it(requires_grad):
    class Double(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x + x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    class Outer(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return Double.apply(x.exp()).sin()

        @staticmethod
        def backward(ctx, g):
            return g

    x = mg.ones(3, requires_grad=requires_grad)
    with mg.profile() as p:
        Outer.apply(x)
        Double.apply(x)
    assert named(p, "forward") == [("Outer", "exp"), ("Outer", "add"), ("Outer", "sin"), ("Double", "add")]
    assert len({event.call for event in p.events}) == 2
    assert named(p, "other") == []


def test_a_recorded_backward_pass_counts_for_the_nodes_that_it_runs():
    x = mg.ones((2, 3), requires_grad=True)
    y = (F.layer_norm(x, (3,)) ** 2).sum()
    with mg.profile() as p:
        mg.grad(y, [x], create_graph=True)
    assert named(p, "forward") == []
    assert "layer_norm" in {op for op, _ in named(p, "backward")}
    assert {op for op, _ in named(p, "backward")} == {"square", "layer_norm"}


def test_what_a_kernel_calls_itself_is_not_counted_again():
    """A padded convolution fills and copies on the CPU, through the same backend."""
    x, w = mg.ones((1, 1, 4, 4)), mg.ones((1, 1, 3, 3))
    with mg.profile() as p:
        F.conv2d(x, w, padding=1)
    assert [event.kernel for event in p.events] == ["conv2d"]


def test_times_add_up_to_the_wall_time():
    x = mg.ones((64, 64), requires_grad=True)
    with mg.profile() as p:
        for _ in range(5):
            (x @ x).tanh().sum().backward()
    assert all(event.duration > 0 and 0 <= event.start < p.wall for event in p.events)
    shares = [float(row[4].rstrip("%")) for row in p._rows() if len(row) > 1]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    assert sum(event.duration for event in p.events) + p.outside + p._own / 1e9 == pytest.approx(p.wall)
    before = p.wall
    mg.ones(3).exp()
    assert p.wall == before


def test_work_of_kernels(rng):
    """Operations by the formulas; bytes of what is read and what is written."""
    a, b = mg.tensor(rng.normal(size=(8, 5)), dtype=mg.float32), mg.ones((5, 3))
    table, index = mg.ones((100, 4)), mg.tensor([1, 7, 7])
    gain = mg.ones(5)
    with mg.profile() as p:
        a @ b
        mg.linear(a, mg.ones((3, 5)), mg.ones(3))
        a.exp()
        a + gain  # broadcast: its five elements count once
        F.layer_norm(a, (5,), gain, gain)
        F.layer_norm(a, (5,))
        F.embedding(index, table)
        F.conv2d(mg.ones((2, 3, 9, 9)), mg.ones((4, 3, 2, 2)), mg.ones(4))
    found = [(e.kernel, e.flops, e.bytes) for e in p.events if e.kernel not in ("fill", "copy", "class_labels", "checked_index")]
    assert found == [
        ("gemm", 2 * 8 * 5 * 3, 4 * (40 + 15 + 24)),
        ("gemm", 2 * 8 * 5 * 3 + 24, 4 * (40 + 15 + 24 + 3)),
        ("exp", 40, 4 * 80),
        ("add", 40, 4 * (40 + 5 + 40)),
        ("layer_norm", 8 * 40, 4 * (40 + 5 + 5 + 40 + 8 + 8)),
        ("layer_norm", 6 * 40, 4 * (40 + 40 + 8 + 8)),
        ("take", 0, 3 * 8 + 2 * 4 * 12),
        ("conv2d", (2 * 4 * 8 * 8) * (2 * 3 * 2 * 2 + 1), 4 * (2 * 3 * 81 + 48 + 4 + 2 * 4 * 64)),
    ]


def test_work_of_optimizers_and_recurrent_layers():
    lstm = nn.LSTM(3, 4)
    optimizer = optim.SGD(lstm.parameters(), 0.1)
    with mg.profile() as p:
        y, _ = lstm(mg.ones((7, 2, 3)))
        y.sum().backward()
        optimizer.step()
    found = {event.kernel: event for event in p.events}
    gates = 7 * 2 * 4 * 4  # steps, samples, gates, units
    assert found["recurrent"].flops == gates * (2 * 4 + work.GATE)
    assert found["recurrent_backward"].flops == gates * (2 * 4 + work.GATE_BACKWARD)
    parameters = sum(parameter.size for parameter in lstm.parameters())
    assert found["sgd"].flops == 2 * parameters
    assert found["sgd"].bytes >= 4 * 2 * parameters


@pytest.mark.parametrize("name", [*work.FLOPS, *work.GATHERS])
def test_counts_take_what_their_primitive_takes(name):
    """The parameters of a count are the first ones of its primitive; what it takes no interest in may be left out."""
    taken = [p.name for p in inspect.signature((work.FLOPS | work.GATHERS)[name]).parameters.values() if p.name != "_"]
    assert taken == list(inspect.signature(getattr(Backend, name)).parameters)[1 : 1 + len(taken)]


def test_every_primitive_counts_or_computes_nothing():
    idle = {
        "copy", "fill", "class_labels", "checked_index", "take", "put", "take_along", "argsort", "nonzero", "unique",
        "uniform", "normal", "integers",
    }  # fmt: skip
    primitives = {name for name in dir(Backend) if not name.startswith("_")}
    assert primitives == set(work.FLOPS) | idle
    assert not set(work.FLOPS) & idle


def test_one_at_a_time():
    with mg.profile() as p:
        with pytest.raises(RuntimeError, match=r"\[profile\] expected no other profile to be active"), mg.profile():
            pass
        mg.ones(2).exp()  # the outer one goes on
    assert "exp" in [event.kernel for event in p.events]
    with pytest.raises(RuntimeError, match=r"\[profile\] expected a new profile"), p:
        pass
    with mg.profile():
        pass


def test_an_error_in_the_block_ends_the_profile():
    watcher, p = tape.set_observer(None), mg.profile()

    def failing():
        with p:
            mg.ones(2).exp()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    seen = len(p.events)
    mg.ones(2).exp()
    assert seen == len(p.events) == 2
    assert tape.set_observer(watcher) is None


def test_an_error_in_a_kernel_or_in_backward_is_survived():
    class Broken(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            raise ZeroDivisionError

    x = mg.ones(3, requires_grad=True)
    with mg.profile() as p:
        with pytest.raises(IndexError):
            mg.take(mg.ones(3), mg.tensor([5]))
        with pytest.raises(ZeroDivisionError):
            Broken.apply(x).sum().backward()
        (x.exp() * x).sum().backward()
    assert named(p, "forward")[-3:] == [("exp", "exp"), ("multiply", "mul"), ("sum", "sum")]
    assert {op for op, _ in named(p, "backward")[-3:]} == {"multiply", "exp"}


def test_a_node_that_raised_is_left_when_the_next_pass_begins():
    """A loop that catches the error asks for both passes from the same place, over one tape or over two."""

    class Once(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x.detach()

        @staticmethod
        def backward(ctx, g):
            if not raised:
                raised.append(True)
                raise ZeroDivisionError
            return g

    x, y = mg.ones(3, requires_grad=True), mg.ones(3, requires_grad=True)
    one, raising, other = mg.ones(()), Once.apply(y.exp()).sin().sum(), x.tanh().sum()
    first = [("sin", "cos"), ("sin", "mul")]
    for second, after in ((raising, [*first, ("exp", "mul")]), (other, [("tanh", "tanh_grad")])):
        raised = []
        y.grad = None
        with mg.profile() as p:
            for loss in (raising, second):
                with contextlib.suppress(ZeroDivisionError):
                    loss.backward(one, retain_graph=True)
        assert named(p, "backward") == first + after
        assert len(raised) == 1


def test_passes_inside_of_a_backward_count_for_its_node():
    """Also over a tape that is older than the node."""
    z = mg.ones(3, requires_grad=True)
    older = z.tanh().sum()
    one = mg.ones(())

    class Nesting(mg.Function):
        @staticmethod
        def forward(ctx, x):
            return x.detach()

        @staticmethod
        def backward(ctx, g):
            mg.grad(older, [z], one, retain_graph=True)
            return g * g

    x = mg.ones(3, requires_grad=True)
    y = Nesting.apply(x.exp()).sum()
    with mg.profile() as p:
        y.backward(one)
    assert named(p, "backward") == [("Nesting", "tanh_grad"), ("Nesting", "mul"), ("exp", "mul")]


def test_threads():
    """Kernels of every thread, attributed in each by what it records."""
    w = mg.ones((30, 30), requires_grad=True)
    barrier = threading.Barrier(3)

    def run(function):
        barrier.wait()
        for _ in range(10):
            getattr(mg, function)(w @ w).sum().backward()

    threads = [threading.Thread(target=run, args=(function,)) for function in ("tanh", "exp", "sigmoid")]
    with mg.profile() as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({event.thread for event in p.events}) == 3
    for function in ("tanh", "exp", "sigmoid"):
        (ident,) = {event.thread for event in p.events if event.op == function}
        forward = Counter(e.op for e in p.events if e.thread == ident and e.phase == "forward")
        assert forward == {"matmul": 10, function: 10, "sum": 10}


def test_a_thread_that_outlives_the_profile_is_left_alone():
    """Its observer takes itself off as soon as it hears something."""
    go, seen, results = threading.Event(), threading.Event(), []

    def run():
        mg.ones(2, requires_grad=True).exp()
        seen.set()
        go.wait()
        mg.ones(2, requires_grad=True).exp()
        results.append(tape.set_observer(None))

    thread = threading.Thread(target=run)
    with mg.profile() as p:
        thread.start()
        seen.wait()
    events = len(p.events)
    go.set()
    thread.join()
    assert results == [None]
    assert len(p.events) == events


def test_a_profile_that_saw_a_thread_is_freed():
    """The tape still holds the observer of a thread that has ended."""
    with mg.profile() as p:
        thread = threading.Thread(target=lambda: mg.ones(2, requires_grad=True).exp())
        thread.start()
        thread.join()
    assert len({event.thread for event in p.events}) == 1
    gone = weakref.ref(p)
    del p
    gc.collect()
    assert gone() is None


def test_functions_with_the_names_of_what_an_observer_is_told():
    def recorded(t):
        return t.exp()

    def passed(t):
        return t.sin()

    def entered(t):
        return t.backward(one)

    x, one = mg.ones((), requires_grad=True), mg.ones(())
    with mg.profile() as p:
        entered(recorded(x))
        passed(one)
    assert named(p, "forward") == [("exp", "exp"), ("sin", "sin")]
    assert {op for op, _ in named(p, "backward")} == {"exp"}
    assert named(p, "other") == []


def test_who_watched_before_goes_on_watching():
    class Watcher:
        def __init__(self):
            self.heard = []

        def recorded(self, sequence, op, outs):
            self.heard.append(op)

        def passed(self, op):
            self.heard.append(f"{op} passed")

        def entered(self, sequence, op, grads):
            self.heard.append(f"{op} backward")

        def left(self, sequence):
            self.heard.append("left")

    watcher = Watcher()
    before = tape.set_observer(watcher)
    try:
        with mg.profile():
            mg.ones((), requires_grad=True).exp().backward()
            mg.ones(2).sin()
    finally:
        assert tape.set_observer(before) is watcher
    assert watcher.heard == ["exp", "exp backward", "multiply passed", "left", "leaf backward", "left", "sin passed"]


def test_another_one_may_stand_in_between():
    class Between:
        def recorded(self, *told):
            self.before.recorded(*told)

        def passed(self, *told):
            self.before.passed(*told)

        def entered(self, *told):
            self.before.entered(*told)

        def left(self, *told):
            self.before.left(*told)

    between = Between()
    with mg.profile() as p:
        between.before = tape.set_observer(between)
        try:
            mg.ones((2, 2), requires_grad=True).exp().sum().backward()
            mg.ones((2, 2)).sin()
        finally:
            tape.set_observer(between.before)
        mg.ones((2, 2), requires_grad=True).tanh()
    assert named(p, "forward") == [("exp", "exp"), ("sum", "sum"), ("sin", "sin"), ("tanh", "tanh")]
    assert {op for op, _ in named(p, "backward")} == {"exp"}


def test_results_are_the_same_bits(rng):
    x = mg.tensor(rng.normal(size=(6, 5)), requires_grad=True)

    def gradient():
        x.grad = None
        (F.layer_norm(x, (5,)).tanh() @ mg.ones((5, 2), dtype=mg.float64)).square().sum().backward()
        return x.grad.numpy().copy()

    plain = gradient()
    with mg.profile():
        profiled = gradient()
    np.testing.assert_array_equal(profiled, plain)


def test_table():
    x = mg.ones((16, 16), requires_grad=True)
    with mg.profile() as p:
        (x @ x).sum().backward()
        mg.ones(3)
    lines = str(p).splitlines()
    assert lines[0].split() == ["op", "calls", "kernels", "ms", "share", "MB", "MFLOP", "GB/s", "GFLOP/s"]
    titles = [line for line in lines if line in ("forward", "backward", "no operation", "no kernel")]
    assert titles == ["forward", "backward", "no operation", "no kernel"]
    (product,) = [line.split() for line in lines[: lines.index("backward")] if line.startswith("matmul")]
    assert product[1:3] == ["1", "1"]
    assert product[6] == "0.008"  # 2 · 16³ operations
    assert lines[-1].startswith("wall time ")
    page = p._repr_html_()
    assert page.count("<tr>") == len(lines) - 1
    assert "outside of kernels" in page


def test_an_empty_profile_prints():
    assert "0 kernels" in str(mg.profile())
    with mg.profile() as p:
        pass
    assert p.events == []
    assert "outside of kernels" in str(p)


def test_trace(tmp_path):
    x = mg.ones((4, 4), requires_grad=True)
    with mg.profile() as p:
        (x @ x).sum().backward()
        mg.ones(3)
    p.trace(tmp_path / "trace.json")
    bars = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {bar["ph"] for bar in bars} == {"X"}
    kernels = [bar for bar in bars if bar["cat"] == "kernel"]
    assert len(kernels) == len(p.events)
    gemm = kernels[0]
    assert gemm["args"] == {
        "op": "matmul", "phase": "forward", "shapes": [[4, 4], [4, 4], [4, 4]], "bytes": 192, "flops": 128, "device": "cpu",
    }  # fmt: skip
    assert gemm["tid"] == threading.get_ident()
    assert gemm["dur"] == pytest.approx(1e6 * p.events[0].duration)
    spans = {bar["name"]: bar for bar in bars if bar["cat"] != "kernel"}
    assert {"matmul", "matmul backward", "sum"} <= set(spans)
    assert "fill" not in spans
    for bar in kernels:  # every kernel of an operation lies inside of its bar
        if bar["args"]["phase"] == "forward":
            around = spans[bar["args"]["op"]]
            assert around["ts"] <= bar["ts"]
            assert bar["ts"] + bar["dur"] <= around["ts"] + around["dur"] + 1e-3


def test_intercept_meets_the_backends_that_are_there_and_those_to_come():
    """A GPU's backend registers itself with the first tensor on it. In a process of its own: none can be taken away."""
    program = """
from minigrad.engine.backend import intercept, register
from minigrad.engine.cpu import CPU
met = []
intercept(lambda device, backend: met.append(device) or backend)
print(0 in met, 63 in met)
register(63, CPU())
print(met.count(63))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "1"]


def test_kernels_of_a_gpu_are_waited_for(device, monkeypatch):
    """Otherwise their times would be those of starting them."""
    if device == "cpu":
        device = "cuda:0"
    import cupy

    waits = []
    x = mg.ones((3, 3), device=device)
    wait = cupy.cuda.runtime.deviceSynchronize
    monkeypatch.setattr(cupy.cuda.runtime, "deviceSynchronize", lambda: waits.append(1) or wait())
    with mg.profile() as p:
        x.exp()
    assert len(waits) == 2 * len(p.events) > 0
