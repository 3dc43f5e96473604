from libc.stdint cimport int64_t, uintptr_t

from minigrad.engine.memory.buffer cimport Arena, Buffer

ctypedef void (*Drop)(void*) noexcept

cdef Buffer* (*adopt)(void* data, int64_t bytes, int device, void* owner, Drop drop) noexcept
cdef void (*release)(Buffer* buffer) noexcept
cdef object gpus

cdef class Memory:
    cdef Arena* arena
    cdef bint open(self) noexcept
    cdef void pause(self, bint paused) noexcept
    cdef void close(self, const uintptr_t* addresses, size_t count) noexcept
    cdef int64_t stored(self, dict held)
