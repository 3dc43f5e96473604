"""The tape: nodes, and the walk over them that computes gradients.

Every operation on a tensor that requires grad makes a `Node`. A node holds an edge to the node of each input, the
values that its backward needs, and a sequence number. Nodes live by reference from the tensors computed with
them, so a forward pass that nobody differentiates frees itself.

Backward visits the reachable nodes in falling sequence order: a node's number is larger than its inputs', so each
node is visited after everything that was computed from it, when its gradient is complete. Nothing here recurses: a
chain of a million operations is walked, and freed, by loops.
"""
import sys
import threading
import time

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from minigrad.engine.array cimport (
    Array, alias, device_name, dtype_of, empty, is_float, same_shape, set_forget, shape_of,
)
from minigrad.engine.backend cimport ADD, ISFINITE, Backend, backend

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)
    void PyObject_GC_Track(void*)
    bint PyObject_GC_IsTracked(object)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef extern from *:
    """
    static thread_local bool mg_recording = true;   // operations make nodes
    static thread_local bool mg_where = false;      // nodes note their source line
    static thread_local bool mg_anomaly = false;    // backward checks every gradient for NaN
    """
    bint mg_recording
    bint mg_where
    bint mg_anomaly


class GradientError(RuntimeError):
    """Raised where the tape cannot give the gradient asked for, and says what to do instead."""


# ── modes of the calling thread ───────────────────────────────────────────────────────────────────

cdef bint recording() noexcept:
    return mg_recording


cdef bint wanted(Array x) noexcept:
    """Whether an operation on x is recorded."""
    return mg_recording and x.needs_grad


def is_grad_enabled():
    """bool: whether operations of this thread are recorded on the tape."""
    return bool(mg_recording)


def set_recording(bint on):
    """Switch recording for this thread and return what it was."""
    global mg_recording
    before, mg_recording = bool(mg_recording), on
    return before


def set_where(bint on):
    """Switch the noting of source lines for this thread and return what it was."""
    global mg_where
    before, mg_where = bool(mg_where), on
    return before


def set_anomaly(bint on):
    """Switch the check of every gradient for NaN and infinity for this thread and return what it was."""
    global mg_anomaly
    before, mg_anomaly = bool(mg_anomaly), on
    return before


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────

ctypedef PyObject* Reference

# References that dying nodes gave up. The outermost dying node empties it in a loop, so that a long chain does not
# die by recursion.
cdef vector[Reference] graveyard
cdef bint burying = False


cdef void bury() noexcept:
    global burying
    cdef PyObject* dead
    if burying:
        return
    burying = True
    while not graveyard.empty():
        dead = graveyard.back()
        graveyard.pop_back()
        Py_DECREF(<object>dead)
    burying = False


