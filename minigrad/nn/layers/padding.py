"""Layers that pad rows, columns or steps; each calls `functional.pad` with its mode."""

from typing import ClassVar

from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.module import Module

Widths = int | tuple[int, ...]


class _Pad(Module):
    """Base class with the widths: left, right, and top, bottom for images, or one for all."""

    _shown = "{padding}"
    axes: ClassVar[int] = 1
    mode: ClassVar[str] = "constant"
    value = 0.0

    def __init__(self, padding: Widths) -> None:
        super().__init__()
        name, count = type(self).__name__, 2 * self.axes
        widths = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * count
        if len(widths) != count:
            raise ValueError(f"[{name}] expected an integer or {count} of them for padding, got {padding}")
        self.padding = tuple(integer(name, "padding", n) for n in widths)

    def forward(self, x: Tensor) -> Tensor:
        """Pad the last axes of ``(N, C, H, W)`` or ``(N, C, T)``, or of both without the N."""
        return F.pad(x, self.padding, self.mode, self.value)


class ConstantPad1d(_Pad):
    """Surrounds each sequence with a value.

    Parameters
    ----------
    padding : int or pair of int
        How many steps before and after; a negative number removes steps.
    value : float

    Examples
    --------
    >>> mg.nn.ConstantPad1d((2, 0), 9.0)(mg.tensor([[1.0, 2.0]]))
    tensor([[9., 9., 1., 2.]])
    """

    _shown = "padding={padding}, value={value}"

    def __init__(self, padding: Widths, value: float) -> None:
        super().__init__(padding)
        self.value = number(type(self).__name__, "value", value)


class ConstantPad2d(ConstantPad1d):
    """Surrounds each image with a value.

    Parameters
    ----------
    padding : int or tuple of four int
        How many columns left and right, and rows above and below; a negative number removes some.
    value : float

    Examples
    --------
    >>> mg.nn.ConstantPad2d((1, 0, 0, 1), 9.0)(mg.tensor([[[1.0, 2.0]]]))
    tensor([[[9., 1., 2.],
             [9., 9., 9.]]])
    """

    axes = 2


class ZeroPad1d(_Pad):
    """Surrounds each sequence with zeros; `padding` as in `ConstantPad1d`.

    Examples
    --------
    >>> mg.nn.ZeroPad1d(1)(mg.tensor([[1.0, 2.0]]))
    tensor([[0., 1., 2., 0.]])
    """


class ZeroPad2d(_Pad):
    """Surrounds each image with zeros; `padding` as in `ConstantPad2d`.

    Examples
    --------
    >>> mg.nn.ZeroPad2d(2)(mg.zeros((8, 3, 28, 28))).shape
    (8, 3, 32, 32)
    """

    axes = 2


class ReflectionPad1d(_Pad):
    """Continues each sequence by its mirror image, without the step at the edge; `padding` as in `ConstantPad1d`.

    Examples
    --------
    >>> mg.nn.ReflectionPad1d(2)(mg.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 2., 1., 2., 3., 2., 1.]])
    """

    mode = "reflect"


class ReflectionPad2d(_Pad):
    """Continues each image by its mirror image, without the edge; `padding` as in `ConstantPad2d`.

    Examples
    --------
    >>> mg.nn.ReflectionPad2d((1, 1, 0, 0))(mg.tensor([[[1.0, 2.0]]]))
    tensor([[[2., 1., 2., 1.]]])
    """

    axes, mode = 2, "reflect"


class ReplicationPad1d(_Pad):
    """Repeats the first and the last step of each sequence; `padding` as in `ConstantPad1d`.

    Examples
    --------
    >>> mg.nn.ReplicationPad1d((1, 2))(mg.tensor([[1.0, 2.0]]))
    tensor([[1., 1., 2., 2., 2.]])
    """

    mode = "replicate"


class ReplicationPad2d(_Pad):
    """Repeats the edges of each image; `padding` as in `ConstantPad2d`.

    Examples
    --------
    >>> mg.nn.ReplicationPad2d((0, 0, 1, 1))(mg.tensor([[[1.0], [2.0]]])).tolist()
    [[[1.0], [1.0], [2.0], [2.0]]]
    """

    axes, mode = 2, "replicate"
