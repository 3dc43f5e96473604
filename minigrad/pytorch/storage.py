"""The methods and properties with PyTorch's names that convert a tensor, write into it, draw random numbers, or concern
the tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import iadd, imul, ipow, isub, itruediv
from typing import Any

import numpy as np

from minigrad import namespace as mg
from minigrad.arrays.products import checked_axis
from minigrad.engine.memory.dtype import DType, DTypeLike
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tape import in_place as writes
from minigrad.engine.tensor.tensor import Tensor
from minigrad.pytorch.methods import _as, _lengths, _mask, _times, _with_axis


class StorageNames(Tensor):
    """Methods and properties that a tensor has under PyTorch's names: those beside `TensorNames`."""

    # devices and dtypes

    def clone(self: Tensor) -> Tensor:
        """PyTorch's name for `copy`."""
        return self.copy()

    def cpu(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.to("cpu")``."""
        return self.to("cpu")

    def cuda(self: Tensor, device: int | str | None = None) -> Tensor:
        """PyTorch's name for ``x.to("cuda")``."""
        return self.to(_device(device))

    def type_as(self: Tensor, other: Tensor) -> Tensor:
        """PyTorch's name for ``x.to(other)``."""
        return self.to(other)

    @property
    def is_cuda(self: Tensor) -> bool:
        """PyTorch's name for ``x.device != "cpu"``."""
        return self.device != "cpu"

    def is_floating_point(self: Tensor) -> bool:
        """PyTorch's name for ``x.dtype.kind == "f"``."""
        return self.dtype.kind == "f"

    def numel(self: Tensor) -> int:
        """PyTorch's name for ``x.size``."""
        return self.size

    def nelement(self: Tensor) -> int:
        """PyTorch's name for ``x.size``."""
        return self.size

    def element_size(self: Tensor) -> int:
        """PyTorch's name for ``x.dtype.itemsize``."""
        return self.nbytes // self.size if self.size else mg.empty(1, dtype=self.dtype).nbytes

    def dim(self: Tensor) -> int:
        """PyTorch's name for ``x.ndim``."""
        return self.ndim

    def ndimension(self: Tensor) -> int:
        """PyTorch's name for ``x.ndim``."""
        return self.ndim

    def new_tensor(self: Tensor, data: Any, dtype: DTypeLike = None, requires_grad: bool = False) -> Tensor:
        """PyTorch's name for ``mg.tensor(data, x.dtype, x.device)``."""
        return mg.tensor(data, self.dtype if dtype is None else dtype, self.device, requires_grad)

    def new_zeros(
        self: Tensor, *size: int | Sequence[int], dtype: DTypeLike = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name for ``mg.zeros(size, dtype=x.dtype, device=x.device)``."""
        return self.new_full(_lengths(size), 0, dtype=dtype, device=device)

    def new_ones(
        self: Tensor, *size: int | Sequence[int], dtype: DTypeLike = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name for ``mg.ones(size, dtype=x.dtype, device=x.device)``."""
        return self.new_full(_lengths(size), 1, dtype=dtype, device=device)

    def new_empty(
        self: Tensor, *size: int | Sequence[int], dtype: DTypeLike = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name for ``mg.empty(size, dtype=x.dtype, device=x.device)``."""
        return mg.empty(_lengths(size), dtype=dtype or self.dtype, device=device or self.device)

    def new_full(
        self: Tensor, size: Sequence[int], fill_value: float, *, dtype: DTypeLike = None, device: str | None = None
    ) -> Tensor:
        """PyTorch's name for ``mg.full(size, fill_value, dtype=x.dtype, device=x.device)``."""
        return mg.full(tuple(size), fill_value, dtype=dtype or self.dtype, device=device or self.device)

    # the tape

    @property
    def data(self: Tensor) -> Tensor:
        """PyTorch's name for `detach`; assigning to it is ``x.set_(value)``."""
        return self.detach()

    @data.setter
    def data(self: Tensor, value: Tensor) -> None:
        self.set_(value)

    def retain_grad(self: Tensor) -> None:
        """PyTorch's name for a hook that keeps the gradient of a computed tensor in its ``grad``."""
        if not self.is_leaf:
            writes.retain_grad(self)
        elif not self.requires_grad:
            raise mg.GradientError("[retain_grad] this tensor does not require grad")

    # in place

    def add_(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for ``x += alpha * other``."""
        return iadd(self, _times(alpha, other))

    def sub_(self: Tensor, other: float | Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for ``x -= alpha * other``."""
        return isub(self, _times(alpha, other))

    def mul_(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x *= other``."""
        return imul(self, other)

    def div_(self: Tensor, other: float | Tensor) -> Tensor:
        """PyTorch's name for ``x /= other``."""
        return itruediv(self, other)

    def pow_(self: Tensor, exponent: float | Tensor) -> Tensor:
        """PyTorch's name for ``x **= exponent``."""
        return ipow(self, exponent)

    def neg_(self: Tensor) -> Tensor:
        """PyTorch's name for ``x *= -1``."""
        return imul(self, -1)

    def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """PyTorch's name for ``x += value * tensor1 * tensor2``."""
        return iadd(self, _times(value, tensor1 * tensor2))

    def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """PyTorch's name for ``x += value * tensor1 / tensor2``."""
        return iadd(self, _times(value, tensor1 / tensor2))

    def lerp_(self: Tensor, end: Tensor, weight: float | Tensor) -> Tensor:
        """PyTorch's name for ``x += weight * (end - x)``."""
        return iadd(self, weight * (end - self))

    def clamp_(self: Tensor, min: float | Tensor | None = None, max: float | Tensor | None = None) -> Tensor:
        """PyTorch's name for ``x[...] = x.clip(min, max)``."""
        return self.copy_(self.copy().clip(min, max))

    def masked_fill_(self: Tensor, mask: Tensor, value: float | Tensor) -> Tensor:
        """PyTorch's name for ``x[mask] = value``."""
        return self.copy_(mg.where(_mask("masked_fill_", mask), _as(self, value), self.copy()))

    def uniform_(self: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
        """PyTorch's name for ``x.copy_(mg.random.uniform(a, b, x.shape))``."""
        return self.copy_(mg.random.uniform(a, b, self.shape, dtype=self.dtype, device=self.device))

    def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """PyTorch's name for ``x.copy_(mg.random.normal(mean, std, x.shape))``."""
        return self.copy_(mg.random.normal(mean, std, self.shape, dtype=self.dtype, device=self.device))

    def bernoulli_(self: Tensor, p: float = 0.5) -> Tensor:
        """PyTorch's name for ``x.copy_(mg.random.uniform(shape=x.shape) < p)``."""
        return self.copy_(mg.random.uniform(shape=self.shape, device=self.device) < number("bernoulli_", "p", p, 0, 1))

    # at indices

    def scatter(self: Tensor, dim: int, index: Tensor, src: Any = None, value: float | None = None) -> Tensor:
        """PyTorch's name for an assignment at one index each along an axis; among equal ones, the last one counts."""
        return StorageNames.scatter_(self.copy(), dim, index, src, value)

    def scatter_(self: Tensor, dim: int, index: Tensor, src: Any = None, value: float | None = None) -> Tensor:
        """PyTorch's name for `scatter` into x."""
        axis, index = checked_axis("scatter", dim, self), mg.asarray(index)
        source: Any = value if src is None else src
        longest = (*self.shape[:axis], index.size, *self.shape[axis + 1 :])  # an element may be written several times
        for lengths in (longest, source.shape if isinstance(source, Tensor) else index.shape):
            if len(lengths) != index.ndim or any(n > m for n, m in zip(index.shape, lengths, strict=True)):
                raise ValueError(f"[scatter] expected an index not longer than {lengths}, got shape {index.shape}")
        places: list[Any] = [
            mg.arange(n).reshape((1,) * k + (n,) + (1,) * (index.ndim - 1 - k)) for k, n in enumerate(index.shape)
        ]
        places[axis] = index
        self[tuple(places)] = source[tuple(map(slice, index.shape))] if isinstance(source, Tensor) else source
        return self

    def scatter_add_(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """PyTorch's name for ``x[...] = mg.scatter_add(x, dim, index, src)``."""
        return self.copy_(self.copy().scatter_add(dim, index, src))

    def index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for a `scatter_add` of the parts of a tensor along an axis, such as rows."""
        axis, index = checked_axis("index_add", dim, self), mg.asarray(index)
        if index.ndim != 1 or source.ndim != self.ndim or source.shape[axis] != index.size:
            raise ValueError(
                f"[index_add] expected one index for each part of the source {source.shape} along axis {axis}, "
                f"got shape {index.shape}"
            )
        wide = index.reshape((-1,) + (1,) * (self.ndim - 1 - axis)).broadcast_to(source.shape)
        return mg.scatter_add(self, axis, wide, _times(alpha, source))

    def index_add_(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
        """PyTorch's name for `index_add` into x."""
        return self.copy_(StorageNames.index_add(self.copy(), dim, index, source, alpha=alpha))

    # random numbers

    def bernoulli(self: Tensor) -> Tensor:
        """PyTorch's name for ``mg.random.uniform(shape=x.shape) < x``, of the dtype of x."""
        _check_probabilities("bernoulli", self)
        return (mg.random.uniform(shape=self.shape, dtype=self.dtype, device=self.device) < self).astype(self.dtype)

    def multinomial(self: Tensor, num_samples: int, replacement: bool = False) -> Tensor:
        """PyTorch's name for drawing indices at random, weighted by the elements of x."""
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

    # Named like types, therefore last.

    def float(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.astype("float32")``."""
        return self.to("float32")

    def double(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.astype("float64")``."""
        return self.to("float64")

    def int(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.astype("int32")``."""
        return self.to("int32")

    def long(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.astype("int64")``."""
        return self.to("int64")

    def bool(self: Tensor) -> Tensor:
        """PyTorch's name for ``x.astype("bool")``."""
        return self.to("bool")

    def type(self: Tensor, dtype: str | DType | None = None) -> Tensor:
        """PyTorch's name for ``x.astype(dtype)``."""
        if dtype is None:
            raise TypeError("[type] expected a dtype to convert to; that of a tensor is `x.dtype`")
        return self.to(dtype=dtype)


for _name, _value in list(vars(StorageNames).items()):
    if callable(_value):
        setattr(StorageNames, _name, _with_axis(_value))


def _device(device: int | str | None) -> str:
    return "cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device


def _check_probabilities(op: str, x: Tensor, most: float = 1.0) -> None:
    if x.dtype.kind != "f":
        raise TypeError(f"[{op}] expected floats, got {x.dtype}")
    if x.size and not (x.min().item() >= 0 and x.max().item() <= most):
        raise ValueError(f"[{op}] expected values from 0 to {most:g}, got {x.min().item():g} to {x.max().item():g}")
