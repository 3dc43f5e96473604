from libc.stdint cimport uint64_t

from minigrad.engine.array cimport Array

cdef tuple reserve(uint64_t blocks)
cdef tuple places(Array x)
