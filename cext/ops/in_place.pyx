"""In-place writes: x op= y, and filling with one number. (x[key] = y is in index.)"""
from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, same_shape, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport UINT8, is_float
from minigrad.engine.memory.overlap cimport may_share_memory
from minigrad.engine.ops.arguments cimport operand, plain_scalar, weak_code
from minigrad.engine.ops.index cimport assign
from minigrad.engine.ops.layout cimport cast
from minigrad.engine.ops.shared cimport become
from minigrad.engine.tape.in_place cimport before_write, check_write
from minigrad.engine.tape.node cimport recording

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int DIVIDE


cdef bint fits(Array b, Array a) noexcept:
    """Whether b broadcasts to the shape of a."""
    cdef int i, lead = a.ndim_ - b.ndim_
    if lead < 0:
        return False
    for i in range(b.ndim_):
        if b.extent[i] != a.extent[i + lead] and b.extent[i] != 1:
            return False
    return True


cdef Array compute(str name, object operation, object x, object y):
    """operation(x, y), whose errors begin with the name of the operator that was called."""
    try:
        return operation(x, y)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"[{name}]{str(error).partition(']')[2]}") from None


cdef object in_place(str name, object operation, int op, object x, object y):
    """x op= y. If nothing is recorded, a kernel writes into x; otherwise x becomes the result."""
    cdef Call _call = begin(None)
    cdef Array a = <Array>x, b = None, old, result
    value = plain_scalar(name, y)
    if value is not None:
        y = value
    else:
        y = b = operand(name, y)
        check_same_device(name, a, b)
        if not fits(b, a):
            raise ValueError(f"[{name}] expected a tensor that broadcasts to {shape_of(a)}, got shape {shape_of(b)}")
    cdef bint recorded = recording() and (a.needs_grad or (b is not None and b.needs_grad))
    check_write(name, a, recorded)
    if recorded:
        old = before_write(a)
        result = compute(name, operation, old, old if b is a else y)
    elif op >= 0 and b is not None and b.code == a.code and (is_float(a.code) or op != DIVIDE and a.code != UINT8) \
            and same_shape(a, b) \
            and (b.data == a.data and b.packed and a.packed or not may_share_memory(a, b)):
        backend(a).binary(op, a, b, a)
        a.buffer.version += 1
        return x
    else:
        result = compute(name, operation, x, y)
    if result.code != a.code and not (is_float(a.code) and result.code <= a.code):
        raise TypeError(f"[{name}] expected a result that fits {a.dtype} in place, got {result.dtype}")
    if recorded:
        become(a, old, cast(result, a.code))
    else:
        backend(a).copy(result, a)
        a.buffer.version += 1
    return x


cdef int fill_array(str op, Array x, object value) except -1:
    """Set every element to one number."""
    cdef Call _call = begin(None)
    plain = plain_scalar(op, value)
    if plain is None or weak_code(plain, x.code) > x.code or (recording() and x.needs_grad):
        return assign(op, x, Ellipsis, value if plain is None else plain)
    value = plain
    check_write(op, x, False)
    try:
        backend(x).fill(x, value)
    except OverflowError:
        raise OverflowError(f"[{op}] {value!r} does not fit {x.dtype}") from None
    x.buffer.version += 1
    return 0
