"""The backward pass, which computes gradients.

A pass visits the reachable nodes in descending sequence order: a node's number is larger than its inputs', so each
node is visited after everything that was computed from it, when its gradient is complete. Nothing here recurses.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libcpp.algorithm cimport is_sorted, reverse, sort
from libcpp.vector cimport vector

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty, empty_as, same_shape, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport dtype_of
from minigrad.engine.memory.listener cimport Listener, current_listener
from minigrad.engine.memory.refusals cimport kind_of
from minigrad.engine.memory.shapes cimport device_name
from minigrad.engine.tape.hooks cimport AFTER
from minigrad.engine.tape.node cimport (
    Node, Pass, Visit, add_to, begin_pass, bury, end_pass, find, node_at, recording, replace, running_pass,
    saved_shapes, set_recording,
)
from minigrad.engine.tape.record cimport accumulate, gradient_node, leaf_op, owned
from minigrad.engine.tape.in_place import is_retaining
from minigrad.engine.tape.node import GradientError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


# ── the pass ──────────────────────────────────────────────────────────────────────────────────────

cdef int add_node(Pass current, Node node) except -1:
    """Add a node to the pass, unless it is there."""
    cdef Visit found
    if node.found_by == current.number:
        return 0
    node.found_by = current.number
    node.passes += 1
    Py_INCREF(node)
    found.sequence, found.node = node.sequence, <PyObject*>node
    found.gradient = NULL
    found.wanted = found.exclusive = found.end = False
    current.visits.push_back(found)
    return 0


cdef int collect(Pass current, list roots, int64_t floor) except -1:
    """Add every node that a root depends on, and sort them.

    The search does not go past nodes that the pass has already, and those whose number is `floor` or less: `floor` is
    the number of the oldest target, on which nothing older can depend. Once the roots have their nodes, this allocates
    no object, so no finalizer runs another pass in the meantime.
    """
    cdef list nodes = [gradient_node(root) for root in roots]
    cdef Node node
    cdef size_t k = current.visits.size()
    cdef int i
    for node in nodes:
        add_node(current, node)
    while k < current.visits.size():
        node = node_at(current, k)
        k += 1
        if node.sequence <= floor:
            continue
        if node.freed:
            raise freed_error(node)
        for i in range(node.inputs):
            if node.slots[i].edge != NULL:
                add_node(current, <Node>node.slots[i].edge)
    reverse(current.visits.begin(), current.visits.end())     # the search tends to find newer nodes first
    if not is_sorted(current.visits.begin(), current.visits.end()):
        sort(current.visits.begin(), current.visits.end())
    for k in range(current.visits.size()):
        node_at(current, k).place = k
    return 0


cdef object freed_error(Node node):
    """The error for a node that can no longer be differentiated."""
    if node.op is not leaf_op:
        return GradientError(f"[{node.op.name}] the tape from here on was freed by an earlier backward: "
                             f"pass retain_graph=True to that one{node.recorded_at()}")
    shape = tuple([node.extent[i] for i in range(node.ndim)])
    return GradientError(f"[backward] a leaf of shape {shape} became another tensor (by set_, or by its module's to) "
                         f"since this was recorded: run the forward pass again")


cdef int mark(Pass current, dict targets) except -1:
    """Mark the nodes whose gradient is wanted: all, or those that lead to a node of `targets`."""
    cdef Node node
    cdef Visit* found
    cdef size_t k
    cdef int i
    for k in range(current.visits.size()):         # inputs first
        if targets is None:
            current.visits[k].wanted = True
            continue
        node = node_at(current, k)
        current.visits[k].wanted = node in targets
        for i in range(0 if current.visits[k].wanted else node.inputs):
            found = current.visit_of(node.slots[i].edge)
            if found != NULL and found.wanted:
                current.visits[k].wanted = True
                break
    return 0


cdef list reaches(Pass current, list roots, list targets, dict positions):
    """Whether each target is a root, or something that a root depends on."""
    cdef Node node
    cdef Array x
    cdef size_t k
    cdef int i
    cdef set used = set()       # (node, output): of several outputs, some may be unused
    cdef list found = []
    if any([gradient_node(x).outputs > 1 for x in targets]):
        for x in roots:
            used.add((gradient_node(x), x.output))
        for k in range(current.visits.size()):
            node = node_at(current, k)
            for i in range(node.inputs):
                if node.edge(i) in positions:
                    used.add((node.edge(i), node.slots[i].output))
    for x in targets:
        node = gradient_node(x)
        found.append(find(current, node) != NULL and (node.outputs == 1 or (node, x.output) in used))
    return found


cdef vector[size_t] order_of(Pass current):
    """The places of the nodes in the order of visits, the last visit first; empty if that is the order of the places.

    A leaf with hooks is visited as soon as its gradient is complete: after the oldest node that uses it. Other leaves
    come at the end, where their order costs nothing.
    """
    cdef vector[size_t] order
    cdef Node node
    cdef Visit* found
    cdef size_t k, leaves = 0, place
    cdef int i
    cdef set waiting = set()        # the places of leaves with hooks
    while leaves < current.visits.size() and current.visits[leaves].sequence < 0:
        if node_at(current, leaves).hooks is None:
            order.push_back(leaves)
        else:
            waiting.add(leaves)
        leaves += 1
    if not waiting:
        order.clear()
        return order
    for k in range(leaves, current.visits.size()):         # the oldest user of a leaf comes first
        node = node_at(current, k)
        for i in range(node.inputs):
            found = current.visit_of(node.slots[i].edge)
            place = leaves if found == NULL else found - &current.visits[0]
            if place in waiting:
                waiting.remove(place)
                order.push_back(place)
        order.push_back(k)
    for root in waiting:            # nothing uses a leaf that is a root alone
        order.push_back(root)
    return order


cdef list run(Pass current, list targets, dict positions, bint retain):
    """Visit all nodes, the newest first; return the gradients of the targets, which `positions` lists by node."""
    cdef vector[size_t] order = order_of(current)
    cdef list found = [None] * len(targets) if targets is not None else None
    cdef size_t left = current.visits.size()
    cdef Visit* here
    cdef Node node
    cdef Array g
    cdef bint arrived
    cdef Listener listener
    cdef Call call
    while left > 0:
        left -= 1
        here = &current.visits[left if order.empty() else order[left]]
        node = <Node>here.node
        if here.end:
            continue
        if here.wanted and here.gradient != NULL and node.hooks is not None:
            call.op = NULL          # the kernels of a hook are attributed to the hook's operations
            run_hooks(node, here)
        listener = current_listener() if here.wanted else None
        if listener is not None:
            (<object>listener).entered(node.sequence, node.op.name, gradients_of(here))
        call.cover(begin(node.op), True)
        arrived = here.wanted and here.gradient != NULL
        g = taken(here) if arrived else None
        if arrived and positions is not None:
            deliver(here, g, found, targets, positions)
        elif arrived and node.leaf != NULL and node.op is leaf_op:      # it has no inputs that it leads on to
            accumulate(node, g)
            if node.hooks is not None:
                call.op = NULL
                call_grad_hooks(node)
        if leads_on(node):
            if arrived:
                if node.current_versions() != node.versions:
                    raise GradientError(f"[{node.op.name}] a tensor saved for backward was written in place "
                                        f"afterwards: saved shapes {saved_shapes(node)}{node.recorded_at()}")
                node.op.differentiate(node, g)
            if not retain and node.passes == 1:         # no other pass has yet to visit it
                node.freed = True
                node.drop()
        g = None
        if listener is not None:
            (<object>listener).left(node.sequence)
        current.leave(here)
        bury()
    return found


cdef Array taken(Visit* here):
    """Take the gradient out of a visit and return it; None for a node with several outputs, whose visit keeps them."""
    if (<Node>here.node).outputs > 1:
        return None
    g = <Array>here.gradient
    here.gradient = NULL
    Py_DECREF(g)
    return g


cdef tuple gradients_of(Visit* here):
    """The gradient of each output of a node, None where none arrived."""
    if here.gradient == NULL:
        return (None,) * (<Node>here.node).outputs
    return (<Array>here.gradient,) if (<Node>here.node).outputs == 1 else tuple(<list>here.gradient)


cdef bint leads_on(Node node) noexcept:
    """Whether the gradient of some input of the node is wanted."""
    cdef int i
    for i in range(node.inputs):
        if node.needs(i):
            return True
    return False


cdef int deliver(Visit* here, Array g, list found, list targets, dict positions) except -1:
    """Hand the complete gradient of a node to the targets that wait for it."""
    cdef Node node = <Node>here.node
    cdef Array target, part
    cdef bint alone = node.outputs == 1 and Py_REFCNT(<PyObject*>g) == 1
    for k in positions.get(node, ()):
        target = targets[k]
        part = g if node.outputs == 1 else (<list>here.gradient)[target.output]
        if part is not None:
            found[k] = owned(part, alone)
            alone = False           # the second of two equal targets gets a copy
    return 0


cdef int call_grad_hooks(Node node) except -1:
    """Call the hooks that wait for a leaf's grad, which is now complete."""
    leaf = <object>node.leaf        # a hook may drop the last other reference to it
    for output, hook in list(node.hooks):
        if output == AFTER:
            hook(leaf)
    return 0


