"""The methods and properties that a tensor has under PyTorch's names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad import linalg
from minigrad import namespace as mg
from minigrad.arrays.products import checked_axis
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor

Axes = int | Sequence[int]


def _lengths(size: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one sequence or as separate integers."""
    return tuple(size[0]) if len(size) == 1 and not hasattr(size[0], "__index__") else size


def _mask(op: str, mask: Any) -> Tensor:
    """A mask, which cannot hold integers: these are indices."""
    if isinstance(mask, np.ndarray):
        mask = mg.asarray(mask)
    if not isinstance(mask, Tensor) or mask.dtype != "bool":
        kind = f"a tensor of {mask.dtype}" if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(f"[{op}] expected a mask of bools, got {kind}")
    return mask


# PyTorch's argument names.
KEYWORDS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "diagonal": "k", "shifts": "shift", "end": "stop",
    "steps": "num", "dim1": "axis1", "dim2": "axis2",
}  # fmt: skip


def _with_axis(function: Any) -> Any:
    """Let a function with PyTorch's argument names take NumPy's as well, and name it without its class in errors."""
    function.__qualname__ = function.__name__
    code = function.__code__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function if KEYWORDS.keys().isdisjoint(own) else rename_arguments(function)


class TensorNames(Tensor):
    """The methods and properties that a tensor has under PyTorch's names."""

    # shape

    def view(self: Tensor, *shape: int | Sequence[int]) -> Tensor:
        """PyTorch's name for `reshape`, which copies where PyTorch's view is an error."""
        if shape and not (isinstance(shape[0], Sequence) or hasattr(shape[0], "__index__")):
            raise TypeError(f"[view] expected lengths, got {shape[0]!r}; x.astype(dtype) converts the elements")
        return self.reshape(*shape)

    def view_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``x.reshape(other.shape)``."""
        return self.reshape(other.shape)

    def reshape_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``x.reshape(other.shape)``."""
        return self.reshape(other.shape)

    def unsqueeze(self: Tensor, dim: int) -> Tensor:
        """PyTorch's name for `expand_dims`."""
        return self.expand_dims(dim)

    def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """PyTorch's name for ``nn.Flatten(start_dim, end_dim)(x)``."""
        return mg.nn.Flatten(start_dim, end_dim)(self)

    def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """PyTorch's name for a `reshape` that splits one axis."""
        dim = checked_axis("unflatten", dim, self)
        return self.reshape((*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))

    def permute(self: Tensor, *dims: int | Sequence[int]) -> Tensor:
        """PyTorch's name for `permute_dims`."""
        return self.permute_dims(*dims)

    def t(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.T``, for at most two axes."""
        if self.ndim > 2:
            raise ValueError(f"[t] expected at most 2 axes, got shape {self.shape}; x.mT exchanges the last two")
        return self.T

    def swapdims(self: Tensor, dim0: int, dim1: int) -> Tensor:
        """PyTorch's name for a `permute_dims` that exchanges two axes."""
        return self.swapaxes(dim0, dim1)

    def movedim(self: Tensor, source: Axes, destination: Axes) -> Tensor:
        """PyTorch's name for `moveaxis`."""
        return self.moveaxis(source, destination)

    def expand(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
        """PyTorch's name for `broadcast_to`; -1 keeps a length."""
        lengths = _lengths(sizes)
        own = (-1,) * (len(lengths) - self.ndim) + self.shape
        return self.broadcast_to(tuple(m if n == -1 else n for n, m in zip(lengths, own[-len(lengths) :], strict=True)))

    def expand_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``x.broadcast_to(other.shape)``."""
        return self.broadcast_to(other.shape)

    def tile(self: Tensor, *dims: int | Sequence[int]) -> Tensor:
        """PyTorch's name for ``mg.tile(x, dims)``."""
        return mg.tile(self, _lengths(dims))

    def repeat_interleave(self: Tensor, repeats: int | Tensor, dim: int | None = None) -> Tensor:
        """PyTorch's name for ``mg.repeat(x, repeats, axis=dim)``."""
        return mg.repeat(self, repeats, axis=dim)

    def roll(self: Tensor, shifts: int | Sequence[int], dims: Axes | None = None) -> Tensor:
        """PyTorch's name for ``mg.roll(x, shifts, axis=dims)``."""
        return mg.roll(self, shifts, axis=dims)

    def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """PyTorch's name for `unstack`."""
        return self.unstack(dim)

    def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """PyTorch's name for a `split` into parts of equal length, of which the last may be shorter."""
        axis = checked_axis("chunk", dim, self)
        n, parts = self.shape[axis], integer("chunk", "chunks", chunks, 1)
        size = -(-n // parts)
        return tuple(self.split(list(range(size, n, size)) if n else parts, axis))

    def split_with_sizes(self: Tensor, split_sizes: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """PyTorch's name for a `split` into parts of these lengths, or into parts of one length, as its split does."""
        n = self.shape[checked_axis("split_with_sizes", dim, self)]
        if hasattr(split_sizes, "__index__"):
            size = integer("split_with_sizes", "split_sizes", split_sizes, 1)
            return tuple(self.split(range(size, n, size), dim))
        *ends, total = itertools.accumulate(split_sizes, initial=0)
        if total != n or not ends or min(split_sizes) < 0:
            raise ValueError(f"[split_with_sizes] expected lengths that add up to {n}, got {list(split_sizes)}")
        return tuple(self.split(ends[1:], dim))

    def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
        """PyTorch's name for ``x[start : start + length]`` along an axis."""
        axis = checked_axis("narrow", dim, self)
        n = self.shape[axis]
        first = start + n if start < 0 else start
        if not 0 <= first <= first + length <= n:
            raise ValueError(f"[narrow] expected a part of an axis of length {n}, got start {start}, length {length}")
        return self[(slice(None),) * axis + (slice(first, first + length),)]

    def select(self: Tensor, dim: int, index: int) -> Tensor:
        """PyTorch's name for ``x[index]`` along an axis."""
        return self[(slice(None),) * checked_axis("select", dim, self) + (integer("select", "index", index),)]

    def tril(self: Tensor, diagonal: int = 0) -> Tensor:
        """PyTorch's name for ``mg.tril(x, k=diagonal)``."""
        return mg.tril(self, k=diagonal)

    def triu(self: Tensor, diagonal: int = 0) -> Tensor:
        """PyTorch's name for ``mg.triu(x, k=diagonal)``."""
        return mg.triu(self, k=diagonal)

    def diag(self: Tensor, diagonal: int = 0) -> Tensor:
        """PyTorch's name for ``mg.diag(x, k=diagonal)``."""
        return mg.diag(self, diagonal)

    def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """PyTorch's name for ``mg.diagonal(x, offset, dim1, dim2)``."""
        return mg.diagonal(self, offset, dim1, dim2)

    def trace(self: Tensor) -> Tensor:
        """PyTorch's name for ``mg.trace(x)``."""
        return mg.trace(self)

    # indices

    def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """PyTorch's name for ``x.take_along_axis(index, axis=dim)``."""
        axis = checked_axis("gather", dim, self)
        part = tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(index.shape))
        if index.ndim != self.ndim or any(index.shape[k] > n for k, n in enumerate(self.shape) if k != axis):
            raise ValueError(f"[gather] expected an index not longer than {self.shape}, got shape {index.shape}")
        return self[part].take_along_axis(index, axis)

    def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """PyTorch's name for ``x.take(index, axis=dim)``."""
        return self.take(index.reshape(-1), dim)

    def masked_fill(self: Tensor, mask: Tensor, value: float | Tensor) -> Tensor:
        """PyTorch's name for ``mg.where(mask, value, x)``."""
        return mg.where(_mask("masked_fill", mask), _as(self, value), self)

    def masked_select(self: Tensor, mask: Tensor) -> Tensor:
        """PyTorch's name for ``x[mask]``."""
        return self[_mask("masked_select", mask).broadcast_to(self.shape)]

    def argwhere(self: Tensor) -> Tensor:
        """PyTorch's name for ``mg.stack(x.nonzero(), axis=1)``."""
        return mg.stack(self.nonzero(), axis=1)

    def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
        """PyTorch's name for the first k of a `sort` along an axis, with their indices."""
        axis = checked_axis("topk", dim, self)
        if not 0 <= integer("topk", "k", k) <= self.shape[axis]:
            raise ValueError(f"[topk] expected k from 0 to {self.shape[axis]}, got {k}")
        order = self.argsort(axis, descending=largest)
        indices = order[(slice(None),) * axis + (slice(k),)]
        return TopK(self.take_along_axis(indices, axis), indices)

    # values

    def clamp(self: Tensor, min: float | Tensor | None = None, max: float | Tensor | None = None) -> Tensor:
        """PyTorch's name for `clip`."""
        return self.clip(min, max)

    def clamp_min(self: Tensor, min: float | Tensor) -> Tensor:
        """PyTorch's name for ``x.clip(min)``."""
        return self.clip(min, None)

    def clamp_max(self: Tensor, max: float | Tensor) -> Tensor:
        """PyTorch's name for ``x.clip(None, max)``."""
        return self.clip(None, max)

    def add(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for ``x + alpha * other``."""
        return self + _times(alpha, other)

    def sub(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for ``x - alpha * other``."""
        return self - _times(alpha, other)

    def mul(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x * other``."""
        return self * other

    def div(self: Tensor, other: float | Tensor, *, rounding_mode: str | None = None) -> Tensor:
        """PyTorch's name for ``x / other``, or ``x // other`` with ``rounding_mode="floor"``."""
        return self / other if rounding_mode is None else _divide(self, other, rounding_mode)

    def neg(self: Tensor) -> Tensor:
        """PyTorch's name for ``-x``."""
        return -self

    def pow(self: Tensor, exponent: float | Tensor) -> Tensor:
        """PyTorch's name for ``x ** exponent``."""
        return self**exponent

    def remainder(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x % other``."""
        return self % other

    def eq(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x == other``."""
        return mg.equal(self, other)

    def equal(self: Tensor, other: Tensor) -> bool:
        """PyTorch's name for whether two tensors have the same shape and equal elements."""
        return self.shape == other.shape and bool((self == other).all())

    def ne(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x != other``."""
        return mg.not_equal(self, other)

    def gt(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x > other``."""
        return self > other

    def ge(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x >= other``."""
        return self >= other

    def lt(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x < other``."""
        return self < other

    def le(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x <= other``."""
        return self <= other

    def logical_not(self: Tensor) -> Tensor:
        """PyTorch's name for ``mg.logical_not(x)``."""
        return mg.logical_not(self)

    def logical_and(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.logical_and(x, other)``."""
        return mg.logical_and(self, other)

    def logical_or(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.logical_or(x, other)``."""
        return mg.logical_or(self, other)

    def matmul(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``x @ other``."""
        return self @ other

    def mm(self: Tensor, mat2: Tensor) -> Tensor:
        """PyTorch's name for ``x @ mat2``, for matrices."""
        return _product("mm", self, mat2, 2, 2)

    def bmm(self: Tensor, mat2: Tensor) -> Tensor:
        """PyTorch's name for ``x @ mat2``, for batches of matrices."""
        return _product("bmm", self, mat2, 3, 3)

    def mv(self: Tensor, vec: Tensor) -> Tensor:
        """PyTorch's name for ``x @ vec``, for a matrix and a vector."""
        return _product("mv", self, vec, 2, 1)

    def dot(self: Tensor, tensor: Tensor) -> Tensor:
        """PyTorch's name for ``x @ tensor``, for vectors."""
        return _product("dot", self, tensor, 1, 1)

    def outer(self: Tensor, vec2: Tensor) -> Tensor:
        """PyTorch's name for ``mg.outer(x, vec2)``."""
        return mg.outer(self, vec2)

    def kron(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.kron(x, other)``."""
        return mg.kron(self, other)

    def hypot(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.hypot(x, other)``."""
        return mg.hypot(self, other)

    def logaddexp(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.logaddexp(x, other)``."""
        return mg.logaddexp(self, other)

    def copysign(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``mg.copysign(x, other)``."""
        return mg.copysign(self, other)

    def nextafter(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``mg.nextafter(x, other)``."""
        return mg.nextafter(self, other)

    def nan_to_num(self: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
        """PyTorch's name for ``mg.nan_to_num(x, nan=nan)``."""
        return mg.nan_to_num(self, nan=nan, posinf=posinf, neginf=neginf)

    def diff(
        self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
    ) -> Tensor:
        """PyTorch's name for ``mg.diff(x, n, axis=dim)``."""
        return mg.diff(self, n, dim, prepend=prepend, append=append)

    def lerp(self: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
        """PyTorch's name for ``x + weight * (end - x)``."""
        return self + weight * (end - self)

    def logit(self: Tensor) -> Tensor:
        """PyTorch's name for ``mg.log(x / (1 - x))``."""
        return mg.log(self / (1 - self))

    def sgn(self: Tensor) -> Tensor:
        """PyTorch's name for `sign`."""
        return self.sign()

    def erfc(self: Tensor) -> Tensor:
        """PyTorch's name for ``1 - mg.erf(x)``, which loses the digits of small results."""
        return 1 - self.erf()

    # reductions

    def amax(self: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
        """PyTorch's name for `max`."""
        return self.max(_all(dim), keepdims=keepdim)

    def amin(self: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
        """PyTorch's name for `min`."""
        return self.min(_all(dim), keepdims=keepdim)

    def cumsum(self: Tensor, dim: int, dtype: DTypeLike = None) -> Tensor:
        """PyTorch's name for `cumulative_sum`."""
        return self.cumulative_sum(dim, dtype=dtype)

    def cumprod(self: Tensor, dim: int, dtype: DTypeLike = None) -> Tensor:
        """PyTorch's name for `cumulative_prod`."""
        return mg.cumulative_prod(self, axis=dim, dtype=dtype)

    def count_nonzero(self: Tensor, dim: Axes | None = None, *, keepdim: bool = False) -> Tensor:  # type: ignore[override]
        """PyTorch's name for ``mg.count_nonzero(x, axis=dim)``."""
        return mg.count_nonzero(self, dim, keepdims=keepdim)

    def quantile(self: Tensor, q: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """PyTorch's name for ``mg.quantile(x, q, axis=dim)``."""
        return mg.quantile(self, q, dim, keepdims=keepdim)

    def norm(
        self: Tensor, p: float | str = "fro", dim: Axes | None = None, keepdim: bool = False, dtype: DTypeLike = None
    ) -> Tensor:
        """PyTorch's name for (∑ |x|ᵖ)^(1/p), with the gradient 0 where the norm is 0."""
        return linalg.vector_norm(self, axis=dim, keepdims=keepdim, ord=2 if p == "fro" else p, dtype=dtype)  # type: ignore[arg-type]

    def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
        """PyTorch's name for ``mg.unique_values(x)``, or the values with parts of ``mg.unique_all(x)``."""
        if not (return_inverse or return_counts):
            return mg.unique_values(self)
        found = mg.unique_all(self)
        inverse, counts = (found.inverse_indices,) * bool(return_inverse), (found.counts,) * bool(return_counts)
        return (found.values, *inverse, *counts)

    def isclose(
        self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Tensor:
        """PyTorch's name for |x − other| ≤ atol + rtol |other|, where infinities are close only to themselves."""
        near = (self == other) | ((self - other).abs() <= atol + rtol * mg.abs(other)) & mg.isfinite(other)
        return near | (self != self) & (other != other) if equal_nan else near

    def allclose(
        self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """PyTorch's name for ``x.isclose(other).all().item()``."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all())


for _name, _value in list(vars(TensorNames).items()):
    if callable(_value):
        setattr(TensorNames, _name, _with_axis(_value))


class TopK(NamedTuple):
    """The result of `TensorNames.topk`."""

    values: Tensor
    indices: Tensor


def _all(dim: Axes) -> Axes | None:
    """PyTorch's () of amax, which means all axes."""
    return None if isinstance(dim, Sequence) and not dim else dim


def _as(x: Tensor, value: float | Tensor) -> Any:
    """A value to write into x, converted to the dtype of x."""
    if isinstance(value, Tensor):
        return value.astype(x.dtype)
    return mg.full((), value, dtype=x.dtype, device=x.device) if x.dtype.kind != "f" else value


def _times(alpha: float, other: float | Tensor) -> Any:
    return other if isinstance(alpha, int) and alpha == 1 else other * alpha


def _divide(x: Tensor, other: float | Tensor, rounding_mode: str) -> Tensor:
    if rounding_mode == "floor":
        return x // other
    if rounding_mode == "trunc":
        if x.dtype.kind == "i" and mg.asarray(other).dtype.kind == "i":
            quotient = x // other
            return quotient + ((quotient < 0) & (quotient * other != x)).astype(quotient.dtype)
        return (x / other).trunc()
    raise ValueError(f'[div] expected rounding_mode None, "floor" or "trunc", got {rounding_mode!r}')


def _product(op: str, x: Tensor, y: Tensor, axes: int, other_axes: int) -> Tensor:
    if x.ndim != axes or y.ndim != other_axes:
        raise ValueError(f"[{op}] expected {axes} and {other_axes} axes, got {x.shape} and {y.shape}; `@` takes any")
    return x @ y
