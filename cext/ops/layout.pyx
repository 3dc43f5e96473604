"""Views, copies, conversions, broadcasting and sums: the operations that move values without changing them.

They are each other's adjoints: the adjoint of a broadcast is a sum.
"""
import itertools

import numpy as np
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport SUM, backend
from minigrad.engine.memory.array cimport Array, empty, empty_as, shape_of, view
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport INT64, code_of, dtype_of, is_float, itemsize
from minigrad.engine.memory.listener cimport listeners, note_computed
from minigrad.engine.memory.shapes cimport MAX_NDIM, parse_shape, product
from minigrad.engine.ops.arguments cimport many_axes, one_axis, operand, refuse_bytes
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport copy_op, track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD


cdef Array dense(Array x):
    """x itself if contiguous, else a contiguous copy: what kernels read. Not recorded."""
    if x.packed:
        return x
    cdef Array out = empty_as(x, x.code)
    backend(x).copy(x, out)
    return out


cdef Array copy_array(Array x):
    cdef Call _call = begin(copy_op)
    cdef Array out = empty_as(x, x.code)
    backend(x).copy(x, out)
    track(copy_op, out, x)
    return out


cdef Op astype_op = operation("astype", cast_backward, "y = x in another dtype", "dx = g in the dtype of x")
cdef int cast_backward(Node node, Array g) except -1:
    return node.send(0, cast(g, node.extra))


cdef Array cast(Array x, int code):
    if x.code == code:
        return x
    cdef Call _call = begin(astype_op)
    cdef Array out = empty_as(x, code)
    backend(x).copy(x, out)
    if is_float(code) and is_float(x.code):
        track(astype_op, out, x, None, None, x.code)
    elif listeners:
        note_computed("astype", (out,), (x,), x.code)
    return out


def astype(x: TensorLike, dtype: DTypeLike, *, bint copy: bool | None = True, device: str | None = None,
           order: str = "K", casting: str = "unsafe") -> Tensor:
    """x with its elements converted to `dtype`.

    Floats are truncated to integers; those out of range become the nearest integer, and NaN becomes 0. Integers keep
    their lower bits. `minigrad.tensor` with a dtype refuses values out of range and NaN.

    Parameters
    ----------
    x : Tensor
    dtype : DType or str
    copy : bool
        If False, return x itself if no conversion is needed.
    device : str, optional
        Where the result is; by default, on x's device.
    order : str
        NumPy's, for libraries that pass it: "K", "A" or "C", which all mean row-major here.
    casting : str
        As in ``np.can_cast``; a conversion that it does not allow is a TypeError.

    Examples
    --------
    >>> mg.astype(mg.tensor([1.7, -1.7]), "int32")
    tensor([ 1, -1], dtype=int32)
    """
    cdef Call _call = begin(astype_op)
    cdef int code = code_of(dtype, "astype")
    cdef Array a = operand("astype", x)
    if order not in ("K", "A", "C"):
        raise ValueError(f"[astype] expected order 'K', 'A' or 'C', got {order!r}")
    if casting != "unsafe" and not np.can_cast(a.dtype.name, dtype_of(code).name, casting):
        raise TypeError(f"[astype] expected a conversion that casting={casting!r} allows, got {a.dtype} to "
                        f"{dtype_of(code)}")
    if device is not None:
        copy, a = copy and a.device == device, (<object>a).to(device)
    return cast(a, code) if a.code != code or not copy else copy_array(a)


cdef Op reshape_op = operation("reshape", reshape_backward, "y = the elements of x, in the same order",
                               "dx = g in the shape of x")
cdef int reshape_backward(Node node, Array g) except -1:
    return node.send(0, reshape_to(g, <tuple>node.extra))


cdef Array reshape_array(Array x, int ndim, const int64_t* extent):
    """x in a shape of as many elements; a view if x is contiguous."""
    cdef int64_t[MAX_NDIM] step
    cdef int64_t count = itemsize(x.code)
    cdef int i
    for i in range(ndim - 1, -1, -1):
        step[i] = count
        count *= extent[i]
    cdef Array base = dense(x)
    cdef Array out = view(base, ndim, extent, step, base.data)
    if listeners or (recording() and x.needs_grad):
        track(reshape_op, out, x, None, None, shape_of(x))
    return out


cdef Array reshape_to(Array x, tuple shape):
    cdef int64_t[MAX_NDIM] extent
    return reshape_array(x, parse_shape(shape, extent), extent)


