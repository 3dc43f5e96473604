"""Indexing, reading and writing: basic (views), and by integers and masks (copies), as NumPy defines it."""
import operator

from libc.stdint cimport int64_t

import numpy as np

from minigrad.engine.array cimport (
    MAX_NDIM, Array, alias, check_same_device, device_name, empty, empty_as, may_share_memory, shape_of,
    transferred,
)
from minigrad.engine.backend cimport backend
from minigrad.engine.calls cimport Call, begin
from minigrad.engine.dtype cimport BOOL, INT64, is_float
from minigrad.engine.interop cimport from_object
from minigrad.engine.ops.arguments cimport is_scalar, one_axis, operand, plain_axis, plain_scalar, scalar, weak_code
from minigrad.engine.ops.arithmetic cimport add, multiply
from minigrad.engine.ops.layout cimport (
    broadcast_shape, cast, copied, dense, permuted, permuted_raw, reindexed, reshape_to, sliced, zeros,
)
from minigrad.engine.ops.logic cimport equal, where
from minigrad.engine.tape cimport Node, Op, operation, recording, track
from minigrad.engine.writes cimport become, before_write, check_write


# ── checked indices ───────────────────────────────────────────────────────────────────────────────

cdef Array index_for(int device, str op, Array index):
    """Indices on the CPU serve arrays on every device, indices on a GPU only the arrays on it."""
    if index.buffer.device == device:
        return index
    if index.buffer.device:
        places = "the CPU" if device == 0 else f"{device_name(device)} or on the CPU"
        raise ValueError(f"[{op}] expected indices on {places}, got some on {device_name(index.buffer.device)}")
    return transferred(index, device)


cdef Array indices_of(str op, object index):
    """Indices or a mask; array-likes that are not tensors may be of any integer dtype."""
    if isinstance(index, Array) or is_scalar(index):
        return operand(op, index)
    try:
        array = np.asarray(index)
    except ValueError:
        raise IndexError(f"[{op}] expected indices of one shape, got {index!r}") from None
    except (TypeError, RuntimeError):       # in the memory of a GPU, for example
        return operand(op, index)
    if array.dtype.kind in "iu" or (array.size == 0 and array.dtype.kind == "f"):       # [] has a floating dtype
        return from_object(array, INT64, 0, False, op)
    return operand(op, array)


cdef Array checked_index(str op, Array index, int64_t n, int axis, int device):
    """Integer indices as int64 from 0 to n - 1, in memory of their own; negative ones count from the end."""
    cdef Array i = index, out
    if is_float(i.code) or i.code == BOOL:
        if i.count:
            raise IndexError(f"[{op}] expected integer indices, got {i.dtype}")
    if i.buffer.device:
        i = index_for(device, op, i)
    i = dense(cast(i, INT64))
    out = empty_as(i, INT64)
    backend(i).checked_index(op, axis, n, i, out)       # on their own device
    return index_for(device, op, out)


cdef Array beside(Array x, object given, Array y):
    """y, which was made from `given`; if that is not a tensor, it has no device of its own, and y goes to x's."""
    if isinstance(given, Array) or y.buffer.device == x.buffer.device:
        return y
    return transferred(y, x.buffer.device)


cdef tuple around(Array x, int axis):
    """(outer, n, inner) of an axis."""
    cdef int64_t outer = 1, inner = 1
    cdef int i
    for i in range(x.ndim_):
        if i < axis:
            outer *= x.extent[i]
        elif i > axis:
            inner *= x.extent[i]
    return outer, x.extent[axis], inner


cdef Op take_op = operation("take", take_backward, "y_j = x at index i_j along an axis",
                            "dx at i = Σ g_j over all j with i_j = i")


cdef int take_backward(Node node, Array g) except -1:
    cdef Array total
    axis, index, shape = node.extra
    if recording() or not node.can_accumulate(0):
        return node.send(0, scattered(g, axis, index, shape))
    total = node.accumulator(0)
    outer, n, inner = around(total, axis)
    backend(g).add_at(outer, n, inner, total, index, dense(g))
    return 0


cdef Array taken(Array x, int axis, Array index):
    """x at checked one-dimensional indices along an axis."""
    cdef Call _call = begin(take_op)
    cdef int64_t[MAX_NDIM] extent
    cdef int i
    for i in range(x.ndim_):
        extent[i] = index.count if i == axis else x.extent[i]
    cdef Array out = empty(x.code, x.ndim_, extent, x.buffer.device)
    outer, n, inner = around(x, axis)
    backend(x).take(outer, n, inner, dense(x), index, out)
    track(take_op, out, x, None, None, (axis, index, shape_of(x)))
    return out


