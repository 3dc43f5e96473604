"""Arithmetic, elementwise with broadcasting.

Broadcasting is a separate operation (layout.broadcast_to), whose gradient is a sum: everything here sees operands of
one shape and one dtype.
"""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport NOWHERE, Array, above, check_same_device, empty_as, same_shape, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, default_float, is_float
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.arguments cimport operand, plain_scalar, refuse_bytes, scalar, weak_code
from minigrad.engine.ops.layout cimport broadcast, cast
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD, DIVIDE, FLOOR_DIVIDE, MUL, NEG, RECIPROCAL, REMAINDER, SUB

# ── the operands ──────────────────────────────────────────────────────────────────────────────────

cdef Array apply_unary(int op, Array x, int code):
    cdef Array out = empty_as(x, code)
    backend(x).unary(op, x, out)
    return out


cdef Array apply_binary(int op, Array a, Array b, int code):
    cdef Array out = empty_as(a, code)
    backend(a).binary(op, a, b, out)
    return out


cdef tuple match_operands(str op, object x, object y):
    """Two operands on one device, of one dtype and one shape.

    dtypes promote as in the array API (bool < uint8 < int32 < int64 < float32 < float64); scalars count by their kinds.
    """
    cdef Array a, b
    cdef int code
    if isinstance(x, Array):
        a = operand(op, x)
        if isinstance(y, Array):
            b = operand(op, y)
        else:
            value = plain_scalar(op, y)
            if value is not None:
                code = weak_code(value, a.code)
                a = cast(a, code)
                b = scalar(value, code, a.buffer.device, op)
                return a, broadcast(b, a.ndim_, a.extent)
            b = operand(op, y)
    else:
        value = plain_scalar(op, x) if isinstance(y, Array) else None
        b = operand(op, y)
        if value is not None:
            code = weak_code(value, b.code)
            b = cast(b, code)
            a = scalar(value, code, b.buffer.device, op)
            return broadcast(a, b.ndim_, b.extent), b
        a = operand(op, x)
    if a.buffer.device != b.buffer.device:
        check_same_device(op, a, b)
    if a.code != b.code:
        code = max(a.code, b.code)
        a, b = cast(a, code), cast(b, code)
    if same_shape(a, b):
        return a, b
    return broadcast_pair(op, a, b)


cdef tuple broadcast_pair(str op, Array a, Array b):
    """a and b broadcast to their common shape; one that already has it is returned as is."""
    cdef int64_t[MAX_NDIM] extent
    cdef int64_t m, n
    cdef int ndim = max(a.ndim_, b.ndim_), i
    cdef bint a_fits = a.ndim_ == ndim, b_fits = b.ndim_ == ndim
    for i in range(ndim):
        m = a.extent[i - ndim + a.ndim_] if i >= ndim - a.ndim_ else 1
        n = b.extent[i - ndim + b.ndim_] if i >= ndim - b.ndim_ else 1
        if m != n and m != 1 and n != 1:
            raise ValueError(f"[{op}] the shapes {shape_of(a)} and {shape_of(b)} do not broadcast together")
        extent[i] = n if m == 1 else m
        a_fits, b_fits = a_fits and m == extent[i], b_fits and n == extent[i]
    return a if a_fits else broadcast(a, ndim, extent), b if b_fits else broadcast(b, ndim, extent)


cdef tuple match_floats(str op, object x, object y):
    """`match_operands`, with integers converted to the default floating dtype."""
    a, b = match_operands(op, x, y)
    if not is_float((<Array>a).code):
        return cast(<Array>a, default_float), cast(<Array>b, default_float)
    return a, b


cdef Array function(Op op, int number, object x):
    """A differentiable function of floats, by its number; integers are converted to the default dtype first."""
    cdef Call _call = begin(op)
    cdef bint plain = isinstance(x, Array) and (<Array>x).buffer != NOWHERE
    cdef Array a = <Array>x if plain else operand(op.name, x)
    if not is_float(a.code):
        a = cast(a, default_float)
    cdef Array out = apply_unary(number, a, a.code)
    track(op, out, a)
    return out


cdef Array function_of_two(Op op, int number, object x, object y):
    """A differentiable function of two floats; integers are converted to the default dtype first."""
    cdef Call _call = begin(op)
    a, b = match_floats(op.name, x, y)
    cdef Array out = apply_binary(number, <Array>a, <Array>b, (<Array>a).code)
    track(op, out, <Array>a, <Array>b)
    return out


cdef Array function_of_numbers(Op op, int number, object x):
    """A function of floats and integers, which bool is not."""
    cdef Call _call = begin(op)
    cdef Array a = operand(op.name, x), out
    refuse_bytes(op.name, a)
    out = apply_unary(number, a, a.code)
    track(op, out, a)
    return out


cdef inline bint alike(object x, object y):
    """Whether two tensors need no matching, as in nearly every call."""
    return isinstance(x, Array) and isinstance(y, Array) and (<Array>x).code == (<Array>y).code \
        and (<Array>x).buffer.device == (<Array>y).buffer.device and same_shape(<Array>x, <Array>y)


# ── arithmetic ────────────────────────────────────────────────────────────────────────────────────

cdef Op add_op = operation("add", add_backward, "y = a + b", "da = g\ndb = g", "", "a, b")
cdef int add_backward(Node node, Array g) except -1:
    node.send(0, g)
    return node.send(1, g)


