from minigrad.engine.array cimport Array

cdef tuple places(Array x)
