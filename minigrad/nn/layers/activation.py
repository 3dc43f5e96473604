"""Activations as modules; each calls the function of the same name in `minigrad.nn.functional`."""

from minigrad.arrays.creation import full
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.functional import bounds
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


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
    >>> mg.nn.ReLU()(mg.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class LeakyReLU(_Elementwise):
    """x where x > 0, else `negative_slope` · x; `inplace` as in `ReLU`.

    Examples
    --------
    >>> mg.nn.LeakyReLU(0.5)(mg.tensor([-1.0, 2.0])).tolist()
    [-0.5, 2.0]
    """

    _shown = "negative_slope={negative_slope}"

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = number("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope)


class ELU(_Elementwise):
    """x where x > 0, else α (eˣ − 1), where α is `alpha` (Clevert et al. 2015, https://arxiv.org/abs/1511.07289).

    `inplace` is as in `ReLU`.

    Examples
    --------
    >>> mg.nn.ELU()(mg.tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    _shown = "alpha={alpha}"

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = number("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha)


class GELU(Module):
    """x Φ(x), with Φ the standard normal distribution function (Hendrycks, Gimpel 2016, https://arxiv.org/abs/1606.08415).

    Parameters
    ----------
    approximate : {"none", "tanh"}
        "none" is the exact form x (1 + erf(x / √2)) / 2; "tanh" is the approximation in GPT-2,
        x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.

    Examples
    --------
    >>> round(mg.nn.GELU()(mg.tensor(1.0)).item(), 4), round(mg.nn.GELU(approximate="tanh")(mg.tensor(1.0)).item(), 4)
    (0.8413, 0.8412)
    """

    _shown = "approximate={approximate!r}"

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"[GELU] expected approximate 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)


class SiLU(_Elementwise):
    """x σ(x), also called swish (https://arxiv.org/abs/1702.03118); `inplace` as in `ReLU`.

    Examples
    --------
    >>> round(mg.nn.SiLU()(mg.tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x)


class Softplus(Module):
    """log(1 + exp(β x)) / β, computed without overflow.

    Parameters
    ----------
    beta : float
        β, not 0.
    threshold : float, optional
        The result is x where β x exceeds it; see `functional.softplus`.

    Examples
    --------
    >>> mg.nn.Softplus()(mg.tensor([-1000.0, 1000.0])).tolist()
    [0.0, 1000.0]
    """

    _shown = "beta={beta}, threshold={threshold}"

    def __init__(self, beta: float = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta = number("Softplus", "beta", beta)
        self.threshold = None if threshold is None else number("Softplus", "threshold", threshold)
        if self.beta == 0:
            raise ValueError("[Softplus] expected a beta other than 0, got 0")

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)


class LogSigmoid(Module):
    """log σ(x) = −log(1 + e⁻ˣ), computed without overflow.

    Examples
    --------
    >>> mg.nn.LogSigmoid()(mg.tensor([-1000.0, 1000.0])).tolist()
    [-1000.0, -0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class Mish(_Elementwise):
    """x tanh(log(1 + eˣ)) (Misra 2019, https://arxiv.org/abs/1908.08681); `inplace` as in `ReLU`.

    Examples
    --------
    >>> round(mg.nn.Mish()(mg.tensor(1.0)).item(), 4)
    0.8651
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)


class SELU(_Elementwise):
    """λ x where x > 0, else λ α (eˣ − 1), with λ = 1.0507… and α = 1.6732… (https://arxiv.org/abs/1706.02515).

    Klambauer et al. 2017: with these numbers, layers of normal weights keep mean 0 and variance 1. `inplace` is as in
    `ReLU`.

    Examples
    --------
    >>> round(mg.nn.SELU()(mg.tensor(1.0)).item(), 4)
    1.0507
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x)


class PReLU(Module):
    """x where x > 0, else a x with trained a (He et al. 2015, https://arxiv.org/abs/1502.01852).

    a is `weight`, ``(num_parameters,)``.

    Parameters
    ----------
    num_parameters : int
        1, or the number C of channels of an input ``(N, C, ...)``, each of which has its own a.
    init : float
        The initial a.

    Examples
    --------
    >>> mg.nn.PReLU()(mg.tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    _shown = "num_parameters={num_parameters}"

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        super().__init__()
        self.num_parameters = integer("PReLU", "num_parameters", num_parameters, 1)
        self.weight = Parameter(full((self.num_parameters,), number("PReLU", "init", init)))

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)


class Tanh(Module):
    """tanh x, element by element.

    Examples
    --------
    >>> mg.nn.Tanh()(mg.tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class Sigmoid(Module):
    """σ(x) = 1 / (1 + e⁻ˣ), element by element.

    Examples
    --------
    >>> mg.nn.Sigmoid()(mg.tensor([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class Hardsigmoid(_Elementwise):
    """min(max(x/6 + 1/2, 0), 1): a piecewise linear approximation of the sigmoid; `inplace` as in `ReLU`.

    Examples
    --------
    >>> mg.nn.Hardsigmoid()(mg.tensor([-3.0, 0.0, 3.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


class Hardswish(_Elementwise):
    """x min(max(x/6 + 1/2, 0), 1): a piecewise approximation of SiLU (https://arxiv.org/abs/1905.02244).

    `inplace` is as in `ReLU`.

    Examples
    --------
    >>> mg.nn.Hardswish()(mg.tensor([-3.0, 1.5, 3.0])).tolist()
    [-0.0, 1.125, 3.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x)


class Hardtanh(_Elementwise):
    """x clipped to [min_val, max_val]; the gradient is 0 at the bounds and beyond. `inplace` is as in `ReLU`.

    Examples
    --------
    >>> mg.nn.Hardtanh(-2.0, 2.0)(mg.tensor([-3.0, 0.5, 3.0])).tolist()
    [-2.0, 0.5, 2.0]
    """

    _shown = "min_val={min_val}, max_val={max_val}"

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.min_val, self.max_val = bounds("Hardtanh", min_val, max_val)

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self.min_val, self.max_val)


class ReLU6(_Elementwise):
    """min(max(x, 0), 6) (Howard et al. 2017, https://arxiv.org/abs/1704.04861); `inplace` as in `ReLU`.

    Examples
    --------
    >>> mg.nn.ReLU6()(mg.tensor([-1.0, 2.0, 7.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class Softsign(Module):
    """x / (1 + |x|), element by element.

    Examples
    --------
    >>> mg.nn.Softsign()(mg.tensor([-1.0, 0.0, 3.0])).tolist()
    [-0.5, 0.0, 0.75]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class _AlongAxis(Module):
    """Base class with the axis, given as `axis` or as `dim`; the last one if neither is given."""

    _shown = "axis={axis}"

    def __init__(self, axis: int | None = None, dim: int | None = None) -> None:
        super().__init__()
        name = type(self).__name__
        if axis is not None and dim is not None:
            raise TypeError(f"[{name}] expected axis or dim, which are the same argument, got both")
        given = -1 if axis is None else integer(name, "axis", axis)
        self.axis = given if dim is None else integer(name, "dim", dim)


class GLU(_AlongAxis):
    """a σ(b), where a and b are the halves of x along one axis (Dauphin et al. 2017, https://arxiv.org/abs/1612.08083).

    `axis` and `dim` are as in `Softmax`.

    Examples
    --------
    >>> mg.nn.GLU()(mg.tensor([1.0, 2.0, 0.0, 1000.0])).tolist()
    [0.5, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.axis)


class Softmax(_AlongAxis):
    """eˣ / Σ eˣ along one axis.

    Parameters
    ----------
    axis, dim : int, optional
        The axis whose elements sum to one, under either name; the last one by default.

    Examples
    --------
    >>> mg.nn.Softmax()(mg.zeros((1, 4))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self.axis)


class LogSoftmax(_AlongAxis):
    """x − log Σ eˣ along one axis, computed without overflow; `axis` and `dim` as in `Softmax`.

    Examples
    --------
    >>> mg.nn.LogSoftmax()(mg.tensor([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self.axis)
