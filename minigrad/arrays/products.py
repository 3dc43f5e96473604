"""Products and rearrangements composed of the engine's operations, and therefore differentiable to any order."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from minigrad.arrays.creation import computed, eye, memory_for, operand
from minigrad.engine.devices.kernel_list import refuse
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.arithmetic import multiply
from minigrad.engine.ops.gather import take
from minigrad.engine.ops.join import concat, pad, split
from minigrad.engine.ops.layout import astype, broadcast_to, expand_dims, moveaxis, permute_dims, reshape
from minigrad.engine.ops.layout import sum as sum_
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.matmul import matmul
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor

__all__ = [
    "broadcast_arrays", "diag", "diagonal", "einsum", "kron", "outer", "repeat", "roll", "tensordot", "tile",
    "trace", "transpose", "vecdot",
]  # fmt: skip


def outer(x: Tensor, y: Tensor, /) -> Tensor:
    """Multiply every element of the vector x with every element of the vector y; the result has shape (m, n).

    Examples
    --------
    >>> mg.outer(mg.tensor([1.0, 2.0]), mg.tensor([3.0, 4.0]))
    tensor([[3., 4.],
            [6., 8.]])
    """
    x, y = operand("outer", x), operand("outer", y)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"[outer] expected two vectors, got shapes {x.shape} and {y.shape}")
    return multiply(expand_dims(x, 1), expand_dims(y, 0))


@rename_arguments
def vecdot(x: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum the products of x and y along an axis; the other axes broadcast.

    Examples
    --------
    >>> mg.vecdot(mg.tensor([1.0, 2.0]), mg.tensor([3.0, 4.0]))
    tensor(11.)
    """
    x, y = operand("vecdot", x), operand("vecdot", y)
    if x.shape[checked_axis("vecdot", axis, x)] != y.shape[checked_axis("vecdot", axis, y)]:
        raise ValueError(f"[vecdot] expected the same length along axis {axis}, got shapes {x.shape} and {y.shape}")
    return _sum(multiply(moveaxis(x, axis, -1), moveaxis(y, axis, -1)), -1)


