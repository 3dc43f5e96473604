"""The functions that the modules call: the engine's fused operations, and compositions of simpler ones."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from minigrad.creation import arange, operand, with_habits
from minigrad.engine.habits import lookup
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
from minigrad.engine.ops.arguments import integer, kind_of, number
from minigrad.engine.ops.attention import scaled_dot_product_attention
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train
from minigrad.engine.ops.conv import conv2d, conv_transpose2d
from minigrad.engine.ops.gather import look_up, numbered
from minigrad.engine.ops.layout import expand_dims, squeeze
from minigrad.engine.ops.logic import maximum, where
from minigrad.engine.ops.matmul import linear
from minigrad.engine.ops.norm import group_norm, layer_norm, rms_norm
from minigrad.engine.ops.norm import instance_norm as normalize_instances
from minigrad.engine.ops.pooling import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from minigrad.engine.ops.softmax import cross_entropy, log_softmax, nll_loss, softmax
from minigrad.engine.ops.trigonometry import tanh
from minigrad.engine.tape import is_grad_enabled
from minigrad.engine.tensor import Tensor, make
from minigrad.nn.interpolation import interpolate
from minigrad.nn.loss_functions import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    smooth_l1_loss,
)
from minigrad.nn.position import rotary

Activation = Callable[[Tensor], Tensor]

__all__ = [
    "adaptive_avg_pool2d", "avg_pool2d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits",
    "conv1d", "conv2d", "conv_transpose2d", "cosine_similarity", "cross_entropy", "dropout", "elu", "embedding",
    "gelu", "glu", "group_norm", "hardsigmoid", "hardswish", "huber_loss", "instance_norm", "interpolate", "kl_div",
    "l1_loss", "layer_norm", "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool2d", "mish", "mse_loss",
    "nll_loss", "normalize", "one_hot", "prelu", "relu", "rms_norm", "rotary", "scaled_dot_product_attention", "selu",
    "sigmoid", "silu", "smooth_l1_loss", "softmax", "softplus", "tanh",
]  # fmt: skip


if TYPE_CHECKING:
    from minigrad.pytorch import functional_pad as pad  # noqa: F401
else:
    __getattr__ = lookup(__name__)


# ── convolution ───────────────────────────────────────────────────────────────────────────────────


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int | tuple[int] = 1,
    padding: int | tuple[int] | str = 0, dilation: int | tuple[int] = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """`conv2d` of sequences: x (N, C, T) or (C, T) and weight (O, C / groups, K) give (N, O, P) or (O, P).

    Parameters and errors are those of `conv2d`, with a number in place of each pair.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.conv1d(mg.tensor([[1.0, 2.0, 4.0]]), mg.tensor([[[-1.0, 1.0]]]))
    tensor([[1., 2.]])
    """
    for name, value, axes in (("x", x, (2, 3)), ("weight", weight, (3,))):
        if not isinstance(value, Tensor):
            raise TypeError(f"[conv1d] expected a tensor {name}, got {kind_of(value)}")
        if value.ndim not in axes:
            raise ValueError(f"[conv1d] expected {name} with {' or '.join(map(str, axes))} axes, got {value.shape}")
    rows = padding if isinstance(padding, str) else (0, single("conv1d", "padding", padding, 0))
    strides, steps = single("conv1d", "stride", stride, 1), single("conv1d", "dilation", dilation, 1)
    y = conv2d(expand_dims(x, -2), expand_dims(weight, -2), bias, (1, strides), rows, (1, steps), groups)
    return squeeze(y, -2)


def single(op: str, name: str, value: int | tuple[int], least: int) -> int:
    """Check a number of positions, which may be a tuple of one."""
    return integer(op, name, value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value, least)


# ── lookup ────────────────────────────────────────────────────────────────────────────────────────


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
    _check_integers("one_hot", labels)
    num_classes = integer("one_hot", "num_classes", num_classes)
    if num_classes == -1 and labels.size:
        num_classes = int(labels.max().item()) + 1
    if num_classes < 1:
        raise ValueError(f"[one_hot] expected at least one class, got {num_classes} for {labels.size} labels")
    classes = arange(num_classes, dtype="int64", device=labels.device)  # first, as it rejects counts beyond int64
    labels = numbered("[one_hot] expected labels", labels, num_classes)
    return (expand_dims(labels, -1) == classes).astype("int64")


# ── vectors of length one ─────────────────────────────────────────────────────────────────────────


@with_habits
def normalize(x: Tensor, p: float = 2.0, axis: int | tuple[int, ...] = 1, eps: float = 1e-12) -> Tensor:
    """Divide x by its p-norms along an axis: y = x / max(‖x‖ₚ, ε).

    Parameters
    ----------
    x : Tensor
        float32 or float64.
    p : float
        p, for example 1 or 2; ``float("inf")`` divides by the largest absolute value.
    axis : int or tuple of int
    eps : float
        ε, the least divisor, so that zeros stay zeros.

    Returns
    -------
    Tensor
        Of the shape of `x`.

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


