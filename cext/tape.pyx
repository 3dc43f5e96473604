"""The tape: what is recorded of each operation, and when.

Every operation on a tensor that requires grad makes a `Node`. A node holds an edge to the node of each input, the
values that its backward needs, and a sequence number. Nodes are kept alive by the tensors computed with them, so the
tape of a forward pass that nobody differentiates is freed automatically.

`backward` walks it. Nothing here recurses: a chain of a million operations is recorded, and freed, by loops.
"""
import os

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cython.operator cimport dereference
from libcpp.algorithm cimport find, lower_bound
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from minigrad.engine.array cimport (
    Array, alias, empty, join_ring, may_share_memory, overlaps_itself, same_shape, set_forget, set_reader, shape_of,
    version,
)
from minigrad.engine.backend cimport ALL, backend
from minigrad.engine.calls cimport source_line
from minigrad.engine.dtype cimport BOOL, is_float

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD, ISFINITE

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int)

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)
    void PyObject_GC_Track(void*)
    bint PyObject_GC_IsTracked(object)
    Py_ssize_t Py_REFCNT(PyObject*)
    object PyWeakref_NewRef(object, PyObject*)

cdef extern from *:
    """
    static thread_local bool mg_recording = true;   // operations make nodes
    static thread_local bool mg_where = false;      // nodes note their source line
    static thread_local bool mg_anomaly = false;    // backward checks every gradient for NaN
    static thread_local PyObject* mg_scope = nullptr;       // the module call that runs, see `enter`; owned
    static thread_local PyObject* mg_listener = nullptr;    // see `set_listener`; owned
    static thread_local PyObject* mg_pass = nullptr;    // the innermost backward pass that runs, see `begin_pass`
    static thread_local int mg_burying = 0;     // whether a call of `bury` runs
    """
    bint mg_recording
    bint mg_where
    bint mg_anomaly
    PyObject* mg_scope
    PyObject* mg_listener
    PyObject* mg_pass
    int mg_burying


class GradientError(RuntimeError):
    """Raised if the tape cannot give the requested gradient; the message says what to do instead."""


# ── modes of the calling thread ───────────────────────────────────────────────────────────────────

cdef bint recording() noexcept:
    return mg_recording


def is_grad_enabled() -> bool:
    """bool: whether operations of this thread are recorded on the tape.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.is_grad_enabled()
    True
    """
    return bool(mg_recording)


cpdef bint set_recording(bint on) noexcept:
    """Switch recording for this thread and return what it was."""
    global mg_recording
    before, mg_recording = bool(mg_recording), on
    return before


cpdef bint set_where(bint on) noexcept:
    """Switch the recording of source lines for this thread and return what it was."""
    global mg_where
    before, mg_where = bool(mg_where), on
    return before


cpdef bint set_anomaly(bint on) noexcept:
    """Switch the check of every gradient for NaN and infinity for this thread and return what it was."""
    global mg_anomaly
    before, mg_anomaly = bool(mg_anomaly), on
    return before


def checks_gradients() -> bool:
    """Whether this thread checks every gradient for NaN and infinity."""
    return bool(mg_anomaly)


# ── listeners ─────────────────────────────────────────────────────────────────────────────────────

cdef PyObject* held(object x):
    """A new reference to x; NULL for None."""
    if x is None:
        return NULL
    Py_INCREF(x)
    return <PyObject*>x


