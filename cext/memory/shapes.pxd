cdef enum:
    MAX_NDIM = 8
