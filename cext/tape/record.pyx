"""The tape: which operations are recorded, and the leaves where gradients end.

Every operation on a tensor that requires grad makes a `Node`. Nodes are kept alive by the tensors computed with them,
so the tape of a forward pass that nobody differentiates is freed automatically. `backward` goes through it.
"""
import os

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libcpp.algorithm cimport find
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, above, alias, empty, join_ring, same_shape, shape_of, version
from minigrad.engine.memory.calls cimport source_line
from minigrad.engine.memory.dtype cimport is_float
from minigrad.engine.memory.listener cimport current_listener, listeners, note_computed, note_grad, note_reads
from minigrad.engine.memory.overlap cimport may_share_memory, overlaps_itself
from minigrad.engine.tape.node cimport (
    OUTPUT, RECORDING, WHERE, Node, Op, Reference, add, count_saved, modes, operation, recording, versions_of,
)
from minigrad.engine.tape.node import GradientError

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD

cdef extern from "unistd.h" nogil:
    int usleep(unsigned int)

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)
    object PyWeakref_NewRef(object, PyObject*)

cdef extern from *:
    """
    static thread_local PyObject* mg_scope = nullptr;       // the module call that runs, see `enter`; owned
    static thread_local char mg_here;               // its address tells threads apart
    """
    PyObject* mg_scope
    char mg_here


# ── where operations come from ────────────────────────────────────────────────────────────────────

def enter(module: Any) -> Any:
    """Note that a neural-network module begins to compute: what is recorded until `leave(before)` belongs to it.

    A scope is (the enclosing scope, a weak reference to the module, the name of its class). Returns the previous scope.
    """
    global mg_scope
    if listeners and current_listener() is not None:
        (<object>current_listener()).calls_module(module)
    before = None if mg_scope == NULL else <object>mg_scope
    scope = (before, PyWeakref_NewRef(module, NULL), type(module).__name__)
    Py_INCREF(scope)
    if mg_scope != NULL:
        Py_DECREF(before)
    mg_scope = <PyObject*>scope
    return before


def leave(before: Any) -> None:
    """Restore the scope that `enter` returned."""
    global mg_scope
    if mg_scope != NULL:
        Py_DECREF(<object>mg_scope)
    mg_scope = NULL
    if before is not None:
        Py_INCREF(before)
        mg_scope = <PyObject*>before


# ── recording ─────────────────────────────────────────────────────────────────────────────────────

cdef int64_t sequence = 0


cdef int64_t last_sequence() noexcept:
    """The number of the node that was made last; a leaf's is its negative."""
    return sequence


cdef inline Node new_node(Op op, Array out, int outputs, int on):
    """A node with the next number, without inputs as yet; `on` are the modes of the thread."""
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
    if on & WHERE:
        node.where = source_line()
    return node


cdef int connect(Node node, int i, Array x, bint save) except -1:
    """Make x input i of a node: an edge if x requires grad, and the value if it is to be saved."""
    if x.needs_grad:
        edge = gradient_node(x)
        Py_INCREF(edge)
        node.slots[i].edge = <PyObject*>edge
        node.slots[i].output = x.output
    if save:
        Py_INCREF(x)
        node.slots[i].value = <PyObject*>x
        node.versions += version(x)
        if x.savers == 0:
            x.saved_since = node.sequence
        x.savers += 1
    return 0


cdef int tell(Node node, tuple outs) except -1:
    """Tell the listener of this thread, if there is one, of a recorded operation."""
    if current_listener() is not None:
        (<object>current_listener()).recorded(node.sequence, node.op.name, outs)
    return 0


cdef Node track(Op op, Array out, Array a, Array b=None, Array c=None, object extra=None):
    """Record that `op` made `out` from a, b and c, if any of them requires grad.

    Saves what their gradients read; `extra` is whatever else backward needs. Returns the node, or None if nothing is
    recorded.
    """
    cdef bint wanted = False
    cdef int saved = 0          # what the wanted gradients read, in bits as in `op.reads`
    cdef int on = modes()
    if listeners:
        note_reads((a, b, c))
        note_computed(op.name, (out,), (a, b, c), extra)
    if on & RECORDING:
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
    cdef Node node = new_node(op, out, 1, on)
    node.reserve(1 if b is None and c is None else 2 if c is None else 3)
    connect(node, 0, a, saved & 1)
    if b is not None:
        connect(node, 1, b, saved & 2)
    if c is not None:
        connect(node, 2, c, saved & 4)
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
    cdef int on = modes()
    if listeners:
        note_reads(inputs)
        note_computed(op.name, tuple(outs), inputs, extra)
    if on & RECORDING:
        for x in inputs:
            wanted = wanted or (x is not None and (<Array>x).needs_grad)
    if not wanted:
        return None
    cdef Node node = new_node(op, <Array>outs[0], <int>len(outs), on)
    cdef int i
    node.reserve(<int>len(inputs))
    for i in range(node.inputs):
        if inputs[i] is not None:
            connect(node, i, <Array>inputs[i], i in saved)
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
        node = new_node(leaf_op, x, 1, modes())
        node.leaf = <PyObject*>x
        node.scope = None                   # it belongs to no module, whoever used it first
        node.sequence = -node.sequence      # below every operation, including one that is being recorded
        x.node = node
    return <Node>x.node


ctypedef pair[Reference, void*] Adding
# The leaves to whose grad a thread is adding, and the thread: kernels release the GIL, and another pass may arrive.
cdef vector[Adding] adding


cdef bint is_busy(Node leaf) noexcept:
    """Whether another thread is adding to the grad of a leaf."""
    for entry in adding:
        if entry.first == <PyObject*>leaf and entry.second != <void*>&mg_here:
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
    here.first, here.second = <PyObject*>node, <void*>&mg_here      # the address differs from thread to thread
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
    if recording() or overlaps_itself(total) or may_share_memory(total, g):
        x.grad_ = add(total, g)
    else:
        backend(g).binary(ADD, total, g, total)
        total.buffer.version += 1
    return 0


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


cdef Array as_leaf(str op, Array x, bint requires_grad):
    """x, a tensor without a history, set to require grad if requested."""
    if requires_grad and not is_float(x.code):
        raise TypeError(f"[{op}] expected a floating dtype for a tensor that requires grad, got {x.dtype}")
    x.needs_grad = x.needs_grad or requires_grad
    return x


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


above.forget = forget_leaf


cdef int retire_leaf(Array x) except -1:
    """Called when x becomes another tensor: backward refuses what was recorded of the old leaf, unless frozen."""
    if x.node is not None and is_leaf(x):
        (<Node>x.node).freed = x.needs_grad     # a frozen leaf needed no gradient
        forget_leaf(x)
        x.node = None
    return 0


def forget_other_threads() -> None:
    """In the child of a fork, only the thread that forked continues."""
    cdef vector[Adding] own
    for entry in adding:
        if entry.second == <void*>&mg_here:
            own.push_back(entry)
    adding.swap(own)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
