"""Active calls: the operations that are running, listed by runtime/active_calls.hpp.

An operation begins with ``cdef Call _call = begin(op)``, before it reads its arguments. The call ends when the function
returns or raises.
"""
import os
import sys
import time

cimport cython
from libc.stdint cimport uint64_t

cdef extern from "runtime/active_calls.hpp" namespace "mg":
    ActiveCalls* active
    void notify(ActiveCalls& active)
    void wait_for_event(ActiveCalls& active)
    bint computing(const ActiveCalls& active, bint here)
    Call* call_here "mg::current_call"(const ActiveCalls& active)
    void forget_other_threads()

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1

ACTIVE = active
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: forget_other_threads())

PATIENCE = 60   # seconds


class CaptureError(RuntimeError):
    """Raised while `minigrad.capture` captures a step, at something that a replay of the step would not repeat."""


cdef int refuse_in_capture(str what) except -1:
    """Raise CaptureError if this thread captures a step."""
    if is_capturing():
        raise CaptureError(f"[capture] expected a step that runs again without Python, got {what}, at {source_line()}")
    return 0


cdef str source_line():
    """file:line of the innermost caller outside minigrad."""
    frame = sys._getframe(0)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if not isinstance(name, str) or name.partition(".")[0] != "minigrad":
            break
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


cdef bint in_operation() noexcept:
    """Whether this thread is inside an operation."""
    return computing(ACTIVE[0], True)


cdef int wait_for_operations(str op) except -1:
    """Wait until no other thread is inside an operation; `op` is named in errors.

    It is an error if this code was called from an operation of this thread, which cannot be waited for. It is also an
    error if the wait takes a minute, as an operation of another thread may wait for something that this thread holds.
    """
    if in_operation():
        raise RuntimeError(f"[{op}] expected no operation to be running in this thread: code that an operation or a "
                           f"backward pass calls, such as __index__ of an argument, a hook or a finalizer, cannot give "
                           f"a tensor other memory")
    if not computing(ACTIVE[0], False):
        return 0
    deadline = time.monotonic() + PATIENCE
    ACTIVE.waiting += 1
    try:
        while computing(ACTIVE[0], False) and not sys.is_finalizing():     # a process that ends stops its threads
            if time.monotonic() > deadline:
                raise RuntimeError(f"[{op}] an operation or a backward pass of another thread did not end within "
                                   f"{PATIENCE} seconds")
            wait_for_event(ACTIVE[0])
            PyErr_CheckSignals()
    finally:
        ACTIVE.waiting = max(ACTIVE.waiting - 1, 0)   # it is 0 in the child of a fork
        notify(ACTIVE[0])
    return 0


cdef uint64_t numbers = 0


def current_call() -> tuple[int, str, str] | None:
    """(number, operation, "forward" or "backward") of the call to which a kernel of this thread belongs, or None.

    This call is the innermost operation, or the outermost Function or node of a backward pass around it.
    """
    global numbers
    cdef Call* call = call_here(ACTIVE[0])
    if call == NULL:
        return None
    if call.number == 0:
        numbers += 1
        call.number = numbers
    op = <object>call.op
    return call.number, op if isinstance(op, str) else op.name, "backward" if call.backward else "forward"


@cython.binding(False)
@cython.embedsignature(True)
cdef class Covering:
    """``with Covering(name)``: the kernels of all operations in the block are attributed to one operation, `name`."""
    cdef Call call
    cdef str name

    def __cinit__(self, str name: str):
        self.name = name

    def __enter__(self) -> None:
        self.call.cover(begin(self.name), False)

    def __exit__(self, *error: object) -> None:
        self.call.end()
