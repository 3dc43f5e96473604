"""Listeners: how profiles, pages, recomputation and captured steps follow what a thread computes."""
cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from minigrad.engine.memory.array cimport Array, above

cdef extern from *:
    """
    static thread_local PyObject* mg_listener = nullptr;    // owned
    """
    PyObject* mg_listener


cdef int listeners = 0      # checked first, because finding the listener of a thread costs a call


@cython.binding(False)
@cython.embedsignature(True)
cdef class Listener:
    """An object that is told of the operations, reads and writes of a thread, and of its backward passes.

    Methods do nothing but tell the listener that the thread had before, unless a subclass does more.
    """

    def read(self, x: Tensor) -> None:
        """An operation reads x."""
        if self.outer is not None:
            self.outer.read(x)

    def before_write(self, x: Tensor) -> None:
        """The memory of x is about to be written, not on the tape."""
        if self.outer is not None:
            self.outer.before_write(x)

    def before_recorded_write(self, x: Tensor) -> None:
        """The memory of x is about to be written on the tape."""
        if self.outer is not None:
            self.outer.before_recorded_write(x)

    def before_set(self) -> None:
        """A tensor is about to become another one."""
        if self.outer is not None:
            self.outer.before_set()

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        """An operation was recorded; its number is never used again."""
        if self.outer is not None:
            self.outer.recorded(sequence, op, outs)

    def computed(self, op: str, outs: tuple[Tensor, ...], inputs: Sequence[Tensor | None], options: Any) -> None:
        """An operation was computed, recorded or not; `options` is whatever else its derivative would need."""
        if self.outer is not None:
            self.outer.computed(op, outs, inputs, options)

    def calls_module(self, module: Any) -> None:
        """A module begins to compute."""
        if self.outer is not None:
            self.outer.calls_module(module)

    def before_backward(self) -> None:
        """A pass that adds to gradients of leaves begins."""
        if self.outer is not None:
            self.outer.before_backward()

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """A pass reached a node: the gradients of its outputs are complete. The numbers of leaves are negative."""
        if self.outer is not None:
            self.outer.entered(sequence, op, grads)

    def left(self, sequence: int) -> None:
        """The pass left the node: its inputs have received their gradients."""
        if self.outer is not None:
            self.outer.left(sequence)

    def touches_grad(self, leaf: Tensor, replaced: bool) -> None:
        """The gradient of a leaf is read, or replaced."""
        if self.outer is not None:
            self.outer.touches_grad(leaf, replaced)

    def calls_hook(self) -> None:
        """A hook is about to be called."""
        if self.outer is not None:
            self.outer.calls_hook()

    def adds_hook(self, x: Tensor) -> bool:
        """Whether a hook should be added to x."""
        return self.outer is None or self.outer.adds_hook(x)

    def draws(self, blocks: int) -> list[int] | None:
        """[seed, position] of blocks of random numbers that are drawn again; None for the next ones of the stream."""
        return None if self.outer is None else self.outer.draws(blocks)

    def drew(self, blocks: int, drawn: list[int]) -> None:
        """Blocks of random numbers were drawn."""
        if self.outer is not None:
            self.outer.drew(blocks, drawn)


cdef Listener current_listener():
    """The listener of this thread, or None."""
    return None if mg_listener == NULL else <Listener>mg_listener


cdef Listener set_listener(Listener listener):
    """Set the listener of this thread (None for no listener); return the previous one."""
    global mg_listener, listeners
    before = current_listener()
    listeners += (listener is not None) - (before is not None)
    if mg_listener != NULL:
        Py_DECREF(before)
    mg_listener = NULL
    if listener is not None:
        Py_INCREF(listener)
        mg_listener = <PyObject*>listener
    return before


def listen(Listener listener: Listener) -> None:
    """Let a listener listen to this thread, and tell the present one."""
    listener.outer = current_listener()
    set_listener(listener)


def stop_listening(Listener listener: Listener) -> None:
    """Undo `listen`; later listeners go on."""
    cdef Listener inner = current_listener()
    if inner is listener:
        set_listener(listener.outer)
    else:
        while inner is not None and inner.outer is not listener:
            inner = inner.outer
        if inner is None:
            raise RuntimeError(f"[stop_listening] expected a listener of this thread, got {listener!r}")
        inner.outer = listener.outer
    listener.outer = None


def last_listener() -> Listener | None:
    """The listener of this thread that was set last."""
    return current_listener()


cdef int note_read(Array x) except -1:
    """Tell the listener of this thread, if there is one, that an operation reads x."""
    if listeners and mg_listener != NULL:
        (<object>mg_listener).read(x)
    return 0


above.read = note_read


cdef int note_grad(Array leaf, bint replaced) except -1:
    """Tell the listener of this thread, if there is one, that the gradient of a leaf is read or replaced."""
    if mg_listener != NULL:
        (<object>mg_listener).touches_grad(leaf, replaced)
    return 0


cdef int note_computed(str op, tuple outs, object inputs, object options) except -1:
    """Tell the listener of this thread, if there is one, that an operation was computed."""
    if mg_listener != NULL:
        (<object>mg_listener).computed(op, outs, inputs, options)
    return 0


def note_composed(str op, tuple outs, object inputs: Sequence[Tensor | None], object options: Any) -> None:
    """`note_computed` for what Python code has composed: to a listener, one operation has made `outs`."""
    note_computed(op, outs, inputs, options)


cdef int note_reads(object inputs) except -1:
    """`note_read` for the inputs of an operation, some of which may be None."""
    if mg_listener != NULL:
        for x in inputs:
            if x is not None:
                note_read(<Array>x)
    return 0
