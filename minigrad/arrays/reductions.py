"""Running products, differences, counts, order statistics, searches and sets.

They are composed of the engine's operations, and therefore work on each device; those with floating results are
differentiable to any order.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from minigrad.arrays.array_api import finfo, result_type
from minigrad.arrays.creation import computed, full, operand
from minigrad.arrays.products import checked_axis
from minigrad.engine.memory.dtype import DTypeLike, get_default_dtype
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.arithmetic import add, multiply, subtract
from minigrad.engine.ops.gather import argsort, nonzero, ranked, take
from minigrad.engine.ops.join import concat, stack, unstack
from minigrad.engine.ops.layout import astype, broadcast_to, moveaxis, ravel, reshape
from minigrad.engine.ops.layout import sum as sum_
from minigrad.engine.ops.logic import equal, less, logical_not, not_equal, where
from minigrad.engine.ops.reduce import cumulative_sum
from minigrad.engine.ops.rounding import isnan
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor

__all__ = [
    "count_nonzero", "cumulative_prod", "diff", "median", "nan_to_num", "quantile", "searchsorted", "unique_all",
    "unique_counts", "unique_inverse",
]  # fmt: skip

Axes = int | Sequence[int]
INFINITY = float("inf")


# ── values along an axis ──────────────────────────────────────────────────────────────────────────


@rename_arguments
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> Tensor:
    """Running products along an axis (which may be omitted in one dimension).

    There is one multiplication for each element of the axis, as in a loop, so that the products equal NumPy's, and
    the gradients are right where elements are 0.

    Parameters
    ----------
    x : Tensor
    axis : int, optional
    dtype : DType, optional
        The dtype of the computation and the result; by default int64 for bool, uint8 and int32, else x's.
    include_initial : bool
        Begin with a 1, so that the axis is one longer.

    Examples
    --------
    >>> mg.cumulative_prod(mg.tensor([1.0, 2.0, 3.0]))
    tensor([1., 2., 6.])
    """
    x = operand("cumulative_prod", x)
    if axis is None and x.ndim != 1:
        raise ValueError(f"[cumulative_prod] expected an axis for {x.ndim} axes")
    axis = checked_axis("cumulative_prod", 0 if axis is None else axis, x)
    x = astype(x, dtype or ("int64" if x.dtype.kind in "bui" else x.dtype), copy=False)
    if include_initial:
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        x = concat([full(shape, 1, dtype=x.dtype, device=x.device), x], axis)
    return stack(list(accumulate(unstack(x, axis), multiply)), axis) if x.shape[axis] else x


@rename_arguments
def diff(
    x: Tensor, /, n: int = 1, axis: int = -1, *, prepend: Tensor | float | None = None,
    append: Tensor | float | None = None,
) -> Tensor:  # fmt: skip
    """The differences of neighbors along an axis, `n` times over; of bools, whether they differ.

    Parameters
    ----------
    x : Tensor
    n : int
    axis : int
    prepend, append : Tensor or number, optional
        Put before and after x along the axis first; a number means a single element.

    Examples
    --------
    >>> mg.diff(mg.tensor([1.0, 2.0, 4.0, 7.0]))
    tensor([1., 2., 3.])
    """
    n, x = integer("diff", "n", n, 0), operand("diff", x)
    parts = [operand("diff", part) for part in (prepend, x, append) if part is not None]
    axis = checked_axis("diff", axis, x)
    if len(parts) > 1:
        one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        parts = [broadcast_to(part.to(x.device), one) if part.ndim == 0 else part for part in parts]
        dtype = result_type(*parts)
        x = concat([astype(part, dtype, copy=False) for part in parts], axis)
    before: tuple[slice, ...] = (slice(None),) * axis
    subtracted = not_equal if x.dtype.kind == "b" else subtract
    for _ in range(min(n, x.shape[axis])):
        x = subtracted(x[(*before, slice(1, None))], x[(*before, slice(None, -1))])
    return x


@rename_arguments
def count_nonzero(x: Tensor, /, axis: Axes | None = None, *, keepdims: bool = False) -> Tensor:
    """How many elements are not zero, over all axes or the given ones, as int64.

    Examples
    --------
    >>> mg.count_nonzero(mg.tensor([[0, 1], [2, 3]]), axis=0)
    tensor([1, 2])
    """
    x = operand("count_nonzero", x)
    if axis is not None:
        axis = [checked_axis("count_nonzero", k, x) for k in (axis if isinstance(axis, tuple | list) else [axis])]
    return sum_(not_equal(x, 0), axis, keepdims=keepdims)


def nan_to_num(x: Tensor, /, *, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in place of NaN and of infinities: by default 0 and the largest and lowest finite numbers.

    Examples
    --------
    >>> mg.nan_to_num(mg.tensor([1.0, mg.nan, mg.inf]), posinf=9)
    tensor([1., 0., 9.])
    """
    x = operand("nan_to_num", x)
    if x.dtype.kind != "f":
        return x
    limits = finfo(x.dtype)
    low, high = limits.min if neginf is None else neginf, limits.max if posinf is None else posinf
    for value, places in [(nan, isnan(x)), (low, equal(x, -INFINITY)), (high, equal(x, INFINITY))]:
        x = where(places, value, x)
    return x


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


