"""Conversion of arguments to what operations expect: arrays, scalars, axes, and sizes and numbers within bounds.

Converting an argument may run the caller's code (``__index__``, ``__float__``, ``__array__``, ...). That code cannot
turn a tensor into another one: `Tensor.set_` raises inside an operation. A Python function that calls several
operations is not itself an operation, so it first converts all its arguments, and only then reads the layout, the dtype
or the device of its tensors. Converting an array or a plain number again runs no such code.
"""
import numbers
import operator

import numpy as np
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport NOWHERE, Array, check_same_device, empty, shape_of
from minigrad.engine.memory.dtype cimport BOOL, INT32, INT64, default_float, is_float
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.listener cimport listeners, note_read
from minigrad.engine.memory.refusals cimport shown_tensors, undefined, uninitialized
from minigrad.engine.tape.node cimport recording


cdef bint is_scalar(object x):
    """Whether x is a Python or NumPy number, which takes the dtype of the tensor it meets."""
    return isinstance(x, (float, int)) or (isinstance(x, (numbers.Number, np.bool_)) and not isinstance(x, Array))


cdef object plain_scalar(str op, object x):
    """A Python or NumPy number as a Python bool, int or float; None for a value that is not one."""
    if type(x) is float or type(x) is int or type(x) is bool:
        return x
    if isinstance(x, Array) or not is_scalar(x):
        return None
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    if isinstance(x, numbers.Integral):
        return int(x)
    if isinstance(x, numbers.Real):
        return float(x)
    raise TypeError(f"[{op}] expected a real number, got {x!r}")


cdef int weak_code(object value, int code) except -1:
    """The dtype of `value op tensor` for a plain scalar and a tensor of dtype `code` (array API: scalars are weak)."""
    if isinstance(value, bool):
        return code
    if isinstance(value, int):
        return INT64 if code == BOOL else code
    return code if is_float(code) else default_float


cdef Array scalar(object value, int code, int device, str op="scalar"):
    """A 0-d array of a plain scalar."""
    cdef Array out = empty(code, 0, NULL, device)
    try:
        backend(out).fill(out, value)
    except OverflowError:
        raise OverflowError(f"[{op}] {value!r} does not fit {out.dtype}") from None
    return out


cdef Array operand(str op, object x):
    """x itself if it is a tensor; any other array-like converted to one.

    Foreign memory is copied while operations are recorded: its owner may change it before backward reads it, which no
    version would show.
    """
    if isinstance(x, Array):
        if (<Array>x).buffer == NOWHERE:
            raise uninitialized(op, <Array>x)
        if listeners:
            note_read(<Array>x)
        return <Array>x
    value = plain_scalar(op, x)
    if value is not None:
        return scalar(value, weak_code(value, BOOL), 0, op)
    refuse_tensors(op, x)
    return from_object(x, -1, -1, recording(), op, False, True)


cdef int refuse_tensors(str op, object x) except -1:
    """Refuse a list or tuple that holds tensors, such as the results of a layer: stacked, it is another tensor."""
    tensors = shown_tensors(x)
    if tensors is not None:
        raise TypeError(f"[{op}] expected a tensor, got {tensors}: mg.stack makes one tensor of several")
    return 0


cdef object optional(str op, object x):
    """An optional operand; None if there is none."""
    return None if x is None else operand(op, x)


cdef Array float_operand(str op, object x):
    """The same, but of a floating dtype."""
    cdef Array a = operand(op, x)
    if not is_float(a.code):
        raise TypeError(f"[{op}] expected floating-point elements, got {a.dtype}: use x.astype('float32')")
    return a


cdef Array layer_bias(str op, object bias, Array x, Array weight, int64_t outputs):
    """The bias of a layer, one number for each of its outputs, or None; checked, as are the dtypes of x and weight."""
    cdef Array b = None
    if bias is not None:
        b = float_operand(op, bias)
        if b.ndim_ != 1 or b.extent[0] != outputs:
            raise ValueError(f"[{op}] expected bias of shape ({outputs},), got {shape_of(b)}")
        check_same_device(op, x, b)
    check_same_device(op, x, weight)
    if x.code != weight.code or (b is not None and b.code != weight.code):
        hint = f': use x.astype("{weight.dtype}")' if x.code != weight.code else ""
        raise TypeError(f"[{op}] expected one dtype, got x {x.dtype}, weight {weight.dtype}"
                        f"{'' if b is None else f', bias {b.dtype}'}{hint}")
    return b


