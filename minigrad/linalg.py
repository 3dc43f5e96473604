"""Linear algebra as far as it is products and norms, with the names of NumPy and the Python array API standard.

Matrices are the last two axes, and the other axes hold many of them. What solves or decomposes is not here:
``np.linalg`` does it for ``x.numpy()``, without gradients.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from minigrad.array import products
from minigrad.array.creation import eye, operand
from minigrad.array.products import checked_axis, outer, tensordot, vecdot
from minigrad.engine.memory.dtype import DTypeLike, get_default_dtype
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.arithmetic import multiply, subtract
from minigrad.engine.ops.functions import power, sqrt, square
from minigrad.engine.ops.join import stack, unstack
from minigrad.engine.ops.layout import astype, broadcast_to, expand_dims, matrix_transpose
from minigrad.engine.ops.layout import sum as sum_
from minigrad.engine.ops.logic import equal, not_equal, where
from minigrad.engine.ops.matmul import matmul
from minigrad.engine.ops.reduce import max as max_
from minigrad.engine.ops.reduce import min as min_
from minigrad.engine.ops.rounding import absolute
from minigrad.engine.tensor.pytorch_names import lookup, rename_arguments
from minigrad.engine.tensor.tensor import Tensor

if not TYPE_CHECKING:
    __getattr__ = lookup(__name__)

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "norm", "outer", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip

Axes = int | Sequence[int]
INFINITY = float("inf")


def __dir__() -> list[str]:
    return [*__all__]


# ── products ──────────────────────────────────────────────────────────────────────────────────────


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector products of x1 and x2, whose length along the axis is 3; the other axes broadcast.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.cross(mg.tensor([1.0, 0.0, 0.0]), mg.tensor([0.0, 1.0, 0.0]))
    tensor([0., 0., 1.])
    """
    x1, x2 = products.broadcast_arrays(operand("cross", x1), operand("cross", x2))
    axis = checked_axis("cross", axis, x1)
    if x1.shape[axis] != 3:
        raise ValueError(f"[cross] expected vectors of length 3, got shape {x1.shape} and axis {axis}")
    (a0, a1, a2), (b0, b1, b2) = unstack(x1, axis), unstack(x2, axis)
    parts = [(a1, b2, a2, b1), (a2, b0, a0, b2), (a0, b1, a1, b0)]
    return stack([subtract(multiply(a, b), multiply(c, d)) for a, b, c, d in parts], axis)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """The product of n times the same square matrix; for n = 0, the identity.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.matrix_power(mg.tensor([[1, 1], [0, 1]]), 5)
    tensor([[1, 5],
            [0, 1]])
    """
    x, n = operand("matrix_power", x), integer("matrix_power", "n", n, 0)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"[matrix_power] expected square matrices, got shape {x.shape}")
    y = None
    while n:  # squaring takes log₂ n products
        if n & 1:
            y = x if y is None else matmul(y, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape).copy() if y is None else y


# ── parts of matrices ─────────────────────────────────────────────────────────────────────────────


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements x[..., i, i + offset] of each matrix.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.diagonal(mg.arange(8).reshape(2, 2, 2))
    tensor([[0, 3],
            [4, 7]])
    """
    return products.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of the elements x[..., i, i + offset] of each matrix.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.trace(mg.arange(8).reshape(2, 2, 2))
    tensor([ 3, 11])
    """
    return products.trace(x, offset, -2, -1, dtype)


# ── norms ─────────────────────────────────────────────────────────────────────────────────────────


@rename_arguments
def vector_norm(
    x: Tensor, /, *, axis: Axes | None = None, keepdims: bool = False, ord: float = 2, dtype: DTypeLike = None
) -> Tensor:
    """(∑ |x|^ord)^(1/ord) along axes, with the gradient 0 where the norm is 0.

    Parameters
    ----------
    x : Tensor
        Integers are converted to the default dtype.
    axis : int or tuple of int, optional
        By default, all axes.
    keepdims : bool
    ord : float
        For ±inf, the largest or the smallest |x|; for 0, the number of elements that are not 0.
    dtype : DType, optional
        To which x is converted first.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.vector_norm(mg.tensor([3.0, 4.0]))
    tensor(5.)
    """
    x = operand("vector_norm", x)
    if isinstance(ord, str):
        raise TypeError(f"[vector_norm] expected a number ord, got {ord!r}")
    x = astype(x, dtype or (x.dtype if x.dtype.kind == "f" else get_default_dtype()), copy=False)
    if ord in (INFINITY, -INFINITY):
        return (max_ if ord > 0 else min_)(absolute(x), axis, keepdims=keepdims)
    if ord == 0:
        return sum_(astype(not_equal(x, 0), x.dtype), axis, keepdims=keepdims)
    if ord == 1:
        return sum_(absolute(x), axis, keepdims=keepdims)
    total = sum_(square(x) if ord == 2 else power(absolute(x), ord), axis, keepdims=keepdims)
    still = equal(total, 0)
    safe = where(still, 1, total)
    return where(still, 0, sqrt(safe) if ord == 2 else power(safe, 1 / ord))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: float | str | None = "fro") -> Tensor:
    """The norm of each matrix of x.

    Parameters
    ----------
    x : Tensor
        Integers are converted to the default dtype.
    keepdims : bool
    ord : {"fro", 1, -1, inf, -inf}
        "fro" (or None) is the square root of the sum of squares; 1 and -1 are the largest and the smallest sum of |x|
        in a column, inf and -inf in a row. The norms of singular values (2, -2 and "nuc") are not available.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.matrix_norm(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    x = operand("matrix_norm", x)
    if x.ndim < 2:
        raise ValueError(f"[matrix_norm] expected two axes or more, got shape {x.shape}")
    if ord in (None, "fro"):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, INFINITY, -INFINITY):
        raise ValueError(
            f'[matrix_norm] expected ord "fro", 1, -1, inf or -inf, got {ord!r}: np.linalg.norm has the others'
        )
    columns = ord in (1, -1)
    sums = vector_norm(x, axis=-2 if columns else -1, keepdims=True, ord=1)
    y: Any = (max_ if ord in (1, INFINITY) else min_)(sums, axis=-1 if columns else -2, keepdims=True)
    return y if keepdims else y[..., 0, 0]


@rename_arguments
def norm(x: Tensor, /, ord: float | str | None = None, axis: Axes | None = None, keepdims: bool = False) -> Tensor:
    """`vector_norm` along one axis, `matrix_norm` along a pair of axes, as `numpy.linalg.norm`.

    Without `axis`, the norm of the vector or the matrix x; without `ord` as well, the norm of all elements of x
    as a vector.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.linalg.norm(mg.tensor([[3.0, 4.0], [6.0, 8.0]]), axis=1)
    tensor([ 5., 10.])
    """
    x = operand("norm", x)
    if axis is None and ord is not None and x.ndim not in (1, 2):
        raise ValueError(f"[norm] expected a vector or a matrix, or an axis, got shape {x.shape}")
    axes: Any = tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    if ord is None or len(axes) == 1:
        order: Any = 2 if ord is None else ord
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=order)
    if len(axes) != 2:
        raise ValueError(f"[norm] expected one axis or two, got {axis}")
    rows, columns = (checked_axis("norm", k, x) for k in axes)
    y = matrix_norm(x.moveaxis((rows, columns), (-2, -1)), ord=ord)
    return expand_dims(y, (rows, columns)) if keepdims else y
