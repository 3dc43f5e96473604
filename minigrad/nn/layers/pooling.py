"""Pooling layers, and layers that change only the shape or nothing."""

from collections.abc import Sequence
from typing import Any

from minigrad.array.creation import operand
from minigrad.engine.ops.arguments import integer, pair
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.layers.interpolation import check_lengths, check_mode
from minigrad.nn.module import Module

Pair = int | tuple[int, int]


class _Pool(Module):
    """Base class with the sizes of the windows."""

    def __init__(self, kernel_size: Pair, stride: Pair | None, padding: Pair, ceil_mode: bool) -> None:
        super().__init__()
        name = type(self).__name__
        self.kernel_size = pair(name, "kernel_size", kernel_size, 1)
        self.stride = self.kernel_size if stride is None else pair(name, "stride", stride, 1)
        self.padding = pair(name, "padding", padding, 0)
        self.ceil_mode = ceil_mode


class MaxPool2d(_Pool):
    """The largest element of each window of each channel; see `functional.max_pool2d` for the arguments.

    Raises
    ------
    ValueError
        For arguments out of range; when called, as for `functional.max_pool2d`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.MaxPool2d(2)(mg.zeros((8, 6, 24, 24))).shape
    (8, 6, 12, 12)
    """

    _shown = "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}"

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation = pair("MaxPool2d", "dilation", dilation, 1)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """Map ``(N, C, H, W)`` to ``(N, C, P, Q)``, or both without the N; to a pair of such tensors with indices."""
        return F.max_pool2d(
            x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class AvgPool2d(_Pool):
    """The mean of each window of each channel; see `functional.avg_pool2d` for the arguments.

    Raises
    ------
    ValueError
        For arguments out of range; when called, as for `functional.avg_pool2d`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.AvgPool2d(2)(mg.tensor([[[1.0, 2.0], [3.0, 6.0]]])).tolist()
    [[[3.0]]]
    """

    _shown = "kernel_size={kernel_size}, stride={stride}, padding={padding}"

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad
        if divisor_override is not None:
            divisor_override = integer("AvgPool2d", "divisor_override", divisor_override)
            if divisor_override == 0:
                raise ValueError("[AvgPool2d] expected a divisor_override other than 0, got 0")
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C, P, Q)``, or both without the N."""
        options = self.ceil_mode, self.count_include_pad, self.divisor_override
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, *options)


class AdaptiveAvgPool2d(Module):
    """The means of windows that cover each channel evenly; see `functional.adaptive_avg_pool2d` for `output_size`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.AdaptiveAvgPool2d(1)(mg.zeros((8, 16, 7, 9))).shape
    (8, 16, 1, 1)
    """

    _shown = "output_size={output_size}"

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2:
            raise ValueError(f"[AdaptiveAvgPool2d] expected one or two integers for output_size, got {output_size}")
        rows, columns = (
            None if size is None else integer("AdaptiveAvgPool2d", "output_size", size, 1) for size in sizes
        )
        self.output_size = rows, columns

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C, *output_size)``, or both without the N."""
        return F.adaptive_avg_pool2d(x, self.output_size)


class Flatten(Module):
    """Flattens several consecutive axes into one.

    Parameters
    ----------
    start_dim, end_dim : int
        The first and the last of them, counted from the end if negative; by default, all but the batch axis.

    Raises
    ------
    IndexError
        When called, for an axis that the input does not have.
    ValueError
        When called, for an `end_dim` before `start_dim`.

    Examples
    --------
    >>> import minigrad as mg
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


class Identity(Module):
    """y = x, whatever the arguments: a placeholder for a layer.

    Examples
    --------
    >>> import minigrad as mg
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
    >>> import minigrad as mg
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
