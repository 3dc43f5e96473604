"""Indexing, x[key]: basic (views), and by integers and masks (copies), as NumPy defines it."""
import operator

from libc.stdint cimport int64_t

import numpy as np

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, alias, check_same_device, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, INT64, UINT8, is_float
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.listener cimport listeners, note_read
from minigrad.engine.memory.overlap cimport may_share_memory
from minigrad.engine.ops.arguments cimport operand, plain_scalar, scalar, weak_code
from minigrad.engine.ops.arithmetic cimport add, multiply
from minigrad.engine.ops.gather cimport around, beside, check_index, index_for, indices_of, take_rows
from minigrad.engine.ops.layout cimport (
    broadcast_shape, cast, copy_array, dense, permute, permute_raw, reindex, reshape_to,
)
from minigrad.engine.ops.logic cimport equal, where
from minigrad.engine.ops.shared cimport finish_write, is_written
from minigrad.engine.ops.slices cimport take_window, zeros
from minigrad.engine.tape.in_place cimport before_write, check_write, keep_saved, note_unrecorded_write
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track
from minigrad.engine.ops.gather import nonzero


# ── x[key] ────────────────────────────────────────────────────────────────────────────────────────

cdef inline bint is_plain(object k):
    return k is None or type(k) is int


cdef object plain_part(str op, object part):
    """A part of a key as None, an ellipsis, an int, a slice of ints, or an array of integers or bool."""
    if part is None or part is Ellipsis or type(part) is int:
        return part
    if isinstance(part, slice):
        start, stop, step = part.start, part.stop, part.step
        if is_plain(start) and is_plain(stop) and is_plain(step):
            return part
        try:
            return slice(*[None if k is None else operator.index(k) for k in (start, stop, step)])
        except TypeError:
            raise TypeError(f"[{op}] slice indices must be integers or None or have an __index__ method") from None
    if isinstance(part, (bool, np.bool_)) or (isinstance(part, Array) and (<Array>part).code == BOOL):
        return operand(op, part)
    if isinstance(part, Array) and (<Array>part).code == UINT8:
        raise IndexError(f"[{op}] expected indices of int32 or int64 or a mask of bool, got uint8, which NumPy reads "
                         f"as indices and PyTorch as a mask: use i.astype('int64') or mask.astype('bool')")
    if isinstance(part, (list, tuple)) or hasattr(part, "__array__") and not isinstance(part, np.generic):
        return indices_of(op, part)
    if not hasattr(part, "__index__"):
        raise IndexError(f"[{op}] expected integers, slices, None, ..., or tensors of integers or bool, got {part!r}")
    return operator.index(part)


cdef list plain_key(str op, object key):
    """The parts of a key, converted so that they no longer run the caller's code: x may be read from here on."""
    return [plain_part(op, part) for part in (tuple(key) if isinstance(key, tuple) else (key,))]


