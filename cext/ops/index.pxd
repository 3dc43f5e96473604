from minigrad.engine.memory.array cimport Array

cpdef Array getitem(x, key)
cdef int assign(str op, Array a, object key, object value) except -1
cpdef int setitem(x, key, value) except -1
