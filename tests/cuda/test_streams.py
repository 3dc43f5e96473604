"""Work on streams runs late: each wait that is left out deliberately shows in the emulation, and minigrad leaves out none."""

import gc
import sys

import cupy
import numpy as np
import pytest
from checks import raises

import minigrad as mg
from minigrad import nn
from minigrad.cuda import backend, staging

pytestmark = pytest.mark.skipif(
    cupy.__version__ != "emulated", reason="a real GPU is tested: work may be done before anything waits for it"
)


def stream():
    return cupy.cuda.Stream(non_blocking=True)


def rounds(f, n=20):
    """Return how many of the calls f(0), f(1), ... are right."""
    right = sum(bool(f(k)) for k in range(n))
    mg.cuda.synchronize()
    return right


def needs_recording(f, monkeypatch):
    """Check that f(0), f(1), ... are right, and some of them wrong if no stream is recorded."""
    assert rounds(f) == 20
    monkeypatch.setattr(mg.cuda, "record_stream", lambda x, stream: None)
    assert rounds(f) < 20


def train(device):
    """Return what some steps leave in the parameters of a network, and their losses."""
    mg.manual_seed(0)
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)).to(device)
    rule = mg.optim.Adam(model.parameters(), 0.01)
    losses = []
    for _ in range(6):
        x = mg.tensor(rng.standard_normal((9, 6)).astype("float32"), device=device)
        labels = mg.tensor(rng.integers(0, 3, 9), device=device)
        loss = nn.functional.cross_entropy(model(x), labels)
        rule.zero_grad()
        loss.backward()
        rule.step()
        losses.append(loss.item())
    return [losses, *(p.detach().to("cpu").tolist() for p in model.parameters())]


@pytest.mark.parametrize("make", [stream, cupy.cuda.Stream, lambda: cupy.cuda.Stream.ptds])
def test_training_on_a_stream_is_right(make):
    expected = train("cuda")
    with make():
        assert train("cuda") == expected


def test_memory_that_another_stream_uses_is_kept_by_recording_the_stream(monkeypatch):
    def total(k):
        side, main = stream(), stream()
        with side:
            x = mg.full((5,), k, device="cuda")
            ready = side.record()
        with main:
            main.wait_event(ready)
            y = x * 2
            mg.cuda.record_stream(x, main)
            mg.cuda.record_stream(x, main)
            mg.cuda.record_stream(x, side)
        del x
        side.synchronize()
        with main:
            return y.to("cpu").tolist() == [2 * k] * 5

    needs_recording(total, monkeypatch)


def test_memory_of_a_captured_step_is_kept_too(monkeypatch):
    """A gradient that outlives its recording."""

    def doubled(k):
        home, other = stream(), stream()
        with home:
            w = mg.ones(500, device="cuda", requires_grad=True)

            def step(x):
                w.grad = None
                (w * x).sum().backward()

            captured, x = mg.capture(step, warmup=0), mg.full(500, float(k), device="cuda")
            captured(x)
            captured(x)
            ready = home.record()
        with other:
            other.wait_event(ready)
            y = w.grad * 2
        mg.cuda.record_stream(w.grad, other)
        del captured
        w.grad = None
        gc.collect()
        home.synchronize()
        with other:
            return y.to("cpu").tolist() == [2.0 * k] * 500

    needs_recording(doubled, monkeypatch)


def test_recorded_streams_need_no_stream_that_allocated(monkeypatch):
    """The stream of the memory may have been destroyed when the memory is freed: nothing is asked of it."""
    side, main, errors = stream(), stream(), []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: errors.append(error.exc_value))
    with side:
        x = mg.ones(3, device="cuda")
    main.wait_event(side.record())
    mg.cuda.record_stream(x, main)
    side.synchronize()
    del cupy.cuda.queues[side.ptr]
    del x
    with main:
        assert (mg.ones(3, device="cuda") + 1).tolist() == [2.0] * 3
    assert not errors


def test_each_stream_has_the_windows_of_a_pooling():
    """A table that is copied for one stream is not there yet for another."""
    x = np.random.default_rng(0).standard_normal((2, 3, 40, 40)).astype("float32")

    def pooled(k):
        first, second = stream(), stream()
        with second:
            theirs = mg.tensor(x, device="cuda")
        second.synchronize()
        with first:
            nn.functional.avg_pool2d(mg.tensor(x, device="cuda"), 2 + k, 1)
        with second:
            found = nn.functional.avg_pool2d(theirs, 2 + k, 1).to("cpu").numpy()
        mg.cuda.synchronize()
        return np.allclose(found, nn.functional.avg_pool2d(mg.tensor(x), 2 + k, 1).numpy(), atol=1e-5)

    assert rounds(pooled, 8) == 8


