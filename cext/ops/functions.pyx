"""Exponentials, logarithms, powers and related functions, each with its derivative.

Every derivative is written with recorded operations, so that it can be differentiated again.
"""
from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, default_float, is_float
from minigrad.engine.ops.arguments cimport float_operand, operand, plain_scalar, refuse_bytes
from minigrad.engine.ops.arithmetic cimport (
    add, apply_binary, divide, function, match_operands, multiply, negative, reciprocal,
    subtract,
)
from minigrad.engine.ops.layout cimport cast
from minigrad.engine.ops.logic cimport equal, greater_equal, less, logical_and, where
from minigrad.engine.ops.rounding cimport absolute, isinf, sign
from minigrad.engine.tape.node cimport OUTPUT, Node, Op, operation, recording
from minigrad.engine.tape.record cimport track

from math import log as ln, pi, sqrt as root

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ERF, EXP, EXP2, EXPM1, HYPOT, LOG, LOG1P, LOG2, LOG10, LOGADDEXP, POW, ROOT, RSQRT, SMOOTH_L1, SMOOTH_L1_SLOPE
    int SQRT, SQUARE, SQUARED_DIFFERENCE, SQUARED_DIFFERENCE_SLOPE

cdef Op fused(int number, Op op):
    """Compute the derivative in one pass, as the binary function `number` of g and the tensor that the gradient reads.

    The function in the record becomes the composition, which a recorded backward pass uses.
    """
    op.fused, op.composition, op.differentiate = number, op.differentiate, fused_backward
    return op


cdef int fused_backward(Node node, Array g) except -1:
    if recording():
        return node.op.composition(node, g)
    read = node.kept if node.op.reads[0] & OUTPUT else node.value(0)
    return node.send(0, apply_binary(node.op.fused, g, <Array>read, g.code))


cdef Op sloped(int number, Op op):
    """Compute the slope in one pass, as the binary function `number` of x and the parameter of the operation.

    As for `fused`, the function in the record is the composition.
    """
    op.fused, op.composition, op.differentiate = number, op.differentiate, sloped_backward
    return op


cdef int sloped_backward(Node node, Array g) except -1:
    if recording():
        return node.op.composition(node, g)
    x, parameter = match_operands(node.op.name, node.value(0), node.extra)
    return node.send(0, multiply(g, apply_binary(node.op.fused, <Array>x, <Array>parameter, g.code)))


cdef Array with_parameter(Op op, int number, Array x, object parameter):
    """The binary function `number` of x and a number, which is constant."""
    cdef Call _call = begin(op)
    a, b = match_operands(op.name, x, parameter)
    cdef Array out = apply_binary(number, <Array>a, <Array>b, (<Array>a).code)
    track(op, out, x, None, None, parameter)
    return out


# ── exponentials and logarithms ─────────────────────────────────────────────────────────────────────

cdef Op exp_op = operation("exp", exp_backward, "y = eˣ", "dx = g y", "y")
cdef int exp_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, node.output()))


cdef Op expm1_op = operation("expm1", expm1_backward, "y = eˣ − 1", "dx = g (y + 1)", "y")
cdef int expm1_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, add(node.output(), 1)))


cdef Op exp2_op = operation("exp2", exp2_backward, "y = 2ˣ", "dx = g y ln 2", "y")
cdef int exp2_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, multiply(node.output(), ln(2))))


cdef Op log_op = operation("log", log_backward, "y = ln x", "dx = g / x", "x")
cdef int log_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, node.value(0)))


cdef Op log1p_op = operation("log1p", log1p_backward, "y = ln (1 + x)", "dx = g / (1 + x)", "x")
cdef int log1p_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, add(node.value(0), 1)))


cdef Op log2_op = operation("log2", log2_backward, "y = log₂ x", "dx = g / (x ln 2)", "x")
cdef int log2_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, multiply(node.value(0), ln(2))))


cdef Op log10_op = operation("log10", log10_backward, "y = log₁₀ x", "dx = g / (x ln 10)", "x")
cdef int log10_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, multiply(node.value(0), ln(10))))


cdef Op logaddexp_op = operation("logaddexp", logaddexp_backward, "y = ln (eᵃ + eᵇ)",
                                 "da = g / (1 + eᵇ⁻ᵃ)\ndb = g / (1 + eᵃ⁻ᵇ), both g / 2 for equal infinities",
                                 "a b, a b", "a, b")
cdef int logaddexp_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1)
    tied = logical_and(equal(a, b), isinf(a))
    cdef Array apart = subtract(where(tied, 0, b), where(tied, 0, a))
    if node.needs(0):       # 1 / (1 + eˣ) without overflow
        node.send(0, multiply(g, exp(negative(logaddexp(apart, 0)))))
    if node.needs(1):
        node.send(1, multiply(g, exp(negative(logaddexp(negative(apart), 0)))))
    return 0


# ── powers and roots ────────────────────────────────────────────────────────────────────────────────

cdef Op sqrt_op = operation("sqrt", sqrt_backward, "y = √x", "dx = g / (2 y)", "y")
cdef int sqrt_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, multiply(node.output(), 2)))


cdef Op rsqrt_op = operation("rsqrt", rsqrt_backward, "y = 1 / √x", "dx = −g y³ / 2", "y")
cdef int rsqrt_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    return node.send(0, multiply(multiply(g, -0.5), multiply(y, multiply(y, y))))


