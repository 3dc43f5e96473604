"""The functions that the modules call: the engine's fused operations, and compositions of simpler ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from minigrad.arrays.creation import arange, ones, operand
from minigrad.arrays.products import checked_axis
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.activation import (
    dropout, elu, gelu, glu, hardsigmoid, hardswish, leaky_relu, logsigmoid, mish, prelu, relu, selu, sigmoid, silu,
    softplus,
)  # fmt: skip
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.attention import scaled_dot_product_attention
from minigrad.engine.ops.conv import conv1d, conv2d, conv_transpose2d
from minigrad.engine.ops.functions import log
from minigrad.engine.ops.gather import look_up, numbered
from minigrad.engine.ops.layout import expand_dims, moveaxis, permute_dims
from minigrad.engine.ops.logic import maximum, where
from minigrad.engine.ops.matmul import linear
from minigrad.engine.ops.norm import group_norm, layer_norm, rms_norm
from minigrad.engine.ops.pooling import adaptive_avg_pool2d, avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from minigrad.engine.ops.random import uniform
from minigrad.engine.ops.reduce import argmax
from minigrad.engine.ops.rounding import absolute
from minigrad.engine.ops.softmax import cross_entropy, log_softmax, nll_loss, softmax
from minigrad.engine.ops.trigonometry import tanh
from minigrad.engine.tensor.pytorch_names import lookup, rename_arguments
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.layers.interpolation import interpolate
from minigrad.nn.layers.position import rotary
from minigrad.nn.losses.ctc import ctc_loss
from minigrad.nn.losses.functions import (
    above_zero, binary_cross_entropy, binary_cross_entropy_with_logits, cosine_similarity, gaussian_nll_loss,
    huber_loss, kl_div, l1_loss, mse_loss, smooth_l1_loss, triplet_margin_loss,
)  # fmt: skip
from minigrad.nn.norm.norm_compositions import (
    adaptive_layer_norm, check_floats, deep_norm, dynamic_tanh, film, filter_response_norm, layer_scale, scale_norm,
    tlu, weight_standardization,
)  # fmt: skip
from minigrad.nn.norm.norm_functions import batch_norm, batch_renorm, instance_norm

__all__ = [
    "adaptive_avg_pool2d", "adaptive_layer_norm", "avg_pool1d", "avg_pool2d", "batch_norm", "batch_renorm",
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv_transpose2d",
    "cosine_similarity", "cross_entropy", "ctc_loss", "deep_norm", "dropout", "dropout1d", "dropout2d", "dynamic_tanh",
    "elu", "embedding", "film", "filter_response_norm", "gaussian_nll_loss", "gelu", "glu", "group_norm",
    "gumbel_softmax", "hardsigmoid", "hardswish", "hardtanh", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "layer_scale", "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool1d",
    "max_pool2d", "mish", "mse_loss", "nll_loss", "normalize", "one_hot", "pixel_shuffle", "prelu", "relu", "relu6",
    "rms_norm", "rotary", "scale_norm", "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss",
    "softmax", "softplus", "softsign", "tanh", "tlu", "triplet_margin_loss", "weight_standardization",
]  # fmt: skip


if TYPE_CHECKING:
    pad: Callable[..., Tensor]
else:
    __getattr__ = lookup(__name__)


@rename_arguments
def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Look up the rows of a table at the given indices. The result is ``(*indices.shape, D)``.

    Parameters
    ----------
    indices : Tensor
        int32, int64 or uint8, of any shape, from 0 to V − 1.
    weight : Tensor
        ``(V, D)``.
    padding_idx : int, optional
        A row that gets no gradient.

    Raises
    ------
    TypeError
        If an argument is not a tensor, or if the indices are not integers.
    IndexError
        For an index below 0 or not below V; for indices on a GPU, it is reported at the next transfer to the CPU, or by
        `minigrad.cuda.synchronize`.
    ValueError
        For a table that does not have two axes, a `padding_idx` outside the table, and indices on another GPU.

    Examples
    --------
    >>> mg.nn.functional.embedding(mg.tensor([1, 1]), mg.tensor([[1.0], [5.0]])).tolist()
    [[5.0], [5.0]]
    """
    for x in (indices, weight):
        if not isinstance(x, Tensor):
            raise TypeError(f"[embedding] expected a tensor, got {kind_of(x)}")
    if indices.dtype.kind not in "iu":
        raise TypeError(f"[embedding] expected integer indices, got {indices.dtype}")
    rows = look_up(weight, indices)
    padding = padding_row("embedding", padding_idx, weight.shape[0])
    if padding is None or not weight.requires_grad:
        return rows
    indices = indices.to(weight.device)
    return where(expand_dims(indices == padding, -1), rows.detach(), rows)