cdef tuple parse_key(str op, Array x, list parts):
    """(window spec, shape with new axes, {axis of the windowed x: index array}, where the array axes go).

    Basic parts become a window. An integer array remains as an index of its axis; a mask becomes one per axis.
    """
    cdef list spec = [], layout = []
    cdef Array mask
    cdef int used = 0, axis = 0, i
    cdef int64_t n
    for part in parts:
        if part is None or part is Ellipsis:
            continue
        used += (<Array>part).ndim_ if isinstance(part, Array) and (<Array>part).code == BOOL else 1
    if sum([part is Ellipsis for part in parts]) > 1:
        raise IndexError(f"[{op}] expected at most one ellipsis")
    if used > x.ndim_:
        raise IndexError(f"[{op}] expected at most {x.ndim_} indices for shape {shape_of(x)}, got {used}")
    if not any([part is Ellipsis for part in parts]):
        parts.append(Ellipsis)
    # layout: for each axis of the result before the arrays are applied, "new", "keep", or the index array of that axis;
    # and, for no axis, "drop" and "gap"
    for part in parts:
        if part is None:
            layout.append("new")
        elif part is Ellipsis:
            layout.append("gap")        # in NumPy even an ellipsis for no axis separates two arrays
            for _ in range(x.ndim_ - used):
                spec.append((0, 1, x.extent[axis], True))
                layout.append("keep")
                axis += 1
        elif isinstance(part, slice):
            try:
                start, stop, step = part.indices(x.extent[axis])
            except (TypeError, ValueError) as error:
                raise type(error)(f"[{op}] {error}") from None
            n = len(range(start, stop, step))
            spec.append((start, step if n > 1 else 1, n, True))     # a step beyond all elements may be any integer
            layout.append("keep")
            axis += 1
        elif isinstance(part, Array) and (<Array>part).code == BOOL:
            mask = <Array>part
            if mask.buffer.device:
                mask = index_for(x.buffer.device, op, mask)
            for i in range(mask.ndim_):
                if mask.extent[i] != x.extent[axis + i] and mask.extent[i] != 0:     # the array API allows a mask of 0
                    raise IndexError(f"[{op}] a mask of shape {shape_of(mask)} does not fit axis {axis + i} of length "
                                     f"{x.extent[axis + i]} of {shape_of(x)}")
            if mask.ndim_ == 0:
                # a 0-d mask adds an axis of length one or zero
                number = np.zeros(int(bool(alias(mask).item())), dtype=np.int64)
                layout.append(("new", from_object(number, INT64, x.buffer.device, False)))
                continue
            for found in nonzero(mask):
                spec.append((0, 1, x.extent[axis], True))
                layout.append(index_for(x.buffer.device, op, found))
                axis += 1
        elif isinstance(part, Array):
            spec.append((0, 1, x.extent[axis], True))
            layout.append(check_index(op, part, x.extent[axis], axis, x.buffer.device))
            axis += 1
        else:
            n = x.extent[axis]
            if part < -n or part >= n:
                raise IndexError(f"[{op}] index {part} is out of range for axis {axis} of length {n}")
            spec.append((part + n if part < 0 else part, 1, 1, False))
            # An int among arrays is an array index in NumPy: it only decides where the result's axes go.
            layout.append("drop")
            axis += 1
    return spec, layout


cdef bint without_axis(object entry):
    """Whether an entry of a layout names no axis of the result."""
    return isinstance(entry, str) and entry in ("drop", "gap")


cdef Array basic(Array x, list spec, list layout):
    """x through the window, with new axes."""
    cdef Array out = take_window(x, spec)
    shape, k = [], 0
    for entry in layout:
        if without_axis(entry):
            continue
        if (isinstance(entry, str) and entry == "new") or isinstance(entry, tuple):
            shape.append(1)
        else:
            shape.append(out.extent[<int>k])
            k += 1
    return out if len(shape) == out.ndim_ else reindex(out, shape)


cdef tuple flatten_indices(str op, Array x, list layout):
    """(x with the indexed axes merged in front, flat index, shape of the index, place of its axes in the result).

    Several index arrays become one, into the merged axis: ((i * n₂) + j) * n₃ + k, ...
    """
    cdef list entries = [e for e in layout if not without_axis(e)]
    cdef list axes = [k for k, e in enumerate(entries) if not isinstance(e, str)]
    cdef list rest = [k for k in range(x.ndim_) if k not in axes]
    cdef Array flat = None, index, moved
    cdef int64_t merged = 1
    for k in axes:
        entry = entries[k]
        index = <Array>(entry[1] if isinstance(entry, tuple) else entry)
        merged *= x.extent[<int>k]
        try:
            flat = index if flat is None else add(multiply(flat, x.extent[<int>k]), index)
        except ValueError:
            raise IndexError(f"[{op}] the indices of shapes {shape_of(flat)} and {shape_of(index)} do not broadcast "
                             f"together") from None
    # NumPy's rule: the result's index axes take the place of the indices if those were adjacent, else they come first.
    places = [k for k, e in enumerate(layout) if not (isinstance(e, str) and e in ("keep", "new", "gap"))]
    neighbours = places[-1] - places[0] + 1 == len(places)
    place = sum([not without_axis(e) for e in layout[:places[0]]]) if neighbours else 0
    moved = permute(x, axes + rest) if axes + rest != list(range(x.ndim_)) else x
    moved = reshape_to(moved, (merged,) + shape_of(moved)[len(axes):])
    return moved, reshape_to(flat, (flat.count,)), shape_of(flat), place, axes + rest


