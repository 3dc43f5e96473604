"""Normalization by running statistics: batch, batch re- and instance normalization.

Norms over rows, such as `layer_norm`, are operations of their own (engine/ops/norm).
"""

import math
from typing import Any

from minigrad.arrays.creation import full, operand, zeros_like
from minigrad.autograd import no_grad
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train
from minigrad.engine.ops.functions import rsqrt, sqrt
from minigrad.engine.ops.join import concat, stack
from minigrad.engine.ops.logic import clip
from minigrad.engine.ops.norm import instance_norm as normalize_instances
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.norm.norm_compositions import check_parameter


@rename_arguments
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
        ``(N, C)`` or ``(N, C, ...)``, floats; the result has this shape. If squared deviations overflow in
        training (in float32, from 1e17 on), the channel becomes `bias` and its running variance infinite; near the
        largest numbers, the channel becomes NaN.
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

    Raises
    ------
    ValueError
        For only one value per channel in training, for missing running statistics otherwise, or for shapes or devices
        that do not match.
    TypeError
        For running statistics that are not tensors, or have another dtype than `x`.

    Examples
    --------
    >>> mean, var = mg.zeros(1), mg.ones(1)
    >>> mg.nn.functional.batch_norm(mg.tensor([[1.0], [3.0]]), mean, var, training=True, momentum=0.5, eps=0.0).tolist()
    [[-1.0], [1.0]]
    >>> mean.tolist(), var.tolist()
    ([1.0], [1.5])
    """
    if training and running_mean is not None:
        momentum = number("batch_norm", "momentum", momentum, 0, 1)
    return apply_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, unbiased_running_var)


def apply_batch_norm(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    training: bool, momentum: float | Tensor, eps: float, unbiased_running_var: bool, over_ranks: bool = False,
) -> Tensor:  # fmt: skip
    """`batch_norm` whose momentum may be a tensor ``()`` on the device of x, so that a GPU need not be waited for.

    With `over_ranks`, the batch in training is the batches of all ranks together.
    """
    x = _check_statistics("batch_norm", x, 2, running_mean, running_var)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("[batch_norm] expected running_mean and running_var in evaluation, got None")
        # The statistics may change before the backward pass, so it needs copies.
        return batch_norm_eval(x, running_mean.copy(), running_var.copy(), weight, bias, eps)
    n: Any = math.prod(x.shape[:1] + x.shape[2:])
    if over_ranks:
        mean, var, n = statistics_over_ranks(x, n)
        y = batch_norm_eval(x, mean, var, weight, bias, eps)
        mean, var = mean.detach(), var.detach()
    else:
        y, mean, var = batch_norm_train(x, weight, bias, eps)
    if running_mean is not None and running_var is not None and (x.size or over_ranks):
        if unbiased_running_var:
            var = var * (n / (n - 1))
        _follow(running_mean, mean, running_var, var, momentum)
    return y


def statistics_over_ranks(x: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and the biased variance of each channel over the batches of all ranks, and the number of values.

    n is the number of values per channel on this rank. Each rank contributes its own mean and variance, which are
    combined as by Chan, Golub, LeVeque 1983, https://doi.org/10.1080/00031305.1983.10483115, so that nothing cancels.
    """
    from minigrad.ranks.collectives import all_reduce
    from minigrad.ranks.communicator import rank, size

    axes, channels = (0, *range(2, x.ndim)), x.shape[1]
    mean = x.sum(axes, keepdims=True) / max(n, 1)
    var = ((x - mean) ** 2).sum(axes) / max(n, 1)
    own = concat([mean.reshape(channels), var, full(1, n, dtype=x.dtype, device=x.device)])
    # Each rank fills its row, so that one sum brings all of them together.
    rows = all_reduce(stack([own if place == rank() else zeros_like(own) for place in range(size())]))
    means, vars, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:].detach()
    total = counts.sum()
    if n < 2 and total.item() < 2:  # reading the total waits for a GPU, and n ≥ 2 makes it needless
        raise ValueError(
            f"[batch_norm] expected more than one value per channel on all ranks together in training, got "
            f"{total.item():g}: the variance of a single value is zero"
        )
    mean = (means * counts).sum(0) / total
    return mean, ((vars + (means - mean) ** 2) * counts).sum(0) / total, total