def padding_row(op: str, padding_idx: int | None, rows: int) -> int | None:
    """Check `padding_idx` and count it from the front."""
    if padding_idx is None:
        return None
    padding_idx = integer(op, "padding_idx", padding_idx)
    if not -rows <= padding_idx < rows:
        raise ValueError(f"[{op}] expected padding_idx from {-rows} to {rows - 1}, got {padding_idx}")
    return padding_idx % rows


def one_hot(labels: Tensor, num_classes: int = -1) -> Tensor:
    """Make rows that are 1 at the label and 0 elsewhere. The result is ``(..., C)``, int64.

    Parameters
    ----------
    labels : Tensor
        ``(...)``, int32, int64 or uint8.
    num_classes : int
        C; −1 means the largest label plus one.

    Raises
    ------
    TypeError
        For labels that are not integers.
    IndexError
        For labels below 0 or not below C; on a GPU, they are reported at the next transfer to the CPU, or by
        `minigrad.cuda.synchronize`.
    ValueError
        For less than one class.
    MemoryError
        For more classes than fit in memory.

    Examples
    --------
    >>> mg.nn.functional.one_hot(mg.tensor([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if not isinstance(labels, Tensor):
        raise TypeError(f"[one_hot] expected a tensor, got {kind_of(labels)}")
    if labels.dtype.kind not in "iu":
        raise TypeError(f"[one_hot] expected integer labels, got {labels.dtype}")
    num_classes = integer("one_hot", "num_classes", num_classes)
    if num_classes == -1 and labels.size:
        num_classes = int(labels.max().item()) + 1
    if num_classes < 1:
        raise ValueError(f"[one_hot] expected at least one class, got {num_classes} for {labels.size} labels")
    classes = arange(
        num_classes, dtype="int64", device=labels.device
    )  # this comes first: it rejects counts beyond int64
    labels = numbered("[one_hot] expected labels", labels, num_classes)
    return (expand_dims(labels, -1) == classes).astype("int64")


@rename_arguments
def normalize(x: Tensor, p: float = 2.0, axis: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Divide x by its p-norms along an axis: y = x / max(‖x‖ₚ, ε).

    Raises TypeError if `x` does not hold floats, and IndexError for an axis that x does not have.

    Parameters
    ----------
    x : Tensor
        float32 or float64; the result has its shape.
    p : float
        p, for example 1 or 2; ``float("inf")`` divides by the largest absolute value.
    axis : int or tuple of int
    eps : float
        ε, the least divisor, so that zeros stay zeros.

    Examples
    --------
    >>> mg.nn.functional.normalize(mg.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6, 0.8],
            [0. , 0. ]])
    """
    p, eps = number("normalize", "p", p), number("normalize", "eps", eps, 0)
    x = check_floats("normalize", x)
    axes = tuple(checked_axis("normalize", k, x) for k in (axis if isinstance(axis, tuple | list) else (axis,)))
    return x / maximum(x.norm(p, axes, True), eps)


@rename_arguments
def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """Make images r times as wide and high of r² as many channels (Shi et al. 2016, https://arxiv.org/abs/1609.05158).

    ``y[..., c, i r + k, j r + m] = x[..., c r² + k r + m, i, j]``: the r² channels of a pixel become a square.

    Raises ValueError if r² does not divide the channels.

    Parameters
    ----------
    x : Tensor
        ``(..., C r², H, W)``; the result is ``(..., C, H r, W r)``.
    upscale_factor : int
        r.

    Examples
    --------
    >>> mg.nn.functional.pixel_shuffle(mg.arange(4).reshape(4, 1, 1), 2)
    tensor([[[0, 1],
             [2, 3]]])
    """
    x, r = operand("pixel_shuffle", x), integer("pixel_shuffle", "upscale_factor", upscale_factor, 1)
    if x.ndim < 3 or x.shape[-3] % r**2:
        raise ValueError(f"[pixel_shuffle] expected shape (..., C * {r**2}, H, W), got {x.shape}")
    *batch, channels, height, width = x.shape
    c, k = channels // r**2, len(batch)
    squares = x.reshape((*batch, c, r, r, height, width))
    rows = permute_dims(squares, (*range(k + 1), k + 3, k + 1, k + 4, k + 2))
    return rows.reshape((*batch, c, height * r, width * r))


# ── activations and dropout that are composed of operations ───────────────────────────────────────


def bounds(op: str, low: float, high: float) -> tuple[float, float]:
    """Return two numbers, of which the first is less than the second."""
    low, high = number(op, "min_val", low), number(op, "max_val", high)
    if not low < high:
        raise ValueError(f"[{op}] expected min_val < max_val, got {low} and {high}")
    return low, high


