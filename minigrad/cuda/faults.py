"""What kernels find wrong with indices.

An index on a GPU is checked there, and nobody waits for that. The kernel notes what it finds in two numbers of the
host's memory, which a GPU reaches; whoever waits for the GPU next looks at them and raises the error. Until then the
computation goes on with an index that is valid.
"""

import ctypes
from functools import cache

import cupy


class Faults:
    """The place of one GPU's notes: the number of the message that is told, 0 for none, and the index at fault.

    Attributes
    ----------
    address : int
        Where the kernels find it; memory of the host that is page-locked has the same address on every GPU.
    """

    def __init__(self) -> None:
        self._memory = cupy.cuda.alloc_pinned_memory(16)
        self.address: int = self._memory.ptr
        self._note = (ctypes.c_int64 * 2).from_address(self.address)
        self._note[:] = [0, 0]
        self._messages: dict[str, int] = {}

    def number(self, message: str) -> int:
        """The number of a message, in which {} stands for the index."""
        return self._messages.setdefault(message, len(self._messages) + 1)

    def look(self) -> None:
        """Raise IndexError if there is a note, and forget it."""
        number, value = self._note
        if number:
            self._note[:] = [0, 0]
            raise IndexError(list(self._messages)[number - 1].format(value))


@cache
def of(device: int) -> Faults:
    """The notes of a GPU."""
    with cupy.cuda.Device(device):
        return Faults()
