"""Backward: the walk over the tape that computes gradients, and the operations whose backward is written in Python.

The walk visits the reachable nodes in descending sequence order: a node's number is larger than its inputs', so each
node is visited after everything that was computed from it, when its gradient is complete. Nothing here recurses.
"""
import os
import threading
from queue import SimpleQueue

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint64_t
from libcpp.algorithm cimport sort
from libcpp.pair cimport pair
from libcpp.vector cimport vector

from minigrad.engine.array cimport Array, alias, device_name, empty, same_shape, shape_of
from minigrad.engine.backend cimport backend
from minigrad.engine.calls cimport Call, begin
from minigrad.engine.dtype cimport dtype_of
from minigrad.engine.ops.arguments cimport kind_of
from minigrad.engine.tape cimport (
    AFTER, Node, Place, accumulate, add, bury, current_observer, current_run, function_op, gradient_node, identity_op,
    owned, recording, saved_shapes, set_recording, track, track_many,
)
from minigrad.engine.tape import GradientError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


# ── the walk ──────────────────────────────────────────────────────────────────────────────────────

cdef uint64_t walks = 0
cdef dict walkers = {}      # running pass -> its thread
cdef dict late = {}         # thread -> the hooks that wait for the end of its outermost pass, as keys
cdef dict blocked = {}      # waiting thread -> the node that a pass of another thread owns, and what wakes the thread


ctypedef PyObject* Reference
ctypedef pair[int64_t, Reference] Numbered


