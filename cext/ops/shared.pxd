from minigrad.engine.memory.array cimport Array

cdef int become(Array x, Array old, Array result) except -1
cdef int finish_write(Array x, Array old, Array result, Array region, list changed) except -1
cdef bint is_written(Array x, Array target, Array v)
