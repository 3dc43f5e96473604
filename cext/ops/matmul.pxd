from minigrad.engine.memory.array cimport Array

cpdef Array matmul(x, y)
cdef Array product(Array a, Array b, Array bias)
