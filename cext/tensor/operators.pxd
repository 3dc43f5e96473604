from minigrad.engine.memory.array cimport Array


cdef class Operators(Array):
    pass
