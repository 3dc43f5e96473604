"""Helpers of programs besides minigrad and NumPy. A reproduction contains the source of those it uses."""

import gc
import operator  # noqa: F401  (programs use all of these)
import pickle  # noqa: F401
import sys
import threading
import time
from contextlib import suppress
from copy import copy, deepcopy  # noqa: F401
from pathlib import Path

import numpy as np

import minigrad as mg
from fuzz import faults  # noqa: F401
from minigrad import data, nn, optim, viz  # noqa: F401
from minigrad.nn import functional as F  # noqa: F401

PROPERTIES = ("__array_interface__", "__array_struct__", "__cuda_array_interface__", "shape", "dtype", "ndim")


def hostile(base, *args, **methods):
    """Make an instance of a subclass of `base` whose methods call the given functions without arguments."""
    left = [200]  # calls; an iteration over it has to end

    def run(function):
        left[0] -= 1
        if left[0] < 0:
            raise (StopIteration if function is methods.get("__next__") else IndexError)("injected")
        return function()

    def member(name, f):
        return property(lambda self: run(f)) if name in PROPERTIES else lambda self, *args, **options: run(f)

    return type("Hostile", (base,), {name: member(name, f) for name, f in methods.items()})(*args)


def fail(kind=KeyError):
    raise kind("injected")


def together(*functions):
    """Call all at once, each in its own thread, several times; return the last result of the first."""
    results, start = [None], threading.Barrier(len(functions))

    def work(k):
        start.wait()
        end = time.monotonic() + 2  # a long computation must not pass for a loop without end
        for _ in range(20):
            try:
                result = functions[k]()
            except Exception:
                result = None
            if time.monotonic() > end:
                break
        if k == 0:
            results[0] = result

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(functions))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    return results[0]


def collecting(allocations, finalizer, function):
    """Call `function`; after some allocations, the garbage collector finds an object with the given finalizer."""

    class Garbage:
        def __init__(self):
            self.me = self

        def __del__(self):
            with suppress(Exception):
                finalizer()

    Garbage()
    used = [mg.ones(1) for _ in range(1100)]  # the next tensor is allocated
    before = gc.get_threshold()
    gc.set_threshold(gc.get_count()[0] + allocations)
    try:
        return function()
    finally:
        gc.set_threshold(*before)
        del used


def circular():
    """Return a list that contains itself."""
    x = [1.0]
    x.append(x)
    return x


def nested(depth):
    """Return a number nested in many lists."""
    x = 1.0
    for _ in range(depth):
        x = [x]
    return x


class Twice:
    """Exports the same DLPack capsule every time."""

    def __init__(self, x):
        self.device, self.capsule = x.__dlpack_device__(), x.__dlpack__()

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.capsule


class Sub(mg.Tensor):
    """A subclass of the user's."""


class Net(nn.Module):
    """A module that calls the given function."""

    def __init__(self, function=mg.exp):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3), function

    def forward(self, *args):
        return self.layer(self.function(*args))


def custom(forward, backward):
    """An operation of the user's."""
    return type("Custom", (mg.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def spoil(path, seed):
    """Change, truncate or insert some bytes of a file; create one of random bytes if there is none."""
    rng, path = np.random.default_rng(seed), Path(path)
    content = bytearray(path.read_bytes() if path.is_file() else rng.bytes(200))
    for _ in range(rng.integers(1, 8)):
        k = int(rng.integers(0, len(content) + 1))
        content[k : k + int(rng.integers(0, 4))] = rng.bytes(int(rng.integers(0, 4)))
    if rng.random() < 0.3:
        del content[int(rng.integers(0, len(content) + 1)) :]
    path.write_bytes(content)
