from minigrad.engine.calls cimport RecordedKernels


cdef class Graph:
    cdef int device
    cdef object graph       # CuPy's

    cdef int start(self) except -1

cdef Graph graph_of(RecordedKernels* recording, size_t first, size_t end, int device, dict workspaces)