# ── normalization with running statistics ─────────────────────────────────────────────────────────


def batch_norm(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *,
    unbiased_running_var: bool = True,
) -> Tensor:  # fmt: skip
    """Batch normalization of each channel: y = (x − μ) / √(σ² + ε) · γ + β.

    In training, μ and σ² are the mean and the biased variance of the batch, over all axes but the second, and the
    gradient passes through them (Ioffe, Szegedy 2015, https://arxiv.org/abs/1502.03167, algorithm 1). The running
    statistics r are updated in place: r ← (1 − m) r + m s, with s = μ and s = σ² n / (n − 1) for n values per channel.
    Otherwise, μ and σ² are the running statistics.

    Parameters
    ----------
    x : Tensor
        ``(N, C)`` or ``(N, C, ...)``, floats. If squared deviations overflow in training (in float32, from 1e17 on),
        the channel becomes `bias` and its running variance infinite; near the largest numbers, the channel becomes NaN.
    running_mean, running_var : Tensor or None
        ``(C,)``. With None, training keeps no running statistics.
    weight, bias : Tensor, optional
        ``(C,)``: γ and β; ones and zeros if absent.
    training : bool
        Whether to use the statistics of the batch.
    momentum : float
        m, the weight of the new value, from 0 to 1.
    eps : float
        ε, added to the variance.
    unbiased_running_var : bool
        Whether s is the unbiased variance; with False s = σ², as in Keras and Flax.

    Returns
    -------
    Tensor
        Of the shape of `x`.

    Raises
    ------
    ValueError
        For only one value per channel in training, for missing running statistics otherwise, or for shapes or devices
        that do not match.
    TypeError
        For running statistics that are not tensors, or have another dtype than `x`.

    Examples
    --------
    >>> import minigrad as mg
    >>> import minigrad.nn.functional as F
    >>> mean, var = mg.zeros(1), mg.ones(1)
    >>> F.batch_norm(mg.tensor([[1.0], [3.0]]), mean, var, training=True, momentum=0.5, eps=0.0).tolist()
    [[-1.0], [1.0]]
    >>> mean.tolist(), var.tolist()
    ([1.0], [1.5])
    """
    if training and running_mean is not None:
        momentum = number("batch_norm", "momentum", momentum, 0, 1)
    return following_batch_norm(
        x, running_mean, running_var, weight, bias, training, momentum, eps, unbiased_running_var
    )


def following_batch_norm(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    training: bool, momentum: float | Tensor, eps: float, unbiased_running_var: bool,
) -> Tensor:  # fmt: skip
    """`batch_norm` whose momentum may be a tensor ``()`` on the device of x, so that a GPU need not be waited for."""
    x = _fitting("batch_norm", x, 2, running_mean, running_var)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("[batch_norm] expected running_mean and running_var in evaluation, got None")
        # copied because the statistics may change before the backward pass
        return batch_norm_eval(x, running_mean.copy(), running_var.copy(), weight, bias, eps)
    y, mean, var = batch_norm_train(x, weight, bias, eps)
    if running_mean is not None and running_var is not None and x.size:
        if unbiased_running_var:
            n = math.prod(x.shape[:1] + x.shape[2:])
            var = var * (n / (n - 1))
        _follow(running_mean, mean, running_var, var, momentum)
    return y


