"""The work of a kernel: its floating-point operations by the formulas, and the bytes that it reads and writes."""

import builtins
import doctest
import math

import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.engine.devices.backend import COUNTS, Backend
from minigrad.engine.tape.inspection import Outline
from minigrad.nn import functional as F
from minigrad.profiling import work


def test_work_of_kernels(rng):
    """Operations by the formulas, and bytes of all that is read and written."""
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
        F.rms_norm(a, (5,), gain)
        F.embedding(index, table)
        F.conv2d(mg.ones((2, 3, 9, 9)), mg.ones((4, 3, 2, 2)), mg.ones(4))
    found = [
        (e.kernel, e.flops, e.bytes)
        for e in p.events
        if e.kernel not in ("fill", "copy", "class_labels", "checked_index")
    ]
    assert found == [
        ("gemm", 2 * 8 * 5 * 3, 4 * (40 + 15 + 24)),
        ("gemm", 2 * 8 * 5 * 3 + 24, 4 * (40 + 15 + 24 + 3)),
        ("exp", 40, 4 * 80),
        ("add", 40, 4 * (40 + 5 + 40)),
        ("normalize", 8 * 40, 4 * (40 + 5 + 5 + 40 + 8 + 8)),
        ("normalize", 6 * 40, 4 * (40 + 40 + 8 + 8)),
        ("normalize", 4 * 40, 4 * (40 + 5 + 40 + 8)),
        ("take", 0, 3 * 8 + 2 * 4 * 12),
        ("conv2d", (2 * 4 * 8 * 8) * (2 * 3 * 2 * 2 + 1), 4 * (2 * 3 * 81 + 48 + 4 + 2 * 4 * 64)),
    ]


def test_work_of_normalizations_in_the_backward_pass():
    x, gain, bias, g = (mg.ones(n, requires_grad=True) for n in ((8, 5), 5, 5, (8, 5)))
    with mg.profile() as p:
        mg.grad(F.layer_norm(x, (5,), gain, bias), [x, gain, bias], g.detach())
        mg.grad(F.rms_norm(x, (5,), gain), [x, gain], g.detach())
    assert [e.flops for e in p.events if e.kernel == "normalize_backward"] == [40 * (9 + 1 + 2 + 1), 40 * (6 + 1 + 2)]


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


@pytest.mark.parametrize("what", ["flops", "bytes"])
def test_counts_use_names_that_exist(what):
    """An expression in the list is evaluated when its primitive runs in a profile."""
    known = {*vars(work), *vars(builtins), *dir(Outline), *dir(math), *dir(optim.sgd.RULE)}
    counts = [work.count_of(name, what) for name in COUNTS if what in COUNTS[name]]
    assert len(counts) >= 5
    for count in counts:
        inner = [code for code in count.__code__.co_consts if hasattr(code, "co_names")]
        assert {name for code in (count.__code__, *inner) for name in code.co_names} <= known


def test_every_primitive_counts_or_computes_nothing():
    idle = {
        "copy", "fill", "class_labels", "checked_index", "take", "put", "take_along", "argsort", "nonzero", "unique",
        "ranked", "uniform", "normal", "integers",
    }  # fmt: skip
    assert set(COUNTS) == {name for name in dir(Backend) if not name.startswith("_")}
    assert {name for name in COUNTS if "flops" not in COUNTS[name]} == idle
    assert {kind for counts in COUNTS.values() for kind in counts} == {"flops", "bytes"}


def test_the_example_of_an_event():
    result = doctest.testmod(work, extraglobs={"mg": mg})
    assert (result.failed, result.attempted) == (0, 3)
