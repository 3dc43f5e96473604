"""Captured steps on a GPU: what runs between two calls is a CUDA Graph. Models are compared in autograd/test_capture.py."""

import gc

import cupy
import numpy as np
import pytest
from checks import raises
from threaded import in_threads

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn
from minigrad.engine.devices.gpu_memory import empty_pools

EMULATED = cupy.__version__ == "emulated"
only_emulated = pytest.mark.skipif(not EMULATED, reason="a real GPU is tested, and this looks into the emulation")


def normal(rng, *shape, device="cuda"):
    return mg.tensor(rng.standard_normal(shape).astype("float32"), device=device)


def values(x):
    return x.detach().to("cpu").numpy().copy()


def held():
    """Return how many bytes of the GPU are in use."""
    gc.collect()
    mg.cuda.synchronize()
    empty_pools()
    if EMULATED:
        return sum(size for address, size in zip(*2 * [iter(cupy.cuda.table)], strict=True) if address)
    return cupy.get_default_memory_pool().used_bytes()


def make_step(rng, device="cuda"):
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    optimizer = mg.optim.Adam(model.parameters(), 0.01)

    def step(x, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize(
    "make", [lambda: cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream, lambda: cupy.cuda.Stream.ptds]
)
def test_on_streams(make, rng):
    batches = [(normal(rng, 9, 6), mg.tensor(rng.integers(0, 3, 9), device="cuda")) for _ in range(6)]
    mg.cuda.synchronize()
    losses = []
    for captured in (False, True):
        mg.manual_seed(0)
        step = make_step(rng)
        step = mg.capture(step) if captured else step
        with make():
            losses.append([step(*batch).item() for batch in batches])
    assert losses[0] == losses[1]


def test_memory_is_used_again_within_the_step_and_given_back_with_the_recording(rng):
    x = normal(rng, 10_000)
    before = held()

    def chain(x):
        for _ in range(50):
            x = x * 1.01 + 1
        return x

    captured = mg.capture(chain, warmup=0)
    expected = values(chain(x))
    for _ in range(3):
        np.testing.assert_array_equal(values(captured(x)), expected)
    assert held() - before < 6 * x.nbytes  # the argument, two or three of the chain, the result
    del captured
    assert held() == before


def test_gradients_outlive_the_recording(rng):
    w = normal(rng, 100).requires_grad_()
    captured = mg.capture(lambda x: (w * x).sum().backward(), warmup=0)
    x = normal(rng, 100)
    captured(x)
    captured(x)
    del captured
    gc.collect()
    rubbish = [mg.full(100, np.nan, device="cuda") for _ in range(10)]
    np.testing.assert_array_equal(values(w.grad), 2 * values(x))
    del rubbish


def test_copies_between_devices_are_made_in_each_run(rng):
    """The argument and one of two results are on the CPU, and kernels of both devices take turns."""

    @mg.capture
    def step(x):
        on_cpu = x * 2
        y = on_cpu.to("cuda").exp()
        total = y.sum(0)
        back = (total + 1).to("cpu")
        return back * on_cpu[0], y @ y.mT

    for _ in range(5):
        x = normal(rng, 4, 3, device="cpu")
        e = np.exp(2 * x.numpy())
        back, y = step(x)
        assert (back.device, y.device) == ("cpu", "cuda:0")
        np.testing.assert_allclose(back.numpy(), (e.sum(0) + 1) * 2 * x.numpy()[0], rtol=2e-6)
        np.testing.assert_allclose(values(y), e @ e.T, rtol=2e-6)
    assert step.recordings == 1
    assert step.table().count("call") == 2


def test_shapes_that_depend_on_values_are_refused(rng):
    for f in (mg.nonzero, mg.unique_values):
        with pytest.raises(mg.CaptureError, match="whose result has a shape that depends on values"):
            mg.capture(f, warmup=0)(normal(rng, 3))
    raises(mg.CaptureError, "values are read", mg.capture(lambda x: x.sum().item(), warmup=0), normal(rng, 3))


def test_a_step_that_changes_the_stream_is_refused(rng):
    x, other = normal(rng, 300), cupy.cuda.Stream(non_blocking=True)

    def halfway(x, *work):
        y = x * 2
        with other:
            return F.dropout(y, 0.5) if work else y + 1

    def inside(x):
        with other:
            return x * 2

    for step, message in [
        (halfway, "uses one stream of cuda:0, got a second one, at .*test_graphs.py"),
        (lambda x: halfway(x, "a call"), "uses one stream of cuda:0, got a second one, at .*test_graphs.py"),
        (inside, "on the current stream of cuda:0, got one that changes the stream"),
    ]:
        raises(mg.CaptureError, message, mg.capture(step, warmup=0), x)
        mg.cuda.synchronize()
    np.testing.assert_array_equal(values(mg.capture(lambda x: x * 2, warmup=0)(x)), 2 * values(x))


def test_runs_on_different_streams_follow_one_another(rng):
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    batches = [normal(rng, 50) for _ in range(30)]
    mg.cuda.synchronize()
    captured = mg.capture(lambda x: (x * 2).exp().sum() + x, warmup=0)
    for k, x in enumerate(batches):
        with streams[k % 2]:
            y = captured(x)
            np.testing.assert_array_equal(values(y), values((x * 2).exp().sum() + x))
    results = []
    for k, x in enumerate(batches):
        with streams[k % 2]:
            results.append(captured(x))
    for y, x in zip(results, batches, strict=True):
        mg.cuda.synchronize()
        np.testing.assert_array_equal(values(y), values((x * 2).exp().sum() + x))


def test_runs_on_the_default_streams_of_threads_follow_one_another(rng, monkeypatch):
    """They have one address in CuPy, and are another stream in each thread."""
    waits, wait_event = [], cupy.cuda.Stream.wait_event
    x = normal(rng, 50)
    mg.cuda.synchronize()

    def run():
        with cupy.cuda.Stream.ptds:
            captured(x)

    with cupy.cuda.Stream.ptds:
        captured = mg.capture(lambda x: (x * 2).exp() + x, warmup=0)
        captured(x)
    monkeypatch.setattr(cupy.cuda.Stream, "wait_event", lambda self, event: waits.append(wait_event(self, event)))
    for _ in range(2):
        in_threads(run)
    assert len(waits) == 2


def test_memory_of_a_recording_waits_for_its_last_run(rng):
    for _ in range(10):
        home, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
        with home:
            x = normal(rng, 50)
            captured = mg.capture(lambda x: (x * 2).exp().sum() + x, warmup=0)
            captured(x)
        home.synchronize()
        with other:
            captured(x)
        del captured
        with home:
            rubbish = [mg.full((50,), np.nan, device="cuda") for _ in range(5)]
        mg.cuda.synchronize()  # the emulation raises where released memory was written to
        del rubbish


def test_a_failure_of_the_driver_leaves_the_plain_function(rng, monkeypatch):
    w = normal(rng, 3, 3).requires_grad_()
    optimizer = mg.optim.SGD([w], 1.0)

    @mg.capture
    def step(x):
        optimizer.zero_grad()
        (x @ w).sum().backward()
        optimizer.step()

    end = cupy.cuda.Stream.end_capture

    def fail(self):
        end(self)
        raise RuntimeError("no graph")

    monkeypatch.setattr(cupy.cuda.Stream, "end_capture", fail)
    x, start = normal(rng, 3, 3), values(w)
    step(x)
    step(x)
    with pytest.warns(UserWarning, match="a run of step could not be recorded.*no graph"):
        step(x)
    step(x)
    step(x)
    np.testing.assert_allclose(values(w), start - 5 * values(x).sum(0)[:, None], rtol=1e-5)


def test_what_other_libraries_would_do_is_refused(rng):
    with pytest.raises(mg.CaptureError, match="values are read"):
        mg.capture(lambda x: x.__cuda_array_interface__ and x, warmup=0)(normal(rng, 3))


def test_another_thread_may_run_the_recording(rng):
    x, w = normal(rng, 4, 3), normal(rng, 3, 2)
    captured = mg.capture(lambda x: x @ w, warmup=0)
    expected = values(captured(x))
    found = []
    in_threads(lambda: found.append(values(captured(x))))
    np.testing.assert_array_equal(found[0], expected)


@only_emulated
def test_two_gpus(rng):
    """Each has graphs of its own."""
    x = normal(rng, 3, 4)

    @mg.capture
    def step(x):
        y = (x * 2).to("cuda:1")
        return (y @ y.mT).exp().to("cuda:0") + 1

    for _ in range(4):
        x = normal(rng, 3, 4) / 4
        y = 2 * values(x)
        np.testing.assert_allclose(values(step(x)), np.exp(y @ y.T) + 1, rtol=1e-6)
    assert step.recordings == 1


# ── the emulation enforces the rules of capture ──────────────────────────────────────────────────


@only_emulated
@pytest.mark.parametrize("forbidden", [
    lambda: cupy.cuda.alloc(8), lambda: cupy.cuda.runtime.deviceSynchronize(),
    lambda: cupy.cuda.Stream.null.synchronize(),
])  # fmt: skip
def test_what_a_capture_forbids(forbidden):
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    raises(RuntimeError, "while a graph is captured", forbidden)
    stream.end_capture()
    forbidden()
