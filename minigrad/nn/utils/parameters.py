"""Utilities for parameters: clipping gradients, converting to and from vectors, folding batch normalization."""

import copy
import math
from collections.abc import Iterable
from typing import Any

from minigrad.arrays.creation import zeros
from minigrad.autograd import no_grad
from minigrad.engine.devices.kernel_list import capturing, repeat
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.functions import rsqrt
from minigrad.engine.ops.join import concat
from minigrad.engine.ops.logic import clip
from minigrad.engine.ops.optimizer import grad_norm, scale_
from minigrad.engine.ops.rounding import absolute
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module
from minigrad.nn.norm.batch_norm import BatchNorm1d, BatchNorm2d
from minigrad.nn.norm.computed import M, is_computed, make_plain
from minigrad.nn.norm.row_norms import check_tensor
from minigrad.nn.parameter import Parameter


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> float:
    """Scale all gradients by one factor so that their total norm is at most `max_norm`.

    g ← g · min(1, max_norm / (‖g‖ + 1e-6)), with the norm ‖g‖ of all gradients concatenated into one vector (Pascanu et
    al. 2012, https://arxiv.org/abs/1211.5063; the 1e-6 is PyTorch's).

    Raises TypeError if `parameters` contains anything but tensors, and ValueError for a negative
    `max_norm`, a `norm_type` that is not above 0, and a norm that is not finite if `error_if_nonfinite` is true.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Parameters without a gradient are skipped.
    max_norm : float
    norm_type : float
        p of the p-norm; ``inf`` for the largest magnitude.
    error_if_nonfinite : bool
        Whether a norm that is NaN or infinite is an error; otherwise it propagates to all gradients.

    Returns
    -------
    float
        The norm before clipping. As this is a Python number, the call waits for gradients on a GPU. In a step that
        `minigrad.capture` records, it is a float64 tensor without axes.

    Examples
    --------
    >>> x = mg.zeros(2, requires_grad=True)
    >>> x.grad = mg.tensor([3.0, 4.0])
    >>> mg.nn.utils.clip_grad_norm_([x], max_norm=1.0)
    5.0
    >>> [round(value, 3) for value in x.grad.tolist()]
    [0.6, 0.8]
    """
    max_norm = number("clip_grad_norm_", "max_norm", max_norm, 0)
    norm_type = number("clip_grad_norm_", "norm_type", norm_type, 0)
    if norm_type == 0:
        raise ValueError("[clip_grad_norm_] expected norm_type > 0, got 0")
    if capturing():
        found = zeros((), dtype="float64")
        given = parameters if isinstance(parameters, Tensor) else list(parameters)
        repeat(_clip_into, (found, given, max_norm, norm_type, error_if_nonfinite))
        return found  # type: ignore[return-value]
    by_dtype = _gradients("clip_grad_norm_", parameters)
    norm = _combine([_norm(grads, norm_type) for grads in by_dtype], norm_type)
    if error_if_nonfinite and not math.isfinite(norm):
        raise ValueError(f"[clip_grad_norm_] expected gradients with a finite norm, got {norm}")
    factor = max_norm / (norm + 1e-6)
    if not factor >= 1:  # NaN propagates
        with no_grad():
            for grads in by_dtype:
                scale_(grads, factor)
    return norm


def _clip_into(norm: Tensor, *args: Any) -> None:
    """Clip gradients, and write their norm to a tensor."""
    norm.fill_(clip_grad_norm_(*args))