cdef int listeners = 0      # checked first, because finding the listener of a thread costs a call


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Listener:
    """What is told of the operations, reads and writes of a thread, and of its backward passes.

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
        """The blocks of random numbers to draw, [seed, position]; None for the next ones of the stream."""
        return None if self.outer is None else self.outer.draws(blocks)

    def drew(self, blocks: int, drawn: list[int]) -> None:
        """Blocks of random numbers were drawn."""
        if self.outer is not None:
            self.outer.drew(blocks, drawn)

    def repeats_draws(self) -> bool:
        """Whether `draws` gives numbers that have been drawn before."""
        return self.outer is not None and self.outer.repeats_draws()


cdef Listener current_listener():
    """The listener of this thread, or None."""
    return None if mg_listener == NULL else <Listener>mg_listener


cdef Listener set_listener(Listener listener):
    """Set the listener of this thread (None for no listener); return the previous one."""
    global mg_listener, listeners
    before = current_listener()
    listeners += (listener is not None) - (before is not None)
    if listeners:
        set_reader(note_read)
    else:
        set_reader(NULL)
    if mg_listener != NULL:
        Py_DECREF(before)
    mg_listener = held(listener)
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


def listener() -> Listener | None:
    """The listener of this thread that was set last."""
    return current_listener()


cdef int note_read(Array x) except -1:
    """Tell the listener of this thread, if there is one, that an operation reads x."""
    if mg_listener != NULL:
        (<object>mg_listener).read(x)
    return 0


cdef int note_grad(Array leaf, bint replaced) except -1:
    """Tell the listener of this thread, if there is one, that the gradient of a leaf is read or replaced."""
    if mg_listener != NULL:
        (<object>mg_listener).touches_grad(leaf, replaced)
    return 0


cdef int note_reads(object inputs) except -1:
    """`note_read` for the inputs of an operation, some of which may be None."""
    if mg_listener != NULL:
        for x in inputs:
            if x is not None:
                note_read(<Array>x)
    return 0


def enter(module: Any) -> Any:
    """Note that a neural-network module begins to compute: what is recorded until `leave(before)` belongs to it.

    A scope is (the enclosing scope, a weak reference to the module, the name of its class). Returns the previous scope.
    """
    global mg_scope
    if mg_listener != NULL:
        (<object>mg_listener).calls_module(module)
    before = None if mg_scope == NULL else <object>mg_scope
    scope = (before, PyWeakref_NewRef(module, NULL), type(module).__name__)
    if mg_scope != NULL:
        Py_DECREF(before)
    mg_scope = held(scope)
    return before


def leave(before: Any) -> None:
    """Restore the scope that `enter` returned."""
    global mg_scope
    if mg_scope != NULL:
        Py_DECREF(<object>mg_scope)
    mg_scope = held(before)


# ── operations ────────────────────────────────────────────────────────────────────────────────────

@cython.final
@cython.no_gc
cdef class Op:
    """An operation: what it computes, and how its derivative is computed. Made by `operation`."""

    def __repr__(self) -> str:
        return f"<operation {self.name}({', '.join(self.inputs)})>"


cdef list known = []


cdef Op operation(str name, Backward differentiate, str forward, str backward, str reads="", str inputs="x",
                  str source="", str outputs="y"):
    """The record of an operation; in the source it precedes `differentiate`, which computes the derivative.

    g is the gradient of the output y, dx the gradient of the input x; a product without a sign is elementwise, and a
    capital letter is a matrix.

    Parameters
    ----------
    name : str
        The name on the tape, in errors and in profiles.
    differentiate : Backward
        Sends the gradient of each input that needs one.
    forward, backward : str
        The equation and the derivative, as lines of text.
    reads : str
        What the gradient of each input reads: names of inputs, or of the output, which the tape saves. "b, a" says that
        the gradient of the first input reads b, and that of the second a.
    inputs : str
        Their names; for any number of equal inputs, one name with an ellipsis.
    source : str
        Authors and year of the paper that the equation comes from.
    outputs : str
        Their names.
    """
    cdef Op op = described(name, differentiate, forward, backward, inputs, outputs, source)
    places = {name: 1 << i for i, name in enumerate(op.inputs)}
    per_input = reads.split(",") if reads else []
    if len(per_input) > 3:
        raise ValueError(f"[operation] expected what at most three inputs read, got {reads!r} for {name}")
    for i, names in enumerate(per_input):
        for word in names.split():
            op.reads[i] |= <int>(OUTPUT if word in op.outputs else places[word])
    known.append(op)
    return op


cdef Op described(str name, Backward differentiate, str forward, str backward, str inputs, str outputs, str source):
    cdef Op op = Op.__new__(Op)
    op.name, op.differentiate, op.forward, op.backward, op.source = name, differentiate, forward, backward, source
    op.inputs, op.outputs = tuple([i.strip() for i in inputs.split(",") if i]), tuple(outputs.split(", "))
    return op


cdef Op function_op(str name, Backward differentiate):
    """The record of an operation that is written in Python by the user."""
    return described(name, differentiate, f"{name}.forward, written in Python", f"{name}.backward, written in Python",
                     "x…", "y…", "")


def operations() -> list[Op]:
    """list of Op: all operations that the tape may hold, except for the user's own."""
    return list(known)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────

ctypedef PyObject* Reference

