"""One kernel as `minigrad.profile` records it, and how much work it did: its floating-point operations and its bytes.

The counts follow the formulas, so that different machines, or a CPU and a GPU, are compared by the same measure: a
multiplication, an addition, a comparison, a square root and an exponential are one operation each, and a value that a
kernel computes twice to save memory counts once. Copies, gathers, sorts and random numbers count as zero operations.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from minigrad.engine.backend import Binary, Reduce, Unary
from minigrad.engine.inspection import Outline


@dataclass(slots=True)
class Event:
    """One kernel that ran in a profile.

    Attributes
    ----------
    op : str
        The operation that started it, as the tape names it; the kernel's own name if there was none.
    phase : str
        "forward", recorded or not; "backward"; or "other" outside of any operation: an optimizer's step, a new tensor.
    kernel : str
        What it computes.
    start, duration : float
        Seconds; `start` counts from the beginning of the profile.
    bytes : int
        The size of all its arrays; one that it both reads and writes counts twice.
    flops : int
        Floating-point operations, counted by the formulas.
    shapes : tuple of tuple of int
        The shapes of those arrays, in the order of the kernel's arguments.
    device : str
    thread : int
        The identifier of the Python thread.
    call : int
        The same for all kernels of one run of an operation.

    Examples
    --------
    >>> import minigrad as mg
    >>> with mg.profile() as p:
    ...     y = mg.ones((2, 3)).exp()
    >>> event = p.events[-1]
    >>> event.op, event.kernel, event.shapes, event.bytes, event.flops
    ('exp', 'exp', ((2, 3), (2, 3)), 48, 6)
    """

    op: str
    phase: str
    kernel: str
    start: float
    duration: float
    bytes: int
    flops: int
    shapes: tuple[tuple[int, ...], ...]
    device: str
    thread: int
    call: int


# Operations per element of x. Forward: mean 1, squared deviations and their sum 3, (x - mean) rstd 2; then gamma 1 and
# beta 1. Backward: the normalized x 2, its two sums with the cotangent 3, dx 4; then gamma 1, dgamma 2 and dbeta 1.
LAYER_NORM, LAYER_NORM_BACKWARD = 6, 9
# Without a mean. Forward: squares and their sum 2, x rstd 1. Backward: x rstd 1, its sum with the cotangent 2, dx 3.
UNCENTERED, UNCENTERED_BACKWARD = 3, 6
GIVEN_STATISTICS = 2  # (x - mean) rstd
# Softmax: maximum, difference, exponential, sum, quotient. Its backward: product, sum, difference, product.
SOFTMAX, SOFTMAX_BACKWARD, LOGSUMEXP, CROSS_ENTROPY, CROSS_ENTROPY_BACKWARD = 5, 4, 4, 4, 4
MOMENTS = 4
# Operations of a recurrent step, per gate and hidden unit, besides the product with h: sum, gate, its part in the new
# state
GATE, GATE_BACKWARD = 4, 8

Count = Callable[..., float]


def _gains(*given: Outline | None) -> int:
    return sum(x is not None for x in given)


def _gemm(a: Outline, b: Outline, out: Outline, beta: float, bias: Outline | None) -> float:
    return out.size * (2 * a.shape[-1] + (bias is not None))


def _norm_backward(
    x: Outline, gamma: Outline | None, dgamma: Outline | None, dbeta: Outline | None, once: int = LAYER_NORM_BACKWARD
) -> float:
    return x.size * (once + _gains(gamma) + 2 * _gains(dgamma) + _gains(dbeta))


def _recurrent(gate: int, norm: int) -> Count:
    def count(cell: Any, arrays: dict[str, Outline]) -> float:
        (above, batch, hidden), columns = arrays["h"].shape, arrays["w"].shape[0]
        normed = norm * (cell.norm is not None) + norm * cell.norm_cell * hidden / columns
        return (above - 1) * batch * columns * (2 * hidden + gate + normed)

    return count


def _attention(products: int, softmax: int) -> Count:
    """Return the count of `products` dot products of the head's width, and of the softmax, for each weight."""

    def count(
        scale: float, causal: bool, dropout: float, seed: int, offset: int, q: Outline, k: Outline, *_: Any
    ) -> float:
        weights = q.size // max(q.shape[3], 1) * k.shape[2] * (0.5 if causal else 1)
        return weights * (2 * products * q.shape[3] + softmax)

    return count


