from libc.stdint cimport int64_t, uint64_t

from minigrad.engine.memory.array cimport Array

cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:
    cpdef enum Reduce "mg::Reduce":
        SUM, PROD, MAX, MIN, ANY, ALL, ARGMAX, ARGMIN

include "interface_declared.pxi"
