"""Convolutional layers."""

from typing import Any

from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer, pair, single
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.layers.linear import Weighted

Pair = int | tuple[int, int]


class _Conv(Weighted):
    """Base class of convolutions, with the options."""

    kernel_size: Any
    stride: Any
    padding: Any
    output_padding: Any
    dilation: Any
    axes = 2

    def __init__(
        self, in_channels: int, out_channels: int, groups: int, bias: bool, device: str | None,
        dtype: DTypeLike, **sizes: Any,
    ) -> None:  # fmt: skip
        """Check the options; `sizes` are those with a number for each axis, and a `padding` may have a name."""
        super().__init__()
        name = type(self).__name__
        self.in_channels = inputs = integer(name, "in_channels", in_channels, 1)
        self.out_channels = outputs = integer(name, "out_channels", out_channels, 1)
        self.groups = groups = integer(name, "groups", groups, 1)
        if inputs % groups or outputs % groups:
            raise ValueError(f"[{name}] expected groups that divide channels, got {groups} for {inputs} and {outputs}")
        transposed = "output_padding" in sizes
        for option, value in sizes.items():
            least = 0 if "padding" in option else 1
            if option != "padding" or transposed or not isinstance(value, str):
                value = pair(name, option, value, least) if self.axes == 2 else (single(name, option, value, least),)
            setattr(self, option, value)
        if isinstance(self.padding, str) and self.padding not in ("valid", "same"):
            numbers = "integers" if self.axes == 2 else "an integer"
            raise ValueError(f'[{name}] expected "valid", "same" or {numbers} for padding, got {self.padding!r}')
        first, second = (inputs, outputs) if transposed else (outputs, inputs)
        self._add_parameters((first, second // groups, *self.kernel_size), outputs, bias, device, dtype)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        for option, usual in (("padding", 0), ("output_padding", 0), ("dilation", 1)):
            value = getattr(self, option, None)
            text += f", {option}={value!r}" if value not in (None, (usual,) * self.axes) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")


class Conv2d(_Conv):
    """y = x ⋆ W + b: each output channel is a weighted sum of a window that moves over all input channels.

    Raises ValueError for sizes below 1, and groups that do not divide the channels; when called, for an input that has
    another number of channels or is smaller than a window.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output; both must be divisible by `groups`.
    kernel_size : int or pair of int
        Rows and columns of a window.
    stride, padding, dilation
        As in `functional.conv2d`.
    groups : int
        The number of groups of channels; each output channel reads only the input channels of its group.
    bias : bool
        Whether to add b.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, *kernel_size)``, from U(−1/√n, 1/√n) with n weights per output channel:
        PyTorch's default, see `Linear`.
    bias : Parameter or None
        ``(out_channels,)``, from the same distribution.

    Examples
    --------
    >>> mg.nn.Conv2d(3, 16, 5, stride=2, padding=2)(mg.zeros((8, 3, 32, 32))).shape
    (8, 16, 16, 16)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1, padding: Pair | str = 0,
        dilation: Pair = 1, groups: int = 1, bias: bool = True, *, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, groups, bias, device, dtype, kernel_size=kernel_size, stride=stride,
            dilation=dilation, padding=padding,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, out_channels, P, Q)``, or both without the N."""
        try:
            return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        except ValueError as error:
            shape = x.shape
            if len(shape) in (3, 4) and shape[-1] == self.in_channels != shape[-3]:
                error.add_note("The channels are on the last axis: x.moveaxis(-1, -3) moves them to where they belong")
            raise


class Conv1d(_Conv):
    """`Conv2d` of sequences: a window moves over T steps of all input channels.

    Parameters
    ----------
    kernel_size, stride, dilation : int
        The steps of a window, the distance between windows, and between the elements of one window.
    padding : int, "valid" or "same"
        Zeros added on either side, as in `functional.conv2d`.
    in_channels, out_channels, groups, bias, device, dtype
        As in `Conv2d`.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, kernel_size)``, with initial values as in `Conv2d`.
    bias : Parameter or None
        ``(out_channels,)``.

    Examples
    --------
    >>> mg.nn.Conv1d(4, 8, 3, padding=1)(mg.zeros((2, 4, 10))).shape
    (2, 8, 10)
    """

    axes = 1

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int], stride: int | tuple[int] = 1,
        padding: int | tuple[int] | str = 0, dilation: int | tuple[int] = 1, groups: int = 1, bias: bool = True, *,
        device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, groups, bias, device, dtype, kernel_size=kernel_size, stride=stride,
            dilation=dilation, padding=padding,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, T)`` to ``(N, out_channels, P)``, or both without the N."""
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class ConvTranspose2d(_Conv):
    """The gradient of a convolution as a layer: each element of the input adds a weighted window to the output.

    Parameters
    ----------
    stride : int or pair of int
        The distance between windows: the factor by which the output is larger.
    padding, output_padding : int or pair of int
        Rows and columns to leave out on either side, and to add at the end; see `functional.conv_transpose2d`.
    in_channels, out_channels, kernel_size, groups, bias, dilation, device, dtype
        As in `Conv2d`.

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, *kernel_size)``, from U(−1/√n, 1/√n) with n weights per input channel.
    bias : Parameter or None
        ``(out_channels,)``, from the same distribution.

    Examples
    --------
    >>> mg.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)(mg.zeros((2, 16, 7, 7))).shape
    (2, 8, 14, 14)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1, padding: Pair = 0,
        output_padding: Pair = 0, groups: int = 1, bias: bool = True, dilation: Pair = 1, *,
        device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(
            in_channels, out_channels, groups, bias, device, dtype, kernel_size=kernel_size, stride=stride,
            padding=padding, output_padding=output_padding, dilation=dilation,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, out_channels, P, Q)``, or both without the N."""
        return F.conv_transpose2d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )
