"""Circular and hyperbolic functions and their inverses, each with its derivative."""
from minigrad.engine.memory.array cimport Array
from minigrad.engine.ops.arithmetic cimport add, divide, multiply, negative, subtract
from minigrad.engine.ops.functions cimport fused, rsqrt, square
from minigrad.engine.ops.logic cimport equal, where
from minigrad.engine.tape.node cimport Node, Op, operation

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ACOS, ACOSH, ASIN, ASINH, ATAN, ATAN2, ATANH, COS, COSH, SIN, SINH, TAN, TANH, TANH_GRAD


# ── circular functions and their inverses ───────────────────────────────────────────────────────────

cdef Op sin_op = operation("sin", sin_backward, "y = sin x", "dx = g cos x", "x")
cdef int sin_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, cos(node.value(0))))


cdef Op cos_op = operation("cos", cos_backward, "y = cos x", "dx = −g sin x", "x")
cdef int cos_backward(Node node, Array g) except -1:
    return node.send(0, negative(multiply(g, sin(node.value(0)))))


cdef Op tan_op = operation("tan", tan_backward, "y = tan x", "dx = g (1 + y²)", "y")
cdef int tan_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, add(square(node.output()), 1)))


cdef Op asin_op = operation("asin", asin_backward, "y = arcsin x", "dx = g / √(1 − x²)", "x")
cdef int asin_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(subtract(1, square(node.value(0))))))


cdef Op acos_op = operation("acos", acos_backward, "y = arccos x", "dx = −g / √(1 − x²)", "x")
cdef int acos_backward(Node node, Array g) except -1:
    return node.send(0, negative(multiply(g, rsqrt(subtract(1, square(node.value(0)))))))


cdef Op atan_op = operation("atan", atan_backward, "y = arctan x", "dx = g / (1 + x²)", "x")
cdef int atan_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, add(square(node.value(0)), 1)))


cdef Op atan2_op = operation("atan2", atan2_backward, "y = the angle of the point (b, a)",
                             "da = g b / (a² + b²)\ndb = −g a / (a² + b²), both 0 at the origin", "a b, a b", "a, b")
cdef int atan2_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1), squares = add(square(a), square(b))
    origin = equal(squares, 0)
    cdef Array share = where(origin, 0, divide(g, where(origin, 1, squares)))
    if node.needs(0):
        node.send(0, multiply(share, b))
    if node.needs(1):
        node.send(1, negative(multiply(share, a)))
    return 0


# ── hyperbolic functions and their inverses ─────────────────────────────────────────────────────────

cdef Op sinh_op = operation("sinh", sinh_backward, "y = sinh x", "dx = g cosh x", "x")
cdef int sinh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, cosh(node.value(0))))


cdef Op cosh_op = operation("cosh", cosh_backward, "y = cosh x", "dx = g sinh x", "x")
cdef int cosh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, sinh(node.value(0))))


cdef Op tanh_op = fused(TANH_GRAD, operation("tanh", tanh_backward, "y = tanh x", "dx = g (1 − y²)", "y"))
cdef int tanh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, subtract(1, square(node.output()))))


cdef Op asinh_op = operation("asinh", asinh_backward, "y = arsinh x", "dx = g / √(x² + 1)", "x")
cdef int asinh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(add(square(node.value(0)), 1))))


cdef Op acosh_op = operation("acosh", acosh_backward, "y = arcosh x", "dx = g / √(x² − 1)", "x")
cdef int acosh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(subtract(square(node.value(0)), 1))))


cdef Op atanh_op = operation("atanh", atanh_backward, "y = artanh x", "dx = g / (1 − x²)", "x")
cdef int atanh_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, subtract(1, square(node.value(0)))))


cpdef Array atanh(x: TensorLike):
    """The inverse of tanh on (-1, 1).

    Examples
    --------
    >>> mg.atanh(mg.tensor([0.0, 0.5]))
    tensor([0.        , 0.54930615])
    """
    return function(atanh_op, ATANH, x)


# The functions of ops/wrappers.txt
include "ops/trigonometry.pxi"
