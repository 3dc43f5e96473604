"""Captured steps: the kernels and products that one run of a step starts, and the Python calls between them.

Every kernel that the thread starts is added. The kernels of a GPU between two calls become one CUDA Graph. Values that
Python has to compute or check in every run, such as random numbers, the number of an optimizer's step, or labels, come
from a call, which a replay makes again: ``repeat(function, args)``.
"""
import os
from functools import wraps
from types import MethodType

cimport cython
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from minigrad.engine.devices.cuda cimport Graph, Order, graph_of
from minigrad.engine.devices.gpu_memory cimport workspace_on
from minigrad.engine.memory.array cimport Array, alias
from minigrad.engine.memory.calls cimport (
    ACTIVE, About, Call, KernelList, begin, belongs_here, is_capturing, refuse_in_capture,
)
from minigrad.engine.memory.listener cimport Listener, current_listener, set_listener
from minigrad.engine.memory.pool cimport Memory

from collections.abc import Callable
from typing import Any

cdef extern from "runtime/launch.hpp" namespace "mg":
    int64_t WORTH_RELEASING


cdef CapturedKernels current = None       # the step that a thread captures

cdef struct Part:       # consecutive kernels of one device, without a call between them
    size_t end
    int device
    bint is_long        # whether other threads may run meanwhile


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class CapturedKernels:
    """The kernels and calls of one run of a step."""
    cdef KernelList* kernels
    cdef list orders            # order the runs on each GPU; declared first, to be freed before the memory
    cdef Memory memory
    cdef object watch           # knows the leaves whose gradients the run reads or replaces
    cdef list calls             # (function, arguments, the gradients before the call or None if they are unchanged)
    cdef list grads             # (leaf, gradient) before the last call
    cdef vector[size_t] places  # how many kernels come before each call
    cdef vector[Part] parts     # each begins where the one before it ends
    cdef list graphs            # one CUDA Graph for each part on a GPU
    cdef dict workspaces        # scratch buffers for the products on each GPU

    def __cinit__(self, watch: Any):
        self.kernels, self.memory, self.watch, self.calls = new KernelList(), Memory(), watch, []
        self.graphs, self.orders = [], []

    def __dealloc__(self):
        del self.kernels

    def begin(self) -> bool:
        """Start to capture in this thread; False if another step is being captured."""
        global current
        if ACTIVE.kernel_list != NULL or not self.memory.open():
            return False
        ACTIVE.kernel_list = self.kernels
        current = self
        return True

    def end(self) -> None:
        """Stop capturing."""
        global current
        ACTIVE.kernel_list = NULL
        current = None
        self.kernels.sort_addresses()
        self.memory.close(self.kernels.addresses.data(), self.kernels.addresses.size())

    def divide(self) -> None:
        """Divide the kernels into parts, and make a graph of each part on a GPU."""
        cdef size_t k, first = 0, call = 0, count = self.kernels.about.size()
        cdef About* about = self.kernels.about.data()
        cdef int64_t most = 0       # elements that a kernel of the part touches
        cdef int device
        for stream in self.kernels.streams:
            self.orders.append(Order(stream.first - 1, <size_t>stream.second))
        self.workspaces = {device: workspace_on(device - 1) for device in self.kernels.with_products}
        for k in range(count):
            while call < self.places.size() and self.places[call] <= k:
                call += 1
            most = max(most, about[k].work)
            if k + 1 < count and about[k + 1].device == about[k].device \
                    and not (call < self.places.size() and self.places[call] == k + 1):
                continue
            device = about[k].device
            self.parts.push_back(Part(k + 1, device, device == 0 and most >= WORTH_RELEASING))
            if device:
                self.graphs.append(graph_of(self.kernels, first, k + 1, device - 1, self.workspaces.get(device)))
            first, most = k + 1, 0

    def follow(self) -> None:
        """Let this run wait for the last run, if that is on other streams."""
        for order in self.orders:
            (<Order>order).follow()

    def leave(self) -> None:
        """Note the end of a run, so that runs of other threads can follow it."""
        for order in self.orders:
            (<Order>order).leave()

    cdef object call(self, object function, tuple args):
        """Make a call, and add it to the step instead of its kernels."""
        self.watch.call_reads([group["params"] for group in getattr(getattr(function, "__self__", None),
                                                                    "param_groups", ())])
        self.watch.call_reads(args)
        found = self.watch.grads()
        cdef Listener listener = current_listener()
        self.calls.append((function, alias_all(args), None if same(found, self.grads) else found))
        self.grads = found
        self.places.push_back(self.kernels.about.size())
        self.pause(True)
        set_listener(None)
        try:
            result = function(*args)
        finally:
            set_listener(listener)
            self.pause(False)
        if not same(self.watch.grads(), found):
            refuse_in_capture(f"{function.__name__}, which replaces gradients: make them contiguous first")
        return result

    cdef void pause(self, bint paused) noexcept:
        ACTIVE.kernel_list.paused = paused
        self.memory.pause(paused)

    def run(self) -> None:
        """Replay the step."""
        cdef size_t k, part = 0, first = 0, graph = 0
        cdef list grads
        for k in range(self.places.size() + 1):
            while part < self.parts.size() and (k == self.places.size() or self.parts[part].end <= self.places[k]):
                if self.parts[part].device:
                    (<Graph>self.graphs[graph]).start()
                    graph += 1
                else:
                    self.start(first, self.parts[part].end, self.parts[part].is_long)
                first = self.parts[part].end
                part += 1
            if k < self.places.size():
                function, args, grads = self.calls[k]
                if grads is not None:
                    restore(grads)
                function(*args)

    cdef int start(self, size_t first, size_t end, bint release) except -1:
        """Start kernels of the CPU."""
        cdef Call _call = begin("capture")
        if release:
            with nogil:
                self.kernels.run(first, end)
        else:
            self.kernels.run(first, end)
        return 0

    def owners(self) -> list[Any]:
        """The objects whose methods are called."""
        found = [getattr(function, "__self__", None) for function, _, _ in self.calls]
        return [one for one in found if one is not None]

    def stored(self, known: list[Tensor | None]) -> int:
        """The bytes that the run allocated and that something other than these tensors and the calls still holds."""
        cdef dict held = {}     # address of a buffer -> how many of these tensors hold it
        cdef list stack = [*known, *[(args, grads) for _, args, grads in self.calls]]
        cdef set seen = set()
        cdef Array x
        while stack:
            one = stack.pop()
            if isinstance(one, (tuple, list)):
                stack.extend(one)
            elif isinstance(one, Array) and id(one) not in seen:
                seen.add(id(one))
                x = <Array>one
                held[<size_t>x.buffer] = held.get(<size_t>x.buffer, 0) + 1
        return self.memory.stored(held)

    def rows(self) -> list[tuple[str, str, int]]:
        """(operation, "forward", "backward" or "call", elements touched) of each kernel and call, in order."""
        cdef size_t k, call = 0
        found = []
        for k in range(self.kernels.about.size() + 1):
            while call < self.places.size() and self.places[call] == k:
                function = self.calls[call][0]
                owner, name = getattr(function, "__self__", None), function.__name__.lstrip("_")
                found.append((name if owner is None else f"{type(owner).__name__}.{name}", "call", 0))
                call += 1
            if k < self.kernels.about.size():
                op = None if self.kernels.about[k].op == NULL else <object>self.kernels.about[k].op
                found.append(("" if op is None else op if isinstance(op, str) else op.name,
                              "backward" if self.kernels.about[k].backward else "forward",
                              self.kernels.about[k].work))
        return found


