from minigrad.engine.array cimport Array

cpdef Array matmul(x, y)
