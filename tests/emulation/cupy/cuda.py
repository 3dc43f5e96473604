"""Emulation of the names of ``cupy.cuda``: CPU memory between guard bytes, two devices, and streams.

The default stream executes work immediately. Work of any other stream is queued: it is executed when something waits for
it, or at random when more work is queued. So a host that reads too early, and a stream that does not wait for another
one, find memory as it was.
"""

import ctypes
import itertools
import random
import threading
import weakref
from collections import deque
from operator import length_hint
from types import SimpleNamespace

FENCE = b"\xa5" * 128
LIMIT = 1 << 34  # bytes; larger allocations fail
DEVICES = 2
MULTIPROCESSORS = 8  # each runs one block of a cooperative grid
SHARED = 227 << 10  # bytes that a block may have, as on Hopper
context = threading.local()  # The driver's: a thread has a `current` one after its first call of the runtime.
chosen = [0]  # the current device comes last, after those that will be current again

# ── queues ────────────────────────────────────────────────────────────────────────────────────────


class Queue:
    """The work of a stream that has not been executed."""

    def __init__(self, device, blocking):
        self.device, self.blocking, self.work, self.running = device, blocking, deque(), 0
        self.captured, self.capturer = None, None  # the work of a graph that is being captured, and by which thread

    def finish(self, is_done=lambda: False, wait=True):
        """Execute work until there is none or something is done; without `wait`, not while another thread does."""
        if not executing.acquire(blocking=wait):
            return
        try:
            self.running += 1
            while self.work and not is_done():
                self.work.popleft()()
        finally:
            self.running -= 1
            executing.release()
        if abandoned and not pending():
            release_abandoned()


queues = {}  # by address of the stream; those of a default stream of threads by device and address
executing = threading.RLock()
order = random.Random(0)
addresses = itertools.count(1 << 12, 16)  # for streams and events


def pending(queues=queues):
    """Return the queues that have work."""
    return [queue for queue in list(queues.values()) if queue.work or queue.running]


def queue_of(stream):
    """Return the queue of a stream of the current device by its address; None for the default stream."""
    if stream in (0, 1):
        return None
    if stream == Stream.ptds.ptr:
        return queues.setdefault((chosen[-1], stream), Queue(chosen[-1], True))
    return queues[stream]


def submit(stream, work):
    """Execute work on a stream: now on the default stream, and otherwise later."""
    queue = queue_of(stream)
    if queue is not None and queue.captured is not None:
        queue.captured.append(work)
        return
    if queue is not None:
        queue.work.append(work)
        if order.random() < 0.3:
            some = order.choice(pending() or [queue])
            left = order.randrange(len(some.work) + 1)
            some.finish(lambda: len(some.work) <= left, wait=False)
        return
    for queue in pending():
        if queue.blocking and queue.device == chosen[-1]:
            queue.finish()
    work()


def is_capturing(stream):
    queue = queue_of(stream or 0)
    return queue is not None and queue.captured is not None


def check_capture(what):
    """Raise if this thread captures a stream: what runs now would not run with the graph."""
    if any(queue.capturer == threading.get_ident() for queue in list(queues.values())):
        raise RuntimeError(f"{what} while a graph is captured")


def synchronize():
    """Finish the work of the current device."""
    check_capture("a device was synchronized")
    for queue in pending():
        if queue.device == chosen[-1]:
            queue.finish()


# ── memory ────────────────────────────────────────────────────────────────────────────────────────

# The kernels read this table to check the bytes around all memory: address and size of each allocation, 0 and 0 in a row
# that is free. Other threads and the garbage collector may allocate and free at any time, so rows are taken and given
# back by single calls.
ROWS = 1 << 20
table = (ctypes.c_uint64 * (2 * ROWS))()
TABLE = ctypes.addressof(table)
fresh, free = iter(range(ROWS)), []
# The device and the block of bytes at each address. A block is given up last: where an interrupt ends `__del__` early, the
# row of the table still describes memory.
owners = {}


class OutOfMemoryError(MemoryError):
    pass


def release(ptr, size, row, owners=owners, table=table, free=free):
    table[2 * row : 2 * row + 2] = 0, 0
    free.append(row)
    owners.pop(ptr, None)


abandoned = []  # address, size and row of memory that was released while work was queued, which might use it


def abandon(*memory, abandoned=abandoned, memset=ctypes.memset):
    """Take memory back that queued work may still use; it is NaN from now on."""
    memset(memory[0], 0xFF, memory[1])
    abandoned.append(memory)


