"""Windows of a tensor: slices, which are views, and their adjoint, a placement into zeros."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty, shape_of, view
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.listener cimport listeners
from minigrad.engine.memory.shapes cimport MAX_NDIM, parse_shape
from minigrad.engine.ops.arguments cimport many_axes, operand
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD


# A window has (start, step, length, keep) for each axis of x; an axis with keep = False (an integer index) is dropped.

cdef Array window(Array x, list spec):
    """The view of x through a window; not recorded."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef char* data = x.data
    cdef int i = 0, n = 0
    for start, stride, length, keep in spec:
        data += <int64_t>start * x.step[i]
        if keep:
            extent[n] = length
            step[n] = <int64_t>stride * x.step[i]
            n += 1
        i += 1
    return view(x, n, extent, step, data)


cdef Op slice_op = operation("slice", slice_backward, "y = a window of x", "dx = g in that window, 0 elsewhere")
cdef int slice_backward(Node node, Array g) except -1:
    cdef Array into
    spec, shape = node.extra
    if recording() or not node.can_accumulate(0):
        return node.send(0, place_window(g, spec, shape))
    # x[0], x[1], ... of one x: add each into x's gradient in place instead of adding tensors that are nearly all zeros
    into = window(node.accumulator(0), spec)
    backend(g).binary(ADD, into, g, into)
    return 0


cdef Array take_window(Array x, list spec):
    cdef Array out = window(x, spec)
    if listeners or (recording() and x.needs_grad):
        track(slice_op, out, x, None, None, (spec, shape_of(x)))
    return out


cdef Op place_op = operation("place", place_backward, "y = x in a window, 0 elsewhere", "dx = that window of g")
cdef int place_backward(Node node, Array g) except -1:
    return node.send(0, take_window(g, <list>node.extra))


cdef Array place_window(Array g, list spec, tuple shape):
    """Zeros of a shape, with g in a window of them."""
    cdef Array out = zeros(shape, g.code, g.buffer.device)
    backend(g).copy(g, window(out, spec))
    track(place_op, out, g, None, None, spec)
    return out


cdef Array zeros(tuple shape, int code, int device):
    cdef int64_t[MAX_NDIM] extent
    cdef Array out = empty(code, parse_shape(shape, extent), extent, device)
    backend(out).fill(out, 0)
    return out


cpdef Array flip(x: TensorLike, axis: int | Sequence[int] | None = None):
    """x with the order of its elements reversed along the axes (None: all); a view.

    Examples
    --------
    >>> mg.flip(mg.arange(3))
    tensor([2, 1, 0])
    """
    cdef Call _call = begin("flip")
    cdef Array a = operand("flip", x)
    cdef list turned = many_axes("flip", axis, a.ndim_), spec = []
    cdef int64_t length
    cdef int k
    for k in range(a.ndim_):
        length = a.extent[k]
        if k in turned and length > 0:
            spec.append((length - 1, -1, length, True))
        else:
            spec.append((0, 1, length, True))
    return take_window(a, spec)