@rename_arguments
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clipped to [min_val, max_val], with the gradient 0 at the bounds and beyond.

    Raises TypeError if `x` does not hold floats, and ValueError unless min_val < max_val.

    Examples
    --------
    >>> mg.nn.functional.hardtanh(mg.tensor([-2.0, 0.5, 2.0]))
    tensor([-1. ,  0.5,  1. ])
    """
    low, high = bounds("hardtanh", min_val, max_val)
    x = check_floats("hardtanh", x)
    inner = where(x <= low, low, x)  # NaN passes through both comparisons
    return where(inner >= high, high, inner)


@rename_arguments
def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6), with the gradient 0 at 0 and 6 (Howard et al., 2017, https://arxiv.org/abs/1704.04861).

    Examples
    --------
    >>> mg.nn.functional.relu6(mg.tensor([-1.0, 2.0, 7.0]))
    tensor([0., 2., 6.])
    """
    return hardtanh(check_floats("relu6", x), 0.0, 6.0)


@rename_arguments
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    Examples
    --------
    >>> mg.nn.functional.softsign(mg.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5 ,  0.  ,  0.75])
    """
    x = check_floats("softsign", x)
    return x / (1 + absolute(x))


@rename_arguments
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """`dropout` of whole channels of sequences, (N, C, T) or (C, T): their steps are kept or become zero together.

    Examples
    --------
    >>> y = mg.nn.functional.dropout1d(mg.ones((1, 100, 3)))
    >>> sorted(set(y.sum(2).reshape(-1).tolist()))
    [0.0, 6.0]
    """
    x = check_floats("dropout1d", x)
    if x.ndim not in (2, 3):
        raise ValueError(f"[dropout1d] expected x of shape (N, C, T) or (C, T), got {x.shape}")
    return _drop_channels("dropout1d", x, (*x.shape[:-1], 1), p, training)


@rename_arguments
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """`dropout` of whole channels of images (N, C, H, W): their elements are kept or become zero together.

    Raises ValueError for another number of axes: PyTorch takes three for sequences (N, C, T), which are for
    `dropout1d`.

    Examples
    --------
    >>> y = mg.nn.functional.dropout2d(mg.ones((1, 100, 3, 3)))
    >>> sorted(set(y.sum((2, 3)).reshape(-1).tolist()))
    [0.0, 18.0]
    """
    x = check_floats("dropout2d", x)
    if x.ndim != 4:
        advice = ": dropout1d(x) is for sequences (N, C, T), dropout2d(x[None])[0] for one image" if x.ndim == 3 else ""
        raise ValueError(f"[dropout2d] expected x of shape (N, C, H, W), got {x.shape}{advice}")
    return _drop_channels("dropout2d", x, (*x.shape[:-2], 1, 1), p, training)


def _drop_channels(op: str, x: Tensor, shape: tuple[int, ...], p: float, training: bool) -> Tensor:
    p = number(op, "p", p, 0, 1)
    kept = dropout(ones(shape, dtype=x.dtype, device=x.device), p, training)
    return x * kept if training and p else x


@rename_arguments
def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float | None = None, axis: int = -1
) -> Tensor:
    """Draw softmax((z + γ) / τ) with noise γ = −log(−log u): samples of categories that have gradients.

    Jang et al. 2017, https://arxiv.org/abs/1611.01144; Maddison et al. 2017, https://arxiv.org/abs/1611.00712. The
    largest element is at a category drawn with the probabilities softmax(z). Raises TypeError if the logits do not hold
    floats, and ValueError if τ is not above 0.

    Parameters
    ----------
    logits : Tensor
        Floats: z.
    tau : float
        τ > 0; the samples become one-hot as it goes to 0.
    hard : bool
        Whether the values are one-hot; the gradient is that of the soft sample.
    eps : float, optional
        PyTorch's; without effect, as there.
    axis : int
        The axis of the categories.

    Examples
    --------
    >>> y = mg.nn.functional.gumbel_softmax(mg.zeros((2, 5)), hard=True)
    >>> y.sum(1).tolist(), sorted(set(y.reshape(-1).tolist()))
    ([1.0, 1.0], [0.0, 1.0])
    """
    tau, logits = above_zero("gumbel_softmax", "tau", tau), check_floats("gumbel_softmax", logits)
    # Numbers above 0 and below 1, so that the noise is finite.
    u = uniform(2.0**-100, 1.0, logits.shape, dtype=logits.dtype, device=logits.device)
    y = softmax((logits - log(-log(u))) / tau, axis)
    if not hard:
        return y
    chosen = moveaxis(one_hot(argmax(y, axis), y.shape[axis]), -1, axis)
    return chosen.astype(y.dtype) + (y - y.detach())