cdef Op scatter_op = operation("scatter", scatter_backward, "y = 0, then x_j added at index i_j along an axis",
                               "dx_j = g at i_j")


cdef int scatter_backward(Node node, Array g) except -1:
    axis, index = node.extra
    return node.send(0, taken(g, axis, index))


cdef Array scattered(Array g, int axis, Array index, tuple shape):
    """Zeros of a shape, with g added at the indices along an axis: the adjoint of `taken`."""
    cdef Array out = zeros(shape, g.code, g.buffer.device)
    outer, n, inner = around(out, axis)
    backend(g).add_at(outer, n, inner, out, index, dense(g))
    track(scatter_op, out, g, None, None, (axis, index))
    return out


def take(x: TensorLike, indices: TensorLike, axis: int | None = None) -> Tensor:
    """The elements of x at integer indices along an axis (which may be omitted in one dimension).

    Parameters
    ----------
    x : Tensor
    indices : Tensor of integers
        Of any shape, which replaces the axis in the result; negative ones count from the end.
    axis : int, optional

    Raises
    ------
    IndexError
        If an index is out of range; for indices on a GPU, at the next transfer to the CPU or `mg.cuda.synchronize`.
    ValueError
        If the indices are on a GPU that is not x's.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.take(mg.tensor([10.0, 20.0, 30.0]), mg.tensor([2, 0]))
    tensor([30., 10.])
    """
    cdef Call _call = begin(take_op)
    axis = plain_axis("take", axis)
    cdef Array a = operand("take", x), index = indices_of("take", indices)
    if axis is None and a.ndim_ != 1:
        raise ValueError(f"[take] expected an axis for {a.ndim_} axes")
    cdef int k = one_axis("take", 0 if axis is None else axis, a.ndim_)
    index = checked_index("take", index, a.extent[k], k, a.buffer.device)
    cdef Array out = taken(a, k, reshape_to(index, (index.count,)))
    shape = shape_of(a)
    return out if index.ndim_ == 1 else reshape_to(out, shape[:k] + shape_of(index) + shape[k + 1:])


def numbered(str error, indices: Tensor, int64_t n) -> Tensor:
    """Integers from 0 to n - 1 as int64; any other raises an IndexError that begins with `error`."""
    cdef Call _call = begin(None)
    cdef Array i = dense(cast(<Array?>indices, INT64)), out = empty_as(i, INT64)
    if n == 0 and i.count:
        raise IndexError(f"{error} from 0 to -1, that is, none, got {i.count}")
    backend(i).class_labels(error, n, 0, i, None, out, None)    # 0, the label to ignore, is in range anyway
    return out


def look_up(table: Tensor, indices: Tensor) -> Tensor:
    """The rows of a table [V, D] at integers from 0 to V - 1, of any shape."""
    cdef Call _call = begin("embedding")
    cdef Array a = <Array?>table, i
    if a.ndim_ != 2:
        raise ValueError(f"[embedding] expected a table of shape (V, D), got {shape_of(a)}")
    i = index_for(a.buffer.device, "embedding", numbered("[embedding] expected indices", indices, a.extent[0]))
    cdef Array out = taken(a, 0, reshape_to(i, (i.count,)))
    return out if i.ndim_ == 1 else reshape_to(out, shape_of(i) + shape_of(a)[1:])


cdef Op take_along_op = operation("take_along_axis", take_along_backward, "y[o, j, i] = x[o, index[o, j, i], i]",
                                  "dx = 0, then g[o, j, i] added at [o, index[o, j, i], i]")


cdef int take_along_backward(Node node, Array g) except -1:
    axis, index, shape = node.extra
    return node.send(0, added_along(g, index, axis, shape))


cdef Array taken_along(Array x, Array index, int axis):
    """`take_along_axis` for a checked index that has x's shape except along the axis."""
    cdef Call _call = begin(take_along_op)
    cdef Array out = empty_as(index, x.code)
    outer, n, inner = around(x, axis)
    index = dense(index)
    backend(x).take_along(outer, n, inner, dense(x), index.extent[axis], index, out)
    track(take_along_op, out, x, None, None, (axis, index, shape_of(x)))
    return out


cdef Op add_along_op = operation("add_along_axis", add_along_backward,
                                 "y = 0, then x[o, j, i] added at [o, index[o, j, i], i]",
                                 "dx[o, j, i] = g[o, index[o, j, i], i]")


cdef int add_along_backward(Node node, Array g) except -1:
    axis, index = node.extra
    return node.send(0, taken_along(g, index, axis))


