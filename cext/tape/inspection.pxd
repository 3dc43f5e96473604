from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array

cdef list history_of(list roots)
cpdef int64_t bytes_of(Array x)
