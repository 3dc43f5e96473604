"""Losses of probabilities and regression losses; the losses of class labels are operations (engine/ops/softmax)."""

import math
from numbers import Real

from minigrad.arrays.array_api import finfo
from minigrad.arrays.creation import full_like, operand
from minigrad.arrays.products import broadcast_arrays
from minigrad.engine.devices.kernel_list import repeat
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.activation import relu, softplus
from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.functions import exp, log, smooth_l1, sqrt, square, squared_difference
from minigrad.engine.ops.layout import expand_dims
from minigrad.engine.ops.logic import logical_and, maximum, minimum, where
from minigrad.engine.ops.rounding import absolute
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor

HALF_LOG_2PI = math.log(2 * math.pi) / 2


@rename_arguments
def binary_cross_entropy(
    probs: Tensor, labels: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy of probabilities: loss = −w (y log p + (1 − y) log(1 − p)).

    The logarithms are clamped at −100, as in PyTorch, so that p = 0 and p = 1 give finite losses. Clamped logarithms
    have no gradient, whereas PyTorch gives one of about 1e12. If logits are available, use
    `binary_cross_entropy_with_logits`, which loses no digits and always has the correct gradient.

    The result is a scalar, or has the shape of `probs` for "none".

    Parameters
    ----------
    probs : Tensor
        Any shape, floats in [0, 1]: p.
    labels : Tensor
        The same shape, floats in [0, 1]: y.
    weight : Tensor, optional
        w, broadcast over the losses.
    reduction : {"mean", "sum", "none"}

    Raises
    ------
    TypeError
        If an argument is not a tensor of floats.
    ValueError
        For values outside [0, 1] or NaN (checked on the CPU only, as reading values would wait for the GPU), for shapes
        that differ, or for an unknown `reduction`.

    Examples
    --------
    >>> loss = mg.nn.functional.binary_cross_entropy(mg.tensor([0.0, 1.0]), mg.tensor([1.0, 1.0]), reduction="none")
    >>> loss.tolist() == [100.0, 0.0]
    True
    """
    op = "binary_cross_entropy"
    _check_pair(op, probs, labels, reduction)
    _check_unit_interval(op, "probabilities", probs)
    _check_unit_interval(op, "labels", labels)
    loss = -(labels * _bounded_log(probs) + (1 - labels) * _bounded_log(1 - probs))
    return _reduce(loss if weight is None else loss * weight, reduction)


@rename_arguments
def binary_cross_entropy_with_logits(
    logits: Tensor, labels: Tensor, weight: Tensor | None = None, reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Binary cross-entropy of σ(z): loss = w (q y log(1 + e^−z) + (1 − y) log(1 + e^z)).

    The logarithms are softplus(−z) and softplus(z), which do not overflow for any z. Nothing is subtracted, so even a
    loss near zero keeps its digits. Errors are as for `binary_cross_entropy`. The result is a scalar, or has the shape
    of `logits` for "none".

    Parameters
    ----------
    logits : Tensor
        Any shape, floats: z.
    labels, weight, reduction
        As in `binary_cross_entropy`.
    pos_weight : Tensor, optional
        q, the weight of positive labels, broadcast over the losses; 1 by default.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.binary_cross_entropy_with_logits(mg.tensor([100.0, -1000.0]), mg.zeros(2), reduction="none").tolist()
    [100.0, 0.0]
    """
    op = "binary_cross_entropy_with_logits"
    _check_pair(op, logits, labels, reduction)
    _check_unit_interval(op, "labels", labels)
    positive = labels if pos_weight is None else pos_weight * labels
    loss = _times(positive, softplus(-logits)) + _times(1 - labels, softplus(logits))
    return _reduce(loss if weight is None else loss * weight, reduction)


@rename_arguments
def mse_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Squared error: loss = (x − y)².

    Raises TypeError if an argument is not a tensor of floats, and ValueError for shapes that differ, or for an unknown
    `reduction`. The result is a scalar, or has the shape of `x` for "none".

    Parameters
    ----------
    x, target : Tensor
        Floats of the same shape. They are not broadcast: shapes (N, 1) and (N,) are an error, not N² losses.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> mg.nn.functional.mse_loss(mg.tensor([1.0, 3.0]), mg.tensor([0.0, 0.0])).item()
    5.0
    """
    _check_pair("mse_loss", x, target, reduction)
    return _reduce(squared_difference(x, target), reduction)


@rename_arguments
def l1_loss(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Absolute error: loss = |x − y|, with derivative 0 where x = y. Shapes and errors as for `mse_loss`.

    Examples
    --------
    >>> mg.nn.functional.l1_loss(mg.tensor([1.0, -3.0]), mg.tensor([0.0, 0.0]), reduction="sum").item()
    4.0
    """
    _check_pair("l1_loss", x, target, reduction)
    return _reduce(absolute(x - target), reduction)


@rename_arguments
def smooth_l1_loss(x: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Squared error near 0, absolute error beyond: loss = d²/2β where d = |x − y| < β, else d − β/2.

    Girshick 2015, https://arxiv.org/abs/1504.08083, equation 3. Shapes and errors as for `mse_loss`.

    Parameters
    ----------
    x, target, reduction
        As in `mse_loss`.
    beta : float
        β ≥ 0; 0 gives `l1_loss`.

    Examples
    --------
    >>> mg.nn.functional.smooth_l1_loss(mg.tensor([0.5, 3.0]), mg.tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    _check_pair("smooth_l1_loss", x, target, reduction)
    beta = number("smooth_l1_loss", "beta", beta, 0)
    if beta == 0:
        return l1_loss(x, target, reduction)
    return _reduce(smooth_l1(x - target, beta), reduction)


@rename_arguments
def huber_loss(x: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """δ times `smooth_l1_loss` with β = δ: loss = d²/2 where d = |x − y| < δ, else δ (d − δ/2).

    Huber 1964, https://doi.org/10.1214/aoms/1177703732. Shapes and errors as for `mse_loss`.

    Parameters
    ----------
    x, target, reduction
        As in `mse_loss`.
    delta : float
        δ > 0.

    Examples
    --------
    >>> mg.nn.functional.huber_loss(mg.tensor([1.0, 5.0]), mg.tensor([0.0, 0.0]), "none", delta=2.0).tolist()
    [0.5, 8.0]
    """
    _check_pair("huber_loss", x, target, reduction)
    delta = above_zero("huber_loss", "delta", delta)
    if delta > finfo(x.dtype).max:
        return _reduce(squared_difference(x, target) / 2, reduction)
    return smooth_l1_loss(x, target, reduction, delta) * delta


def above_zero(op: str, name: str, value: float) -> float:
    """Return an argument as a number above 0."""
    value = number(op, name, value)
    if not value > 0:
        raise ValueError(f"[{op}] expected {name} > 0, got {value}")
    return value


@rename_arguments
def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Kullback–Leibler divergence of probabilities from log-probabilities x: loss = y (log y − x), and 0 where y = 0.

    As in PyTorch, "mean" divides by the number of elements, and "batchmean", which gives the divergence, by the number
    of rows.

    Parameters
    ----------
    x : Tensor
        Log-probabilities, floats.
    target : Tensor
        y of the same shape; log y with `log_target`.
    reduction : {"mean", "batchmean", "sum", "none"}
    log_target : bool

    Examples
    --------
    >>> x = mg.log(mg.tensor([[0.5, 0.5]]))
    >>> round(mg.nn.functional.kl_div(x, mg.tensor([[1.0, 0.0]]), "batchmean").item(), 4)      # log 2
    0.6931
    """
    check_divergence_reduction("kl_div", reduction)
    _check_pair("kl_div", x, target, "none")
    if log_target:
        some = target > -math.inf
        y, x = where(some, target, 0), where(some, x, 0)
        loss = where(some, exp(y) * (y - x), 0)
    else:
        some = target > 0
        loss = where(some, target * log(where(some, target, 1)), target * 0) + _times(target, -x)
    if reduction == "batchmean":
        return loss.sum() / loss.shape[0] if loss.ndim else loss
    return _reduce(loss, reduction)


@rename_arguments
def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x·y / (max(‖x‖, ε) max(‖y‖, ε)) along an axis of x and y, broadcast to one shape.

    Parameters
    ----------
    x, y : Tensor
        Floats.
    dim : int
        The axis of the vectors, of the common shape.
    eps : float
        ε, above 0: the least norm to divide by.

    Examples
    --------
    >>> mg.nn.functional.cosine_similarity(mg.tensor([3.0, 4.0]), mg.tensor([3.0, 0.0]), dim=0)
    tensor(0.6)
    """
    check_float("cosine_similarity", x)
    check_float("cosine_similarity", y)
    least = number("cosine_similarity", "eps", eps, 0) ** 2
    x, y = (x, y) if x.shape == y.shape else broadcast_arrays(x, y)
    x, y = (z / sqrt(maximum(square(z).sum(dim, keepdims=True), least)) for z in (x, y))
    return (x * y).sum(dim)


@rename_arguments
def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(‖a − b‖ₚ − ‖a − c‖ₚ + margin, 0): b, of the kind of a, has to be nearer to a than c is, by the margin.

    Balntas et al. 2016, https://bmva-archive.org.uk/bmvc/2016/papers/paper119/. Raises TypeError if an argument is not
    a tensor of floats, and ValueError for shapes that differ, a margin that is not above 0, or an unknown `reduction`.
    The result is a scalar, or ``(N,)`` for "none".

    Parameters
    ----------
    anchor, positive, negative : Tensor
        Floats of the same shape, ``(N, D)`` or ``(D,)``: a, b and c.
    margin : float
        Above 0.
    p : float
        The order of the norm.
    eps : float
        Added to each difference, which gives the norm of equal vectors a gradient.
    swap : bool
        Whether to take ‖b − c‖ₚ where it is less than ‖a − c‖ₚ.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> a, b, c = mg.tensor([[0.0, 0.0]]), mg.tensor([[3.0, 0.0]]), mg.tensor([[0.0, 2.0]])
    >>> round(mg.nn.functional.triplet_margin_loss(a, b, c).item(), 4)
    2.0
    """
    op = "triplet_margin_loss"
    anchor, positive, negative = (operand(op, x) for x in (anchor, positive, negative))
    _check_pair(op, anchor, positive, reduction)
    _check_pair(op, anchor, negative, reduction)
    margin, p, eps = above_zero(op, "margin", margin), number(op, "p", p), number(op, "eps", eps)
    if anchor.ndim not in (1, 2):
        raise ValueError(f"[{op}] expected vectors of shape (N, D) or (D,), got {anchor.shape}")
    near, far = ((anchor - x + eps).norm(p, -1) for x in (positive, negative))
    if swap:
        far = minimum(far, (positive - negative + eps).norm(p, -1))
    return _reduce(relu(near - far + margin), reduction)


@rename_arguments
def gaussian_nll_loss(
    x: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """−log of the normal density of mean x and variance v: loss = (log v + (x − y)² / v) / 2.

    Nix, Weigend 1994, https://doi.org/10.1109/ICNN.1994.374138. A variance below ε counts as ε, and gets the gradient
    that ε would get, as in PyTorch: it can grow again. Raises TypeError if an argument is not a tensor of floats, and
    ValueError for shapes that do not fit, a negative variance (of a tensor, checked on the CPU only), or an unknown
    `reduction`.

    The result is a scalar, or has the shape of `x` for "none".

    Parameters
    ----------
    x, target : Tensor
        Floats of the same shape: x and y.
    var : Tensor or float
        v, not negative: of the shape of x, without its last axis (one v for each row), or with one axis of length 1.
    full : bool
        Whether to add the constant log(2π) / 2.
    eps : float
        ε.
    reduction : {"mean", "sum", "none"}

    Examples
    --------
    >>> mg.nn.functional.gaussian_nll_loss(mg.tensor([1.0, 3.0]), mg.tensor([0.0, 0.0]), mg.ones(2)).item()
    2.5
    """
    op = "gaussian_nll_loss"
    x, target = operand(op, x), operand(op, target)
    _check_pair(op, x, target, reduction)
    eps = number(op, "eps", eps, 0)
    v = full_like(x, number(op, "var", var)) if isinstance(var, Real) else operand(op, var)
    check_float(op, v)
    if v.shape == x.shape[:-1] != x.shape:
        v = expand_dims(v, -1)
    if v.ndim != x.ndim or [n for n, m in zip(v.shape, x.shape, strict=True) if n != m] not in ([], [1]):
        raise ValueError(
            f"[{op}] expected a variance of shape {x.shape}, or without its last axis, or with an axis of 1, "
            f"got {v.shape}"
        )
    if v.size and v.device == "cpu":
        repeat(_check_range, (op, "variances", v.detach(), math.inf))
    v = v + (maximum(v, eps) - v).detach()
    return _reduce((log(v) + squared_difference(x, target) / v) / 2 + (HALF_LOG_2PI if full else 0), reduction)


def _times(weight: Tensor, x: Tensor) -> Tensor:
    """Return weight * x, with 0 · ∞ = 0: what has no weight costs nothing."""
    return weight * where(logical_and(weight == 0, x == math.inf), finfo(x.dtype).max, x)


def check_reduction(op: str, reduction: str) -> str:
    """Return `reduction` if it is valid."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"[{op}] expected reduction 'mean', 'sum' or 'none', got {reduction!r}")
    return reduction


def check_divergence_reduction(op: str, reduction: str) -> str:
    """Return `reduction` if it is valid for `kl_div`."""
    return reduction if reduction == "batchmean" else check_reduction(op, reduction)


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _bounded_log(x: Tensor) -> Tensor:
    """max(log x, −100), with gradient 0 at that bound; a subnormal float32 number counts as 0."""
    least = max(math.exp(-100), 2.0**-126 if x.dtype == "float32" else 0.0)
    return where(x < least, -100.0, log(maximum(x, least)))


def check_float(op: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"[{op}] expected a tensor, got {kind_of(x)}")
    if x.dtype.kind != "f":
        raise TypeError(f"[{op}] expected floats, got {x.dtype}")


def _check_pair(op: str, x: Tensor, target: Tensor, reduction: str) -> None:
    check_reduction(op, reduction)
    check_float(op, x)
    check_float(op, target)
    if x.shape != target.shape:
        advice = f": `target.reshape({x.shape})`, if it has the same order" if x.size == target.size else ""
        raise ValueError(f"[{op}] expected two tensors of the same shape, got {x.shape} and {target.shape}{advice}")


def _check_unit_interval(op: str, what: str, x: Tensor) -> None:
    if x.size and x.device == "cpu":  # reading them would wait for a GPU, whose kernels tolerate such values
        repeat(_check_range, (op, what, x.detach()))


def _check_range(op: str, what: str, x: Tensor, most: float = 1) -> None:
    low, high = x.min().item(), x.max().item()
    if not (low >= 0 and high <= most):  # NaN fails both
        raise ValueError(f"[{op}] expected {what} from 0 to {most}, got values from {low:g} to {high:g}")
