"""Copies to a GPU are queued, and read what the source was when they were called."""

import ctypes

import cupy
import numpy as np
import pytest
from checks import agree

import minigrad as mg
from minigrad.cuda import staging

SIZE = 1 << 16


class Queue:
    """Copies that are done only when somebody waits for an event after them."""

    def __init__(self, monkeypatch):
        self.copies, self.waits = [], 0
        queue = self

        class Event:
            def __init__(self, disable_timing):
                assert disable_timing

            def synchronize(self):
                queue.waits += 1
                queue.run(self.after)

        class Stream:
            ptr = 0

            def record(self, event):
                event.after = len(queue.copies)

        self.stream = Stream()
        monkeypatch.setattr(cupy.cuda, "Event", Event)
        monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", lambda *given: self.copies.append(given))
        monkeypatch.setattr(staging, "SIZE", SIZE)
        self.ring = staging.Ring()

    def run(self, until):
        for i in range(until):
            if self.copies[i]:
                to, source, size, *_ = self.copies[i]
                ctypes.memmove(to, source, size)
                self.copies[i] = None

    def send(self, values):
        """Queue a copy to memory of the CPU, and overwrite the source."""
        x, out = mg.tensor(values), mg.zeros(values.shape, dtype="bool")
        self.ring.copy(x, out, self.stream)
        x.fill_(False)
        return out


@pytest.mark.parametrize("largest", [1, 5000, SIZE // 4, SIZE])
def test_copies_are_not_overwritten(rng, monkeypatch, largest):
    queue = Queue(monkeypatch)
    sizes = [largest, *rng.integers(1, largest + 1, 60), largest, largest]
    values = [rng.random(size) < 0.5 for size in sizes]
    outs = [queue.send(one) for one in values]
    assert (queue.waits > 0) == (sum(-(-size // staging.PAGE) for size in sizes) * staging.PAGE > SIZE)
    queue.run(len(queue.copies))
    agree(outs, values)


@pytest.mark.parametrize("more, waits", [(0, 0), (1, 1)])
def test_only_large_copies_are_waited_for(monkeypatch, more, waits):
    found = []
    source = np.ones(staging.LARGEST + more, "bool")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        here = mg.tensor(source)
        with monkeypatch.context() as patch:
            patch.setattr(stream, "synchronize", lambda: found.append(1))
            x = here.to("cuda")
        assert len(found) == waits
        assert x.to("cpu").numpy().all()
