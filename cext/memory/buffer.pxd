from libc.stdint cimport int32_t, int64_t

cdef extern from "runtime/buffer.hpp" namespace "mg":
    struct Buffer:
        char* data
        int64_t bytes
        int64_t references
        int64_t version
        void (*drop)(void* owner) noexcept
        void* owner
        int32_t device
    cppclass Arena:
        pass