def batch_renorm(
    x: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.01, eps: float = 1e-5, r_max: float = 3.0, d_max: float = 5.0, *,
    unbiased_running_var: bool = True,
) -> Tensor:  # fmt: skip
    """Batch renormalization of each channel: y = ((x − μ_B) / σ_B · r + d) · γ + β.

    In training, μ_B and σ_B = √(σ_B² + ε) are those of the batch, r = clip(σ_B / σ, 1 / r_max, r_max) and
    d = clip((μ_B − μ) / σ, −d_max, d_max), with μ and σ = √(σ² + ε) of the running statistics before their update. The
    gradient passes through μ_B and σ_B, while r and d are constants to it (Ioffe 2017,
    https://arxiv.org/abs/1702.03275, algorithm 1). Where nothing is clipped, y is the output in evaluation,
    (x − μ) / σ · γ + β. With r_max = 1 and d_max = 0, this is `batch_norm`.

    Errors are as for `batch_norm`, and for limits that are too small.

    Parameters
    ----------
    x, weight, bias, training, momentum, eps, unbiased_running_var
        As in `batch_norm`.
    running_mean, running_var : Tensor
        ``(C,)``, updated in training as in `batch_norm`: they average the variance, while the paper averages σ.
    r_max, d_max : float
        The limits of r, at least 1, and d, at least 0.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> mean, var = mg.zeros(1), mg.ones(1)
    >>> F.batch_renorm(mg.tensor([[2.0], [4.0]]), mean, var, training=True, eps=0.0).tolist()
    [[2.0], [4.0]]
    >>> F.batch_renorm(mg.tensor([[2.0], [4.0]]), mg.zeros(1), mg.ones(1), training=True, eps=0.0, d_max=2.0).tolist()
    [[1.0], [3.0]]
    """
    x = _check_statistics("batch_renorm", x, 2, running_mean, running_var)
    if training:
        momentum = number("batch_renorm", "momentum", momentum, 0, 1)
        weight, bias = renormalize(x, running_mean, running_var, weight, bias, eps, r_max, d_max)
    return apply_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, unbiased_running_var)


def renormalize(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    eps: float, r_max: float, d_max: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return γ r and γ d + β: batch renormalization is batch normalization with these as γ and β."""
    op = "batch_renorm"
    x = _check_statistics(op, x, 2, running_mean, running_var)
    eps, r_max, d_max = number(op, "eps", eps, 0), number(op, "r_max", r_max, 1), number(op, "d_max", d_max, 0)
    if running_mean is None or running_var is None:
        raise ValueError(f"[{op}] expected running_mean and running_var, got None")
    if x.shape[0] * math.prod(x.shape[2:]) == 1:
        raise ValueError(f"[{op}] expected more than one value per channel in training, got shape {x.shape}")
    weight = None if weight is None else check_parameter(op, "weight", weight, x.shape[1:2], x)
    bias = None if bias is None else check_parameter(op, "bias", bias, x.shape[1:2], x)
    with no_grad():
        _, mean, var = batch_norm_train(x, eps=eps)
        r = clip(sqrt((var + eps) / (running_var + eps)), 1 / r_max, r_max)
        d = clip((mean - running_mean) * rsqrt(running_var + eps), -d_max, d_max)
    if weight is None:
        return r, d if bias is None else d + bias
    return weight * r, weight * d if bias is None else weight * d + bias


@rename_arguments
def instance_norm(
    x: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Instance normalization of each channel of each sample: y = (x − μ) / √(σ² + ε) · γ + β.

    With `use_input_stats`, μ and σ² are the mean and the biased variance over all axes but the first two (Ulyanov et
    al. 2016, https://arxiv.org/abs/1607.08022). The running statistics, if given, are updated as in `batch_norm` with
    the mean and the unbiased variance, averaged over the samples. Otherwise, μ and σ² are the running statistics.
    Errors are as for `batch_norm`; the one value is per channel and sample.

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, floats; the result has this shape. If squared deviations overflow (in float32, from 1e17 on),
        the channel of that sample becomes `bias`; near the largest numbers, it becomes NaN.
    running_mean, running_var, weight, bias, momentum, eps
        As in `batch_norm`.
    use_input_stats : bool
        Whether to use the statistics of the input.

    Examples
    --------
    >>> mg.nn.functional.instance_norm(mg.tensor([[[1.0, 3.0], [10.0, 50.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    x = _check_statistics("instance_norm", x, 3, running_mean, running_var)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise ValueError("[instance_norm] expected running_mean and running_var, got None without use_input_stats")
        # The statistics may change before the backward pass, so it needs copies.
        return batch_norm_eval(x, running_mean.copy(), running_var.copy(), weight, bias, eps, "instance_norm")
    y = normalize_instances(x, weight=weight, bias=bias, eps=eps)
    if running_mean is not None and running_var is not None and x.size:
        momentum = number("instance_norm", "momentum", momentum, 0, 1)
        plain, spatial = x.detach(), tuple(range(2, x.ndim))
        var = plain.var(spatial, correction=1).mean(0)
        _follow(running_mean, plain.mean((0, *spatial)), running_var, var, momentum)
    return y


def _check_statistics(op: str, x: Tensor, axes: int, running_mean: Tensor | None, running_var: Tensor | None) -> Tensor:
    """Convert x to a tensor and check that the running statistics, if there are any, match it."""
    x = operand(op, x)
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
    if not isinstance(momentum, Tensor) and momentum == 0:  # values that are not finite would change them
        return
    for running, new in ((running_mean, mean), (running_var, var)):
        running.copy_((1 - momentum) * running + momentum * new)