cdef Array add_alike(Array a, Array b):
    cdef Array out = apply_binary(ADD, a, b, a.code)
    track(add_op, out, a, b)
    return out


cpdef Array add(x: TensorLike, y: TensorLike):
    """x + y.

    Examples
    --------
    >>> mg.add(mg.tensor([1.0, 2.0]), 10)
    tensor([11., 12.])
    """
    cdef Call _call = begin(add_op)
    if alike(x, y):
        return add_alike(<Array>x, <Array>y)
    a, b = match_operands("add", x, y)
    return add_alike(<Array>a, <Array>b)


above.add = add_alike


cdef Op subtract_op = operation("subtract", subtract_backward, "y = a − b", "da = g\ndb = −g", "", "a, b")
cdef int subtract_backward(Node node, Array g) except -1:
    node.send(0, g)
    if node.needs(1):
        node.send(1, negative(g))
    return 0


cpdef Array subtract(x: TensorLike, y: TensorLike):
    """x - y.

    Examples
    --------
    >>> mg.subtract(mg.tensor([5, 7]), mg.tensor([1, 2]))
    tensor([4, 5])
    """
    cdef Call _call = begin(subtract_op)
    a, b = (x, y) if alike(x, y) else match_operands("subtract", x, y)
    if (<Array>a).code == BOOL:
        raise TypeError("[subtract] not defined for bool: use logical_xor")
    cdef Array out = apply_binary(SUB, <Array>a, <Array>b, (<Array>a).code)
    track(subtract_op, out, <Array>a, <Array>b)
    return out


cdef Op multiply_op = operation("multiply", multiply_backward, "y = a b", "da = g b\ndb = g a", "b, a", "a, b")
cdef int multiply_backward(Node node, Array g) except -1:
    if node.needs(0):
        node.send(0, multiply_alike(g, node.value(1)))
    if node.needs(1):
        node.send(1, multiply_alike(g, node.value(0)))
    return 0


cdef Array multiply_alike(Array a, Array b):
    """a * b, of one shape and one dtype."""
    cdef Array out = apply_binary(MUL, a, b, a.code)
    track(multiply_op, out, a, b)
    return out


cpdef Array multiply(x: TensorLike, y: TensorLike):
    """x * y, element by element.

    Examples
    --------
    >>> mg.multiply(mg.tensor([1.0, 2.0]), mg.tensor([[2.0], [3.0]]))
    tensor([[2., 4.],
            [3., 6.]])
    """
    cdef Call _call = begin(multiply_op)
    if alike(x, y):
        return multiply_alike(<Array>x, <Array>y)
    a, b = match_operands("multiply", x, y)
    return multiply_alike(<Array>a, <Array>b)


cdef Op divide_op = operation("divide", divide_backward, "y = a / b", "da = g / b\ndb = −g a / b²", "b, a b", "a, b")
cdef int divide_backward(Node node, Array g) except -1:
    cdef Array share = divide(g, node.value(1))
    node.send(0, share)
    if node.needs(1):
        node.send(1, negative(divide(multiply(share, node.value(0)), node.value(1))))
    return 0


cpdef Array divide(x: TensorLike, y: TensorLike):
    """x / y; integers are converted to the default dtype first.

    Examples
    --------
    >>> mg.divide(mg.tensor([1, 2]), 4)
    tensor([0.25, 0.5 ])
    """
    cdef Call _call = begin(divide_op)
    a, b = (x, y) if alike(x, y) and is_float((<Array>x).code) else match_floats("divide", x, y)
    cdef Array out = apply_binary(DIVIDE, <Array>a, <Array>b, (<Array>a).code)
    track(divide_op, out, <Array>a, <Array>b)
    return out


cdef Op reciprocal_op = operation("reciprocal", reciprocal_backward, "y = 1 / x", "dx = −g y²", "y")
cdef int reciprocal_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    return node.send(0, negative(multiply(g, multiply(y, y))))


cdef Array division(Op op, int number, object x, object y):
    """A part of the division with a remainder."""
    cdef Call _call = begin(op)
    a, b = match_operands(op.name, x, y)
    refuse_bytes(op.name, <Array>a)
    cdef Array out = apply_binary(number, <Array>a, <Array>b, (<Array>a).code)
    track(op, out, <Array>a, <Array>b)
    return out


cdef Op floor_divide_op = operation("floor_divide", floor_divide_backward, "y = ⌊a / b⌋", "da = 0\ndb = 0", "", "a, b")
cdef int floor_divide_backward(Node node, Array g) except -1:
    cdef Array zeros = multiply(g, 0)
    node.send(0, zeros)
    return node.send(1, zeros)


cdef Op remainder_op = operation("remainder", remainder_backward, "y = a − b ⌊a / b⌋", "da = g\ndb = −g ⌊a / b⌋",
                                 ", a b", "a, b")
cdef int remainder_backward(Node node, Array g) except -1:
    node.send(0, g)
    if node.needs(1):
        node.send(1, negative(multiply(g, floor_divide(node.value(0), node.value(1)))))
    return 0


cdef Op negative_op = operation("negative", negative_backward, "y = −x", "dx = −g")
cdef int negative_backward(Node node, Array g) except -1:
    return node.send(0, negative(g))


cpdef Array positive(x: TensorLike):
    """+x: x itself.

    Examples
    --------
    >>> mg.positive(mg.tensor([1.0, -2.0]))
    tensor([ 1., -2.])
    """
    return operand("positive", x)


# The functions of ops/wrappers.txt
include "ops/arithmetic.pxi"
