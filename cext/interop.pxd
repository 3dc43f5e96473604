from minigrad.engine.array cimport Array

cdef Array from_object(object data, int code, int device, bint copy, str op=*)
cdef object uninitialized(str op, Array x)
