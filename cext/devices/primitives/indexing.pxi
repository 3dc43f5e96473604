import numpy as np

from minigrad.engine.devices.kernel_list cimport repeat
from minigrad.engine.memory.array cimport alias, empty_as
from minigrad.engine.memory.calls cimport is_capturing, refuse_in_capture
from minigrad.engine.memory.dtype cimport BOOL
from minigrad.engine.memory.interop cimport from_object

cpdef class_labels(self, str error, int64_t width, int64_t ignore, Array labels, Array weight: Tensor | None,
                   Array out, Array inverse: Tensor | None):
    """out = int64 labels, each from 0 to width - 1, or the label to `ignore`.

    inverse (0-d float, or None) = 1 / the number of rows that count, or 1 / the sum of their classes' weights (of
    inverse's dtype, or None); NaN if none counts. A label out of range is an IndexError that begins with `error`,
    at once on the CPU, elsewhere by the next transfer to the CPU; until then `out` holds some class in its place.
    """
    if is_capturing():
        return repeat((<object>self).class_labels, (error, width, ignore, labels, weight, out, inverse))
    check_labels(error, width, ignore, labels, weight, out, inverse)

cpdef checked_index(self, str op, int axis, int64_t n, Array index, Array out):
    """out = int64 indices from 0 to n - 1, of which negative ones count from the end.

    An index out of range is an IndexError of `op`, raised as soon as the error of `class_labels`.
    """
    if is_capturing():
        return repeat((<object>self).checked_index, (op, axis, n, index, out))
    check_index(op, axis, n, index, out)

# bytes: index.nbytes + 2 * out.nbytes
cpdef take(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array out):
    """out[outer, j, inner] = x[outer, index[j], inner]; here and below indices are from 0 to n - 1."""
    launch(out.count, kernels.take, outer, n, inner, <int64_t>itemsize(x.code), x.data, index.count,
           <const int64_t*>index.data, out.data)

# bytes: index.nbytes + 2 * v.nbytes
cpdef put(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
    """x[outer, index[j], inner] = v[outer, j, inner]; the last of equal indices wins."""
    launch(v.count, kernels.put, outer, n, inner, <int64_t>itemsize(x.code), x.data, index.count,
           <const int64_t*>index.data, v.data)

# flops: v.size
# bytes: index.nbytes + 3 * v.nbytes
cpdef add_at(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
    """x[outer, index[j], inner] += v[outer, j, inner], in the order of j; floats."""
    launch(v.count, kernels.add_at[x.code - FLOAT32], outer, n, inner, x.data, index.count,
           <const int64_t*>index.data, v.data)

# bytes: index.nbytes + 2 * out.nbytes
cpdef take_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array out):
    """out[o, j, i] = x[o, index[o, j, i], i]."""
    launch(out.count, kernels.take_along[x.code], outer, n, inner, x.data, m, <const int64_t*>index.data, out.data)

# flops: v.size
# bytes: index.nbytes + 3 * v.nbytes
cpdef add_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array v):
    """x[o, index[o, j, i], i] += v[o, j, i], in the order of j; floats."""
    launch(v.count, kernels.add_along[x.code - FLOAT32], outer, n, inner, x.data, m, <const int64_t*>index.data,
           v.data)

# Sorting is left to NumPy, whose vectorized sorts are hard to beat. It runs without the GIL and assumes that nobody
# writes to its input meanwhile, so it gets copies.

cpdef argsort(self, Array x, bint descending, Array out):
    """out (int64) = the stable order of the last axis of x; NaN comes last."""
    if is_capturing():
        return repeat((<object>self).argsort, (x, descending, out))
    values, order = alias(x).numpy().copy(), alias(out).numpy()
    if descending:      # stable: equal elements keep their order
        order[...] = x.extent[x.ndim_ - 1] - 1 - np.flip(np.argsort(np.flip(values, -1), -1, stable=True), -1)
    else:
        order[...] = np.argsort(values, -1, stable=True)

cpdef ranked(self, int64_t rows, int64_t n, Array x, Array ranks, Array out):
    """out[row, j] (int64) = where the element of rank ranks[j] is in x[row]; where NaN is, if there is one."""
    cdef Array keys = empty_as(x, x.code)
    launch(x.count, kernels.ranked[x.code - FLOAT32], rows, n, <const void*>x.data, ranks.count,
           <const int64_t*>ranks.data, keys.data, <int64_t*>out.data)

cpdef nonzero(self, Array x):  # -> tuple[Tensor, ...]
    """A tuple of int64 tensors: the positions of the elements that are not zero, row-major."""
    refuse_in_capture("nonzero, whose result has a shape that depends on values")
    cdef int64_t chunks = (x.count + MASK_CHUNK - 1) // MASK_CHUNK, total = 0, c
    values = alias(x).numpy()
    true = np.not_equal(values, values.dtype.type(0))       # a copy, which no other thread can write meanwhile
    if x.ndim_ != 1:
        return tuple([from_object(np.ascontiguousarray(a, dtype=np.int64), INT64, 0, False)
                      for a in np.nonzero(true)])
    cdef Array mask = from_object(true, BOOL, 0, False), counts = empty(INT64, 1, &chunks, 0), found
    cdef int64_t* starts = <int64_t*>counts.data
    launch(x.count, kernels.count_true, x.count, <const uint8_t*>mask.data, starts)
    for c in range(chunks):
        starts[c], total = total, total + starts[c]
    found = empty(INT64, 1, &total, 0)
    launch(x.count, kernels.true_positions, x.count, <const uint8_t*>mask.data, <const int64_t*>starts,
           <int64_t*>found.data)
    return (found,)

cpdef unique(self, Array x):  # -> Tensor
    """The sorted distinct elements."""
    refuse_in_capture("unique, whose result has a shape that depends on values")
    return from_object(np.unique(alias(x).numpy().copy(), equal_nan=False), x.code, 0, False)
