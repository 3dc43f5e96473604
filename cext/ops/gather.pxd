from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array

cdef Array index_for(int device, str op, Array index)
cdef Array indices_of(str op, object index)
cdef Array check_index(str op, Array index, int64_t n, int axis, int device)
cdef Array beside(Array x, object given, Array y)
cdef tuple around(Array x, int axis)
cdef Array take_rows(Array x, int axis, Array index)
cdef Array take_along(Array x, Array index, int axis)
