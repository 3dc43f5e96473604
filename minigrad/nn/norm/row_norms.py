"""Normalization layers without running statistics: each standardizes over some axes, then scales and shifts.

They differ only in the axes they standardize over: all use the biased variance, add ε inside the square root, and
initialize the weight to ones and the bias to zeros. Layers that can keep running statistics are in
`minigrad.nn.norm.batch_norm`. docs/reference/conventions.md lists the arguments for Keras's and Flax's conventions.
"""

import math

from minigrad.arrays.creation import ones, zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


class Affine(Module):
    """Base class with the affine map after a normalization: `weight` (γ) and `bias` (β), each of which may be None."""

    weight: Parameter | None
    bias: Parameter | None

    def add_affine(
        self, shape: int | tuple[int, ...], weight: bool, bias: bool, device: str | None, dtype: DTypeLike
    ) -> None:
        """Register `weight` and `bias`, each None if it is not wanted."""
        gain = Parameter(ones(shape, dtype=dtype, device=device)) if weight else None
        shift = Parameter(zeros(shape, dtype=dtype, device=device)) if bias else None
        self.register_parameter("weight", gain)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """Set `weight` to ones and `bias` to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def affine_repr(self, affine: bool) -> str:
        """Return the part of `extra_repr` about `weight` and `bias`: `weight` only if it is missing, unlike PyTorch."""
        return f", bias={self.bias is not None}" + (", weight=False" if affine and self.weight is None else "")


class LayerNorm(Affine):
    """Layer normalization of each sample over the trailing axes.

    y = (x − μ) / √(σ² + ε) · γ + β, with the mean μ and the biased variance σ² over the last ``len(normalized_shape)``
    axes (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equations 3 and 4); γ is `weight` and β is `bias`.
    Training and evaluation are the same.

    Raises ValueError for an empty `normalized_shape` or a negative `eps`; when called, for an input with another
    trailing shape.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape to normalize over.
    eps : float
        ε, added to the variance.
    elementwise_affine : bool
        Whether the layer has a `weight` and a `bias`, with one entry per element.
    bias : bool
        Whether there is a `bias`; has no effect without `elementwise_affine`.
    device, dtype
        As in `Linear`.
    weight : bool
        Whether there is a `weight`; has no effect without `elementwise_affine`. Without it only the bias is added, as
        with ``scale=False`` in Keras.

    Attributes
    ----------
    weight : Parameter or None
        γ, of shape `normalized_shape`, initialized to ones.
    bias : Parameter or None
        β, of shape `normalized_shape`, initialized to zeros.

    Examples
    --------
    >>> y = mg.nn.LayerNorm(2)(mg.tensor([[1.0, 3.0], [50.0, 10.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[-1.0, 1.0], [1.0, -1.0]]
    """

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: str | None = None, dtype: DTypeLike = None, *, weight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        shape = _shape(name, normalized_shape)
        self.normalized_shape, self.elementwise_affine = shape, elementwise_affine
        self.eps = number(name, "eps", eps, 0)
        self.add_affine(shape, elementwise_affine and weight, elementwise_affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., *normalized_shape)`` to the same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = self.affine_repr(True) if self.elementwise_affine else ""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}{affine}"


class RMSNorm(Module):
    """Root mean square normalization of each sample over the trailing axes: layer normalization without the mean.

    y = x / √(mean(x²) + ε) · γ, with the mean over the last ``len(normalized_shape)`` axes (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4); γ is `weight`, of shape `normalized_shape`, initialized to ones.
    Training and evaluation are the same.

    Raises ValueError for an empty `normalized_shape` or a negative `eps`; when called, for an input with another
    trailing shape.

    Parameters
    ----------
    normalized_shape, elementwise_affine, device, dtype
        As in `LayerNorm`, without a `bias`.
    eps : float or None
        ε, added to the mean square; None for the machine epsilon of the input's dtype.

    Examples
    --------
    >>> y = mg.nn.RMSNorm(2)(mg.tensor([[3.0, 4.0], [-7.0, 1.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[0.849, 1.131], [-1.4, 0.2]]
    """

    weight: Parameter | None
    _shown = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}"

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], eps: float | None = None,
        elementwise_affine: bool = True, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = _shape("RMSNorm", normalized_shape)
        self.normalized_shape, self.elementwise_affine = shape, elementwise_affine
        self.eps = None if eps is None else number("RMSNorm", "eps", eps, 0)
        weight = Parameter(ones(shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self) -> None:
        """Set `weight` to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., *normalized_shape)`` to the same shape."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class ScaleNorm(Module):
    """Normalization of each sample to one learned length: root mean square normalization with a single weight.

    y = g x / √(‖x‖² + ε), with the norm over the last axis (Nguyen, Salazar 2019, https://arxiv.org/abs/1910.05895,
    without an ε); g is `weight`, ``()``, initialized to √C. Training and evaluation are the same.

    Raises ValueError for `num_features` below 1 or a negative `eps`; when called, for an input with another last axis.

    Parameters
    ----------
    num_features : int
        C, the size of the last axis.
    eps : float
        ε, added to the squared norm.
    device, dtype
        As in `Linear`.

    Examples
    --------
    >>> y = mg.nn.ScaleNorm(4)(mg.tensor([[3.0, 0.0, 0.0, 4.0]]))
    >>> [round(value, 3) for value in y[0].tolist()]
    [1.2, 0.0, 0.0, 1.6]
    """

    _shown = "{num_features}, eps={eps}"

    def __init__(
        self, num_features: int, eps: float = 1e-5, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__()
        self.num_features = integer("ScaleNorm", "num_features", num_features, 1)
        self.eps = number("ScaleNorm", "eps", eps, 0)
        self.weight = Parameter(ones((), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `weight` to √C."""
        init.constant_(self.weight, math.sqrt(self.num_features))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., C)`` to the same shape."""
        check_tensor("ScaleNorm", x)
        if x.shape[-1:] != (self.num_features,):
            raise ValueError(f"[ScaleNorm] expected an input of shape (..., {self.num_features}), got {x.shape}")
        return F.scale_norm(x, self.weight, self.eps)


class DyT(Affine):
    """Dynamic tanh, in place of a normalization: y = tanh(α x) · γ + β.

    Zhu, Chen, He, LeCun, Liu 2025, https://arxiv.org/abs/2503.10622, section 4. It computes no statistics: every
    element of x is squashed by itself, with one learned α. Training and evaluation are the same. Raises ValueError for
    an empty `normalized_shape`; when called, for an input with another trailing shape.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape of γ and β.
    init_alpha : float
        The initial value of α.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    alpha : Parameter
        ``(1,)``: α.
    weight, bias : Parameter
        γ and β, of shape `normalized_shape`, initialized to ones and zeros.

    Examples
    --------
    >>> y = mg.nn.DyT(3)(mg.tensor([[-20.0, 0.0, 1.0]]))
    >>> [round(value, 3) for value in y[0].tolist()]
    [-1.0, 0.0, 0.462]
    """

    _shown = "{normalized_shape}, init_alpha={init_alpha}"

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], init_alpha: float = 0.5, device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = shape = _shape("DyT", normalized_shape)
        self.init_alpha = number("DyT", "init_alpha", init_alpha)
        self.alpha = Parameter(ones((1,), dtype=dtype, device=device))
        self.add_affine(shape, True, True, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `alpha` to `init_alpha`, `weight` to ones and `bias` to zeros."""
        super().reset_parameters()
        init.constant_(self.alpha, self.init_alpha)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., *normalized_shape)`` to the same shape."""
        return F.dynamic_tanh(x, self.alpha, self.weight, self.bias)


class GroupNorm(Affine):
    """Group normalization: normalizes each group of channels of each sample separately.

    y = (x − μ) / √(σ² + ε) · γ + β, with the mean μ and the biased variance σ² over the channels of a group and all
    later axes (Wu, He 2018, https://arxiv.org/abs/1803.08494, equations 1 to 7). γ (`weight`) and β (`bias`) are
    ``(C,)``, initialized to ones and zeros. They are per channel, so one group is not quite `LayerNorm`, where they are
    per element. Training and evaluation are the same.

    Raises ValueError for sizes below 1, groups that do not divide the channels, or a negative `eps`; when called, for
    an input that is not ``(N, C, ...)``.

    Parameters
    ----------
    num_groups : int
        The number of groups; it divides `num_channels`.
    num_channels : int
        C, the size of the second axis.
    eps : float
        ε, added to the variance.
    affine, bias, weight, device, dtype
        As in `LayerNorm`, where `affine` is `elementwise_affine`.

    Examples
    --------
    >>> y = mg.nn.GroupNorm(2, 4)(mg.tensor([[1.0, 3.0, 50.0, 10.0]]))
    >>> [round(value, 3) for value in y[0].tolist()]
    [-1.0, 1.0, 1.0, -1.0]
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: str | None = None, dtype: DTypeLike = None, *, bias: bool = True, weight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        num_groups, num_channels = (
            integer("GroupNorm", name, value, 1)
            for name, value in (("num_groups", num_groups), ("num_channels", num_channels))
        )
        if num_channels % num_groups:
            raise ValueError(f"[GroupNorm] expected groups that divide channels, got {num_groups} and {num_channels}")
        self.num_groups, self.num_channels, self.affine = num_groups, num_channels, affine
        self.eps = number("GroupNorm", "eps", eps, 0)
        self.add_affine(num_channels, affine and weight, affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, num_channels, ...)`` to the same shape."""
        check_tensor("GroupNorm", x)
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(f"[GroupNorm] expected an input of shape (N, {self.num_channels}, ...), got {x.shape}")
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
            f"{self.affine_repr(self.affine)}"
        )


def check_tensor(op: str, x: object) -> None:
    """Reject a value that has no shape to check."""
    if not hasattr(x, "ndim"):
        raise TypeError(f"[{op}] expected a tensor, got {kind_of(x)}")


def _shape(op: str, normalized_shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    sizes = normalized_shape if isinstance(normalized_shape, tuple | list) else [normalized_shape]
    if not sizes:
        raise ValueError(f"[{op}] expected a normalized_shape of at least one axis, got {normalized_shape}")
    return tuple(integer(op, "normalized_shape", size, 1) for size in sizes)