# References given up by dying nodes. The outermost dying node of a thread empties it in a loop, so that a long chain is
# not freed recursively. Freeing may run user code, a `__del__`, and meanwhile other threads, which empty the graveyard
# for themselves: they need not wait for that code, and after a fork the other threads may not exist.
cdef vector[Reference] graveyard


cdef void bury() noexcept:
    if graveyard.empty():
        return
    cdef int* burying = &mg_burying     # looked up once: each time costs a call
    cdef PyObject* dead
    if burying[0]:
        return
    burying[0] = True
    while not graveyard.empty():
        dead = graveyard.back()
        graveyard.pop_back()
        Py_DECREF(<object>dead)
    burying[0] = False


cdef int64_t versions_of(object extra):
    """The sum of the versions of the tensors in a node's `extra`."""
    cdef int64_t total = 0
    if isinstance(extra, Array):
        return version(<Array>extra)
    if type(extra) is tuple:
        for item in <tuple>extra:
            if isinstance(item, Array):
                total += version(<Array>item)
    return total


cdef void count_saved(object extra, int change) noexcept:
    """Count a node that saves the tensors in its `extra`, or that no longer does."""
    if isinstance(extra, Array):
        (<Array>extra).savers += change
    elif type(extra) is tuple:
        for item in <tuple>extra:
            if isinstance(item, Array):
                (<Array>item).savers += change


@cython.final
@cython.no_gc_clear
@cython.freelist(1024)
cdef class Node:
    """One recorded operation."""

    def __cinit__(self):
        PyObject_GC_UnTrack(<void*>self)    # see Array.__cinit__
        self.slots = self.few

    def __dealloc__(self):
        self.drop()
        bury()

    cdef void drop(self) noexcept:
        """Drop the edges and all saved values."""
        cdef int i
        for i in range(self.inputs):
            if self.slots[i].edge != NULL:
                graveyard.push_back(self.slots[i].edge)
            if self.slots[i].value != NULL:
                (<Array>self.slots[i].value).savers -= 1
                graveyard.push_back(self.slots[i].value)
        self.inputs = 0
        if self.slots != self.few:
            PyMem_Free(self.slots)
            self.slots = self.few
        if self.kept is not None:
            Py_INCREF(self.kept)
            graveyard.push_back(<PyObject*>self.kept)
            self.kept = None
        if self.extra is not None:
            count_saved(self.extra, -1)
            Py_INCREF(self.extra)
            graveyard.push_back(<PyObject*>self.extra)
            self.extra = None

    cdef int reserve(self, int inputs) except -1:
        """Allocate a number of empty slots."""
        cdef int i
        if inputs > 3:
            self.slots = <Slot*>PyMem_Malloc(inputs * sizeof(Slot))
            if self.slots == NULL:
                self.slots = self.few
                raise MemoryError(f"[tape] no memory for a node of {inputs} inputs")
        for i in range(inputs):
            self.slots[i].edge = self.slots[i].value = NULL
        self.inputs = inputs
        return 0

    cdef int connect(self, int i, Array x, bint save) except -1:
        """Make x input i: an edge if x requires grad, and the value if it is to be saved."""
        if x.needs_grad:
            edge = gradient_node(x)
            Py_INCREF(edge)
            self.slots[i].edge = <PyObject*>edge
            self.slots[i].output = x.output
        if save:
            Py_INCREF(x)
            self.slots[i].value = <PyObject*>x
            self.versions += version(x)
            if x.savers == 0:
                x.saved_since = self.sequence
            x.savers += 1
        return 0

    cdef int64_t current_versions(self):
        cdef int64_t total = versions_of(self.extra)
        cdef int i
        if self.kept is not None:
            total += version(self.kept)
        for i in range(self.inputs):
            if self.slots[i].value != NULL:
                total += version(<Array>self.slots[i].value)
        return total

    cdef str recorded_at(self):
        return f", recorded at {self.where}" if self.where is not None else ""

    cdef Visit* target(self, int i) noexcept:
        """Where the running backward pass collects the gradient of input i; NULL if it does not want that one."""
        if i >= self.inputs:
            return NULL
        cdef Visit* found = (<Pass>mg_pass).visit_of(self.slots[i].edge)
        if found == NULL or not found.wanted:
            return NULL
        return found

    cdef bint needs(self, int i) noexcept:
        """Whether the running backward pass wants the gradient of input i."""
        return self.target(i) != NULL

    cdef Array gradient(self, int output):
        """The gradient of one of several outputs; None if none arrived."""
        cdef Visit* here = (<Pass>mg_pass).visit_of(<PyObject*>self)
        return None if here == NULL or here.gradient == NULL else (<list>here.gradient)[output]

    cdef Array value(self, int i):
        """Input i, saved when the operation ran; None if there was none."""
        if i >= self.inputs or self.slots[i].value == NULL:
            return None
        return <Array>self.slots[i].value

    cdef Array output(self):
        """The output, saved when the operation ran; on the tape if the backward pass itself is recorded."""
        if not mg_recording:
            return self.kept
        cdef Array attached = alias(self.kept)
        attached.node, attached.needs_grad = self, True
        return attached

    cdef int send(self, int i, Array g) except -1:
        """Add g to the gradient of input i."""
        cdef Visit* to = self.target(i)
        if to == NULL:
            return 0
        if mg_anomaly and not all_finite(g):
            raise GradientError(f"[{self.op.name}] backward gave a gradient with NaN or infinity for input {i} "
                                f"of shape {shape_of(g)}{self.recorded_at()}")
        return add_to(to, self.slots[i].output, g)

    cdef int give(self, int i, Array g) except -1:
        """`send` for a g that nobody else holds, so that later gradients may be added into it."""
        cdef Visit* to = self.target(i)
        cdef bint first = to != NULL and to.gradient == NULL
        self.send(i, g)
        if first:
            to.exclusive = True
        return 0

    cdef Array gathered(self, int i):
        """The gradient of input i accumulated so far, if it may be written in place; else None."""
        cdef Visit* to = self.target(i)
        if not self.can_accumulate(i) or to.gradient == NULL or not to.exclusive or not (<Array>to.gradient).packed:
            return None
        return <Array>to.gradient

    cdef bint can_accumulate(self, int i) noexcept:
        """Whether `accumulator` may be used for input i."""
        return self.needs(i) and (<Node>self.slots[i].edge).outputs == 1 and not mg_anomaly

    cdef Array accumulator(self, int i):
        """The gradient of input i accumulated so far (zeros at first), to be added to in place."""
        cdef Node made = <Node>self.slots[i].edge
        cdef Array total = self.gathered(i)
        cdef Visit* to = self.target(i)
        if total is None:
            total = empty(made.code, made.ndim, made.extent, made.device)
            if to.gradient == NULL:
                backend(total).fill(total, 0)
            else:
                backend(total).copy(<Array>to.gradient, total)
            replace(to, total)
            to.exclusive = True
        return total