def test_a_host_that_reads_too_early_shows(monkeypatch):
    received = []  # copies that are late write to it

    def send(k):
        with stream():
            received.append(mg.full((5,), k, device="cuda").to("cpu"))
            return received[-1].tolist() == [k] * 5

    assert rounds(send) == 20
    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda.Stream, "synchronize", lambda self: None)
        assert rounds(send) < 20
    mg.cuda.synchronize()


def test_a_stream_that_does_not_wait_for_another_shows():
    def add(k, wait):
        first, second = stream(), stream()
        with first:
            x = mg.full((5,), k, device="cuda")
        if wait:
            second.wait_event(first.record())
        with second:
            return (x + 1).to("cpu").tolist() == [k + 1] * 5

    assert rounds(lambda k: add(k, True)) == 20
    assert rounds(lambda k: add(k, False)) < 20


def test_the_default_stream_and_blocking_streams_wait_for_each_other():
    other = cupy.cuda.Stream()
    for k in range(20):
        x = mg.full((5,), k, device="cuda")
        with other:
            x += 1
        assert (x * 2).to("cpu").tolist() == [2 * k + 2] * 5


def test_work_that_reads_memory_after_its_release_shows():
    """The stream that memory was allocated for may use it again for something else."""

    def add(k, wait):
        first, second = stream(), stream()
        with first:
            x = mg.full((5,), k, device="cuda")
        second.wait_event(first.record())
        with second:
            y = x + 1
        if wait:
            first.wait_event(second.record())
        del x
        first.synchronize()
        with second:
            return y.to("cpu").tolist() == [k + 1] * 5

    assert rounds(lambda k: add(k, True)) == 20
    assert rounds(lambda k: add(k, False)) < 20


def test_work_that_writes_to_memory_after_its_release_is_an_error():
    def write(k):
        first, second = stream(), stream()
        with first:
            x = mg.zeros(5, device="cuda")
        first.synchronize()
        with second:
            x += 1
        del x
        first.synchronize()
        second.synchronize()

    raises(RuntimeError, "arrays were written to after they had been released", rounds, write)


def test_a_staged_copy_that_is_overwritten_too_early_shows(monkeypatch, rng):
    monkeypatch.setattr(staging, "SIZE", 1 << 14)
    values = rng.standard_normal((20, 100)).astype("float32")

    def send(k):
        with stream():
            copies = [mg.tensor(row).to("cuda") for row in values]
            return all(np.array_equal(x.to("cpu").numpy(), row) for x, row in zip(copies, values, strict=True))

    monkeypatch.setattr(staging, "_rings", {})
    assert rounds(send, 5) == 5
    monkeypatch.setattr(cupy.cuda.Event, "synchronize", lambda self: None)
    assert rounds(send, 5) < 5


def test_a_copy_between_gpus_that_waits_for_nothing_shows(monkeypatch):
    def send(k):
        with cupy.cuda.Device(1), stream():
            x = mg.full((5,), k, device="cuda:1")
            with cupy.cuda.Device(0), stream():
                y = x.to("cuda:0")
                del x
                return y.to("cpu").tolist() == [k] * 5

    assert rounds(send) == 20
    monkeypatch.setattr(backend, "wait", lambda device, other: None)
    assert rounds(send) < 20
    mg.cuda.synchronize(1)


def test_an_array_that_is_handed_over_without_waiting_shows(monkeypatch):
    def hand_over(k):
        other = stream()
        with stream():
            x = mg.full((5,), k, device="cuda")
            x.__dlpack__(stream=other.ptr)
        with other:
            return (x + 1).to("cpu").tolist() == [k + 1] * 5

    assert rounds(hand_over) == 20
    monkeypatch.setattr(cupy.cuda.runtime, "streamWaitEvent", lambda stream, event: None)
    assert rounds(hand_over) < 20


def test_an_index_out_of_range_is_reported_by_what_waits():
    with stream():
        mg.take(mg.zeros(3, device="cuda"), mg.tensor([5], device="cuda"), axis=0)
        raises(IndexError, "index 5 is out of range", mg.cuda.synchronize)


def test_an_error_of_a_kernel_is_reported_by_what_waits(monkeypatch):
    def fails(self, lengths, addresses):
        raise RuntimeError("a kernel failed")

    with stream() as other:
        x = mg.zeros(3, device="cuda")
        other.synchronize()
        monkeypatch.setattr(cupy.cuda.order, "random", lambda: 1.0)
        monkeypatch.setattr(cupy.Function, "run", fails)
        mg.exp(x)
        raises(RuntimeError, "a kernel failed", mg.cuda.synchronize)
