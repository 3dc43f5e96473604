"""Normalization layers without statistics of their own: each standardizes over some axes, then scales and shifts.

They differ in the axes they standardize over, and agree on everything else: the biased variance, ε inside the root,
a gain of ones and a bias of zeros to begin with. Those that may keep running statistics are in
`minigrad.nn.batch_norm`.

PyTorch's conventions hold by default. These arguments give those of Keras 3 and of Flax (linen and nnx), whose gains
and biases also begin with ones and zeros:

========================  ==========================  ==================================  ============================
layer                     PyTorch, the default here   Keras 3                             Flax
========================  ==========================  ==================================  ============================
BatchNorm1d, 2d           ``eps=1e-5, momentum=0.1``  ``eps=1e-3, momentum=0.01,          ``momentum=0.01,
                                                      unbiased_running_var=False``        unbiased_running_var=False``
LayerNorm                 ``eps=1e-5``                ``eps=1e-3``                        ``eps=1e-6``
GroupNorm                 ``eps=1e-5``                ``32, eps=1e-3``                    ``32, eps=1e-6``
InstanceNorm1d, 2d        ``eps=1e-5, affine=False``  ``eps=1e-3, affine=True``           ``eps=1e-6, affine=True``
RMSNorm                   ``eps=None`` (2⁻²³, 2⁻⁵²)   ``eps=1e-6``                        ``eps=1e-6``
no shift                  ``bias=False``              ``center=False``: ``bias=False``    ``use_bias=False``: the same
no gain                                               ``scale=False``: ``weight=False``   ``use_scale=False``: the same
neither                   ``affine=False``            ``affine=False``                    ``affine=False``
channels, features        axis 1; trailing axes       the last axis                       the last axis
========================  ==========================  ==================================  ============================

- Momentum: Keras and Flax state the weight of the old value, 0.99 by default, so that their m is 1 − m here. Their
  running variance follows the biased variance, PyTorch's the unbiased one; all three normalize with the biased one.
- Axes: ``x.moveaxis(-1, 1)`` brings the channels of Keras and Flax to where BatchNorm, GroupNorm and InstanceNorm look
  for them, ``y.moveaxis(1, -1)`` takes them back. LayerNorm and RMSNorm normalize trailing axes: ``LayerNorm(C)`` is
  ``axis=-1`` on ``(N, H, W, C)`` as it stands, ``LayerNorm((H, W, C))`` is ``axis=[1, 2, 3]``.
- "affine" is `elementwise_affine` in LayerNorm and RMSNorm; the latter has no shift anywhere, nor a gain with
  ``elementwise_affine=False``, Flax's ``use_scale=False``. Keras's InstanceNorm is its
  ``GroupNormalization(groups=-1)``.

Squares are summed in the dtype of the input. Where they overflow, in float32 from 1e17 on and in float64 from 1e150 on,
the row, group or channel becomes β (in RMSNorm 0), and nothing but β has a gradient there; where the deviations
themselves overflow, near the largest numbers, it may become NaN. With ε = 0 it becomes NaN where it is constant (in
RMSNorm, where it is 0), and loses digits where deviations are so small that their squares are no normal numbers, below
1e-19 in float32 and 1e-154 in float64. NaN and infinity stay in the row, group or channel in which they are.
"""

from minigrad.creation import ones, zeros
from minigrad.engine.dtype import DType
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


