from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libcpp.map cimport map as cppmap
from libcpp.set cimport set as cppset
from libcpp.vector cimport vector

from minigrad.engine.memory.buffer cimport Buffer

cdef extern from "runtime/kernel_list.hpp" namespace "mg" nogil:
    struct About "mg::KernelList::About":
        PyObject* op
        int64_t work
        int device
        bint backward
    cppclass KernelList:
        KernelList() except +
        bint paused
        vector[About] about
        vector[uintptr_t] addresses
        void sort_addresses()
        void run(size_t first, size_t end) noexcept
        const void* keep_stream(int device, const void* stream)
        cppset[int] with_products
        cppmap[int, const void*] streams
    bint belongs_here(const KernelList& kernels)

cdef extern from "runtime/active_calls.hpp" namespace "mg":
    cppclass ActiveCalls:
        int waiting
        KernelList* kernel_list
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
    Begun begun "mg::begin"(ActiveCalls* active, object op)

cdef extern from "runtime/kernel_list.hpp" namespace "mg":
    KernelList* kernel_list_here(const ActiveCalls& active)

cdef ActiveCalls* ACTIVE

cdef inline Begun begin(object op) noexcept:
    """A call of an operation, given by its record or its name: ``cdef Call _call = begin(op)``."""
    return begun(ACTIVE, op)

cdef inline bint is_capturing() noexcept:
    """Whether this thread captures a step (`minigrad.capture`)."""
    return ACTIVE.kernel_list != NULL and kernel_list_here(ACTIVE[0]) != NULL
