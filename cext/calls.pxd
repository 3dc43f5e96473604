from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from minigrad.engine.array cimport Buffer

cdef extern from "runtime/running.hpp" namespace "mg":
    cppclass Recording:
        bint paused
    cppclass Running:
        int waiting
        Recording* recording
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

cdef extern from "runtime/recording.hpp" namespace "mg":
    Recording* recording_here(const Running& running)

cdef Running* RUNNING

cdef inline Begun begin(object op) noexcept:
    """A call of an operation, given by its record or its name: ``cdef Call _call = begin(op)``."""
    return begun(RUNNING, op)

cdef inline bint is_recorded() noexcept:
    """Whether this thread records a step (`minigrad.capture`)."""
    return RUNNING.recording != NULL and recording_here(RUNNING[0]) != NULL

cdef int refuse_in_capture(str what) except -1
cdef str source_line()
cdef bint in_operation() noexcept
cdef int wait_for_operations(str op) except -1
