"""Linear algebra: products, norms, systems of equations, with the names of NumPy and the Python array API standard.

Matrices are the last two axes, and the other axes hold many of them. What else decomposes matrices is not here:
``np.linalg`` does it for ``x.numpy()``, without gradients.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.arrays import products
from minigrad.arrays.creation import empty, eye, operand, tril
from minigrad.arrays.products import checked_axis, outer, tensordot, vecdot
from minigrad.engine.devices.kernel_list import repeat
from minigrad.engine.memory.calls import Covering
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
from minigrad.engine.tape.modes import no_grad
from minigrad.engine.tape.python_function import attach, record_function, result_over
from minigrad.engine.tensor.pytorch_names import lookup, rename_arguments
from minigrad.engine.tensor.tensor import Tensor

if not TYPE_CHECKING:
    __getattr__ = lookup(__name__)

__all__ = [
    "cholesky", "cross", "diagonal", "inv", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "norm",
    "outer", "solve", "tensordot", "trace", "vecdot", "vector_norm",
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
    >>> mg.linalg.matrix_power(mg.tensor([[1, 1], [0, 1]]), 5)
    tensor([[1, 5],
            [0, 1]])
    """
    x, n = _square("matrix_power", x), integer("matrix_power", "n", n, 0)
    y = None
    while n:  # squaring takes log₂ n products
        if n & 1:
            y = x if y is None else matmul(y, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape).copy() if y is None else y


def _square(op: str, x: Tensor) -> Tensor:
    x = operand(op, x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"[{op}] expected square matrices, got shape {x.shape}")
    return x


