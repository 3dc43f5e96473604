"""Batch normalization by the statistics of the batch or by given ones, and the affine map that follows."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport FLOAT64
from minigrad.engine.ops.arguments cimport float_operand, number, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply, subtract
from minigrad.engine.ops.functions cimport rsqrt
from minigrad.engine.ops.index cimport getitem
from minigrad.engine.ops.layout cimport cast, dense, elements, reshape_to
from minigrad.engine.ops.norm cimport (
    all_but_channels, differentiate, gradient_for, parameter, plain, scale_and_shift, standard,
)
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track, track_many
from minigrad.engine.ops.norm import NORMALIZED


cdef Array per_channel(Array v, Array x):
    """Reshape v of shape (C,) so that it broadcasts along the channels of x."""
    return None if v is None else reshape_to(v, shape_of(v) + (1,) * (x.ndim_ - 2))


cdef Array train_composition(Array x, Array weight, Array statistics, double eps):
    cdef double n = x.extent[0] * elements(x, 2, x.ndim_)
    cdef Array near = per_channel(cast(getitem(statistics, 0), x.code), x)
    return scale_and_shift(standard(x, all_but_channels(x), near, n, eps), per_channel(weight, x), None)


cdef Array eval_composition(Array x, Array mean, Array var, Array weight, double eps):
    cdef Array y = multiply(subtract(x, per_channel(mean, x)), per_channel(rsqrt(add(var, eps)), x))
    return scale_and_shift(y, per_channel(weight, x), None)


cdef Op batch_norm_op = operation("batch_norm", train_backward,
                                  "over the n elements of each channel in the batch:\n" + NORMALIZED,
                                  "dγ = Σ g x̂\ndβ = Σ g\ndx = γ r (g − dβ / n − x̂ dγ / n)",
                                  "x γ, x γ, x γ", "x, γ, β", "Ioffe and Szegedy (2015), algorithm 1")
cdef int train_backward(Node node, Array g) except -1:
    statistics, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), dx, dweight, dbias
    if recording():
        return differentiate(node, lambda a, w: train_composition(a, w, statistics, eps), [x, weight], g,
                             all_but_channels(x))
    dx = gradient_for(node, 0, x, 0, x.ndim_)
    dweight, dbias = gradient_for(node, 1, x, 1, 2), gradient_for(node, 2, x, 1, 2)
    backend(x).batch_norm_backward(x.extent[0], x.extent[1], elements(x, 2, x.ndim_), False, dense(x), plain(weight),
                                   statistics, dense(g), dx, dweight, dbias)
    return node.send_all((dx, dweight, dbias))


cdef Op given_statistics(str name):
    return operation(name, eval_backward, "with μ and σ² given:\nr = 1 / √(σ² + ε)\nx̂ = (x − μ) r\ny = γ x̂ + β",
                     "dx = γ r g\ndγ = Σ g x̂\ndβ = Σ g\ndμ = −γ r dβ\ndσ² = −γ r² dγ / 2", "", "x, μ, σ², γ, β",
                     "Ioffe and Szegedy (2015), algorithm 2")


cdef Op batch_norm_eval_op = given_statistics("batch_norm"), instance_norm_eval_op = given_statistics("instance_norm")


cdef int eval_backward(Node node, Array g) except -1:
    statistics, eps = node.extra
    cdef Array x = node.value(0), mean = node.value(1), var = node.value(2), weight = node.value(3)
    cdef Array dx, dmean = None, dvar = None, dweight = None, dbias = None, rstd, scale
    if recording():
        return differentiate(node, lambda a, m, v, w: eval_composition(a, m, v, w, eps), [x, mean, var, weight], g,
                             all_but_channels(x))
    dx = gradient_for(node, 0, x, 0, x.ndim_)
    if node.needs(2) or node.needs(3):
        dweight = empty_as(mean, x.code)
    if node.needs(1) or node.needs(4):
        dbias = empty_as(mean, x.code)
    backend(x).batch_norm_backward(x.extent[0], x.extent[1], elements(x, 2, x.ndim_), True, dense(x), plain(weight),
                                   statistics, dense(g), dx, dweight, dbias)
    if node.needs(1) or node.needs(2):
        rstd = cast(getitem(statistics, 1), x.code)
        scale = multiply(rstd if weight is None else multiply(rstd, weight), -1.0)
        if node.needs(1):
            dmean = multiply(scale, dbias)
        if node.needs(2):
            dvar = multiply(multiply(scale, rstd), multiply(dweight, 0.5))
    return node.send_all((dx, dmean, dvar, dweight, dbias))


cdef Array check_input(str op, object x):
    cdef Array a = float_operand(op, x)
    if a.ndim_ < 2:
        raise ValueError(f"[{op}] expected x of shape (N, C, ...), got {shape_of(a)}")
    return a


cdef Array empty_statistics(Array x):
    """Allocate the mean and 1 / √(σ² + ε) of each channel, which the kernels write in float64 for any x: (2, C)."""
    cdef int64_t[2] extent = [2, x.extent[1]]
    return empty(FLOAT64, 2, extent, x.buffer.device)


def batch_norm_train(x: TensorLike, weight: Tensor | None = None, bias: Tensor | None = None,
                     eps: float = 1e-5) -> tuple[Tensor, Tensor, Tensor]:
    """Batch normalization by the statistics of the batch, as in training: (y, mean, variance).

    The statistics, which are not recorded, are 0 if x has no values. `minigrad.nn.functional.batch_norm` describes the
    arguments. If squares of deviations overflow, a channel becomes `bias`, as a row does in `minigrad.layer_norm`.
    """
    cdef Call _call = begin(batch_norm_op)
    x, weight, bias = operand("batch_norm", x), optional("batch_norm", weight), optional("batch_norm", bias)
    eps = number("batch_norm", "eps", eps, 0)
    cdef Array a = check_input("batch_norm", x), out, mean, var, gamma, beta, statistics = empty_statistics(a)
    cdef int64_t channels = a.extent[1], inner = elements(a, 2, a.ndim_)
    if a.extent[0] * inner == 1:
        raise ValueError(f"[batch_norm] expected more than one value per channel in training, got shape {shape_of(a)}")
    gamma = parameter("batch_norm", "weight", weight, a, 1, 2)
    beta = parameter("batch_norm", "bias", bias, a, 1, 2)
    mean, var = empty(a.code, 1, &channels, a.buffer.device), empty(a.code, 1, &channels, a.buffer.device)
    out = empty_as(a, a.code)
    if a.count:
        backend(a).batch_norm(a.extent[0], channels, inner, dense(a), plain(gamma), plain(beta), eps, out, mean, var,
                              statistics)
    else:   # The statistics of no values are 0.
        for unset in (mean, var, statistics):
            backend(a).fill(unset, 0.0)
    track(batch_norm_op, out, a, gamma, beta, (statistics, eps))
    return out, mean, var


def batch_norm_eval(x: TensorLike, mean: Tensor, var: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
                    eps: float = 1e-5, op: Literal["batch_norm", "instance_norm"] = "batch_norm") -> Tensor:
    """Batch normalization by given statistics, as in evaluation: one affine map per channel.

    The statistics receive gradients, too. `op` is the name in errors and on the tape: in evaluation, instance
    normalization computes the same.
    """
    cdef Call _call = begin(instance_norm_eval_op if op == "instance_norm" else batch_norm_eval_op)
    for name, given in (("mean", mean), ("var", var)):
        if given is None:
            raise TypeError(f"[{op}] {name} must be a tensor, got None")
    x, mean, var = operand(op, x), operand(op, mean), operand(op, var)
    weight, bias, eps = optional(op, weight), optional(op, bias), number(op, "eps", eps, 0)
    cdef Array a = check_input(op, x), out, middle, spread, gamma, beta, statistics = empty_statistics(a)
    cdef int64_t channels = a.extent[1]
    middle, spread = parameter(op, "mean", mean, a, 1, 2), parameter(op, "var", var, a, 1, 2)
    gamma, beta = parameter(op, "weight", weight, a, 1, 2), parameter(op, "bias", bias, a, 1, 2)
    out = empty_as(a, a.code)
    backend(a).batch_norm_eval(a.extent[0], channels, elements(a, 2, a.ndim_), dense(a), plain(gamma), plain(beta),
                               dense(middle), dense(spread), eps, out, statistics)
    track_many(instance_norm_eval_op if op == "instance_norm" else batch_norm_eval_op, [out],
               [a, middle, spread, gamma, beta], [0, 1, 2, 3], (statistics, eps))
    return out
