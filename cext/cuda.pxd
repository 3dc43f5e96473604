from libc.stdint cimport intptr_t

from minigrad.engine.calls cimport RecordedKernels


cdef class Graph:
    cdef int device
    cdef object graph       # CuPy's

    cdef int start(self) except -1

cdef Graph graph_of(RecordedKernels* recording, size_t first, size_t end, int device, tuple workspace)
cdef tuple workspace_on(int device)

cdef class Order:
    cdef int device
    cdef intptr_t last          # the address of the stream of the last run
    cdef object home, stream    # CuPy's: of the recorded run, and of the last one

    cdef int follow(self) except -1