cdef class BackwardPass:
    """One backward pass: owns the nodes it collected until it ends.

    A pass that starts inside another pass of the same thread (in a hook, in a Function's backward) borrows the nodes
    that both share: their state is kept in `borrowed` (id of node -> state), and they are not freed.
    """
    cdef uint64_t number
    cdef vector[Numbered] order
    cdef bint hooked        # whether a leaf has hooks
    cdef dict informed      # the hooks that were called after an accumulation, as keys
    cdef dict borrowed
    cdef Node obstacle      # where `collect` met a pass of another thread
    cdef Call call          # of the node that runs

    def __cinit__(self):
        global walks
        walks += 1
        self.number = walks
        thread = threading.get_ident()
        if late:
            forget_late(thread)
        walkers[self.number] = thread

    cdef bint visit(self, Node node, vector[Reference]& stack) except -1:
        """Take over a node; False if a pass of another thread owns it."""
        if node.walk == self.number:
            return True
        if node.walk != 0:
            thread = walkers.get(node.walk)     # None: its thread did not survive the fork
            if thread is not None:
                if thread != threading.get_ident():
                    self.obstacle = node
                    return False
                if self.borrowed is None:
                    self.borrowed = {}
                self.borrowed[<size_t><PyObject*>node] = \
                    node.walk, node.marked, node.pending, node.exclusive, node.pendings
            node.pending = None
        node.walk, node.marked = self.number, False
        if node.outputs > 1:
            node.pendings = [None] * node.outputs
        self.hooked = self.hooked or (node.hooks is not None and node.op.differentiate == accumulate)
        Py_INCREF(node)
        self.order.push_back(Numbered(node.sequence, <PyObject*>node))
        stack.push_back(<PyObject*>node)
        return True

    cdef bint collect(self, list roots, int64_t floor) except -1:
        """Take over every node that a root depends on; False (and nothing taken) if another thread's pass owns one.

        The search does not go past a node whose number is `floor` or less: `floor` is the number of the oldest target,
        on which nothing older can depend.
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
            if node.sequence <= floor:
                continue
            if node.freed and node.op.differentiate == accumulate:
                refuse_leaf(node)
            if node.freed:
                raise GradientError(f"[{node.op.name}] the tape from here on was freed by an earlier backward: "
                                    f"pass retain_graph=True to that one{node.recorded_at()}")
            for i in range(node.inputs):
                if node.slots[i].edge != NULL and not self.visit(<Node>node.slots[i].edge, stack):
                    self.release()
                    return False
        sort(self.order.begin(), self.order.end())
        if self.hooked:
            self.advance()
        return True

    cdef int mark(self, dict targets) except -1:
        """Mark the nodes whose gradient is wanted: all, or those that lead to a target (id of node -> positions)."""
        cdef Node node
        cdef int i
        for entry in self.order:                    # ascending sequence order: inputs first
            node = <Node>entry.second
            node.marked = targets is None or <size_t>entry.second in targets
            if not node.marked:
                for i in range(node.inputs):
                    if node.slots[i].edge != NULL and (<Node>node.slots[i].edge).marked \
                            and (<Node>node.slots[i].edge).walk == self.number:    # not by the pass around this one
                        node.marked = True
                        break
        return 0

    cdef list reaches(self, list roots, list targets, dict positions):
        """Whether each target is a root, or something that a root depends on."""
        cdef Node node
        cdef int i
        cdef bint several = False
        cdef set used = set()       # (id of node, output): of several outputs, some may be unused
        cdef list found = []
        for x in targets:
            several = several or gradient_node(<Array>x).outputs > 1
        if several:
            for y in roots:
                node = gradient_node(<Array>y)
                used.add((<size_t><PyObject*>node, (<Array>y).output))
            for entry in self.order:
                node = <Node>entry.second
                for i in range(node.inputs):
                    if <size_t>node.slots[i].edge in positions:
                        used.add((<size_t>node.slots[i].edge, node.slots[i].output))
        for x in targets:
            node = gradient_node(<Array>x)
            found.append(node.walk == self.number
                         and (node.outputs == 1 or (<size_t><PyObject*>node, (<Array>x).output) in used))
        return found

    cdef void release(self) noexcept:
        """Give up the nodes that were not visited."""
        while not self.order.empty():
            self.leave()

    cdef void leave(self) noexcept:
        """Give up the last node of the order and restore the state it was found in."""
        cdef Node node = <Node>self.order.back().second
        self.order.pop_back()
        node.walk, node.marked, node.pending, node.pendings = 0, False, None, None
        if self.borrowed is not None and <size_t><PyObject*>node in self.borrowed:
            node.walk, node.marked, node.pending, node.exclusive, node.pendings = \
                self.borrowed.pop(<size_t><PyObject*>node)
        if blocked:
            wake(node)
        Py_DECREF(node)

    def __dealloc__(self):
        self.release()

    cdef list run(self, list targets, dict positions, bint retain):
        cdef Node node
        cdef Array g
        cdef list found = [None] * len(targets) if targets is not None else None
        while not self.order.empty():
            node = <Node>self.order.back().second
            g = node.pending
            node.pending = None
            if node.hooks is not None and node.marked:
                self.call.op = NULL     # the kernels of a hook are attributed to the hook's operations
                g = run_hooks(node, g, g is not None and Py_REFCNT(<PyObject*>g) == 1)
            observer = current_observer() if node.marked else None
            if observer is not None:
                observer.entered(node.sequence, node.op.name, (g,) if node.outputs == 1 else tuple(node.pendings))
            self.call.cover(begin(node.op), True)
            node.exclusive = g is not None and Py_REFCNT(<PyObject*>g) == 1
            if node.marked and (g is not None or node.outputs > 1):
                self.deliver(node, g, found, targets, positions)
                if node.hooks is not None and positions is None and node.leaf != NULL:
                    self.inform(node)
            if self.leads_on(node):
                if g is not None or (node.outputs > 1 and any([p is not None for p in node.pendings])):
                    self.run_node(node, g)
                if not retain and (self.borrowed is None or <size_t><PyObject*>node not in self.borrowed):
                    node.freed = True
                    node.drop()
            if observer is not None:
                observer.left(node.sequence)
            self.leave()
            bury()
        return found

    cdef bint leads_on(self, Node node) noexcept:
        """Whether the gradient of some input of the node is wanted."""
        cdef int i
        for i in range(node.inputs):
            if node.needs(i):
                return True
        return False

    cdef int deliver(self, Node node, Array g, list found, list targets, dict positions) except -1:
        """Hand the node's complete gradient to the targets that wait for it, or to its leaf."""
        if positions is None:
            return accumulate(node, g) if node.op.differentiate == accumulate and node.leaf != NULL else 0
        for k in positions.get(<size_t><PyObject*>node, ()):
            arrived = g if node.outputs == 1 else node.pendings[(<Array>targets[k]).output]
            if arrived is not None:
                found[k] = owned(<Array>arrived, node.exclusive)
                node.exclusive = False          # the second of two equal targets gets a copy
        return 0

    cdef int run_node(self, Node node, Array g) except -1:
        while type(node.extra) is Place:        # several times in nested runs
            self.call.op = NULL                 # the kernels of a second run are attributed to its operations
            (<Place>node.extra).run.restore(node)
            self.call.cover(begin(node.op), True)
        if node.current_versions() != node.versions:
            raise GradientError(f"[{node.op.name}] a tensor saved for backward was written in place afterwards: "
                                f"saved shapes {saved_shapes(node)}{node.recorded_at()}")
        return node.op.differentiate(node, g)

    cdef int advance(self) except -1:
        """Let each leaf with hooks be visited as soon as its gradient is complete: after the oldest node that uses it.

        Other leaves stay at the end, where their order costs nothing.
        """
        cdef vector[Numbered] order
        cdef Node node, leaf
        cdef int i
        for entry in self.order:                    # ascending sequence order: the oldest user comes first
            node = <Node>entry.second
            for i in range(node.inputs):
                if node.slots[i].edge == NULL:
                    continue
                leaf = <Node>node.slots[i].edge
                if leaf.hooks is not None and leaf.op.differentiate == accumulate and leaf.walk == self.number \
                        and not leaf.marked:
                    leaf.marked = True              # it has its place; `mark` sets all marks again
                    order.push_back(Numbered(entry.first, <PyObject*>leaf))
            if node.hooks is None or node.op.differentiate != accumulate:
                order.push_back(entry)
        for entry in self.order:                    # nothing uses a leaf that is a root alone
            node = <Node>entry.second
            if node.hooks is not None and node.op.differentiate == accumulate and not node.marked:
                order.push_back(entry)
        self.order.swap(order)
        return 0

    cdef int inform(self, Node node) except -1:
        """Call the hooks that wait for a leaf's grad, which is now complete."""
        leaf = <object>node.leaf        # a hook may drop the last other reference to it
        self.call.op = NULL
        for output, hook in list(node.hooks):
            if output == AFTER:
                if self.informed is None:
                    self.informed = {}
                self.informed[hook] = None
                hook(leaf)
        return 0


