"""Whether arrays, or elements of one array, share memory."""
from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.dtype cimport itemsize


cdef bint overlaps_itself(Array x) noexcept:
    """Whether several elements of x share a memory location, as after a broadcast."""
    cdef int i
    for i in range(x.ndim_):
        if x.extent[i] > 1 and x.step[i] == 0:
            return x.count > 0
    return False


cdef struct Span:
    char* first
    char* last      # one byte after it


cdef Span span(Array x) noexcept:
    """The memory from the first byte to the last byte of a nonempty tensor."""
    cdef Span memory = Span(x.data, x.data + itemsize(x.code))
    cdef int64_t reach
    cdef int i
    for i in range(x.ndim_):
        reach = (x.extent[i] - 1) * x.step[i]
        if reach < 0:
            memory.first += reach
        else:
            memory.last += reach
    return memory


def memory_span(Array x) -> tuple[int, int]:
    """(int, int): the addresses of the first byte of a nonempty tensor and of the byte after its last."""
    cdef Span memory = span(x)
    return <size_t>memory.first, <size_t>memory.last


def is_broadcast(Array x: Array) -> bool:
    """bool: whether several elements of x share a memory location."""
    return bool(overlaps_itself(x))


cdef bint may_share_memory(Array a, Array b) noexcept:
    """Whether the memory spans of a and b overlap, whoever owns them."""
    if a.count == 0 or b.count == 0 or a.buffer.device != b.buffer.device:
        return False
    cdef Span p = span(a), q = span(b)
    return p.first < q.last and q.first < p.last
