"""Nodes: what the tape holds of an operation, and where a backward pass collects the gradient of each.

An `Op` is the record of an operation, a `Node` one use of it. A node holds an edge to the node of each input, the
values that its backward needs, and a sequence number. It dies with the tensors computed with it; nothing here recurses.

The backward function of an operation sends the gradient of each input with `Node.send`, to the running `Pass`.
"""
cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cython.operator cimport dereference
from libcpp.algorithm cimport lower_bound
from libcpp.vector cimport vector

from minigrad.engine.devices.backend cimport ALL, backend
from minigrad.engine.memory.array cimport Array, above, alias, empty, shape_of, version
from minigrad.engine.memory.dtype cimport BOOL, is_float

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD, ISFINITE

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)

cdef extern from *:
    """
    static thread_local int mg_modes = 1;   // RECORDING, WHERE and ANOMALY
    static thread_local PyObject* mg_pass = nullptr;    // the innermost backward pass that runs, see `begin_pass`
    static thread_local int mg_burying = 0;     // whether a call of `bury` runs
    """
    int mg_modes
    PyObject* mg_pass
    int mg_burying


class GradientError(RuntimeError):
    """Raised if the tape cannot give the requested gradient; the message says what to do instead."""


# ── modes of the calling thread ───────────────────────────────────────────────────────────────────

cdef int modes() noexcept:
    return mg_modes


cdef bint recording() noexcept:
    return mg_modes & RECORDING


def is_grad_enabled() -> bool:
    """bool: whether operations of this thread are recorded on the tape.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.is_grad_enabled()
    True
    """
    return bool(mg_modes & RECORDING)


cdef int switch(int which, int on) noexcept:
    """Set some modes of this thread as in `on`, and return what they were."""
    global mg_modes
    cdef int before = mg_modes & which
    mg_modes = mg_modes & ~which | on & which
    return before


cpdef bint set_recording(bint on) noexcept:
    """Switch recording for this thread and return what it was."""
    return switch(RECORDING, RECORDING if on else 0)


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

    cdef Node edge(self, int i):
        """The node that made input i; None if the input needs no gradient."""
        return None if self.slots[i].edge == NULL else <Node>self.slots[i].edge

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

    cdef Array attach(self, int i, Array x):
        """x, computed again, in the place of input i on the tape."""
        cdef Array found = alias(x)
        if self.edge(i) is not None:
            found.node, found.output, found.needs_grad = self.edge(i), self.slots[i].output, True
        return found

    cdef Array output(self):
        """The output, saved when the operation ran; on the tape if the backward pass itself is recorded."""
        if not mg_modes & RECORDING:
            return self.kept
        cdef Array attached = alias(self.kept)
        attached.node, attached.needs_grad = self, True
        return attached

    cdef int send(self, int i, Array g) except -1:
        """Add g to the gradient of input i."""
        cdef Visit* to = self.target(i)
        if to == NULL:
            return 0
        if mg_modes & ANOMALY and not all_finite(g):
            raise GradientError(f"[{self.op.name}] backward gave a gradient with NaN or infinity for input {i} "
                                f"of shape {shape_of(g)}{self.recorded_at()}")
        return add_to(to, self.slots[i].output, g)

    cdef int send_all(self, tuple gradients) except -1:
        """Send the inputs their gradients; None means that an input needs none."""
        for i, g in enumerate(gradients):
            if g is not None:
                self.send(i, <Array>g)
        return 0

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
        return self.needs(i) and (<Node>self.slots[i].edge).outputs == 1 and not mg_modes & ANOMALY

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
    A node notes its place in the pass that collected it last (`found_by`); in other passes, its place is searched for.
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
    """The innermost running backward pass of this thread, or None."""
    return None if mg_pass == NULL else <Pass>mg_pass


cdef Pass begin_pass():
    """A new backward pass of this thread, which runs until `end_pass`."""
    global mg_pass
    cdef Pass begun = Pass.__new__(Pass)
    begun.outer, mg_pass = mg_pass, <PyObject*>begun
    return begun


cdef void end_pass(Pass ended) noexcept:
    global mg_pass
    mg_pass = ended.outer


cdef PyObject* held(object x):
    """A new reference to x; NULL for None."""
    if x is None:
        return NULL
    Py_INCREF(x)
    return <PyObject*>x


cdef void replace(Visit* visit, object gradient) noexcept:
    """Let a visit hold another gradient."""
    cdef PyObject* before = visit.gradient
    visit.gradient = held(gradient)
    if before != NULL:
        Py_DECREF(<object>before)


cdef int add_to(Visit* visit, int output, Array g) except -1:
    """Add g to the gradient of an output of the node.

    The first gradient is kept as it is, and others may hold it, too. The sum with the second is a new array, into which
    later ones are added in place, unless the pass is recorded.
    """
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
    if visit.exclusive and not mg_modes & RECORDING:
        backend(g).binary(ADD, before, g, before)
        return 0
    replace(visit, add(before, g))
    visit.exclusive = not mg_modes & RECORDING
    return 0


cdef Array add(Array a, Array b):
    """a + b of equal shapes, on the tape if the pass itself is recorded."""
    if mg_modes & RECORDING:
        return above.add(a, b)
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