cdef int refuse_leaf(Node node) except -1:
    """Raise for the node of a leaf that is no longer the tensor that was recorded."""
    cdef int i
    shape = tuple([node.extent[i] for i in range(node.ndim)])
    raise GradientError(f"[backward] a leaf of shape {shape} became another tensor (by set_, or by its module's to) "
                        f"since this was recorded: run the forward pass again")


cdef void wake(Node node) noexcept:
    """Wake the threads that wait for the node, so that they check it again."""
    for waited, woken in list(blocked.values()):
        if waited is node:
            woken.put(None)


cdef int wait_for(Node node) except -1:
    """Wait until another thread's pass has left the node that it owns; raise if that thread waits for this one.

    Each waiting thread first registers what it waits for, and then follows the chain of nodes waited for and threads
    that own them, so the thread that would close a cycle detects it. A wake-up may be spurious.
    """
    cdef Node awaited = node
    thread = threading.get_ident()
    before = blocked.get(thread)        # a signal handler may run a pass while the thread waits
    entry = node, SimpleQueue()
    blocked[thread] = entry
    try:
        holder = owner = walkers.get(node.walk)
        while owner is not None and owner != thread:
            awaited = blocked[owner][0] if owner in blocked else None
            owner = None if awaited is None else walkers.get(awaited.walk)
        if owner is not None:
            raise GradientError(f"[backward] two passes would wait for each other forever: this one needs "
                                f"[{node.op.name}]{node.recorded_at()}, held by a pass of another thread, and that "
                                f"thread waits for [{awaited.op.name}]{awaited.recorded_at()}, held by a pass of this "
                                f"thread; run passes over a tape that threads share outside of hooks and "
                                f"Function.backward")
        if holder is not None:
            entry[1].get()
    finally:
        if before is None:
            del blocked[thread]
        else:
            blocked[thread] = before
            before[1].put(None)         # its node may have been left in the meantime
    return 0


def forget_other_threads() -> None:
    """In the child of a fork, drop the passes of other threads: only the thread that forked continues."""
    here = threading.get_ident()
    for running in [number for number, thread in walkers.items() if thread != here]:
        del walkers[running]
    for thread, (_, woken) in list(blocked.items()):
        if thread == here:
            woken.put(None)
        else:
            del blocked[thread]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)