cdef int64_t versions_of(object extra):
    """The sum of the versions of the tensors in a node's `extra`."""
    cdef int64_t total = 0
    if isinstance(extra, Array):
        return (<Array>extra).buffer.version
    if type(extra) is tuple:
        for item in <tuple>extra:
            if isinstance(item, Array):
                total += (<Array>item).buffer.version
    return total


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
        """Give up edges, saved values and `extra`."""
        cdef int i
        for i in range(self.inputs):
            if self.slots[i].edge != NULL:
                graveyard.push_back(self.slots[i].edge)
            if self.slots[i].value != NULL:
                graveyard.push_back(self.slots[i].value)
        self.inputs = 0
        if self.slots != self.few:
            PyMem_Free(self.slots)
            self.slots = self.few
        if self.extra is not None:
            Py_INCREF(self.extra)
            graveyard.push_back(<PyObject*>self.extra)
            self.extra = None

    cdef int reserve(self, int inputs) except -1:
        """Make room for a number of slots, all empty."""
        cdef int i
        if inputs > 3:
            self.slots = <Slot*>PyMem_Malloc(inputs * sizeof(Slot))
        for i in range(inputs):
            self.slots[i].edge = self.slots[i].value = NULL
        self.inputs = inputs
        return 0

    cdef int connect(self, int i, Array x, bint save) except -1:
        """Make x input i: an edge where x requires grad, and the value where it is to be saved."""
        if x.needs_grad:
            edge = gradient_node(x)
            Py_INCREF(edge)
            self.slots[i].edge = <PyObject*>edge
            self.slots[i].output = x.output
        if save:
            Py_INCREF(x)
            self.slots[i].value = <PyObject*>x
            self.versions += x.buffer.version
        return 0

    cdef int64_t current_versions(self):
        cdef int64_t total = versions_of(self.extra)
        cdef int i
        for i in range(self.inputs):
            if self.slots[i].value != NULL:
                total += (<Array>self.slots[i].value).buffer.version
        return total

    cdef str place(self):
        return f", recorded at {self.where}" if self.where is not None else ""

    cdef bint needs(self, int i) noexcept:
        """Whether the running backward pass wants the gradient of input i."""
        return i < self.inputs and self.slots[i].edge != NULL and (<Node>self.slots[i].edge).marked

    cdef Array value(self, int i):
        """Input i, saved when the operation ran; None if there was none."""
        if i >= self.inputs or self.slots[i].value == NULL:
            return None
        return <Array>self.slots[i].value

    cdef Array saved_output(self, Array output):
        """An output kept in `extra` (without its node, which would be a cycle), attached to the tape again."""
        if not mg_recording:
            return output
        cdef Array attached = alias(output)
        attached.node, attached.needs_grad, attached.output = self, True, output.output
        return attached

    cdef int send(self, int i, Array g) except -1:
        """Add g to the gradient of input i."""
        if not self.needs(i):
            return 0
        cdef Node to = <Node>self.slots[i].edge
        if mg_anomaly and not all_finite(g):
            raise GradientError(f"[{self.op.decode()}] backward gave a gradient with NaN or infinity for input {i} "
                                f"of shape {shape_of(g)}{self.place()}")
        cdef int k = self.slots[i].output
        if to.outputs > 1:
            to.pendings[k] = g if to.pendings[k] is None else add(<Array>to.pendings[k], g)
        elif to.pending is None:
            to.pending, to.exclusive = g, False
        elif mg_recording:
            to.pending = adder(to.pending, g)
        elif to.exclusive:
            backend(g).binary(ADD, to.pending, g, to.pending)
        else:
            to.pending, to.exclusive = add(to.pending, g), True
        return 0


    cdef int give(self, int i, Array g) except -1:
        """`send` a g that nobody else holds: what comes later may be added into it."""
        cdef bint first = self.needs(i) and (<Node>self.slots[i].edge).pending is None
        self.send(i, g)
        if first:
            (<Node>self.slots[i].edge).exclusive = True
        return 0

    cdef Array gathered(self, int i):
        """The gradient of input i as far as gathered, if it may be written in place; else None."""
        cdef Node to = <Node>self.slots[i].edge
        if self.can_accumulate(i) and to.pending is not None and to.exclusive and to.pending.packed:
            return to.pending
        return None

    cdef bint can_accumulate(self, int i) noexcept:
        """Whether `accumulator` serves input i."""
        return self.needs(i) and (<Node>self.slots[i].edge).outputs == 1 and not mg_anomaly

    cdef Array accumulator(self, int i):
        """The gradient of input i as far as gathered (zeros at first), to be added to in place."""
        cdef Node to = <Node>self.slots[i].edge
        cdef Array total
        if to.pending is None or not to.exclusive or not to.pending.packed:
            total = empty(to.code, to.ndim, to.extent, to.device)
            if to.pending is None:
                backend(total).fill(total, 0)
            else:
                backend(total).copy(to.pending, total)
            to.pending, to.exclusive = total, True
        return to.pending


cdef Adder adder = NULL


cdef void set_adder(Adder function):
    global adder
    adder = function