def instance_norm(
    x: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Instance normalization of each channel of each sample: y = (x − μ) / √(σ² + ε) · γ + β.

    With `use_input_stats`, μ and σ² are the mean and the biased variance over all axes but the first two (Ulyanov et
    al. 2016, https://arxiv.org/abs/1607.08022). The running statistics, if given, are updated as in `batch_norm` with
    the mean and the unbiased variance, averaged over the samples. Otherwise, μ and σ² are the running statistics.

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, floats. If squared deviations overflow (in float32, from 1e17 on), the channel of that sample
        becomes `bias`; near the largest numbers, it becomes NaN.
    running_mean, running_var : Tensor, optional
        ``(C,)``.
    weight, bias : Tensor, optional
        ``(C,)``: γ and β; ones and zeros if absent.
    use_input_stats : bool
        Whether to use the statistics of the input.
    momentum, eps : float
        m, the weight of the new value, from 0 to 1; ε, added to the variance.

    Returns
    -------
    Tensor
        Of the shape of `x`.

    Raises
    ------
    ValueError
        For only one value per channel and sample, for missing running statistics without `use_input_stats`, or for
        shapes or devices that do not match.
    TypeError
        For running statistics that are not tensors, or have another dtype than `x`.

    Examples
    --------
    >>> import minigrad as mg
    >>> import minigrad.nn.functional as F
    >>> F.instance_norm(mg.tensor([[[1.0, 3.0], [10.0, 50.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    x = _fitting("instance_norm", x, 3, running_mean, running_var)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("[instance_norm] expected running_mean and running_var, got None without use_input_stats")
        # copied because the statistics may change before the backward pass
        return batch_norm_eval(x, running_mean.copy(), running_var.copy(), weight, bias, eps, "instance_norm")
    y = normalize_instances(x, weight=weight, bias=bias, eps=eps)
    if running_mean is not None and running_var is not None and x.size:
        momentum = number("instance_norm", "momentum", momentum, 0, 1)
        plain, spatial = x.detach(), tuple(range(2, x.ndim))
        var = plain.var(spatial, correction=1).mean(0)
        _follow(running_mean, plain.mean((0, *spatial)), running_var, var, momentum)
    return y


def _fitting(op: str, x: Tensor, axes: int, running_mean: Tensor | None, running_var: Tensor | None) -> Tensor:
    """Convert x to a tensor and check that the running statistics, if there are any, match it."""
    x = x if isinstance(x, Tensor) else make(x, copy=is_grad_enabled(), op=op)
    if (running_mean is None) != (running_var is None):
        raise ValueError(f"[{op}] expected both running_mean and running_var or neither, got one of them")
    if running_mean is None or running_var is None:
        return x
    for running in (running_mean, running_var):
        if not isinstance(running, Tensor):
            raise TypeError(f"[{op}] expected running statistics that are tensors, got {kind_of(running)}")
    if x.ndim < axes:
        raise ValueError(f"[{op}] expected x of shape (N, C, ...) with {axes} axes or more, got {x.shape}")
    if x.dtype.kind != "f":
        raise TypeError(f"[{op}] expected floating-point elements, got {x.dtype}")
    shape = x.shape[1:2]
    if running_mean.shape != shape or running_var.shape != shape:
        got = f"{running_mean.shape} and {running_var.shape}"
        raise ValueError(f"[{op}] expected running statistics of shape {shape}, got {got}")
    if running_mean.dtype != x.dtype or running_var.dtype != x.dtype:
        got = f"{running_mean.dtype} and {running_var.dtype}"
        hint = f': use x.astype("{running_mean.dtype}")' if running_mean.dtype == running_var.dtype else ""
        raise TypeError(f"[{op}] expected running statistics of {x.dtype}, the dtype of x, got {got}{hint}")
    if running_mean.device != x.device or running_var.device != x.device:
        got = f"{running_mean.device} and {running_var.device}"
        raise ValueError(f"[{op}] expected running statistics on {x.device}, the device of x, got {got}")
    return x


def _follow(running_mean: Tensor, mean: Tensor, running_var: Tensor, var: Tensor, momentum: float | Tensor) -> None:
    """Move running statistics towards new ones, in place."""
    if not isinstance(momentum, Tensor) and momentum == 0:  # so that values that are not finite do not change them
        return
    for running, new in ((running_mean, mean), (running_var, var)):
        running.copy_((1 - momentum) * running + momentum * new)


# ── parts ─────────────────────────────────────────────────────────────────────────────────────────


def _check_integers(op: str, labels: Tensor) -> None:
    if not isinstance(labels, Tensor):
        raise TypeError(f"[{op}] expected a tensor, got {kind_of(labels)}")
    if labels.dtype.kind != "i":
        raise TypeError(f"[{op}] expected integer labels, got {labels.dtype}")
