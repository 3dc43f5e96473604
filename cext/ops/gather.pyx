"""Elements at given indices: take, and what sorts, counts or finds elements and gives such indices."""
from libc.stdint cimport int64_t

import numpy as np

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty, empty_as, shape_of, transferred
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, INT64, is_float
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.listener cimport listeners, note_computed, note_read
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_name
from minigrad.engine.ops.arguments cimport float_operand, is_scalar, one_axis, operand, plain_scalar
from minigrad.engine.ops.arithmetic cimport add
from minigrad.engine.ops.layout cimport broadcast_shape, cast, dense, elements, permute_raw, reshape_to
from minigrad.engine.ops.logic cimport note_result
from minigrad.engine.ops.slices cimport zeros
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track


# ── checked indices ───────────────────────────────────────────────────────────────────────────────

cdef Array index_for(int device, str op, Array index):
    """The indices on a device: those on the CPU are copied there, those on another GPU raise an error."""
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
        return from_object(array, INT64, 0, False, op, False, hasattr(index, "__array__"))
    return from_object(array, -1, -1, recording(), op, False, hasattr(index, "__array__"))


cdef Array check_index(str op, Array index, int64_t n, int axis, int device):
    """Integer indices as int64 from 0 to n - 1, in new memory; negative ones count from the end."""
    cdef Array i = index, given, out
    if is_float(i.code) or i.code == BOOL:
        if i.count:
            raise IndexError(f"[{op}] expected integer indices, got {i.dtype}")
    if i.buffer.device:
        i = index_for(device, op, i)
    given = cast(i, INT64)
    i = dense(given)
    out = empty_as(i, INT64)
    backend(i).checked_index(op, axis, n, i, out)       # on their own device
    return index_for(device, op, note_result("index", out, given, None, n))


cdef Array beside(Array x, object given, Array y):
    """y, which was made from `given`, moved to x's device unless `given` is a tensor, which has its own."""
    if isinstance(given, Array) or y.buffer.device == x.buffer.device:
        return y
    return transferred(y, x.buffer.device)


cdef tuple around(Array x, int axis):
    """(outer, n, inner) of an axis."""
    return elements(x, 0, axis), x.extent[axis], elements(x, axis + 1, x.ndim_)


cdef Op take_op = operation("take", take_backward, "y_j = x at index i_j along an axis",
                            "dx at i = Σ g_j over all j with i_j = i")
cdef int take_backward(Node node, Array g) except -1:
    cdef Array total
    axis, index, shape = node.extra
    if recording() or not node.can_accumulate(0):
        return node.send(0, scatter_rows(g, axis, index, shape))
    total = node.accumulator(0)
    outer, n, inner = around(total, axis)
    backend(g).add_at(outer, n, inner, total, index, dense(g))
    return 0


cdef Array take_rows(Array x, int axis, Array index):
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
    return node.send(0, take_rows(g, axis, index))


