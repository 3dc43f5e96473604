"""capture: memory, threads, and captured functions within others."""

import gc
import threading
import weakref

import numpy as np
from captured import bits, normal
from checks import agree, raises

import minigrad as mg
from minigrad import nn, optim


def test_memory_is_kept_for_the_recording_and_given_back_with_it(rng):
    gc.collect()
    before = mg.memory_allocated()
    model = nn.Sequential(nn.Linear(50, 60), nn.LayerNorm(60), nn.Linear(60, 4))
    kept = weakref.ref(model)

    def make(model):
        def step(x):
            model.zero_grad()
            loss = model(x).logsumexp(-1).sum()
            loss.backward()
            return loss

        return mg.capture(step, warmup=0)

    captured = make(model)
    x = normal(rng, 20, 50)
    expected = [captured(x).item() for _ in range(3)]
    gradient = model[0].weight.grad
    values = gradient.numpy().copy()
    held = mg.memory_allocated()
    for _ in range(50):
        captured(x)
    assert mg.memory_allocated() == held
    assert len(set(expected)) == 1
    del captured
    model.zero_grad()
    gc.collect()
    rubbish = [mg.full(n, np.nan) for n in (60, 240, 3000, 1000, 1200)]
    np.testing.assert_array_equal(gradient.numpy(), values)  # a tensor that outlives the recording keeps its memory
    del model, gradient, rubbish, x
    gc.collect()
    assert kept() is None
    assert mg.memory_allocated() == before


def test_memory_that_the_kernels_use_outlives_its_tensors(rng, device):
    """Even where Python no longer holds a tensor that was read: another recording is made, but nothing is corrupted."""
    holder = {"w": normal(rng, 1000).to(device)}
    captured = mg.capture(lambda x: x * holder["w"], warmup=0)
    x = normal(rng, 1000).to(device)
    captured(x)
    expected, factors = bits([holder["w"], x])
    del holder["w"]
    gc.collect()
    rubbish = [mg.full(1000, np.nan, device=device) for _ in range(20)]
    holder["w"] = mg.tensor(expected, device=device)
    agree(bits([captured(x)]), [factors * expected])
    assert captured.recordings == 2
    del rubbish


def test_steps_within_steps_and_recompute(rng):
    inner = mg.capture(lambda x: (x * 2).exp(), warmup=0)
    outer = mg.capture(lambda x: inner(x) + 1, warmup=0)
    x = normal(rng, 3)
    for _ in range(3):
        agree([outer(x)], [(x * 2).exp() + 1])
    assert (inner.recordings, outer.recordings) == (0, 1)
    w = mg.ones(3, requires_grad=True)
    scaled = mg.capture(lambda x: x * w)

    @mg.capture
    def through(x):
        w.grad = None
        scaled(x).sum().backward()

    for _ in range(4):  # captured functions within another run plainly, from the first call on
        through(x)
        agree([w.grad], [x])
    y = normal(rng, 3).requires_grad_()
    mg.recompute(inner)(y).sum().backward()
    np.testing.assert_allclose(y.grad.numpy(), 2 * np.exp(2 * y.detach().numpy()), rtol=1e-6)


def test_a_profile_sees_the_operations(rng):
    captured = mg.capture(lambda x: x.exp() * 2, warmup=0)
    x = normal(rng, 3)
    captured(x)
    with mg.profile() as report:
        agree([captured(x)], [x.exp() * 2])
    assert "exp" in str(report)
    with mg.detect_anomaly():
        captured(x)
    captured(x)
    assert captured.recordings == 1


def test_a_call_during_a_call_is_an_error(rng):
    entered, go_on = threading.Event(), threading.Event()

    w = normal(rng, 3).requires_grad_()
    optimizer = optim.SGD([w], 0.1)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    captured = mg.capture(step, warmup=0)
    captured(mg.ones(3))

    def slow(*_):
        entered.set()
        go_on.wait(10)

    optimizer.update = slow
    thread = threading.Thread(target=captured, args=(mg.ones(3),))
    thread.start()
    try:
        assert entered.wait(10)
        raises(mg.CaptureError, "one call at a time", captured, mg.ones(3))
    finally:
        go_on.set()
        thread.join()


def test_one_recording_at_a_time(rng):
    """While another thread records, a call runs as usual, and its kernels are not mixed with the recorded ones."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(x):
        y = x * 2
        inside.set()
        assert go_on.wait(10)
        return y + 1

    first, second = mg.capture(slow, warmup=0), mg.capture(lambda x: x * 3, warmup=0)
    results = []
    thread = threading.Thread(target=lambda: results.append(first(mg.ones(3)).tolist()))
    thread.start()
    try:
        assert inside.wait(10)
        assert second(mg.ones(3)).tolist() == [3, 3, 3]
        assert (mg.ones(3) + 1).sum().item() == 6  # values may be read here
        assert second.recordings == 0
    finally:
        go_on.set()
        thread.join()
    assert results == [[3, 3, 3]]
    assert first(mg.full(3, 2.0)).tolist() == [5, 5, 5]
    assert second(mg.ones(3)).tolist() == [3, 3, 3]
    assert (first.recordings, second.recordings) == (1, 1)


def test_the_table_lists_kernels_and_calls(rng):
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), 0.1)

    @mg.capture
    def step(x):
        """The step."""
        optimizer.zero_grad()
        loss = mg.tanh(model(x)).sum()
        loss.backward()
        optimizer.step()
        return loss

    assert step.table() == "step: nothing is recorded yet"
    assert step.__doc__ == "The step."
    for _ in range(3):
        step(normal(rng, 4, 3))
    assert repr(step) == "<captured step: 1 recorded>"
    rows = [line.split() for line in step.table().splitlines()[1:]]
    names = [(row[0], row[1]) for row in rows]
    assert names.index(("linear", "forward")) < names.index(("tanh", "forward")) < names.index(("tanh", "backward"))
    assert names[-1] == ("SGD.step", "call")