# ── the state of a backward pass ────────────────────────────────────────────────────────────────────

cdef uint64_t passes = 0


@cython.final
cdef class Pass:
    """A backward pass: the nodes that it has not visited yet, and the gradient that has arrived at each.

    Passes that share nodes, in threads with common parameters or inside a hook or a Function, do not share gradients.
    A node keeps its place in the pass that collected it last; in other passes, its place is searched for.
    """

    def __cinit__(self):
        global passes
        passes += 1
        self.number = passes

    def __dealloc__(self):
        while not self.visits.empty():
            self.leave(&self.visits.back())
            self.visits.pop_back()

    cdef Visit* visit_of(self, PyObject* node) noexcept:
        """The place of a node in this pass; NULL if it has none, or if there is no node."""
        cdef Visit key
        if node == NULL:
            return NULL
        if (<Node>node).found_by == self.number:
            return &self.visits[(<Node>node).place]
        key.sequence, key.node = (<Node>node).sequence, node
        found = lower_bound(self.visits.begin(), self.visits.end(), key)
        if found == self.visits.end() or dereference(found).node != node:
            return NULL
        return &dereference(found)

    cdef void leave(self, Visit* visit) noexcept:
        """Drop what the pass holds of a node."""
        cdef PyObject* node = visit.node
        if node == NULL:
            return
        visit.node = NULL
        (<Node>node).passes -= 1
        if visit.gradient != NULL:
            Py_DECREF(<object>visit.gradient)
            visit.gradient = NULL
        Py_DECREF(<object>node)


cdef Pass running_pass():
    """The innermost running backward pass of this thread."""
    return <Pass>mg_pass


cdef Pass begin_pass():
    """A new backward pass of this thread, which runs until `end_pass`."""
    global mg_pass
    cdef Pass begun = Pass.__new__(Pass)
    begun.outer, mg_pass = mg_pass, <PyObject*>begun
    return begun