@rename_arguments
def quantile(x: Tensor, /, q: float | Sequence[float], axis: Axes | None = None, *, keepdims: bool = False) -> Tensor:
    """The numbers below which the fractions q of the elements lie, interpolated linearly; NaN if an element is NaN.

    Parameters
    ----------
    x : Tensor
        Integers are converted to the default dtype.
    q : float or sequence of float
        From 0 to 1. For a sequence, the result has an axis of its length in front.
    axis : int or tuple of int, optional
        By default, all axes.
    keepdims : bool

    Examples
    --------
    >>> mg.quantile(mg.tensor([0.0, 1.0, 4.0, 9.0]), [0.5, 1.0])
    tensor([2.5, 9. ])
    """
    x = operand("quantile", x)
    if isinstance(q, Tensor) and q.requires_grad:
        raise TypeError("[quantile] expected q without a gradient, which is not computed: give q.detach()")
    fractions = np.asarray(q.tolist() if isinstance(q, Tensor) else q, dtype=np.float64)
    if fractions.ndim > 1 or not ((fractions >= 0) & (fractions <= 1)).all():
        raise ValueError(f"[quantile] expected a number or a sequence of numbers from 0 to 1, got {q}")
    return _quantile("quantile", x, fractions, axis, keepdims)


@rename_arguments
def median(x: Tensor, /, axis: Axes | None = None, *, keepdims: bool = False) -> Tensor:
    """The element in the middle of the sorted ones, or the mean of the two in the middle; NaN if an element is NaN.

    Examples
    --------
    >>> mg.median(mg.tensor([9.0, 1.0, 4.0, 2.0]))
    tensor(3.)
    """
    return _quantile("median", operand("median", x), np.float64(0.5), axis, keepdims)


