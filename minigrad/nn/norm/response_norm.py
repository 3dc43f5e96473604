"""Filter response normalization and its activation, a ReLU with a learned threshold."""

from minigrad.arrays.creation import zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.norm.row_norms import Affine, check_tensor
from minigrad.nn.parameter import Parameter


class FilterResponseNorm2d(Affine):
    """Filter response normalization: each channel of each image is divided by its root mean square.

    y = x / √(ν² + ε) · γ + β, where ν² is the mean of x² over the positions (Singh, Krishnan 2020,
    https://arxiv.org/abs/1911.09737); γ is `weight` and β is `bias`, ``(C,)``, initialized to ones and zeros. As no
    mean is subtracted, the paper follows it by `TLU` instead of a ReLU. With few positions, increase ε: with one, y is
    close to the sign of x times γ, plus β. Training and evaluation are the same.

    Raises ValueError for `num_features` below 1 or a negative `eps`; when called, for an input that is not
    ``(N, C, H, W)``.

    Parameters
    ----------
    num_features : int
        C, the number of channels.
    eps : float
        ε, added to the mean square.
    device, dtype
        As in `Linear`.

    Examples
    --------
    >>> block = mg.nn.Sequential(mg.nn.Conv2d(3, 6, 5), mg.nn.FilterResponseNorm2d(6), mg.nn.TLU(6))
    >>> block(mg.random.normal(0.0, 1.0, (8, 3, 28, 28))).shape
    (8, 6, 24, 24)
    """

    _shown = "{num_features}, eps={eps}"

    def __init__(
        self, num_features: int, eps: float = 1e-6, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__()
        self.num_features = integer("FilterResponseNorm2d", "num_features", num_features, 1)
        self.eps = number("FilterResponseNorm2d", "eps", eps, 0)
        self.add_affine(self.num_features, True, True, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to the same shape."""
        check_tensor("FilterResponseNorm2d", x)
        if x.ndim != 4 or x.shape[1] != self.num_features:
            expected = f"(N, {self.num_features}, H, W)"
            raise ValueError(f"[FilterResponseNorm2d] expected an input of shape {expected}, got {x.shape}")
        return F.filter_response_norm(x, self.weight, self.bias, eps=self.eps)


class TLU(Module):
    """Thresholded linear unit: y = max(x, τ), with a learned threshold τ per channel.

    Singh, Krishnan 2020, https://arxiv.org/abs/1911.09737. τ is `threshold`, ``(C,)``. With τ = 0, the initial value,
    it is a ReLU.

    Raises ValueError for `num_features` below 1; when called, for an input that is not ``(N, C, ...)``; TypeError when
    called, for an input of another dtype. Parameters are as in `FilterResponseNorm2d`.

    Examples
    --------
    >>> mg.nn.TLU(2)(mg.tensor([[1.0, -3.0]])).tolist()
    [[1.0, 0.0]]
    """

    _shown = "{num_features}"

    def __init__(self, num_features: int, device: str | None = None, dtype: DTypeLike = None) -> None:
        super().__init__()
        self.num_features = integer("TLU", "num_features", num_features, 1)
        self.threshold = Parameter(zeros((self.num_features,), dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Set `threshold` to zeros."""
        init.zeros_(self.threshold)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, ...)`` to the same shape."""
        return F.tlu(x, self.threshold)