cdef list pull_back(list roots, list grads, list targets, bint retain, bint create, str op=None,
                    bint allow_unused=True):
    """Send `grads` back from `roots`; return the gradients of `targets` or, if that is None, add to every leaf's grad.

    A gradient is None if none arrived. With `op`, it is zeros instead if a root depends on the target; if none does,
    it is None or, unless `allow_unused`, that operation raises an error.
    """
    cdef Pass current = begin_pass()
    cdef dict positions = None      # in `targets`, by node
    cdef list reached = None, found
    cdef int64_t floor = INT64_MIN
    cdef Node node
    cdef Array x, g
    before = recording()
    try:
        if targets is not None:
            positions = {}
            floor = INT64_MAX
            for k, x in enumerate(targets):
                node = gradient_node(x)
                positions.setdefault(node, []).append(k)
                floor = min(floor, node.sequence)
        collect(current, roots, floor)
        mark(current, positions)
        if op is not None and targets is not None:
            reached = reaches(current, roots, targets, positions)
            if not allow_unused and not all(reached):
                k = reached.index(False)
                raise GradientError(f"[{op}] expected tensors that y depends on, got one that it does not use, xs[{k}] "
                                    f"of shape {targets[k].shape}: pass allow_unused=True to get None for it")
        set_recording(create)
        for x, g in zip(roots, grads):
            add_to(find(current, gradient_node(x)), x.output, g)
        g = None
        found = run(current, targets, positions, retain)
        if reached is not None:
            found = [zeros_as(x) if y is None and is_used else y for x, y, is_used in zip(targets, found, reached)]
    finally:
        set_recording(before)
        end_pass(current)
    if current.callbacks is not None:
        call_back(current)
    return found


