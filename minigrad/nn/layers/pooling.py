"""Pooling layers."""

from typing import Any, ClassVar

from minigrad.engine.ops.arguments import integer, pair, single
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.module import Module

Pair = int | tuple[int, int]


class _Pool(Module):
    """Base class with the sizes of the windows, one number for each axis."""

    axes: ClassVar[int] = 2
    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any

    def __init__(self, kernel_size: Pair, stride: Pair | None, padding: Pair, ceil_mode: bool, **others: Pair) -> None:
        super().__init__()
        name, stride = type(self).__name__, kernel_size if stride is None else stride
        for option, value in {"kernel_size": kernel_size, "stride": stride, "padding": padding, **others}.items():
            checked = pair if self.axes == 2 else single
            setattr(self, option, checked(name, option, value, 0 if option == "padding" else 1))
        self.ceil_mode = ceil_mode


class _MaxPool(_Pool):
    """Base class with the calls of the functions."""

    _shown = "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}"

    def __init__(
        self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode, dilation=dilation)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        """Map ``(N, C, H, W)`` to ``(N, C, P, Q)``, or both without the N; to a pair of such tensors with indices."""
        pool: Any = F.max_pool2d if self.axes == 2 else F.max_pool1d
        return pool(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)


class MaxPool2d(_MaxPool):
    """The largest element of each window of each channel; see `functional.max_pool2d` for the arguments.

    Raises ValueError for arguments out of range; when called, as for `functional.max_pool2d`.

    Examples
    --------
    >>> mg.nn.MaxPool2d(2)(mg.zeros((8, 6, 24, 24))).shape
    (8, 6, 12, 12)
    """


class MaxPool1d(_MaxPool):
    """`MaxPool2d` of sequences: the largest of the steps in each window; see `functional.max_pool1d`.

    Examples
    --------
    >>> mg.nn.MaxPool1d(2)(mg.zeros((8, 6, 24))).shape
    (8, 6, 12)
    """

    axes = 1


class AvgPool2d(_Pool):
    """The mean of each window of each channel; see `functional.avg_pool2d` for the arguments.

    Raises ValueError for arguments out of range; when called, as for `functional.avg_pool2d`.

    Examples
    --------
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


class AvgPool1d(_Pool):
    """`AvgPool2d` of sequences: the mean of the steps in each window; see `functional.avg_pool1d`.

    Examples
    --------
    >>> mg.nn.AvgPool1d(2)(mg.tensor([[1.0, 2.0, 3.0, 6.0]])).tolist()
    [[1.5, 4.5]]
    """

    axes = 1
    _shown = AvgPool2d._shown

    def __init__(
        self, kernel_size: int, stride: int | None = None, padding: int = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, T)`` to ``(N, C, P)``, or both without the N."""
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class AdaptiveAvgPool2d(Module):
    """The means of windows that cover each channel evenly; see `functional.adaptive_avg_pool2d` for `output_size`.

    Examples
    --------
    >>> mg.nn.AdaptiveAvgPool2d(1)(mg.zeros((8, 16, 7, 9))).shape
    (8, 16, 1, 1)
    """

    _shown = "output_size={output_size}"

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        super().__init__()
        sizes = output_size if isinstance(output_size, tuple | list) else (output_size, output_size)
        if len(sizes) != 2:
            raise ValueError(f"[AdaptiveAvgPool2d] expected one or two integers for output_size, got {output_size}")
        rows, columns = (None if n is None else integer("AdaptiveAvgPool2d", "output_size", n, 1) for n in sizes)
        self.output_size = rows, columns

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C, *output_size)``, or both without the N."""
        return F.adaptive_avg_pool2d(x, self.output_size)
