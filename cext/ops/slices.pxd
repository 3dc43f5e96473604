from minigrad.engine.memory.array cimport Array

cdef Array window(Array x, list spec)
cdef Array take_window(Array x, list spec)
cdef Array place_window(Array g, list spec, tuple shape)
cdef Array zeros(tuple shape, int code, int device)
cpdef Array flip(x, axis=*)