cdef Array add(Array a, Array b):
    """a + b of equal shapes, on the tape where the pass itself is recorded."""
    if mg_recording:
        return adder(a, b)
    cdef Array out = empty(a.code, a.ndim_, a.extent, a.buffer.device)
    backend(a).binary(ADD, a, b, out)
    return out


cdef bint all_finite(Array x):
    cdef Array flags = empty(0, x.ndim_, x.extent, x.buffer.device)
    if not is_float(x.code) or x.count == 0:
        return True
    backend(x).unary(ISFINITE, x, flags)
    return bool(flags._detached_numpy().all())


# ── recording ─────────────────────────────────────────────────────────────────────────────────────

cdef int64_t sequence = 0


cdef str source_line():
    """file:line of the innermost caller outside minigrad."""
    frame = sys._getframe(0)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "minigrad":
        frame = frame.f_back
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


cdef inline Node new_node(Array out, const char* op, Backward run, int outputs):
    global sequence
    cdef Node node = Node.__new__(Node)
    cdef int i
    sequence += 1
    node.sequence, node.op, node.run, node.outputs = sequence, op, run, outputs
    node.code, node.ndim, node.device = out.code, out.ndim_, out.buffer.device
    for i in range(out.ndim_):
        node.extent[i] = out.extent[i]
    if mg_where:
        node.where = source_line()
    return node


cdef Node track(Array out, const char* op, Backward run, int save, Array a, Array b=None, Array c=None, object extra=None):
    """Record that `op` made `out` from a, b and c, if any of them requires grad.

    `save` has bit i set where backward reads input i; `extra` is whatever else it reads. Returns the node, or None
    where nothing is recorded.
    """
    if not mg_recording or not (a.needs_grad or (b is not None and b.needs_grad) or (c is not None and c.needs_grad)):
        return None
    cdef Node node = new_node(out, op, run, 1)
    node.reserve(1 if b is None and c is None else 2 if c is None else 3)
    node.connect(0, a, save & 1)
    if b is not None:
        node.connect(1, b, save & 2)
    if c is not None:
        node.connect(2, c, save & 4)
    if extra is not None:
        node.extra = extra
        node.versions += versions_of(extra)
    out.node, out.needs_grad = node, True
    return node


cdef Node track_many(list outs, const char* op, Backward run, list inputs, list saved, object extra=None):
    """`track` for any number of inputs and outputs; `saved` holds the positions of the inputs to save."""
    if not mg_recording:
        return None
    cdef bint any_wanted = False
    for x in inputs:
        any_wanted = any_wanted or (x is not None and (<Array>x).needs_grad)
    if not any_wanted:
        return None
    cdef Node node = new_node(<Array>outs[0], op, run, <int>len(outs))
    cdef int i
    node.reserve(<int>len(inputs))
    for i in range(node.inputs):
        if inputs[i] is not None:
            node.connect(i, <Array>inputs[i], i in saved)
    if extra is not None:
        node.extra = extra
        node.versions += versions_of(extra)
    for i in range(node.outputs):
        (<Array>outs[i]).node, (<Array>outs[i]).needs_grad, (<Array>outs[i]).output = node, True, i
    return node


cdef Node gradient_node(Array x):
    """The node where the gradient of x arrives: its maker's, or a leaf's own."""
    cdef Node node
    if x.node is None:
        node = new_node(x, b"leaf", accumulate, 1)
        node.leaf = <PyObject*>x
        node.sequence = -node.sequence      # below that of every operation, also of one that is being recorded
        x.node = node
    return <Node>x.node


cdef int accumulate(Node node, Array g) except -1:
    """The backward of a leaf: x.grad += g."""
    cdef Array x = <Array>node.leaf
    if x.grad_ is None:
        x.grad_ = owned(node, g)
    elif mg_recording:
        x.grad_ = adder(x.grad_, g)
    else:
        check_in_place("backward", x.grad_)
        backend(g).binary(ADD, x.grad_, g, x.grad_)
        x.grad_.buffer.version += 1
    return 0