cdef Array scatter_rows(Array g, int axis, Array index, tuple shape):
    """Zeros of a shape, with g added at the indices along an axis: the adjoint of `take_rows`."""
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
    >>> mg.take(mg.tensor([10.0, 20.0, 30.0]), mg.tensor([2, 0]))
    tensor([30., 10.])
    """
    cdef Call _call = begin(take_op)
    cdef Array a = operand("take", x), index = indices_of("take", indices)
    if axis is None and a.ndim_ != 1:
        raise ValueError(f"[take] expected an axis for {a.ndim_} axes")
    cdef int k = one_axis("take", 0 if axis is None else axis, a.ndim_)
    index = check_index("take", index, a.extent[k], k, a.buffer.device)
    cdef Array out = take_rows(a, k, reshape_to(index, (index.count,)))
    shape = shape_of(a)
    return out if index.ndim_ == 1 else reshape_to(out, shape[:k] + shape_of(index) + shape[k + 1:])


def numbered(str error, indices: Tensor, int64_t n) -> Tensor:
    """Integers from 0 to n - 1 as int64; any other raises an IndexError that begins with `error`."""
    cdef Call _call = begin(None)
    note_read(<Array?>indices)
    cdef Array given = cast(<Array>indices, INT64), i = dense(given), out = empty_as(i, INT64)
    if n == 0 and i.count:
        raise IndexError(f"{error} from 0 to -1, that is, none, got {i.count}")
    backend(i).class_labels(error, n, 0, i, None, out, None)    # 0, the label to ignore, is in range anyway
    return note_result("copy", out, given)


def look_up(table: Tensor, indices: Tensor) -> Tensor:
    """The rows of a table [V, D] at integers from 0 to V - 1, of any shape."""
    cdef Call _call = begin("embedding")
    cdef Array a = <Array?>table, i
    if a.ndim_ != 2:
        raise ValueError(f"[embedding] expected a table of shape (V, D), got {shape_of(a)}")
    i = index_for(a.buffer.device, "embedding", numbered("[embedding] expected indices", indices, a.extent[0]))
    cdef Array out = take_rows(a, 0, reshape_to(i, (i.count,)))
    return out if i.ndim_ == 1 else reshape_to(out, shape_of(i) + shape_of(a)[1:])


cdef Op take_along_op = operation("take_along_axis", take_along_backward, "y[o, j, i] = x[o, index[o, j, i], i]",
                                  "dx = 0, then g[o, j, i] added at [o, index[o, j, i], i]")
cdef int take_along_backward(Node node, Array g) except -1:
    axis, index, shape = node.extra
    return node.send(0, add_along(g, index, axis, shape))


cdef Array take_along(Array x, Array index, int axis):
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
    return node.send(0, take_along(g, index, axis))


cdef Array add_along(Array g, Array index, int axis, tuple shape):
    cdef Array out = zeros(shape, g.code, g.buffer.device)
    outer, n, inner = around(out, axis)
    backend(g).add_along(outer, n, inner, out, index.extent[axis], index, dense(g))
    track(add_along_op, out, g, None, None, (axis, index))
    return out


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
    """The elements of x at one index each along an axis, as `numpy.take_along_axis`.

    Raises
    ------
    IndexError
        If an index is out of range; for indices on a GPU, at the next transfer to the CPU or `mg.cuda.synchronize`.
    ValueError
        If the indices are on a GPU that is not x's, or if the shapes do not broadcast along the other axes.

    Examples
    --------
    >>> x = mg.tensor([[3.0, 1.0, 2.0]])
    >>> mg.take_along_axis(x, mg.argsort(x), axis=1)
    tensor([[1., 2., 3.]])
    """
    cdef Call _call = begin("take_along_axis")
    cdef Array a = operand("take_along_axis", x), index = indices_of("take_along_axis", indices)
    cdef int k = one_axis("take_along_axis", axis, a.ndim_)
    index = check_index("take_along_axis", index, a.extent[k], k, a.buffer.device)
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
    return take_along(a, broadcast_shape(index, tuple(shape)), k)


def scatter_add(x: TensorLike, axis: int, indices: TensorLike, values: TensorLike) -> Tensor:
    """x with values added at one index each along an axis: what `take_along_axis` reads, this adds to.

    Values whose indices are equal add up. x itself does not change.

    Parameters
    ----------
    x : Tensor
        Of a floating dtype.
    axis : int
    indices : Tensor of integers
        Of x's shape except along the axis; negative ones count from the end.
    values : Tensor
        Of the shape of the indices, or one number.

    Raises
    ------
    IndexError
        If an index is out of range; for indices on a GPU, at the next transfer to the CPU or `mg.cuda.synchronize`.
    ValueError
        If the shapes do not match, or the indices are on a GPU that is not x's.

    Examples
    --------
    >>> mg.scatter_add(mg.zeros(3), 0, mg.tensor([2, 0, 2]), mg.tensor([1.0, 2.0, 3.0]))
    tensor([2., 0., 4.])
    """
    cdef Call _call = begin("scatter_add")
    cdef Array a = float_operand("scatter_add", x), index = indices_of("scatter_add", indices), v
    number = plain_scalar("scatter_add", values)
    v = operand("scatter_add", values if number is None else number)
    cdef int k = one_axis("scatter_add", axis, a.ndim_)
    shape = shape_of(a)
    if shape_of(index)[:k] != shape[:k] or shape_of(index)[k + 1:] != shape[k + 1:] or index.ndim_ != a.ndim_:
        raise ValueError(f"[scatter_add] expected indices of the shape {shape} except along axis {k}, "
                         f"got {shape_of(index)}")
    if v.ndim_ and shape_of(v) != shape_of(index):
        raise ValueError(f"[scatter_add] expected values of the shape {shape_of(index)} of the indices, "
                         f"got {shape_of(v)}")
    if number is None:
        check_same_device("scatter_add", a, v)
        if v.code > a.code:
            raise TypeError(f"[scatter_add] expected values of {a.dtype}, got {v.dtype}")
    elif a.buffer.device:
        v = transferred(v, a.buffer.device)
    index = check_index("scatter_add", index, a.extent[k], k, a.buffer.device)
    return add(a, add_along(broadcast_shape(cast(v, a.code), shape_of(index)), index, k, shape))


# ── order ─────────────────────────────────────────────────────────────────────────────────────────

def argsort(x: TensorLike, axis: int = -1, *, bint descending=False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort x along an axis; equal elements keep their order, NaN comes last.

    Examples
    --------
    >>> mg.argsort(mg.tensor([3.0, 1.0, 2.0]))
    tensor([1, 2, 0])
    """
    cdef Call _call = begin("argsort")
    cdef Array a = operand("argsort", x), plain, out
    cdef int k = one_axis("argsort", axis, a.ndim_)
    order = [i for i in range(a.ndim_) if i != k] + [k]
    plain = dense(permute_raw(a, order))
    out = empty_as(plain, INT64)
    backend(a).argsort(plain, descending, out)
    out = permute_raw(out, [order.index(i) for i in range(a.ndim_)])
    return note_result("argsort", out, a, None, (k, descending))