cdef void end_pass(Pass ended) noexcept:
    global mg_pass
    mg_pass = ended.outer


cdef void replace(Visit* visit, object gradient) noexcept:
    """Let a visit hold another gradient."""
    cdef PyObject* before = visit.gradient
    visit.gradient = held(gradient)
    if before != NULL:
        Py_DECREF(<object>before)


cdef int add_to(Visit* visit, int output, Array g) except -1:
    """Add g to the gradient of an output of the node."""
    cdef Array before
    if (<Node>visit.node).outputs > 1:
        if visit.gradient == NULL:
            visit.gradient = held([None] * (<Node>visit.node).outputs)
        gradients = <list>visit.gradient
        gradients[output] = g if gradients[output] is None else add(<Array>gradients[output], g)
        return 0
    if visit.gradient == NULL:
        Py_INCREF(g)
        visit.gradient, visit.exclusive = <PyObject*>g, False
        return 0
    before = <Array>visit.gradient
    if visit.exclusive and not mg_recording:
        backend(g).binary(ADD, before, g, before)
        return 0
    replace(visit, add(before, g))
    visit.exclusive = not mg_recording
    return 0


cdef Adder adder = NULL


cdef void set_adder(Adder function):
    global adder
    adder = function


cdef Array add(Array a, Array b):
    """a + b of equal shapes, on the tape if the pass itself is recorded."""
    if mg_recording:
        return adder(a, b)
    cdef Array out = empty(a.code, a.ndim_, a.extent, a.buffer.device)
    backend(a).binary(ADD, a, b, out)
    return out


cdef bint all_finite(Array x):
    if not is_float(x.code) or x.count == 0:
        return True
    cdef Array flags = empty(BOOL, x.ndim_, x.extent, x.buffer.device), every = empty(BOOL, 0, NULL, x.buffer.device)
    backend(x).unary(ISFINITE, x, flags)
    backend(x).reduce(ALL, 1, flags.count, 1, flags, every)
    return bool(every.item())


cdef list saved_arrays(Node node):
    cdef list found = [<Array>node.slots[i].value for i in range(node.inputs) if node.slots[i].value != NULL]
    if node.kept is not None:
        found.append(node.kept)
    extra = node.extra if type(node.extra) is tuple else (node.extra,)
    return found + [x for x in extra if isinstance(x, Array)]


cdef str saved_shapes(Node node):
    return ", ".join([str(x.shape) for x in saved_arrays(node)])


# ── recording ─────────────────────────────────────────────────────────────────────────────────────

cdef int64_t sequence = 0


cdef int64_t last_sequence() noexcept:
    """The number of the node that was made last; a leaf's is its negative."""
    return sequence


cdef inline Node new_node(Op op, Array out, int outputs):
    global sequence
    cdef Node node = Node.__new__(Node)
    cdef int i
    sequence += 1
    node.sequence, node.op, node.outputs = sequence, op, outputs
    node.code, node.ndim, node.device = out.code, out.ndim_, out.buffer.device
    for i in range(out.ndim_):
        node.extent[i] = out.extent[i]
    if mg_scope != NULL:
        node.scope = <object>mg_scope
    if mg_where:
        node.where = source_line()
    return node


cdef int tell(Node node, tuple outs) except -1:
    """Tell the listener of this thread, if there is one, of a recorded operation."""
    if mg_listener != NULL:
        (<object>mg_listener).recorded(node.sequence, node.op.name, outs)
    return 0


cdef Node track(Op op, Array out, Array a, Array b=None, Array c=None, object extra=None):
    """Record that `op` made `out` from a, b and c, if any of them requires grad.

    Saves what their gradients read; `extra` is whatever else backward needs. Returns the node, or None if nothing is
    recorded.
    """
    cdef bint wanted = False
    cdef int saved = 0
    if listeners:
        note_reads((a, b, c))
    if mg_recording:
        if a.needs_grad:
            wanted, saved = True, op.reads[0]
        if b is not None and b.needs_grad:
            wanted = True
            saved |= op.reads[1]
        if c is not None and c.needs_grad:
            wanted = True
            saved |= op.reads[2]
    if not wanted:
        return None
    cdef Node node = new_node(op, out, 1)
    node.reserve(1 if b is None and c is None else 2 if c is None else 3)
    node.connect(0, a, saved & 1)
    if b is not None:
        node.connect(1, b, saved & 2)
    if c is not None:
        node.connect(2, c, saved & 4)
    if saved & OUTPUT:
        node.kept = alias(out)
        node.kept.savers = 1
        join_ring(node.kept, out)
        node.versions += version(out)
    if extra is not None:
        node.extra = extra
        node.versions += versions_of(extra)
        count_saved(extra, 1)
    out.node, out.needs_grad = node, True
    if listeners:
        tell(node, (out,))
    return node