cdef Array owned(Node node, Array g):
    """g, or a copy where somebody else can see its memory: a later write to one gradient must not show in another."""
    cdef Array plain
    if mg_recording or (node.exclusive and g.packed and g.buffer.references == 1):
        return g
    plain = empty(g.code, g.ndim_, g.extent, g.buffer.device)
    backend(g).copy(g, plain)
    return plain


cdef bint is_leaf(Array x):
    return x.node is None or (<Node>x.node).leaf == <PyObject*>x


def leaf(Array x):
    """Whether x was made by the user and not by a recorded operation."""
    return bool(is_leaf(x))


def maker(Array x):
    """str: the operation that made x."""
    return (<Node>x.node).op.decode()


cdef void forget_leaf(Array x) noexcept:
    """Called as x dies: its node must not point at it any more."""
    cdef Node node
    if x.node is not None:
        node = <Node>x.node
        if node.leaf == <PyObject*>x:
            node.leaf = NULL


set_forget(forget_leaf)


# ── writing in place ──────────────────────────────────────────────────────────────────────────────

cdef int check_in_place(str op, Array x) except -1:
    """Refuse a write into x that the tape could not follow."""
    if not mg_recording:
        return 0
    if x.needs_grad:
        if is_leaf(x):
            raise GradientError(f"[{op}] a leaf of shape {shape_of(x)} that requires grad cannot be written in place "
                                f"while operations are recorded: use minigrad.no_grad()")
        if x.buffer.references > 1:
            raise GradientError(f"[{op}] a tensor of shape {shape_of(x)} whose memory is shared with "
                                f"{x.buffer.references - 1} other tensors (views, or values saved for backward) "
                                f"cannot be written in place while its gradient is recorded: write out of place")
    return 0


cdef int rebase(Array x, Array result) except -1:
    """Let x, just overwritten with `result`, continue result's history."""
    x.buffer.version += 1
    if result.needs_grad:
        if x.buffer.references > 1:
            raise GradientError(f"[in-place] a tensor of shape {shape_of(x)} whose memory is shared with "
                                f"{x.buffer.references - 1} other tensors cannot take up a gradient in place: "
                                f"write out of place")
        x.node, x.needs_grad, x.output = result.node, True, result.output
    return 0


# ── backward ──────────────────────────────────────────────────────────────────────────────────────

cdef uint64_t walks = 0
cdef dict walkers = {}      # running pass -> its thread


ctypedef pair[int64_t, Reference] Numbered


