"""Signs, rounding, and which elements are NaN, infinite or negative."""
from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, default_float, is_float
from minigrad.engine.ops.arguments cimport operand
from minigrad.engine.ops.arithmetic cimport apply_binary, apply_unary, match_floats, multiply
from minigrad.engine.ops.layout cimport cast
from minigrad.engine.ops.logic cimport note_result
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ABS, CEIL, COPYSIGN, FLOOR, ISFINITE, ISINF, ISNAN, NEXTAFTER, ROUND, SIGN, SIGNBIT, TRUNC


# ── signs ────────────────────────────────────────────────────────────────────────────────────────

cdef Op abs_op = operation("abs", abs_backward, "y = |x|", "dx = g sign x", "x")
cdef int abs_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, sign(node.value(0))))


cpdef Array absolute(x: TensorLike):
    """The absolute value; its gradient at 0 is 0.

    Examples
    --------
    >>> mg.abs(mg.tensor([-2.0, 3.0]))
    tensor([2., 3.])
    """
    cdef Call _call = begin(abs_op)
    cdef Array a = operand("abs", x)
    if a.code == BOOL:
        return a
    cdef Array out = apply_unary(ABS, a, a.code)
    track(abs_op, out, a)
    return out


cdef int no_gradient(Node node, Array g) except -1:
    return node.send(0, multiply(g, 0))


cdef Op sign_op = operation("sign", no_gradient, "y = sign x", "dx = 0")


cdef Op copysign_op = operation("copysign", copysign_backward, "y = |a| with the sign of b",
                                "da = g where the signs are equal, else −g, and 0 where a = 0\ndb = 0", "a b", "a, b")
cdef int copysign_backward(Node node, Array g) except -1:
    if node.needs(0):
        signs = sign(node.value(0))
        node.send(0, multiply(g, multiply(signs, copysign(signs, node.value(1)))))
    if node.needs(1):
        node.send(1, multiply(g, 0))
    return 0


cpdef Array nextafter(x: TensorLike, y: TensorLike):
    """The next floating-point number after x in the direction of y; without a gradient.

    Examples
    --------
    >>> mg.nextafter(mg.tensor([1.0, 1.0]), mg.tensor([2.0, 0.0]))
    tensor([1.0000001 , 0.99999994])
    """
    cdef Call _call = begin("nextafter")
    a, b = match_floats("nextafter", x, y)
    return apply_binary(NEXTAFTER, <Array>a, <Array>b, (<Array>a).code)


# ── rounding ─────────────────────────────────────────────────────────────────────────────────────

cdef Array step_function(Op op, int number, object x):
    """A function whose derivative is 0 wherever it exists; integers pass unchanged."""
    cdef Call _call = begin(op)
    cdef Array a = operand(op.name, x)
    if not is_float(a.code):
        return a
    cdef Array out = apply_unary(number, a, a.code)
    track(op, out, a)
    return out


cdef Op floor_op = operation("floor", no_gradient, "y = ⌊x⌋", "dx = 0")


cdef Op ceil_op = operation("ceil", no_gradient, "y = ⌈x⌉", "dx = 0")


cdef Op trunc_op = operation("trunc", no_gradient, "y = x without its fraction", "dx = 0")


cdef Op round_op = operation("round", no_gradient, "y = the integer nearest to x, of two the even one", "dx = 0")


# ── tests ────────────────────────────────────────────────────────────────────────────────────────

cdef Array test(str name, int op, object x):
    cdef Call _call = begin(name)
    cdef Array a = operand(name, x)
    return note_result(name, apply_unary(op, a if is_float(a.code) else cast(a, default_float), BOOL), a)


cpdef Array isfinite(x: TensorLike):
    """Which elements are neither infinite nor NaN.

    Examples
    --------
    >>> mg.isfinite(mg.tensor([1.0, float("nan")]))
    tensor([ True, False])
    """
    return test("isfinite", ISFINITE, x)


# The functions of ops/wrappers.txt
include "ops/rounding.pxi"
