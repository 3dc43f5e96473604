"""Recorded writes into tensors: the tensor becomes the result of an operation.

`ops/shared.pyx` has what follows for tensors that share its memory.
"""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t

from weakref import ref

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport (
    Array, alias, empty, hold, join_ring, leave_ring, point, shape_of, version, view,
)
from minigrad.engine.memory.listener cimport current_listener, listeners
from minigrad.engine.memory.overlap cimport may_share_memory, overlaps_itself
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.tape.node cimport Node
from minigrad.engine.tape.record cimport gradient_node, is_leaf, retire_leaf
from minigrad.engine.tape.hooks import add_hook
from minigrad.engine.tape.node import GradientError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)


# ── which tensors share memory ────────────────────────────────────────────────────────────────────

cdef int find_sharers(Array x, list held, list saved) except -1:
    """List the other tensors in x's ring that have its memory: those that users hold, and those that nodes alone hold.

    Both in one pass, because a list holds what is in it.
    """
    cdef PyObject* other = x.right
    while other != NULL and other != <PyObject*>x:
        if (<Array>other).buffer == x.buffer:
            (saved if Py_REFCNT(other) == (<Array>other).savers else held).append(<Array>other)
        other = (<Array>other).right
    return 0


cdef bint shares_nothing(Array x):
    """Whether only nodes hold x's memory, besides x and the alias that `before_write` has made."""
    cdef list held = [], saved = []
    find_sharers(x, held, saved)
    return x.buffer.references - <int64_t>len(saved) == 2


# ── writes ────────────────────────────────────────────────────────────────────────────────────────

cdef int check_write(str op, Array x, bint recorded) except -1:
    """Refuse a write into x that would corrupt values, or, if it is to be recorded, one the tape cannot follow."""
    if overlaps_itself(x):
        raise ValueError(f"[{op}] a broadcast tensor of shape {shape_of(x)}, whose elements share memory, cannot be "
                         f"written in place: write into x.copy()")
    if not recorded:
        return note_unrecorded_write(x)
    if x.needs_grad and is_leaf(x):
        raise GradientError(f"[{op}] a leaf of shape {shape_of(x)} that requires grad cannot be written in place while "
                            f"operations are recorded: use minigrad.no_grad()")
    cdef list held = [x]
    find_sharers(x, held, [])
    listener = <object>current_listener() if listeners else None
    for other in held:
        if listener is not None:
            listener.before_recorded_write(other)
        if other is not x and (<Array>other).needs_grad and is_leaf(<Array>other) and may_share_memory(<Array>other, x):
            raise GradientError(f"[{op}] a tensor of shape {shape_of(x)} that shares memory with a leaf of shape "
                                f"{shape_of(<Array>other)} that requires grad cannot be written in place while "
                                f"operations are recorded: use minigrad.no_grad(), or write into a copy")
    return 0


cdef int note_unrecorded_write(Array x) except -1:
    """Tell the listener of this thread, if there is one, that memory of x is about to be written."""
    if listeners and current_listener() is not None:
        (<object>current_listener()).before_write(x)
    return 0


def note_write(str op, Array x: Tensor) -> None:
    """Refuse a write that would corrupt x, and count it before code other than the kernels writes to its memory."""
    check_write(op, x, False)
    x.buffer.version += 1


cdef Array before_write(Array x):
    """x as it is before a recorded write: its memory and its history in another tensor."""
    cdef Array old = alias(x)
    join_ring(old, x)
    old.node, old.needs_grad, old.output = x.node, x.needs_grad, x.output
    return old


cdef int take_history(Array x, Array old, Array result) except -1:
    """Let x, which was `old`, have the history of `result`."""
    retire_leaf(x)
    x.node, x.needs_grad, x.output = result.node, result.needs_grad, result.output
    if old.node is not None and x.node is not None:
        follow(x, <Node>old.node, <Node>x.node)
    return 0


cdef int replace(Array x, Array old, Array result) except -1:
    """Finish a recorded write to a tensor whose memory it does not share: x becomes `result` and takes its memory.

    `old` is what x was before. Nodes that the result depends on and that saved x save `old` instead: its values were
    not overwritten, and a node that x depends on must not hold x, which would be a cycle that nothing frees.
    """
    if x.savers and result.node is not None:
        replace_saved(<Node>result.node, x, old)
    leave_ring(x)
    join_ring(x, result)
    hold(x, result)
    return take_history(x, old, result)


