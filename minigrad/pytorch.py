"""PyTorch's names: each either works, as a small function, or raises an error that says what to write instead.

This file is not loaded until one of its names is used. The functions of this module are found as members of `minigrad`,
those of `TensorNames` as methods of a tensor. `POINTERS` says what to write instead of the other names, `KEYWORDS` maps
PyTorch's argument names to ours, and `COLLISIONS` lists the functions that mean something else here. The page "For
users of PyTorch" shows all of them.
"""

import dis
import importlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import minigrad as mg
from minigrad.engine.ops.arguments import integer, kind_of, number
from minigrad.engine.tape import set_recording
from minigrad.engine.tensor import Tensor

if TYPE_CHECKING:
    from minigrad.engine.dtype import DType, DTypeLike

Axes = int | Sequence[int]


def _lengths(size: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape given as one sequence or as separate integers."""
    return tuple(size[0]) if len(size) == 1 and not hasattr(size[0], "__index__") else size


def _mask(op: str, mask: Any) -> Tensor:
    """A mask, which cannot hold integers: these are indices."""
    if not isinstance(mask, Tensor) or mask.dtype != "bool":
        kind = f"a tensor of {mask.dtype}" if isinstance(mask, Tensor) else kind_of(mask)
        raise TypeError(f"[{op}] expected a mask of bools, got {kind}")
    return mask


# ── methods of a tensor ───────────────────────────────────────────────────────────────────────────


class TensorNames(Tensor):
    """The methods and properties that a tensor has under PyTorch's names."""

    # shape

    def view(self: Tensor, *shape: int | Sequence[int]) -> Tensor:
        """PyTorch's name of `reshape`, which copies where PyTorch's view is an error."""
        if shape and not (isinstance(shape[0], Sequence) or hasattr(shape[0], "__index__")):
            raise TypeError(f"[view] expected lengths, got {shape[0]!r}; x.astype(dtype) converts the elements")
        return self.reshape(*shape)

    def view_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``x.reshape(other.shape)``."""
        return self.reshape(other.shape)

    def reshape_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``x.reshape(other.shape)``."""
        return self.reshape(other.shape)

    def unsqueeze(self: Tensor, dim: int) -> Tensor:
        """PyTorch's name of `expand_dims`."""
        return self.expand_dims(dim)

    def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """PyTorch's name of ``nn.Flatten(start_dim, end_dim)(x)``."""
        return mg.nn.Flatten(start_dim, end_dim)(self)

    def ravel(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.reshape(-1)``."""
        return self.reshape(-1)

    def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """PyTorch's name of a `reshape` that splits one axis."""
        dim = _axis("unflatten", dim, self)
        return self.reshape((*self.shape[:dim], *sizes, *self.shape[dim + 1 :]))

    def permute(self: Tensor, *dims: int | Sequence[int]) -> Tensor:
        """PyTorch's name of `permute_dims`."""
        return self.permute_dims(*dims)

    def t(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.T``, for at most two axes."""
        if self.ndim > 2:
            raise ValueError(f"[t] expected at most 2 axes, got shape {self.shape}; x.mT exchanges the last two")
        return self.T

    def swapaxes(self: Tensor, axis0: int, axis1: int) -> Tensor:
        """PyTorch's name of a `permute_dims` that exchanges two axes."""
        first, second = _axis("swapaxes", axis0, self), _axis("swapaxes", axis1, self)
        order = list(range(self.ndim))
        order[first], order[second] = second, first
        return self.permute_dims(order)

    def swapdims(self: Tensor, dim0: int, dim1: int) -> Tensor:
        """PyTorch's name of a `permute_dims` that exchanges two axes."""
        return self.swapaxes(dim0, dim1)

    def movedim(self: Tensor, source: Axes, destination: Axes) -> Tensor:
        """PyTorch's name of `moveaxis`."""
        return self.moveaxis(source, destination)

    def expand(self: Tensor, *sizes: int | Sequence[int]) -> Tensor:
        """PyTorch's name of `broadcast_to`; -1 keeps a length."""
        lengths = _lengths(sizes)
        own = (-1,) * (len(lengths) - self.ndim) + self.shape
        return self.broadcast_to(tuple(m if n == -1 else n for n, m in zip(lengths, own[-len(lengths) :], strict=True)))

    def expand_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``x.broadcast_to(other.shape)``."""
        return self.broadcast_to(other.shape)

    def tile(self: Tensor, *dims: int | Sequence[int]) -> Tensor:
        """PyTorch's name of ``mg.tile(x, dims)``."""
        return mg.tile(self, _lengths(dims))

    def repeat_interleave(self: Tensor, repeats: int | Tensor, dim: int | None = None) -> Tensor:
        """PyTorch's name of ``mg.repeat(x, repeats, axis=dim)``."""
        return mg.repeat(self, repeats, axis=dim)

    def roll(self: Tensor, shifts: int | Sequence[int], dims: Axes | None = None) -> Tensor:
        """PyTorch's name of ``mg.roll(x, shifts, axis=dims)``."""
        return mg.roll(self, shifts, axis=dims)

    def unbind(self: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
        """PyTorch's name of `unstack`."""
        return self.unstack(dim)

    def chunk(self: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        """PyTorch's name of a `split` into parts of equal length, of which the last may be shorter."""
        axis = _axis("chunk", dim, self)
        size = max(1, -(-self.shape[axis] // integer("chunk", "chunks", chunks, 1)))
        return tuple(self.split(list(range(size, self.shape[axis], size)), axis))

    def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
        """PyTorch's name of ``x[start : start + length]`` along an axis."""
        axis = _axis("narrow", dim, self)
        n = self.shape[axis]
        first = start + n if start < 0 else start
        if not 0 <= first <= first + length <= n:
            raise ValueError(f"[narrow] expected a part of an axis of length {n}, got start {start}, length {length}")
        return self[(slice(None),) * axis + (slice(first, first + length),)]

    def select(self: Tensor, dim: int, index: int) -> Tensor:
        """PyTorch's name of ``x[index]`` along an axis."""
        return self[(slice(None),) * _axis("select", dim, self) + (integer("select", "index", index),)]

    def tril(self: Tensor, diagonal: int = 0) -> Tensor:
        """PyTorch's name of ``mg.tril(x, k=diagonal)``."""
        return mg.tril(self, k=diagonal)

    def triu(self: Tensor, diagonal: int = 0) -> Tensor:
        """PyTorch's name of ``mg.triu(x, k=diagonal)``."""
        return mg.triu(self, k=diagonal)

    # indices

    def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """PyTorch's name of ``x.take_along_axis(index, axis=dim)``."""
        axis = _axis("gather", dim, self)
        part = tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(index.shape))
        if index.ndim != self.ndim or any(m > n for k, (m, n) in enumerate(_zipped(index, self)) if k != axis):
            raise ValueError(f"[gather] expected an index not longer than {self.shape}, got shape {index.shape}")
        return self[part].take_along_axis(index, axis)

    def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """PyTorch's name of ``x.take(index, axis=dim)``."""
        return self.take(index, dim)

    def masked_fill(self: Tensor, mask: Tensor, value: float | Tensor) -> Tensor:
        """PyTorch's name of ``mg.where(mask, value, x)``."""
        return mg.where(_mask("masked_fill", mask), _as(self, value), self)

    def masked_select(self: Tensor, mask: Tensor) -> Tensor:
        """PyTorch's name of ``x[mask]``."""
        return self[_mask("masked_select", mask).broadcast_to(self.shape)]

    def topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> "TopK":
        """PyTorch's name of the first k of a `sort` along an axis, with their indices."""
        axis = _axis("topk", dim, self)
        if not 0 <= integer("topk", "k", k) <= self.shape[axis]:
            raise ValueError(f"[topk] expected k from 0 to {self.shape[axis]}, got {k}")
        order = self.argsort(axis, descending=largest)
        indices = order[(slice(None),) * axis + (slice(k),)]
        return TopK(self.take_along_axis(indices, axis), indices)

    # values

    def clamp(self: Tensor, min: float | Tensor | None = None, max: float | Tensor | None = None) -> Tensor:
        """PyTorch's name of `clip`."""
        return self.clip(min, max)

    def clamp_min(self: Tensor, min: float | Tensor) -> Tensor:
        """PyTorch's name of ``x.clip(min)``."""
        return self.clip(min, None)

    def clamp_max(self: Tensor, max: float | Tensor) -> Tensor:
        """PyTorch's name of ``x.clip(None, max)``."""
        return self.clip(None, max)

    def add(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name of ``x + alpha * other``."""
        return self + _times(alpha, other)

    def sub(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name of ``x - alpha * other``."""
        return self - _times(alpha, other)

    def mul(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x * other``."""
        return self * other

    def div(self: Tensor, other: float | Tensor, *, rounding_mode: str | None = None) -> Tensor:
        """PyTorch's name of ``x / other``, or ``x // other`` with ``rounding_mode="floor"``."""
        return self / other if rounding_mode is None else _floored(self, other, rounding_mode)

    def neg(self: Tensor) -> Tensor:
        """PyTorch's name of ``-x``."""
        return -self

    def pow(self: Tensor, exponent: float | Tensor) -> Tensor:
        """PyTorch's name of ``x ** exponent``."""
        return self**exponent

    def remainder(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x % other``."""
        return self % other

    def eq(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x == other``."""
        return mg.equal(self, other)

    def ne(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x != other``."""
        return mg.not_equal(self, other)

    def gt(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x > other``."""
        return self > other

    def ge(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x >= other``."""
        return self >= other

    def lt(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x < other``."""
        return self < other

    def le(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x <= other``."""
        return self <= other

    def logical_not(self: Tensor) -> Tensor:
        """PyTorch's name of ``mg.logical_not(x)``."""
        return mg.logical_not(self)

    def logical_and(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``mg.logical_and(x, other)``."""
        return mg.logical_and(self, other)

    def logical_or(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``mg.logical_or(x, other)``."""
        return mg.logical_or(self, other)

    def matmul(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``x @ other``."""
        return self @ other

    def mm(self: Tensor, mat2: Tensor) -> Tensor:
        """PyTorch's name of ``x @ mat2``, for matrices."""
        return _product("mm", self, mat2, 2, 2)

    def bmm(self: Tensor, mat2: Tensor) -> Tensor:
        """PyTorch's name of ``x @ mat2``, for batches of matrices."""
        return _product("bmm", self, mat2, 3, 3)

    def mv(self: Tensor, vec: Tensor) -> Tensor:
        """PyTorch's name of ``x @ vec``, for a matrix and a vector."""
        return _product("mv", self, vec, 2, 1)

    def dot(self: Tensor, tensor: Tensor) -> Tensor:
        """PyTorch's name of ``x @ tensor``, for vectors."""
        return _product("dot", self, tensor, 1, 1)

    def outer(self: Tensor, vec2: Tensor) -> Tensor:
        """PyTorch's name of ``mg.outer(x, vec2)``."""
        return mg.outer(self, vec2)

    def lerp(self: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
        """PyTorch's name of ``x + weight * (end - x)``."""
        return self + weight * (end - self)

    def logit(self: Tensor) -> Tensor:
        """PyTorch's name of ``mg.log(x / (1 - x))``."""
        return mg.log(self / (1 - self))

    def sgn(self: Tensor) -> Tensor:
        """PyTorch's name of `sign`."""
        return self.sign()

    def erfc(self: Tensor) -> Tensor:
        """PyTorch's name of ``1 - mg.erf(x)``, which loses the digits of small results."""
        return 1 - self.erf()

    # reductions

    def amax(self: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
        """PyTorch's name of `max`."""
        return self.max(_all(dim), keepdims=keepdim)

    def amin(self: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
        """PyTorch's name of `min`."""
        return self.min(_all(dim), keepdims=keepdim)

    def cumsum(self: Tensor, dim: int, dtype: "DTypeLike" = None) -> Tensor:
        """PyTorch's name of `cumulative_sum`."""
        return self.cumulative_sum(dim, dtype=dtype)

    def norm(
        self: Tensor, p: float | str = "fro", dim: Axes | None = None, keepdim: bool = False, dtype: "DTypeLike" = None
    ) -> Tensor:
        """PyTorch's name of (∑ |x|ᵖ)^(1/p), with the gradient 0 where the norm is 0."""
        x = self if dtype is None else self.astype(dtype)
        p = 2.0 if p == "fro" else p
        if isinstance(p, str):
            raise TypeError(f"[norm] expected a number p, got {p!r}")
        if p in (float("inf"), float("-inf")):
            return (x.abs().max if p > 0 else x.abs().min)(dim, keepdims=keepdim)
        if p == 0:
            return (x != 0).astype(x.dtype).sum(dim, keepdims=keepdim)
        if p == 1:
            return x.abs().sum(dim, keepdims=keepdim)
        total = (x.square() if p == 2 else x.abs() ** p).sum(dim, keepdims=keepdim)
        still = total == 0
        safe = mg.where(still, 1, total)
        return mg.where(still, 0, safe.sqrt() if p == 2 else safe ** (1 / p))

    def unique(self: Tensor, sorted: bool = True) -> Tensor:
        """PyTorch's name of ``mg.unique_values(x)``."""
        return mg.unique_values(self)

    def isclose(
        self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Tensor:
        """PyTorch's name of |x − other| ≤ atol + rtol |other|, where infinities are close only to themselves."""
        near = (self == other) | ((self - other).abs() <= atol + rtol * mg.abs(other)) & mg.isfinite(other)
        return near | (self != self) & (other != other) if equal_nan else near

    def allclose(
        self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """PyTorch's name of ``x.isclose(other).all().item()``."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    # random numbers

    def bernoulli(self: Tensor) -> Tensor:
        """PyTorch's name of ``mg.random.uniform(shape=x.shape) < x``, of the dtype of x."""
        _check_probabilities("bernoulli", self)
        return (mg.random.uniform(shape=self.shape, dtype=self.dtype, device=self.device) < self).astype(self.dtype)

    def multinomial(self: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """PyTorch's name of drawing indices at random, weighted by the elements of x."""
        _check_probabilities("multinomial", self, most=float("inf"))
        if self.ndim not in (1, 2):
            raise ValueError(f"[multinomial] expected weights of shape (n,) or (m, n), got {self.shape}")
        count = integer("multinomial", "num_samples", num_samples, 1)
        weights = self.detach().astype("float64")
        largest = weights.max(-1, keepdims=True)
        if not bool(((largest > 0) & (largest < float("inf"))).all()):
            raise ValueError("[multinomial] expected finite weights, of which some are above 0 in each row")
        weights = weights / largest  # their sum is finite
        shape = (*self.shape[:-1], count if replacement else self.shape[-1])
        draws = mg.random.uniform(shape=shape, dtype="float64", device=self.device)
        if replacement:
            sums = weights.cumulative_sum(-1)
            places = (draws * sums[..., -1:]).cpu().numpy().reshape(-1, count)
            rows = sums.cpu().numpy().reshape(-1, self.shape[-1])
            found = [np.searchsorted(row, place, side="right") for row, place in zip(rows, places, strict=True)]
            return mg.asarray(np.array(found, "int64").reshape(shape), device=self.device)
        if int((weights > 0).sum(-1).min()) < count:
            raise ValueError(f"[multinomial] expected {count} weights above 0, as nothing is drawn twice")
        # The largest of log w + g, with g from the Gumbel distribution, is i with a probability of wᵢ / ∑ w.
        keys = mg.where(weights > 0, mg.log(mg.maximum(weights, 1e-300)), -float("inf")) - mg.log(-mg.log(draws))
        return keys.argsort(-1, descending=True)[..., :count]

    # devices and dtypes

    def clone(self: Tensor) -> Tensor:
        """PyTorch's name of `copy`."""
        return self.copy()

    def cpu(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.to("cpu")``."""
        return self.to("cpu")

    def cuda(self: Tensor, device: int | str | None = None) -> Tensor:
        """PyTorch's name of ``x.to("cuda")``."""
        return self.to(_device(device))

    def type_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name of ``x.to(other)``."""
        return self.to(other)

    @property
    def is_cuda(self: Tensor) -> bool:
        """PyTorch's name of ``x.device != "cpu"``."""
        return self.device != "cpu"

    def is_floating_point(self: Tensor) -> bool:
        """PyTorch's name of ``x.dtype.kind == "f"``."""
        return self.dtype.kind == "f"

    def numel(self: Tensor) -> int:
        """PyTorch's name of ``x.size``."""
        return self.size

    def nelement(self: Tensor) -> int:
        """PyTorch's name of ``x.size``."""
        return self.size

    def element_size(self: Tensor) -> int:
        """PyTorch's name of ``x.dtype.itemsize``."""
        return self.nbytes // self.size if self.size else mg.empty(1, dtype=self.dtype).nbytes

    def dim(self: Tensor) -> int:
        """PyTorch's name of ``x.ndim``."""
        return self.ndim

    def ndimension(self: Tensor) -> int:
        """PyTorch's name of ``x.ndim``."""
        return self.ndim

    def new_tensor(self: Tensor, data: Any, dtype: "DTypeLike" = None, requires_grad: bool = False) -> Tensor:
        """PyTorch's name of ``mg.tensor(data, x.dtype, x.device)``."""
        return mg.tensor(data, self.dtype if dtype is None else dtype, self.device, requires_grad)

    def new_zeros(
        self: Tensor, *size: int | Sequence[int], dtype: "DTypeLike" = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name of ``mg.zeros(size, dtype=x.dtype, device=x.device)``."""
        return self.new_full(_lengths(size), 0, dtype=dtype, device=device)

    def new_ones(
        self: Tensor, *size: int | Sequence[int], dtype: "DTypeLike" = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name of ``mg.ones(size, dtype=x.dtype, device=x.device)``."""
        return self.new_full(_lengths(size), 1, dtype=dtype, device=device)

    def new_empty(
        self: Tensor, *size: int | Sequence[int], dtype: "DTypeLike" = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name of ``mg.empty(size, dtype=x.dtype, device=x.device)``."""
        return mg.empty(_lengths(size), dtype=dtype or self.dtype, device=device or self.device)

    def new_full(
        self: Tensor, size: Sequence[int], fill_value: float, *, dtype: "DTypeLike" = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name of ``mg.full(size, fill_value, dtype=x.dtype, device=x.device)``."""
        return mg.full(tuple(size), fill_value, dtype=dtype or self.dtype, device=device or self.device)

    # the tape

    @property
    def data(self: Tensor) -> Tensor:
        """PyTorch's name of `detach`; assigning to it is ``x.set_(value)``."""
        return self.detach()

    @data.setter
    def data(self: Tensor, value: Tensor) -> None:
        self.set_(value)

    def retain_grad(self: Tensor) -> None:
        """PyTorch's name of a hook that keeps the gradient of a computed tensor in its ``grad``."""
        if not self.is_leaf:
            handle: Any = self.register_hook(_Retained(self))
            if sum(isinstance(hook, _Retained) and hook.tensor is self for _, hook in handle._hooks) > 1:
                handle.remove()
        elif not self.requires_grad:
            raise mg.GradientError("[retain_grad] this tensor does not require grad")

    # in place

    def add_(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name of ``x += alpha * other``."""
        self += _times(alpha, other)
        return self

    def sub_(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name of ``x -= alpha * other``."""
        self -= _times(alpha, other)
        return self

    def mul_(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x *= other``."""
        self *= other
        return self

    def div_(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name of ``x /= other``."""
        self /= other
        return self

    def pow_(self: Tensor, exponent: float | Tensor) -> Tensor:
        """PyTorch's name of ``x **= exponent``."""
        self **= exponent
        return self

    def neg_(self: Tensor) -> Tensor:
        """PyTorch's name of ``x *= -1``."""
        self *= -1
        return self

    def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """PyTorch's name of ``x += value * tensor1 * tensor2``."""
        self += _times(value, tensor1 * tensor2)
        return self

    def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """PyTorch's name of ``x += value * tensor1 / tensor2``."""
        self += _times(value, tensor1 / tensor2)
        return self

    def lerp_(self: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
        """PyTorch's name of ``x += weight * (end - x)``."""
        self += weight * (end - self)
        return self

    def clamp_(self: Tensor, min: float | Tensor | None = None, max: float | Tensor | None = None) -> Tensor:
        """PyTorch's name of ``x[...] = x.clip(min, max)``."""
        return self.copy_(self.copy().clip(min, max))

    def masked_fill_(self: Tensor, mask: Tensor, value: float | Tensor) -> Tensor:
        """PyTorch's name of ``x[mask] = value``."""
        return self.copy_(mg.where(_mask("masked_fill_", mask), _as(self, value), self.copy()))

    def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
        """PyTorch's name of ``x.copy_(mg.random.uniform(a, b, x.shape))``."""
        return self.copy_(mg.random.uniform(a, b, self.shape, dtype=self.dtype, device=self.device))

    def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """PyTorch's name of ``x.copy_(mg.random.normal(mean, std, x.shape))``."""
        return self.copy_(mg.random.normal(mean, std, self.shape, dtype=self.dtype, device=self.device))

    def bernoulli_(self: Tensor, p: float = 0.5) -> Tensor:
        """PyTorch's name of ``x.copy_(mg.random.uniform(shape=x.shape) < p)``."""
        return self.copy_(mg.random.uniform(shape=self.shape, device=self.device) < number("bernoulli_", "p", p, 0, 1))

    # Named like types, therefore last.

    def float(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.astype("float32")``."""
        return self.to("float32")

    def double(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.astype("float64")``."""
        return self.to("float64")

    def int(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.astype("int32")``."""
        return self.to("int32")

    def long(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.astype("int64")``."""
        return self.to("int64")

    def bool(self: Tensor) -> Tensor:
        """PyTorch's name of ``x.astype("bool")``."""
        return self.to("bool")

    def type(self: Tensor, dtype: "str | DType | None" = None) -> Tensor:
        """PyTorch's name of ``x.astype(dtype)``."""
        if dtype is None:
            raise TypeError("[type] expected a dtype to convert to; that of a tensor is `x.dtype`")
        return self.to(dtype=dtype)


class TopK(NamedTuple):
    """What `TensorNames.topk` returns."""

    values: Tensor
    indices: Tensor


class _Retained:
    """The hook of `retain_grad`."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __call__(self, g: Tensor) -> None:
        before = self.tensor.grad
        self.tensor.grad = g if before is None else before + g


def _axis(op: str, dim: int, x: Tensor) -> int:
    """An axis of x, counted from the front."""
    k = integer(op, "dim", dim)
    if not -x.ndim <= k < x.ndim:
        raise IndexError(f"[{op}] expected an axis from {-x.ndim} to {x.ndim - 1} for {x.ndim} axes, got {k}")
    return k % x.ndim


def _all(dim: Axes) -> Axes | None:
    """PyTorch's () of amax, which means all axes."""
    return None if isinstance(dim, Sequence) and not dim else dim


def _zipped(a: Tensor, b: Tensor) -> Any:
    return zip(a.shape, b.shape, strict=True)


def _as(x: Tensor, value: float | Tensor) -> Any:
    """A value to write into x; a tensor is converted to the dtype of x."""
    return value.astype(x.dtype) if isinstance(value, Tensor) else value


def _times(alpha: float, other: float | Tensor) -> Any:
    return other if isinstance(alpha, int) and alpha == 1 else other * alpha


def _floored(x: Tensor, other: float | Tensor, rounding_mode: str) -> Tensor:
    if rounding_mode == "floor":
        return x // other
    if rounding_mode == "trunc":
        if x.dtype.kind == "i" and mg.asarray(other).dtype.kind == "i":
            quotient = x // other
            return quotient + ((quotient < 0) & (quotient * other != x)).astype(quotient.dtype)
        quotient = x / other
        return quotient.abs().floor() * quotient.sign()
    raise ValueError(f'[div] expected rounding_mode None, "floor" or "trunc", got {rounding_mode!r}')


def _product(op: str, x: Tensor, y: Tensor, axes: int, other_axes: int) -> Tensor:
    if x.ndim != axes or y.ndim != other_axes:
        raise ValueError(
            f"[{op}] expected {axes} and {other_axes} axes, got shapes {x.shape} and {y.shape}; `@` takes any"
        )
    return x @ y


def _check_probabilities(op: str, x: Tensor, most: float = 1.0) -> None:
    if x.dtype.kind != "f":
        raise TypeError(f"[{op}] expected floats, got {x.dtype}")
    if x.size and not (x.min().item() >= 0 and x.max().item() <= most):
        raise ValueError(f"[{op}] expected values from 0 to {most:g}, got {x.min().item():g} to {x.max().item():g}")


def _device(device: int | str | None) -> str:
    return "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device


# ── functions of minigrad ─────────────────────────────────────────────────────────────────────────

allclose = TensorNames.allclose
amax = TensorNames.amax
amin = TensorNames.amin
bernoulli = TensorNames.bernoulli
bmm = TensorNames.bmm
chunk = TensorNames.chunk
clamp = TensorNames.clamp
clone = TensorNames.clone
cumsum = TensorNames.cumsum
div = TensorNames.div
dot = TensorNames.dot
eq = TensorNames.eq
erfc = TensorNames.erfc
flatten = TensorNames.flatten
gather = TensorNames.gather
ge = TensorNames.ge
gt = TensorNames.gt
index_select = TensorNames.index_select
is_floating_point = TensorNames.is_floating_point
isclose = TensorNames.isclose
le = TensorNames.le
lerp = TensorNames.lerp
logit = TensorNames.logit
lt = TensorNames.lt
masked_fill = TensorNames.masked_fill
masked_select = TensorNames.masked_select
mm = TensorNames.mm
movedim = TensorNames.movedim
mul = TensorNames.mul
multinomial = TensorNames.multinomial
mv = TensorNames.mv
narrow = TensorNames.narrow
ne = TensorNames.ne
neg = TensorNames.neg
norm = TensorNames.norm
numel = TensorNames.numel
permute = TensorNames.permute
pow = TensorNames.pow
ravel = TensorNames.ravel
repeat_interleave = TensorNames.repeat_interleave
select = TensorNames.select
sgn = TensorNames.sgn
sub = TensorNames.sub
swapaxes = TensorNames.swapaxes
swapdims = TensorNames.swapdims
t = TensorNames.t
topk = TensorNames.topk
unbind = TensorNames.unbind
unflatten = TensorNames.unflatten
unique = TensorNames.unique
unsqueeze = TensorNames.unsqueeze


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """PyTorch's name of `concat`."""
    return mg.concat(tensors, dim)


def concatenate(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """PyTorch's name of `concat`."""
    return mg.concat(tensors, dim)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """PyTorch's name of a `concat` along axis 1, or of vectors along axis 0."""
    return mg.concat(tensors, 0 if all(x.ndim == 1 for x in tensors) else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """PyTorch's name of a `concat` along axis 0, in which a vector is a row."""
    return mg.concat([x.expand_dims(0) if x.ndim == 1 else x for x in tensors], 0)


def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """PyTorch's name of `outer`."""
    return mg.outer(input, vec2)


def as_tensor(data: Any, dtype: "DTypeLike" = None, device: str | None = None) -> Tensor:
    """PyTorch's name of `asarray`."""
    return mg.asarray(data, dtype, device)


def from_numpy(ndarray: Any) -> Tensor:
    """PyTorch's name of ``mg.asarray(array)``, which shares the array's memory."""
    return mg.asarray(ndarray)


def is_tensor(obj: Any) -> bool:
    """PyTorch's name of ``isinstance(obj, mg.Tensor)``."""
    return isinstance(obj, Tensor)


def rand(
    *size: int | Sequence[int], dtype: "DTypeLike" = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """PyTorch's name of ``mg.random.uniform(shape=size)``."""
    x = mg.random.uniform(shape=_lengths(size), dtype=dtype, device=device)
    return x.requires_grad_(requires_grad)


def randn(
    *size: int | Sequence[int], dtype: "DTypeLike" = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """PyTorch's name of ``mg.random.normal(shape=size)``."""
    x = mg.random.normal(shape=_lengths(size), dtype=dtype, device=device)
    return x.requires_grad_(requires_grad)


def randint(low: int, high: Any, size: Any = None, *, dtype: "DTypeLike" = None, device: str | None = None) -> Tensor:
    """PyTorch's name of ``mg.random.randint(low, high, size)``; ``(high, size)`` begins at 0."""
    if size is None:
        low, high, size = 0, low, high
    x = mg.random.randint(low, high, tuple(size), device=device)
    return x if dtype is None else mg.astype(x, dtype)


def randperm(n: int, *, device: str | None = None) -> Tensor:
    """PyTorch's name of ``mg.random.permutation(n)``."""
    return mg.random.permutation(n, device=device)


def rand_like(input: Tensor, *, dtype: "DTypeLike" = None, device: str | None = None) -> Tensor:
    """PyTorch's name of ``mg.random.uniform(shape=x.shape)``, with the dtype and device of x."""
    return rand(*input.shape, dtype=dtype or input.dtype, device=device or input.device)


def randn_like(input: Tensor, *, dtype: "DTypeLike" = None, device: str | None = None) -> Tensor:
    """PyTorch's name of ``mg.random.normal(shape=x.shape)``, with the dtype and device of x."""
    return randn(*input.shape, dtype=dtype or input.dtype, device=device or input.device)


def normal(mean: float, std: float, size: Sequence[int]) -> Tensor:
    """PyTorch's name of ``mg.random.normal(mean, std, size)``."""
    return mg.random.normal(mean, std, tuple(size))


def get_default_dtype() -> "DType":
    """PyTorch's name of `float32`, which is always the default."""
    return mg.float32


def set_default_dtype(d: "DTypeLike") -> None:
    """PyTorch's name of nothing: the default is float32, and any other dtype raises an error that says what to do."""
    if mg.empty(0, dtype=d).dtype != mg.float32:
        raise TypeError(
            f"[set_default_dtype] the default is always float32: write dtype={str(d)!r} where tensors are made, "
            f"and model.to({str(d)!r})"
        )


class set_grad_enabled:
    """PyTorch's name of `enable_grad` or `no_grad` by an argument: from the call on, or for a block or a function."""

    def __init__(self, mode: bool) -> None:
        self.mode = bool(mode)
        self.before = set_recording(self.mode)

    def __call__(self, function: Any) -> Any:
        """Decorate a function, and leave the mode around it as it was."""
        set_recording(self.before)
        return (mg.enable_grad() if self.mode else mg.no_grad())(function)

    def __enter__(self) -> None:
        """Do nothing: the call itself has set the mode."""

    def __exit__(self, *error: object) -> None:
        set_recording(self.before)


def inference_mode(mode: Any = True) -> Any:
    """PyTorch's name of `no_grad`; its results may be used in a computation that is recorded."""
    if callable(mode):  # @inference_mode, without parentheses
        return mg.no_grad()(mode)
    return mg.no_grad() if mode else set_grad_enabled(mg.is_grad_enabled())


def device(type: str, index: int | None = None) -> str:
    """PyTorch's name of a string: here a device is "cpu", "cuda" or "cuda:1"."""
    name = str(type) if index is None else f"{type}:{index}"
    mg.empty(0, device=name)
    return name


# The names of dtypes.
DTYPES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32"}


# ── keywords ──────────────────────────────────────────────────────────────────────────────────────

# PyTorch's argument names.
KEYWORDS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "diagonal": "k", "shifts": "shift", "end": "stop",
    "steps": "num",
}  # fmt: skip

# Functions with an argument `inplace`, which is dropped: the result is a new tensor.
INPLACE = {"dropout", "elu", "hardsigmoid", "hardswish", "leaky_relu", "mish", "relu", "selu", "silu"}

# Functions whose results differ from PyTorch's; these keywords show that PyTorch's function is meant.
COLLISIONS = {
    "max": "x.max(axis) gives the values and x.argmax(axis) the indices; PyTorch's x.max(dim) gives both",
    "min": "x.min(axis) gives the values and x.argmin(axis) the indices; PyTorch's x.min(dim) gives both",
    "sort": "x.sort(axis) gives the values and x.argsort(axis) the indices; PyTorch's x.sort(dim) gives both",
    "split": "x.split(n, axis) makes n parts; for PyTorch's parts of n elements write "
    "x.split(range(n, x.shape[axis], n), axis)",
}
DIVISORS = "divides by n here and by n - 1 in PyTorch: add correction=0 for ours, correction=1 for PyTorch's"


# The names here of the second operands that PyTorch calls other or target.
OPERANDS = {("x",), ("y",), ("target",), ("labels",)}


def call(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call one of minigrad's functions with PyTorch's arguments; NotImplemented if they are not PyTorch's."""
    code, name = function.__code__, function.__name__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    more, args = args[code.co_argcount :], args[: code.co_argcount]
    foreign = [k for k in options if k not in own]
    if name in COLLISIONS and (more or any(KEYWORDS.get(k) for k in foreign)):
        raise TypeError(f"[{name}] {COLLISIONS[name]}")
    if (
        len(more) == 1
        and isinstance(more[0], bool)
        and own[code.co_argcount :][:1] == ("keepdims",)
        and ("keepdims" not in options)
    ):
        options["keepdims"] = more[0]  # x.sum(1, True)
    elif name == "flip" and more:
        args = (args[0], (*args[1:], *more))
    elif more:
        return NotImplemented
    for given in foreign:
        if given == "unbiased" and "correction" in own:
            ours: str | None = "correction"
            if not isinstance(options["unbiased"], bool):
                raise TypeError(f"[{name}] expected True or False for unbiased, got {options['unbiased']!r}")
            options["unbiased"] = int(options["unbiased"])
        elif given == "input" or (given in ("other", "target") and own[1:2] in OPERANDS):
            ours = own[0 if given == "input" else 1]
        elif given == "inplace" and name in INPLACE:
            ours = None
        elif KEYWORDS.get(given) in own:
            ours = KEYWORDS[given]
        else:
            return NotImplemented
        value = options.pop(given)
        if ours is None:
            continue
        if ours in options or ours in own[: len(args)]:
            raise TypeError(f"[{name}] expected {ours} or {given}, which are the same argument, got both")
        options[ours] = value
    if "correction" in own and foreign and "correction" not in options:
        raise TypeError(f"[{name}] {DIVISORS}")
    return function(*args, **options)


# ── functions of minigrad.autograd ────────────────────────────────────────────────────────────────


def autograd_grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    only_inputs: bool = True, allow_unused: bool | None = None, *, materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """PyTorch's name of `minigrad.grad`, whose result is here always a tuple."""
    if not only_inputs:
        raise TypeError("[grad] expected only_inputs=True, got False; y.backward() writes the gradients of all leaves")
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    found: tuple[Tensor | None, ...] = mg.grad(
        outputs, inputs, grad_outputs, retain_graph=create_graph if retain_graph is None else retain_graph,
        create_graph=create_graph, allow_unused=allow_unused or materialize_grads,
    )  # fmt: skip
    if materialize_grads:
        found = tuple(mg.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True))
    return found


# ── functions of minigrad.nn.functional ───────────────────────────────────────────────────────────


def functional_pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """PyTorch's name of `minigrad.pad`, with the widths of the last axis first; a negative width removes elements."""
    widths = [integer("pad", "width", n) for n in pad]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if len(widths) % 2 or len(widths) > 2 * x.ndim:
        raise ValueError(f"[pad] expected a pair of widths for at most {x.ndim} axes, got {tuple(pad)}")
    if mode not in modes:
        raise ValueError(f"[pad] expected mode {', '.join(map(repr, modes))}, got {mode!r}")
    for k in range(len(widths) // 2):
        axis, (before, after) = x.ndim - 1 - k, widths[2 * k : 2 * k + 2]
        kept = x.narrow(axis, max(-before, 0), x.shape[axis] + min(before, 0) + min(after, 0))
        before, after = max(before, 0), max(after, 0)
        if mode == "constant":
            around = [(0, 0)] * x.ndim
            around[axis] = before, after
            x = mg.pad(kept, around, value=value or 0)
        else:
            n = kept.shape[axis]
            if max(before, after) > (n - 1 if mode == "reflect" else n if mode == "circular" else max(before, after)):
                raise ValueError(f"[pad] expected widths below the length {n} for {mode!r}, got {before} and {after}")
            order = np.pad(np.arange(n), (before, after), mode=modes[mode])  # type: ignore[call-overload]
            x = kept.take(mg.asarray(order, device=x.device), axis)
    return x


# The names of other modules that work.
PLACES: dict[tuple[str, str], Any] = {
    ("minigrad.nn.functional", "pad"): functional_pad,
    ("minigrad.autograd", "grad"): autograd_grad,
}


# ── what to write instead ─────────────────────────────────────────────────────────────────────────

DTYPES_HERE = "dtypes are float32, float64, int32, int64 and bool here: "
NEW = "nothing is written in place here: x = "
POINTERS = {
    "Tensor": {
        "repeat": "is `mg.tile(x, repetitions)` here; `mg.repeat(x, n)` repeats each element, as in NumPy",
        "half": DTYPES_HERE + 'write `x.astype("float32")`',
        "bfloat16": DTYPES_HERE + 'write `x.astype("float32")`',
        "short": DTYPES_HERE + 'write `x.astype("int32")`',
        "char": DTYPES_HERE + 'write `x.astype("int32")`',
        "byte": DTYPES_HERE + 'write `x.astype("int32")`, or "bool" for a mask',
        "values": "`x.max(axis)` gives the values and `x.argmax(axis)` the indices; PyTorch's x.max(dim) gives both",
        "indices": "`x.max(axis)` gives the values and `x.argmax(axis)` the indices; PyTorch's x.max(dim) gives both",
        "grad_fn": "the history of a tensor is a table here: `x.tape()`; `x.is_leaf` says whether it has one",
        "retains_grad": "is always false here, unless you call `x.retain_grad()`",
        "detach_": NEW + "`x.detach()`",
        "exp_": NEW + "`x.exp()`",
        "log_": NEW + "`x.log()`",
        "sqrt_": NEW + "`x.sqrt()`",
        "abs_": NEW + "`x.abs()`",
        "round_": NEW + "`x.round()`",
        "floor_": NEW + "`x.floor()`",
        "ceil_": NEW + "`x.ceil()`",
        "tanh_": NEW + "`x.tanh()`",
        "relu_": NEW + "`x.relu()`",
        "sigmoid_": NEW + "`x.sigmoid()`",
        "t_": NEW + "`x.T`",
        "squeeze_": NEW + "`x.squeeze()`",
        "unsqueeze_": NEW + "`x.expand_dims(axis)`",
        "transpose_": NEW + "`x.permute_dims(axes)`",
        "resize_": NEW + "`x.reshape(shape)`",
        "random_": "is `x.copy_(mg.random.randint(low, high, x.shape))` here",
        "exponential_": "is `x.copy_(-mg.log(mg.random.uniform(shape=x.shape)))` here",
        "scatter": "is not available: `nn.functional.one_hot(index, n)` makes one-hot rows, `x[i, j] = value` writes",
        "scatter_": "is not available: `nn.functional.one_hot(index, n)` makes one-hot rows, `x[i, j] = value` writes",
        "scatter_add": "is not available: sum with a product, `nn.functional.one_hot(index, n)` transposed @ x",
        "scatter_add_": "is not available: sum with a product, `nn.functional.one_hot(index, n)` transposed @ x",
        "index_add": "is not available: sum with a product, `nn.functional.one_hot(index, n)` transposed @ x",
        "index_add_": "is not available: sum with a product, `nn.functional.one_hot(index, n)` transposed @ x",
        "index_fill": "is not available: `y = x.copy()`, then y[index] = value",
        "index_fill_": "is an assignment here: `x[index] = value`, or `x[:, index] = value`",
        "index_copy_": "is an assignment here: `x[index] = source`, or `x[:, index] = source`",
        "index_put_": "is an assignment here: `x[index] = value`",
        "put_": "is an assignment here: `x[index] = value`",
        "masked_scatter_": "is an assignment here: `x[mask] = source`",
        "fmod": "is `x % y` here, whose result has the sign of y",
        "trunc": "is `x.sign() * x.abs().floor()` here",
        "frac": "is `x - x.sign() * x.abs().floor()` here",
        "addmm": "is `x + a @ b` here",
        "addmv": "is `x + a @ b` here",
        "baddbmm": "is `x + a @ b` here",
        "addcmul": "is `x + value * a * b` here",
        "addcdiv": "is `x + value * a / b` here",
        "cumprod": "is not available; for positive x: `x.log().cumulative_sum(axis).exp()`",
        "logcumsumexp": "is not available; for small x: `x.exp().cumulative_sum(axis).log()`",
        "cummax": "is not available: `x.max(axis)` of each part `x[:n]`",
        "cummin": "is not available: `x.min(axis)` of each part `x[:n]`",
        "diff": "is `x[1:] - x[:-1]` here",
        "diag": 'is `mg.einsum("ii->i", x)` of a matrix, and `x * mg.eye(n)` of a vector here',
        "diagonal": 'is `mg.einsum("ii->i", x)` here',
        "trace": 'is `mg.einsum("ii->", x)` here',
        "cross": "is not available: write the three differences of products, as `a[1] * b[2] - a[2] * b[1]`",
        "inverse": "is not available: `np.linalg.inv(x.numpy())`, without a gradient",
        "det": "is not available: `np.linalg.det(x.numpy())`, without a gradient",
        "svd": "is not available: `np.linalg.svd(x.numpy())`, without a gradient",
        "median": "is the middle of `x.sort(axis)` here",
        "mode": "is not available: `np.bincount(x.numpy()).argmax()`",
        "quantile": "is an element of `x.sort(axis)` here",
        "kthvalue": "is an element of `x.sort(axis)` here",
        "bincount": "is `nn.functional.one_hot(x, n).sum(0)` here",
        "histc": "is `np.histogram(x.numpy(), bins)` here",
        "nan_to_num": "is `mg.where(mg.isnan(x), 0, x)` here",
        "count_nonzero": "is `(x != 0).sum()` here",
        "renorm": "is `x / mg.maximum(1, x.norm(dim=1, keepdim=True) / most)` here",
        "rot90": "is `x.mT.flip(-2)` here",
        "fliplr": "is `x.flip(1)` here",
        "flipud": "is `x.flip(0)` here",
        "stride": "is `x.strides` here, in bytes",
        "storage": "is not available: `x.numpy()` shares the memory of a tensor on the CPU",
        "get_device": "is `x.device` here, a string",
        "is_sparse": "is false here: all tensors are dense; `x.shape` and `x.strides` describe the layout",
        "to_sparse": "is not available: all tensors are dense, and `x[mask]` picks elements",
        "is_complex": "is false here: `x.dtype` is a dtype of real numbers",
        "pin_memory": 'is not needed here: `x.to("cuda")`',
        "share_memory_": "is not available: pass `x.numpy()` to another process, or save with `mg.save`",
        "apply_": "is not available: `mg.tensor([f(v) for v in x.reshape(-1).tolist()])`",
        "map_": "is not available: `mg.tensor([f(v) for v in x.reshape(-1).tolist()])`",
        "register_post_accumulate_grad_hook": "is not available: `x.register_hook(hook)` gets each gradient",
        "unfold": "is not available: index with windows, as `x[mg.arange(n)[:, None] + mg.arange(size)]`",
        "softmax_": NEW + "`x.softmax()`",
        "argwhere": "is `mg.stack(x.nonzero(), axis=1)` here",
        "hsplit": "is `x.split(n, axis=1)` here",
        "vsplit": "is `x.split(n, axis=0)` here",
        "true_divide": "is `x / y` here",
        "floor_divide": "is `x // y` here",
        "subtract": "is `x - y` here",
        "multiply": "is `x * y` here",
        "divide": "is `x / y` here",
        "negative": "is `-x` here",
        "xlogy": "is `mg.where(x == 0, 0, x * mg.log(y))` here",
        "heaviside": "is `(x > 0).astype(x.dtype)` here",
        "hypot": "is `mg.sqrt(x * x + y * y)` here",
        "logaddexp": "is `mg.logsumexp(mg.stack([x, y]), axis=0)` here",
        "vdot": "is `mg.vecdot(x, y)` here",
        "kron": "is `mg.einsum` of x and y, with a reshape, here",
    },
    "minigrad": {
        "half": DTYPES_HERE + "write `mg.float32`",
        "float16": DTYPES_HERE + "write `mg.float32`",
        "bfloat16": DTYPES_HERE + "write `mg.float32`",
        "int8": DTYPES_HERE + "write `mg.int32`",
        "uint8": DTYPES_HERE + "write `mg.int32`, or `mg.bool` for a mask",
        "int16": DTYPES_HERE + "write `mg.int32`",
        "short": DTYPES_HERE + "write `mg.int32`",
        "complex64": DTYPES_HERE + "write the real and the imaginary part as two tensors of `mg.float32`",
        "FloatTensor": 'is `mg.tensor(data, dtype="float32")` here',
        "DoubleTensor": 'is `mg.tensor(data, dtype="float64")` here',
        "LongTensor": 'is `mg.tensor(data, dtype="int64")` here',
        "IntTensor": 'is `mg.tensor(data, dtype="int32")` here',
        "BoolTensor": 'is `mg.tensor(data, dtype="bool")` here',
        "ByteTensor": 'is `mg.tensor(data, dtype="bool")` here',
        "Size": "a shape is a tuple here: `x.shape`",
        "dtype": "is `mg.DType` here",
        "linalg": "norms are `x.norm(p, dim)`, products `mg.matmul`; the rest is np.linalg, without gradients",
        "special": "functions are members of minigrad here, as `mg.erf`",
        "fft": "is not available: np.fft on `x.numpy()`, without a gradient",
        "sparse": "is not available: all tensors are dense; `nn.Embedding` reads rows of a table",
        "distributions": "is not available: `mg.random` draws, and densities are a line of `mg.log` and `mg.exp`",
        "distributed": "is not available: one process computes, with threads (`mg.set_num_threads`) or on a GPU",
        "multiprocessing": "is not available: kernels run in threads, see `mg.set_num_threads`",
        "jit": "is not available, and seldom needed: small operations are cheap; `mg.profile` shows what takes time",
        "compile": "is not available, and seldom needed: operations are cheap; `mg.profile` shows what takes time",
        "func": "these are members of minigrad here: `mg.grad`, `mg.vjp`, `mg.jvp`, `mg.jacobian`, `mg.hessian`",
        "vmap": "is not available: write the batch as an axis, as in `mg.einsum`, or call `mg.per_sample_grad`",
        "amp": DTYPES_HERE + "there is no mixed precision; write `mg.float32`",
        "autocast": DTYPES_HERE + "there is no mixed precision; write `mg.float32`",
        "backends": "is not available: `mg.cuda.is_available()` and `mg.show_config()` describe the machine",
        "onnx": "is not available: `mg.save(model.state_dict(), path)` writes safetensors",
        "hub": "is not available: `mg.load(path)` reads safetensors",
        "version": "is `mg.__version__` here",
        "set_printoptions": "is np.set_printoptions here: tensors print as arrays, `x.numpy()`",
        "use_deterministic_algorithms": "is not needed: with the seed (`mg.manual_seed`) the results are the same",
        "set_default_device": 'is not available: write `x.to("cuda")` and device="cuda"',
        "set_default_tensor_type": "is not available: write dtype and device, as in `mg.zeros(2, dtype=mg.float64)`",
        "seed": "is `mg.manual_seed(value)` here",
        "initial_seed": 'is `mg.random.get_state()["seed"]` here',
        "get_rng_state": "is `mg.random.get_state()` here",
        "set_rng_state": "is `mg.random.set_state(state)` here",
        "Generator": "is not available: `mg.manual_seed(value)` seeds all random numbers",
        "logspace": "is `base ** mg.linspace(start, stop, n)` here",
        "complex": DTYPES_HERE + "write the real and the imaginary part as two tensors, and `mg.sin` and `mg.cos`",
        "stft": "is not available: np.fft on `x.numpy()`, without a gradient",
        "cdist": "is `mg.sqrt(mg.square(a[:, None] - b[None]).sum(-1))` here",
        "poisson": "is not available: np.random.poisson on `x.numpy()`",
        "cartesian_prod": 'is `mg.stack(mg.meshgrid(a, b, indexing="ij"), axis=-1)`, reshaped, here',
        "combinations": "is not available: `mg.tensor(list(itertools.combinations(x.tolist(), 2)))`",
        "block_diag": "is `mg.concat` of matrices padded with `mg.pad` here",
        "tril_indices": "is `mg.nonzero(mg.tril(mg.ones((n, n))))` here",
        "triu_indices": "is `mg.nonzero(mg.triu(mg.ones((n, n))))` here",
        "dstack": "is `mg.concat(tensors, axis=2)` here",
        "column_stack": "is `mg.stack(tensors, axis=1)` here, for vectors",
        "take_along_dim": "is `mg.take_along_axis(x, index, axis)` here",
        "atleast_1d": "is `x.reshape(-1)` for a 0-d tensor here",
        "atleast_2d": "is `x.expand_dims(0)` for a vector here",
        "broadcast_tensors": "is `mg.broadcast_to(x, shape)` for each tensor here",
        "chain_matmul": "is `a @ b @ c` here",
        "addbmm": "is `x + (a @ b).sum(0)` here",
        "relu_": NEW + "`x.relu()`",
        "dropout": "is `nn.functional.dropout(x, p, training)` here",
        "embedding": "is `nn.functional.embedding(indices, weight)` here",
        "conv2d": "is `nn.functional.conv2d(x, weight)` here",
        "get_num_interop_threads": "is `mg.get_num_threads()` here",
        "set_num_interop_threads": "is `mg.set_num_threads(n)` here",
        "from_file": "is `mg.load(path)` here, or np.memmap with `mg.asarray`",
        "range": "is `mg.arange(start, stop)` here, without the last number",
        "std_mean": "is `mg.std(x, axis, correction=1)` and `mg.mean(x, axis)` here",
        "var_mean": "is `mg.var(x, axis, correction=1)` and `mg.mean(x, axis)` here",
        "aminmax": "is `mg.min(x, axis)` and `mg.max(x, axis)` here",
    },
    "minigrad.nn.functional": {
        "upsample": "is `nn.functional.interpolate(x, size, scale_factor, mode)` here",
        "relu_": NEW + "`nn.functional.relu(x)`",
        "elu_": NEW + "`nn.functional.elu(x)`",
        "leaky_relu_": NEW + "`nn.functional.leaky_relu(x)`",
        "relu6": "is `x.clip(0, 6)` here",
        "hardtanh": "is `x.clip(-1, 1)` here",
        "celu": "is `mg.where(x > 0, x, alpha * mg.expm1(x / alpha))` here",
        "softmin": "is `mg.softmax(-x, axis)` here",
        "softsign": "is `x / (1 + mg.abs(x))` here",
        "tanhshrink": "is `x - mg.tanh(x)` here",
        "softshrink": "is `mg.sign(x) * mg.maximum(mg.abs(x) - lambd, 0)` here",
        "hardshrink": "is `mg.where(mg.abs(x) > lambd, x, 0)` here",
        "threshold": "is `mg.where(x > threshold, x, value)` here",
        "gumbel_softmax": "is `mg.softmax((x - mg.log(-mg.log(mg.random.uniform(shape=x.shape)))) / tau, axis)` here",
        "pairwise_distance": "is `(a - b).norm(dim=-1)` of tensors here, `x.norm` with PyTorch's arguments",
        "cosine_embedding_loss": "is made of `nn.functional.cosine_similarity(a, b)` here",
        "triplet_margin_loss": "is `mg.maximum(near - far + margin, 0).mean()` of distances, as `x.norm(dim=1)`, here",
        "margin_ranking_loss": "is `mg.maximum(-y * (a - b) + margin, 0).mean()` here",
        "hinge_embedding_loss": "is `mg.where(y > 0, x, mg.maximum(margin - x, 0)).mean()` here",
        "soft_margin_loss": "is `nn.functional.softplus(-y * x).mean()` here",
        "multi_margin_loss": "is not available: `nn.functional.cross_entropy(x, labels)`",
        "multilabel_margin_loss": "is not available: `nn.functional.binary_cross_entropy_with_logits(x, labels)`",
        "multilabel_soft_margin_loss": "is `nn.functional.binary_cross_entropy_with_logits(x, labels)` here",
        "poisson_nll_loss": "is `(mg.exp(x) - y * x).mean()` here",
        "gaussian_nll_loss": "is `(mg.log(var) + mg.square(x - y) / var).mean() / 2` here",
        "ctc_loss": "is not available; `nn.functional.cross_entropy` takes one label for each step",
        "max_pool1d": "is `nn.functional.max_pool2d(x[:, :, None], (1, k))[:, :, 0]` here",
        "avg_pool1d": "is `nn.functional.avg_pool2d(x[:, :, None], (1, k))[:, :, 0]` here",
        "adaptive_max_pool2d": "is `nn.functional.max_pool2d(x, k)` here, with k = H / the rows wanted",
        "adaptive_avg_pool1d": "is `nn.functional.adaptive_avg_pool2d(x[:, :, None], (1, n))[:, :, 0]` here",
        "lp_pool2d": "is `(nn.functional.avg_pool2d(x ** p, k) * k ** 2) ** (1 / p)` here",
        "conv3d": "is not available: `nn.functional.conv2d(x, weight)` has two axes",
        "conv_transpose1d": "is `nn.functional.conv_transpose2d(x[:, :, None], w[:, :, None])[:, :, 0]` here",
        "unfold": "is not available: `nn.functional.conv2d(x, weight)` with rows of an identity as weights",
        "fold": "is not available: `nn.functional.conv_transpose2d(x, weight)` adds windows",
        "pixel_shuffle": "is a `x.reshape(shape)`, `x.permute_dims(axes)` and `x.reshape(shape)` here",
        "pixel_unshuffle": "is a `x.reshape(shape)`, `x.permute_dims(axes)` and `x.reshape(shape)` here",
        "grid_sample": "is not available: `nn.functional.interpolate(x, size)` resizes",
        "affine_grid": "is not available: `nn.functional.interpolate(x, size)` resizes",
        "dropout1d": "is `x * nn.functional.dropout(mg.ones((n, c, 1)), p, training)` here",
        "dropout2d": "is `x * nn.functional.dropout(mg.ones((n, c, 1, 1)), p, training)` here",
        "alpha_dropout": "is not available: `nn.functional.dropout(x, p, training)`",
        "feature_alpha_dropout": "is not available: `nn.functional.dropout(x, p, training)`",
        "embedding_bag": "is `nn.functional.embedding(indices, weight).mean(1)` here",
        "bilinear": 'is `mg.einsum("bi,oij,bj->bo", x, weight, y)` here',
        "local_response_norm": "is not available: `nn.functional.group_norm(x, groups)`",
        "multi_head_attention_forward": "is `nn.MultiheadAttention(embed_dim, num_heads)` here",
    },
    "minigrad.nn": {
        "LSTMBase": "is `nn.LSTM` here",
        "Unflatten": "is `x.reshape(shape)` in forward here",
        "ParameterDict": "is `nn.ParameterList` here, or a `nn.Module` with `nn.Parameter` as attributes",
        "UninitializedParameter": "is not available: `nn.Parameter(mg.empty(shape))`",
        "ReLU6": "is `x.clip(0, 6)` in forward here",
        "Hardtanh": "is `x.clip(-1, 1)` in forward here",
        "CELU": "is `nn.functional.elu(x / alpha, alpha)` in forward here",
        "Softmin": "is `mg.softmax(-x, axis)` in forward here",
        "Softsign": "is `x / (1 + mg.abs(x))` in forward here",
        "Softmax2d": "is `nn.Softmax(dim=1)` here",
        "Threshold": "is `mg.where(x > threshold, x, value)` in forward here",
        "Dropout1d": "is `x * nn.functional.dropout(mg.ones((n, c, 1)), p, self.training)` in forward here",
        "Dropout2d": "is `x * nn.functional.dropout(mg.ones((n, c, 1, 1)), p, self.training)` in forward here",
        "AlphaDropout": "is not available: `nn.Dropout(p)`",
        "Conv3d": "is not available: `nn.Conv2d(c, n, k)` has two axes",
        "ConvTranspose1d": "is `nn.ConvTranspose2d(c, n, (1, k))` of x[:, :, None] here",
        "ConvTranspose3d": "is not available: `nn.ConvTranspose2d(c, n, k)` has two axes",
        "MaxPool1d": "is `nn.MaxPool2d((1, k))` of x[:, :, None] here",
        "AvgPool1d": "is `nn.AvgPool2d((1, k))` of x[:, :, None] here",
        "MaxPool3d": "is not available: `nn.MaxPool2d(k)` has two axes",
        "AdaptiveAvgPool1d": "is `nn.AdaptiveAvgPool2d((1, n))` of x[:, :, None] here",
        "AdaptiveMaxPool2d": "is `nn.MaxPool2d(k)` here, with k = H / the rows wanted",
        "AdaptiveMaxPool1d": "is `x.max(axis=-1, keepdims=True)` here, for one output",
        "MaxUnpool2d": "is not available: `nn.Upsample(scale_factor=2)`",
        "UpsamplingNearest2d": "is `nn.Upsample(scale_factor=2)` here",
        "UpsamplingBilinear2d": 'is `nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)` here',
        "ZeroPad2d": "is `nn.functional.pad(x, (left, right, top, bottom))` in forward here",
        "ConstantPad1d": 'is `nn.functional.pad(x, widths, "constant", value)` in forward here',
        "ConstantPad2d": 'is `nn.functional.pad(x, widths, "constant", value)` in forward here',
        "ReflectionPad1d": 'is `nn.functional.pad(x, widths, "reflect")` in forward here',
        "ReflectionPad2d": 'is `nn.functional.pad(x, widths, "reflect")` in forward here',
        "ReplicationPad2d": 'is `nn.functional.pad(x, widths, "replicate")` in forward here',
        "PixelShuffle": "is a `x.reshape(shape)` and a `x.permute_dims(axes)` in forward here",
        "Unfold": "is not available: `nn.Conv2d(c, n, k)` reads windows",
        "Fold": "is not available: `nn.ConvTranspose2d(c, n, k)` adds windows",
        "BatchNorm3d": "is `nn.functional.batch_norm(x, mean, var)` here, which takes any number of axes",
        "SyncBatchNorm": "is `nn.BatchNorm2d(c)` here: one process trains",
        "InstanceNorm3d": "is `nn.functional.instance_norm(x)` here, which takes any number of axes",
        "LocalResponseNorm": "is not available: `nn.GroupNorm(groups, c)`",
        "LazyLinear": "is `nn.Linear(in_features, out_features)` here; `nn.summary` shows the sizes",
        "LazyConv2d": "is `nn.Conv2d(in_channels, out_channels, k)` here; `nn.summary` shows the sizes",
        "Bilinear": 'is `mg.einsum("bi,oij,bj->bo", x, self.weight, y)` in forward here',
        "EmbeddingBag": "is `nn.Embedding(n, d)` and the mean over axis 1 here",
        "Transformer": "is `nn.TransformerEncoder` and `nn.TransformerDecoder` here",
        "DataParallel": "is not available: one process computes, see `mg.set_num_threads`",
        "parallel": "is not available: one process computes, see `mg.set_num_threads`",
        "PairwiseDistance": "is `x.norm(dim=-1)` of a difference in forward here",
        "TripletMarginLoss": "is `mg.maximum(near - far + margin, 0).mean()` of distances, as `x.norm(dim=1)`, here",
        "CosineEmbeddingLoss": "is made of `nn.CosineSimilarity()` here",
        "MarginRankingLoss": "is `mg.maximum(-y * (a - b) + margin, 0).mean()` here",
        "HingeEmbeddingLoss": "is `mg.where(y > 0, x, mg.maximum(margin - x, 0)).mean()` here",
        "SoftMarginLoss": "is `nn.functional.softplus(-y * x).mean()` here",
        "MultiMarginLoss": "is not available: `nn.CrossEntropyLoss()`",
        "MultiLabelSoftMarginLoss": "is `nn.BCEWithLogitsLoss()` here",
        "PoissonNLLLoss": "is `(mg.exp(x) - y * x).mean()` here",
        "GaussianNLLLoss": "is `(mg.log(var) + mg.square(x - y) / var).mean() / 2` here",
        "CTCLoss": "is not available; `nn.CrossEntropyLoss()` takes one label for each step",
    },
    "minigrad.optim": {
        "Adadelta": "is not available: `optim.RMSprop(params)` or `optim.Adagrad(params)`",
        "Adamax": "is not available: `optim.Adam(params)`",
        "NAdam": "is not available: `optim.Adam(params)`",
        "RAdam": "is not available: `optim.Adam(params)` with a `optim.lr_scheduler.LinearLR` as warm-up",
        "Rprop": "is not available: `optim.RMSprop(params)`",
        "ASGD": "is not available: `optim.SGD(params, lr)`",
        "SparseAdam": "is `optim.Adam(params)` here: all gradients are dense",
        "swa_utils": "is not available: average `x.copy()` of the parameters after each epoch",
    },
    "minigrad.optim.lr_scheduler": {
        "MultiplicativeLR": "is `optim.lr_scheduler.LambdaLR(optimizer, f)` here, with the product of the factors",
        "CyclicLR": "is `optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps=n)` for one cycle here",
        "ChainedScheduler": "schedules on one optimizer multiply here: call every `optim.lr_scheduler.LRScheduler`",
    },
    "minigrad.data": {
        "ConcatDataset": "is not available: a `data.Dataset` with __len__ and __getitem__ of the parts",
        "IterableDataset": "is not available: a `data.Dataset` has a length; or iterate over your own batches",
        "RandomSampler": "is `data.DataLoader(dataset, shuffle=True)` here",
        "SequentialSampler": "is `data.DataLoader(dataset)` here",
        "SubsetRandomSampler": "is `data.Subset(dataset, indices)` with shuffle=True here",
        "WeightedRandomSampler": "is `data.Subset(dataset, mg.multinomial(weights, n, True).tolist())` here",
        "BatchSampler": "is `data.DataLoader(dataset, batch_size=n)` here",
        "DistributedSampler": "is not available: one process trains; `data.DataLoader(dataset, shuffle=True)`",
        "default_collate": "is `data.collate(samples)` here",
    },
    "minigrad.nn.utils": {
        "clip_grad_norm": "is `nn.utils.clip_grad_norm_(parameters, max_norm)` here",
        "parametrizations": "is `nn.utils.weight_norm(module)` or `nn.utils.spectral_norm(module)` here",
        "parametrize": "is `nn.utils.weight_norm(module)` here, or a product in forward",
        "prune": "is not available: multiply with a mask in forward, `x * mask`",
        "skip_init": "is not available: `nn.Linear(n, m)`",
        "fuse_conv_bn_eval": "is `nn.utils.fold_batch_norm(layer, bn)` here",
    },
    "minigrad.nn.utils.rnn": {
        "pack_padded_sequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
        "pad_packed_sequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
        "pack_sequence": "is not needed here: `data.collate_padded(samples)` pads, and `nn.LSTM` takes lengths",
        "PackedSequence": "is not needed here: pass lengths, as in `nn.LSTM`(…)(x, lengths=lengths)",
    },
    "minigrad.autograd": {
        "Variable": "is `mg.tensor(data, requires_grad=True)` here",
        "functional": "`mg.jacobian`, `mg.hessian`, `mg.hvp`, `mg.jvp` and `mg.vjp` are members of minigrad here",
        "forward_ad": "is `mg.jvp(f, x, v)` here, which differentiates twice in reverse",
        "profiler": "is `mg.profile` here",
        "set_detect_anomaly": "is a block here: with `mg.detect_anomaly()`",
        "set_grad_enabled": "is `mg.no_grad()` or `mg.enable_grad()` here",
        "gradgradcheck": "is `mg.gradcheck(f, x, order=2)` here",
        "backward": "is `x.backward()` of each tensor here",
    },
}
TENSOR_POINTERS_OF_FUNCTIONS = """
    addcdiv addcmul addmm addmv argwhere baddbmm bincount count_nonzero cross cummax cummin cumprod diag diagonal diff
    fliplr flipud fmod frac heaviside histc hsplit hypot index_add index_fill inverse kron kthvalue logaddexp
    logcumsumexp median mode nan_to_num quantile renorm rot90 scatter scatter_add trace true_divide trunc vdot vsplit
    xlogy det svd is_complex
"""
POINTERS["minigrad"] |= {name: POINTERS["Tensor"][name] for name in TENSOR_POINTERS_OF_FUNCTIONS.split()}


class Pointer:
    """A member of Tensor that raises an AttributeError with what to write instead."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: Tensor | None, kind: type) -> Any:
        raise AttributeError(f"[{self.name}] {POINTERS['Tensor'][self.name]}", name=self.name, obj=tensor)


def members_of_tensor() -> dict[str, Any]:
    """What `minigrad.engine.habits` adds to Tensor."""
    works = {name: value for name, value in vars(TensorNames).items() if not name.startswith("_")}
    return {name: Pointer(name) for name in POINTERS["Tensor"]} | works


def find(module: str, name: str) -> Any:
    """Return a module's member by PyTorch's name, or raise an AttributeError that says what to write instead."""
    if module == "minigrad" and not name.startswith("_"):
        if name == "utils":
            return importlib.import_module("minigrad.utils")
        if name in DTYPES:
            return getattr(mg, DTYPES[name])
        found = globals().get(name)
        if found is not functional_pad and str(getattr(found, "__doc__", "")).startswith("PyTorch's name of"):
            return found
    if (module, name) in PLACES:
        return PLACES[module, name]
    elsewhere = POINTERS.get(module, {}).get(name)
    if elsewhere is not None:
        caller = sys._getframe(1 if module != "minigrad" else 2)  # after its own __getattr__
        if caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]:  # which hides an AttributeError
            raise ImportError(f"[{name}] {elsewhere}", name=module)
        raise AttributeError(f"[{name}] {elsewhere}", name=name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