cdef Array added_along(Array g, Array index, int axis, tuple shape):
    cdef Array out = zeros(shape, g.code, g.buffer.device)
    outer, n, inner = around(out, axis)
    backend(g).add_along(outer, n, inner, out, index.extent[axis], index, dense(g))
    track(add_along_op, out, g, None, None, (axis, index))
    return out


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
    """The elements of x at one index each along an axis, as ``numpy.take_along_axis``.

    Raises
    ------
    IndexError
        If an index is out of range; for indices on a GPU, at the next transfer to the CPU or `mg.cuda.synchronize`.
    ValueError
        If the indices are on a GPU that is not x's, or if the shapes do not broadcast along the other axes.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.tensor([[3.0, 1.0, 2.0]])
    >>> mg.take_along_axis(x, mg.argsort(x), axis=1)
    tensor([[1., 2., 3.]])
    """
    cdef Call _call = begin("take_along_axis")
    axis = plain_axis("take_along_axis", axis)
    cdef Array a = operand("take_along_axis", x), index = indices_of("take_along_axis", indices)
    cdef int k = one_axis("take_along_axis", axis, a.ndim_)
    index = checked_index("take_along_axis", index, a.extent[k], k, a.buffer.device)
    if index.ndim_ != a.ndim_:
        raise ValueError(f"[take_along_axis] expected indices with {a.ndim_} axes, got shape {shape_of(index)}")
    shape = []
    for i, (m, n) in enumerate(zip(shape_of(a), shape_of(index))):
        if i != k and m != n and m != 1 and n != 1:
            raise ValueError(f"[take_along_axis] the shapes {shape_of(a)} and {shape_of(index)} do not broadcast "
                             f"along axis {i}")
        shape.append(n if m == 1 else m)
    shape[k] = a.extent[k]
    a = broadcast_shape(a, tuple(shape))
    shape[k] = index.extent[k]
    return taken_along(a, broadcast_shape(index, tuple(shape)), k)


# ── order ─────────────────────────────────────────────────────────────────────────────────────────

