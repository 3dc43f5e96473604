"""Random tensors from one counter-based generator: a value depends only on the seed and its position in the stream."""
from libc.float cimport DBL_MAX, FLT_MAX
from libc.stdint cimport int64_t, uint64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.kernel_list cimport repeat
from minigrad.engine.memory.array cimport Array, empty
from minigrad.engine.memory.calls cimport Call, begin, refuse_in_capture
from minigrad.engine.memory.dtype cimport FLOAT32, FLOAT64, INT64, code_of, default_float, dtype_of, is_float
from minigrad.engine.memory.listener cimport current_listener
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_index, parse_lengths
from minigrad.engine.ops.arguments cimport integer
from minigrad.engine.ops.gather import argsort

import os
from numbers import Integral, Real

cdef uint64_t seed = int.from_bytes(os.urandom(8), "little")
cdef uint64_t position = 0


def _next_random(blocks: int, drawn: list[int]) -> None:
    """Write (seed, position) of the next blocks of the stream, four values each, to `drawn`."""
    global position
    drawn[:] = seed, position
    position += <uint64_t>blocks


def _with_random(primitive: Callable[..., None], drawn: list[int], args: tuple[Any, ...]) -> None:
    """Let a primitive of a backend use blocks of the stream."""
    primitive(drawn[0], drawn[1], *args)


cdef list reserve(uint64_t blocks):
    """[seed, position] of the next blocks of the stream, reserved for the caller; each run of a recorded step reserves
    others."""
    listener = <object>current_listener()
    drawn = None if listener is None else listener.draws(blocks)
    if drawn is None:
        drawn = [0, 0]
        repeat(_next_random, (blocks, drawn))
    if listener is not None:
        listener.drew(blocks, drawn)
    return drawn


cdef int draw(object primitive, int64_t count, tuple args) except -1:
    """Let a primitive fill `count` elements, four to a block."""
    repeat(_with_random, (primitive, reserve((count + 3) // 4), args))
    return 0


cdef bint repeated():
    """Whether the generator is left as it is because a second run of `recompute` draws the numbers of the first."""
    listener = <object>current_listener()
    return listener is not None and listener.draws(0) is not None


def _restart(new_seed: int, new_position: int) -> None:
    """Let the stream go on from here."""
    global seed, position
    seed, position = new_seed, new_position


def manual_seed(value: int) -> None:
    """Seed the generator of every random operation; the same seed gives the same numbers on any number of threads.

    The child of a fork has a copy of the generator, and draws the same numbers as its parent unless it is reseeded.

    Examples
    --------
    >>> mg.manual_seed(0)
    >>> a = mg.random.normal(shape=(3,))
    >>> mg.manual_seed(0)
    >>> bool((a == mg.random.normal(shape=(3,))).all())
    True
    """
    if not hasattr(value, "__index__"):
        raise TypeError(f"[manual_seed] expected an integer, got {value!r}")
    new = value.__index__() % 2**64
    if not repeated():
        repeat(_restart, (new, 0))


def get_state() -> dict[str, int]:
    """dict: the generator's state, to pass to `set_state`.

    Examples
    --------
    >>> sorted(mg.random.get_state())
    ['position', 'seed']
    """
    refuse_in_capture("get_state, whose result would not change")
    return {"seed": int(seed), "position": int(position)}


def set_state(state: dict[str, int]) -> None:
    """Continue where `get_state` was called.

    Examples
    --------
    >>> state = mg.random.get_state()
    >>> a = mg.random.uniform(shape=3)
    >>> mg.random.set_state(state)
    >>> bool((a == mg.random.uniform(shape=3)).all())
    True
    """
    if not isinstance(state, dict) or sorted(state) != ["position", "seed"]:
        raise ValueError(f"[set_state] expected what get_state returned, got {state!r}")
    cdef uint64_t new_seed = integer("set_state", "seed", state["seed"], 0)
    cdef uint64_t new_position = integer("set_state", "position", state["position"], 0)
    if not repeated():
        repeat(_restart, (new_seed, new_position))


cdef Array prepare(str op, object shape, int code, object device, tuple numbers):
    """The array to be filled; `numbers` are the parameters of the distribution."""
    cdef int64_t[MAX_NDIM] extent
    for number in numbers:
        if not isinstance(number, Integral if code == INT64 else Real):
            raise TypeError(f"[{op}] expected {'integers' if code == INT64 else 'numbers'}, got {number!r}")
    return empty(code, parse_lengths(op, shape, extent), extent, device_index(device, op))


cdef int float_code(str op, object dtype) except -1:
    cdef int code = code_of(dtype, op) if dtype is not None else default_float
    if not is_float(code):
        raise TypeError(f"[{op}] expected a floating dtype, got {dtype_of(code)}")
    return code


def uniform(low: float = 0.0, high: float = 1.0, shape: int | Sequence[int] = (), *, dtype: DTypeLike = None,
            device: str | None = None) -> Tensor:
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
    >>> mg.random.uniform(-1, 1, shape=(2, 3)).shape
    (2, 3)
    """
    cdef Call _call = begin("uniform")
    cdef Array out = prepare("uniform", shape, float_code("uniform", dtype), device, (low, high))
    if not low <= high:
        raise ValueError(f"[uniform] expected low <= high, got {low} and {high}")
    if not float(high) - float(low) <= (FLT_MAX if out.code == FLOAT32 else DBL_MAX):
        raise ValueError(f"[uniform] expected a range that {out.dtype} holds, got {low} to {high}")
    draw((<object>backend(out)).uniform, out.count, (low, high, out))
    return out


def normal(mean: float = 0.0, std: float = 1.0, shape: int | Sequence[int] = (), *, dtype: DTypeLike = None,
           device: str | None = None) -> Tensor:
    """Normal values with a mean and a standard deviation.

    Examples
    --------
    >>> mg.random.normal(shape=(2, 3)).shape
    (2, 3)
    """
    cdef Call _call = begin("normal")
    cdef Array out = prepare("normal", shape, float_code("normal", dtype), device, (mean, std))
    if not std >= 0:
        raise ValueError(f"[normal] expected a standard deviation of 0 or more, got {std}")
    draw((<object>backend(out)).normal, out.count, (mean, std, out))
    return out


def randint(low: int, high: int, shape: int | Sequence[int] = (), *, device: str | None = None) -> Tensor:
    """Uniform integers (int64) in [low, high).

    Examples
    --------
    >>> mg.random.randint(0, 10, shape=(4,)).dtype
    minigrad.int64
    """
    cdef Call _call = begin("randint")
    cdef Array out = prepare("randint", shape, INT64, device, (low, high))
    if not low < high:
        raise ValueError(f"[randint] expected low < high, got {low} and {high}")
    if low < -2**63 or high >= 2**63:
        raise ValueError(f"[randint] expected bounds that int64 holds, got {low} and {high}")
    draw((<object>backend(out)).integers, out.count, (low, high, out))
    return out


def permutation(n: int, *, device: str | None = None) -> Tensor:
    """The integers from 0 to n - 1 in random order (int64).

    Examples
    --------
    >>> mg.random.permutation(4).sort()
    tensor([0, 1, 2, 3])
    """
    cdef Call _call = begin("permutation")
    cdef Array keys = prepare("permutation", n, FLOAT64, device, ())
    if keys.ndim_ != 1:
        raise TypeError(f"[permutation] expected an integer, got {n!r}")
    draw((<object>backend(keys)).uniform, keys.count, (0.0, 1.0, keys))
    return argsort(keys)
