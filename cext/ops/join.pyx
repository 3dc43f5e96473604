"""Joining tensors and taking them apart."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty, same_shape, shape_of, view
from minigrad.engine.memory.calls cimport Call, begin, is_capturing
from minigrad.engine.memory.dtype cimport is_float
from minigrad.engine.memory.listener cimport listeners
from minigrad.engine.memory.shapes cimport MAX_NDIM, parse_shape
from minigrad.engine.ops.arguments cimport integer, number, one_axis, operand, plain_scalar
from minigrad.engine.ops.arithmetic cimport add
from minigrad.engine.ops.layout cimport cast, copy_array, reshape, sum_axes
from minigrad.engine.ops.slices cimport place_window, take_window, window, zeros
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track, track_many

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD


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
            node.send(i, take_window(g, span(g, axis, bounds[i], bounds[i + 1], keep)))
    return 0


cdef Array join_parts(Op op, list parts, int axis, bint keep):
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


cdef Array join_along(list parts, int axis):
    """The parts, of one dtype, device and number of axes, joined along an axis."""
    return join_parts(concat_op, parts, axis, True)


cdef list match_parts(str op, object tensors):
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
    >>> mg.concat([mg.tensor([[1, 2]]), mg.tensor([[3, 4]])], axis=0)
    tensor([[1, 2],
            [3, 4]])
    """
    cdef Call _call = begin(concat_op)
    parts = match_parts("concat", tensors)
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
    return join_along(parts, k)


def append(Array old: Tensor, Array memory: Tensor, Array new: Tensor) -> tuple[Tensor, Tensor]:
    """Join `old` and `new` along axis 2; return the result and the memory that begins with it.

    `memory` begins with `old`. If it has room, `new` is written behind `old`, which no version counts as a write, since
    no tensor shows that part yet. Otherwise the result is in new memory, twice as long unless operations are recorded.
    """
    cdef int64_t[MAX_NDIM] extent
    cdef int64_t steps = old.extent[2], total = steps + new.extent[2]
    if (recording() or is_capturing() or old.code != new.code or old.buffer.device != new.buffer.device or
            shape_of(old)[:2] + shape_of(old)[3:] != shape_of(new)[:2] + shape_of(new)[3:]):
        joined = concat([old, new], 2)
        return joined, joined
    if total > memory.extent[2]:
        extent = old.extent
        extent[2] = 2 * total
        memory = empty(old.code, old.ndim_, extent, old.buffer.device)
        backend(old).copy(old, part_of(memory, 2, 0, steps, True))
    backend(new).copy(new, part_of(memory, 2, steps, total, True))
    return part_of(memory, 2, 0, total, True), memory


def stack(tensors: Iterable[TensorLike], axis: int = 0) -> Tensor:
    """The tensors, all of one shape, along a new axis.

    Examples
    --------
    >>> mg.stack([mg.tensor([1, 2]), mg.tensor([3, 4])], axis=1)
    tensor([[1, 3],
            [2, 4]])
    """
    cdef Call _call = begin(stack_op)
    parts = match_parts("stack", tensors)
    for part in parts:
        if not same_shape(<Array>part, <Array>parts[0]):
            raise ValueError(f"[stack] expected equal shapes, got {', '.join([str(p.shape) for p in parts])}")
    cdef int k = one_axis("stack", axis, (<Array>parts[0]).ndim_ + 1)
    return join_parts(stack_op, parts, k, False)


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
            node.send(0, place_window(piece, span(total, axis, bounds[i], bounds[i + 1], keep), shape))
        else:
            backend(total).copy(piece, part_of(total, axis, bounds[i], bounds[i + 1], keep))
    return 0 if recording() else node.send(0, total)


cdef list pieces(Array x, int axis, list bounds, bint keep):
    """Views of x between the bounds along an axis, which is dropped if keep is False."""
    cdef list outs = [part_of(x, axis, bounds[i], bounds[i + 1], keep) for i in range(len(bounds) - 1)]
    if outs and (listeners or x.needs_grad):
        if len(outs) == 1:
            return [take_window(x, span(x, axis, bounds[0], bounds[1], keep))]
        track_many(split_op, outs, [x], [], (axis, bounds, keep, shape_of(x)))
    return outs


