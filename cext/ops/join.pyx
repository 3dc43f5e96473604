"""Joining tensors and taking them apart."""
from libc.stdint cimport int64_t

from minigrad.engine.array cimport MAX_NDIM, Array, check_same_device, empty, parse_shape, same_shape, shape_of, view
from minigrad.engine.backend cimport backend
from minigrad.engine.calls cimport Call, begin
from minigrad.engine.ops.arguments cimport integer, one_axis, operand, plain_axis
from minigrad.engine.ops.layout cimport cast, placed, reshape, sliced, zeros
from minigrad.engine.tape cimport Node, Op, operation, recording, track_many


cdef list span(Array x, int axis, int64_t start, int64_t stop, bint keep):
    """The window [start, stop) of one axis, which is dropped if keep is False."""
    cdef list spec = [(0, 1, x.extent[k], True) for k in range(x.ndim_)]
    spec[axis] = (start, 1, stop - start, keep)
    return spec


cdef Array part_of(Array x, int axis, int64_t start, int64_t stop, bint keep):
    """x through that window, as a view; not recorded."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef int i, n = 0
    for i in range(x.ndim_):
        if i != axis or keep:
            extent[n], step[n] = stop - start if i == axis else x.extent[i], x.step[i]
            n += 1
    return view(x, n, extent, step, x.data + start * x.step[axis])


cdef Op concat_op = operation("concat", join_backward, "y = x₀, x₁, … side by side along an axis",
                              "dxᵢ = the window of g that xᵢ is in y", "", "x…")
cdef Op stack_op = operation("stack", join_backward, "y = x₀, x₁, … along a new axis", "dxᵢ = gᵢ", "", "x…")


cdef int join_backward(Node node, Array g) except -1:
    axis, bounds, keep = node.extra
    cdef int i
    for i in range(node.inputs):
        if node.needs(i):
            node.send(i, sliced(g, span(g, axis, bounds[i], bounds[i + 1], keep)))
    return 0


cdef Array joined(Op op, list parts, int axis, bint keep):
    """The parts, of one dtype and device, joined along an axis; along a new one if keep is False."""
    cdef Call _call = begin(op)
    cdef Array first = <Array>parts[0], part, out
    cdef int64_t[MAX_NDIM] extent
    cdef list shape = list(shape_of(first)), bounds = [0]
    cdef int i
    for part in parts:
        bounds.append(bounds[-1] + (part.extent[axis] if keep else 1))
    if keep:
        shape.pop(axis)
    shape.insert(axis, bounds[-1])
    out = empty(first.code, parse_shape(shape, extent, op.name), extent, first.buffer.device)
    for i, part in enumerate(parts):
        backend(out).copy(part, part_of(out, axis, bounds[i], bounds[i + 1], keep))
    track_many(op, [out], parts, [], (axis, bounds, keep))
    return out


cdef Array concatenated(list parts, int axis):
    """The parts, of one dtype, device and number of axes, joined along an axis."""
    return joined(concat_op, parts, axis, True)


cdef list checked(str op, object tensors):
    """Operands of one dtype on one device."""
    if not hasattr(tensors, "__iter__"):
        raise TypeError(f"[{op}] expected a sequence of tensors, got {type(tensors).__name__}")
    cdef list parts = [operand(op, x) for x in tensors]
    cdef Array part
    cdef int code = 0
    if not parts:
        raise ValueError(f"[{op}] expected at least one tensor")
    for part in parts:
        check_same_device(op, <Array>parts[0], part)
        code = max(code, part.code)
    return [cast(<Array>part, code) for part in parts]


def concat(tensors: Iterable[TensorLike], axis: int | None = 0) -> Tensor:
    """The tensors joined along an axis; None flattens them first.

    Raises
    ------
    ValueError
        If there are none, or if their shapes differ along another axis.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.concat([mg.tensor([[1, 2]]), mg.tensor([[3, 4]])], axis=0)
    tensor([[1, 2],
            [3, 4]])
    """
    cdef Call _call = begin(concat_op)
    axis = plain_axis("concat", axis)
    parts = checked("concat", tensors)
    if axis is None:
        parts, axis = [reshape(part, -1) for part in parts], 0
    cdef Array first = <Array>parts[0], part
    cdef int k = one_axis("concat", axis, first.ndim_), i
    for part in parts:
        fits = part.ndim_ == first.ndim_
        for i in range(first.ndim_ if fits else 0):
            fits = fits and (i == k or part.extent[i] == first.extent[i])
        if not fits:
            raise ValueError(f"[concat] expected shapes that agree except along axis {k}, got "
                             f"{', '.join([str(p.shape) for p in parts])}")
    return concatenated(parts, k)


def stack(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.stack([mg.tensor([1, 2]), mg.tensor([3, 4])], axis=1)
    tensor([[1, 3],
            [2, 4]])
    """
    cdef Call _call = begin(stack_op)
    axis = plain_axis("stack", axis)
    parts = checked("stack", tensors)
    for part in parts:
        if not same_shape(<Array>part, <Array>parts[0]):
            raise ValueError(f"[stack] expected equal shapes, got {', '.join([str(p.shape) for p in parts])}")
    cdef int k = one_axis("stack", axis, (<Array>parts[0]).ndim_ + 1)
    return joined(stack_op, parts, k, False)


cdef Op split_op = operation("split", split_backward, "y₀, y₁, … = windows of x along an axis",
                             "dx = g₀, g₁, … side by side", "", "x", "", "y…")


cdef int split_backward(Node node, Array g) except -1:
    axis, bounds, keep, shape = node.extra
    cdef Array total = zeros(shape, node.code, node.device), piece
    cdef int i
    for i in range(node.outputs):
        piece = node.gradient(i)
        if piece is None:
            continue
        if recording():
            node.send(0, placed(piece, span(total, axis, bounds[i], bounds[i + 1], keep), shape))
        else:
            backend(total).copy(piece, part_of(total, axis, bounds[i], bounds[i + 1], keep))
    return 0 if recording() else node.send(0, total)


cdef list pieces(Array x, int axis, list bounds, bint keep):
    """Views of x between the bounds along an axis, which is dropped if keep is False."""
    cdef list outs = [part_of(x, axis, bounds[i], bounds[i + 1], keep) for i in range(len(bounds) - 1)]
    if outs and x.needs_grad:
        if len(outs) == 1:
            return [sliced(x, span(x, axis, bounds[0], bounds[1], keep))]
        track_many(split_op, outs, [x], [], (axis, bounds, keep, shape_of(x)))
    return outs


cdef int check_pieces(str op, Array x, object number) except -1:
    """Refuse more pieces than elements unless there are few: an axis of an empty x may have any length."""
    if number > max(x.count, 1 << 16):
        raise ValueError(f"[{op}] expected at most {max(x.count, 1 << 16)} pieces of a tensor of shape {shape_of(x)}, "
                         f"got {number}")
    return 0


def split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """The pieces of x along an axis, as views: equal sections, or pieces that begin at the given indices.

    Raises
    ------
    ValueError
        If the axis does not divide into that many sections, or for more than 65,536 sections of fewer elements.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.split(mg.arange(5), [2])
    [tensor([0, 1]), tensor([2, 3, 4])]
    """
    cdef Call _call = begin(split_op)
    axis = plain_axis("split", axis)
    cdef Array a = operand("split", x)
    cdef list cuts = None
    if hasattr(indices_or_sections, "__index__"):
        sections = integer("split", "number of sections", indices_or_sections)
    else:
        cuts = []
        for cut in indices_or_sections if hasattr(indices_or_sections, "__iter__") else [indices_or_sections]:
            if not hasattr(cut, "__index__"):
                raise TypeError(f"[split] expected integers, got {cut!r}")
            cuts.append(integer("split", "index", cut))
            check_pieces("split", a, len(cuts) + 1)     # here, as an iterator may be endless
    cdef int k = one_axis("split", axis, a.ndim_)
    cdef int64_t n = a.extent[k]
    if cuts is None:
        if sections < 1 or n % sections:
            raise ValueError(f"[split] an axis of length {n} does not divide into {sections} equal sections")
        check_pieces("split", a, sections)
        bounds = [i * (n // sections) for i in range(sections + 1)]
    else:
        bounds = [0, *[min(max(cut + n if cut < 0 else cut, 0), n) for cut in cuts], n]
        if bounds != sorted(bounds):
            raise ValueError(f"[split] expected ascending indices, got {cuts} for an axis of length {n}")
    return pieces(a, k, bounds, True)


def unstack(x: TensorLike, axis: int = 0) -> tuple[Tensor, ...]:
    """A tuple of the slices of x along an axis, as views: the inverse of `stack`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.unstack(mg.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    cdef Call _call = begin("unstack")
    axis = plain_axis("unstack", axis)
    cdef Array a = operand("unstack", x)
    cdef int k = one_axis("unstack", axis, a.ndim_)
    check_pieces("unstack", a, a.extent[k])
    return tuple(pieces(a, k, list(range(a.extent[k] + 1)), False))