_clip_into.__name__ = "clip_grad_norm_"  # a captured step shows the call by this name


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clip every element of every gradient to [−clip_value, clip_value]; errors are as for `clip_grad_norm_`.

    Examples
    --------
    >>> x = mg.zeros(2, requires_grad=True)
    >>> x.grad = mg.tensor([3.0, -0.5])
    >>> mg.nn.utils.clip_grad_value_([x], 1.0)
    >>> x.grad.tolist()
    [1.0, -0.5]
    """
    clip_value = number("clip_grad_value_", "clip_value", clip_value, 0)
    with no_grad():
        for grads in _gradients("clip_grad_value_", parameters):
            for grad in grads:
                grad.copy_(clip(grad, -clip_value, clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Concatenate all elements of all parameters into one vector; the result is differentiable.

    Raises ValueError if there are none.

    Examples
    --------
    >>> mg.nn.utils.parameters_to_vector([mg.ones((2, 2)), mg.zeros(1)]).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    flat = [parameter.reshape(-1) for parameter in parameters]
    if not flat:
        raise ValueError("[parameters_to_vector] expected at least one parameter, got none")
    return concat(flat)


def vector_to_parameters(vector: Tensor, parameters: Iterable[Tensor]) -> None:
    """Copy the pieces of a vector into parameters: the inverse of `parameters_to_vector`.

    Raises ValueError if the vector does not have as many elements as the parameters; nothing is written then.

    Examples
    --------
    >>> layer = mg.nn.Linear(2, 1)
    >>> mg.nn.utils.vector_to_parameters(mg.arange(3.0), layer.parameters())
    >>> layer.weight.tolist(), layer.bias.tolist()
    ([[0.0, 1.0]], [2.0])
    """
    check_tensor("vector_to_parameters", vector)
    parameters = list(parameters)
    count = sum(parameter.size for parameter in parameters)
    if vector.shape != (count,):
        raise ValueError(f"[vector_to_parameters] expected a vector of shape {(count,)}, got {vector.shape}")
    start = 0
    with no_grad():
        for parameter in parameters:
            parameter.copy_(vector[start : start + parameter.size].reshape(parameter.shape))
            start += parameter.size


def fold_batch_norm(layer: M, bn: BatchNorm1d | BatchNorm2d) -> M:
    """Make a layer that computes ``bn(layer(x))`` in evaluation, where the two are a single affine map.

    W' = s W and b' = s (b − μ) + β for each output channel, with s = γ / √(σ² + ε), the running statistics μ and σ²,
    and γ and β the weight and bias of `bn`. They are computed in float64. Layers such as `LayerNorm` cannot be folded,
    as their statistics come from the input.

    Parameters
    ----------
    layer : Module
        A layer with a ``weight`` that has the outputs along its first axis and a ``bias``, which may be None, such as a
        `Linear` on inputs ``(N, n)``. In the new layer, weight-normalized parameters become ordinary ones.
    bn : BatchNorm1d or BatchNorm2d
        A norm with running statistics, which are used even if it is in training mode; a BatchNorm2d for a weight of
        four axes, a BatchNorm1d for one of two or three. It may lack a weight, a bias or both.

    Returns
    -------
    Module
        A new layer of the same kind with its own memory and without gradients.

    Raises
    ------
    TypeError
        If `bn` is not the kind of norm that fits `layer`, if `layer` has no weight and bias, if the two have different
        dtypes, or if one of them has hooks.
    ValueError
        If `bn` has no running statistics, another number of channels, or is on another device.

    Examples
    --------
    >>> layer, bn = mg.nn.Linear(3, 2), mg.nn.BatchNorm1d(2)
    >>> _ = bn(layer(mg.random.normal(0.0, 1.0, (64, 3))))
    >>> x = mg.random.normal(0.0, 1.0, (5, 3))
    >>> difference = mg.nn.utils.fold_batch_norm(layer, bn)(x) - bn.eval()(layer(x))
    >>> bool(abs(difference).max() < 1e-5)
    True
    """
    op, kind = "fold_batch_norm", type(layer).__name__
    if not isinstance(bn, BatchNorm1d | BatchNorm2d):
        raise TypeError(f"[{op}] expected a BatchNorm1d or BatchNorm2d, got {type(bn).__name__}")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"[{op}] expected running statistics, got {bn}")
    weight = getattr(layer, "weight", None)
    shift = getattr(layer, "bias", None)
    has_bias = isinstance(layer, Module) and ("bias" in layer._parameters or is_computed(layer, "bias"))
    fits = isinstance(weight, Tensor) and 2 <= weight.ndim <= 4 and (shift is None or shift.shape == weight.shape[:1])
    if not isinstance(weight, Tensor) or not fits or not has_bias:
        raise TypeError(f"[{op}] expected a layer with weight and bias, got {kind}")
    if layer._hooks is not None or bn._hooks is not None:
        raise TypeError(f"[{op}] expected a layer and a norm without hooks, as the new layer could not call them")
    follower = BatchNorm2d if weight.ndim == 4 else BatchNorm1d
    if not isinstance(bn, follower):
        raise TypeError(
            f"[{op}] expected a {follower.__name__} after {kind} with a weight of shape {weight.shape}, "
            f"got {type(bn).__name__}"
        )
    if weight.dtype != bn.running_var.dtype:
        raise TypeError(f"[{op}] expected one dtype, got {kind} of {weight.dtype} and a norm of {bn.running_var.dtype}")
    if weight.device != bn.running_var.device:
        raise ValueError(
            f"[{op}] expected one device, got {kind} on {weight.device} and a norm on {bn.running_var.device}"
        )
    if weight.shape[0] != bn.num_features:
        raise ValueError(f"[{op}] expected {weight.shape[0]} channels, the outputs of {kind}, got {bn.num_features}")
    folded = copy.deepcopy(layer)
    for name in ("weight", "bias"):
        if is_computed(folded, name):
            make_plain(folded, name)
    parameter = dict(folded.named_parameters(recurse=False))["weight"]
    with no_grad():
        scale = rsqrt(bn.running_var.astype("float64") + bn.eps)
        if bn.weight is not None:
            scale = scale * bn.weight
        bias = (0.0 if shift is None else shift) - bn.running_mean.astype("float64")
        bias = bias * scale if bn.bias is None else bias * scale + bn.bias
        parameter.copy_(parameter * scale.reshape(-1, *[1] * (parameter.ndim - 1)))
    delattr(folded, "bias")
    folded.register_parameter("bias", Parameter(bias.astype(weight.dtype), requires_grad=parameter.requires_grad))
    folded.zero_grad()
    return folded


def _gradients(op: str, parameters: Tensor | Iterable[Tensor]) -> list[list[Tensor]]:
    """Return the existing gradients, made contiguous, in one list for each dtype and device."""
    if not isinstance(parameters, Iterable):
        raise TypeError(f"[{op}] expected a tensor or an iterable of tensors, got {kind_of(parameters)}")
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for parameter in parameters:
        if not isinstance(parameter, Tensor):
            raise TypeError(f"[{op}] expected tensors, got {kind_of(parameter)}")
    groups: dict[tuple[str, str], list[Tensor]] = {}
    for parameter in parameters:
        grad = parameter.grad
        if grad is not None:
            if not grad.is_contiguous():
                grad = parameter.grad = grad.detach().contiguous()
            groups.setdefault((str(grad.dtype), grad.device), []).append(grad)
    return list(groups.values())


def _norm(grads: list[Tensor], p: float) -> float:
    """The p-norm of several tensors of one dtype, concatenated into one vector."""
    with no_grad():
        if p == math.inf:
            return _combine([absolute(grad).max().item() for grad in grads if grad.size], p)
        norm = grad_norm(grads) if p == 2 else 0.0
        if 1e-140 < norm < math.inf:
            return norm
        largest = _norm(grads, math.inf)  # some or all powers may overflow or underflow
        if not 0 < largest < math.inf:
            return largest
        total = math.fsum((absolute(grad / largest) ** p).sum().item() for grad in grads)
        return largest * _power(total, 1 / p)


def _power(x: float, p: float) -> float:
    """x^p, but infinite where Python raises OverflowError."""
    try:
        return float(x**p)
    except OverflowError:
        return math.inf


def _combine(norms: list[float], p: float) -> float:
    """The p-norm of a list of p-norms."""
    if len(norms) == 1:
        return norms[0]
    if any(math.isnan(norm) for norm in norms):
        return math.nan
    largest = max(norms, default=0.0)
    if p == math.inf or not 0 < largest < math.inf:
        return largest
    return largest * _power(sum((norm / largest) ** p for norm in norms), 1 / p)
