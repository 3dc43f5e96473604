"""A profile records every kernel once, under the operation that started it; tables and traces show what it recorded."""

import json
import operator
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter

import numpy as np
import pytest
from checks import Cube, doubling, named

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F


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
    assert set(calls.values()) == {2}  # first the labels are checked, then the losses computed
    assert {event.kernel for event in p.events if event.op == "cross_entropy"} == {"class_labels", "cross_entropy"}


def test_kernels_of_no_operation_count_under_their_own_names():
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.parameters(), 0.1)
    model(mg.ones((1, 3))).sum().backward()
    with mg.profile() as p:
        optimizer.step()
        mg.ones(3)
    assert {event.phase for event in p.events} == {"other"}
    assert [event.op for event in p.events] == [event.kernel for event in p.events]
    assert {event.op for event in p.events} == {"adam", "fill"}


X, N, CONDITION = mg.tensor([3.0, 1.0, 2.0]), mg.tensor([3, 1, 2]), mg.tensor([True, False, True])
NEVER_RECORDED = [
    *[(name, (X, X)) for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "floor_divide")],
    *[(name, (CONDITION, CONDITION)) for name in ("logical_and", "logical_or", "logical_xor")],
    *[(name, (N, N)) for name in ("bitwise_and", "bitwise_or", "bitwise_xor")],
    ("bitwise_invert", (N,)), ("logical_not", (CONDITION,)), ("any", (CONDITION,)), ("all", (CONDITION,)),
    *[(name, (X,)) for name in ("isnan", "isinf", "isfinite", "argmax", "argmin", "argsort", "nonzero", "unique_values")],
    ("astype", (X, "int32")), ("random.uniform", (0.0, 1.0, 3)), ("random.normal", (0.0, 1.0, 3)), ("random.randint", (0, 9, 3)),
]  # fmt: skip


@pytest.mark.parametrize("name, args", NEVER_RECORDED, ids=[name for name, _ in NEVER_RECORDED])
def test_what_is_never_recorded_counts_under_its_own_name(name, args):
    """They are not counted for the next call from the same place."""
    function, short = operator.attrgetter(name)(mg), name.rpartition(".")[2]
    with mg.profile() as p:
        [f(*xs) for f, xs in ((function, args), (mg.exp, (X,)), (function, args))]
    (first, _), *others = named(p, "forward")
    assert [first, *(op for op, _ in others)] == [short, "exp", short]
    assert len({event.call for event in p.events}) == len(p.events) == 3
    assert all(event.duration > 0 and event.bytes > 0 for event in p.events)


def test_a_permutation_is_drawn_and_sorted():
    with mg.profile() as p:
        mg.random.permutation(4)
    assert named(p, "forward") == [("permutation", "uniform"), ("argsort", "argsort")]


def test_what_an_operation_decides_by_is_named():
    """Tensor limits of a clip are applied by operations of their own."""
    x = mg.tensor([-2.0, 0.5], requires_grad=True)
    with mg.profile() as p:
        mg.clip(x, mg.zeros(2), None)
    assert [op for op, kernel in named(p, "forward") if kernel in ("lt", "where")] == ["clip", "where"]


def test_what_is_not_recorded_counts_for_its_operation():
    x, w = mg.ones((4, 3)), mg.ones((3, 2), requires_grad=True)
    with mg.profile() as p:
        with mg.no_grad():
            x @ w
        (x / 2.0) @ w  # the division is not recorded, and is not part of the product
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
    """The frame of a finished call may be reused for the next one, at the same instruction."""
    x, y = mg.ones(3), mg.ones(3)
    functions = [lambda: x.fill_(1.0), lambda: x / y] * 3
    with mg.profile() as p:
        for function in functions:
            function()
    assert named(p, "other") == [("fill", "fill")] * 3
    assert named(p, "forward") == [("divide", "divide")] * 3


def test_a_function_of_ones_own():
    x = mg.ones(3, requires_grad=True)
    with mg.profile() as p:
        y = Cube.apply(x)
        y.sum().backward()
        Cube.apply(mg.ones(2))
    assert named(p, "forward") == [("Cube", "mul"), ("Cube", "mul"), ("sum", "sum"), ("Cube", "mul"), ("Cube", "mul")]
    assert len({event.call for event in p.events if event.phase == "forward"}) == 3
    assert [kernel for op, kernel in named(p, "backward") if op == "Cube" and kernel != "fill"] == ["mul"] * 3


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_function_inside_another_is_a_part_of_it(requires_grad):
    double = doubling("Double", forward=lambda ctx, x: x + x)
    outer = doubling("Outer", forward=lambda ctx, x: double.apply(x.exp()).sin())
    x = mg.ones(3, requires_grad=requires_grad)
    with mg.profile() as p:
        outer.apply(x)
        double.apply(x)
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
    assert sum(event.duration for event in p.events) + p.outside + p._cost == pytest.approx(p.wall)
    before = p.wall
    mg.ones(3).exp()
    assert p.wall == before


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
    for bar in kernels:  # every kernel of an operation lies within its bar
        if bar["args"]["phase"] == "forward":
            around = spans[bar["args"]["op"]]
            assert around["ts"] <= bar["ts"]
            assert bar["ts"] + bar["dur"] <= around["ts"] + around["dur"] + 1e-3


def test_intercept_meets_the_backends_that_are_there_and_those_to_come():
    """The backend of a GPU registers itself with its first tensor, and stays: hence a separate process."""
    program = """
from minigrad.engine.devices.backend import intercept, register
from minigrad.engine.devices.cpu import CPU
met = []
intercept(lambda device, backend: met.append(device) or backend)
print(0 in met, 63 in met)
register(63, CPU())
print(met.count(63))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "1"]


def test_kernels_of_a_gpu_are_waited_for(device, monkeypatch):
    """Otherwise the times would be those of launching the kernels."""
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


def test_the_time_without_the_profile_is_that_of_an_unprofiled_run():
    """The wall time without the profile's own is about the time of the block without a profile."""
    x = mg.ones(4, requires_grad=True)

    def block():
        y = x
        for _ in range(50):
            y = y * 1.01
        y.sum().backward()

    plain, profiled, told = [], [], []
    for _ in range(300):
        began = time.perf_counter()
        block()
        plain.append(time.perf_counter() - began)
        with mg.profile() as p:
            block()
        profiled.append(p.wall)
        told.append(p.wall - p._cost)
    assert min(profiled) > 1.3 * min(plain), "too small a cost to be told from none"
    assert 0.5 < min(told) / min(plain) < 2.0
    assert "of the time is the profile's own" in str(p)


def test_a_profile_that_costs_little_does_not_speak_of_itself():
    with mg.profile() as p:
        time.sleep(0.2)
        mg.ones(3)
    assert "profile's own" not in str(p)


def test_events_made_later_are_those_of_their_time():
    """The arrays of a kernel may be freed, and its tensors take other shapes, before the events are read."""
    with mg.profile() as p:
        x = mg.ones((3, 4))
        held = weakref.ref(x)
        y = x.exp()
        del x
        assert held() is None
        del y
        before = len(p.events)
        mg.ones(2)
    assert [(event.kernel, event.shapes) for event in p.events] == [
        ("fill", ((3, 4),)), ("exp", ((3, 4), (3, 4))), ("fill", ((2,),))
    ]  # fmt: skip
    assert before == 2
