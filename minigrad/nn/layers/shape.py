"""Layers that move elements to another shape, or do nothing."""

from collections.abc import Sequence
from typing import Any

from minigrad.arrays.creation import operand
from minigrad.arrays.products import checked_axis
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.layers.interpolation import check_lengths, check_mode
from minigrad.nn.module import Module


class Flatten(Module):
    """Flattens several consecutive axes into one.

    When called, it raises IndexError for an axis that the input does not have, and ValueError for an `end_dim` before
    `start_dim`.

    Parameters
    ----------
    start_dim, end_dim : int
        The first and the last of them, counted from the end if negative; by default, all but the batch axis.

    Examples
    --------
    >>> mg.nn.Flatten()(mg.zeros((8, 16, 4, 4))).shape
    (8, 256)
    """

    _shown = "start_dim={start_dim}, end_dim={end_dim}"

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = integer("Flatten", "start_dim", start_dim)
        self.end_dim = integer("Flatten", "end_dim", end_dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, ...)`` to ``(N, n)``, as a view if `x` is contiguous."""
        x = operand("Flatten", x)
        axes = max(x.ndim, 1)  # a scalar counts as a vector of one element
        for axis in (self.start_dim, self.end_dim):
            if not -axes <= axis < axes:
                raise IndexError(f"[Flatten] expected an axis from {-axes} to {axes - 1} for {axes} axes, got {axis}")
        first, last = self.start_dim % axes, self.end_dim % axes
        if last < first:
            raise ValueError(f"[Flatten] expected start_dim before end_dim, got {first} and {last} of {axes} axes")
        size = 1
        for n in x.shape[first : last + 1]:
            size *= n
        return x.reshape((*x.shape[:first], size, *x.shape[last + 1 :]))


class Unflatten(Module):
    """Splits one axis into several, the inverse of `Flatten`.

    Parameters
    ----------
    dim : int
    unflattened_size : sequence of int
        Their lengths, one of which may be -1: what the others leave.

    Examples
    --------
    >>> mg.nn.Unflatten(1, (16, 4, 4))(mg.zeros((8, 256))).shape
    (8, 16, 4, 4)
    """

    _shown = "dim={dim}, unflattened_size={unflattened_size}"

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = integer("Unflatten", "dim", dim)
        self.unflattened_size = tuple(integer("Unflatten", "length", n, -1) for n in unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, n)`` to ``(N, ...)``."""
        x = operand("Unflatten", x)
        k = checked_axis("Unflatten", self.dim, x)
        return x.reshape((*x.shape[:k], *self.unflattened_size, *x.shape[k + 1 :]))


class PixelShuffle(Module):
    """Images r times as wide and high, of r² as many channels; see `functional.pixel_shuffle`.

    Examples
    --------
    >>> mg.nn.PixelShuffle(3)(mg.zeros((1, 9, 4, 4))).shape
    (1, 1, 12, 12)
    """

    _shown = "upscale_factor={upscale_factor}"

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = integer("PixelShuffle", "upscale_factor", upscale_factor, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., C r², H, W)`` to ``(..., C, H r, W r)``."""
        return F.pixel_shuffle(x, self.upscale_factor)


class Identity(Module):
    """y = x, whatever the arguments: a placeholder for a layer.

    Examples
    --------
    >>> mg.nn.Identity()(mg.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` itself."""
        return x


class Upsample(Module):
    """Resizes images or sequences; see `functional.interpolate` for the arguments.

    Examples
    --------
    >>> mg.nn.Upsample(scale_factor=2)(mg.zeros((1, 3, 4, 4))).shape
    (1, 3, 8, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest", align_corners: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        check_mode("Upsample", mode, align_corners)
        check_lengths("Upsample", size, scale_factor)
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` or ``(N, C, T)`` to the new size."""
        return F.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"