cdef list pull_back(list roots, list grads, list targets, bint retain, bint create, str op=None,
                    bint allow_unused=True):
    """Send `grads` back from `roots`; return the gradients of `targets` or, if that is None, add to every leaf's grad.

    A gradient is None if none arrived. With `op`, it is zeros instead if a root depends on the target; if none does,
    it is None or, unless `allow_unused`, that operation raises an error.
    """
    cdef BackwardPass walk = BackwardPass.__new__(BackwardPass)
    cdef dict by_node = None
    cdef list reached = None, found
    cdef int64_t floor = INT64_MIN
    cdef Node node
    cdef Array zeros
    before = recording()
    try:
        if targets is not None:
            by_node = {}
            floor = INT64_MAX
            for k, x in enumerate(targets):
                node = gradient_node(<Array>x)
                by_node.setdefault(<size_t><PyObject*>node, []).append(k)
                floor = min(floor, node.sequence)
        while not walk.collect(roots, floor):
            wait_for(walk.obstacle)
        walk.mark(by_node)
        if op is not None and targets is not None:
            reached = walk.reaches(roots, targets, by_node)
            if not allow_unused and not all(reached):
                k = reached.index(False)
                raise GradientError(f"[{op}] expected tensors that y depends on, got one that it does not use, xs[{k}] "
                                    f"of shape {shape_of(<Array>targets[k])}: pass allow_unused=True to get None for "
                                    f"it")
        set_recording(create)
        for root, g in zip(roots, grads):
            node = gradient_node(<Array>root)
            if node.outputs > 1:
                k = (<Array>root).output
                node.pendings[k] = g if node.pendings[k] is None else add(<Array>node.pendings[k], <Array>g)
            else:
                node.pending = <Array>g if node.pending is None else add(node.pending, <Array>g)
                node.exclusive = False
        found = walk.run(targets, by_node, retain)
        if reached is not None:
            for k, x in enumerate(targets):
                if found[k] is None and reached[k]:
                    zeros = empty((<Array>x).code, (<Array>x).ndim_, (<Array>x).extent, (<Array>x).buffer.device)
                    backend(zeros).fill(zeros, 0)
                    found[k] = zeros
    finally:
        set_recording(before)
        walk.call.end()
        walk.release()
        del walkers[walk.number]
    if walk.informed is not None or late:
        finish(walk.informed)
    return found


cdef int finish(dict informed) except -1:
    """Tell these hooks that the pass has ended; within another pass of the thread, when that one has."""
    thread = threading.get_ident()
    hooks = {**late.pop(thread, {}), **(informed or {})}
    if thread in walkers.values():
        late[thread] = hooks
        return 0
    for hook in hooks:
        hook(None)
    return 0


cdef int forget_late(thread) except -1:
    """Drop the hooks that a failed pass left."""
    if thread not in walkers.values():
        late.pop(thread, None)
    return 0


