from minigrad.engine.array cimport Array

cdef int check_write(str op, Array x, bint recorded) except -1
cdef Array before_write(Array x)
cdef int become(Array x, Array old, Array result) except -1
