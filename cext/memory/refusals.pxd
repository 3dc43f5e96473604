from minigrad.engine.memory.array cimport Array

cpdef str kind_of(object x)
cdef str shown_tensors(object data)
cdef object must_copy(str op, object data)
cdef object uninitialized(str op, Array x)
cdef object unsupported(str op, str got, bint here=*)
cdef str place_of_copy()