cdef Array zeros_as(Array x):
    cdef Array zeros = empty_as(x, x.code)
    backend(zeros).fill(zeros, 0)
    return zeros


cdef int call_back(Pass ended) except -1:
    """Call what waits for the end of a pass; in an inner pass, leave it to the outer one."""
    cdef Pass outer
    if ended.outer == NULL:
        for callback in ended.callbacks:
            callback()
        return 0
    outer = <Pass>ended.outer
    outer.callbacks = {**(outer.callbacks or {}), **ended.callbacks}
    return 0


cdef int continue_pass(Node node, list outs, Array g) except -1:
    """Send the gradients of a second computation of the outputs of `node` to its inputs.

    This is an inner pass, which ends at the inputs of `node`. For its duration it takes over the gradients that the
    running pass has collected there, so that it adds to them in the order in which that one would have added them.
    """
    cdef list grads = [g] if node.outputs == 1 else [node.gradient(output) for output in range(node.outputs)]
    cdef list arrived = [(y, d) for y, d in zip(outs, grads) if d is not None]
    cdef Pass outer = running_pass(), inner = begin_pass()
    cdef Visit* here
    cdef Visit* there
    cdef dict wanted = {}
    cdef Array y
    cdef int i
    cdef size_t k, ends
    try:
        for i in range(node.inputs):
            if node.edge(i) is not None:
                add_node(inner, node.edge(i))
        ends = inner.visits.size()
        for k in range(ends):
            inner.visits[k].end = True
            there = find(outer, node_at(inner, k))
            if there != NULL and there.wanted:
                wanted[node_at(inner, k)] = ()      # a node of `positions`, for which `run` returns nothing
                inner.visits[k].swap_gradients(there[0])
        collect(inner, [y for y, _ in arrived], node.sequence)
        mark(inner, wanted)
        for y, d in arrived:
            add_to(find(inner, gradient_node(y)), y.output, <Array>d)
        run(inner, [], wanted, recording())
        for k in range(inner.visits.size()):
            here = &inner.visits[k]
            if here.end and here.wanted:
                here.swap_gradients(outer.visit_of(here.node)[0])
    finally:
        end_pass(inner)
    if inner.callbacks is not None:
        call_back(inner)
    return 0