cdef object alias_all(object tree):
    """Return a tree with aliases of its tensors, which hold no history."""
    if type(tree) is tuple:
        return tuple([alias_all(x) for x in tree])
    return alias(<Array>tree) if isinstance(tree, Array) else tree


cdef bint same(list a, list b):
    """Whether leaves have the same gradients."""
    return a is not None and b is not None and len(a) == len(b) \
        and all([x is u and g is v for (x, g), (u, v) in zip(a, b)])


cdef int restore(list grads) except -1:
    """Set the gradients of leaves to these."""
    for leaf, grad in grads:
        if (<Array>leaf).grad_ is not grad:
            (<Array>leaf).grad_ = <Array>grad
    return 0


cpdef object repeat(object function, tuple args):
    """Return function(*args); if this thread captures a step, replays of the step make the same call."""
    if not is_capturing():
        return function(*args)
    return current.call(function, args)


def refuse(str what) -> None:
    """Raise CaptureError if this thread captures a step."""
    refuse_in_capture(what)


def capturing() -> bool:
    """Whether this thread captures a step."""
    return bool(is_capturing())


def repeated(method: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of methods: replays of a captured step call them again."""
    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_capturing():
            return method(self, *args, **kwargs)
        if args or kwargs:
            refuse_in_capture(f"{type(self).__name__}.{method.__name__} with arguments")
        return current.call(MethodType(called, self), ())

    return called


def forget_other_threads() -> None:
    """In the child of a fork, end the capture of another thread."""
    global current
    if ACTIVE.kernel_list != NULL and not belongs_here(ACTIVE.kernel_list[0]):
        current.memory.close(NULL, 0)
        ACTIVE.kernel_list = NULL
        current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
