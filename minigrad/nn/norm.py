"""Normalization layers: each standardizes over some axes, then scales and shifts.

They differ in the axes they standardize over, and agree on everything else: the biased variance, ε inside the root,
a gain of ones and a bias of zeros to begin with.
"""

from minigrad.creation import ones, zeros
from minigrad.engine.array import DType
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


class LayerNorm(Module):
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

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        if not shape or min(shape) < 1:
            raise ValueError(f"[LayerNorm] expected a normalized_shape of sizes of at least 1, got {normalized_shape}")
        if not eps >= 0:
            raise ValueError(f"[LayerNorm] expected eps >= 0, got {eps}")
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        weight = Parameter(ones(shape, dtype=dtype, device=device)) if elementwise_affine else None
        shift = Parameter(zeros(shape, dtype=dtype, device=device)) if elementwise_affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """Set γ to ones and β to zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """``(..., *normalized_shape)`` to the same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        bias = f", bias={self.bias is not None}" if self.elementwise_affine else ""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}{bias}"
