from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from minigrad.engine.array cimport Buffer

cdef extern from "runtime/running.hpp" namespace "mg":
    cppclass Running:
        int waiting
        void (*release)(Buffer*)
    cppclass Begun:
        pass
    cppclass Call:
        PyObject* op
        uint64_t number
        bint backward
        Call& operator=(Begun)
        void cover(Begun begun, bint in_backward)
        void end()
    Begun begun "mg::begin"(Running* running, object op)

cdef Running* RUNNING

cdef inline Begun begin(object op) noexcept:
    """A call of an operation, given by its record or its name: ``cdef Call _call = begin(op)``."""
    return begun(RUNNING, op)

cdef bint in_operation() noexcept
cdef int wait_for_operations(str op) except -1