cdef list keep_saved(Array x, Array old, Array region, Node last):
    """Prepare a recorded write to `region`, in the memory of x, whose node is `last`: what nodes saved stays as it is.

    Returns (tensor, what it was before) for each other tensor that the write changes and that has x's history. Tensors
    whose elements it does not change keep their version.
    """
    cdef list changed = [], held = [], saved = []
    cdef Array other, before
    find_sharers(x, held, saved)
    if x.savers and last is not None:
        replace_saved(last, x, old)
    if old.savers:
        set_apart(old)
    for other in saved:
        if may_share_memory(other, region):
            set_apart(other)
        else:
            other.epoch -= 1
    for other in held:
        if other is old:
            continue
        if not may_share_memory(other, region):
            other.epoch -= 1
            continue
        before = before_write(other)
        if other.savers and last is not None:
            replace_saved(last, other, before)
            if before.savers:
                set_apart(before)
        leave_ring(before)
        changed.append((other, before))
    x.buffer.version += 1
    return changed


cdef int set_apart(Array x) except -1:
    """Give x, which is saved for backward, a copy of its memory; its version stays. A broadcast axis stays one."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef int i
    for i in range(x.ndim_):
        extent[i] = x.extent[i] if x.step[i] else 1
    cdef Array source = view(x, x.ndim_, extent, x.step, x.data), plain
    plain = empty(x.code, x.ndim_, extent, x.buffer.device)
    backend(x).copy(source, plain)
    for i in range(x.ndim_):
        step[i] = plain.step[i] if x.step[i] else 0
    leave_ring(source)
    leave_ring(x)
    x.epoch += x.buffer.version - plain.buffer.version
    return point(x, view(plain, x.ndim_, x.extent, step, plain.data))


cdef int replace_saved(Node last, Array x, Array old) except -1:
    """Let `last` and the nodes that it depends on save `old` where they have saved x.

    What x depended on before need not be searched: no node can save x before x exists, and earlier writes have
    covered the rest. Otherwise a loop of writes to a tensor that others have saved would take quadratic time.
    """
    cdef Node node
    cdef int i
    cdef int64_t change = version(old) - version(x)
    cdef set seen = set()
    cdef list stack = [last]
    if old.node is not None:
        seen.add((<Node>old.node).sequence)
    while stack and x.savers:
        node = stack.pop()
        if node.sequence < x.saved_since or node.sequence in seen:
            continue
        seen.add(node.sequence)
        for i in range(node.inputs):
            if node.slots[i].value == <PyObject*>x:
                Py_INCREF(old)
                node.slots[i].value = <PyObject*>old
                Py_DECREF(x)
                note_replaced(node, x, old, change)
            if node.slots[i].edge != NULL:
                stack.append(<Node>node.slots[i].edge)
        if node.extra is x:
            node.extra = old
            note_replaced(node, x, old, change)
        elif type(node.extra) is tuple and any([part is x for part in <tuple>node.extra]):
            for part in <tuple>node.extra:
                if part is x:
                    note_replaced(node, x, old, change)
            node.extra = tuple([old if part is x else part for part in <tuple>node.extra])
    return 0


cdef int note_replaced(Node node, Array x, Array old, int64_t change) except -1:
    node.versions += change
    x.savers -= 1
    old.savers += 1
    return 0


# ── retained gradients ────────────────────────────────────────────────────────────────────────────

class Retained:
    """The hook of `retain_grad`."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = ref(tensor)       # not the tensor, which holds the hook

    def __call__(self, g: Tensor) -> None:
        tensor = self.tensor()
        if tensor is not None:
            before = tensor.grad
            tensor.grad = g if before is None else before + g


def is_retaining(entry: tuple[int, Any]) -> bool:
    """Whether a hook, with the output it belongs to, is one of `retain_grad`."""
    return type(entry[1]) is Retained


cdef bint is_retained(object hook, Array x):
    """Whether a hook keeps the gradient of x."""
    return type(hook) is Retained and hook.tensor() is x


def retain_grad(Array x: Tensor) -> None:
    """Keep the gradient of a computed tensor in its ``grad``, as other hooks leave it, also after recorded writes."""
    cdef Node node = gradient_node(x)
    if node.hooks is None or not any([is_retained(hook, x) for _, hook in node.hooks]):
        add_hook(x, Retained(x))


cdef int follow(Array x, Node old, Node new) except -1:
    """Move what retains the gradient of x from the node that made it to the one that has replaced that."""
    cdef list moved = [] if old.hooks is None else [(x.output, hook) for _, hook in old.hooks if is_retained(hook, x)]
    if moved:
        old.hooks[:] = [entry for entry in old.hooks if not is_retained(entry[1], x)]
        new.hooks = moved if new.hooks is None else new.hooks + moved
    return 0