def sort(x: TensorLike, axis: int = -1, *, bint descending=False, stable: bool = True) -> Tensor:
    """x sorted along an axis; the gradient goes back to where each element came from.

    Examples
    --------
    >>> mg.sort(mg.tensor([3.0, 1.0, 2.0]), descending=True)
    tensor([3., 2., 1.])
    """
    cdef Call _call = begin("sort")
    cdef Array a = operand("sort", x)
    cdef int k = one_axis("sort", axis, a.ndim_)
    cdef Array index = argsort(a, axis=k, descending=descending)
    return take_along(a, index, k)


def ranked(x: Tensor, ranks: Tensor) -> Tensor:
    """Floats of x [..., n] of these ranks (m of int64, from 0) in each row: [..., m], NaN if the row has one."""
    cdef Call _call = begin("sort")
    cdef Array a = <Array?>x, r = <Array?>ranks, index
    index = zeros(shape_of(a)[:-1] + (r.count,), INT64, a.buffer.device)
    if index.count:
        backend(a).ranked(index.count // r.count, a.extent[a.ndim_ - 1], dense(a), r, index)
    return take_along(a, index, a.ndim_ - 1)


def nonzero(x: TensorLike) -> tuple[Tensor, ...]:
    """The indices of the nonzero elements in row-major order: a tuple with one int64 tensor for each axis.

    Their number depends on the values, so for a tensor on a GPU this waits and runs on the CPU. So do masks.

    Examples
    --------
    >>> mg.nonzero(mg.tensor([0, 5, 0, 7]))
    (tensor([1, 3]),)
    """
    cdef Call _call = begin("nonzero")
    cdef Array a = operand("nonzero", x)
    if a.ndim_ == 0:
        raise ValueError("[nonzero] expected at least one axis, got a 0-d tensor")
    found = tuple(backend(a).nonzero(a))
    if listeners:
        note_computed("nonzero", found, (a,), None)
    return found


def unique_values(x: TensorLike) -> Tensor:
    """The distinct elements of x, sorted; every NaN counts as distinct.

    Runs on the CPU, like `nonzero`.

    Examples
    --------
    >>> mg.unique_values(mg.tensor([3, 1, 3]))
    tensor([1, 3])
    """
    cdef Call _call = begin("unique_values")
    cdef Array a = operand("unique_values", x)
    return backend(a).unique(dense(a))