cdef bint is_basic(list layout):
    return all([isinstance(entry, str) for entry in layout])


cpdef Array getitem(x: TensorLike, key: Any):
    """x[key] by NumPy's rules: a view for integers, slices, None and ...; a copy for integer arrays and masks."""
    cdef Call _call = begin("getitem")
    cdef Array a = <Array?>x
    cdef int64_t n
    if listeners:
        note_read(a)
    if type(key) is int and a.ndim_ > 0:      # the common x[i]
        n = a.extent[0]
        if not -n <= key < n:
            raise IndexError(f"[index] index {key} is out of range for axis 0 of length {n}")
        rest = [(0, 1, a.extent[i], True) for i in range(1, a.ndim_)]
        return take_window(a, [(key + n if key < 0 else key, 1, 1, False)] + rest)
    a, parts = merge_mask(a, plain_key("index", key))
    spec, layout = parse_key("index", a, parts)
    return read(a, spec, layout)


cdef tuple merge_mask(Array x, list parts):
    """x and a key that is a mask with its axes merged into one: one index is enough then, instead of one for each."""
    cdef Array mask = <Array>parts[0] if len(parts) == 1 and isinstance(parts[0], Array) else None
    if mask is None or mask.code != BOOL or mask.ndim_ < 2 or shape_of(mask) != shape_of(x)[:mask.ndim_]:
        return x, parts
    return reshape_to(x, (mask.count,) + shape_of(x)[mask.ndim_:]), [reshape_to(mask, (mask.count,))]


cdef Array read(Array x, list spec, list layout, str op="index"):
    """The part of x that a parsed key names."""
    cdef Array out = basic(x, spec, layout), moved, index
    if is_basic(layout):
        return out
    moved, index, index_shape, place, order = flatten_indices(op, out, layout)
    out = take_rows(moved, 0, index)
    rest = shape_of(moved)[1:]
    out = reshape_to(out, index_shape + rest)
    if place:
        front = list(range(len(index_shape)))
        order = list(range(len(index_shape), len(index_shape) + place)) + front \
            + list(range(len(index_shape) + place, out.ndim_))
        out = permute(out, order)
    return out


# ── x[key] = value ────────────────────────────────────────────────────────────────────────────────

cdef Op setitem_op = operation("setitem", setitem_backward, "y = x with a part replaced by v",
                               "dx = g, with 0 in that part\ndv = that part of g", "", "x, v")
cdef int setitem_backward(Node node, Array g) except -1:
    spec, layout = node.extra
    cdef Array mask
    if node.needs(0):
        mask = zeros(shape_of(g), BOOL, g.buffer.device)
        part = shape_of(read(mask, spec, layout))
        write(mask, spec, layout, broadcast_shape(scalar(True, BOOL, g.buffer.device), part))
        node.send(0, where(mask, 0, g))
    if node.needs(1):
        part = read(g, spec, layout)
        node.send(1, part if is_basic(layout) else where(find_last_written(g, spec, layout), part, 0))
    return 0


cdef Array find_last_written(Array x, list spec, list layout):
    """Which elements of a value remain in x: among equal indices, the last."""
    cdef Array number = zeros(shape_of(x), INT64, x.buffer.device)
    part = shape_of(read(number, spec, layout))
    cdef Array numbers = from_object(np.arange(np.prod(part, dtype=np.int64)).reshape(part), INT64,
                                     x.buffer.device, False)
    write(number, spec, layout, numbers)
    return equal(read(number, spec, layout), numbers)


