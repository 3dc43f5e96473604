"""Linear layers."""

import math

from minigrad.arrays.creation import empty
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


class Weighted(Module):
    """Base class of layers with a weight (outputs, inputs of each, ...) and a bias, and PyTorch's initial values."""

    weight: Parameter
    bias: Parameter | None

    def _add_parameters(
        self, shape: tuple[int, ...], outputs: int, bias: bool, device: str | None, dtype: DTypeLike
    ) -> None:
        self.weight = Parameter(empty(shape, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(empty((outputs,), dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values for `weight` and `bias`."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(math.prod(self.weight.shape[1:]))
            init.uniform_(self.bias, -bound, bound)


class Linear(Weighted):
    """y = x Wᵀ + b over the last axis.

    Raises ValueError for sizes below 1; when called, for a last axis that is not `in_features`.

    Parameters
    ----------
    in_features, out_features : int
        Sizes of the last axis of input and output.
    bias : bool
        Whether to add b.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight : Parameter
        ``(out_features, in_features)``, from U(−1/√in_features, 1/√in_features): PyTorch's default, the initialization
        of He et al. (arXiv:1502.01852) for a leaky ReLU of slope √5.
    bias : Parameter or None
        ``(out_features,)``, from the same distribution.

    Examples
    --------
    >>> mg.nn.Linear(20, 30)(mg.zeros((128, 20))).shape
    (128, 30)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__()
        self.in_features = in_features = integer("Linear", "in_features", in_features, 1)
        self.out_features = out_features = integer("Linear", "out_features", out_features, 1)
        self._add_parameters((out_features, in_features), out_features, bias, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., in_features)`` to ``(..., out_features)``."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