cdef Node track_many(Op op, list outs, list inputs, list saved, object extra=None):
    """`track` for any number of inputs and outputs; `saved` holds the positions of the inputs to save."""
    cdef bint wanted = False
    if listeners:
        note_reads(inputs)
    if mg_recording:
        for x in inputs:
            wanted = wanted or (x is not None and (<Array>x).needs_grad)
    if not wanted:
        return None
    cdef Node node = new_node(op, <Array>outs[0], <int>len(outs))
    cdef int i
    node.reserve(<int>len(inputs))
    for i in range(node.inputs):
        if inputs[i] is not None:
            node.connect(i, <Array>inputs[i], i in saved)
    if extra is not None:
        node.extra = extra
        node.versions += versions_of(extra)
        count_saved(extra, 1)
    for i in range(node.outputs):
        if is_float((<Array>outs[i]).code):
            (<Array>outs[i]).node, (<Array>outs[i]).needs_grad, (<Array>outs[i]).output = node, True, i
    if node.outputs > 1:
        node.layouts = [(shape_of(<Array>out), (<Array>out).code) for out in outs]
    if listeners:
        tell(node, tuple(outs))
    return node


cdef Op leaf_op = operation("leaf", accumulate, "x is given: a parameter, or data", "x.grad ← x.grad + g",
                            "", "", "", "x")


cdef Node gradient_node(Array x):
    """The node where the gradient of x arrives: its maker's, or a leaf's own."""
    cdef Node node
    if x.node is None:
        node = new_node(leaf_op, x, 1)
        node.leaf = <PyObject*>x
        node.scope = None                   # it belongs to no module, whoever used it first
        node.sequence = -node.sequence      # below that of every operation, including one that is being recorded
        x.node = node
    return <Node>x.node


ctypedef pair[Reference, void*] Adding
# The leaves to whose grad a thread is adding, and the thread: kernels release the GIL, and another pass may arrive.
cdef vector[Adding] adding


cdef bint is_busy(Node leaf) noexcept:
    """Whether another thread is adding to the grad of a leaf."""
    for entry in adding:
        if entry.first == <PyObject*>leaf and entry.second != <void*>&mg_burying:
            return True
    return False


cdef int accumulate(Node node, Array g) except -1:
    """The backward of a leaf: x.grad += g, unless x no longer requires grad."""
    cdef Array x = <Array>node.leaf
    cdef Adding here
    if not x.needs_grad:
        return 0
    if listeners:
        note_grad(x, False)
    while is_busy(node):
        with nogil:
            usleep(50)
    here.first, here.second = <PyObject*>node, <void*>&mg_burying      # the address differs from thread to thread
    adding.push_back(here)
    try:
        add_to_grad(x, g)
    finally:
        adding.erase(find(adding.begin(), adding.end(), here))
    return 0


cdef int add_to_grad(Array x, Array g) except -1:
    cdef Array total = x.grad_      # code that runs meanwhile may set x.grad
    if total is None:
        x.grad_ = owned(g, Py_REFCNT(<PyObject*>g) == 1)
        return 0
    if not same_shape(total, g) or total.code != g.code or total.buffer.device != g.buffer.device:
        raise GradientError(f"[backward] expected the grad of a leaf to be of shape {shape_of(g)} and {g.dtype} on "
                            f"{g.device}, as the leaf, got {shape_of(total)} and {total.dtype} on {total.device}")
    if mg_recording or overlaps_itself(total) or may_share_memory(total, g):
        x.grad_ = add(total, g)
    else:
        backend(g).binary(ADD, total, g, total)
        total.buffer.version += 1
    return 0


cdef Op identity_op = operation("identity", pass_back, "y = x", "dx = g")
cdef Op copy_op = operation("copy", pass_back, "y = x, in memory of its own", "dx = g")


