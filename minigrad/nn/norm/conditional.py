"""Modulation by a condition: a linear layer computes a scale and a shift for each channel of each sample."""

from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.layers.linear import Linear
from minigrad.nn.module import Module
from minigrad.nn.norm.row_norms import check_tensor


class _Modulation(Module):
    """Base class with the linear layer from a condition to two numbers per channel."""

    _shown = "{num_features}, {condition_features}"

    def __init__(self, num_features: int, condition_features: int, device: str | None, dtype: DTypeLike) -> None:
        super().__init__()
        name = type(self).__name__
        self.num_features = num_features = integer(name, "num_features", num_features, 1)
        self.condition_features = integer(name, "condition_features", condition_features, 1)
        self.linear = Linear(self.condition_features, 2 * num_features, device=device, dtype=dtype)

    def _check(self, x: Tensor, channels: int, layout: str, condition: Tensor) -> None:
        """Check the axis of the channels, and that there is a condition for each sample."""
        name = type(self).__name__
        check_tensor(name, x)
        if x.ndim < 2 or x.shape[channels] != self.num_features:
            raise ValueError(f"[{name}] expected an input of shape {layout}, got {x.shape}")
        if not isinstance(condition, Tensor):
            raise TypeError(f"[{name}] expected a tensor condition, got {kind_of(condition)}")
        shape = (x.shape[0], self.condition_features)
        if condition.shape != shape:
            raise ValueError(f"[{name}] expected a condition of shape {shape}, got {condition.shape}")

    def _halves(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        both = self.linear(condition)
        return both[:, : self.num_features], both[:, self.num_features :]


class FiLM(_Modulation):
    """Feature-wise linear modulation: y = (1 + Δγ) x + β for each channel, with Δγ and β computed from a condition.

    [Δγ, β] = W z + b for the condition z of each sample (Perez et al. 2018, https://arxiv.org/abs/1709.07871, equations
    1 and 2; the paper's models also predict γ − 1, so that outputs near 0 keep x as it is).

    Raises ValueError for sizes below 1; when called, for an input that is not ``(N, C, ...)`` or a condition that is
    not ``(N, D)``.

    Parameters
    ----------
    num_features : int
        C, the number of channels of x.
    condition_features : int
        D, the number of features of the condition.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    linear : Linear
        W, ``(2 C, D)``, and b, ``(2 C,)``: first the rows of Δγ, then those of β.

    Examples
    --------
    >>> images, condition = mg.ones((2, 3, 8, 8)), mg.ones((2, 5))
    >>> mg.nn.FiLM(3, 5)(images, condition).shape
    (2, 3, 8, 8)
    """

    def __init__(
        self, num_features: int, condition_features: int, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__(num_features, condition_features, device, dtype)

    def reset_parameters(self) -> None:
        """Draw new values for `linear`."""
        self.linear.reset_parameters()

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map ``(N, C, ...)`` to the same shape, with a condition ``(N, D)``."""
        self._check(x, 1, f"(N, {self.num_features}, ...)", condition)
        scale, shift = self._halves(condition)
        return F.film(x, 1 + scale, shift)


class AdaLN(_Modulation):
    """Adaptive layer normalization: the scale and shift of each sample are computed from a condition.

    y = (1 + γ) (x − μ) / √(σ² + ε) + β, with the mean μ and the biased variance σ² over the last axis, and
    [β, γ] = W silu(z) + b for the condition z of each sample (Peebles, Xie 2023, https://arxiv.org/abs/2212.09748,
    section 3.2, the block with adaLN). W and b are initialized to zeros, so the layer begins as a layer normalization
    without weight and bias. The paper's ε is 1e-6.

    Raises ValueError for sizes below 1 or a negative `eps`; when called, for an input that is not ``(N, ..., C)`` or a
    condition that is not ``(N, D)``.

    Parameters
    ----------
    num_features : int
        C, the size of the last axis of x.
    eps : float
        ε, added to the variance.
    condition_features, device, dtype
        As in `FiLM`.

    Attributes
    ----------
    linear : Linear
        W, ``(2 C, D)``, and b, ``(2 C,)``: first the rows of β, then those of γ, as in the authors' code.

    Examples
    --------
    >>> layer, x, condition = mg.nn.AdaLN(8, 5), mg.random.normal(0.0, 1.0, (2, 10, 8)), mg.ones((2, 5))
    >>> bool((layer(x, condition) == mg.nn.functional.layer_norm(x, 8)).all())
    True
    """

    _shown = "{num_features}, {condition_features}, eps={eps}"

    def __init__(
        self, num_features: int, condition_features: int, eps: float = 1e-5, device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, condition_features, device, dtype)
        self.eps = number("AdaLN", "eps", eps, 0)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight and bias of `linear` to zeros."""
        for parameter in self.linear.parameters():
            init.zeros_(parameter)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map ``(N, ..., C)`` to the same shape, with a condition ``(N, D)``."""
        self._check(x, -1, f"(N, ..., {self.num_features})", condition)
        shift, scale = self._halves(F.silu(condition))
        return F.adaptive_layer_norm(x, scale, shift, self.eps)
