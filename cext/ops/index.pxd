from minigrad.engine.array cimport Array

cdef Array taken_along(Array x, Array index, int axis)
cpdef Array getitem(x, key)
cpdef int setitem(x, key, value) except -1
