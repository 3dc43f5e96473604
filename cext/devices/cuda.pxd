from libc.stdint cimport intptr_t

cdef enum:
    PER_THREAD = 2      # the address of the default stream of each thread, which is another stream in each

cdef object cupy_cuda

cdef class Current:
    cdef int device
    cdef object entered     # CuPy's device, if this one was not current

cdef class Graph:
    cdef int device
    cdef object graph       # CuPy's

    cdef int start(self) except -1

cdef class Order:
    cdef int device
    cdef intptr_t last          # the address of the stream of the last replay
    cdef object home, stream    # CuPy's streams of the captured run, and of the last replay
    cdef object reached         # the end of the last replay, if that was on the default stream of a thread

    cdef int follow(self) except -1
    cdef int leave(self) except -1
