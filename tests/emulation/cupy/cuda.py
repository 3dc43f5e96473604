"""Emulation of the names of ``cupy.cuda``: CPU memory between guard bytes, two devices, and streams that execute work
immediately.
"""

import ctypes
import weakref
from types import SimpleNamespace

FENCE = b"\xa5" * 128
LIMIT = 1 << 34  # bytes; larger allocations fail
DEVICES = 2
chosen = [0]  # the current device comes last, after those that will be current again
allocations = weakref.WeakValueDictionary()


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    """Memory of a device between fences, initialized to NaN."""

    def __init__(self, size, device):
        self.size, self.device = size, device
        self.room = bytearray(b"\xff") * (size + 2 * len(FENCE) + 64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.room))
        self.begin = -address % 64 + len(FENCE)
        self.ptr = address + self.begin
        self.mend()
        allocations[id(self)] = self

    def mend(self):
        self.room[self.begin - len(FENCE) : self.begin] = FENCE
        self.room[self.begin + self.size : self.begin + self.size + len(FENCE)] = FENCE

    def intact(self):
        return self.room.startswith(FENCE, self.begin - len(FENCE)) and self.room.startswith(
            FENCE, self.begin + self.size
        )


def alloc(size):
    if size > LIMIT:
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
    return Memory(size, chosen[-1])


def alloc_pinned_memory(size):
    return Memory(size, None)


def alive():
    """Return all memory; unlike `allocations.values()`, it allows other threads to allocate meanwhile."""
    return [memory for reference in allocations.valuerefs() if (memory := reference()) is not None]


def check_devices(kernel, arguments):
    """Raise if an argument is the address of memory of another device than the current one."""
    devices = {memory.ptr: memory.device for memory in alive()}
    for one in arguments:
        if type(one) is int and devices.get(one) not in (None, chosen[-1]):
            raise RuntimeError(f"{kernel}: started on device {chosen[-1]} with memory of device {devices[one]}")


def check_fences(kernel):
    """Raise if memory around an allocation was written."""
    for memory in alive():
        if not memory.intact():
            memory.mend()
            raise RuntimeError(f"{kernel}: wrote outside of an array of {memory.size} bytes")


class Device:
    """A device."""

    def __init__(self, index=0):
        assert 0 <= index < DEVICES, f"a device {index}, which does not exist"
        self.id = index

    def __enter__(self):
        chosen.append(self.id)
        return self

    def __exit__(self, *error):
        chosen.pop()


class Event:
    """An event; all work before it is already done."""

    ptr = 0


class Stream:
    """A stream, which executes work immediately."""

    def __init__(self, non_blocking=False):
        self.ptr, self.device = id(self), chosen[-1]

    def __enter__(self):
        current[chosen[-1]].append(self)
        return self

    def __exit__(self, *error):
        current[chosen[-1]].remove(self)

    def synchronize(self):
        pass

    def record(self):
        assert self.device in (None, chosen[-1]), "an event of another device than its stream's"
        return Event()

    def wait_event(self, event):
        pass


Stream.null = Stream()
Stream.null.ptr, Stream.null.device = 0, None
current = [[Stream.null] for _ in range(DEVICES)]  # of each device


def get_current_stream():
    return current[chosen[-1]][-1]


def memcpy(to, source, size, kind, stream=0):
    ctypes.memmove(to, source, size)


memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
runtime = SimpleNamespace(
    getDeviceCount=lambda: DEVICES,
    deviceSynchronize=lambda: None,
    memcpyAsync=memcpy,
    streamWaitEvent=lambda stream, event, flags=0: None,
    getDeviceProperties=lambda index: {"name": b"emulated"},
)
device = SimpleNamespace(get_cublas_handle=lambda: 0)
