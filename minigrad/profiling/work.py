"""One kernel as `minigrad.profile` records it, and how much work it did: its floating-point operations and its bytes.

The counts follow the formulas, so that different machines, or a CPU and a GPU, are compared by the same measure: a
multiplication, an addition, a comparison, a square root and an exponential are one operation each, and a value that a
kernel computes twice to save memory counts once. Copies, gathers, sorts and random numbers count as zero operations.
"""

import functools
import inspect
import math  # noqa: F401  # for expressions in cext/devices/primitives
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from minigrad.engine.devices.backend import COUNTS, Backend, Binary, Reduce, Unary
from minigrad.engine.tape.inspection import Outline


@dataclass(slots=True)
class Event:
    """One kernel that ran in a profile.

    Attributes
    ----------
    op : str
        The operation that started it, as the tape names it; the kernel's own name if there was none.
    phase : str
        "forward", recorded or not; "backward"; or "other" outside any operation: an optimizer's step, a new tensor.
    kernel : str
        The function that it computes.
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
# Of a state in a step: maximum 2, differences, exponentials and their sum 8, logarithm 1, two sums; backward 4 more
CTC, CTC_BACKWARD = 13, 17
# Operations of a recurrent step, per gate and hidden unit, besides the product with h: sum, gate, its part in the new
# state
GATE, GATE_BACKWARD = 4, 8


def count(*arrays: Outline | None) -> int:
    """Count the arrays that are not None."""
    return sum(x is not None for x in arrays)


def gains(gamma: Outline | None, dgamma: Outline | None, dbeta: Outline | None) -> int:
    """Count the operations per element that a weight and a bias add to the backward pass of a norm."""
    return count(gamma, dbeta) + 2 * count(dgamma)


def recurrent(cell: Any, arrays: dict[str, Outline], gate: int, norm: int) -> float:
    """Count the operations of all steps: products, and for each gate of a unit `gate`, and `norm` if normalized."""
    (above, batch, hidden), columns = arrays["h"].shape, arrays["w"].shape[0]
    normed = norm * (cell.norm is not None) + norm * cell.norm_cell * hidden / columns
    return (above - 1) * batch * columns * (2 * hidden + gate + normed)


def weights(q: Outline, k: Outline, causal: bool) -> float:
    """Count the weights of an attention; half of them if it is causal."""
    return q.size // max(q.shape[3], 1) * k.shape[2] * (0.5 if causal else 1)


@functools.cache
def count_of(primitive: str, what: str) -> Callable[..., float] | None:
    """Return the function of a primitive's arguments that counts "flops" or "bytes", as its file states it."""
    expression = COUNTS[primitive].get(what)
    if expression is None:
        return None
    names = [name for name in inspect.signature(getattr(Backend, primitive)).parameters if name != "self"]
    function: Callable[..., float] = eval(f"lambda {', '.join(names)}: {expression}", globals())
    return function


NAMES = {
    primitive: {int(op): op.name.lower() for op in enum}
    for primitive, enum in (("unary", Unary), ("binary", Binary), ("reduce", Reduce))
}


def name_of(primitive: str, args: tuple[Any, ...]) -> str:
    """Name the function that a call computes: "exp", not "unary"; "adam", not "optimize"."""
    names = NAMES.get(primitive)
    if names is not None:
        return names[args[0]]
    return args[0].name if primitive == "optimize" else primitive


def arrays_of(args: Iterable[Any]) -> list[Outline]:
    """List the arrays among the arguments and in their lists and dicts, in order."""
    found: list[Outline] = []
    for x in args:
        if isinstance(x, Outline):
            found.append(x)
        elif isinstance(x, list | dict):
            found += arrays_of(x.values() if isinstance(x, dict) else x)
    return found


def bytes_of(primitive: str, args: tuple[Any, ...], arrays: list[Outline]) -> int:
    """Add the bytes of all arrays among the arguments; one that is both read and written is passed, and counted, twice.

    Where an index names the rows that are read or written, these rows count, not the whole array.
    """
    function = count_of(primitive, "bytes")
    return int(function(*args)) if function else sum(x.bytes for x in arrays)


def flops_of(primitive: str, args: tuple[Any, ...]) -> int:
    """Count the floating-point operations of a call."""
    function = count_of(primitive, "flops")
    return int(function(*args)) if function else 0