# ── systems of equations, by LAPACK ───────────────────────────────────────────────────────────────


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The solution Y of A Y = B for square matrices A, by LU decomposition.

    The gradients are ``dB = A⁻ᵀ G`` and ``dA = −dB Yᵀ``, which can be differentiated again. LAPACK runs on the CPU:
    for tensors on a GPU, this waits.

    Y is ``(..., n, k)``, or ``(..., n)`` for a vector.

    Parameters
    ----------
    x1 : Tensor
        ``(..., n, n)``: A. Integers are converted to the default dtype.
    x2 : Tensor
        ``(..., n, k)``, or a vector ``(n,)``: B. The leading axes broadcast.

    Raises
    ------
    ValueError
        If the shapes do not fit; numpy.linalg.LinAlgError, a ValueError, if a matrix has no inverse. For B with one
        axis less than A and a row for each matrix, say what it is: PyTorch's `solve` takes its rows for vectors, and
        NumPy's takes B for a matrix.

    Examples
    --------
    >>> mg.linalg.solve(mg.tensor([[2.0, 0.0], [1.0, 1.0]]), mg.tensor([4.0, 5.0]))
    tensor([2., 3.])
    """
    a, b = _square("solve", x1), operand("solve", x2)
    if b.ndim > 1 and b.shape == a.shape[:-1]:
        raise ValueError(
            f"[solve] expected matrices or one vector, got shape {b.shape} for {a.shape}: for a vector of each matrix, "
            f"write x2[..., None]; for one matrix, x2[None]"
        )
    columns = expand_dims(b, 1) if b.ndim == 1 else b
    if b.ndim == 0 or columns.shape[-2] != a.shape[-1]:
        raise ValueError(f"[solve] expected a right-hand side of {a.shape[-1]} rows, got shape {b.shape}")
    a, columns = _as_floats("solve", a, columns)
    batch = np.broadcast_shapes(a.shape[:-2], columns.shape[:-2])
    y = _solve(broadcast_to(a, batch + a.shape[-2:]), broadcast_to(columns, batch + columns.shape[-2:]))
    return y[..., 0] if b.ndim == 1 else y


def inv(x: Tensor, /) -> Tensor:
    """The inverse of each matrix, as `solve` computes it for the identity; errors as there.

    Examples
    --------
    >>> mg.linalg.inv(mg.tensor([[2.0, 0.0], [1.0, 1.0]]))
    tensor([[ 0.5,  0. ],
            [-0.5,  1. ]])
    """
    (x,) = _as_floats("inv", _square("inv", x))
    return _solve(x, broadcast_to(eye(x.shape[-1], dtype=x.dtype, device=x.device), x.shape), "inv")


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The lower triangular L with positive diagonal for which L Lᵀ is the symmetric matrix x.

    LAPACK reads the lower triangle, on the CPU, and the gradient is that of a symmetric x (Murray 2016,
    https://arxiv.org/abs/1602.07527): ``dx = (S + Sᵀ) / 2`` with ``S = L⁻ᵀ Φ(Lᵀ G) L⁻¹``, where Φ takes the lower
    triangle and halves its diagonal.

    Raises ValueError if the matrices are not square, or not positive definite (numpy.linalg.LinAlgError, a ValueError).

    Parameters
    ----------
    x : Tensor
        ``(..., n, n)``. Integers are converted to the default dtype.
    upper : bool
        Whether to return Lᵀ.

    Examples
    --------
    >>> mg.linalg.cholesky(mg.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    (x,) = _as_floats("cholesky", _square("cholesky", x))
    y, kept = _compute("cholesky", np.linalg.cholesky, x)

    def backward(node: Any, grads: list[Any], saved: list[Any]) -> list[Tensor | None]:
        low = attach(saved[0], node, 0)
        transposed = low.mT
        inner = tril(matmul(transposed, grads[0]))
        inner = multiply(inner, 1 - eye(low.shape[-1], dtype=low.dtype, device=low.device) / 2)
        s = _solve(transposed, matrix_transpose(_solve(transposed, inner)))
        return [(s + s.mT) / 2]

    record_function("cholesky", [x], [y], backward, (kept,))
    return y.mT if upper else y


def _solve(a: Tensor, b: Tensor, op: str = "solve") -> Tensor:
    """`solve` for floats of the same dtype and the same leading axes."""
    y, kept = _compute(op, np.linalg.solve, a, b)

    def backward(node: Any, grads: list[Any], saved: list[Any]) -> list[Tensor | None]:
        matrix = saved[0]
        db = _solve(matrix.mT, grads[0])
        return [-matmul(db, attach(saved[1], node, 0).mT) if matrix.requires_grad else None, db]

    record_function(op, [a, b], [y], backward, (a, kept))
    return y


def _as_floats(op: str, *operands: Tensor) -> list[Tensor]:
    """Tensors on one device, in the wider of their dtypes."""
    if len({x.device for x in operands}) > 1:
        raise ValueError(f"[{op}] expected tensors on one device, got {operands[0].device} and {operands[1].device}")
    kinds = [x.dtype if x.dtype.kind == "f" else get_default_dtype() for x in operands]
    return [astype(x, max(kinds, key=lambda dtype: dtype.itemsize), copy=False) for x in operands]


def _compute(op: str, function: Callable[..., Any], *operands: Tensor) -> tuple[Tensor, Tensor]:
    """What a function of NumPy computes, of the shape of the last operand: the result, and the same for the tape."""
    with Covering(op), no_grad():
        y = empty(operands[-1].shape, dtype=operands[-1].dtype, device=operands[-1].device)
        repeat(_fill, (op, function, y, *operands))
    return y, result_over(y, [y])


def _fill(op: str, function: Callable[..., Any], y: Tensor, *operands: Tensor) -> None:
    try:
        y.copy_(function(*(x.detach().to("cpu").numpy() for x in operands)))
    except np.linalg.LinAlgError:
        kind = "positive definite matrices" if op == "cholesky" else "matrices that have an inverse"
        raise np.linalg.LinAlgError(f"[{op}] expected {kind}") from None


# ── parts of matrices ─────────────────────────────────────────────────────────────────────────────


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The elements x[..., i, i + offset] of each matrix.

    Examples
    --------
    >>> mg.linalg.diagonal(mg.arange(8).reshape(2, 2, 2))
    tensor([[0, 3],
            [4, 7]])
    """
    return products.diagonal(x, offset, -2, -1)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike = None) -> Tensor:
    """The sum of the elements x[..., i, i + offset] of each matrix.

    Examples
    --------
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
    >>> mg.linalg.matrix_norm(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), ord=1)
    tensor(6.)
    """
    x = operand("matrix_norm", x)
    if x.ndim < 2:
        raise ValueError(f"[matrix_norm] expected two axes or more, got shape {x.shape}")
    if ord in (None, "fro"):
        return vector_norm(x, axis=(-2, -1), keepdims=keepdims)
    if ord not in (1, -1, INFINITY, -INFINITY):
        raise ValueError(f'[matrix_norm] expected ord "fro", ±1 or ±inf, got {ord!r}: np.linalg.norm has the others')
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
