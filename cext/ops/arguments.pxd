from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.shapes cimport MAX_NDIM

cdef Array operand(str op, object x)
cdef Array float_operand(str op, object x)
cdef Array layer_bias(str op, object bias, Array x, Array weight)
cdef Array scalar(object value, int code, int device, str op=*)
cdef int refuse_bool(str op, Array x) except -1
cdef int refuse_tensors(str op, object x) except -1
cdef object optional(str op, object x)
cdef object plain_axis(str op, object axis)
cdef int one_axis(str op, object axis, int ndim) except -1
cdef list many_axes(str op, object axis, int ndim)
cdef int weak_code(object value, int code) except -1
cdef bint is_scalar(object x)
cdef object plain_scalar(str op, object x)
cpdef object integer(str op, str name, object value, object least=*)
cpdef tuple pair(str op, str name, object value, object least=*)
cdef object small_integer(str op, str name, object value, object least)
cpdef object single(str op, str name, object value, object least=*)
cpdef object number(str op, str name, object value, object least=*, object most=*)