cdef Op square_op = operation("square", square_backward, "y = x²", "dx = 2 g x", "x")
cdef int square_backward(Node node, Array g) except -1:
    return node.send(0, multiply(multiply(g, node.value(0)), 2))


cdef Op squared_difference_op = operation("squared_difference", squared_difference_backward, "y = (a − b)²",
                                          "da = 2 g (a − b)\ndb = 2 g (b − a)", "a b, a b", "a, b")
cdef int squared_difference_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1), da
    if recording():
        da = multiply(g, multiply(subtract(a, b), 2))
    else:
        da = multiply(g, apply_binary(SQUARED_DIFFERENCE_SLOPE, a, b, g.code))
    if node.needs(1):
        node.send(1, negative(da))
    if node.needs(0):
        node.send(0, da)
    return 0


def squared_difference(x: TensorLike, y: TensorLike) -> Tensor:
    """(x - y)²."""
    return function_of_two(squared_difference_op, SQUARED_DIFFERENCE, x, y)


cdef Op power_op = operation("power", power_backward, "y = aᵇ",
                             "da = g b aᵇ⁻¹, 0 where b = 0\ndb = g y ln a, 0 where a = 0 and b ≥ 0", "a b, a b", "a, b")
cdef int power_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1), flat
    if node.needs(0):
        node.send(0, where(equal(b, 0), 0, multiply(g, multiply(b, power(a, subtract(b, 1))))))
    if node.needs(1):
        flat = logical_and(equal(a, 0), greater_equal(b, 0))
        node.send(1, where(flat, 0, multiply(multiply(g, power(a, b)), log(where(flat, 1, a)))))
    return 0


cdef Op constant_power_op = operation("power", constant_power_backward, "y = xⁿ", "dx = g n xⁿ⁻¹", "x")
cdef int constant_power_backward(Node node, Array g) except -1:
    n = node.extra
    if n == 0:
        return node.send(0, multiply(g, 0))
    return node.send(0, multiply(g, multiply(power(node.value(0), n - 1), n)))


cdef Op root_op = operation("power", root_backward, "y = x to the power ½, which is ∞ at −∞", "dx = g / (2 y)", "y")
cdef int root_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, multiply(node.output(), 2)))


cpdef Array power(x: TensorLike, y: TensorLike):
    """x to the power y.

    Raises
    ------
    ValueError
        If both are integers and some exponent is negative: convert to float first.

    Examples
    --------
    >>> mg.power(mg.tensor([2.0, 3.0]), 3)
    tensor([ 8., 27.])
    """
    cdef Call _call = begin(power_op)
    cdef Array a, out
    value = plain_scalar("power", y) if isinstance(x, Array) else None
    if value is not None:
        y = value
        a = operand("power", x)
        if not is_float(a.code) and isinstance(y, float):
            a = cast(a, default_float)
        if y == 2 and a.code != BOOL:
            return square(a)
        if y == 1:
            return multiply(a, 1)
        if is_float(a.code):
            if y == 0.5:
                return function(root_op, ROOT, a)
            if y == -1:
                return reciprocal(a)
            first, second = match_operands("power", a, y)
            out = apply_binary(POW, <Array>first, <Array>second, a.code)
            track(constant_power_op, out, a, None, None, y)
            return out
    first, second = match_operands("power", x, y)
    a = <Array>first
    if not is_float(a.code):
        if (<Array>second)._detached_numpy().min(initial=0) < 0:
            raise ValueError("[power] integers to negative powers are not integers: convert to float first")
    refuse_bytes("power", a)
    out = apply_binary(POW, a, <Array>second, a.code)
    track(power_op, out, a, <Array>second)
    return out


cdef Op hypot_op = operation("hypot", hypot_backward, "y = √(a² + b²)",
                             "da = g a / y\ndb = g b / y, both 0 at the origin", "a y, b y", "a, b")
cdef int hypot_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    origin = equal(y, 0)
    cdef Array share = where(origin, 0, g), safe = where(origin, 1, y)
    if node.needs(0):       # a / y first: it does not overflow
        node.send(0, multiply(share, divide(node.value(0), safe)))
    if node.needs(1):
        node.send(1, multiply(share, divide(node.value(1), safe)))
    return 0


# ── others ──────────────────────────────────────────────────────────────────────────────────────────

cdef Op erf_op = operation("erf", erf_backward, "y = 2/√π ∫₀ˣ exp(−t²) dt", "dx = g 2/√π exp(−x²)", "x")
cdef int erf_backward(Node node, Array g) except -1:
    return node.send(0, multiply(multiply(g, 2 / root(pi)), exp(negative(square(node.value(0))))))


cdef Op smooth_l1_op = sloped(SMOOTH_L1_SLOPE, operation("smooth_l1", smooth_l1_backward,
                                                         "y = x² / 2β where |x| < β, else |x| − β / 2",
                                                         "dx = g x / β where |x| < β, else g sign x", "x"))
cdef int smooth_l1_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0)
    near = less(absolute(x), node.extra)
    return node.send(0, multiply(g, where(near, divide(x, node.extra), sign(x))))


def smooth_l1(x: TensorLike, beta: float) -> Tensor:
    """|x| with a parabola where |x| < β: x² / 2β, else |x| - β/2 (Girshick 2015, https://arxiv.org/abs/1504.08083)."""
    return with_parameter(smooth_l1_op, SMOOTH_L1, float_operand("smooth_l1", x), beta)


# The functions of ops/wrappers.txt
include "ops/functions.pxi"
