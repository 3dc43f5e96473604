"""Activations, and dropout."""

from minigrad.engine.array cimport Array, alias, empty_as
from minigrad.engine.backend cimport backend
from minigrad.engine.calls cimport Call, begin
from minigrad.engine.dtype cimport BOOL
from minigrad.engine.ops.arguments cimport float_operand, number, scalar
from minigrad.engine.ops.arithmetic cimport add, apply_unary, multiply, negative, subtract
from minigrad.engine.ops.functions cimport erf, exp, expm1, fused, square
from minigrad.engine.ops.layout cimport cast, dense
from minigrad.engine.ops.logic cimport greater, greater_equal, less_equal, minimum, where
from minigrad.engine.ops.random cimport places
from minigrad.engine.tape cimport Node, Op, operation, track

from math import pi, sqrt

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int GELU, GELU_GRAD, RELU, RELU_GRAD, SIGMOID, SIGMOID_GRAD, SILU, SILU_GRAD, SOFTPLUS, SOFTPLUS_GRAD


cdef Op relu_op = fused(RELU_GRAD, operation("relu", relu_backward, "y = max(x, 0)", "dx = g where x > 0, else 0", "y"))


cdef int relu_backward(Node node, Array g) except -1:
    # y > 0 exactly where x > 0: y is saved, as the next operation often saves it too
    return node.send(0, where(less_equal(node.kept, 0), 0, g))


cpdef Array relu(x: TensorLike):
    """max(x, 0). Its gradient at 0 is 0.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.relu(mg.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    cdef Call _call = begin(relu_op)
    cdef Array a = float_operand("relu", x), out = apply_unary(RELU, a, a.code)
    track(relu_op, out, a)
    return out


cdef Op sigmoid_op = fused(SIGMOID_GRAD, operation("sigmoid", sigmoid_backward, "y = σ(x) = 1 / (1 + e⁻ˣ)",
                                                   "dx = g y (1 − y)", "y"))


cdef int sigmoid_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    return node.send(0, multiply(g, multiply(y, subtract(1, y))))


cpdef Array sigmoid(x: TensorLike):
    """1 / (1 + exp(-x)), without overflow.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.sigmoid(mg.tensor([0.0]))
    tensor([0.5])
    """
    cdef Call _call = begin(sigmoid_op)
    cdef Array a = float_operand("sigmoid", x), out = apply_unary(SIGMOID, a, a.code)
    track(sigmoid_op, out, a)
    return out


cdef Op silu_op = fused(SILU_GRAD, operation("silu", silu_backward, "y = x σ(x)", "dx = g σ(x) (1 + x σ(−x))", "x"))


cdef int silu_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0)
    slope = multiply(sigmoid(x), add(multiply(x, sigmoid(negative(x))), 1))
    return node.send(0, multiply(g, slope))


cpdef Array silu(x: TensorLike):
    """x sigmoid(x) (Elfwing et al., 2018), also called swish.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.silu(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.7310586])
    """
    cdef Call _call = begin(silu_op)
    cdef Array a = float_operand("silu", x), out = apply_unary(SILU, a, a.code)
    track(silu_op, out, a)
    return out


cdef Op gelu_op = fused(GELU_GRAD, operation(
    "gelu", gelu_backward, "y = x Φ(x)", "dx = g (Φ(x) + x φ(x)), with the standard normal Φ and its density φ", "x"))


cdef int gelu_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), phi, density
    phi = multiply(add(erf(multiply(x, 1 / sqrt(2))), 1), 0.5)
    density = multiply(exp(multiply(square(x), -0.5)), 1 / sqrt(2 * pi))
    return node.send(0, multiply(g, add(phi, multiply(x, density))))


cpdef Array gelu(x: TensorLike):
    """x Φ(x) with the standard normal distribution Φ, exactly (Hendrycks and Gimpel, 2016).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.gelu(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.8413447])
    """
    cdef Call _call = begin(gelu_op)
    cdef Array a = float_operand("gelu", x), out = apply_unary(GELU, a, a.code)
    track(gelu_op, out, a)
    return out


cdef Op softplus_op = fused(SOFTPLUS_GRAD, operation(
    "softplus", softplus_backward, "y = ln (1 + eˣ)", "dx = g σ(x)", "x"))


cdef int softplus_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, sigmoid(node.value(0))))


cpdef Array softplus(x: TensorLike):
    """log(1 + exp(x)), without overflow.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.softplus(mg.tensor([0.0, 1.0]))
    tensor([0.6931472, 1.3132617])
    """
    cdef Call _call = begin(softplus_op)
    cdef Array a = float_operand("softplus", x), out = apply_unary(SOFTPLUS, a, a.code)
    track(softplus_op, out, a)
    return out


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, negative_slope * x elsewhere.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.leaky_relu(mg.tensor([-2.0, 3.0]), 0.1)
    tensor([-0.2,  3. ])
    """
    cdef Call _call = begin("leaky_relu")
    negative_slope = number("leaky_relu", "negative_slope", negative_slope)
    cdef Array a = float_operand("leaky_relu", x)
    cdef Array one = scalar(1, a.code, a.buffer.device), slope = scalar(negative_slope, a.code, a.buffer.device)
    return multiply(a, where(greater(a, 0), one, slope))


