"""Creating tensors from data, shapes and ranges."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np

from minigrad.engine.memory.dtype import DTypeLike, get_default_dtype, int64
from minigrad.engine.memory.interop import from_dlpack
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.layout import broadcast_to, expand_dims
from minigrad.engine.ops.logic import where
from minigrad.engine.tape.node import is_grad_enabled
from minigrad.engine.tensor.factories import EMPTY, constant, make
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tensor", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

Shape = int | Sequence[int]


def operand(op: str, x: Any) -> Tensor:
    """Return x itself if it is a tensor, otherwise convert an array-like to one.

    Foreign memory is copied while operations are recorded, as its owner may change it before backward reads it.
    """
    return x if isinstance(x, Tensor) else make(x, copy=is_grad_enabled(), op=op)


def computed(values: np.ndarray, dtype: DTypeLike = None, device: str | None = None) -> Tensor:
    """Return a tensor of what an operation computes from shapes and numbers alone, so that a captured step keeps it."""
    return make(values, dtype, device, constant=True)


@contextmanager
def memory_for(op: str, shape: Sequence[float]) -> Iterator[None]:
    """Run a block that creates a result of that shape; if memory is insufficient, the error names the op."""
    if math.prod(n for n in shape if n) >= 2**58:  # NumPy reports this in several ways, or not at all
        raise MemoryError(f"[{op}] a result of shape {tuple(shape)} has too many elements")
    try:
        yield
    except MemoryError as error:
        raise MemoryError(f"[{op}] no memory for a result of shape {tuple(shape)}") from error


def tensor(data: Any, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """Create a tensor with a copy of `data`, without a history.

    Raises TypeError if the data does not consist of numbers, or has a dtype that minigrad does not support and no
    `dtype` is given.

    Parameters
    ----------
    data : array-like
        Numbers, nested sequences, NumPy arrays, tensors, tables of pandas, polars or Arrow, or anything with the buffer
        protocol or DLPack. `stack` joins several tensors and keeps their gradients.
    dtype : DType, optional
        By default, the dtype that NumPy finds in the data, except that Python floats take the default dtype. Data of
        other dtypes, such as bfloat16, are converted if one is given.
    device : str, optional
        By default, the device of the data, or "cpu" if it is not an array.
    requires_grad : bool

    Examples
    --------
    >>> mg.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    return make(data, dtype, device, requires_grad, True)


def asarray(
    data: Any, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False,
    *, copy: bool | None = None,
) -> Tensor:  # fmt: skip
    """Convert `data` to a tensor that shares its memory if possible, and copies it otherwise.

    Memory is shared with writable NumPy arrays and other objects that support the buffer protocol or DLPack, if neither
    the dtype nor the device has to change. Parameters and errors are as in `tensor`; without a `device`, the tensor
    is on the device of the data. ``copy=True`` copies in any case, and with ``copy=False`` it is a ValueError if the
    memory cannot be shared. Memory that must not be written, as Arrow's and JAX's, is copied. For a tensor the
    conversion and the copy are recorded: the gradient reaches `data`, unless ``requires_grad=True`` asks for a leaf.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.zeros(2, dtype=np.float32)
    >>> x = mg.asarray(a)
    >>> a[0] = 3
    >>> x
    tensor([3., 0.])
    """
    return make(data, dtype, device, requires_grad, copy is True, "asarray", copy is False)


def _lengths(shape: Any, more: tuple[int, ...]) -> Shape:
    """A shape whose lengths may be separate arguments."""
    return (shape, *more) if more else shape