cdef class Walk:
    """One backward pass: owns the nodes it collected until it ends."""
    cdef uint64_t number
    cdef vector[Numbered] order

    def __cinit__(self):
        global walks
        walks += 1
        self.number = walks
        walkers[self.number] = threading.get_ident()

    cdef bint visit(self, Node node, vector[Reference]& stack) except -1:
        """Take a node over; False if another pass owns it."""
        if node.walk == self.number:
            return True
        if node.walk != 0:
            if walkers.get(node.walk) == threading.get_ident():
                raise GradientError(f"[backward] a backward pass inside another one reached the same [{node.op.decode()}]")
            return False
        node.walk, node.marked = self.number, False
        if node.outputs > 1:
            node.pendings = [None] * node.outputs
        Py_INCREF(node)
        self.order.push_back(Numbered(node.sequence, <PyObject*>node))
        stack.push_back(<PyObject*>node)
        return True

    cdef bint collect(self, list roots, dict border) except -1:
        """Take over every node that a root depends on; False (and nothing taken) if another pass owns one.

        Where a border (id of node -> anything) is given, nothing behind a node of it is looked at.
        """
        cdef vector[Reference] stack
        cdef Node node
        cdef int i
        for root in roots:
            if not self.visit(gradient_node(<Array>root), stack):
                self.release()
                return False
        while not stack.empty():
            node = <Node>stack.back()
            stack.pop_back()
            if node.freed:
                raise GradientError(f"[{node.op.decode()}] the tape from here on was freed by an earlier backward: pass "
                                    f"retain_graph=True to that one{node.place()}")
            if border is not None and <size_t><PyObject*>node in border:
                continue
            for i in range(node.inputs):
                if node.slots[i].edge != NULL and not self.visit(<Node>node.slots[i].edge, stack):
                    self.release()
                    return False
        sort(self.order.begin(), self.order.end())
        return True

    cdef int mark(self, dict targets) except -1:
        """Mark the nodes whose gradient is wanted: all, or those that lead to a target (id of node -> positions)."""
        cdef Node node
        cdef int i
        for entry in self.order:                    # rising sequence: inputs first
            node = <Node>entry.second
            node.marked = targets is None or <size_t>entry.second in targets
            if not node.marked:
                for i in range(node.inputs):
                    if node.slots[i].edge != NULL and (<Node>node.slots[i].edge).marked:
                        node.marked = True
                        break
        return 0

    cdef void release(self) noexcept:
        """Leave the nodes that were not visited as they were found."""
        cdef Node node
        while not self.order.empty():
            node = <Node>self.order.back().second
            self.order.pop_back()
            node.walk, node.marked, node.pending, node.pendings = 0, False, None, None
            Py_DECREF(node)

    def __dealloc__(self):
        self.release()

    cdef list run(self, list targets, dict wanted, bint retain):
        cdef Node node
        cdef Array g
        cdef list found = [None] * len(targets) if targets is not None else None
        while not self.order.empty():
            node = <Node>self.order.back().second
            g = node.pending
            node.pending = None
            if node.hooks is not None and node.marked:
                g = run_hooks(node, g)
            node.exclusive = g is not None and Py_REFCNT(<PyObject*>g) == 1
            if node.marked and (g is not None or node.outputs > 1):
                self.run_node(node, g, found, targets, wanted, retain)
            if not retain and node.run != accumulate:
                node.freed = True
                node.drop()
            node.walk, node.marked, node.pendings = 0, False, None
            self.order.pop_back()
            Py_DECREF(node)
            bury()
        return found

    cdef int run_node(self, Node node, Array g, list found, list targets, dict wanted, bint retain) except -1:
        cdef int64_t written
        if wanted is not None and <size_t><PyObject*>node in wanted:
            for k in wanted[<size_t><PyObject*>node]:
                found[k] = owned(node, g) if node.outputs == 1 else node.pendings[(<Array>targets[k]).output]
        if node.run == accumulate:
            return accumulate(node, g) if wanted is None and node.leaf != NULL else 0
        if node.inputs == 0 or (node.outputs > 1 and not any([p is not None for p in node.pendings])):
            return 0
        written = node.current_versions() - node.versions
        if written:
            raise GradientError(f"[{node.op.decode()}] a tensor saved for backward was written in place {written} time(s) "
                                f"since: saved shapes {saved_shapes(node)}{node.place()}")
        return node.run(node, g)


cdef list saved_arrays(Node node):
    cdef list found = [<Array>node.slots[i].value for i in range(node.inputs) if node.slots[i].value != NULL]
    extra = node.extra if type(node.extra) is tuple else (node.extra,)
    return found + [x for x in extra if isinstance(x, Array)]


cdef str saved_shapes(Node node):
    return ", ".join([str(x.shape) for x in saved_arrays(node)])


cdef list pull_back(list roots, list grads, list targets, bint retain, bint create, bint inside=False):
    """Send `grads` from `roots` back; returns the gradients of `targets`, or adds to every leaf's grad if None.

    `inside` promises that no target depends on another one: then the walk ends at the targets.
    """
    global mg_recording
    cdef Walk walk = Walk.__new__(Walk)
    cdef dict by_node = None
    cdef Node node
    before = bool(mg_recording)
    try:
        if targets is not None:
            by_node = {}
            for k, x in enumerate(targets):
                node = gradient_node(<Array>x)
                by_node.setdefault(<size_t><PyObject*>node, []).append(k)
        while not walk.collect(roots, by_node if inside else None):
            time.sleep(1e-4)        # another thread's pass owns some of these nodes: wait for its end
        walk.mark(by_node)
        mg_recording = create
        for root, g in zip(roots, grads):
            node = gradient_node(<Array>root)
            if node.outputs > 1:
                k = (<Array>root).output
                node.pendings[k] = g if node.pendings[k] is None else add(<Array>node.pendings[k], <Array>g)
            else:
                node.pending = <Array>g if node.pending is None else add(node.pending, <Array>g)
                node.exclusive = False
        return walk.run(targets, by_node, retain)
    finally:
        mg_recording = before
        walkers.pop(walk.number, None)
        walk.release()


