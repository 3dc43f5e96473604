"""Layers for residual branches: a small learned scale of the branch, or a larger scale of the residual."""

from minigrad.arrays.creation import full
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.norm.row_norms import LayerNorm
from minigrad.nn.parameter import Parameter


class LayerScale(Module):
    """Scale each feature of a residual branch f: x + diag(λ) f(x), where λ is `weight`, ``(C,)``, and begins small.

    Touvron et al. 2021, https://arxiv.org/abs/2103.17239. The layer computes y = λ f(x) alone; the caller
    adds x.

    Raises ValueError for `num_features` below 1; when called, for an input with another last axis; TypeError when
    called, for an input of another dtype.

    Parameters
    ----------
    num_features : int
        C, the size of the last axis.
    init_values : float
        The initial value of λ: the paper has 0.1 for up to 18 layers, 1e-5 for 24, and 1e-6 for more.
    device, dtype
        As in `Linear`.

    Examples
    --------
    >>> mg.nn.LayerScale(2, init_values=0.5)(mg.tensor([[1.0, 3.0]]))
    tensor([[0.5, 1.5]], op=multiply)
    """

    _shown = "{num_features}, init_values={init_values}"

    def __init__(
        self, num_features: int, init_values: float = 1e-5, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__()
        self.num_features = integer("LayerScale", "num_features", num_features, 1)
        self.init_values = number("LayerScale", "init_values", init_values)
        self.weight = Parameter(full((self.num_features,), self.init_values, dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Set `weight` to `init_values`."""
        init.constant_(self.weight, self.init_values)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., C)`` to the same shape."""
        return F.layer_scale(x, self.weight)


class DeepNorm(LayerNorm):
    """Layer normalization of a residual connection with a larger residual: y = LN(α x + f(x)).

    Wang et al. 2022, https://arxiv.org/abs/2203.00555. The paper's α, and the gain β with which the branches
    are initialized, depend on the number of layers: `minigrad.nn.init.deep_norm_constants` computes them, and
    `minigrad.nn.init.deep_norm_` initializes a branch.

    Parameters
    ----------
    alpha : float
        α, the scale of the residual.
    normalized_shape, eps, elementwise_affine, bias, device, dtype
        As in `LayerNorm`, which also describes `weight` and `bias`.

    Raises
    ------
    ValueError
        As in `LayerNorm`, and for a negative `alpha`; when called, for a branch of another shape than the residual.
    TypeError
        When called, for a branch that is not an array of numbers or has another dtype.

    Examples
    --------
    >>> alpha, beta = mg.nn.init.deep_norm_constants(18)
    >>> branch = mg.nn.init.deep_norm_(mg.nn.Sequential(mg.nn.Linear(8, 32), mg.nn.ReLU(), mg.nn.Linear(32, 8)), beta)
    >>> norm, x = mg.nn.DeepNorm(8, alpha), mg.ones((2, 10, 8))
    >>> norm(x, branch(x)).shape
    (2, 10, 8)
    """

    def __init__(
        self, normalized_shape: int | tuple[int, ...] | list[int], alpha: float, eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, bias, device, dtype)
        self.alpha = number("DeepNorm", "alpha", alpha, 0)

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:  # type: ignore[override]
        """Map the residual x and f(x), both ``(..., *normalized_shape)``, to the same shape."""
        return F.deep_norm(x, branch, self.alpha, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, alpha={self.alpha}"
