from minigrad.engine.memory.array cimport Array

cdef object in_place(str name, object operation, int op, object x, object y)
cdef int fill_array(str op, Array x, object value) except -1