cdef int composed_backward(Node node, object composition, list inputs, Array g) except -1:
    """Send the gradients of a fused operation through its composition, so that they can be differentiated again.

    An operation with several outputs has a composition with as many.
    """
    outs = composition(*inputs)
    return continue_pass(node, [outs] if node.outputs == 1 else list(outs), g)


cdef int run_hooks(Node node, Visit* here) except -1:
    """Call the hooks of a node with the gradient that has arrived, which they may replace."""
    cdef Array given, before, after
    cdef bint alone = Py_REFCNT(here.gradient) == 1
    if current_listener() is not None:
        (<object>current_listener()).calls_hook()
    for output, hook in sorted(node.hooks, key=is_retaining):      # the retaining ones keep what the others return
        if output == AFTER:
            continue
        given = <Array>here.gradient if node.outputs == 1 else (<list>here.gradient)[output]
        if given is None:
            continue
        before = owned(given, alone and node.outputs == 1)      # a hook may write to its argument
        given = None
        result = hook(before)
        after = before if result is None else result if isinstance(result, Array) else None
        if after is None or not same_shape(after, before) or after.code != before.code \
                or after.buffer.device != before.buffer.device:
            raise GradientError(f"[hook] expected None or a gradient of shape {shape_of(before)} and {before.dtype} on "
                                f"{before.device}, got {getattr(result, 'shape', type(result).__name__)} "
                                f"{getattr(result, 'dtype', '')}")
        if node.outputs > 1:
            (<list>here.gradient)[output] = after
        elif after is not <Array>here.gradient:
            replace(here, after)
    return 0


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
    if targets is None and current_listener() is not None:
        (<object>current_listener()).before_backward()
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
            backend(root).fill(g, 1)
        else:
            check_gradient(op, gradient_node(root), g, root.output)
        seeds.append(g)
    if targets is not None:
        for x in targets:
            root = <Array?>x
            if not root.needs_grad:
                raise GradientError(f"[{op}] a tensor of shape {shape_of(root)} does not require grad")
    return pull_back(roots, seeds, targets, retain_graph or create_graph, create_graph, op, allow_unused)


cdef int check_gradient(str op, Node to, object grad, int output) except -1:
    """Check that a gradient passed in by the user matches the tensor it belongs to."""
    if not isinstance(grad, Array):
        raise TypeError(f"[{op}] expected a tensor as the gradient, got {kind_of(grad)}")
    cdef Array g = grad
    shape, code = to.layouts[output] if to.outputs > 1 else (tuple([to.extent[i] for i in range(to.ndim)]), to.code)
    if shape_of(g) != shape or g.code != code or g.buffer.device != to.device:
        raise GradientError(f"[{op}] expected a gradient of shape {shape}, {dtype_of(code)} on "
                            f"{device_name(to.device)}, got {shape_of(g)}, {dtype_of(g.code)} on "
                            f"{device_name(g.buffer.device)}")
    return 0
