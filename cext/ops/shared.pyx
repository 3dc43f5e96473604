"""Recorded writes to memory that several tensors share: a tensor, its views and their views.

The memory is written in place. The tensor written becomes the result of an operation, and each other tensor over the
memory becomes the result of `overlay`: what it was, with the elements written taken from the tensor written. So
a view need not know its base, which may be gone, and a base need not know its views.

What backward has saved keeps its values: tensors that only nodes hold move to memory of their own before the write. A
tensor that the user holds too has the new values, and an operation that saved it before raises an error in backward,
unless the write depends on it (`replace_saved`).
"""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, alias, same_shape, shape_of, view
from minigrad.engine.memory.dtype cimport BOOL, itemsize
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.layout cimport copy_array, sum_to
from minigrad.engine.ops.logic cimport where
from minigrad.engine.ops.slices cimport zeros
from minigrad.engine.tape.in_place cimport keep_saved, shares_nothing, replace, take_history, note_unrecorded_write
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track


# ── layouts of memory ─────────────────────────────────────────────────────────────────────────────
# A place is (first element, shape, steps) of a tensor in a memory of some elements, all counted in elements.

cdef tuple place_of(Array x, char* origin):
    """The place of x in the memory that begins at `origin`."""
    cdef int64_t width = itemsize(x.code)
    return (x.data - origin) // width, shape_of(x), tuple([x.step[i] // width for i in range(x.ndim_)])


cdef tuple reach(tuple place):
    """The first element of a place, and the one after its last."""
    first, shape, steps = place
    reaches = [(n - 1) * step for n, step in zip(shape, steps)]
    return first + sum([r for r in reaches if r < 0]), first + sum([r for r in reaches if r > 0]) + 1


cdef tuple move_place(tuple place, int64_t by):
    return place[0] + by, place[1], place[2]


cdef Array window(Array memory, tuple place):
    """The elements of a memory, a packed vector, at a place; not recorded."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef int64_t width = itemsize(memory.code)
    cdef int i = 0
    for n, stride in zip(place[1], place[2]):
        extent[i], step[i] = n, stride * width
        i += 1
    return view(memory, i, extent, step, memory.data + <int64_t>place[0] * width)


cdef Op look_op = operation("look", look_backward, "y = the elements of the memory x at a place",
                            "dx = g at that place, 0 elsewhere")
cdef int look_backward(Node node, Array g) except -1:
    place, count = node.extra
    return node.send(0, spread(g, place, count))


cdef Array look(Array memory, tuple place):
    """The elements of a memory at a place."""
    cdef Array packed = memory if memory.packed else copy_array(memory)
    cdef Array out = window(packed, place)
    track(look_op, out, packed, None, None, (place, packed.count))
    return out


cdef Op spread_op = operation("spread", spread_backward, "y = a memory with x at a place, 0 elsewhere",
                              "dx = the elements of g at that place")
cdef int spread_backward(Node node, Array g) except -1:
    return node.send(0, look(g, <tuple>node.extra))


cdef Array spread(Array g, tuple place, int64_t count):
    """A memory of `count` elements with g at a place, and zeros elsewhere; elements of g at one element are added."""
    first, shape, steps = place
    cdef tuple distinct = tuple([1 if step == 0 else n for n, step in zip(shape, steps)])
    cdef Array part = sum_to(g, distinct)
    cdef Array out = zeros((count,), g.code, g.buffer.device)
    place = first, distinct, steps
    backend(out).copy(part, window(out, place))
    track(spread_op, out, part, None, None, place)
    return out


cdef Op overlay_op = operation("overlay", overlay_backward, "y = x, with what was written to v taken from v",
                               "dx = g, 0 where v was written\ndv = g where v was written, 0 elsewhere", "", "x, v")
cdef int overlay_backward(Node node, Array g) except -1:
    place, over, written, count = node.extra
    cdef Array mask = zeros((count,), BOOL, g.buffer.device), part = window(mask, written)
    backend(part).fill(part, 1)
    mask = window(mask, place)
    if node.needs(0):
        node.send(0, where(mask, 0, g))
    if node.needs(1):
        node.send(1, look(spread(where(mask, g, 0), place, count), over))
    return 0


cdef int overlay(Array x, Array old, Array over, Array region) except -1:
    """Let x, which was `old`, be the result of a write to a region of another tensor over its memory."""
    cdef list places = [place_of(y, x.data) for y in (x, over, region)]
    first = min([reach(place)[0] for place in places])
    count = max([reach(place)[1] for place in places]) - first
    cdef Array result = alias(x)
    track(overlay_op, result, old, over, None, (*[move_place(place, -first) for place in places], count))
    return take_history(x, old, result)


# ── writes ────────────────────────────────────────────────────────────────────────────────────────

cdef int become(Array x, Array old, Array result) except -1:
    """Finish a recorded write of all elements: x, which was `old`, becomes `result`."""
    if shares_nothing(x):
        return replace(x, old, result)
    note_unrecorded_write(x)
    cdef list changed = keep_saved(x, old, x, <Node>result.node)
    if result.data != x.data:
        backend(x).copy(result, x)
    return finish_write(x, old, result, x, changed)


cdef int finish_write(Array x, Array old, Array result, Array region, list changed) except -1:
    """Finish a recorded write: give x the history of `result`, and the tensors that `keep_saved` returned theirs."""
    cdef Array other, before
    take_history(x, old, result)
    for other, before in changed:
        overlay(other, before, x, region)
    return 0


cdef bint is_written(Array x, Array target, Array v):
    """Whether x has v in `target`, a window of it, by a write to v, as after ``v = x[0]; v *= 2``."""
    cdef int i
    if x.node is None or v.node is None or v.data != target.data or v.buffer != x.buffer or not same_shape(v, target):
        return False
    for i in range(v.ndim_):
        if v.step[i] != target.step[i]:
            return False
    cdef Node node = <Node>x.node
    return node.op is overlay_op and <void*>node.slots[1].edge == <void*>v.node and node.slots[1].output == v.output
