from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uintptr_t

cdef extern from "runtime/buffer.hpp" namespace "mg":
    struct Buffer:
        char* data
        int64_t bytes
        int64_t references
        int64_t version
        void (*drop)(void* owner) noexcept
        void* owner
        int32_t device
    Buffer* allocate(int64_t bytes)
    Buffer* adopt(void* data, int64_t bytes, int device, void* owner, void (*drop)(void*) noexcept)
    void release(Buffer* buffer)
    cppclass Arena:
        pass

cdef enum:
    MAX_NDIM = 8

cdef Buffer* NOWHERE    # of a tensor whose __init__ has not run: no memory, no elements

cdef class Array:
    cdef Buffer* buffer
    cdef char* data                 # the first element
    cdef int code                   # dtype
    cdef int ndim_
    cdef int output                 # which output of its node
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

cdef int device_index(object device, str op=*) except -1
cpdef bint names_device(object value)
cdef str device_name(int index)
cdef int parse_shape(object shape, int64_t* extent, str op=*) except -1
cdef int parse_lengths(str op, object shape, int64_t* extent) except -1
cdef tuple shape_of(Array x)
cdef bint same_shape(Array a, Array b) noexcept

cdef Array empty(int code, int ndim, const int64_t* extent, int device)
cdef Array empty_as(Array x, int code)
cdef Array view(Array base, int ndim, const int64_t* extent, const int64_t* step, char* data)
cdef Array alias(Array x)
cdef void join_ring(Array x, Array other) noexcept
cdef void leave_ring(Array x) noexcept
ctypedef void (*Drop)(void*) noexcept
cdef Array adopted(void* data, int64_t bytes, int device, void* owner, Drop drop, int code)
cdef int64_t version(Array x) noexcept
cdef bint overlaps_itself(Array x) noexcept
cdef bint may_share_memory(Array a, Array b) noexcept
cdef int64_t product(int ndim, const int64_t* extent) except -1
cdef int hold(Array x, Array source) except -1
cdef int point(Array x, Array source) except -1
cdef Array transferred(Array x, int device)
cdef object owner_of(Array x)
cdef int set_owner(Array x, object owner) except -1
cdef int check_same_device(str op, Array a, Array b) except -1
ctypedef void (*Forget)(Array) noexcept
cdef void set_forget(Forget function)
ctypedef int (*Reader)(Array) except -1
cdef void set_reader(Reader function)
cdef int tell_reader(Array x) except -1
cdef int note_use(Array x) except -1
cdef object first_element(Array x)
cdef int64_t next_moment() noexcept
cdef class Memory:
    cdef Arena* arena
    cdef bint open(self) noexcept
    cdef void pause(self, bint paused) noexcept
    cdef void close(self, const uintptr_t* addresses, size_t count) noexcept
    cdef int64_t stored(self, dict held)
cdef int keep_values(Array x) except -1
cpdef void set_result_type(type cls) except *
cpdef void set_device_hooks(object allocate, object transfer, object streams)
cdef object device_allocate, device_streams