def tensordot(x: Tensor, y: Tensor, /, *, axes: int | tuple[int | Sequence[int], int | Sequence[int]] = 2) -> Tensor:
    """Multiply x and y, summing over pairs of axes: the last n of x and the first n of y, or the given ones.

    Examples
    --------
    >>> mg.tensordot(mg.ones((2, 3)), mg.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    x, y = operand("tensordot", x), operand("tensordot", y)
    pair: Any = axes
    if not _is_several(axes):
        n = integer("tensordot", "number of axes", axes)
        if not 0 <= n <= min(x.ndim, y.ndim):
            raise ValueError(f"[tensordot] expected 0 to {min(x.ndim, y.ndim)} axes, got {n}")
        pair = range(x.ndim - n, x.ndim), range(n)
    elif len(pair) != 2:
        raise ValueError(f"[tensordot] expected a pair of the axes of x and the axes of y, got {axes}")
    left, right = (
        [checked_axis("tensordot", k, z) for k in (given if _is_several(given) else [given])]
        for given, z in zip(pair, (x, y), strict=True)
    )
    distinct = len(set(left)) == len(left) and len(set(right)) == len(right)
    if (
        not distinct
        or len(left) != len(right)
        or any(x.shape[i] != y.shape[k] for i, k in zip(left, right, strict=False))
    ):
        raise ValueError(f"[tensordot] expected axes of equal lengths, got {axes} of shapes {x.shape} and {y.shape}")
    free_x = [k for k in range(x.ndim) if k not in left]
    free_y = [k for k in range(y.ndim) if k not in right]
    shape = tuple(x.shape[k] for k in free_x) + tuple(y.shape[k] for k in free_y)
    inner = prod(x.shape[k] for k in left)
    rows = reshape(permute_dims(x, free_x + left), (prod(x.shape[k] for k in free_x), inner))
    columns = reshape(permute_dims(y, right + free_y), (inner, prod(y.shape[k] for k in free_y)))
    return reshape(matmul(rows, columns), shape)


def _is_several(x: Any) -> bool:
    """Whether x is a sequence, or an array with an axis, rather than a single value."""
    return isinstance(x, Iterable) and getattr(x, "ndim", 1) > 0


def checked_axis(op: str, axis: Any, x: Tensor) -> int:
    """Check an axis of x and count it from the front."""
    if isinstance(axis, bool):  # a flag, as in PyTorch's x.median(True)
        raise TypeError(f"[{op}] expected an integer axis, got {axis}")
    k = integer(op, "axis", axis)
    if not -x.ndim <= k < x.ndim:
        raise IndexError(f"[{op}] expected an axis from {-x.ndim} to {x.ndim - 1} for shape {x.shape}, got {k}")
    return k % x.ndim


def _sum(x: Tensor, axis: int) -> Tensor:
    """Sum in the dtype of x, as a product of int32 tensors is int32."""
    return astype(sum_(x, axis), x.dtype, copy=False)


def einsum(subscripts: str, *operands: Tensor) -> Tensor:
    """Evaluate the sum of products that the subscripts describe in Einstein notation, as `numpy.einsum`.

    Operands are combined from left to right, two at a time, in one batched matrix product each. Raises ValueError if
    the subscripts are malformed or do not match the shapes.

    Parameters
    ----------
    subscripts : str
        Such as ``"bij,bjk->bik"``: one letter for each axis, ``...`` for axes that broadcast. Without ``->``, the
        result has the letters that occur once, in alphabetical order. A letter that occurs twice in an operand takes
        the diagonal.
    *operands : Tensor

    Examples
    --------
    >>> a = mg.arange(4.0).reshape(2, 2)
    >>> mg.einsum("ij,jk->ik", a, a)
    tensor([[ 2.,  3.],
            [ 6., 11.]])
    >>> mg.einsum("ii->", a)
    tensor(3.)
    """
    operands = tuple(operand("einsum", x) for x in operands)
    terms, output = _parse(subscripts, operands)
    sizes: dict[str, int] = {}
    for term, x in zip(terms, operands, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if sizes.setdefault(letter, n) != n and 1 not in (n, sizes[letter]):
                raise ValueError(
                    f"[einsum] expected one length of {letter!r} in {subscripts!r}, got {sizes[letter]} and {n}"
                )
            sizes[letter] = max(sizes[letter], n) if n != 0 and sizes[letter] != 0 else 0
    labeled = [_diagonals(term, x) for term, x in zip(terms, operands, strict=True)]
    term, result = labeled[0]
    for k, (other, x) in enumerate(labeled[1:], 1):
        later = set(output).union(*(t for t, _ in labeled[k + 1 :]))
        term, result = _contract(term, result, other, x, later)
    for letter in [c for c in term if c not in output]:
        axis = term.index(letter)
        result, term = _sum(result, axis), term.replace(letter, "")
    return permute_dims(result, [term.index(c) for c in output])


def _parse(subscripts: str, operands: tuple[Tensor, ...]) -> tuple[list[str], str]:
    """Return the letters of every operand and of the result, with the ellipsis expanded."""
    if not isinstance(subscripts, str):
        raise TypeError(f"[einsum] expected subscripts in a string, got {subscripts!r}")
    text = subscripts.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands) or not operands:
        raise ValueError(f"[einsum] expected {len(terms)} operands for {subscripts!r}, got {len(operands)}")
    used = {c for c in text if c.isalpha()}
    spare = [c for c in map(chr, range(ord("A"), ord("z") + 1)) if c.isalpha() and c not in used]
    hidden = max(
        [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, operands, strict=True) if "..." in t], default=0
    )
    dots = "".join(spare[:hidden])
    for k, (term, x) in enumerate(zip(terms, operands, strict=True)):
        if term.count("...") == 1:
            n = x.ndim - len(term) + 3
            terms[k] = term.replace("...", dots[len(dots) - n :] if n > 0 else "")
        if len(terms[k]) != x.ndim or (not terms[k].isalpha() and terms[k]):
            raise ValueError(f"[einsum] expected an operand with the axes {term!r}, got shape {x.shape}")
    letters = "".join(terms)
    if not arrow:
        output = ("..." if hidden else "") + "".join(sorted(c for c in used if letters.count(c) == 1))
    output = output.replace("...", dots, 1)
    if len(set(output)) != len(output) or any(c not in letters for c in output):
        raise ValueError(f"[einsum] expected a result of distinct letters of the operands, got {subscripts!r}")
    return terms, output


def _diagonals(term: str, x: Tensor) -> tuple[str, Tensor]:
    """Replace the axes of a repeated letter by their diagonal, so that every letter occurs once."""
    for letter in term:
        while term.count(letter) > 1:
            first, second = [k for k, c in enumerate(term) if c == letter][:2]
            if x.shape[first] != x.shape[second]:
                raise ValueError(
                    f"[einsum] expected one length of {letter!r}, got {x.shape[first]} and {x.shape[second]}"
                )
            x = diagonal(x, 0, first, second)
            term = "".join(c for k, c in enumerate(term) if k not in (first, second)) + letter
    return term, x


def _contract(left: str, x: Tensor, right: str, y: Tensor, later: set[str]) -> tuple[str, Tensor]:
    """Combine two operands in one batched product, summed over the letters that are not needed later."""
    for letter in [c for c in left if c not in right and c not in later]:
        x, left = _sum(x, left.index(letter)), left.replace(letter, "")
    for letter in [c for c in right if c not in left and c not in later]:
        y, right = _sum(y, right.index(letter)), right.replace(letter, "")
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in later]
    inner = [c for c in shared if c not in later]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    size = {c: _size(right, y, c) if _size(left, x, c) == 1 else _size(left, x, c) for c in shared}
    size |= {c: x.shape[left.index(c)] for c in rows} | {c: y.shape[right.index(c)] for c in columns}
    x = broadcast_to(
        permute_dims(x, [left.index(c) for c in batch + rows + inner]), tuple(size[c] for c in batch + rows + inner)
    )
    y = broadcast_to(
        permute_dims(y, [right.index(c) for c in batch + inner + columns]),
        tuple(size[c] for c in batch + inner + columns),
    )
    b, m, k, n = (prod([size[c] for c in group]) for group in (batch, rows, inner, columns))
    out = matmul(reshape(x, (b, m, k)), reshape(y, (b, k, n)))
    return "".join(batch + rows + columns), reshape(out, tuple(size[c] for c in batch + rows + columns))


def _size(term: str, x: Tensor, letter: str) -> int:
    return x.shape[term.index(letter)]


@rename_arguments
def diagonal(x: Tensor, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements x[i, i + offset] of each matrix along two axes, which become the last axis of the result.

    Examples
    --------
    >>> mg.diagonal(mg.arange(9).reshape(3, 3), 1)
    tensor([1, 5])
    """
    x = operand("diagonal", x)
    first, second = checked_axis("diagonal", axis1, x), checked_axis("diagonal", axis2, x)
    if first == second:
        raise ValueError(f"[diagonal] expected two different axes, got {axis1} and {axis2}")
    offset = integer("diagonal", "offset", offset)
    x = moveaxis(x, (first, second), (-2, -1))
    rows, columns = x.shape[-2:]
    below, right = max(-offset, 0), max(offset, 0)
    n = max(0, min(rows - below, columns - right))
    start = below * columns + right if n else 0
    places = np.arange(n, dtype=np.int64) * (columns + 1) + start
    return take(reshape(x, (*x.shape[:-2], rows * columns)), computed(places, device=x.device), axis=-1)