cdef int pass_back(Node node, Array g) except -1:
    return node.send(0, g)


cdef Array owned(Array g, bint exclusive):
    """g, or a copy if others can see its memory: a later write to one gradient must not show in another."""
    cdef Array plain
    if exclusive and g.packed and g.buffer.references == 1:
        return g
    plain = empty(g.code, g.ndim_, g.extent, g.buffer.device)
    backend(g).copy(g, plain)
    track(copy_op, plain, g)
    return plain


cdef bint is_leaf(Array x):
    return x.node is None or (<Node>x.node).leaf == <PyObject*>x


def leaf(Array x) -> bool:
    """Whether x was made by the user and not by a recorded operation."""
    return bool(is_leaf(x))


def maker(Array x) -> str | None:
    """str: the operation that made x; None for a tensor that was not computed."""
    return None if x.node is None else (<Node>x.node).op.name


cdef void forget_leaf(Array x) noexcept:
    """Called when x dies: its node must no longer point to it."""
    cdef Node node
    if x.node is not None:
        node = <Node>x.node
        if node.leaf == <PyObject*>x:
            node.leaf = NULL


set_forget(forget_leaf)


cdef int retire_leaf(Array x) except -1:
    """Called when x becomes another tensor: backward refuses what was recorded of the old leaf, unless frozen."""
    if x.node is not None and is_leaf(x):
        (<Node>x.node).freed = x.needs_grad     # a frozen leaf needed no gradient
        forget_leaf(x)
        x.node = None
    return 0


# ── hooks ─────────────────────────────────────────────────────────────────────────────────────────

class HookHandle:
    """What `Tensor.register_hook` returns; ``remove()`` removes the hook."""

    def __init__(self, hooks: list[Any], entry: tuple[int, Any]):
        self._hooks, self._entry = hooks, entry

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        if self._entry in self._hooks:
            self._hooks.remove(self._entry)


def add_hook(Array x, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """Call hook(gradient) whenever the gradient of x is complete."""
    if not callable(hook):
        raise TypeError(f"[register_hook] expected a function of the gradient, got {hook!r}")
    if not x.needs_grad:
        raise GradientError(f"[register_hook] the tensor of shape {shape_of(x)} does not require grad")
    return hooked(x, (x.output, hook))


def add_grad_hook(Array x, hook: Callable[[Tensor], None]) -> HookHandle:
    """Call hook(x) in each backward pass that adds to x.grad, as soon as that is complete."""
    if not callable(hook):
        raise TypeError(f"[register_post_accumulate_grad_hook] expected a function of the tensor, got {hook!r}")
    if not x.needs_grad or not is_leaf(x):
        raise GradientError(f"[register_post_accumulate_grad_hook] expected a leaf that requires grad, got a tensor of "
                            f"shape {shape_of(x)} that {'was computed' if x.needs_grad else 'does not require grad'}")
    return hooked(x, (AFTER, hook))


def call_after_pass(callback: Callable[[], None]) -> None:
    """Call callback() once when the outermost backward pass that this thread runs has ended without an error.

    It can be called in a hook or a Function. In one pass, equal callbacks are called once.
    """
    if mg_pass == NULL:
        raise GradientError("[call_after_pass] expected a running backward pass, got none")
    running = <Pass>mg_pass
    if running.callbacks is None:
        running.callbacks = {}
    running.callbacks[callback] = None


cdef int show_collector(Array x) except -1:
    """Let the garbage collector see x and its node, because user code that the node holds may lead to x."""
    for tracked in (x, x.node):
        if not PyObject_GC_IsTracked(tracked):
            PyObject_GC_Track(<void*>tracked)
    return 0


cdef object hooked(Array x, tuple entry):
    """Add an entry to the hooks of x, and return its handle."""
    cdef Node node = gradient_node(x)
    if mg_listener != NULL and not (<object>mg_listener).adds_hook(x):
        return HookHandle([], entry)
    if node.hooks is None:
        node.hooks = []
    node.hooks.append(entry)
    show_collector(x)       # from here on a cycle tensor -> node -> hook -> tensor is possible
    return HookHandle(node.hooks, entry)


def forget_other_threads() -> None:
    """In the child of a fork, only the thread that forked continues."""
    cdef vector[Adding] own
    for entry in adding:
        if entry.second == <void*>&mg_burying:
            own.push_back(entry)
    adding.swap(own)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
