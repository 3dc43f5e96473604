"""Random tensors from one counter-based generator: a value depends on the seed and its place in the stream alone."""
from libc.stdint cimport int64_t, uint64_t

from minigrad.engine.array cimport (
    FLOAT32, INT64, MAX_NDIM, Array, code_of, device_index, dtype_of, empty, is_float, parse_shape,
)
from minigrad.engine.backend cimport backend
from minigrad.engine.ops.index import argsort

import os

cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")
cdef uint64_t position = 0


cdef tuple reserve(uint64_t blocks):
    """(seed, position) of the next `blocks` blocks of the stream, four values each, which nobody else will get."""
    global position
    start = position
    position += blocks
    return seed, start


def manual_seed(value):
    """Seed the generator of every random operation; the same seed gives the same numbers on any number of threads.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.manual_seed(0)
    >>> a = mg.random.normal(shape=(3,))
    >>> mg.manual_seed(0)
    >>> bool((a == mg.random.normal(shape=(3,))).all())
    True
    """
    global seed, position
    if not hasattr(value, "__index__"):
        raise TypeError(f"[manual_seed] expected an integer, got {value!r}")
    seed, position = value.__index__() % 2**64, 0


def get_state():
    """dict: the generator's state, to be given to `set_state`.

    Examples
    --------
    >>> import minigrad as mg
    >>> sorted(mg.random.get_state())
    ['position', 'seed']
    """
    return {"seed": int(seed), "position": int(position)}


def set_state(state):
    """Continue where `get_state` was called.

    Examples
    --------
    >>> import minigrad as mg
    >>> state = mg.random.get_state()
    >>> a = mg.random.uniform(shape=3)
    >>> mg.random.set_state(state)
    >>> bool((a == mg.random.uniform(shape=3)).all())
    True
    """
    global seed, position
    seed, position = state["seed"], state["position"]


cdef Array prepare(str op, object shape, object dtype, object device):
    cdef int64_t[MAX_NDIM] extent
    cdef int code = code_of(dtype) if dtype is not None else FLOAT32
    if not is_float(code):
        raise TypeError(f"[{op}] expected a floating dtype, got {dtype_of(code)}")
    return empty(code, parse_shape(shape, extent), extent, device_index(device))


def uniform(low=0.0, high=1.0, shape=(), *, dtype=None, device=None):
    """Uniform values in [low, high).

    Parameters
    ----------
    low, high : float
    shape : int or tuple of int
    dtype : DType, optional
        float32 (the default) or float64.
    device : str, optional

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.random.uniform(-1, 1, shape=(2, 3)).shape
    (2, 3)
    """
    cdef Array out = prepare("uniform", shape, dtype, device)
    if not low <= high:
        raise ValueError(f"[uniform] expected low <= high, got {low} and {high}")
    s, start = reserve((out.count + 1) // 2)
    backend(out).uniform(s, start, low, high, out)
    return out


def normal(mean=0.0, std=1.0, shape=(), *, dtype=None, device=None):
    """Normal values with a mean and a standard deviation.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.random.normal(shape=(2, 3)).shape
    (2, 3)
    """
    cdef Array out = prepare("normal", shape, dtype, device)
    if not std >= 0:
        raise ValueError(f"[normal] expected a standard deviation of 0 or more, got {std}")
    s, start = reserve((out.count + 1) // 2)
    backend(out).normal(s, start, mean, std, out)
    return out


def randint(low, high, shape=(), *, device=None):
    """Uniform integers (int64) in [low, high).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.random.randint(0, 10, shape=(4,)).dtype
    minigrad.int64
    """
    cdef int64_t[MAX_NDIM] extent
    cdef Array out = empty(INT64, parse_shape(shape, extent), extent, device_index(device))
    if not low < high:
        raise ValueError(f"[randint] expected low < high, got {low} and {high}")
    s, start = reserve((out.count + 1) // 2)
    backend(out).integers(s, start, low, high, out)
    return out


def permutation(n, *, device=None):
    """The integers from 0 to n - 1 in random order (int64).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.random.permutation(4).sort()
    tensor([0, 1, 2, 3])
    """
    return argsort(uniform(shape=(n,), dtype="float64", device=device))
