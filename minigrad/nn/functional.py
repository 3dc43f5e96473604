"""The functions that the modules call: the engine's fused operations, and compositions of simpler ones."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from minigrad.array.creation import arange, operand
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.activation import (
    dropout,
    elu,
    gelu,
    glu,
    hardsigmoid,
    hardswish,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    relu,
    selu,
    sigmoid,
    silu,
    softplus,
)
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.attention import scaled_dot_product_attention
from minigrad.engine.ops.conv import conv1d, conv2d, conv_transpose2d
from minigrad.engine.ops.gather import look_up, numbered
from minigrad.engine.ops.layout import expand_dims
from minigrad.engine.ops.logic import maximum, where
from minigrad.engine.ops.matmul import linear
from minigrad.engine.ops.norm import group_norm, layer_norm, rms_norm
from minigrad.engine.ops.pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from minigrad.engine.ops.softmax import cross_entropy, log_softmax, nll_loss, softmax
from minigrad.engine.ops.trigonometry import tanh
from minigrad.engine.tensor.pytorch_names import lookup, rename_arguments
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.layers.interpolation import interpolate
from minigrad.nn.layers.position import rotary
from minigrad.nn.losses.functions import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from minigrad.nn.norm.norm_compositions import (
    adaptive_layer_norm,
    deep_norm,
    dynamic_tanh,
    film,
    filter_response_norm,
    layer_scale,
    scale_norm,
    tlu,
    weight_standardization,
)
from minigrad.nn.norm.norm_functions import batch_norm, batch_renorm, instance_norm

Activation = Callable[[Tensor], Tensor]

__all__ = [
    "adaptive_avg_pool2d", "adaptive_layer_norm", "avg_pool2d", "batch_norm", "batch_renorm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "conv1d", "conv2d", "conv_transpose2d", "cosine_similarity", "cross_entropy",
    "deep_norm", "dropout", "dynamic_tanh", "elu", "embedding", "film", "filter_response_norm", "gelu", "glu",
    "group_norm", "hardsigmoid", "hardswish", "huber_loss", "instance_norm", "interpolate", "kl_div", "l1_loss",
    "layer_norm", "layer_scale", "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool2d", "mish", "mse_loss",
    "nll_loss", "normalize", "one_hot", "prelu", "relu", "rms_norm", "rotary", "scale_norm",
    "scaled_dot_product_attention", "selu", "sigmoid", "silu", "smooth_l1_loss", "softmax", "softplus", "tanh", "tlu",
    "weight_standardization",
]  # fmt: skip


if TYPE_CHECKING:
    pad: Callable[..., Tensor]
else:
    __getattr__ = lookup(__name__)


@rename_arguments
def embedding(indices: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Look up the rows of a table at the given indices.

    Parameters
    ----------
    indices : Tensor
        int32 or int64, of any shape, from 0 to V − 1.
    weight : Tensor
        ``(V, D)``.
    padding_idx : int, optional
        A row that gets no gradient.

    Returns
    -------
    Tensor
        ``(*indices.shape, D)``.

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
    >>> import minigrad as mg
    >>> mg.nn.functional.embedding(mg.tensor([1, 1]), mg.tensor([[1.0], [5.0]])).tolist()
    [[5.0], [5.0]]
    """
    for x in (indices, weight):
        if not isinstance(x, Tensor):
            raise TypeError(f"[embedding] expected a tensor, got {kind_of(x)}")
    if indices.dtype.kind != "i":
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
    """Make rows that are 1 at the label and 0 elsewhere.

    Parameters
    ----------
    labels : Tensor
        ``(...)``, int32 or int64.
    num_classes : int
        C; −1 means the largest label plus one.

    Returns
    -------
    Tensor
        ``(..., C)``, int64.

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
    >>> import minigrad as mg
    >>> mg.nn.functional.one_hot(mg.tensor([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if not isinstance(labels, Tensor):
        raise TypeError(f"[one_hot] expected a tensor, got {kind_of(labels)}")
    if labels.dtype.kind != "i":
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

    Parameters
    ----------
    x : Tensor
        float32 or float64; the result has its shape.
    p : float
        p, for example 1 or 2; ``float("inf")`` divides by the largest absolute value.
    axis : int or tuple of int
    eps : float
        ε, the least divisor, so that zeros stay zeros.

    Raises
    ------
    TypeError
        If `x` does not hold floats.
    IndexError
        For an axis that x does not have.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.normalize(mg.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6, 0.8],
            [0. , 0. ]])
    """
    p, eps = number("normalize", "p", p), number("normalize", "eps", eps, 0)
    axes = tuple(integer("normalize", "axis", k) for k in (axis if isinstance(axis, tuple | list) else (axis,)))
    x = operand("normalize", x)
    if x.dtype.kind != "f":
        raise TypeError(f"[normalize] expected floating-point elements, got {x.dtype}")
    if not all(-x.ndim <= k < x.ndim for k in axes):
        raise IndexError(f"[normalize] expected an axis from {-x.ndim} to {x.ndim - 1} for shape {x.shape}, got {axis}")
    return x / maximum(x.norm(p, axes, True), eps)