class Affine(Module):
    """The map behind a normalization: a gain γ and a shift β, either of which may be missing."""

    weight: Parameter | None
    bias: Parameter | None

    def add_affine(
        self, shape: int | tuple[int, ...], weight: bool, bias: bool, device: str | None, dtype: DType | str | None
    ) -> None:
        """Register γ and β, or None in their places."""
        gain = Parameter(ones(shape, dtype=dtype, device=device)) if weight else None
        shift = Parameter(zeros(shape, dtype=dtype, device=device)) if bias else None
        self.register_parameter("weight", gain)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """Set γ to ones and β to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def affine_repr(self, affine: bool) -> str:
        """What `extra_repr` says of γ and β: of γ only if it is missing, which PyTorch does not know."""
        return f", bias={self.bias is not None}" + (", weight=False" if affine and self.weight is None else "")


class LayerNorm(Affine):
    """Layer normalization over the trailing axes, each sample by itself.

    y = (x − μ) / √(σ² + ε) · γ + β, with mean μ and biased variance σ² over the last ``len(normalized_shape)`` axes
    (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equations 3 and 4). It does the same in training and in
    evaluation.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape to normalize over.
    eps : float
        ε, added to the variance.
    elementwise_affine : bool
        Whether there are γ and β, one of each per element.
    bias : bool
        Whether there is a β; of no effect without `elementwise_affine`.
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.
    weight : bool
        Whether there is a γ; of no effect without `elementwise_affine`. Without it a shift alone remains, as with
        ``scale=False`` in Keras.

    Attributes
    ----------
    weight : Parameter or None
        γ, of `normalized_shape`, ones.
    bias : Parameter or None
        β, of `normalized_shape`, zeros.

    Raises
    ------
    ValueError
        For an empty `normalized_shape`, a negative `eps`; when called, for an input with another trailing shape.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> y = nn.LayerNorm(2)(mg.tensor([[1.0, 3.0], [50.0, 10.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[-1.0, 1.0], [1.0, -1.0]]
    """

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: str | None = None, dtype: DType | str | None = None, *, weight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = _shape("LayerNorm", normalized_shape)
        self.normalized_shape, self.elementwise_affine = shape, elementwise_affine
        self.eps = number("LayerNorm", "eps", eps, 0)
        self.add_affine(shape, elementwise_affine and weight, elementwise_affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., *normalized_shape)`` to the same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = self.affine_repr(True) if self.elementwise_affine else ""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}{affine}"


class RMSNorm(Module):
    """Root mean square normalization over the trailing axes, each sample by itself: layer normalization less the mean.

    y = x / √(mean(x²) + ε) · γ, with the mean over the last ``len(normalized_shape)`` axes (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4). It does the same in training and in evaluation.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The trailing shape to normalize over.
    eps : float or None
        ε, added to the mean square; None for the machine epsilon of the input's dtype.
    elementwise_affine : bool
        Whether there is a γ, one per element.
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.

    Attributes
    ----------
    weight : Parameter or None
        γ, of `normalized_shape`, ones.

    Raises
    ------
    ValueError
        For an empty `normalized_shape`, a negative `eps`; when called, for an input with another trailing shape.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> y = nn.RMSNorm(2)(mg.tensor([[3.0, 4.0], [-7.0, 1.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[0.849, 1.131], [-1.4, 0.2]]
    """

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], eps: float | None = None,
        elementwise_affine: bool = True, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = _shape("RMSNorm", normalized_shape)
        self.normalized_shape, self.elementwise_affine = shape, elementwise_affine
        self.eps = None if eps is None else number("RMSNorm", "eps", eps, 0)
        weight = Parameter(ones(shape, dtype=dtype, device=device)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def reset_parameters(self) -> None:
        """Set γ to ones."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., *normalized_shape)`` to the same shape."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Affine):
    """Group normalization: the channels of each sample in groups, each group by itself.

    y = (x − μ) / √(σ² + ε) · γ + β, with mean μ and biased variance σ² over the channels of a group and all axes behind
    them (Wu, He 2018, https://arxiv.org/abs/1803.08494, equations 1 to 7). γ and β are per channel, so that one
    group is not quite `LayerNorm`, whose are per element. It does the same in training and in evaluation.

    Parameters
    ----------
    num_groups : int
        The number of groups; it divides `num_channels`.
    num_channels : int
        C, the size of the second axis.
    eps : float
        ε, added to the variance.
    affine : bool
        Whether there are γ and β.
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.
    bias : bool
        Whether there is a β; of no effect without `affine`.
    weight : bool
        Whether there is a γ; of no effect without `affine`. Without it a shift alone remains, as with
        ``scale=False`` in Keras.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``: γ, ones, and β, zeros.

    Raises
    ------
    ValueError
        For sizes below 1, groups that do not divide the channels, a negative `eps`; when called, for an input that is
        not ``(N, C, ...)``.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> y = nn.GroupNorm(2, 4)(mg.tensor([[1.0, 3.0, 50.0, 10.0]]))
    >>> [round(value, 3) for value in y[0].tolist()]
    [-1.0, 1.0, 1.0, -1.0]
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: str | None = None, dtype: DType | str | None = None, *, bias: bool = True, weight: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        num_groups, num_channels = (
            integer("GroupNorm", name, value, 1)
            for name, value in (("num_groups", num_groups), ("num_channels", num_channels))
        )
        if num_channels % num_groups:
            raise ValueError(
                f"[GroupNorm] expected groups that divide the channels, got {num_groups} and {num_channels}"
            )
        self.num_groups, self.num_channels, self.affine = num_groups, num_channels, affine
        self.eps = number("GroupNorm", "eps", eps, 0)
        self.add_affine(num_channels, affine and weight, affine and bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``(N, num_channels, ...)`` to the same shape."""
        check_tensor("GroupNorm", x)
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ValueError(f"[GroupNorm] expected an input (N, {self.num_channels}, ...), got {x.shape}")
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
            f"{self.affine_repr(self.affine)}"
        )


def check_tensor(op: str, x: object) -> None:
    """Refuse what has no shape to check."""
    if not hasattr(x, "ndim"):
        raise TypeError(f"[{op}] expected a tensor, got {type(x).__name__}")


def _shape(op: str, normalized_shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    sizes = normalized_shape if isinstance(normalized_shape, tuple | list) else [normalized_shape]
    if not sizes:
        raise ValueError(f"[{op}] expected a normalized_shape of at least one axis, got {normalized_shape}")
    return tuple(integer(op, "normalized_shape", size, 1) for size in sizes)