cdef Op elu_op = operation("elu", elu_backward, "y = x where x > 0, else α (eˣ − 1)",
                           "dx = g where x > 0, else g α eˣ", "x")


cdef int elu_backward(Node node, Array g) except -1:
    x = node.value(0)
    positive = greater(x, 0)
    slope = multiply(exp(where(positive, 0, x)), node.extra)
    return node.send(0, multiply(g, where(positive, 1, slope)))


def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha (exp(x) - 1) elsewhere (Clevert et al., 2016).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.elu(mg.tensor([-1.0, 3.0]))
    tensor([-0.63212055,  3.        ])
    """
    cdef Call _call = begin(elu_op)
    alpha = number("elu", "alpha", alpha)
    cdef Array a = float_operand("elu", x), plain = alias(a), out
    out = where(greater(plain, 0), plain, multiply(expm1(minimum(plain, 0)), alpha))
    track(elu_op, out, a, None, None, alpha)
    return out


def hardsigmoid(x: TensorLike) -> Tensor:
    """x / 6 + 1/2, clipped to [0, 1], as in PyTorch; Keras's hard_sigmoid has the slope 1/5 (see the documentation).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nn.functional.hardsigmoid(mg.tensor([-4.0, 0.0, 1.5]))
    tensor([0.  , 0.5 , 0.75])
    """
    cdef Call _call = begin("hardsigmoid")
    cdef Array a = float_operand("hardsigmoid", x)
    inner = where(less_equal(a, -3), -3, a)     # NaN passes through both comparisons
    return add(multiply(where(greater_equal(inner, 3), 3, inner), 1 / 6.0), 0.5)


cdef Op dropout_op = operation("dropout", dropout_backward,
                               "y = x k / (1 − p), with k = 1 of probability 1 − p, else 0",
                               "dx = g k / (1 − p), with the same k")


cdef int dropout_backward(Node node, Array g) except -1:
    keep, scale = node.extra
    return node.send(0, multiply(g, multiply(cast(<Array>keep, g.code), scale)))


def dropout(x: TensorLike, p: float = 0.5, bint training=True) -> Tensor:
    """x with each element set to 0 with probability p and the others divided by 1 - p; x itself if not training.

    The choice comes from the counter-based generator that `minigrad.manual_seed` seeds.

    Raises
    ------
    ValueError
        If p is not in [0, 1].

    Examples
    --------
    >>> import minigrad as mg
    >>> y = mg.nn.functional.dropout(mg.ones(1000), p=0.5)
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """
    cdef Call _call = begin(dropout_op)
    p = number("dropout", "p", p, 0, 1)
    cdef Array a = float_operand("dropout", x), plain, out, keep
    if not training or p == 0:
        return a
    if p == 1:
        return multiply(a, 0)
    plain = dense(a)
    out, keep = empty_as(plain, a.code), empty_as(plain, BOOL)
    seed, offset = places(plain)
    if a.count:
        backend(a).dropout(seed, offset, p, plain, out, keep)
    track(dropout_op, out, a, None, None, (keep, 1 / (1 - p)))
    return out
