"""Memory of GPUs: blocks of CuPy's pool that wait for reuse, and those that several streams use."""
cimport cython
from libc.stdint cimport int64_t, intptr_t

from minigrad.engine.devices.cuda cimport Current, cupy_cuda, current_stream
from minigrad.engine.memory.array cimport Array, owner_of, set_owner
from minigrad.engine.memory.pool cimport gpus

cdef enum:
    UNIT = 512              # bytes: the multiple to which CuPy's pool rounds
    PER_THREAD = 2          # the default stream of each thread: another one in every thread
    SHARE = 16              # the largest block is this part of the limit

cdef dict pools = {}        # by GPU


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Pool:
    """Blocks of CuPy's pool that were freed a moment ago; CuPy would take much longer to give them out again.

    As in CuPy's pool, a block is reused only by the stream for which it was allocated, whose work is done in order.
    """
    cdef int device
    cdef object fresh           # fresh(bytes) allocates from CuPy's pool
    cdef int64_t limit, held    # bytes
    cdef dict streams           # for each stream, by size, lists of (address, CuPy's block)
    cdef list late              # (events, Block): freed, while another stream has not reached the events yet

    def __cinit__(self, int device, fresh: Callable[[int], Any], int64_t limit):
        self.device, self.fresh, self.limit, self.streams, self.late = device, fresh, limit, {}, []
        pools[device] = self

    def empty(self) -> None:
        """Give all blocks back to CuPy's pool."""
        self.held = 0
        for sizes in list(self.streams.values()):
            for blocks in list(sizes.values()):
                blocks.clear()

    cdef int settle(self, bint wait) except -1:
        """Let go of late blocks that no stream uses any more; of all of them, after waiting for the streams."""
        cdef list late = self.late
        self.late = []
        for events, memory in late:
            if wait:
                for event in events:
                    event.synchronize()
            elif not all([event.done for event in events]):
                self.late.append((events, memory))
        return 0

    cdef object allocate(self, int64_t size):
        try:
            return self.fresh(size)
        except MemoryError:
            if self.held == 0 and not self.late:
                raise
        self.settle(True)
        self.empty()
        return self.fresh(size)

    cdef tuple take(self, int64_t size):
        """The address and the owner of that many bytes, or a few more."""
        cdef intptr_t stream
        cdef dict sizes
        cdef list blocks
        cdef Block memory
        if self.late:
            self.settle(False)
        stream = current_stream(self.device)
        memory = Block.__new__(Block)
        memory.stream = stream
        if size > self.limit // SHARE or stream == PER_THREAD:
            block = self.allocate(size)
            memory.pair = block.ptr, block
            return block.ptr, memory
        size = (size + UNIT - 1) // UNIT * UNIT
        found = self.streams.get(stream)
        sizes = self.streams.setdefault(stream, {}) if found is None else found
        found = sizes.get(size)
        blocks = sizes.setdefault(size, []) if found is None else found
        if blocks:
            pair = blocks.pop()
            self.held -= size
        else:
            block = self.allocate(size)
            pair = block.ptr, block
        memory.pool, memory.size, memory.blocks, memory.pair = self, size, blocks, pair
        return pair[0], memory


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Block:
    """Owns a block; when it is freed, the block goes back to the pool, or else to CuPy's."""
    cdef Pool pool          # None if the block is of a size or a stream that the pool does not keep
    cdef intptr_t stream    # the stream that allocated the block, and whose work may use it again
    cdef int64_t size
    cdef list blocks        # the pool's blocks of its stream and size
    cdef tuple pair

    def __dealloc__(self):
        if self.pool is None:
            return
        if self.pool.held + self.size > self.pool.limit:
            self.pool.empty()   # they may all be of sizes that are no longer used
        self.pool.held += self.size
        self.blocks.append(self.pair)


@cython.final
@cython.binding(False)
cdef class Shared:
    """Owns memory that other streams use, too, for which its own stream waits before it uses the memory again."""
    cdef Block memory
    cdef int device
    cdef dict streams       # CuPy's, by address

    def __del__(self) -> None:
        with Current(self.device):
            events = [stream.record() for stream in self.streams.values()]
        (<Pool>pools[self.device]).late.append((events, self.memory))


def share(Array x, stream: Any) -> None:
    """Note that a stream of CuPy uses the memory of a tensor on a GPU."""
    cdef Shared shared
    owner = owner_of(x)
    if type(owner) is Block and (<Block>owner).stream != stream.ptr:
        shared = Shared.__new__(Shared)
        shared.memory, shared.device, shared.streams = owner, x.buffer.device - 1, {stream.ptr: stream}
        set_owner(x, shared)
    elif type(owner) is Shared and (<Shared>owner).memory.stream != stream.ptr:
        (<Shared>owner).streams[stream.ptr] = stream


def empty_pools() -> None:
    """Give all free memory back to CuPy's pool."""
    for pool in list(pools.values()):
        pool.empty()


def allocate(int64_t size, object device: int) -> tuple[int, Any]:
    """Allocate memory on a GPU; return the address and the object that owns the memory."""
    pool = pools.get(device)
    if pool is None:
        gpus.prepare(device)        # adds its pool
        pool = pools[device]
    return (<Pool>pool).take(max(size, 1))


cdef tuple workspace_on(int device):
    """Memory for the products of a recording: (CuPy's block, bytes)."""
    # The documentation of cuBLAS recommends these sizes from Hopper on, and before.
    size = 32 << 20 if int(cupy_cuda.Device(device).compute_capability) >= 90 else 4 << 20
    return (<Pool>pools[device]).allocate(size), size
