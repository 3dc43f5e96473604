"""Recorded writes into tensors: the tensor becomes the result of an operation."""
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF

from minigrad.engine.array cimport Array, alias, hold, overlaps_itself, shape_of, version
from minigrad.engine.tape cimport Node, current_run, is_leaf, retire_leaf, watched
from minigrad.engine.tape import GradientError


cdef int check_write(str op, Array x, bint recorded) except -1:
    """Refuse a write into x that would corrupt values, or, if it is to be recorded, one the tape cannot follow."""
    if overlaps_itself(x):
        raise ValueError(f"[{op}] a broadcast tensor of shape {shape_of(x)}, whose elements share memory, cannot be "
                         f"written in place: write into x.copy()")
    if not recorded:
        if watched:
            run = current_run()
            if run is not None:
                run.before_write(x)
        return 0
    if x.needs_grad and is_leaf(x):
        raise GradientError(f"[{op}] a leaf of shape {shape_of(x)} that requires grad cannot be written in place while "
                            f"operations are recorded: use minigrad.no_grad()")
    if x.buffer.references > 1:
        others = "another tensor" if x.buffer.references == 2 else f"{x.buffer.references - 1} other tensors"
        raise GradientError(f"[{op}] a tensor of shape {shape_of(x)} whose memory is shared with {others} (views of "
                            f"it, its base, or values saved for backward) cannot be written in place while its "
                            f"gradient is recorded: write out of place, or copy first")
    return 0


def note_write(str op, Array x: Tensor) -> None:
    """Refuse a write that would corrupt x, and count it before code other than the kernels writes to its memory."""
    check_write(op, x, False)
    x.buffer.version += 1


cdef Array before_write(Array x):
    """x as it is before a recorded write: its memory and its history in another tensor."""
    cdef Array old = alias(x)
    old.node, old.needs_grad, old.output = x.node, x.needs_grad, x.output
    return old


cdef int become(Array x, Array old, Array result) except -1:
    """Finish a recorded write: x becomes `result`, whose memory nobody else holds, with its history.

    `old` is what x was before. Nodes that the result depends on and that saved x save `old` instead: its values were
    not overwritten, and a node that x depends on must not hold x, which would be a cycle that nothing frees.
    """
    if x.savers and result.node is not None:
        replace_saved(<Node>result.node, x, old)
    retire_leaf(x)
    hold(x, result)
    x.node, x.needs_grad, x.output = result.node, result.needs_grad, result.output
    return 0


cdef int replace_saved(Node last, Array x, Array old) except -1:
    """Let `last` and the nodes that it depends on save `old` where they have saved x.

    What x depended on before need not be searched: no node can save x before x exists, and earlier writes have
    covered the rest. Otherwise a loop of writes to a tensor that others have saved would take quadratic time.
    """
    cdef Node node
    cdef int i
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
                node.versions += version(old) - version(x)
                Py_INCREF(old)
                node.slots[i].value = <PyObject*>old
                Py_DECREF(x)
                x.savers -= 1
                old.savers += 1
            if node.slots[i].edge != NULL:
                stack.append(<Node>node.slots[i].edge)
    return 0
