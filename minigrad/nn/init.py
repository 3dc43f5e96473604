"""Initialization: functions that fill a tensor in place, unrecorded, and return it."""

import math
from typing import TypeVar

import numpy as np

from minigrad import random
from minigrad.arrays.creation import asarray, eye, full_like
from minigrad.autograd import no_grad
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.functions import erf
from minigrad.engine.ops.logic import clip, where
from minigrad.engine.tensor.names import is_module
from minigrad.engine.tensor.tensor import Tensor

M = TypeVar("M")

GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2),
    "selu": 3 / 4,
}  # fmt: skip


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which to scale the weights before a nonlinearity so that activations keep their size.

    Raises ValueError for another nonlinearity.

    Parameters
    ----------
    nonlinearity : str
        "linear", "conv1d" to "conv3d" and "sigmoid" (1), "tanh" (5/3), "relu" (√2), "leaky_relu" (√(2/(1 + slope²))),
        "selu" (3/4): PyTorch's values.
    param : float, optional
        The slope of "leaky_relu"; 0.01 by default.

    Examples
    --------
    >>> mg.nn.init.calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + number("calculate_gain", "param", 0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        raise ValueError(f"[calculate_gain] expected one of {', '.join(GAINS)} or leaky_relu, got {nonlinearity!r}")
    return GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Fill with values from U[a, b). Raises ValueError if b < a.

    Examples
    --------
    >>> x = mg.nn.init.uniform_(mg.empty(100), 2.0, 3.0)
    >>> bool(2 <= x.min()) and bool(x.max() < 3)
    True
    """
    a, b = number("uniform_", "a", a), number("uniform_", "b", b)
    if not b >= a:
        raise ValueError(f"[uniform_] expected a <= b, got {a} and {b}")
    return _set(tensor, random.uniform(a, b, tensor.shape, dtype=tensor.dtype))


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Fill with values from N(mean, std²). Raises ValueError if std < 0.

    Examples
    --------
    >>> mg.nn.init.normal_(mg.empty(2), 5.0, 0.0).tolist()
    [5.0, 5.0]
    """
    mean, std = number("normal_", "mean", mean), number("normal_", "std", std, 0)
    return _set(tensor, random.normal(mean, std, tensor.shape, dtype=tensor.dtype))


def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0) -> Tensor:
    """Fill with values from N(mean, std²) conditioned on lying in [a, b].

    Raises ValueError if std is not positive or not a < b.

    Parameters
    ----------
    tensor : Tensor
        Floats.
    mean, std : float
        The mean and standard deviation before truncation.
    a, b : float
        The bounds, as values, not in standard deviations.

    Notes
    -----
    x solves Φ(x) = u for u uniform in [Φ(a), Φ(b)), by bisection: it takes one uniform number per element, whatever
    the bounds.

    Examples
    --------
    >>> x = mg.nn.init.trunc_normal_(mg.empty(1000), std=10.0, a=-1.0, b=1.0)
    >>> bool(x.min() >= -1) and bool(x.max() <= 1)
    True
    """
    mean, std = number("trunc_normal_", "mean", mean), number("trunc_normal_", "std", std)
    a, b = number("trunc_normal_", "a", a), number("trunc_normal_", "b", b)
    if not (std > 0 and a < b):
        raise ValueError(f"[trunc_normal_] expected std > 0 and a < b, got {std}, {a} and {b}")
    low, high = ((bound - mean) / (std * math.sqrt(2)) for bound in (a, b))
    u = random.uniform(math.erf(low), math.erf(high), tensor.shape, dtype="float64")
    # Beyond 6 in units of √2 standard deviations, the distribution function is 0 or 1 in float64.
    left = full_like(u, max(low, min(-6.0, high)))
    right = full_like(u, min(high, max(6.0, low)))
    for _ in range(54 if tensor.dtype == "float64" else 30):
        middle = (left + right) / 2
        below = erf(middle) < u
        left, right = where(below, middle, left), where(below, right, middle)
    return _set(tensor, clip(mean + std * math.sqrt(2) * right, a, b))


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with one value.

    Examples
    --------
    >>> mg.nn.init.constant_(mg.empty(2), 0.5).tolist()
    [0.5, 0.5]
    """
    with no_grad():
        tensor.fill_(number("constant_", "val", val))
    return tensor


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with zeros.

    Examples
    --------
    >>> mg.nn.init.zeros_(mg.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with ones.

    Examples
    --------
    >>> mg.nn.init.ones_(mg.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1)


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity, as far as its shape allows. Raises ValueError if the tensor does not have two axes.

    Examples
    --------
    >>> mg.nn.init.eye_(mg.empty((2, 3))).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    if tensor.ndim != 2:
        raise ValueError(f"[eye_] expected a matrix, got shape {tensor.shape}")
    return _set(tensor, eye(*tensor.shape, dtype=tensor.dtype))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with values from U(−r, r), r = gain √(6 / (fan_in + fan_out)).

    Glorot and Bengio 2010, https://proceedings.mlr.press/v9/glorot10a.html, equation 16. In a weight
    ``(out, in, *kernel)`` fan_in is in · the kernel's size, fan_out is out · the kernel's size. Raises ValueError if
    the tensor has fewer than two axes.

    Examples
    --------
    >>> bool(mg.nn.init.xavier_uniform_(mg.empty((3, 3))).max() <= 1)
    True
    """
    fan_in, fan_out = _fans("xavier_uniform_", tensor)
    bound = number("xavier_uniform_", "gain", gain, 0) * math.sqrt(6 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with values from N(0, s²), s = gain √(2 / (fan_in + fan_out)); see `xavier_uniform_`.

    Examples
    --------
    >>> mg.nn.init.xavier_normal_(mg.empty((3, 3)), gain=0.0).tolist()[0]
    [0.0, 0.0, 0.0]
    """
    fan_in, fan_out = _fans("xavier_normal_", tensor)
    return normal_(tensor, 0.0, number("xavier_normal_", "gain", gain, 0) * math.sqrt(2 / (fan_in + fan_out)))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with values from U(−r, r), r = gain √(3 / fan).

    He et al. 2015, https://arxiv.org/abs/1502.01852, equations 10 and 14; `calculate_gain` gives the gain. Raises
    ValueError if the tensor has fewer than two axes, or for another `mode` or `nonlinearity`.

    Parameters
    ----------
    tensor : Tensor
        ``(out, in, *kernel)``, floats.
    a : float
        The slope of "leaky_relu"; 0 makes it "relu".
    mode : {"fan_in", "fan_out"}
        Whether to preserve the size of activations ("fan_in") or of gradients.
    nonlinearity : str
        The nonlinearity that follows; see `calculate_gain`.

    Examples
    --------
    >>> bool(mg.nn.init.kaiming_uniform_(mg.empty((8, 6))).max() <= 1)
    True
    """
    bound = math.sqrt(3) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Fill with values from N(0, s²), s = gain / √fan; parameters and errors as for `kaiming_uniform_`.

    Examples
    --------
    >>> mg.nn.init.kaiming_normal_(mg.empty((8, 6)), mode="fan_out").shape
    (8, 6)
    """
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity))


def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Fill with a random matrix of orthonormal rows or columns (whichever are fewer), times `gain`.

    There are at least two axes; those after the first are flattened into one (Saxe et al. 2013,
    https://arxiv.org/abs/1312.6120). The matrix is uniformly distributed: it is Q in the QR decomposition of a matrix
    of normal numbers, with the signs of R's diagonal (https://arxiv.org/abs/math-ph/0609050).

    Examples
    --------
    >>> q = mg.nn.init.orthogonal_(mg.empty((2, 3)))
    >>> abs(q @ q.T).round().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if tensor.ndim < 2:
        raise ValueError(f"[orthogonal_] expected at least two axes, got shape {tensor.shape}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    normal = random.normal(0.0, 1.0, (max(rows, columns), min(rows, columns)), dtype="float64")
    q, r = np.linalg.qr(normal.numpy())
    q = number("orthogonal_", "gain", gain) * q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return _set(tensor, asarray(q if rows >= columns else q.T).reshape(tensor.shape))


def deep_norm_constants(
    num_encoder_layers: int, num_decoder_layers: int = 0, part: str = "encoder"
) -> tuple[float, float]:
    """Return α, the scale of the residuals, and β, the gain of the branches, of a Transformer with `nn.DeepNorm`.

    Wang et al. 2022, https://arxiv.org/abs/2203.00555, figure 2. With N layers in the encoder and M in the decoder:
    α = (2 N)^¼ and β = (8 N)^-¼ for an encoder alone, and the same with M for a decoder alone; otherwise
    α = 0.81 (N⁴ M)^(1/16) and β = 0.87 (N⁴ M)^(-1/16) in the encoder, and α = (3 M)^¼ and β = (12 M)^-¼ in the decoder.

    Raises ValueError for a negative number of layers, for a part without layers, or for another part.

    Parameters
    ----------
    num_encoder_layers, num_decoder_layers : int
        N and M; 0 where there is no such part.
    part : {"encoder", "decoder"}
        The part that the constants are for.

    Examples
    --------
    >>> mg.nn.init.deep_norm_constants(8)
    (2.0, 0.3535533905932738)
    """
    op = "deep_norm_constants"
    layers = {
        "encoder": integer(op, "num_encoder_layers", num_encoder_layers, 0),
        "decoder": integer(op, "num_decoder_layers", num_decoder_layers, 0),
    }
    if part not in layers:
        raise ValueError(f"[{op}] expected part 'encoder' or 'decoder', got {part!r}")
    n, m = layers["encoder"], layers["decoder"]
    if not layers[part]:
        raise ValueError(f"[{op}] expected a part that has layers, got the {part} of {n} and {m} layers")
    if not (n and m):
        return (2 * layers[part]) ** 0.25, (8 * layers[part]) ** -0.25
    if part == "encoder":
        return 0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16)
    return (3 * m) ** 0.25, (12 * m) ** -0.25


def deep_norm_(module: M, beta: float) -> M:
    """Initialize the linear layers of a residual branch for `nn.DeepNorm`, by `xavier_normal_`, and return it.

    The gain is `beta`, but 1 for the projections of queries and keys in `nn.MultiheadAttention`, whose size does not
    change the size of its result (Wang et al. 2022, https://arxiv.org/abs/2203.00555, figure 2). Biases of these layers
    become 0; other layers stay as they are. Layers are recognized by ``in_features`` and ``in_proj_weight``. Raises
    TypeError if `module` is not a module, and ValueError for a negative `beta`.

    Parameters
    ----------
    module : Module
        A branch, or a whole Transformer layer.
    beta : float
        β, see `deep_norm_constants`.

    Examples
    --------
    >>> layer = mg.nn.init.deep_norm_(mg.nn.Linear(8, 8), beta=0.0)
    >>> bool((layer.weight == 0).all()) and bool((layer.bias == 0).all())
    True
    """
    if not is_module(module):
        raise TypeError(f"[deep_norm_] expected a Module, got {kind_of(module)}")
    beta = number("deep_norm_", "beta", beta, 0)
    for layer in module.modules():  # type: ignore[attr-defined]
        weights: list[Tensor | None]
        if hasattr(layer, "in_proj_weight"):  # as MultiheadAttention has
            weights = [getattr(layer, f"{name}_proj_weight", None) for name in "qkv"]
            if layer.in_proj_weight is not None:
                rows = layer.in_proj_weight.shape[0] // 3
                weights = [layer.in_proj_weight[k * rows :][:rows] for k in range(3)]
            gains, bias = [1.0, 1.0, beta], getattr(layer, "in_proj_bias", None)
        elif hasattr(layer, "in_features"):  # as Linear has
            weights, gains, bias = [getattr(layer, "weight", None)], [beta], getattr(layer, "bias", None)
        else:
            continue
        with no_grad():
            for weight, gain in zip(weights, gains, strict=True):
                if weight is not None and weight.ndim == 2:
                    xavier_normal_(weight, gain)
        if isinstance(bias, Tensor):
            zeros_(bias)
    return module


def _set(tensor: Tensor, values: Tensor) -> Tensor:
    with no_grad():
        tensor.copy_(values.to(tensor.device))
    return tensor


def _fans(op: str, tensor: Tensor) -> tuple[int, int]:
    """Return fan_in and fan_out of a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise ValueError(f"[{op}] expected at least two axes, got shape {tensor.shape}")
    kernel = math.prod(tensor.shape[2:])
    # A factor of 0 for an empty tensor would cause a division by zero.
    return max(1, tensor.shape[1] * kernel), max(1, tensor.shape[0] * kernel)


def _kaiming_std(op: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fans = dict(zip(("fan_in", "fan_out"), _fans(op, tensor), strict=True))
    if mode not in fans:
        raise ValueError(f"[{op}] expected mode 'fan_in' or 'fan_out', got {mode!r}")
    return calculate_gain(nonlinearity, number(op, "a", a)) / math.sqrt(fans[mode])
