"""Convolutional layers."""

import math

from minigrad.creation import empty
from minigrad.engine.dtype import DType
from minigrad.engine.ops.arguments import integer, pair, single
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter

Pair = int | tuple[int, int]


class _Conv(Module):
    """Base class of convolutions, with the initial values of `weight` and `bias`."""

    weight: Parameter
    bias: Parameter | None

    def _add_parameters(
        self, shape: tuple[int, ...], outputs: int, bias: bool, device: str | None, dtype: DType | str | None
    ) -> None:
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(outputs, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def _check_channels(self, in_channels: int, out_channels: int, groups: int) -> None:
        name = type(self).__name__
        self.in_channels = integer(name, "in_channels", in_channels, 1)
        self.out_channels = integer(name, "out_channels", out_channels, 1)
        self.groups = integer(name, "groups", groups, 1)
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"[{name}] expected groups that divide the channels, got {self.groups} for {self.in_channels} and "
                f"{self.out_channels}"
            )

    def reset_parameters(self) -> None:
        """Draw new values for `weight` and `bias`."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)


class Conv2d(_Conv):
    """y = x ⋆ W + b: each output channel is a weighted sum of a window that moves over all input channels.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output; both must be divisible by `groups`.
    kernel_size : int or pair of int
        Rows and columns of a window.
    stride, dilation : int or pair of int
        The distance between windows, and between the elements of one window.
    padding : int, pair of int, "valid" or "same"
        Zeros added on either side; see `functional.conv2d`.
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

    Raises
    ------
    ValueError
        For sizes below 1, and groups that do not divide the channels; when called, for an input that has another number
        of channels or is smaller than a window.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.Conv2d(3, 16, 5, stride=2, padding=2)(mg.zeros((8, 3, 32, 32))).shape
    (8, 16, 16, 16)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1, padding: Pair | str = 0,
        dilation: Pair = 1, groups: int = 1, bias: bool = True, *, device: str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._check_channels(in_channels, out_channels, groups)
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size, 1)
        self.stride = pair("Conv2d", "stride", stride, 1)
        self.dilation = pair("Conv2d", "dilation", dilation, 1)
        self.padding = padding if isinstance(padding, str) else pair("Conv2d", "padding", padding, 0)
        if isinstance(padding, str) and padding not in ("valid", "same"):
            raise ValueError(f'[Conv2d] expected "valid", "same" or integers for padding, got {padding!r}')
        if padding == "same" and self.stride != (1, 1):
            raise ValueError(f'[Conv2d] expected a stride of 1 with the padding "same", got {self.stride}')
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self._add_parameters(shape, self.out_channels, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, out_channels, P, Q)``, or both without the N."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")


class Conv1d(_Conv):
    """`Conv2d` of sequences: a window moves over T steps of all input channels.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output; both must be divisible by `groups`.
    kernel_size : int
        The steps of a window.
    stride, dilation : int
        The distance between windows, and between the elements of one window.
    padding : int, "valid" or "same"
        Zeros added on either side.
    groups : int
        The number of groups of channels; each output channel reads only the input channels of its group.
    bias : bool
        Whether to add b.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    weight : Parameter
        ``(out_channels, in_channels / groups, kernel_size)``, with initial values as in `Conv2d`.
    bias : Parameter or None
        ``(out_channels,)``.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.Conv1d(4, 8, 3, padding=1)(mg.zeros((2, 4, 10))).shape
    (2, 8, 10)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int | tuple[int], stride: int | tuple[int] = 1,
        padding: int | tuple[int] | str = 0, dilation: int | tuple[int] = 1, groups: int = 1, bias: bool = True, *,
        device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._check_channels(in_channels, out_channels, groups)
        self.kernel_size = (single("Conv1d", "kernel_size", kernel_size, 1),)
        self.stride = (single("Conv1d", "stride", stride, 1),)
        self.dilation = (single("Conv1d", "dilation", dilation, 1),)
        self.padding = padding if isinstance(padding, str) else (single("Conv1d", "padding", padding, 0),)
        if isinstance(padding, str) and padding not in ("valid", "same"):
            raise ValueError(f'[Conv1d] expected "valid", "same" or an integer for padding, got {padding!r}')
        if padding == "same" and self.stride != (1,):
            raise ValueError(f'[Conv1d] expected a stride of 1 with the padding "same", got {self.stride}')
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self._add_parameters(shape, self.out_channels, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, T)`` to ``(N, out_channels, P)``, or both without the N."""
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding != (0,) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1,) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")


class ConvTranspose2d(_Conv):
    """The gradient of a convolution as a layer: each element of the input adds a weighted window to the output.

    Parameters
    ----------
    in_channels, out_channels : int
        Channels of input and output; both must be divisible by `groups`.
    kernel_size : int or pair of int
        Rows and columns of a window.
    stride : int or pair of int
        The distance between windows: the factor by which the output is larger.
    padding, output_padding : int or pair of int
        Rows and columns to leave out on either side, and to add at the end; see `functional.conv_transpose2d`.
    groups : int
        The number of groups of channels.
    bias : bool
        Whether to add b.
    dilation : int or pair of int
        The distance between the elements of one window.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    weight : Parameter
        ``(in_channels, out_channels / groups, *kernel_size)``, from U(−1/√n, 1/√n) with n weights per input channel.
    bias : Parameter or None
        ``(out_channels,)``, from the same distribution.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)(mg.zeros((2, 16, 7, 7))).shape
    (2, 8, 14, 14)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1, padding: Pair = 0,
        output_padding: Pair = 0, groups: int = 1, bias: bool = True, dilation: Pair = 1, *,
        device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._check_channels(in_channels, out_channels, groups)
        self.kernel_size = pair("ConvTranspose2d", "kernel_size", kernel_size, 1)
        self.stride = pair("ConvTranspose2d", "stride", stride, 1)
        self.padding = pair("ConvTranspose2d", "padding", padding, 0)
        self.output_padding = pair("ConvTranspose2d", "output_padding", output_padding, 0)
        self.dilation = pair("ConvTranspose2d", "dilation", dilation, 1)
        shape = (self.in_channels, self.out_channels // self.groups, *self.kernel_size)
        self._add_parameters(shape, self.out_channels, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, out_channels, P, Q)``, or both without the N."""
        return F.conv_transpose2d(
            x, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding}" if self.padding != (0, 0) else ""
        text += f", output_padding={self.output_padding}" if self.output_padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")