cdef int check_pieces(str op, Array x, object parts) except -1:
    """Refuse more pieces than elements unless there are few: an axis of an empty x may have any length."""
    if parts > max(x.count, 1 << 16):
        raise ValueError(f"[{op}] expected at most {max(x.count, 1 << 16)} pieces of a tensor of shape {shape_of(x)}, "
                         f"got {parts}")
    return 0


def split(x: TensorLike, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """The pieces of x along an axis, as views: equal sections, or pieces that begin at the given indices.

    Raises
    ------
    ValueError
        If the axis does not divide into that many sections, or for more than 65,536 sections of fewer elements.

    Examples
    --------
    >>> mg.split(mg.arange(5), [2])
    [tensor([0, 1]), tensor([2, 3, 4])]
    """
    cdef Call _call = begin(split_op)
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
    >>> mg.unstack(mg.tensor([[1, 2], [3, 4]]))
    (tensor([1, 2]), tensor([3, 4]))
    """
    cdef Call _call = begin("unstack")
    cdef Array a = operand("unstack", x)
    cdef int k = one_axis("unstack", axis, a.ndim_)
    check_pieces("unstack", a, a.extent[k])
    return tuple(pieces(a, k, list(range(a.extent[k] + 1)), False))


# ── borders: y = x between elements of x; from each border, dx adds what lies there to the elements it is made of ──

cdef list strips(Array x, int axis, str mode, int64_t n, int64_t before, int64_t after):
    """(border, source) of either side of an axis that has n elements after `before`: windows of x, as in `layout`."""
    cdef list found = []
    last = n - 1
    one = mode == "reflect"     # the element at the edge is not repeated
    for width, start, mirror, edge, wrapped in ((before, 0, before - 1 + one, 0, n - before),
                                                (after, before + n, last - one, last, 0)):
        if width:
            first, stride = (mirror, -1) if mode in ("reflect", "symmetric") else (edge, 0) if mode == "edge" \
                else (wrapped, 1)
            border = [(0, 1, x.extent[k], True) for k in range(x.ndim_)]
            source = list(border)
            border[axis], source[axis] = (start, 1, width, True), (before + first, stride, width, True)
            found.append((border, source))
    return found


cdef Op pad_op = operation("pad", pad_backward, "y = x between borders of one number, or of elements of x",
                           "dx = g between the borders, with what lies in them added to the elements they are made of")
cdef int pad_backward(Node node, Array g) except -1:
    widths, mode, shape = node.extra
    cdef Array part, into
    cdef int axis
    if mode != "constant" and not recording():
        g = copy_array(g)
    for axis in range(len(shape) - 1, -1, -1):      # borders of later axes contain parts of the earlier ones
        before, after = widths[axis]
        for border, source in strips(g, axis, mode, shape[axis], before, after) if mode != "constant" else ():
            part = take_window(g, border)
            if mode == "edge":
                part = sum_axes(part, [axis], True)
                source[axis] = (source[axis][0], 1, 1, True)
            if recording():
                g = add(g, place_window(part, source, shape_of(g)))
            else:
                into = window(g, source)
                backend(g).binary(ADD, into, part, into)
        if before or after:
            g = take_window(g, span(g, axis, before, before + <object>shape[axis], True))
    return node.send(0, g)


cdef int fill(Array x, object value) except -1:
    try:
        backend(x).fill(x, value)
    except OverflowError:
        raise OverflowError(f"[pad] {value!r} does not fit {x.dtype}") from None
    return 0


def pad(x: TensorLike, pad_width: int | Sequence[Any], mode: str = "constant", *, value: float = 0) -> Tensor:
    """x with borders of one number, or of elements of x, as `numpy.pad`.

    Parameters
    ----------
    x : Tensor
    pad_width : int or a sequence of (before, after)
        The widths of the borders, the same everywhere, or one pair for each axis. For x with one axis, the pair alone
        does. With more axes it is refused: NumPy pads each of them by such a pair, and PyTorch the last.
    mode : str
        "constant" for the `value`; "reflect" and "symmetric" for the elements in reverse order, without and with the
        one at the edge; "edge" for that one alone; "wrap" for the elements of the other side.
        (`nn.functional.pad` has PyTorch's names: "replicate" is "edge", and "circular" is "wrap".)
    value : float

    Raises
    ------
    TypeError, ValueError
        For widths that are negative or no integers, for another number of pairs than axes, and for a border that is
        longer than the elements that it is made of.

    Examples
    --------
    >>> mg.pad(mg.ones(2), (1, 2))
    tensor([0., 1., 1., 0., 0.])
    >>> mg.pad(mg.arange(4), 2, "reflect")
    tensor([2, 1, 0, 1, 2, 3, 2, 1])
    """
    cdef Call _call = begin(pad_op)
    cdef Array a = operand("pad", x), out, framed
    cdef int64_t[MAX_NDIM] extent
    cdef int axis
    if mode not in ("constant", "reflect", "symmetric", "edge", "wrap"):
        raise ValueError(f"[pad] expected mode 'constant', 'reflect', 'symmetric', 'edge' or 'wrap', got {mode!r}")
    plain = plain_scalar("pad", value)
    value = number("pad", "value", value) if plain is None else plain
    if type(value) is float and not is_float(a.code):
        if not value.is_integer():
            raise TypeError(f"[pad] expected a value that fits {a.dtype}, got {value}")
        value = int(value)
    if not isinstance(pad_width, (tuple, list)):
        pad_width = (pad_width, pad_width)
        pairs = [pad_width] * a.ndim_
    elif pad_width and not any([isinstance(w, (tuple, list)) for w in pad_width]):
        if a.ndim_ > 1:
            raise ValueError(f"[pad] expected one width, or (before, after) for each of {a.ndim_} axes, got "
                             f"{pad_width}: pass ({pad_width},) * {a.ndim_} to pad every axis, as numpy.pad does, or "
                             f"use nn.functional.pad, which pads the last axes, as PyTorch does")
        pairs = [pad_width] * a.ndim_
    else:
        pairs = pad_width
    widths = [tuple([integer("pad", "width", n) for n in pair]) for pair in pairs]
    if len(widths) != a.ndim_ or any([len(w) != 2 or min(w) < 0 for w in widths]):
        raise ValueError(f"[pad] expected (before, after) of 0 or more for each of {a.ndim_} axes, got {pad_width}")
    shape = shape_of(a)
    for n, pair in zip(shape, widths):
        most = n - 1 if mode == "reflect" else n
        if mode != "constant" and max(pair) > max(most, 0) and (n == 0 or mode != "edge"):
            raise ValueError(f"[pad] expected borders of at most {max(most, 0)} for an axis of {n} elements and mode "
                             f"{mode!r}, got {pair}")
    padded = [before + n + after for n, (before, after) in zip(shape, widths)]
    try:
        out = empty(a.code, parse_shape(padded, extent, "pad"), extent, a.buffer.device)
    except (MemoryError, ValueError):       # lengths of more than 64 bits
        raise MemoryError(f"[pad] no memory for a result of shape {tuple(padded)}") from None
    spec = [(before, 1, n, True) for n, (before, _) in zip(shape, widths)]
    backend(out).copy(a, window(out, spec))
    for axis in range(a.ndim_):
        before, after = widths[axis]
        if before or after:
            spec[axis] = (0, 1, padded[axis], True)
            framed = window(out, spec)    # with borders on this axis and those before it
            for border, source in strips(framed, axis, mode, shape[axis], before, after):
                if mode == "constant":
                    fill(window(framed, border), value)
                else:
                    backend(out).copy(window(framed, source), window(framed, border))
    track(pad_op, out, a, None, None, (widths, mode, shape))
    return out