cdef int identity_backward(Node node, Array g) except -1:
    return node.send(0, g)


cdef int composed_backward(Node node, object composition, list inputs, Array g) except -1:
    """Send the gradients of a fused operation through its composition, so that they can be differentiated again.

    The composition runs on fresh aliases of the inputs: the gradient with respect to an alias counts only the paths
    inside the operation, and remains a function of the input on the tape.
    """
    cdef list fresh = [], targets = [], places = []
    cdef Array a
    cdef int i
    for i in range(len(inputs)):
        x = inputs[i]
        if x is not None:
            a = alias(<Array>x)
            track(a, b"identity", identity_backward, 0, <Array>x)
            if node.needs(i):
                targets.append(a)
                places.append(i)
            x = a
        fresh.append(x)
    grads = pull_back([composition(*fresh)], [g], targets, True, True, True)
    for place, grad in zip(places, grads):
        if grad is not None:
            node.send(place, <Array>grad)
    return 0


# ── hooks ─────────────────────────────────────────────────────────────────────────────────────────

cdef Array run_hooks(Node node, Array g):
    """The gradient that the hooks of a node make of the one that arrived."""
    for output, hook in list(node.hooks):
        before = g if node.outputs == 1 else node.pendings[output]
        if before is None:
            continue
        result = hook(before)
        if result is None:
            continue
        if not isinstance(result, Array) or not same_shape(<Array>result, <Array>before)                 or (<Array>result).code != (<Array>before).code:
            raise GradientError(f"[hook] expected None or a gradient of shape {shape_of(<Array>before)}, got "
                                f"{getattr(result, 'shape', type(result).__name__)}")
        if node.outputs == 1:
            g = <Array>result
        else:
            node.pendings[output] = result
    return g


class HookHandle:
    """What `Tensor.register_hook` returns; ``remove()`` takes the hook off."""

    def __init__(self, hooks, entry):
        self._hooks, self._entry = hooks, entry

    def remove(self):
        """Take the hook off; a second call does nothing."""
        if self._entry in self._hooks:
            self._hooks.remove(self._entry)


def add_hook(Array x, hook):
    """Call hook(gradient) whenever the gradient of x is complete."""
    if not x.needs_grad:
        raise GradientError(f"[register_hook] the tensor of shape {shape_of(x)} does not require grad")
    cdef Node node = gradient_node(x)
    if node.hooks is None:
        node.hooks = []
    entry = (x.output, hook)
    node.hooks.append(entry)
    # From here on a cycle tensor -> node -> hook -> tensor is possible: let the collector see both.
    for tracked in (x, node):
        if not PyObject_GC_IsTracked(tracked):
            PyObject_GC_Track(<void*>tracked)
    return HookHandle(node.hooks, entry)


# ── operations written in Python (minigrad.Function) ──────────────────────────────────────────────

cdef int function_backward(Node node, Array g) except -1:
    function = node.extra[0]
    cdef list gradients = function(node.pendings if node.outputs > 1 else [g])
    if len(gradients) != node.inputs:
        raise GradientError(f"[{node.op.decode()}] backward: expected {node.inputs} gradients, one for each tensor input, "
                            f"got {len(gradients)}")
    for i, grad in enumerate(gradients):
        if grad is None or not node.needs(i):
            continue
        check_gradient(node.op.decode(), <Node>node.slots[i].edge, grad, node.slots[i].output)
        node.send(i, <Array>grad)
    return 0


