from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from minigrad.engine.memory.buffer cimport Buffer
from minigrad.engine.memory.shapes cimport MAX_NDIM

cdef Buffer* NOWHERE    # the buffer of a tensor whose __init__ has not run: no memory, no elements

cdef class Array:
    cdef Buffer* buffer
    cdef char* data                 # the first element
    cdef int code                   # the number of its dtype
    cdef int ndim_                  # the number of axes, `ndim` in Python
    cdef int output                 # its number among the outputs of its node
    cdef int64_t epoch              # see `version`
    cdef int64_t moment             # when it was made, see `next_moment`
    cdef int64_t savers             # how many times nodes save this very tensor for backward
    cdef int64_t saved_since        # the sequence number of the first of these nodes
    cdef bint packed                # row-major without gaps
    cdef bint needs_grad            # `requires_grad` in Python
    cdef int64_t count              # number of elements
    cdef int64_t[MAX_NDIM] extent   # shape
    cdef int64_t[MAX_NDIM] step     # strides in bytes
    cdef object node                # tape.Node that made it, or None
    cdef Array grad_                # `grad` in Python
    cdef PyObject* left             # its neighbours in the ring of views, see `join_ring`; NULL: it is alone
    cdef PyObject* right
    cdef object __weakref__

cdef struct Above:      # what the layers above set, which the layers below call
    void (*forget)(Array) noexcept      # an array with a node dies (tape/record)
    int (*read)(Array) except -1        # values of an array are read other than by an operation (memory/listener)
    Array (*add)(Array, Array)          # a + b, of one shape, which can be differentiated (ops/arithmetic)
cdef Above above