@rename_arguments
def diag(x: Tensor, /, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or the matrix with a vector as its k-th diagonal and zeros elsewhere.

    Examples
    --------
    >>> mg.diag(mg.tensor([1.0, 2.0]))
    tensor([[1., 0.],
            [0., 2.]])
    """
    x, k = operand("diag", x), integer("diag", "k", k)
    if x.ndim not in (1, 2):
        raise ValueError(f"[diag] expected a vector or a matrix, got shape {x.shape}")
    if x.ndim == 2:
        return diagonal(x, k)
    n = x.size + abs(k)
    with memory_for("diag", (n, n)):
        x = pad(expand_dims(x, 1 if k >= 0 else 0), [(0, n - x.size), (0, 0)] if k >= 0 else [(0, 0), (0, n - x.size)])
        return where(eye(n, k=k, dtype="bool", device=x.device), x, False)


def trace(x: Tensor, /, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike = None) -> Tensor:
    """The sum of the elements x[i, i + offset] of each matrix along two axes; int32 and bool are summed as int64.

    Examples
    --------
    >>> mg.trace(mg.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor(5.)
    """
    return sum_(diagonal(operand("trace", x), offset, axis1, axis2), -1, dtype=dtype)


def kron(x: Tensor, y: Tensor, /) -> Tensor:
    """The Kronecker product: blocks of y, each multiplied with an element of x.

    Examples
    --------
    >>> mg.kron(mg.tensor([1, 10]), mg.tensor([1, 2, 3]))
    tensor([ 1,  2,  3, 10, 20, 30])
    """
    x, y = operand("kron", x), operand("kron", y)
    ndim = max(x.ndim, y.ndim)
    first, second = ((1,) * (ndim - z.ndim) + z.shape for z in (x, y))
    products = multiply(reshape(x, [n for m in first for n in (m, 1)]), reshape(y, [n for m in second for n in (1, m)]))
    return reshape(products, [m * n for m, n in zip(first, second, strict=True)])


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The tensors, each broadcast to the shape that all of them have in common.

    Examples
    --------
    >>> [x.shape for x in mg.broadcast_arrays(mg.zeros((2, 1)), mg.zeros(3))]
    [(2, 3), (2, 3)]
    """
    arrays = tuple(operand("broadcast_arrays", x) for x in arrays)
    shapes = [x.shape for x in arrays]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"[broadcast_arrays] the shapes {str(shapes)[1:-1]} do not broadcast together") from None
    return [broadcast_to(x, shape) for x in arrays]


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Return a view of x with its axes in the given order, or reversed.

    Examples
    --------
    >>> mg.transpose(mg.ones((2, 3))).shape
    (3, 2)
    """
    x = operand("transpose", x)
    return permute_dims(x, range(x.ndim - 1, -1, -1) if axes is None else axes)


@rename_arguments
def roll(x: Tensor, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Shift the elements of x along axes by `shift` positions; elements that leave one end re-enter at the other.

    Examples
    --------
    >>> mg.roll(mg.arange(4), 1)
    tensor([3, 0, 1, 2])
    """
    x = operand("roll", x)
    if axis is None:
        return reshape(roll(reshape(x, -1), shift, axis=0), x.shape)
    axes = [checked_axis("roll", k, x) for k in (axis if isinstance(axis, (tuple, list)) else [axis])]
    given = shift if isinstance(shift, (tuple, list)) else [shift] * len(axes)
    shifts = [integer("roll", "shift", by) for by in given]
    if len(shifts) != len(axes):
        raise ValueError(f"[roll] expected as many shifts as axes, got {shift} and {axis}")
    for k, by in zip(axes, shifts, strict=True):
        n = x.shape[k]
        if n and by % n:
            front, back = split(x, [n - by % n], k)
            x = concat([back, front], k)
    return x


@rename_arguments
def repeat(x: Tensor, repeats: int | Sequence[int] | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element of x along an axis (None: flattened), as `numpy.repeat`.

    Examples
    --------
    >>> mg.repeat(mg.tensor([1, 2]), 2)
    tensor([1, 1, 2, 2])
    """
    x = operand("repeat", x)
    if axis is None:
        x, axis = reshape(x, -1), 0
    axis = checked_axis("repeat", axis, x)
    n = x.shape[axis]
    if isinstance(repeats, Tensor):
        refuse("repeat with a tensor of numbers, whose result has a shape that depends on values")
    given = repeats.reshape(-1).tolist() if isinstance(repeats, Tensor) else np.ravel(repeats).tolist()
    counts = [integer("repeat", "number of repeats", r) for r in given]
    if len(counts) not in (1, n) or any(c < 0 for c in counts):
        raise ValueError(f"[repeat] expected {n} counts of 0 or more, got {repeats}")
    shape = (*x.shape[:axis], n * counts[0] if len(counts) == 1 else sum(counts), *x.shape[axis + 1 :])
    with memory_for("repeat", shape):
        if len(counts) == 1:
            return reshape(_copies(x, axis + 1, counts[0]), shape) if counts[0] != 1 else x.copy()
        places = np.repeat(np.arange(n), np.array(counts, np.int64))
        return take(x, computed(places, device=x.device), axis=axis)


def _copies(x: Tensor, axis: int, count: int) -> Tensor:
    """Repeat each block of x, made up of the axes from `axis` on, `count` times: (blocks, count, size)."""
    blocks, size = prod(x.shape[:axis]), prod(x.shape[axis:])
    return broadcast_to(reshape(x, (blocks, 1, size)), (blocks, count, size))


def tile(x: Tensor, repetitions: int | Sequence[int], /) -> Tensor:
    """Repeat x as a whole along each axis, as `numpy.tile`.

    Examples
    --------
    >>> mg.tile(mg.tensor([1, 2]), 2)
    tensor([1, 2, 1, 2])
    """
    x = operand("tile", x)
    given = repetitions if isinstance(repetitions, Sequence) else [repetitions]
    counts = [integer("tile", "number of repetitions", n) for n in given]
    if any(count < 0 for count in counts):
        raise ValueError(f"[tile] expected repetitions of 0 or more, got {repetitions}")
    counts = [1] * (x.ndim - len(counts)) + counts
    shape = [1] * (len(counts) - x.ndim) + list(x.shape)
    x = reshape(x, shape)
    with memory_for("tile", [n * count for n, count in zip(shape, counts, strict=True)]):
        for axis, count in enumerate(counts):
            if count != 1:
                shape[axis] *= count
                x = reshape(_copies(x, axis, count), shape)
        return x if any(count != 1 for count in counts) else x.copy()