def _quantile(op: str, x: Tensor, q: Any, axis: Axes | None, keepdims: bool) -> Tensor:
    several = range(x.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else [axis]
    axes = [checked_axis(op, k, x) for k in several]
    if len(set(axes)) < len(axes):
        raise ValueError(f"[{op}] expected distinct axes, got {axis}")
    kept = [1 if k in axes else n for k, n in enumerate(x.shape)]
    rest = [n for k, n in enumerate(x.shape) if k not in axes]
    n = int(np.prod([x.shape[k] for k in axes], dtype=np.int64))
    if n == 0:
        raise ValueError(f"[{op}] expected at least one element, got shape {x.shape}")
    x = x if x.dtype.kind == "f" else astype(x, get_default_dtype())
    x = reshape(moveaxis(x, axes, list(range(x.ndim - len(axes), x.ndim))), (*rest, n))
    place = q.reshape(-1) * (n - 1)
    low = np.floor(place).astype(np.int64)
    part = place - low
    if not part.any():
        y = ranked(x, computed(low, device=x.device))
    else:
        pairs = ranked(x, computed(np.stack([low, np.ceil(place).astype(np.int64)], -1), device=x.device))
        below, above = pairs[..., ::2], pairs[..., 1::2]
        weight = computed(part, dtype=x.dtype, device=x.device)
        y = add(multiply(below, subtract(1, weight)), multiply(above, weight))
        if not part.all():  # an infinite element itself, without a product of 0
            y = where(computed(part == 0, device=x.device), below, y)
    y = moveaxis(y, -1, 0) if q.ndim else y[..., 0]
    return reshape(y, (*q.shape, *kept)) if keepdims else y


def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """The indices at which the elements of x2 would keep x1 sorted, as int64.

    Parameters
    ----------
    x1 : Tensor
        A vector in ascending order, NaN last.
    x2 : Tensor
        Of any shape, which the result has, too.
    side : str
        Among equal elements of x1, the "left" or the "right" end.
    sorter : Tensor of integers, optional
        The indices that sort x1, as `argsort` gives them, if it is not sorted.

    Examples
    --------
    >>> mg.searchsorted(mg.tensor([1, 3, 3, 5]), mg.tensor([3, 4]))
    tensor([1, 3])
    """
    x1, x2 = operand("searchsorted", x1), operand("searchsorted", x2)
    if x1.ndim != 1:
        raise ValueError(f"[searchsorted] expected a vector, got shape {x1.shape}")
    if side not in ("left", "right"):
        raise ValueError(f'[searchsorted] expected side "left" or "right", got {side!r}')
    if not x2.ndim:
        x2 = x2.to(x1.device)  # a number
    if sorter is not None:
        x1 = take(x1, sorter)
    dtype = result_type(x1, x2)
    x1, values = astype(x1, dtype, copy=False), astype(ravel(x2), dtype, copy=False)
    # In the stable order of both, an element of x2 comes after as many elements of x1 as its index says.
    order = argsort(concat([values, x1] if side == "left" else [x1, values]))
    first = 0 if side == "left" else x1.size
    of_x1 = less(order, first) if side == "right" else logical_not(less(order, values.size))
    counts = cumulative_sum(astype(of_x1, "int64"))
    places = argsort(order)[first : first + values.size]
    return reshape(take(counts, places), x2.shape)


# ── sets ──────────────────────────────────────────────────────────────────────────────────────────


class UniqueAll(NamedTuple):
    """The result of `unique_all`."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of `unique_counts`."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of `unique_inverse`."""

    values: Tensor
    inverse_indices: Tensor


def _unique(op: str, x: Tensor) -> UniqueAll:
    x = operand(op, x).detach()
    flat = ravel(x)
    order = argsort(flat)
    ascending = take(flat, order)
    new = concat([full(min(1, flat.size), True, device=x.device), not_equal(ascending[1:], ascending[:-1])])
    (starts,) = nonzero(new)
    ends = concat([starts[1:], full(min(1, flat.size), flat.size, dtype="int64", device=x.device)])
    group = subtract(cumulative_sum(astype(new, "int64")), 1)
    inverse = reshape(take(group, argsort(order)), x.shape)
    return UniqueAll(take(ascending, starts), take(order, starts), inverse, subtract(ends, starts))


def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct elements of x, sorted, where each first occurs, which each element of x is, and how many there are.

    Every NaN counts as distinct. Nothing is recorded: the values have no gradient.

    Returns
    -------
    UniqueAll
        values, indices (into x as a vector), inverse_indices (into the values, of x's shape), and counts.

    Examples
    --------
    >>> found = mg.unique_all(mg.tensor([3, 1, 3]))
    >>> found.values, found.indices, found.inverse_indices, found.counts
    (tensor([1, 3]), tensor([1, 0]), tensor([1, 0, 1]), tensor([1, 2]))
    """
    return _unique("unique_all", x)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct elements of x, sorted, and how many there are of each, as `unique_all`.

    Examples
    --------
    >>> mg.unique_counts(mg.tensor([3, 1, 3])).counts
    tensor([1, 2])
    """
    found = _unique("unique_counts", x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct elements of x, sorted, and which of them each element of x is, as `unique_all`.

    Examples
    --------
    >>> mg.unique_inverse(mg.tensor([3, 1, 3])).inverse_indices
    tensor([1, 0, 1])
    """
    found = _unique("unique_inverse", x)
    return UniqueInverse(found.values, found.inverse_indices)
