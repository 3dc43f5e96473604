"""What kernels find wrong with indices.

An index on a GPU is checked there, and nobody waits for that. The kernel notes what it finds in two numbers of the
host's memory, which a GPU reaches. Who brings something back from the GPU next looks at them and raises the error; the
end of Python writes it to stderr if nobody did. Until then the computation goes on with an index that is valid.
"""

import atexit
import ctypes
import os
import threading

import cupy


class Faults:
    """The place of one GPU's notes: the number of the message that is told, 0 for none, and the index at fault.

    Attributes
    ----------
    address : int
        Where the kernels find it; memory of the host that is page-locked has the same address on every GPU.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._memory = cupy.cuda.alloc_pinned_memory(16)
        self.address: int = self._memory.ptr
        self._note = (ctypes.c_int64 * 2).from_address(self.address)
        self._note[:] = [0, 0]
        self._messages: dict[str, int] = {}
        self._lock = threading.Lock()

    def number(self, message: str) -> int:
        """The number of a message, in which {} stands for the index."""
        with self._lock:  # two threads may bring two messages
            return self._messages.setdefault(message, len(self._messages) + 1)

    def look(self) -> None:
        """Raise IndexError if there is a note, and forget it."""
        number, value = self._note
        if number:
            self._note[:] = [0, 0]
            message = list(self._messages)[number - 1].format(value)
            where = f"an earlier operation on cuda:{self._device}: what was computed since is void"
            raise IndexError(f"{message} ({where})")


_all: dict[int, Faults] = {}
_lock = threading.Lock()


def of(device: int) -> Faults:
    """The notes of a GPU."""
    if device not in _all:
        with _lock, cupy.cuda.Device(device):
            if device not in _all:
                _all[device] = Faults(device)
                atexit.register(_at_the_end, device, os.getpid())
    return _all[device]


def _at_the_end(device: int, process: int) -> None:
    if os.getpid() == process:  # a fork has no GPU
        wait(device)


def wait(device: int) -> None:
    """Wait until a GPU has done all that was asked of it, and raise what it found."""
    with cupy.cuda.Device(device):
        cupy.cuda.runtime.deviceSynchronize()
    of(device).look()
