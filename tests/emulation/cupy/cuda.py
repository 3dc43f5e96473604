"""Stand-ins for the names of ``cupy.cuda``: memory of the CPU with fences around it, one device, one stream."""

import ctypes
import weakref
from types import SimpleNamespace

FENCE = b"\xa5" * 128
LIMIT = 1 << 34  # bytes: more than that is more than this device has
allocations = weakref.WeakValueDictionary()


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    """Memory between fences, which begins as NaN."""

    def __init__(self, size):
        self.size = size
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
        return self.room.startswith(FENCE, self.begin - len(FENCE)) and self.room.startswith(FENCE, self.begin + self.size)


def alloc(size):
    if size > LIMIT:
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
    return Memory(size)


def alloc_pinned_memory(size):
    return Memory(size)


def check_fences(kernel):
    """Raise if memory beside an allocation was written."""
    for memory in list(allocations.values()):
        if not memory.intact():
            memory.mend()
            raise RuntimeError(f"{kernel}: wrote outside of an array of {memory.size} bytes")


class Device:
    """The only device."""

    def __init__(self, index=0):
        assert index == 0, f"a device {index}, which does not exist"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


class Event:
    """All that was asked for before it was done at once."""


class ExternalStream:
    """A stream; `events` are those it waits for."""

    def __init__(self, ptr):
        self.ptr, self.events = ptr, []

    def __enter__(self):
        current.append(self)
        return self

    def __exit__(self, *error):
        current.remove(self)

    def synchronize(self):
        pass

    def record(self):
        return Event()

    def wait_event(self, event):
        self.events.append(event)


class Stream(ExternalStream):
    def __init__(self, non_blocking=False):
        super().__init__(id(self))


Stream.null, Stream.ptds = ExternalStream(0), ExternalStream(2)
current = [Stream.null]


def get_current_stream():
    return current[-1]


def memcpy(to, source, size, kind, stream=0):
    ctypes.memmove(to, source, size)


memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
runtime = SimpleNamespace(
    getDeviceCount=lambda: 1,
    deviceSynchronize=lambda: None,
    memcpyAsync=memcpy,
    getDeviceProperties=lambda index: {"name": b"emulated"},
)
device = SimpleNamespace(get_cublas_handle=lambda: 0)