cdef int refuse_bytes(str op, Array x) except -1:
    """Refuse bool and uint8, which have no arithmetic."""
    if x.code < INT32:
        raise undefined(op, x.dtype)
    return 0


cdef int one_axis(str op, object axis, int ndim) except -1:
    """A checked axis, counted from the front."""
    k = axis if type(axis) is int else integer(op, "axis", axis)
    if ndim == 0:
        raise IndexError(f"[{op}] expected a tensor with an axis {k}, got one with 0 axes")
    if k < -ndim or k >= ndim:
        raise IndexError(f"[{op}] expected an axis from {-ndim} to {ndim - 1} for {ndim} axes, got {k}")
    return <int>(k + ndim if k < 0 else k)


cdef list many_axes(str op, object axis, int ndim):
    """Checked axes in ascending order; None means all."""
    if axis is None:
        return list(range(ndim))
    if not isinstance(axis, (tuple, list)):
        return [one_axis(op, axis, ndim)]
    found = sorted([one_axis(op, a, ndim) for a in axis])
    if len(set(found)) < len(found):
        raise ValueError(f"[{op}] expected distinct axes, got {axis}")
    return found


cpdef object integer(str op, str name, value: Any, least: int | None = None):  # -> int
    """An argument as an int, if it is an integer of any kind and not below `least`; an axis is not a bool."""
    try:
        if isinstance(value, bool) and name in ("axis", "dim"):     # a flag, as in PyTorch's x.std(False)
            raise TypeError
        found = operator.index(value)
    except (TypeError, ValueError, IndexError):     # what an array's __index__ may raise
        raise TypeError(f"[{op}] expected an integer {name}, got {value!r}") from None
    if least is not None and found < least:
        raise ValueError(f"[{op}] expected {name} >= {least}, got {found}")
    return found


cpdef tuple pair(str op, str name, value: Any, least: int | None = None):  # -> tuple[int, int]
    """An argument as two ints, given as a pair or as one int for both; none below `least`, nor so large that sizes
    computed from it overflow."""
    if not isinstance(value, (tuple, list)):
        return (small_integer(op, name, value, least),) * 2
    if len(value) == 2:
        return small_integer(op, name, value[0], least), small_integer(op, name, value[1], least)
    raise ValueError(f"[{op}] expected an integer or a pair of integers for {name}, got {value}")


cpdef object single(str op, str name, value: Any, least: int | None = None):  # -> int
    """The same for one axis: an int, which may be in a tuple of one."""
    return small_integer(op, name, value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value, least)


cdef object small_integer(str op, str name, object value, object least):
    """An integer below 2**31, so that sizes computed from it do not overflow."""
    found = integer(op, name, value, least)
    if found >= 2**31:
        raise ValueError(f"[{op}] expected {name} < {2**31}, got {found}")
    return found


cpdef object number(str op, str name, value: Any, least: float | None = None, most: float | None = None):  # -> float
    """A number of any kind, or an array of one element, as a Python number within the bounds."""
    found = value
    if type(value) is not float:
        try:
            if isinstance(value, (str, bytes)) or (isinstance(value, Array) and (<Array>value).needs_grad):
                raise TypeError         # float() would parse a string, and detach a tensor from the tape
            found = float(value)
            if type(value) is int:
                found = value
        except OverflowError:
            raise ValueError(f"[{op}] expected {name} within the range of floats") from None
        except (TypeError, ValueError):
            raise TypeError(f"[{op}] expected a number {name}, got {value!r}") from None
    if (least is not None and not found >= least) or (most is not None and not found <= most):     # also refuses NaN
        bounds = f">= {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"[{op}] expected {name} {bounds}, got {found}")
    return found
