from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from minigrad.engine.memory.buffer cimport Buffer
from minigrad.engine.memory.pool cimport Drop
from minigrad.engine.memory.shapes cimport MAX_NDIM

cdef Buffer* NOWHERE    # the buffer of a tensor whose __init__ has not run: no memory, no elements

cdef class Array:
    cdef Buffer* buffer
    cdef char* data                 # the first element
    cdef int code                   # dtype
    cdef int ndim_
    cdef int output                 # its number among the outputs of its node
    cdef int64_t epoch              # see `version`
    cdef int64_t moment             # when it was made, see `next_moment`
    cdef int64_t savers             # how many times nodes save this very tensor for backward
    cdef int64_t saved_since        # the sequence number of the first of these nodes
    cdef bint packed               # row-major without gaps
    cdef bint needs_grad
    cdef int64_t count              # number of elements
    cdef int64_t[MAX_NDIM] extent   # shape
    cdef int64_t[MAX_NDIM] step     # strides in bytes
    cdef object node                # tape.Node that made it, or None
    cdef Array grad_
    cdef PyObject* left             # its neighbours in the ring of views, see `join_ring`; NULL: it is alone
    cdef PyObject* right
    cdef object __weakref__

cdef tuple shape_of(Array x)
cdef bint same_shape(Array a, Array b) noexcept

cdef Array empty(int code, int ndim, const int64_t* extent, int device)
cdef Array empty_as(Array x, int code)
cdef Array view(Array base, int ndim, const int64_t* extent, const int64_t* step, char* data)
cdef Array alias(Array x)
cdef void join_ring(Array x, Array other) noexcept
cdef void leave_ring(Array x) noexcept
cdef Array adopted(void* data, int64_t bytes, int device, void* owner, Drop drop, int code)
cdef int64_t version(Array x) noexcept
cdef int hold(Array x, Array source) except -1
cdef int point(Array x, Array source) except -1
cdef Array transferred(Array x, int device)
cdef object owner_of(Array x)
cdef int set_owner(Array x, object owner) except -1
cdef int check_same_device(str op, Array a, Array b) except -1

cdef struct Above:      # what the layers above set, which the layers below call
    void (*forget)(Array) noexcept      # an array with a node dies (tape/record)
    int (*read)(Array) except -1        # values of an array are read other than by an operation (memory/listener)
    Array (*add)(Array, Array)          # a + b, of one shape, which can be differentiated (ops/arithmetic)
cdef Above above

cdef int tell_reader(Array x) except -1
cdef int note_use(Array x) except -1
cdef object first_element(Array x)
cdef int64_t next_moment() noexcept
cdef int keep_values(Array x) except -1
cpdef void set_result_type(type cls) except *
cdef object unrecorded_numpy(Array x)
cdef Array tidied(Array x)