cpdef int setitem(x: Tensor, key: Any, value: TensorLike) except -1:
    """x[key] = value in place; the value broadcasts and is converted to x's dtype."""
    return assign("setitem", <Array?>x, key, value)


cdef int assign(str op, Array a, object key, object value) except -1:
    """x[key] = value, with errors in the name of `op`."""
    cdef Call _call = begin(setitem_op)
    cdef Array v, target, result, old, before
    plain, parts = plain_scalar(op, value), plain_key(op, key)
    if plain is None:
        v = operand(op, value)
        v = beside(a, value, v)
    elif is_float(weak_code(plain, a.code)) and not is_float(a.code) and not float(plain).is_integer():
        raise TypeError(f"[{op}] expected a value that fits {a.dtype}, got {value!r}")
    else:
        v = scalar(plain, a.code, a.buffer.device, op)
    check_same_device(op, a, v)
    cdef bint recorded = recording() and (a.needs_grad or v.needs_grad)
    check_write(op, a, recorded)
    if is_float(v.code) and not is_float(a.code):
        raise TypeError(f"[{op}] expected a value of a dtype that fits {a.dtype}, got {v.dtype}")
    old = alias(a)
    if a.packed and not recorded:
        old, parts = merge_mask(old, parts)
    spec, layout = parse_key(op, old, parts)
    target = basic(old, spec, layout)
    part_shape = shape_of(target) if is_basic(layout) else shape_of(read(old, spec, layout, op))
    if recorded and is_basic(layout) and is_written(a, target, v):
        return 0            # x[0] *= 2
    v = cast(v, a.code)
    try:
        # as NumPy, leading axes of length one of the value may be dropped
        while v.ndim_ > len(part_shape) and v.extent[0] == 1:
            v = reindex(v, list(shape_of(v)[1:]))
        v = broadcast_shape(v, part_shape)
    except ValueError:
        raise ValueError(f"[{op}] a value of shape {shape_of(v)} does not broadcast to {part_shape}") from None
    if may_share_memory(v, target):
        v = copy_array(v)       # x[1:] = x[:-1]
    if not recorded:
        write(old, spec, layout, v)
        a.buffer.version += 1
        return 0
    before = before_write(a)
    note_unrecorded_write(a)
    changed = keep_saved(a, before, target, <Node>v.node)
    write(old, spec, layout, v)
    result = alias(a)
    track(setitem_op, result, before, v, None, (spec, layout))
    return finish_write(a, before, result, target, changed)


cdef Array copy_raw(Array x):
    cdef Array out = empty_as(x, x.code)
    backend(x).copy(x, out)
    return out


cdef int write(Array x, list spec, list layout, Array v) except -1:
    """Write v, of the part's shape, into the part of x; not recorded."""
    cdef Array plain = alias(x), target, moved, index, values, whole
    target = basic(plain, spec, layout)
    if is_basic(layout):
        backend(x).copy(v, target)
        return 0
    moved, index, index_shape, place, order = flatten_indices("setitem", target, layout)
    values = alias(v)
    if place:
        k = len(index_shape)
        axes = list(range(values.ndim_))
        values = permute_raw(values, axes[place:place + k] + axes[:place] + axes[place + k:])
    values = dense(values)
    _, n, inner = around(moved, 0)
    if moved.buffer == x.buffer and moved.packed:
        backend(x).put(1, n, inner, moved, index, values)
        return 0
    whole = moved if moved.buffer != x.buffer else copy_raw(moved)       # a copy in the order of the index
    backend(x).put(1, n, inner, whole, index, values)
    shape = shape_of(target)
    whole = reshape_to(whole, tuple([shape[k] for k in order]))
    backend(x).copy(permute_raw(whole, [order.index(k) for k in range(len(order))]), target)
    return 0
