"""Comparisons, logic, and choice between operands."""

from libc.math cimport INFINITY

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty_as, same_shape
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, INT64, UINT8, default_float, is_float
from minigrad.engine.memory.listener cimport listeners, note_computed
from minigrad.engine.ops.arguments cimport number, operand, plain_scalar, refuse_bytes, scalar, weak_code
from minigrad.engine.ops.arithmetic cimport (
    add, apply_binary, apply_unary, broadcast_pair, match_operands, multiply, subtract,
)
from minigrad.engine.ops.layout cimport broadcast, cast
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int AND, EQ, GE, GT, INVERT, LE, LEFT_SHIFT, LOGICAL_NOT, LT, MAXIMUM, MINIMUM, NE, OR, RIGHT_SHIFT, XOR


# ── comparisons and logic: no gradients ───────────────────────────────────────────────────────────

cdef Array note_result(str name, Array out, Array a, Array b=None, object options=None):
    """The result of an operation that the tape does not record, after telling the listener of it."""
    if listeners:
        note_computed(name, (out,), (a, b), options)
    return out


cdef object beside(str name, object x, object y):
    """x as int64 if it is uint8 and y an integer that uint8 lacks, with which it can be compared all the same."""
    if isinstance(x, Array) and (<Array>x).code == UINT8 and not isinstance(y, Array):
        value = plain_scalar(name, y)
        if type(value) is int and not 0 <= value < 256:
            return cast(<Array>x, INT64)
    return x


cdef Array compare(str name, int op, object x, object y):
    cdef Call _call = begin(name)
    x, y = beside(name, x, y), beside(name, y, x)
    a, b = match_operands(name, x, y)
    return note_result(name, apply_binary(op, <Array>a, <Array>b, BOOL), <Array>a, <Array>b)


cdef Array bitwise(str name, int op, object x, object y):
    cdef Call _call = begin(name)
    a, b = match_operands(name, x, y)
    if is_float((<Array>a).code):
        raise TypeError(f"[{name}] expected integers or bool, got {a.dtype}")
    if op == LEFT_SHIFT or op == RIGHT_SHIFT:
        refuse_bytes(name, <Array>a)
    return note_result(name, apply_binary(op, <Array>a, <Array>b, (<Array>a).code), <Array>a, <Array>b)


cpdef Array bitwise_invert(x: TensorLike):
    """~x, of integers or bool.

    Examples
    --------
    >>> mg.bitwise_invert(mg.tensor([0, 5]))
    tensor([-1, -6])
    """
    cdef Call _call = begin("bitwise_invert")
    cdef Array a = operand("bitwise_invert", x)
    if is_float(a.code):
        raise TypeError(f"[bitwise_invert] expected integers or bool, got {a.dtype}")
    return note_result("bitwise_invert", apply_unary(INVERT, a, a.code), a)


cpdef Array logical_not(x: TensorLike):
    """Whether each element is zero.

    Examples
    --------
    >>> mg.logical_not(mg.tensor([0, 5]))
    tensor([ True, False])
    """
    cdef Call _call = begin("logical_not")
    cdef Array a = cast(operand("logical_not", x), BOOL)
    return note_result("logical_not", apply_unary(LOGICAL_NOT, a, BOOL), a)


cdef Array logical(str name, int op, object x, object y):
    cdef Call _call = begin(name)
    a, b = match_operands(name, x, y)
    a, b = cast(<Array>a, BOOL), cast(<Array>b, BOOL)
    return note_result(name, apply_binary(op, <Array>a, <Array>b, BOOL), <Array>a, <Array>b)


cdef object scalar_or_operand(str op, object x):
    """A plain scalar, or a tensor."""
    value = plain_scalar(op, x)
    return operand(op, x) if value is None else value


# ── choice ────────────────────────────────────────────────────────────────────────────────────────

cdef Op where_op = operation("where", where_backward, "y = a where c holds, else b",
                             "da = g where c holds, else 0\ndb = 0 where c holds, else g", "c, c", "a, b, c")
cdef int where_backward(Node node, Array g) except -1:
    condition = node.value(2)
    if node.needs(0):
        node.send(0, where(condition, g, 0))
    if node.needs(1):
        node.send(1, where(condition, 0, g))
    return 0