cpdef Array reshape(x: TensorLike, shape: int | Sequence[int], copy: bool | None = None):
    """x with its elements, in row-major order, in another shape; one length may be -1.

    A view if x is contiguous (`copy=False` requires a view, `copy=True` a copy).

    Raises
    ------
    ValueError
        If the number of elements would change.

    Examples
    --------
    >>> mg.reshape(mg.arange(6), (2, -1))
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    cdef Call _call = begin(reshape_op)
    cdef Array a = operand("reshape", x)
    cdef int64_t[MAX_NDIM] extent
    cdef int ndim = parse_shape(shape, extent, "reshape"), i, free = -1
    cdef int64_t known
    cdef bint insisted = copy is False, fresh = bool(copy)
    for i in range(ndim):
        if extent[i] == -1 and free < 0:
            free, extent[i] = i, 1
        elif extent[i] < 0:
            raise ValueError(f"[reshape] expected lengths of 0 or more and at most one -1, got {shape}")
    known = product(ndim, extent)
    if free >= 0 and known > 0 and a.count % known == 0:
        extent[free] = a.count // known
    elif free >= 0 or known != a.count:
        raise ValueError(f"[reshape] expected a shape of {a.count} elements for {shape_of(a)}, got {shape}")
    if insisted and not a.packed:
        raise ValueError(f"[reshape] a tensor with strides {a.strides} cannot be reshaped without a copy")
    return reshape_array(copy_array(a) if fresh else a, ndim, extent)


cpdef Array ravel(x: TensorLike):
    """x with its elements, in row-major order, along one axis; a view if x is contiguous.

    Examples
    --------
    >>> mg.ravel(mg.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    cdef Call _call = begin("ravel")
    cdef Array a = operand("ravel", x)
    return reshape_to(a, (a.count,))


cdef Op permute_dims_op = operation("permute_dims", permute_backward, "y = x with its axes in another order",
                                    "dx = g with its axes back in place")
cdef int permute_backward(Node node, Array g) except -1:
    order = <list>node.extra
    return node.send(0, permute(g, [order.index(i) for i in range(len(order))]))


cdef Array permute(Array x, list order):
    cdef int64_t[MAX_NDIM] extent, step
    cdef int i = 0
    for k in order:
        extent[i], step[i] = x.extent[<int>k], x.step[<int>k]
        i += 1
    cdef Array out = view(x, x.ndim_, extent, step, x.data)
    track(permute_dims_op, out, x, None, None, order)
    return out


cpdef Array permute_dims(x: TensorLike, axes: Sequence[int]):
    """x with its axes in the given order; a view.

    Examples
    --------
    >>> mg.permute_dims(mg.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    cdef Call _call = begin(permute_dims_op)
    cdef Array a = operand("permute_dims", x)
    if not hasattr(axes, "__iter__"):
        axes = (axes,)
    axes = tuple(itertools.islice(axes, MAX_NDIM + 1))      # an iterator may be endless
    order = [one_axis("permute_dims", k, a.ndim_) for k in axes]
    if len(order) != a.ndim_ or len(set(order)) != a.ndim_:
        raise ValueError(f"[permute_dims] expected each of {a.ndim_} axes once, got {axes}")
    return permute(a, order)


cpdef Array matrix_transpose(x: TensorLike):
    """x with its last two axes exchanged; a view.

    Examples
    --------
    >>> mg.matrix_transpose(mg.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    cdef Call _call = begin("matrix_transpose")
    cdef Array a = operand("matrix_transpose", x)
    if a.ndim_ < 2:
        raise ValueError(f"[matrix_transpose] expected two axes or more, got shape {shape_of(a)}")
    return permute(a, [*range(a.ndim_ - 2), a.ndim_ - 1, a.ndim_ - 2])


cpdef Array moveaxis(x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]):
    """x with the axes `source` moved to the positions `destination`; a view.

    Examples
    --------
    >>> mg.moveaxis(mg.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    cdef Call _call = begin("moveaxis")
    cdef Array a = operand("moveaxis", x)
    sources, places = [
        [one_axis("moveaxis", k, a.ndim_) for k in (axes if isinstance(axes, (tuple, list)) else (axes,))]
        for axes in (source, destination)
    ]
    if len(sources) != len(places) or len(set(sources)) != len(sources) or len(set(places)) != len(places):
        raise ValueError(f"[moveaxis] expected as many distinct positions as axes, got {source} and {destination}")
    order = [k for k in range(a.ndim_) if k not in sources]
    for place, k in sorted(zip(places, sources)):
        order.insert(place, k)
    return permute(a, order)


cpdef Array swapaxes(x: TensorLike, axis1: int, axis2: int):
    """x with two axes exchanged; a view.

    Examples
    --------
    >>> mg.swapaxes(mg.ones((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    cdef Call _call = begin("swapaxes")
    cdef Array a = operand("swapaxes", x)
    cdef int first = one_axis("swapaxes", axis1, a.ndim_), second = one_axis("swapaxes", axis2, a.ndim_)
    order = list(range(a.ndim_))
    order[first], order[second] = second, first
    return permute(a, order)


cpdef Array expand_dims(x: TensorLike, axis: int | Sequence[int] | None):
    """x with an axis of length one at position `axis` (an int, or a tuple of positions in the result).

    Examples
    --------
    >>> mg.expand_dims(mg.ones(3), 0).shape
    (1, 3)
    """
    cdef Call _call = begin("expand_dims")
    cdef Array a = operand("expand_dims", x)
    places = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = many_axes("expand_dims", places, a.ndim_ + <int>len(places))
    shape = list(shape_of(a))
    for k in places:
        shape.insert(k, 1)
    return reindex(a, shape)


cpdef Array squeeze(x: TensorLike, axis: int | Sequence[int] | None = None):
    """x without its axes of length one: all of them, or those named.

    Raises
    ------
    ValueError
        If a named axis has another length.

    Examples
    --------
    >>> mg.squeeze(mg.ones((1, 3, 1))).shape
    (3,)
    """
    cdef Call _call = begin("squeeze")
    cdef Array a = operand("squeeze", x)
    drop = [k for k in range(a.ndim_) if a.extent[<int>k] == 1] if axis is None else many_axes("squeeze", axis, a.ndim_)
    for k in drop:
        if a.extent[<int>k] != 1:
            raise ValueError(f"[squeeze] expected length 1 on axis {k}, got shape {shape_of(a)}")
    return reindex(a, [a.extent[<int>k] for k in range(a.ndim_) if k not in drop])


cdef Array reindex(Array x, list shape):
    """x with axes of length one added or dropped: always a view."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef int ndim = parse_shape(shape, extent), i, k = 0
    for i in range(ndim):
        step[i] = itemsize(x.code)
        if extent[i] == 1:
            continue
        while x.extent[k] == 1:
            k += 1
        step[i] = x.step[k]
        k += 1
    cdef Array out = view(x, ndim, extent, step, x.data)
    if listeners or (recording() and x.needs_grad):
        track(reshape_op, out, x, None, None, shape_of(x))
    return out


cdef Op broadcast_to_op = operation("broadcast_to", broadcast_backward, "y = x repeated along axes",
                                    "dx = Σ g over the axes that were repeated")
cdef int broadcast_backward(Node node, Array g) except -1:
    return node.send(0, sum_to(g, <tuple>node.extra))


cdef Array broadcast(Array x, int ndim, const int64_t* extent):
    """x repeated to a shape, as a view with strides of zero; the caller has checked that the shapes agree."""
    cdef int64_t[MAX_NDIM] step
    cdef int i, lead = ndim - x.ndim_
    product(ndim, extent)
    for i in range(ndim):
        step[i] = 0 if i < lead or (x.extent[i - lead] == 1 and extent[i] != 1) else x.step[i - lead]
    cdef Array out = view(x, ndim, extent, step, x.data)
    if listeners or (recording() and x.needs_grad):
        track(broadcast_to_op, out, x, None, None, shape_of(x))
    return out


cdef Array broadcast_shape(Array x, tuple shape):
    cdef int64_t[MAX_NDIM] extent
    cdef int ndim = parse_shape(shape, extent, "broadcast_to"), i
    cdef int lead = ndim - x.ndim_
    cdef bint fits = lead >= 0
    for i in range(ndim if fits else 0):
        fits = fits and extent[i] >= 0 and (i < lead or x.extent[i - lead] == extent[i] or x.extent[i - lead] == 1)
    if not fits:
        raise ValueError(f"[broadcast_to] a shape of {shape_of(x)} does not broadcast to {shape}")
    return broadcast(x, ndim, extent)


cpdef Array broadcast_to(x: TensorLike, shape: int | Sequence[int]):
    """x repeated to a larger shape; a view that must not be written.

    Raises
    ------
    ValueError
        If an axis of x is neither of length one nor of the requested length.

    Examples
    --------
    >>> mg.broadcast_to(mg.tensor([1.0, 2.0]), (2, 2))
    tensor([[1., 2.],
            [1., 2.]])
    """
    cdef Call _call = begin(broadcast_to_op)
    listed = hasattr(shape, "__iter__") and not isinstance(shape, str)
    return broadcast_shape(operand("broadcast_to", x), tuple(shape) if listed else (shape,))


# ── sums ──────────────────────────────────────────────────────────────────────────────────────────

cdef int64_t elements(Array x, int first, int last):
    """The number of elements in the axes from `first` up to, but not including, `last`."""
    cdef int64_t n = 1
    cdef int i
    for i in range(first, last):
        n *= x.extent[i]
    return n


cdef tuple reduction(Array x, list axes):
    """(dense x, outer, n, inner): x laid out so that the axes to reduce are one middle axis."""
    cdef int first, last
    if axes and <int>axes[-1] - <int>axes[0] + 1 != len(axes):     # not adjacent: move them to the end
        x = permute_raw(x, [k for k in range(x.ndim_) if k not in axes] + axes)
        axes = list(range(x.ndim_ - len(axes), x.ndim_))
    first, last = (axes[0], axes[-1] + 1) if axes else (x.ndim_, x.ndim_)
    return dense(x), elements(x, 0, first), elements(x, first, last), elements(x, last, x.ndim_)


cdef Array permute_raw(Array x, list order):
    cdef int64_t[MAX_NDIM] extent, step
    cdef int i
    for i in range(x.ndim_):
        extent[i], step[i] = x.extent[<int>order[i]], x.step[<int>order[i]]
    return view(x, x.ndim_, extent, step, x.data)


cdef Array empty_reduced(Array x, list axes, bint keepdims, int code):
    """An array for the result of reducing x over axes, not initialized."""
    cdef int64_t[MAX_NDIM] extent
    cdef int i, n = 0
    for i in range(x.ndim_):
        if i not in axes:
            extent[n] = x.extent[i]
            n += 1
        elif keepdims:
            extent[n] = 1
            n += 1
    return empty(code, n, extent, x.buffer.device)


cdef Array reduce_axes(int op, Array x, list axes, bint keepdims, int code):
    """x reduced over axes by a kernel; not recorded."""
    cdef Array out = empty_reduced(x, axes, keepdims, code), plain
    plain, outer, n, inner = reduction(x, axes)
    backend(x).reduce(op, outer, n, inner, plain, out)
    return out


cdef Op sum_op = operation("sum", sum_backward, "y = Σ x over axes", "dx = g, repeated over these axes")
cdef int sum_backward(Node node, Array g) except -1:
    shape, kept = node.extra
    return node.send(0, broadcast_shape(reshape_to(g, kept), shape))


cdef Array sum_axes(Array x, list axes, bint keepdims):
    cdef Call _call = begin(sum_op)
    cdef Array out = reduce_axes(SUM, x, axes, keepdims, x.code)
    if listeners or (recording() and x.needs_grad):
        track(sum_op, out, x, None, None,
              (shape_of(x), tuple([1 if i in axes else x.extent[<int>i] for i in range(x.ndim_)])))
    return out


cdef Array sum_to(Array g, tuple shape):
    """g summed over the axes that a broadcast from `shape` repeated."""
    cdef int lead = g.ndim_ - <int>len(shape), i
    axes = [i for i in range(g.ndim_) if i < lead or (shape[i - lead] == 1 and g.extent[i] != 1)]
    if not axes:
        return g
    return reshape_to(sum_axes(g, axes, False), shape)


cdef Array summand(str op, object x, object dtype):
    """The operand of sums and products, of the requested dtype or, as in the array API, no small integer."""
    cdef Array a = operand(op, x)
    cdef int code
    if dtype is not None:
        code = code_of(dtype, op)
        a = cast(a, code)
        refuse_bytes(op, a)
    elif a.code < INT64:
        a = cast(a, INT64)
    return a


def sum(x: TensorLike, axis: int | Sequence[int] | None = None, *, bint keepdims=False,
        dtype: DTypeLike = None) -> Tensor:
    """The sum of the elements over `axis` (an int, a tuple, or None for all).

    Parameters
    ----------
    x : Tensor
        Of any dtype.
    axis : int, tuple of int or None
    keepdims : bool
        Keep the summed axes with length one.
    dtype : DType, optional
        The dtype of the computation and the result; by default int64 for bool, uint8 and int32. Not bool or uint8.

    Returns
    -------
    Tensor
        Sums of floats are pairwise: the error grows with the logarithm of their number.

    Examples
    --------
    >>> mg.sum(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    tensor([4., 6.])
    """
    cdef Call _call = begin(sum_op)
    cdef Array a = summand("sum", x, dtype)
    return sum_axes(a, many_axes("sum", axis, a.ndim_), keepdims)
