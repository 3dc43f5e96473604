"""Out-of-range indices that kernels detect.

A kernel checks indices on the GPU, and the host does not wait for the check. The kernel stores what it finds in two
integers of host memory that the GPU can write. The next transfer to the CPU reads them and raises the error; an error
that was not raised is written to stderr when Python exits. Until then the computation continues with a valid index.
"""

import atexit
import ctypes
import os
import threading

import cupy


class Faults:
    """The fault record of one GPU: the number of the error message, 0 for none, and the index at fault.

    Attributes
    ----------
    address : int
        The address of the record; page-locked host memory has the same address on every GPU.
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
        """Return the number of a message, in which {} is replaced by the index."""
        with self._lock:  # two threads may add two messages
            return self._messages.setdefault(message, len(self._messages) + 1)

    def look(self) -> None:
        """Raise IndexError if there is a fault, and clear it."""
        number, value = self._note
        if number:
            self._note[:] = [0, 0]
            message = list(self._messages)[number - 1].format(value)
            where = f"in an earlier operation on cuda:{self._device}; results computed since are invalid"
            raise IndexError(f"{message} ({where})")


_all: dict[int, Faults] = {}
_lock = threading.Lock()


def of(device: int) -> Faults:
    """Return the fault record of a GPU."""
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
    """Wait until a GPU has finished all queued work, and raise the fault it found."""
    with cupy.cuda.Device(device):
        cupy.cuda.runtime.deviceSynchronize()
    of(device).look()
