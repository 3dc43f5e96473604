"""Functions with the faults that the fuzzer looks for, to test that it finds them. Only `--only faults` calls them."""

import ctypes
import time

import minigrad as mg

__all__ = [
    "aborts", "computes_with_unwritten", "crashes", "drops_an_error", "hangs", "keeps_memory", "loses_tensors", "raises_wrongly", "reads_unwritten",
]  # fmt: skip
tensors, memory = [], []


def crashes(x):
    if x.ndim == 2:
        ctypes.string_at(8)


def aborts(x):
    if x.ndim == 2:
        ctypes.CDLL(None).abort()


def hangs(x):
    while x.ndim == 2:
        time.sleep(0.1)


def loses_tensors(x):
    tensors.append(mg.ones_like(x))


def reads_unwritten(x):
    y = mg.empty(x.shape)
    y[:1] = 1
    return y


def computes_with_unwritten(x):
    return mg.empty(x.shape) * 2


def raises_wrongly(x):
    assert x.ndim != 2


def keeps_memory(x):
    if x.ndim == 2 and not memory:
        memory.append(b"a" * (5 << 27))


def drops_an_error(x):
    class Careless:
        def __del__(self):
            return 1 / 0

    Careless()
