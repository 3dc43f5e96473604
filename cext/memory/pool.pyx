"""Memory of arrays: blocks from the pool of the CPU (runtime/buffer.cpp), and those that a device's allocator gives."""
cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uintptr_t

from minigrad.engine.memory.buffer cimport Arena, Buffer
from minigrad.engine.memory.calls cimport ACTIVE

cdef extern from "runtime/buffer.hpp" namespace "mg" nogil:
    Buffer* allocate(int64_t bytes, bint once)
    Arena* open_arena()
    void pause_arena(Arena*, bint)
    void close_arena(Arena*, const uintptr_t*, size_t)
    void free_arena(Arena*)
    size_t blocks_of(Arena*)
    Buffer* block_of(Arena*, size_t)
    int64_t bytes_in_use()
    int64_t bytes_cached()
    void drop_cache "mg::empty_cache"()

cdef extern from "runtime/buffer.hpp" namespace "mg":
    Buffer* adopt_memory "mg::adopt"(void* data, int64_t bytes, int device, void* owner, Drop drop) noexcept
    void release_memory "mg::release"(Buffer* buffer) noexcept
    void** owner_place(Buffer* buffer, void (*drop)(void* owner) noexcept)
    Buffer* allocate_on(int device, int64_t bytes, Buffer* (*fresh)(int64_t, int) except NULL) except NULL

# The C++ functions are part of this module alone: others call them through pointers.
adopt, release = adopt_memory, release_memory
ACTIVE.release = release_memory

cdef object gpus = None


def set_gpus(provider: Any) -> None:
    """Set what GPUs need from above, `minigrad.cuda.Gpus`: `import minigrad` does so before any array is made."""
    global gpus
    gpus = provider


cdef Buffer* new_buffer(int64_t bytes, int device, bint once) except NULL:
    """Memory that is not initialized. With `once`, which is for the CPU, a recorded step does not reuse it."""
    cdef Buffer* buffer
    if device == 0:
        buffer = allocate(bytes, once)
        if buffer == NULL:
            raise MemoryError(f"[allocate] no memory for {bytes} bytes")
        return buffer
    return allocate_on(device, bytes, device_memory)


cdef Buffer* device_memory(int64_t bytes, int device) except NULL:
    address, owner = gpus.allocate(bytes, device - 1)
    Py_INCREF(owner)
    return adopt(<void*><size_t>address, bytes, device, <void*>owner, drop_object)


cdef void drop_object(void* owner) noexcept:
    Py_DECREF(<object>owner)


cdef void** owner_of_memory(Buffer* buffer):
    """Where the object is noted that owns memory on a device; NULL for foreign memory."""
    return owner_place(buffer, drop_object)


@cython.final
cdef class Memory:
    """The memory of a recorded step, see `Arena` in runtime/buffer.hpp."""

    cdef bint open(self) noexcept:
        self.arena = open_arena()
        return self.arena != NULL

    cdef void pause(self, bint paused) noexcept:
        pause_arena(self.arena, paused)

    cdef void close(self, const uintptr_t* addresses, size_t count) noexcept:
        close_arena(self.arena, addresses, count)

    cdef int64_t stored(self, dict held):
        """How many bytes of it are held by others than are counted, by the address of the buffer."""
        cdef int64_t total = 0
        cdef size_t i
        cdef Buffer* block
        for i in range(blocks_of(self.arena)):
            block = block_of(self.arena, i)
            if block.references > <int64_t>held.get(<size_t>block, 0):
                total += block.bytes
        return total

    def __dealloc__(self):
        if self.arena != NULL:
            free_arena(self.arena)


def memory_allocated() -> int:
    """int: bytes of CPU memory held by live tensors (free memory in the pool not counted).

    Examples
    --------
    >>> import minigrad as mg
    >>> before = mg.memory_allocated()
    >>> x = mg.zeros(1000)
    >>> mg.memory_allocated() - before >= x.nbytes
    True
    """
    return bytes_in_use()


def memory_cached() -> int:
    """int: bytes of CPU memory that the pool keeps for future tensors.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.memory_cached() >= 0
    True
    """
    return bytes_cached()


def empty_cache() -> None:
    """Give the pool's free CPU memory back to the system, and free GPU memory to CuPy's pool.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.empty_cache()
    >>> mg.memory_cached()
    0
    """
    drop_cache()
    gpus.empty_pools()