# Each function takes the arguments of its primitive, see `inspection.outlined`. A primitive that is not listed counts
# as zero operations.
FLOPS: dict[str, Count] = {
    "unary": lambda op, x, out: out.size,
    "binary": lambda op, a, b, out: out.size,
    "where": lambda condition, a, b, out: out.size,
    "clip": lambda low, high, x, out: 2 * x.size,
    "reduce": lambda op, outer, n, inner, x, out: x.size,
    "moments": lambda outer, n, inner, x, mean, m2: MOMENTS * x.size,
    "cumulative_sum": lambda outer, n, inner, x, out: x.size,
    "linear_scan": lambda outer, n, inner, reverse, a, b, initial, h: 2 * a.size,
    "linear_scan_backward": lambda outer, n, inner, reverse, a, h, initial, g, da, db, dinitial: (
        (2 + (da is not None)) * a.size
    ),
    "gemm": _gemm,
    "normalize": lambda rows, groups, m, inner, x, gamma, beta, eps, y, mean, rstd: (
        x.size * ((UNCENTERED if mean is None else LAYER_NORM) + _gains(gamma, beta))
    ),
    "normalize_backward": lambda rows, groups, m, inner, x, gamma, mean, rstd, g, dx, dgamma, dbeta: _norm_backward(
        x, gamma, dgamma, dbeta, UNCENTERED_BACKWARD if mean is None else LAYER_NORM_BACKWARD
    ),
    "batch_norm": lambda outer, channels, inner, x, gamma, beta, *_: x.size * (LAYER_NORM + _gains(gamma, beta)),
    "batch_norm_eval": lambda outer, channels, inner, x, gamma, beta, *_: (
        x.size * (GIVEN_STATISTICS + _gains(gamma, beta))
    ),
    "batch_norm_backward": lambda outer, channels, inner, given, x, gamma, statistics, g, dx, dgamma, dbeta: (
        _norm_backward(x, gamma, dgamma, dbeta)
    ),
    "conv2d": lambda x, w, bias, at, y: y.size * (2 * math.prod(w.shape[1:]) + (bias is not None)),
    "conv2d_backward_data": lambda g, w, at, dx: 2 * g.size * math.prod(w.shape[1:]),
    "conv2d_backward_weight": lambda x, g, at, dw, dbias: g.size * (2 * math.prod(dw.shape[1:]) + (dbias is not None)),
    "max_pool2d": lambda x, at, y, index: (index if y is None else y).size * at[0] * at[1],
    "max_pool2d_backward": lambda x, g, at, dx: g.size * (at[0] * at[1] + 1),
    "average_pool2d": lambda x, rows, columns, divisor, y: x.size + y.size,
    "average_pool2d_backward": lambda g, rows, columns, divisor, dx: dx.size + g.size,
    "recurrent": _recurrent(GATE, LAYER_NORM + 2),
    "recurrent_backward": _recurrent(GATE_BACKWARD, LAYER_NORM_BACKWARD + 4),
    "softmax": lambda rows, width, log, x, y: SOFTMAX * x.size,
    "softmax_backward": lambda rows, width, log, y, g, dx: SOFTMAX_BACKWARD * y.size,
    "logsumexp": lambda rows, width, x, y: LOGSUMEXP * x.size,
    "cross_entropy": lambda rows, width, z, *_: CROSS_ENTROPY * z.size,
    "cross_entropy_backward": lambda rows, width, z, *_: CROSS_ENTROPY_BACKWARD * z.size,
    "attention": _attention(2, SOFTMAX),
    "attention_backward": _attention(5, SOFTMAX + SOFTMAX_BACKWARD),
    "add_at": lambda outer, n, inner, x, index, v: v.size,
    "add_along": lambda outer, n, inner, x, m, index, v: v.size,
    "dropout": lambda seed, offset, p, x, y, keep: x.size,
    "optimize": lambda rule, p, *_: rule.flops * sum(x.size for x in p),
    "sum_of_squares": lambda g: 2 * sum(x.size for x in g),
}


# These read or write only the rows that the index names, not the whole of x.
GATHERS: dict[str, Count] = {
    "take": lambda outer, n, inner, x, index, out: index.nbytes + 2 * out.nbytes,
    "put": lambda outer, n, inner, x, index, v: index.nbytes + 2 * v.nbytes,
    "add_at": lambda outer, n, inner, x, index, v: index.nbytes + 3 * v.nbytes,
    "take_along": lambda outer, n, inner, x, m, index, out: index.nbytes + 2 * out.nbytes,
    "add_along": lambda outer, n, inner, x, m, index, v: index.nbytes + 3 * v.nbytes,
}

NAMES = {
    primitive: {int(op): op.name.lower() for op in enum}
    for primitive, enum in (("unary", Unary), ("binary", Binary), ("reduce", Reduce))
}


def name_of(primitive: str, args: tuple[Any, ...]) -> str:
    """What a call computes: "exp", not "unary"; "adam", not "optimize"."""
    names = NAMES.get(primitive)
    if names is not None:
        return names[args[0]]
    return args[0].name if primitive == "optimize" else primitive


def arrays_of(args: Iterable[Any]) -> list[Outline]:
    """The arrays among the arguments and in their lists and dicts, in order."""
    found: list[Outline] = []
    for x in args:
        if isinstance(x, Outline):
            found.append(x)
        elif isinstance(x, list | dict):
            found += arrays_of(x.values() if isinstance(x, dict) else x)
    return found


def bytes_of(primitive: str, args: tuple[Any, ...], arrays: list[Outline]) -> int:
    """The bytes of all arrays among the arguments; one that is both read and written is passed, and counted, twice."""
    count = GATHERS.get(primitive)
    return int(count(*args)) if count else sum(x.bytes for x in arrays)


def flops_of(primitive: str, args: tuple[Any, ...]) -> int:
    """Floating-point operations of a call."""
    count = FLOPS.get(primitive)
    return int(count(*args)) if count else 0
