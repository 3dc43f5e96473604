"""Circular and hyperbolic functions and their inverses, each with its derivative."""
from minigrad.engine.memory.array cimport Array
from minigrad.engine.ops.arithmetic cimport add, divide, function_of_two, multiply, negative, subtract
from minigrad.engine.ops.functions cimport function, fused, rsqrt, square
from minigrad.engine.ops.logic cimport equal, where
from minigrad.engine.tape.node cimport Node, Op, operation

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ACOS, ACOSH, ASIN, ASINH, ATAN, ATAN2, ATANH, COS, COSH, SIN, SINH, TAN, TANH, TANH_GRAD


# ── circular functions and their inverses ───────────────────────────────────────────────────────────

cdef Op sin_op = operation("sin", sin_backward, "y = sin x", "dx = g cos x", "x")


cdef int sin_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, cos(node.value(0))))


cpdef Array sin(x: TensorLike):
    """The sine of x in radians.

    Examples
    --------
    >>> mg.sin(mg.tensor([0.0, 0.5]))
    tensor([0.        , 0.47942555])
    """
    return function(sin_op, SIN, x)


cdef Op cos_op = operation("cos", cos_backward, "y = cos x", "dx = −g sin x", "x")


cdef int cos_backward(Node node, Array g) except -1:
    return node.send(0, negative(multiply(g, sin(node.value(0)))))


cpdef Array cos(x: TensorLike):
    """The cosine of x in radians.

    Examples
    --------
    >>> mg.cos(mg.tensor([0.0, 0.5]))
    tensor([1.        , 0.87758255])
    """
    return function(cos_op, COS, x)


cdef Op tan_op = operation("tan", tan_backward, "y = tan x", "dx = g (1 + y²)", "y")


cdef int tan_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, add(square(node.output()), 1)))


cpdef Array tan(x: TensorLike):
    """The tangent of x in radians.

    Examples
    --------
    >>> mg.tan(mg.tensor([0.0, 0.5]))
    tensor([0.       , 0.5463025])
    """
    return function(tan_op, TAN, x)


cdef Op asin_op = operation("asin", asin_backward, "y = arcsin x", "dx = g / √(1 − x²)", "x")


cdef int asin_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(subtract(1, square(node.value(0))))))


cpdef Array asin(x: TensorLike):
    """The angle in [-π/2, π/2] whose sine is x.

    Examples
    --------
    >>> mg.asin(mg.tensor([0.0, 0.5]))
    tensor([0.       , 0.5235988])
    """
    return function(asin_op, ASIN, x)


cdef Op acos_op = operation("acos", acos_backward, "y = arccos x", "dx = −g / √(1 − x²)", "x")


cdef int acos_backward(Node node, Array g) except -1:
    return node.send(0, negative(multiply(g, rsqrt(subtract(1, square(node.value(0)))))))


cpdef Array acos(x: TensorLike):
    """The angle in [0, π] whose cosine is x.

    Examples
    --------
    >>> mg.acos(mg.tensor([1.0, 0.5]))
    tensor([0.       , 1.0471976])
    """
    return function(acos_op, ACOS, x)


cdef Op atan_op = operation("atan", atan_backward, "y = arctan x", "dx = g / (1 + x²)", "x")


cdef int atan_backward(Node node, Array g) except -1:
    return node.send(0, divide(g, add(square(node.value(0)), 1)))


cpdef Array atan(x: TensorLike):
    """The angle in (-π/2, π/2) whose tangent is x.

    Examples
    --------
    >>> mg.atan(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.7853982])
    """
    return function(atan_op, ATAN, x)


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


cpdef Array atan2(x: TensorLike, y: TensorLike):
    """The angle in (-π, π] of the point with ordinate x and abscissa y, as NumPy's ``arctan2``. No gradient at (0, 0).

    Examples
    --------
    >>> mg.atan2(mg.tensor([1.0, -1.0]), mg.tensor([1.0, 0.0]))
    tensor([ 0.7853982, -1.5707964])
    """
    return function_of_two(atan2_op, ATAN2, x, y)


# ── hyperbolic functions and their inverses ─────────────────────────────────────────────────────────

cdef Op sinh_op = operation("sinh", sinh_backward, "y = sinh x", "dx = g cosh x", "x")


cdef int sinh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, cosh(node.value(0))))


cpdef Array sinh(x: TensorLike):
    """The hyperbolic sine.

    Examples
    --------
    >>> mg.sinh(mg.tensor([0.0, 1.0]))
    tensor([0.       , 1.1752012])
    """
    return function(sinh_op, SINH, x)


cdef Op cosh_op = operation("cosh", cosh_backward, "y = cosh x", "dx = g sinh x", "x")


cdef int cosh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, sinh(node.value(0))))


cpdef Array cosh(x: TensorLike):
    """The hyperbolic cosine.

    Examples
    --------
    >>> mg.cosh(mg.tensor([0.0, 1.0], dtype="float64"))
    tensor([1.        , 1.54308063], dtype=float64)
    """
    return function(cosh_op, COSH, x)


cdef Op tanh_op = fused(TANH_GRAD, operation("tanh", tanh_backward, "y = tanh x", "dx = g (1 − y²)", "y"))


cdef int tanh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, subtract(1, square(node.output()))))


cpdef Array tanh(x: TensorLike):
    """The hyperbolic tangent.

    Examples
    --------
    >>> mg.tanh(mg.tensor([0.0, 50.0]))
    tensor([0., 1.])
    """
    return function(tanh_op, TANH, x)


cdef Op asinh_op = operation("asinh", asinh_backward, "y = arsinh x", "dx = g / √(x² + 1)", "x")


cdef int asinh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(add(square(node.value(0)), 1))))


cpdef Array asinh(x: TensorLike):
    """The inverse of sinh.

    Examples
    --------
    >>> mg.asinh(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.8813736])
    """
    return function(asinh_op, ASINH, x)


cdef Op acosh_op = operation("acosh", acosh_backward, "y = arcosh x", "dx = g / √(x² − 1)", "x")


cdef int acosh_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, rsqrt(subtract(square(node.value(0)), 1))))


cpdef Array acosh(x: TensorLike):
    """The inverse of cosh on [1, ∞).

    Examples
    --------
    >>> mg.acosh(mg.tensor([1.0, 2.0]))
    tensor([0.      , 1.316958])
    """
    return function(acosh_op, ACOSH, x)


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