def release_abandoned():
    """Release it, when no work is queued any more; raise if it has been written to."""
    written = 0
    while abandoned:
        ptr, size, row = abandoned.pop()
        written += ctypes.string_at(ptr, size) != b"\xff" * size
        release(ptr, size, row)
    if written:
        raise RuntimeError(f"{written} arrays were written to after they had been released: use the stream that "
                           "allocated them, or let it wait")  # fmt: skip


class Memory:
    """Memory of a device between fences, initialized to NaN."""

    row = None  # in the table; __init__ may be interrupted before it has one

    def __init__(self, size, device):
        self.size, self.device = size, device
        self.queue = None if device is None else queue_of(get_current_stream().ptr)
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

    def __del__(self, pending=pending, release=release, abandon=abandon):
        """Release the memory as soon as its stream has executed all work: it may reuse the memory then."""
        if self.row is None:
            return
        memory = self.ptr, self.size, self.row
        if not pending():
            release(*memory)
        elif self.queue is None:
            abandon(*memory)
        else:
            self.queue.work.append(lambda: abandon(*memory))


def alloc(size):
    check_capture("memory was allocated")
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


# ── events and streams ────────────────────────────────────────────────────────────────────────────


class Event:
    """An event; `wait` finishes the work before it."""

    def __init__(self, block=False, disable_timing=False):
        self.ptr = next(addresses)
        self.wait, self.reached = lambda: None, [True]
        events[self.ptr] = self

    @property
    def done(self):
        return bool(self.reached)

    def synchronize(self):
        self.wait()


events = weakref.WeakValueDictionary()  # by address


class Stream:
    """A stream."""

    def __init__(self, non_blocking=False):
        self.ptr, self.device = next(addresses), chosen[-1]
        queues[self.ptr] = Queue(self.device, not non_blocking)

    def __enter__(self):
        current[chosen[-1]].append(self)
        return self

    def __exit__(self, *error):
        current[chosen[-1]].remove(self)

    def synchronize(self):
        check_capture("a stream was synchronized")
        if queue := queue_of(self.ptr):
            queue.finish()

    def begin_capture(self):
        assert self.ptr not in (0, 1), "the default stream cannot be captured"
        queue = queue_of(self.ptr)
        queue.captured, queue.capturer = [], threading.get_ident()

    def end_capture(self):
        queue = queue_of(self.ptr)
        graph = Graph(self.device, queue.captured)
        queue.captured = queue.capturer = None
        return graph

    def record(self, event=None):
        assert self.device in (None, chosen[-1]), "an event of another device than its stream's"
        event = event or Event()
        reached = event.reached = []
        submit(self.ptr, lambda: reached.append(True))
        queue = queue_of(self.ptr)
        event.wait = lambda: queue and queue.finish(lambda: reached)
        return event

    def wait_event(self, event):
        submit(self.ptr, event.wait)


class Graph:
    """The work that a captured stream was given, done again by each launch."""

    def __init__(self, device, work):
        self.device, self.work = device, work

    def launch(self, stream=None):
        assert self.device == chosen[-1], "a graph of another device than the current one"
        assert hasattr(context, "current"), "a graph was launched before the thread had a context"
        for work in self.work:
            submit((stream or get_current_stream()).ptr, work)


class DefaultStream(Stream):
    """The default stream of all threads, or of each thread, on every device."""

    def __init__(self, ptr):
        self.ptr, self.device = ptr, None


Stream.null, Stream.ptds = DefaultStream(0), DefaultStream(2)
current = [[Stream.null] for _ in range(DEVICES)]  # for each device


def get_current_stream(device_id=-1):
    return current[chosen[-1] if device_id < 0 else device_id][-1]


def set_device(device):
    chosen[-1], context.current = device, True


def memcpy(to, source, size, kind, stream=0):
    submit(stream, lambda: ctypes.memmove(to, source, size))


memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
runtime = SimpleNamespace(
    getDeviceCount=lambda: DEVICES,
    runtimeGetVersion=lambda: 12000,
    deviceSynchronize=synchronize,
    memcpyAsync=memcpy,
    streamWaitEvent=lambda stream, event, flags=0: submit(stream, events[event].wait),
    setDevice=set_device,
    deviceGetAttribute=lambda attribute, device: {16: MULTIPROCESSORS, 97: SHARED}[attribute],
    # Without memory to spare, freed memory is not kept for reuse: it is invalid immediately, and then NaN.
    getDeviceProperties=lambda index: {"name": b"emulated", "totalGlobalMem": 0},
)