def argsort(x: TensorLike, axis: int = -1, *, bint descending=False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort x along an axis; equal elements keep their order, NaN comes last.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.argsort(mg.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    cdef Call _call = begin("argsort")
    axis = plain_axis("argsort", axis)
    cdef Array a = operand("argsort", x), plain, out
    cdef int k = one_axis("argsort", axis, a.ndim_)
    order = [i for i in range(a.ndim_) if i != k] + [k]
    plain = dense(permuted_raw(a, order))
    out = empty_as(plain, INT64)
    backend(a).argsort(plain, descending, out)
    return permuted_raw(out, [order.index(i) for i in range(a.ndim_)])


def sort(x: TensorLike, axis: int = -1, *, bint descending=False, stable: bool = True) -> Tensor:
    """x sorted along an axis; the gradient goes back to where each element came from.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.sort(mg.tensor([3.0, 1.0, 2.0]), descending=True)
    tensor([3., 2., 1.])
    """
    cdef Call _call = begin("sort")
    axis = plain_axis("sort", axis)
    cdef Array a = operand("sort", x)
    cdef int k = one_axis("sort", axis, a.ndim_)
    cdef Array index = argsort(a, axis=k, descending=descending)
    return taken_along(a, index, k)


def nonzero(x: TensorLike) -> tuple[Tensor, ...]:
    """The indices of the nonzero elements in row-major order: a tuple with one int64 tensor for each axis.

    Their number depends on the values: for a tensor on a GPU this waits, and works on the CPU. So do masks.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.nonzero(mg.tensor([0, 5, 0, 7]))
    (tensor([1, 3]),)
    """
    cdef Call _call = begin("nonzero")
    cdef Array a = operand("nonzero", x)
    if a.ndim_ == 0:
        raise ValueError("[nonzero] expected at least one axis, got a 0-d tensor")
    return backend(a).nonzero(a)


def unique_values(x: TensorLike) -> Tensor:
    """The distinct elements of x, sorted; every NaN counts as distinct.

    Works on the CPU, like `nonzero`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.unique_values(mg.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    cdef Call _call = begin("unique_values")
    cdef Array a = operand("unique_values", x)
    return backend(a).unique(dense(a))


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
    if isinstance(part, (list, tuple)) or hasattr(part, "__array__") and not isinstance(part, np.generic):
        return indices_of(op, part)
    if not hasattr(part, "__index__"):
        raise IndexError(f"[{op}] expected integers, slices, None, ..., or tensors of integers or bool, got {part!r}")
    return operator.index(part)


cdef list plain_key(str op, object key):
    """The parts of a key, none of which runs the caller's code any more: x may be read from here on."""
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
                if mask.extent[i] != x.extent[axis + i]:
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
            layout.append(checked_index(op, part, x.extent[axis], axis, x.buffer.device))
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
    cdef Array out = sliced(x, spec)
    shape, k = [], 0
    for entry in layout:
        if without_axis(entry):
            continue
        if (isinstance(entry, str) and entry == "new") or isinstance(entry, tuple):
            shape.append(1)
        else:
            shape.append(out.extent[<int>k])
            k += 1
    return out if len(shape) == out.ndim_ else reindexed(out, shape)


cdef tuple flattened(str op, Array x, list layout):
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
    moved = permuted(x, axes + rest) if axes + rest != list(range(x.ndim_)) else x
    moved = reshape_to(moved, (merged,) + shape_of(moved)[len(axes):])
    return moved, reshape_to(flat, (flat.count,)), shape_of(flat), place, axes + rest


cdef bint is_basic(list layout):
    return all([isinstance(entry, str) for entry in layout])


cpdef Array getitem(x: TensorLike, key: Any):
    """x[key] by NumPy's rules: a view for integers, slices, None and ...; a copy for integer arrays and masks."""
    cdef Call _call = begin("getitem")
    cdef Array a = <Array?>x
    cdef int64_t n
    if type(key) is int and a.ndim_ > 0:      # the common x[i]
        n = a.extent[0]
        if not -n <= key < n:
            raise IndexError(f"[index] index {key} is out of range for axis 0 of length {n}")
        rest = [(0, 1, a.extent[i], True) for i in range(1, a.ndim_)]
        return sliced(a, [(key + n if key < 0 else key, 1, 1, False)] + rest)
    parts = plain_key("index", key)
    spec, layout = parse_key("index", a, parts)
    return read(a, spec, layout)


cdef Array read(Array x, list spec, list layout, str op="index"):
    """The part of x that a parsed key names."""
    cdef Array out = basic(x, spec, layout), moved, index
    if is_basic(layout):
        return out
    moved, index, index_shape, place, order = flattened(op, out, layout)
    out = taken(moved, 0, index)
    rest = shape_of(moved)[1:]
    out = reshape_to(out, index_shape + rest)
    if place:
        front = list(range(len(index_shape)))
        order = list(range(len(index_shape), len(index_shape) + place)) + front \
            + list(range(len(index_shape) + place, out.ndim_))
        out = permuted(out, order)
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
        node.send(1, part if is_basic(layout) else where(written(g, spec, layout), part, 0))
    return 0


cdef Array written(Array x, list spec, list layout):
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
    cdef Array v, target, result, old
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
    spec, layout = parse_key(op, a, parts)
    old = alias(a)
    target = basic(old, spec, layout)
    part_shape = shape_of(target) if is_basic(layout) else shape_of(read(old, spec, layout, op))
    v = cast(v, a.code)
    try:
        # as NumPy, leading axes of length one of the value may be dropped
        while v.ndim_ > len(part_shape) and v.extent[0] == 1:
            v = reindexed(v, list(shape_of(v)[1:]))
        v = broadcast_shape(v, part_shape)
    except ValueError:
        raise ValueError(f"[{op}] a value of shape {shape_of(v)} does not broadcast to {part_shape}") from None
    if not recorded and may_share_memory(v, target):
        v = copied(v)       # x[1:] = x[:-1]
    if recorded:
        # Written out of place, and then x becomes the result: the tape sees y = setitem(x, v).
        result = copied_raw(a)
        write(result, spec, layout, v)
        old = before_write(a)
        track(setitem_op, result, old, v, None, (spec, layout))
        return become(a, old, result)
    write(a, spec, layout, v)
    a.buffer.version += 1
    return 0


cdef Array copied_raw(Array x):
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
    moved, index, index_shape, place, order = flattened("setitem", target, layout)
    values = alias(v)
    if place:
        k = len(index_shape)
        axes = list(range(values.ndim_))
        values = permuted_raw(values, axes[place:place + k] + axes[:place] + axes[place + k:])
    values = dense(values)
    _, n, inner = around(moved, 0)
    if moved.buffer == x.buffer and moved.packed:
        backend(x).put(1, n, inner, moved, index, values)
        return 0
    whole = moved if moved.buffer != x.buffer else copied_raw(moved)       # a copy in the order of the index
    backend(x).put(1, n, inner, whole, index, values)
    shape = shape_of(target)
    whole = reshape_to(whole, tuple([shape[k] for k in order]))
    backend(x).copy(permuted_raw(whole, [order.index(k) for k in range(len(order))]), target)
    return 0