cdef int composed_backward(Node node, object composition, list inputs, Array g) except -1:
    """Send the gradients of a fused operation through its composition, so that they can be differentiated again.

    An operation with several outputs has a composition with as many; their gradients are in `node.pendings`.
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
            track(identity_op, a, <Array>x)
            if a.needs_grad:        # even if `node` does not need it: the walk must end here
                targets.append(a)
                places.append(i)
            x = a
        fresh.append(x)
    outs = composition(*fresh)
    arrived = [(y, d) for y, d in zip(outs, node.pendings) if d is not None] if node.outputs > 1 else [(outs, g)]
    grads = pull_back([y for y, _ in arrived], [d for _, d in arrived], targets, True, True)
    for place, grad in zip(places, grads):
        if grad is not None:
            node.send(place, <Array>grad)
    return 0


cdef Array run_hooks(Node node, Array g, bint exclusive):
    """The gradient that arrived at a node, after its hooks, which may replace it."""
    cdef Array before
    run = current_run()
    if run is not None:
        run.calls_hook()
    for output, hook in list(node.hooks):
        if output == AFTER:
            continue
        before = g if node.outputs == 1 else node.pendings[output]
        if before is None:
            continue
        before = owned(before, exclusive)       # a hook may write to its argument
        result = hook(before)
        after = before if result is None else result
        if not isinstance(after, Array) or not same_shape(<Array>after, before) or (<Array>after).code != before.code \
                or (<Array>after).buffer.device != before.buffer.device:
            raise GradientError(f"[hook] expected None or a gradient of shape {shape_of(before)} and {before.dtype} on "
                                f"{before.device}, got {getattr(after, 'shape', type(after).__name__)} "
                                f"{getattr(after, 'dtype', '')}")
        if node.outputs == 1:
            g = after
        else:
            node.pendings[output] = after
    return g


# ── what tensors and minigrad.autograd call ───────────────────────────────────────────────────────

def differentiate(list roots: list[Tensor], list grads: list[Tensor | None], list targets or None: list[Tensor] | None,
                  bint retain_graph, bint create_graph, str op="backward", bint allow_unused=True) -> list[Any]:
    """Check roots, gradients and targets, then `pull_back`; errors name `op`.

    All of this is one `Call`, so that neither code that it runs nor another thread can change a tensor's shape in
    the meantime.
    """
    cdef Call _call = begin(None)
    cdef Array root
    cdef list seeds = []
    run = current_run()
    if targets is None and run is not None:
        run.before_backward()
    for y, g in zip(roots, grads):
        root = <Array?>y
        if not root.needs_grad:
            raise GradientError(f"[{op}] the tensor of shape {shape_of(root)} does not depend on anything that "
                                f"requires grad")
        if g is None:
            if root.count != 1:
                raise GradientError(f"[{op}] expected a gradient for a tensor of shape {shape_of(root)}, "
                                    f"got none: only a tensor of one element, such as y.sum(), may omit it")
            g = empty(root.code, root.ndim_, root.extent, root.buffer.device)
            backend(root).fill(<Array>g, 1)
        else:
            check_gradient(op, gradient_node(root), g, root.output)
        seeds.append(g)
    if targets is not None:
        for x in targets:
            if not (<Array?>x).needs_grad:
                raise GradientError(f"[{op}] a tensor of shape {shape_of(<Array>x)} does not require grad")
    return pull_back(roots, seeds, targets, retain_graph or create_graph, create_graph, op, allow_unused)


# ── operations written in Python (minigrad.Function) ──────────────────────────────────────────────

cdef int function_backward(Node node, Array g) except -1:
    function = node.extra[0]
    cdef list gradients = function(node, node.pendings if node.outputs > 1 else [g])
    if len(gradients) != node.inputs:
        raise GradientError(f"[{node.op.name}] backward: expected {node.inputs} gradients, one for each tensor "
                            f"input, got {len(gradients)}")
    for i, grad in enumerate(gradients):
        if grad is None or not node.needs(i):
            continue
        check_gradient(node.op.name, <Node>node.slots[i].edge, grad, node.slots[i].output)
        node.send(i, <Array>grad)
    return 0


cdef int check_gradient(str op, Node to, object grad, int output) except -1:
    """Check that a gradient passed in by the user matches the tensor it belongs to."""
    if not isinstance(grad, Array):
        raise TypeError(f"[{op}] expected a tensor as the gradient, got {kind_of(grad)}")
    cdef Array g = <Array>grad
    shape, code = to.layouts[output] if to.outputs > 1 else (tuple([to.extent[i] for i in range(to.ndim)]), to.code)
    if shape_of(g) != shape or g.code != code or g.buffer.device != to.device:
        raise GradientError(f"[{op}] expected a gradient of shape {shape}, {dtype_of(code)} on "
                            f"{device_name(to.device)}, got {shape_of(g)}, {dtype_of(g.code)} on "
                            f"{device_name(g.buffer.device)}")
    return 0


cdef dict functions = {}    # name -> Op


def record_function(str name, list inputs: list[Tensor], list outputs: list[Tensor],
                    function: Callable[[Any, list[Tensor | None]], list[Tensor | None]] | None,
                    tuple saved: tuple[Tensor, ...]) -> None:
    """Record an operation written in Python: function(node, gradients of the outputs) -> gradients of the inputs.

    `saved` are the tensors whose versions are checked before it is called.
    """
    for x in inputs + outputs:
        if not isinstance(x, Array):
            raise TypeError(f"[{name}] expected tensors, got {kind_of(x)}")
    if name not in functions:
        functions[name] = function_op(name, function_backward)
    track_many(functions[name], outputs, inputs, [], (function, *saved))


def attach(Array saved, Node node, int output) -> Tensor:
    """Put a saved output, kept without its node, back on the tape, so that backward itself can be differentiated."""
    cdef Array attached = alias(saved)
    attached.node, attached.needs_grad, attached.output = node, True, output
    return attached
