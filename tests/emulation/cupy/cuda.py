"""Emulation of the names of ``cupy.cuda``: CPU memory between guard bytes, two devices, and streams that execute work
immediately.
"""

import ctypes
import threading
from operator import length_hint
from types import SimpleNamespace

FENCE = b"\xa5" * 128
LIMIT = 1 << 34  # bytes; larger allocations fail
DEVICES = 2
context = threading.local()  # of the driver: a thread has a `current` one after its first call of the runtime
chosen = [0]  # the current device comes last, after those that will be current again

# The kernels read this table to check the bytes around all memory: address and size of each allocation, 0 and 0 in a row
# that is free. Other threads and the garbage collector may allocate and free at any time, so rows are taken and given
# back by single calls.
ROWS = 1 << 20
table = (ctypes.c_uint64 * (2 * ROWS))()
TABLE = ctypes.addressof(table)
fresh, free = iter(range(ROWS)), []
# The device and the block of bytes at each address. A block is given up last: where an interrupt ends `__del__` early, the
# row of the table still stands for memory.
owners = {}


class OutOfMemoryError(MemoryError):
    pass


class Memory:
    """Memory of a device between fences, initialized to NaN."""

    row = None  # of the table; __init__ may be interrupted before it has one

    def __init__(self, size, device):
        self.size, self.device = size, device
        block = bytearray(b"\xff") * (size + 2 * len(FENCE) + 64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(block))
        begin = -address % 64 + len(FENCE)
        block[begin - len(FENCE) : begin] = block[begin + size : begin + size + len(FENCE)] = FENCE
        self.ptr = address + begin
        try:
            self.row = free.pop()
        except IndexError:
            self.row = next(fresh)
        owners[self.ptr] = device, block
        table[2 * self.row : 2 * self.row + 2] = self.ptr, size

    def __del__(self, owners=owners, table=table, free=free):
        if self.row is not None:
            table[2 * self.row : 2 * self.row + 2] = 0, 0
            free.append(self.row)
            owners.pop(self.ptr, None)


def alloc(size):
    if size > LIMIT:
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
    return Memory(size, chosen[-1])


def alloc_pinned_memory(size):
    return Memory(size, None)


def allocations():
    """Return the address of the table of allocations, and how many of its rows have been in use."""
    return TABLE, ROWS - length_hint(fresh)


def check_devices(kernel, arguments):
    """Raise if an argument is the address of memory of another device than the current one."""
    for one in arguments:
        owner = owners.get(one, (None,))[0] if type(one) is int else None
        if owner not in (None, chosen[-1]):
            raise RuntimeError(f"{kernel}: started on device {chosen[-1]} with memory of device {owner}")


class Device:
    """A device."""

    def __init__(self, index=0):
        assert 0 <= index < DEVICES, f"a device {index}, which does not exist"
        self.id, self.compute_capability = index, "90"

    def __enter__(self):
        chosen.append(self.id)
        return self

    def __exit__(self, *error):
        chosen.pop()


class Event:
    """An event; all work before it is already done."""

    ptr = 0

    def __init__(self, block=False, disable_timing=False):
        pass

    def synchronize(self):
        pass


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

    def record(self, event=None):
        assert self.device in (None, chosen[-1]), "an event of another device than its stream's"
        return event or Event()

    def wait_event(self, event):
        pass


Stream.null, Stream.ptds = Stream(), Stream()
Stream.null.ptr, Stream.null.device = 0, None
Stream.ptds.ptr, Stream.ptds.device = 2, None
current = [[Stream.null] for _ in range(DEVICES)]  # of each device


def get_current_stream(device_id=-1):
    return current[chosen[-1] if device_id < 0 else device_id][-1]


def set_device(device):
    chosen[-1], context.current = device, True


def memcpy(to, source, size, kind, stream=0):
    ctypes.memmove(to, source, size)


memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
runtime = SimpleNamespace(
    getDeviceCount=lambda: DEVICES,
    deviceSynchronize=lambda: None,
    memcpyAsync=memcpy,
    streamWaitEvent=lambda stream, event, flags=0: None,
    setDevice=set_device,
    # Without memory to spare, freed memory is not kept for reuse: it is invalid immediately, and then NaN.
    getDeviceProperties=lambda index: {"name": b"emulated", "totalGlobalMem": 0},
)
device = SimpleNamespace(get_cublas_handle=lambda: 0)
