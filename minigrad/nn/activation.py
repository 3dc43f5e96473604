"""Activations as modules; each calls the function of the same name in `minigrad.nn.functional`."""

from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.module import Module


class _Elementwise(Module):
    """Base class of activations that accept PyTorch's `inplace`; the result is a new tensor regardless."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()


class ReLU(_Elementwise):
    """max(x, 0), element by element.

    Parameters
    ----------
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.ReLU()(mg.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class LeakyReLU(_Elementwise):
    """x where x > 0, else `negative_slope` · x.

    Parameters
    ----------
    negative_slope : float
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.LeakyReLU(0.5)(mg.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(_Elementwise):
    """x where x > 0, else α (eˣ − 1) (Clevert et al. 2015, https://arxiv.org/abs/1511.07289).

    Parameters
    ----------
    alpha : float
        α.
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.ELU()(mg.tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = number("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Module):
    """x Φ(x), with Φ the standard normal distribution function, in the exact form x (1 + erf(x / √2)) / 2.

    Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> round(nn.GELU()(mg.tensor(1.0)).item(), 4)
    0.8413
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


class SiLU(_Elementwise):
    """x σ(x), also called swish (https://arxiv.org/abs/1702.03118).

    Parameters
    ----------
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> round(nn.SiLU()(mg.tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Softplus(Module):
    """log(1 + eˣ), computed without overflow.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.Softplus()(mg.tensor([-1000.0, 1000.0])).tolist()
    [0.0, 1000.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x)


class Tanh(Module):
    """tanh x, element by element.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.Tanh()(mg.tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class Sigmoid(Module):
    """σ(x) = 1 / (1 + e⁻ˣ), element by element.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.Sigmoid()(mg.tensor([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Hardsigmoid(_Elementwise):
    """min(max(x/6 + 1/2, 0), 1): a piecewise linear approximation of the sigmoid.

    Parameters
    ----------
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.Hardsigmoid()(mg.tensor([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


def last_axis(op: str, axis: int | None, dim: int | None) -> int:
    """Return the axis, given as `axis` or as `dim`; −1 if neither is given."""
    if axis is not None and dim is not None:
        raise TypeError(f"[{op}] expected axis or dim, which are the same argument, got both")
    if dim is not None:
        return integer(op, "dim", dim)
    return -1 if axis is None else integer(op, "axis", axis)


class Softmax(Module):
    """eˣ / Σ eˣ along one axis.

    Parameters
    ----------
    axis, dim : int, optional
        The axis whose elements sum to one, under either name; the last one by default.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.Softmax()(mg.zeros((1, 4))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, axis: int | None = None, dim: int | None = None) -> None:
        super().__init__()
        self.axis = last_axis("Softmax", axis, dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"


class LogSoftmax(Module):
    """x − log Σ eˣ along one axis, computed without overflow.

    Parameters
    ----------
    axis, dim : int, optional
        The axis along which eʸ sums to one, under either name; the last one by default.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.LogSoftmax()(mg.tensor([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """

    def __init__(self, axis: int | None = None, dim: int | None = None) -> None:
        super().__init__()
        self.axis = last_axis("LogSoftmax", axis, dim)

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.axis)

    def extra_repr(self) -> str:
        return f"axis={self.axis}"
