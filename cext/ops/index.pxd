from minigrad.engine.array cimport Array

cdef Array taken(Array x, int axis, Array index)
cdef Array taken_along(Array x, Array index, int axis)
cpdef Array getitem(x, key)
cdef int assign(str op, Array a, object key, object value) except -1
cpdef int setitem(x, key, value) except -1
cdef Array beside(Array x, object given, Array y)