cpdef Array where(condition: TensorLike, x: TensorLike, y: TensorLike):
    """x where the condition holds, y elsewhere; all three broadcast.

    Examples
    --------
    >>> mg.where(mg.tensor([True, False]), 1.0, mg.tensor([5.0, 6.0]))
    tensor([1., 6.])
    """
    cdef Call _call = begin(where_op)
    cdef Array c = operand("where", condition), a, b
    first, second = scalar_or_operand("where", x), scalar_or_operand("where", y)
    c = cast(c, BOOL)
    if not isinstance(first, Array) and not isinstance(second, Array):
        code = default_float if type(first) is float or type(second) is float else weak_code(first, BOOL)
        first = scalar(first, code, c.buffer.device, "where")
    first, second = match_operands("where", first, second)
    a, b = <Array>first, <Array>second
    check_same_device("where", c, a)
    if not same_shape(a, c):
        first, third = broadcast_pair("where", a, c)
        a, c = <Array>first, <Array>third
        b = broadcast(b, a.ndim_, a.extent)
    cdef Array out = empty_as(a, a.code)
    backend(a).where(c, a, b, out)
    track(where_op, out, a, b, c)
    return out


cdef Op clip_op = operation("clip", clip_backward, "y = x limited to [low, high]",
                            "dx = 0 where x < low or x > high, else g", "x")
cdef int clip_backward(Node node, Array g) except -1:
    x = node.value(0)
    for op, limit in ((LT, node.extra[0]), (GT, node.extra[1])):
        if limit is not None:
            g = where(compare("clip", op, x, limit), 0, g)
    return node.send(0, g)


def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """x limited to [min, max]; None sets no limit, and NaN is the result where x or a limit is NaN.

    The gradient is 0 beyond the limits and 1 on them; a limit's own gradient is 1 where it is the result.

    Examples
    --------
    >>> mg.clip(mg.tensor([-2.0, 0.5, 2.0]), -1, 1)
    tensor([-1. ,  0.5,  1. ])
    """
    cdef Call _call = begin(clip_op)
    cdef Array a = operand("clip", x), y
    min = None if min is None else scalar_or_operand("clip", min)
    max = None if max is None else scalar_or_operand("clip", max)
    if is_float(a.code) and is_number(min) and is_number(max):
        if min is None and max is None:
            return a
        y = empty_as(a, a.code)
        backend(a).clip(-INFINITY if min is None else number("clip", "min", min),
                        INFINITY if max is None else number("clip", "max", max), a, y)
        track(clip_op, y, a, None, None, (min, max))
        return y
    if min is not None:
        a = where(beyond(LT, a, min), min, a)
    if max is not None:
        a = where(beyond(GT, a, max), max, a)
    return a


cdef bint is_number(object limit):
    """Whether a limit is None or a scalar other than NaN."""
    return limit is None or not isinstance(limit, Array) and limit == limit


cdef Array beyond(int op, Array a, object limit):
    """Where a limit replaces a: a lies on the wrong side of it, or it is NaN."""
    cdef Array outside = compare("clip", op, a, limit)
    if is_number(limit):
        return outside
    return logical_or(outside, limit != limit)


cdef Op maximum_op = operation("maximum", extremum_backward, "y = max(a, b)",
                               "da = g where a > b\n"
                               "db = g where b > a\n"
                               "where they are equal, g / 2 for each", "a b, a b", "a, b")
cdef Op minimum_op = operation("minimum", extremum_backward, "y = min(a, b)",
                               "da = g where a < b\n"
                               "db = g where b < a\n"
                               "where they are equal, g / 2 for each", "a b, a b", "a, b")
cdef int extremum_backward(Node node, Array g) except -1:
    a, b = node.value(0), node.value(1)
    first, second = (greater(a, b), less(a, b)) if node.extra else (less(a, b), greater(a, b))
    share = multiply(add(subtract(cast(<Array>first, g.code), cast(<Array>second, g.code)), 1), 0.5)
    if node.needs(0):
        node.send(0, multiply(g, share))
    if node.needs(1):
        node.send(1, multiply(g, subtract(1, share)))
    return 0


cdef Array extremum(Op op, int kernel, object x, object y):
    cdef Call _call = begin(op)
    a, b = match_operands(op.name, x, y)
    cdef Array out = apply_binary(kernel, <Array>a, <Array>b, (<Array>a).code)
    track(op, out, <Array>a, <Array>b, None, kernel == MAXIMUM)
    return out


cpdef Array minimum(x: TensorLike, y: TensorLike):
    """The smaller of x and y; NaN if either is. Where they are equal each gets half of the gradient.

    Examples
    --------
    >>> mg.minimum(mg.tensor([1.0, 5.0]), 3)
    tensor([1., 3.])
    """
    return extremum(minimum_op, MINIMUM, x, y)


# The functions of ops/wrappers.txt
include "ops/logic.pxi"
