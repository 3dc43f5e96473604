from minigrad.engine.memory.array cimport Array

cdef Array from_object(object data, int code, int device, bint copy, str op=*, bint shared=*, bint given=*)
