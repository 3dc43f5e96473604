from libc.stdint cimport int64_t

cdef enum:
    MAX_NDIM = 8

cdef int device_index(object device, str op=*) except -1
cpdef bint names_device(object value)
cdef str device_name(int index)
cdef int parse_shape(object shape, int64_t* extent, str op=*) except -1
cdef int parse_lengths(str op, object shape, int64_t* extent) except -1
cdef object size_of(tuple shape, int64_t count)
cdef int64_t product(int ndim, const int64_t* extent) except -1
