"""What users pass, made into what operations take: arrays, scalars, axes."""
import numbers

import numpy as np

from minigrad.engine.array cimport BOOL, FLOAT32, INT64, Array, empty, is_float
from minigrad.engine.backend cimport backend
from minigrad.engine.interop cimport from_object


cdef bint is_scalar(object x):
    """Whether x is a Python or NumPy number, which takes the dtype of the tensor it meets."""
    return isinstance(x, (float, int)) or (isinstance(x, (numbers.Number, np.bool_)) and not isinstance(x, Array))


cdef int weak_code(object value, int code, str op="scalar") except -1:
    """The dtype of `value op tensor` for a scalar value and a tensor of dtype `code` (array API: scalars are weak)."""
    if isinstance(value, (bool, np.bool_)):
        return code
    if isinstance(value, int):
        return INT64 if code == BOOL else code
    if isinstance(value, float) or isinstance(value, numbers.Real):
        if isinstance(value, numbers.Integral):
            return INT64 if code == BOOL else code
        return code if is_float(code) else FLOAT32
    raise TypeError(f"[{op}] expected a real number, got {value!r}")


cdef Array scalar(object value, int code, int device, str op="scalar"):
    """A 0-d array."""
    cdef Array out = empty(code, 0, NULL, device)
    try:
        backend(out).fill(out, bool(value) if isinstance(value, np.bool_) else value)
    except OverflowError:
        raise OverflowError(f"[{op}] {value!r} does not fit {out.dtype}") from None
    return out


cdef Array operand(str op, object x):
    """x itself if it is a tensor; any other array-like as one."""
    if isinstance(x, Array):
        return <Array>x
    if is_scalar(x):
        return scalar(x, weak_code(x, BOOL, op), 0, op)
    return from_object(x, -1, -1, False, op)


cdef Array float_operand(str op, object x):
    """The same, but of a floating dtype."""
    cdef Array a = operand(op, x)
    if not is_float(a.code):
        raise TypeError(f"[{op}] expected floating-point elements, got {a.dtype}")
    return a


cdef int refuse_bool(str op, Array x) except -1:
    if x.code == BOOL:
        raise TypeError(f"[{op}] not defined for bool")
    return 0


cdef int one_axis(str op, object axis, int ndim) except -1:
    """A checked axis, counted from the front."""
    if not hasattr(axis, "__index__"):
        raise TypeError(f"[{op}] expected an integer axis, got {axis!r}")
    cdef int64_t k = axis.__index__()
    if k < -ndim or k >= ndim:
        raise IndexError(f"[{op}] expected an axis from {-ndim} to {ndim - 1} for {ndim} axes, got {k}")
    return <int>(k + ndim if k < 0 else k)


cdef list many_axes(str op, object axis, int ndim):
    """Checked axes in rising order; None means all."""
    if axis is None:
        return list(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return [one_axis(op, axis, ndim)]
    found = sorted([one_axis(op, a, ndim) for a in axis])
    if len(set(found)) < len(found):
        raise ValueError(f"[{op}] expected distinct axes, got {axis}")
    return found
