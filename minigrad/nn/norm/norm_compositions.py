"""Norms and modulations that are composed of the engine's operations, which gives them derivatives of every order."""

import math

from minigrad.arrays.creation import operand
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.layout import moveaxis
from minigrad.engine.ops.logic import maximum
from minigrad.engine.ops.norm import layer_norm, normalized_axes, rms_norm
from minigrad.engine.ops.trigonometry import tanh
from minigrad.engine.tensor.tensor import Tensor


def dynamic_tanh(x: Tensor, alpha: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """Dynamic tanh, which replaces a normalization by a bounded function: y = tanh(α x) · γ + β.

    Zhu, Chen, He, LeCun, Liu 2025, https://arxiv.org/abs/2503.10622, section 4. Raises ValueError for shapes or devices
    that do not match, and TypeError for parameters of another dtype than `x`.

    Parameters
    ----------
    x : Tensor
        Floats; the result has this shape.
    alpha : Tensor
        α, one number: ``(1,)`` or ``()``.
    weight, bias : Tensor, optional
        γ and β, of the shape of the last axes of x; ones and zeros if absent.

    Examples
    --------
    >>> mg.nn.functional.dynamic_tanh(mg.tensor([-100.0, 0.0, 0.5]), mg.tensor([2.0]))
    tensor([-1.       ,  0.       ,  0.7615942])
    """
    op = "dynamic_tanh"
    x = check_floats(op, x)
    alpha = check_floats(op, alpha)
    y = tanh(check_parameter(op, "alpha", alpha, (1,) if alpha.ndim else (), x).reshape(()) * x)
    if weight is not None:
        y = y * fit_last_axes(op, "weight", weight, x)
    return y if bias is None else y + fit_last_axes(op, "bias", bias, x)


def scale_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """Scale each row to one learned length: y = g x / √(‖x‖² + ε), with the norm over the last axis.

    Nguyen, Salazar 2019, https://arxiv.org/abs/1910.05895, without an ε. This is `rms_norm` with one weight for all
    elements. Errors are as for `dynamic_tanh`, and for an `x` without axes and for a negative `eps`.

    Parameters
    ----------
    x : Tensor
        ``(..., C)``, floats; the result has this shape.
    weight : Tensor
        ``()``: g.
    eps : float
        ε, added to the squared norm.

    Examples
    --------
    >>> mg.nn.functional.scale_norm(mg.tensor([[3.0, 4.0], [0.0, -0.5]]), mg.tensor(10.0), eps=0.0)
    tensor([[  6.,   8.],
            [  0., -10.]])
    """
    op = "scale_norm"
    x = check_floats(op, x)
    if not x.ndim:
        raise ValueError(f"[{op}] expected x of shape (..., C), got {x.shape}")
    weight, size = check_parameter(op, "weight", weight, (), x), max(x.shape[-1], 1)
    return rms_norm(x, x.shape[-1], eps=number(op, "eps", eps, 0) / size) * (weight / math.sqrt(size))


def film(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Feature-wise linear modulation: y = γ x + β, with a scale γ and a shift β for each channel of each sample.

    Perez et al. 2018, https://arxiv.org/abs/1709.07871, equation 2. Errors are as for `dynamic_tanh`.

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, floats; the result has this shape.
    scale, shift : Tensor
        ``(N, C)``: γ and β, computed from the condition of each sample.

    Examples
    --------
    >>> mg.nn.functional.film(mg.ones((2, 1, 3)), mg.tensor([[2.0], [5.0]]), mg.tensor([[0.0], [1.0]])).tolist()
    [[[2.0, 2.0, 2.0]], [[6.0, 6.0, 6.0]]]
    """
    x = check_floats("film", x)
    if x.ndim < 2:
        raise ValueError(f"[film] expected x of shape (N, C, ...), got {x.shape}")
    scale = check_parameter("film", "scale", scale, x.shape[:2], x)
    shift = check_parameter("film", "shift", shift, x.shape[:2], x)
    each = x.shape[:2] + (1,) * (x.ndim - 2)
    return x * scale.reshape(each) + shift.reshape(each)


def adaptive_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, eps: float = 1e-5) -> Tensor:
    """Layer normalization with a scale and a shift for each sample: y = (1 + γ) (x − μ) / √(σ² + ε) + β.

    Peebles, Xie 2023, https://arxiv.org/abs/2212.09748, section 3.2, where γ and β are computed from the condition;
    with γ = 0 and β = 0 it is `layer_norm`. Errors are as for `dynamic_tanh`, and for a negative `eps`.

    Parameters
    ----------
    x : Tensor
        ``(N, ..., C)``, floats; the result has this shape. μ and σ² are over the last axis.
    scale, shift : Tensor
        ``(N, C)``: γ and β.
    eps : float
        ε, added to the variance.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.adaptive_layer_norm(mg.tensor([[1.0, 3.0]]), mg.tensor([[1.0, 0.0]]), mg.tensor([[5.0, 5.0]]), eps=0.0)
    tensor([[3., 6.]])
    """
    op = "adaptive_layer_norm"
    x = check_floats(op, x)
    if x.ndim < 2:
        raise ValueError(f"[{op}] expected x of shape (N, ..., C), got {x.shape}")
    ends = x.shape[:1] + x.shape[-1:]
    scale, shift = check_parameter(op, "scale", scale, ends, x), check_parameter(op, "shift", shift, ends, x)
    each = x.shape[:1] + (1,) * (x.ndim - 2) + x.shape[-1:]
    y = layer_norm(x, x.shape[-1], eps=number(op, "eps", eps, 0))
    return y * (1 + scale).reshape(each) + shift.reshape(each)


def filter_response_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, threshold: Tensor | None = None,
    eps: float = 1e-6,
) -> Tensor:  # fmt: skip
    """Filter response normalization, and its activation: y = max(x / √(ν² + ε) · γ + β, τ).

    ν² is the mean of x² over the positions of one channel of one sample (Singh, Krishnan 2020,
    https://arxiv.org/abs/1911.09737). Without a threshold τ there is no maximum. Errors are as for `dynamic_tanh`, and
    for a negative `eps`.

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, floats, with at least three axes; the result has this shape.
    weight, bias, threshold : Tensor, optional
        ``(C,)``: γ, β and τ; ones, zeros and −∞ if absent.
    eps : float
        ε, added to the mean square.

    Examples
    --------
    >>> mg.nn.functional.filter_response_norm(mg.tensor([[[7.0, -1.0]]]), threshold=mg.zeros(1), eps=0.0)
    tensor([[[1.4, 0. ]]])
    """
    op = "filter_response_norm"
    x = check_floats(op, x)
    if x.ndim < 3:
        raise ValueError(f"[{op}] expected x of shape (N, C, ...) with 3 axes or more, got {x.shape}")
    y = rms_norm(x, x.shape[2:], eps=number(op, "eps", eps, 0))
    if weight is not None:
        y = y * fit_channels(op, "weight", weight, x)
    if bias is not None:
        y = y + fit_channels(op, "bias", bias, x)
    return y if threshold is None else maximum(y, fit_channels(op, "threshold", threshold, x))


def tlu(x: Tensor, threshold: Tensor) -> Tensor:
    """Thresholded linear unit: y = max(x, τ), with a threshold τ per channel.

    Singh, Krishnan 2020, https://arxiv.org/abs/1911.09737, where it follows `filter_response_norm`, which computes it
    too if it is given τ. Errors are as for `dynamic_tanh`.

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, floats; the result has this shape.
    threshold : Tensor
        ``(C,)``: τ.

    Examples
    --------
    >>> mg.nn.functional.tlu(mg.tensor([[1.0, -3.0]]), mg.tensor([0.0, -2.0]))
    tensor([[ 1., -2.]])
    """
    x = check_floats("tlu", x)
    if x.ndim < 2:
        raise ValueError(f"[tlu] expected x of shape (N, C, ...), got {x.shape}")
    return maximum(x, fit_channels("tlu", "threshold", threshold, x))


def layer_scale(x: Tensor, weight: Tensor) -> Tensor:
    """Scale each feature of a residual branch: y = λ x, where x is what the branch computed.

    Touvron et al. 2021, https://arxiv.org/abs/2103.17239, section 2. Errors are as for `dynamic_tanh`.

    Parameters
    ----------
    x : Tensor
        ``(..., C)``, floats; the result has this shape.
    weight : Tensor
        ``(C,)``: λ.

    Examples
    --------
    >>> mg.nn.functional.layer_scale(mg.tensor([[1.0, 3.0]]), mg.tensor([0.5, 0.1]))
    tensor([[0.5, 0.3]])
    """
    x = check_floats("layer_scale", x)
    if not x.ndim:
        raise ValueError(f"[layer_scale] expected x of shape (..., C), got {x.shape}")
    return x * check_parameter("layer_scale", "weight", weight, x.shape[-1:], x)


def deep_norm(
    x: Tensor, branch: Tensor, alpha: float, normalized_shape: int | tuple[int, ...] | list[int],
    weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Layer normalization of a residual connection with a larger residual: y = LN(α x + f(x)).

    Wang et al. 2022, https://arxiv.org/abs/2203.00555, section 3. `minigrad.nn.init.deep_norm_constants` computes α.
    Errors are as for `dynamic_tanh`, and for a negative `alpha` or `eps`, and a `normalized_shape` that is not
    integers.

    Parameters
    ----------
    x, branch : Tensor
        ``(..., *normalized_shape)``, floats: the residual and f(x); the result has this shape.
    alpha : float
        α, at least 0.
    normalized_shape, weight, bias, eps
        As in `layer_norm`.

    Examples
    --------
    >>> mg.nn.functional.deep_norm(mg.tensor([[1.0, 3.0]]), mg.tensor([[2.0, 0.0]]), 5.0, 2, eps=0.0)
    tensor([[-1.,  1.]])
    """
    op = "deep_norm"
    x = check_floats(op, x)
    shape = normalized_axes(op, x, normalized_shape)
    y = number(op, "alpha", alpha, 0) * x + check_parameter(op, "branch", branch, x.shape, x)
    weight = None if weight is None else check_parameter(op, "weight", weight, shape, x)
    bias = None if bias is None else check_parameter(op, "bias", bias, shape, x)
    return layer_norm(y, shape, weight, bias, number(op, "eps", eps, 0))


def weight_standardization(weight: Tensor, eps: float = 1e-5, dim: int = 0) -> Tensor:
    """Standardize the weights of each output: ŵ = (w − μ) / √(σ² + ε).

    μ and σ² are the mean and the biased variance over all axes but `dim` (Qiao et al. 2019,
    https://arxiv.org/abs/1903.10520).

    Parameters
    ----------
    weight : Tensor
        Floats, such as ``(O, I, H, W)`` of a convolution; the result has this shape.
    eps : float
        ε, added to the variance.
    dim : int
        The axis of the outputs.

    Raises
    ------
    ValueError
        For a negative `eps`, for another axis, or if an output has a single weight, which would become 0.
    TypeError
        For a `weight` that does not consist of floats, or a `dim` that is not an integer.

    Examples
    --------
    >>> mg.nn.functional.weight_standardization(mg.tensor([[1.0, 3.0], [50.0, 10.0]]), eps=0.0)
    tensor([[-1.,  1.],
            [ 1., -1.]])
    """
    op = "weight_standardization"
    weight, dim, eps = check_floats(op, weight), integer(op, "dim", dim), number(op, "eps", eps, 0)
    if not -weight.ndim <= dim < weight.ndim:
        raise ValueError(f"[{op}] expected an axis of a weight of shape {weight.shape}, got dim={dim}")
    rows = moveaxis(weight, dim, 0)
    if math.prod(rows.shape[1:]) < 2:
        raise ValueError(f"[{op}] expected more than one weight per output, got shape {weight.shape} with dim={dim}")
    return moveaxis(layer_norm(rows, rows.shape[1:], eps=eps), 0, dim)


def check_floats(op: str, x: Tensor, name: str = "x") -> Tensor:
    """Convert x to a tensor, which must have floats."""
    if x is None:
        raise TypeError(f"[{op}] expected a tensor {name}, got None")
    x = operand(op, x)
    if x.dtype.kind != "f":
        raise TypeError(f"[{op}] expected floating-point elements, got {x.dtype}")
    return x


def check_parameter(op: str, name: str, given: Tensor, shape: tuple[int, ...], x: Tensor) -> Tensor:
    """Convert a parameter to a tensor, which must have this shape, and the dtype and device of x."""
    given = check_floats(op, given, name)
    if given.shape != shape:
        raise ValueError(f"[{op}] expected {name} of shape {shape} for x of shape {x.shape}, got {given.shape}")
    if given.dtype != x.dtype:
        raise TypeError(
            f"[{op}] expected {name} of {x.dtype}, the dtype of x, got {given.dtype}: use "
            f'x.astype("{given.dtype}") or {name}.astype("{x.dtype}")'
        )
    if given.device != x.device:
        raise ValueError(f"[{op}] expected {name} on {x.device}, the device of x, got {given.device}")
    return given


def fit_last_axes(op: str, name: str, given: Tensor, x: Tensor) -> Tensor:
    """Convert a parameter to a tensor, which must have the shape of the last axes of x."""
    given = check_floats(op, given, name)
    return check_parameter(op, name, given, x.shape[x.ndim - given.ndim :], x)


def fit_channels(op: str, name: str, given: Tensor, x: Tensor) -> Tensor:
    """Convert a parameter with a number for each channel of x (N, C, ...) to a tensor that broadcasts against x."""
    return check_parameter(op, name, given, x.shape[1:2], x).reshape((-1,) + (1,) * (x.ndim - 2))