cdef int check_gradient(str op, Node to, object grad, int output) except -1:
    """A gradient from outside must match what it is the gradient of."""
    if not isinstance(grad, Array):
        raise TypeError(f"[{op}] expected a gradient that is a tensor, got {type(grad).__name__}")
    cdef Array g = <Array>grad
    cdef int i
    if to.outputs > 1:
        return 0
    cdef bint fits = g.ndim_ == to.ndim and g.code == to.code and g.buffer.device == to.device
    for i in range(to.ndim if fits else 0):
        fits = fits and g.extent[i] == to.extent[i]
    if not fits:
        raise GradientError(f"[{op}] expected a gradient of shape {tuple([to.extent[i] for i in range(to.ndim)])}, "
                            f"{dtype_of(to.code)} on {device_name(to.device)}, got {shape_of(g)}, {dtype_of(g.code)} on "
                            f"{device_name(g.buffer.device)}")
    return 0


cdef dict function_names = {}


def record_function(str name, list inputs, list outputs, function, tuple saved):
    """Record an operation written in Python: function(list of output gradients) -> list of input gradients."""
    encoded = function_names.setdefault(name, name.encode())
    return track_many(outputs, <const char*>encoded, function_backward, inputs, [], (function, *saved)) is not None


def attach(Array output, Array made):
    """An alias of `made`'s output, on the tape again (the counterpart of Node.saved_output)."""
    cdef Array attached = alias(output)
    attached.node, attached.needs_grad, attached.output = made.node, made.needs_grad, made.output
    return attached


# ── what tensors and minigrad.autograd call ───────────────────────────────────────────────────────

def differentiate(list roots, list grads, list targets, bint retain_graph, bint create_graph):
    """Check roots, gradients and targets, then `pull_back`."""
    cdef Array root
    cdef list seeds = []
    for y, g in zip(roots, grads):
        root = <Array>y
        if not root.needs_grad:
            raise GradientError(f"[backward] the tensor of shape {shape_of(root)} does not depend on anything that requires grad")
        if g is None:
            if root.count != 1:
                raise GradientError(f"[backward] a tensor of shape {shape_of(root)} is not one number: give the gradient of "
                                    f"what is to be differentiated, of the same shape")
            g = empty(root.code, root.ndim_, root.extent, root.buffer.device)
            backend(root).fill(<Array>g, 1)
        else:
            check_gradient("backward", gradient_node(root), g, root.output)
        seeds.append(g)
    if targets is not None:
        for x in targets:
            if not (<Array>x).needs_grad:
                raise GradientError(f"[grad] a tensor of shape {shape_of(<Array>x)} does not require grad")
    return pull_back(roots, seeds, targets, retain_graph or create_graph, create_graph)


def entries(Array x):
    """The tape behind x as a list of dicts, first operation first: the rows of `Tensor.tape`."""
    cdef Node node, edge
    cdef dict seen = {}, numbers
    cdef int i
    if x.node is None and not x.needs_grad:
        return []
    cdef list stack = [gradient_node(x)], rows = []
    while stack:
        node = stack.pop()
        if node.sequence in seen:
            continue
        seen[node.sequence] = node
        for i in range(node.inputs):
            if node.slots[i].edge != NULL:
                stack.append(<Node>node.slots[i].edge)
    numbers = {s: k for k, s in enumerate(sorted(seen))}
    for s in sorted(seen):
        node = seen[s]
        rows.append({
            "index": numbers[s], "op": node.op.decode(),
            "inputs": [numbers[(<Node>node.slots[i].edge).sequence] if node.slots[i].edge != NULL else None
                       for i in range(node.inputs)],
            "shape": tuple([node.extent[i] for i in range(node.ndim)]), "dtype": dtype_of(node.code),
            "saved_bytes": sum({a.data_ptr(): a.nbytes for a in saved_arrays(node)}.values()), "where": node.where,
        })
    return rows
