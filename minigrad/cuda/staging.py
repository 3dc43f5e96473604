"""Copies from the CPU to a GPU for which nobody waits.

The GPU reads page-locked memory on its own, while a copy from ordinary memory would keep the processor until all work
queued before it is done. So an array is first copied into a page-locked ring, from which the GPU copies it in turn; the
caller may overwrite it immediately.
"""

import ctypes
import threading
from collections import deque
from typing import Any

import cupy

from minigrad.engine.tensor.tensor import Tensor

HOST_TO_DEVICE = 1  # cudaMemcpyKind
SIZE = 1 << 24  # bytes of the ring
LARGEST = SIZE // 4  # bytes: copying a larger array twice would take longer than the wait
PAGE = 4096  # bytes; copies begin at multiples, so that the ring does not hold very many


class Ring:
    """Page-locked memory for the copies to one GPU, the current one; the oldest are overwritten once they are done.

    Places count on from one round to the next: SIZE is the second round's first byte.
    """

    def __init__(self) -> None:
        self._memory = cupy.cuda.alloc_pinned_memory(SIZE)
        self._next = 0  # the place of the next copy
        self._queued: deque[tuple[int, Any]] = deque()  # the place and the event of each copy, the oldest first
        self._lock = threading.RLock()  # a finalizer that runs meanwhile may copy

    def copy(self, x: Tensor, out: Tensor, stream: Any) -> None:
        """Queue a copy of a contiguous array of at most LARGEST bytes."""
        size = x.nbytes
        with self._lock:
            event = cupy.cuda.Event(disable_timing=True)
            place = self._next
            if place % SIZE + size > SIZE:  # copies do not cross the end
                place += -place % SIZE
            self._next = place + -(-size // PAGE) * PAGE
            self._queued.append((place, event))
            while self._queued[0][0] < place + size - SIZE:
                self._queued.popleft()[1].synchronize()
            address = self._memory.ptr + place % SIZE
            ctypes.memmove(address, x.data_ptr(), size)
            cupy.cuda.runtime.memcpyAsync(out.data_ptr(), address, size, HOST_TO_DEVICE, stream.ptr)
            stream.record(event)


_rings: dict[int, Ring] = {}


def ring(device: int) -> Ring:
    """Return the ring of a GPU, which is the current one."""
    return _rings.get(device) or _rings.setdefault(device, Ring())
