"""Convolutional layers."""

import math

from minigrad.creation import empty
from minigrad.engine.dtype import DType
from minigrad.engine.ops.arguments import integer, pair
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter

Pair = int | tuple[int, int]


class Conv2d(Module):
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
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.

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
    >>> from minigrad import nn
    >>> nn.Conv2d(3, 16, 5, stride=2, padding=2)(mg.zeros((8, 3, 32, 32))).shape
    (8, 16, 16, 16)
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Pair, stride: Pair = 1, padding: Pair | str = 0,
        dilation: Pair = 1, groups: int = 1, bias: bool = True, *, device: str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_channels = in_channels = integer("Conv2d", "in_channels", in_channels, 1)
        self.out_channels = out_channels = integer("Conv2d", "out_channels", out_channels, 1)
        self.groups = groups = integer("Conv2d", "groups", groups, 1)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"[Conv2d] expected groups that divide the channels, got {groups} for {in_channels} and {out_channels}"
            )
        self.kernel_size = pair("Conv2d", "kernel_size", kernel_size, 1)
        self.stride = pair("Conv2d", "stride", stride, 1)
        self.dilation = pair("Conv2d", "dilation", dilation, 1)
        self.padding = padding if isinstance(padding, str) else pair("Conv2d", "padding", padding, 0)
        if isinstance(padding, str) and padding not in ("valid", "same"):
            raise ValueError(f'[Conv2d] expected "valid", "same" or integers for padding, got {padding!r}')
        if padding == "same" and self.stride != (1, 1):
            raise ValueError(f'[Conv2d] expected a stride of 1 with the padding "same", got {self.stride}')
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty(shape[:1], dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values for `weight` and `bias`."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in_channels, H, W)`` to ``(N, out_channels, P, Q)``, or both without the N."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        text += f", padding={self.padding!r}" if self.padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")
