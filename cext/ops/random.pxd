from libc.stdint cimport uint64_t

cdef tuple reserve(uint64_t blocks)
