from libc.stdint cimport int64_t, uint64_t

cdef list reserve(uint64_t blocks)
cdef int draw(object primitive, int64_t count, tuple args) except -1