def full(
    shape: Shape, fill_value: float, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Create a tensor filled with one value, by default of the value's own dtype.

    Examples
    --------
    >>> mg.full(2, 7.0)
    tensor([7., 7.])
    """
    if dtype is None:
        dtype = make(fill_value, op="full").dtype
    return constant("full", shape, fill_value, dtype, device, requires_grad)


def empty(
    shape: Shape, *more: int, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Create an uninitialized tensor; the shape may be given as separate integers.

    Examples
    --------
    >>> mg.empty((2, 3)).shape
    (2, 3)
    """
    return constant("empty", _lengths(shape, more), EMPTY, dtype, device, requires_grad)


def zeros(
    shape: Shape, *more: int, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Create a tensor of zeros; the shape may be given as separate integers.

    Examples
    --------
    >>> mg.zeros((1, 2))
    tensor([[0., 0.]])
    """
    return constant("zeros", _lengths(shape, more), 0, dtype, device, requires_grad)


def ones(
    shape: Shape, *more: int, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Create a tensor of ones; the shape may be given as separate integers.

    Examples
    --------
    >>> mg.ones(2, dtype="int64")
    tensor([1, 1])
    """
    return constant("ones", _lengths(shape, more), 1, dtype, device, requires_grad)


def _like(op: str, x: Tensor, value: Any, dtype: DTypeLike, device: str | None, requires_grad: bool) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"[{op}] expected a tensor, got {kind_of(x)}")
    dtype, device = x.dtype if dtype is None else dtype, x.device if device is None else device
    return constant(op, x.shape, value, dtype, device, requires_grad)


def empty_like(x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """`empty` with the shape, dtype and device of x.

    Examples
    --------
    >>> mg.empty_like(mg.ones((2, 3))).shape
    (2, 3)
    """
    return _like("empty_like", x, EMPTY, dtype, device, requires_grad)


def zeros_like(x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """`zeros` with the shape, dtype and device of x.

    Examples
    --------
    >>> mg.zeros_like(mg.ones(2))
    tensor([0., 0.])
    """
    return _like("zeros_like", x, 0, dtype, device, requires_grad)


def ones_like(x: Tensor, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False) -> Tensor:
    """`ones` with the shape, dtype and device of x.

    Examples
    --------
    >>> mg.ones_like(mg.zeros(2))
    tensor([1., 1.])
    """
    return _like("ones_like", x, 1, dtype, device, requires_grad)


def full_like(
    x: Tensor, fill_value: float, *, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """`full` with the shape, dtype and device of x.

    Examples
    --------
    >>> mg.full_like(mg.ones(2), 7)
    tensor([7., 7.])
    """
    return _like("full_like", x, fill_value, dtype, device, requires_grad)


def arange(
    start: float, stop: float | None = None, step: float = 1, *, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """Create evenly spaced values in [start, stop): int64 if all arguments are integers, else the default dtype.

    Examples
    --------
    >>> mg.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    given = (0, start, step) if stop is None else (start, stop, step)
    if any(isinstance(v, Tensor) and v.requires_grad for v in given):
        raise TypeError("[arange] expected numbers without a gradient, which would be lost: x.detach() has none")
    numbers: list[Any] = [v.item() if hasattr(v, "item") else v for v in given]
    for v in numbers:
        if not isinstance(v, (int, float)):
            raise TypeError(f"[arange] expected finite numbers, got {v!r}")
        if not abs(v) <= sys.float_info.max:
            raise ValueError(f"[arange] expected finite numbers, got {v!r}")
    if numbers[2] == 0:
        raise ValueError("[arange] expected a step other than 0, got 0")
    whole = all(isinstance(v, int) for v in numbers)
    if dtype is None:
        dtype = int64 if whole else get_default_dtype()
    if not whole:
        numbers = list(map(float, numbers))
    first, bound, by = numbers
    n = max(0, -((first - bound) // by) if whole else (bound - first) / by)
    with memory_for("arange", (n,)):
        if whole and max(map(abs, numbers)) > 2**53:  # np.arange computes n in floats and treats 2**63 as a float
            last = first + (n - 1) * by
            fits = min(first, last) >= -(2**63) and max(first, last) < 2**63
            values = np.fromiter(range(first, bound, by), np.int64 if fits else np.float64, n)
        else:
            values = np.arange(first, bound, by)
        return make(values, dtype, device, op="arange", constant=True)


@rename_arguments
def linspace(
    start: float, stop: float, num: int, *, dtype: DTypeLike = None, device: str | None = None, endpoint: bool = True
) -> Tensor:
    """Create `num` evenly spaced values from start to stop, which `endpoint=False` excludes.

    Examples
    --------
    >>> mg.linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    num = integer("linspace", "num", num)
    if num < 0:
        raise ValueError(f"[linspace] expected num of 0 or more, got {num}")
    for v in (start, stop):
        if not isinstance(v, Real):
            raise TypeError(f"[linspace] expected numbers, got {v!r}")
    dtype = get_default_dtype() if dtype is None else dtype
    with memory_for("linspace", (num,)):
        return make(np.linspace(start, stop, num, endpoint=endpoint), dtype, device, op="linspace", constant=True)


def eye(
    n_rows: int, n_cols: int | None = None, *, k: int = 0, dtype: DTypeLike = None, device: str | None = None
) -> Tensor:
    """Create a matrix with ones on the k-th diagonal and zeros elsewhere.

    Examples
    --------
    >>> mg.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    rows, columns = integer("eye", "n_rows", n_rows), integer("eye", "n_cols", n_rows if n_cols is None else n_cols)
    if rows < 0 or columns < 0:
        raise ValueError(f"[eye] expected lengths of 0 or more, got {rows} and {columns}")
    k = integer("eye", "k", k)
    with memory_for("eye", (rows, columns)):
        dtype = get_default_dtype() if dtype is None else dtype
        return make(np.eye(rows, columns, k), dtype, device, op="eye", constant=True)


def _triangle(x: Tensor, k: int, lower: bool) -> Tensor:
    name = "tril" if lower else "triu"
    x = operand(name, x)
    if x.ndim < 2:
        raise ValueError(f"[{name}] expected two axes or more, got shape {x.shape}")
    rows, columns = x.shape[-2:]
    k = min(max(integer(name, "k", k), -rows), columns)  # any integer works, though NumPy accepts only 64 bits
    with memory_for(name, x.shape):
        below = np.tri(rows, columns, k if lower else k - 1, dtype=bool)
        return where(computed(below if lower else ~below, device=x.device), x, False)


@rename_arguments
def tril(x: Tensor, /, k: int = 0) -> Tensor:
    """Return x with zeros above the k-th diagonal of its last two axes.

    Examples
    --------
    >>> mg.tril(mg.ones((2, 2)))
    tensor([[1., 0.],
            [1., 1.]])
    """
    return _triangle(x, k, lower=True)


@rename_arguments
def triu(x: Tensor, /, k: int = 0) -> Tensor:
    """Return x with zeros below the k-th diagonal of its last two axes.

    Examples
    --------
    >>> mg.triu(mg.ones((2, 2)))
    tensor([[1., 1.],
            [0., 1.]])
    """
    return _triangle(x, k, lower=False)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Create coordinate grids from one-dimensional tensors; the first one varies along axis 1 ("xy") or axis 0 ("ij").

    Examples
    --------
    >>> mg.meshgrid(mg.arange(2), mg.arange(2), indexing="ij")[0]
    tensor([[0, 0],
            [1, 1]])
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f'[meshgrid] expected indexing "xy" or "ij", got {indexing!r}')
    arrays = tuple(operand("meshgrid", x) for x in arrays)
    for x in arrays:
        if x.ndim != 1:
            raise ValueError(f"[meshgrid] expected one-dimensional tensors, got shape {x.shape}")
    places = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        places[:2] = 1, 0
    shape = [0] * len(arrays)
    for place, x in zip(places, arrays, strict=True):
        shape[place] = x.size
    return [
        broadcast_to(expand_dims(x, tuple(k for k in range(len(arrays)) if k != place)), tuple(shape))
        for place, x in zip(places, arrays, strict=True)
    ]
