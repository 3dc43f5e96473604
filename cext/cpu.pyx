# cython: allow_none_for_extension_args=True
"""The CPU backend: every primitive is a kernel of the table, started through `launch`.

Primitives take the sizes and arrays of operations, which have checked them; here nothing is checked again.
"""
cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import operator
import os

import numpy as np

from minigrad.engine.array cimport Array, alias, empty, empty_as, view
from minigrad.engine.backend cimport Backend, register
from minigrad.engine.calls cimport ACTIVE, is_recorded, refuse_in_capture
from minigrad.engine.dtype cimport BOOL, FLOAT32, FLOAT64, INT32, INT64, itemsize
from minigrad.engine.interop cimport from_object
from minigrad.engine.recording cimport repeat
from minigrad.engine.blas import find

# ── elementwise ───────────────────────────────────────────────────────────────────────────────────

cdef int elementwise(str what, Loop loop, int operands, Array a, Array b, Array c, Array out) except -1:
    """Run a loop over `operands` arrays, the last of them `out`, of one shape."""
    if loop == NULL:
        raise TypeError(f"[{what}] not defined for {a.dtype}")
    cdef Flat flat
    cdef Strided strided
    cdef bint dense = out.packed and a.packed
    if operands == 2:
        if dense:
            flat.operands, flat.count = 2, out.count
            flat.data[0], flat.data[1] = a.data, out.data
            flat.step[0], flat.step[1] = itemsize(a.code), itemsize(out.code)
            launch(out.count, run_flat, loop, flat)
            return 0
    elif operands == 3:
        if dense and b.packed:
            flat.operands, flat.count = 3, out.count
            flat.data[0], flat.data[1], flat.data[2] = a.data, b.data, out.data
            flat.step[0], flat.step[1], flat.step[2] = itemsize(a.code), itemsize(b.code), itemsize(out.code)
            launch(out.count, run_flat, loop, flat)
            return 0
    describe(&strided, operands, out)
    fill_operand(&strided, 0, a)
    if operands > 2:
        fill_operand(&strided, 1, b)
    if operands > 3:
        fill_operand(&strided, 2, c)
    launch(out.count, run, loop, strided)
    return 0


def is_defined(str primitive, int op, int code) -> bool:
    """bool: whether "unary", "binary" or "reduce" has this operation for a dtype; all devices have the same ones."""
    cdef int ops = UNARY_OPS if primitive == "unary" else BINARY_OPS if primitive == "binary" else REDUCE_OPS
    if not (0 <= op < ops and 0 <= code < DTYPES):
        raise IndexError(f"[{primitive}] expected op below {ops} and code below {DTYPES}, got {op}, {code}")
    if primitive == "unary":
        return kernels.unary[op][code] != NULL
    if primitive == "binary":
        return kernels.binary[op][code] != NULL
    return kernels.reduce[op][code] != NULL


cdef inline void describe(Strided* s, int operands, Array out) noexcept:
    """The shape of all operands, and the last of them."""
    cdef int d
    s.ndim, s.operands, s.count = out.ndim_, operands, out.count
    for d in range(out.ndim_):
        s.extent[d] = out.extent[d]
    fill_operand(s, operands - 1, out)


cdef inline uint64_t element_of(int code, value) except? 1:
    """A number as one element in memory."""
    cdef uint64_t element = 0
    cdef char* start = <char*>&element
    if code == FLOAT32:
        (<float*>start)[0] = value
    elif code == FLOAT64:
        (<double*>start)[0] = value
    elif code == INT64:
        (<int64_t*>start)[0] = value
    elif code == INT32:
        (<int32_t*>start)[0] = value
    else:
        start[0] = bool(value)
    return element


cdef inline void fill_operand(Strided* s, int k, Array x) noexcept:
    cdef int d
    s.data[k] = x.data
    s.size[k] = itemsize(x.code)
    for d in range(x.ndim_):
        s.step[k][d] = x.step[d]


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class CPU(Backend):
    """The primitives on the CPU; each method's contract is in `Backend`."""

    cpdef unary(self, int op, Array x, Array out):
        elementwise("unary", kernels.unary[op][x.code], 2, x, None, None, out)

    cpdef binary(self, int op, Array a, Array b, Array out):
        elementwise("binary", kernels.binary[op][a.code], 3, a, b, None, out)

    cpdef where(self, Array condition, Array a, Array b, Array out):
        elementwise("where", kernels.where[a.code], 4, condition, a, b, out)

    cpdef clip(self, double low, double high, Array x, Array out):
        cdef Strided strided
        cdef int d
        describe(&strided, 4, out)
        fill_operand(&strided, 0, x)
        for d in range(out.ndim_):
            strided.step[1][d] = strided.step[2][d] = 0
        launch(out.count, run_limited, kernels.clip[x.code - FLOAT32], strided, element_of(x.code, low),
               element_of(x.code, high))

    cpdef copy(self, Array x, Array out):
        elementwise("copy", kernels.cast[x.code][out.code], 2, x, None, None, out)

    cpdef fill(self, Array out, value):
        cdef Strided strided
        cdef int d
        describe(&strided, 2, out)
        for d in range(out.ndim_):
            strided.step[0][d] = 0
        launch(out.count, run_filling, kernels.cast[out.code][out.code], strided, element_of(out.code, value))

    # ── reductions ──

    cpdef reduce(self, int op, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        if kernels.reduce[op][x.code] == NULL:
            raise TypeError(f"[reduce] not defined for {x.dtype}")
        launch(x.count, kernels.reduce[op][x.code], outer, n, inner, x.data, out.data)

    cpdef moments(self, int64_t outer, int64_t n, int64_t inner, Array x, Array mean, Array m2):
        launch(x.count, kernels.moments[x.code - FLOAT32], outer, n, inner, x.data, mean.data, m2.data)

    cpdef cumulative_sum(self, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        launch(x.count, kernels.cumulative_sum[x.code], outer, n, inner, x.data, out.data)

    cpdef linear_scan(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array b, Array initial,
                      Array h):
        launch(2 * a.count, kernels.linear_scan[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data, b.data,
               pointer(initial), h.data)

    cpdef linear_scan_backward(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array h,
                               Array initial, Array g, Array da, Array db, Array dinitial):
        launch(3 * a.count, kernels.linear_scan_backward[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data,
               pointer(h), pointer(initial), g.data, pointer(da), pointer(db), pointer(dinitial))

    # ── products ──

    cpdef gemm(self, Array a, Array b, Array out, double beta, Array bias):
        if not blas_loaded:
            load()
        cdef int last = out.ndim_ - 1
        cdef int64_t size = itemsize(out.code), batch = out.extent[0] if last == 2 else 1
        cdef int64_t m = out.extent[last - 1], n = out.extent[last], k = a.extent[last]
        cdef bint ta = a.step[last] != size, tb = b.step[last] != size
        # The stride of an axis of length one is meaningless; take that of a dense matrix.
        cdef int64_t lda = a.step[last if ta else last - 1] // size, ldb = b.step[last if tb else last - 1] // size
        if ta and a.extent[last] <= 1 and a.step[last - 1] == size:
            lda = max(lda, m)
        launch(batch * m * n * max(k // 16, 1), gemm_of, out.code, ta, tb, batch, m, n, k, a.data,
               max(lda, m if ta else k), (a.step[0] // size if last == 2 else 0), b.data,
               max(ldb, k if tb else n), (b.step[0] // size if last == 2 else 0), out.data,
               n, m * n, beta, NULL_POINTER if bias is None else <const void*>bias.data)

    # ── rows ──

    cpdef normalize(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma, Array beta,
                    double eps, Array y, Array mean, Array rstd):
        launch(x.count, kernels.normalize[x.code - FLOAT32], rows, groups, m, inner, x.data, pointer(gamma),
               pointer(beta), eps, y.data, pointer(mean), rstd.data)

    cpdef normalize_backward(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma,
                             Array mean, Array rstd, Array g, Array dx, Array dgamma, Array dbeta):
        cdef int64_t size = normalize_scratch(rows, groups, m, inner)
        cdef Array scratch = empty(rstd.code, 1, &size, 0)
        launch(2 * x.count, kernels.normalize_backward[x.code - FLOAT32], rows, groups, m, inner, x.data,
               pointer(gamma), pointer(mean), rstd.data, g.data, pointer(dx), pointer(dgamma), pointer(dbeta),
               scratch.data)

    cpdef batch_norm(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma, Array beta, double eps,
                     Array y, Array mean, Array var, Array statistics):
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(2 * x.count, kernels.batch_norm[x.code - FLOAT32], outer, channels, inner, x.data, pointer(gamma),
               pointer(beta), eps, y.data, mean.data, var.data, <double*>statistics.data, <double*>scratch.data)

    cpdef batch_norm_eval(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma, Array beta,
                          Array mean, Array var, double eps, Array y, Array statistics):
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(x.count, kernels.batch_norm_eval[x.code - FLOAT32], outer, channels, inner, x.data, pointer(gamma),
               pointer(beta), mean.data, var.data, eps, y.data, <double*>statistics.data, <double*>scratch.data)

    cpdef batch_norm_backward(self, int64_t outer, int64_t channels, int64_t inner, bint given, Array x, Array gamma,
                              Array statistics, Array g, Array dx, Array dgamma, Array dbeta):
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(2 * x.count, kernels.batch_norm_backward[x.code - FLOAT32], outer, channels, inner, <bint_>given, x.data,
               pointer(gamma), <double*>statistics.data, g.data, pointer(dx), pointer(dgamma), pointer(dbeta),
               <double*>scratch.data)

    # ── windows ──

    cpdef conv2d(self, Array x, Array w, Array bias, tuple at, Array y):
        x = self.bordered(x, w, at, y, True)
        cdef Conv2d c = convolution(x, w, at, y)
        cdef int64_t size = c.depth()
        cdef Array offsets = empty(INT64, 1, &size, 0)
        launch(y.count * size // 16, kernels.conv2d[x.code - FLOAT32], c, x.data, w.data, pointer(bias), y.data,
               <int64_t*>offsets.data)

    cpdef conv2d_backward_data(self, Array g, Array w, tuple at, Array dx):
        cdef Array bordered = self.bordered(dx, w, at, g, False), turned = empty_as(w, w.code)
        cdef Conv2d c = convolution(bordered, w, at, g)
        launch(g.count * c.depth() // 16, kernels.conv2d_backward_data[g.code - FLOAT32], c, g.data, w.data,
               bordered.data, turned.data)
        if bordered is not dx:
            self.copy(inside(bordered, dx, at), dx)

    cpdef conv2d_backward_weight(self, Array x, Array g, tuple at, Array dw, Array dbias):
        x = self.bordered(x, dw, at, g, True)
        cdef Conv2d c = convolution(x, dw, at, g)
        cdef int64_t size = c.depth(), partials = conv2d_partial(c)
        cdef Array offsets = empty(INT64, 1, &size, 0), partial = empty(x.code, 1, &partials, 0)
        launch(g.count * size // 16, kernels.conv2d_backward_weight[x.code - FLOAT32], c, x.data, g.data, dw.data,
               pointer(dbias), <int64_t*>offsets.data, partial.data)

    cdef Array bordered(self, Array x, Array w, tuple at, Array y, bint filled):
        """x if windows do not reach beyond it, else an array with borders; if `filled`, it contains x and zeros."""
        stride_h, stride_w, top, left, dilation_h, dilation_w = at
        cdef int64_t[4] extent
        cdef Array padded
        extent[0], extent[1] = x.extent[0], x.extent[1]
        extent[2] = max(<int64_t>top + x.extent[2],
                        (y.extent[2] - 1) * <int64_t>stride_h + (w.extent[2] - 1) * <int64_t>dilation_h + 1)
        extent[3] = max(<int64_t>left + x.extent[3],
                        (y.extent[3] - 1) * <int64_t>stride_w + (w.extent[3] - 1) * <int64_t>dilation_w + 1)
        if extent[2] == x.extent[2] and extent[3] == x.extent[3]:
            return x
        padded = empty(x.code, 4, extent, 0)
        if filled:
            self.fill(padded, 0)
            self.copy(x, inside(padded, x, at))
        return padded

    cpdef max_pool2d(self, Array x, tuple at, Array y, Array index):
        cdef Pool2d p = pooling(x, at, index if y is None else y)
        launch(2 * x.count, kernels.max_pool2d[x.code - FLOAT32], p, x.data, pointer(y), <int64_t*>pointer(index))

    cpdef max_pool2d_backward(self, Array x, Array g, tuple at, Array dx):
        launch(2 * x.count, kernels.max_pool2d_backward[x.code - FLOAT32], pooling(x, at, g), x.data, g.data, dx.data)

    cpdef average_pool2d(self, Array x, Array rows, Array columns, double divisor, Array y):
        cdef int64_t height = x.extent[x.ndim_ - 2], width = x.extent[x.ndim_ - 1]
        launch(x.count, kernels.average_pool2d[x.code - FLOAT32], y.count // (rows.extent[0] * columns.extent[0]),
               height, width, rows.extent[0], columns.extent[0], x.data, <const int64_t*>rows.data,
               <const int64_t*>columns.data, divisor, y.data)

    cpdef average_pool2d_backward(self, Array g, Array rows, Array columns, double divisor, Array dx):
        cdef int64_t height = dx.extent[dx.ndim_ - 2], width = dx.extent[dx.ndim_ - 1]
        launch(dx.count, kernels.average_pool2d_backward[g.code - FLOAT32],
               g.count // (rows.extent[0] * columns.extent[0]), height, width, rows.extent[0], columns.extent[0],
               g.data, <const int64_t*>rows.data, <const int64_t*>columns.data, divisor, dx.data)

    cpdef recurrent(self, cell, dict arrays):
        cdef Recurrence r = recurrence(cell, arrays)
        cdef int code = (<Array>arrays["h"]).code
        r.panels = r.hidden * rounded_up(r.gates * r.hidden)
        _scratch = recurrent_scratch(&r, code)
        launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent[code - FLOAT32], r)

    cpdef recurrent_backward(self, cell, dict arrays):
        cdef Recurrence r = recurrence(cell, arrays)
        cdef Array h = <Array>arrays["h"], totals
        cdef int64_t size
        r.panels = r.gates * r.hidden * rounded_up(r.hidden)
        _scratch = recurrent_scratch(&r, h.code)
        if r.dgamma != NULL or r.dbeta != NULL or r.dgamma_c != NULL or r.dbeta_c != NULL:
            size = (r.batch + r.block - 1) // r.block * 2 * (r.gates + 1) * r.hidden
            totals = empty(FLOAT64, 1, &size, 0)
            r.totals = totals.data
        launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent_backward[h.code - FLOAT32], r)

    cpdef softmax(self, int64_t rows, int64_t width, bint log, Array x, Array y):
        if log:
            launch(4 * x.count, kernels.log_softmax[x.code - FLOAT32], rows, width, x.data, y.data)
        else:
            launch(4 * x.count, kernels.softmax[x.code - FLOAT32], rows, width, x.data, y.data)

    cpdef softmax_backward(self, int64_t rows, int64_t width, bint log, Array y, Array g, Array dx):
        if log:
            launch(2 * y.count, kernels.log_softmax_backward[y.code - FLOAT32], rows, width, y.data, g.data, dx.data)
        else:
            launch(2 * y.count, kernels.softmax_backward[y.code - FLOAT32], rows, width, y.data, g.data, dx.data)

    cpdef logsumexp(self, int64_t rows, int64_t width, Array x, Array y):
        launch(4 * x.count, kernels.logsumexp[x.code - FLOAT32], rows, width, x.data, y.data)

    cpdef cross_entropy(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore, Array weight,
                        double smoothing, Array loss, Array lse):
        launch(4 * z.count, kernels.cross_entropy[z.code - FLOAT32], rows, width, z.data,
               <const int64_t*>labels.data, ignore, pointer(weight), smoothing, loss.data, lse.data)

    cpdef cross_entropy_backward(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore, Array weight,
                                 double smoothing, Array lse, Array g, Array dz):
        launch(4 * z.count, kernels.cross_entropy_backward[z.code - FLOAT32], rows, width, z.data,
               <const int64_t*>labels.data, ignore, pointer(weight), smoothing, lse.data, g.data,
               <int64_t>(0 if g.count == 1 else 1), dz.data)

    # ── indexing and order ──

    cpdef attention(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q, Array k,
                    Array v, Array mask, Array y, Array statistics):
        cdef Attention a = attention_of(scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
        a.slots = slots_for(a.batch * a.heads * ((a.queries + QUERIES - 1) // QUERIES))
        cdef int64_t size = a.slots * attention_scratch(a, False)
        cdef Array scratch = empty(q.code, 1, &size, 0)
        a.scratch = scratch.data
        launch(statistics.count // 2 * (a.keys + 1) * (a.width + a.value_width), kernels.attention[q.code - FLOAT32], a)

    cpdef attention_backward(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q,
                             Array k, Array v, Array mask, Array y, Array statistics, Array g, Array dq,
                             Array dk, Array dv):
        cdef Attention a = attention_of(scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
        a.g, a.dq, a.dk, a.dv = g.data, pointer(dq), pointer(dk), pointer(dv)
        cdef int64_t heads = a.batch * a.heads // a.group, size = statistics.count // 2
        cdef Array delta = empty(q.code, 1, &size, 0), partial, scratch
        a.parts = attention_parts(heads, a.keys)
        size = a.parts * q.count if a.parts > 1 and dq is not None else 0
        partial = empty(q.code, 1, &size, 0)
        a.slots = slots_for(heads * a.parts)
        size = a.slots * attention_scratch(a, True)
        scratch = empty(q.code, 1, &size, 0)
        a.delta, a.partial, a.scratch = delta.data, partial.data, scratch.data
        launch(delta.count * (a.keys + 1) * (a.width + a.value_width), kernels.attention_backward[q.code - FLOAT32], a)

    cpdef class_labels(self, str error, int64_t width, int64_t ignore, Array labels, Array weight, Array out,
                       Array inverse):
        if is_recorded():
            return repeat((<object>self).class_labels, (error, width, ignore, labels, weight, out, inverse))
        cdef int64_t* t = <int64_t*>out.data
        cdef double total = 0
        cdef int64_t i
        if out.count:
            memcpy(t, labels.data, out.count * sizeof(int64_t))      # nobody else can write to the copy that is checked
        for i in range(out.count):
            if t[i] != ignore:
                if t[i] < 0 or t[i] >= width:
                    raise IndexError(f"{error} from 0 to {width - 1}, got {t[i]} in row {i}")
                total += 1 if weight is None else (<float*>weight.data)[t[i]] if weight.code == FLOAT32 \
                    else (<double*>weight.data)[t[i]]
        if inverse is not None:
            total = 1 / total if total else NAN
            if inverse.code == FLOAT32:
                (<float*>inverse.data)[0] = total
            else:
                (<double*>inverse.data)[0] = total

    cpdef checked_index(self, str op, int axis, int64_t n, Array index, Array out):
        if is_recorded():
            return repeat((<object>self).checked_index, (op, axis, n, index, out))
        cdef int64_t* i = <int64_t*>out.data
        cdef int64_t k
        if out.count:
            memcpy(i, index.data, out.count * sizeof(int64_t))       # as in `class_labels`
        for k in range(out.count):
            if i[k] < -n or i[k] >= n:
                raise IndexError(f"[{op}] index {i[k]} is out of range for axis {axis} of length {n}")
            if i[k] < 0:
                i[k] += n

    cpdef take(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array out):
        launch(out.count, kernels.take, outer, n, inner, <int64_t>itemsize(x.code), x.data, index.count,
               <const int64_t*>index.data, out.data)

    cpdef put(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
        launch(v.count, kernels.put, outer, n, inner, <int64_t>itemsize(x.code), x.data, index.count,
               <const int64_t*>index.data, v.data)

    cpdef add_at(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
        launch(v.count, kernels.add_at[x.code - FLOAT32], outer, n, inner, x.data, index.count,
               <const int64_t*>index.data, v.data)

    cpdef take_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array out):
        launch(out.count, kernels.take_along[x.code], outer, n, inner, x.data, m, <const int64_t*>index.data, out.data)

    cpdef add_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array v):
        launch(v.count, kernels.add_along[x.code - FLOAT32], outer, n, inner, x.data, m, <const int64_t*>index.data,
               v.data)

    # Sorting is left to NumPy, whose vectorized sorts are hard to beat. It runs without the GIL and assumes that nobody
    # writes to its input meanwhile, so it gets copies.

    cpdef argsort(self, Array x, bint descending, Array out):
        if is_recorded():
            return repeat((<object>self).argsort, (x, descending, out))
        values, order = alias(x).numpy().copy(), alias(out).numpy()
        if descending:      # stable: equal elements keep their order
            order[...] = x.extent[x.ndim_ - 1] - 1 - np.flip(np.argsort(np.flip(values, -1), -1, stable=True), -1)
        else:
            order[...] = np.argsort(values, -1, stable=True)

    cpdef ranked(self, int64_t rows, int64_t n, Array x, Array ranks, Array out):
        cdef Array keys = empty_as(x, x.code)
        launch(x.count, kernels.ranked[x.code - FLOAT32], rows, n, <const void*>x.data, ranks.count,
               <const int64_t*>ranks.data, keys.data, <int64_t*>out.data)

    cpdef nonzero(self, Array x):
        refuse_in_capture("nonzero, whose result has a shape that depends on values")
        cdef int64_t chunks = (x.count + MASK_CHUNK - 1) // MASK_CHUNK, total = 0, c
        cdef int64_t* starts
        cdef Array mask, counts, found
        values = alias(x).numpy()
        true = np.not_equal(values, values.dtype.type(0))       # a copy, which no other thread can write meanwhile
        if x.ndim_ != 1:
            return tuple([from_object(np.ascontiguousarray(a, dtype=np.int64), INT64, 0, False)
                          for a in np.nonzero(true)])
        mask = from_object(true, BOOL, 0, False)
        counts = empty(INT64, 1, &chunks, 0)
        starts = <int64_t*>counts.data
        launch(x.count, kernels.count_true, x.count, <const uint8_t*>mask.data, starts)
        for c in range(chunks):
            starts[c], total = total, total + starts[c]
        found = empty(INT64, 1, &total, 0)
        launch(x.count, kernels.true_positions, x.count, <const uint8_t*>mask.data, <const int64_t*>starts,
               <int64_t*>found.data)
        return (found,)

    cpdef unique(self, Array x):
        refuse_in_capture("unique, whose result has a shape that depends on values")
        return from_object(np.unique(alias(x).numpy().copy(), equal_nan=False), x.code, 0, False)

    # ── random numbers ──

    cpdef uniform(self, uint64_t seed, uint64_t offset, double low, double high, Array out):
        launch(4 * out.count, kernels.uniform[out.code - FLOAT32], seed, offset, out.count, low, high, out.data)

    cpdef normal(self, uint64_t seed, uint64_t offset, double mean, double std, Array out):
        launch(4 * out.count, kernels.normal[out.code - FLOAT32], seed, offset, out.count, mean, std, out.data)

    cpdef integers(self, uint64_t seed, uint64_t offset, int64_t low, int64_t high, Array out):
        launch(4 * out.count, kernels.integers, seed, offset, out.count, low, high, <int64_t*>out.data)

    cpdef dropout(self, uint64_t seed, uint64_t offset, double p, Array x, Array y, Array keep):
        launch(4 * x.count, kernels.dropout[x.code - FLOAT32], seed, offset, x.count, p, x.data, y.data,
               <bint_*>keep.data)

    # ── optimizers ──

    cpdef optimize(self, rule, list p, list g, list states, tuple numbers):
        cdef TensorList tensors = TensorList([p, g, *states])
        cdef const Rule* found = rule_of(rule.name.encode())
        cdef Update step
        cdef int i
        if len(numbers) != found.count:
            raise TypeError(f"[{rule.name}] expected {found.count} numbers, got {numbers}")
        for i in range(found.count):
            step.numbers[i] = numbers[i]
        launch(tensors.total, found.step[(<Array>p[0]).code - FLOAT32], tensors.list, step)

    cpdef double sum_of_squares(self, list g) except *:
        refuse_in_capture("the norm of gradients as a Python number")
        cdef TensorList tensors = TensorList([g, g])
        return kernels.sum_of_squares[(<Array>g[0]).code - FLOAT32](tensors.list)


cdef extern from *:
    """
    static const void* const mg_null = nullptr;
    // `launch` needs a function, not an overload set, and no reference parameters
    static constexpr auto gemm_of = [](int dtype, bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k,
                                       const void* a, int64_t lda, int64_t sa, const void* b, int64_t ldb, int64_t sb,
                                       void* c, int64_t ldc, int64_t sc, double beta, const void* bias) {
        mg::gemm(static_cast<mg::DType>(dtype), ta, tb, batch, m, n, k, a, lda, sa, b, ldb, sb, c, ldc, sc, beta, bias);
    };
    """
    const void* NULL_POINTER "mg_null"
    cppclass Callable:
        pass
    Callable gemm_of
    ctypedef bint bint_ "bool"


cdef inline char* pointer(Array x) noexcept:
    return <char*>NULL if x is None else x.data


cdef Conv2d convolution(Array x, Array w, tuple at, Array y):
    """The sizes of y = x correlated with w, where x already includes the borders."""
    cdef Conv2d c
    c.batch, c.groups, c.channels = x.extent[0], x.extent[1] // w.extent[1], w.extent[1]
    c.height, c.width, c.kernel_h, c.kernel_w = x.extent[2], x.extent[3], w.extent[2], w.extent[3]
    c.outputs, c.rows, c.columns = w.extent[0] // c.groups, y.extent[2], y.extent[3]
    c.stride_h, c.stride_w, _, _, c.dilation_h, c.dilation_w = at
    # Windows at equal distances from the first to the last are one row, which is computed faster than many short ones.
    if c.columns == 1:
        c.stride_w = c.stride_h * c.width
    if c.columns * c.stride_w == c.stride_h * c.width:
        c.rows, c.columns = 1, c.rows * c.columns
    return c


cdef Array inside(Array padded, Array x, tuple at):
    """The part of a bordered array that holds x."""
    return view(padded, 4, x.extent, padded.step,
                padded.data + <int64_t>at[2] * padded.step[2] + <int64_t>at[3] * padded.step[3])


cdef Pool2d pooling(Array x, tuple at, Array y):
    cdef Pool2d p
    p.height, p.width = x.extent[x.ndim_ - 2], x.extent[x.ndim_ - 1]
    p.rows, p.columns = y.extent[y.ndim_ - 2], y.extent[y.ndim_ - 1]
    p.planes = y.count // (p.rows * p.columns)
    p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h, p.dilation_w = at
    return p


cdef Recurrence recurrence(cell, dict arrays):
    """The cell and its arrays as the kernels take them."""
    cdef Recurrence r
    cdef Array h = <Array>arrays["h"], w = <Array>arrays["w"], z = <Array>arrays["z"]
    cdef int64_t end = 0, i
    memset(&r, 0, sizeof(Recurrence))
    r.cell, r.norm = cell.codes
    r.norm_cell, r.centered, r.swap = cell.norm_cell, cell.centered, cell.swap
    r.slope, r.eps, r.eps_c = cell.slope, cell.eps, cell.eps_c
    r.steps, r.batch, r.hidden, r.gates = h.extent[0] - 1, h.extent[1], h.extent[2], w.extent[0] // h.extent[2]
    r.segments = len(cell.sizes)
    for i in range(r.segments):
        end += cell.sizes[i]
        r.ends[i] = end
    # If the weights fit a core's cache along with the rows, small blocks keep the most cores busy; otherwise
    # the weights come from further away, and larger blocks share each read of them.
    r.block = 8 if w.count * itemsize(w.code) <= 1 << 19 or r.batch < 32 else 16 if r.batch < 128 else 32
    r.keep = z.extent[0] == r.steps
    r.lengths = <int64_t*>pointer(arrays.get("lengths"))
    r.x, r.w, r.bias = pointer(arrays.get("x")), w.data, pointer(arrays.get("bias"))
    r.gamma, r.beta = pointer(arrays.get("gamma")), pointer(arrays.get("beta"))
    r.gamma_c, r.beta_c = pointer(arrays.get("gamma_c")), pointer(arrays.get("beta_c"))
    r.h, r.c = h.data, pointer(arrays.get("c"))
    r.h_last, r.c_last = pointer(arrays.get("h_last")), pointer(arrays.get("c_last"))
    r.z, r.act = z.data, pointer(arrays["act"])
    r.stats, r.stats_c = pointer(arrays.get("stats")), pointer(arrays.get("stats_c"))
    r.raw_c = pointer(arrays.get("raw_c"))
    r.gy, r.dh, r.dc = pointer(arrays.get("gy")), pointer(arrays.get("dh")), pointer(arrays.get("dc"))
    r.dx, r.dz = pointer(arrays.get("dx")), pointer(arrays.get("dz"))
    r.dgamma, r.dbeta = pointer(arrays.get("dgamma")), pointer(arrays.get("dbeta"))
    r.dgamma_c, r.dbeta_c = pointer(arrays.get("dgamma_c")), pointer(arrays.get("dbeta_c"))
    return r


cdef int64_t rounded_up(int64_t columns):
    """Columns in whole panels, for any panel width that an instruction set uses."""
    return (columns + 31) // 32 * 32


cdef Array recurrent_scratch(Recurrence* r, int code):
    """Allocate the scratch buffer for the panels and for the rows that a block works on."""
    cdef int64_t blocks = (r.batch + r.block - 1) // r.block
    cdef int64_t size = r.panels + blocks * (2 * r.gates + 4) * r.hidden
    cdef Array scratch = empty(code, 1, &size, 0)
    r.scratch = scratch.data
    return scratch


cdef Attention attention_of(double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q, Array k,
                            Array v, Array mask, Array y, Array statistics) noexcept:
    """The options and arrays as the kernels take them."""
    cdef Attention a
    cdef int i
    memset(&a, 0, sizeof(Attention))
    a.batch, a.heads, a.queries, a.width = q.extent[0], q.extent[1], q.extent[2], q.extent[3]
    a.group = a.heads // k.extent[1]
    a.keys, a.value_width = k.extent[2], v.extent[3]
    a.scale, a.causal, a.dropout, a.seed, a.offset = scale, causal, dropout, seed, offset
    a.q, a.k, a.v, a.y, a.statistics = q.data, k.data, v.data, y.data, statistics.data
    if mask is not None:
        for i in range(4):
            a.mask_step[i] = mask.step[i] // itemsize(mask.code)
        if mask.code == q.code:
            a.numbers = mask.data
        else:
            a.bools = mask.data
    return a


cdef int64_t slots_for(int64_t items):
    """The number of tasks, each with its own scratch buffer, that process the items: enough to balance the load."""
    return min(max(items, 1), 8 * threads())


cdef const Rule* rule_of(bytes name) except NULL:
    """The update rule of that name."""
    cdef const Rule* rule = kernels.rules
    while rule.name != NULL:
        if rule.name == name:
            return rule
        rule += 1
    raise ValueError(f"[optimize] expected an update rule of optimizer.cpp, got {name.decode()}")


cdef class TensorList:
    """The addresses and sizes of lists of arrays, as the optimizer kernels take them."""
    cdef Tensors list
    cdef int64_t total
    cdef void** columns

    def __cinit__(self, list lists):
        cdef int64_t n = len(lists[0]), i
        self.columns = <void**>PyMem_Malloc(6 * n * sizeof(void*))
        cdef int64_t* sizes = <int64_t*>(self.columns + 5 * n)
        for i in range(n):
            sizes[i] = (<Array>lists[0][i]).count
            self.total += sizes[i]
        self.list.count, self.list.sizes = n, sizes
        lists = lists + [None] * (5 - len(lists))
        self.list.p = self.column(0, n, lists[0])
        self.list.g = <const void**>self.column(1, n, lists[1])
        self.list.s1, self.list.s2 = self.column(2, n, lists[2]), self.column(3, n, lists[3])
        self.list.s3 = self.column(4, n, lists[4])

    cdef void** column(self, int k, int64_t n, list xs):
        cdef void** start = self.columns + k * n
        cdef int64_t i
        if xs is None:
            return NULL
        for i in range(n):
            start[i] = (<Array>xs[i]).data
        return start

    def __dealloc__(self):
        PyMem_Free(self.columns)


# ── what the machine offers ───────────────────────────────────────────────────────────────────────

cdef bint blas_loaded = False


cdef int load() except -1:
    """Load the library for matrix products."""
    global blas_loaded
    cdef char[512] message
    path = os.fsencode(find())
    if blas_loaded:     # by another thread that ran meanwhile; from here on no other thread runs
        return 0
    if not path:
        raise ImportError("[matmul] the package scipy-openblas32 was not found: pip install scipy-openblas32")
    if not load_blas(path, message, sizeof(message)):
        raise ImportError(f"[matmul] {message.decode()}")
    blas_loaded = True
    return 0


def isa() -> str:
    """str: the instruction set of the kernels in use: "baseline", "avx2" or "avx512"."""
    return kernels.isa.decode()


def blas() -> str:
    """str: name, version and kernel family of the BLAS in use."""
    if not blas_loaded:
        load()
    return blas_name().decode()


def get_num_threads() -> int:
    """int: how many threads a kernel may use, the calling one included.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.get_num_threads() >= 1
    True
    """
    return threads()


def set_num_threads(count: int) -> None:
    """Let kernels use up to `count` threads, the calling one included.

    The default is ``MINIGRAD_NUM_THREADS``, ``OMP_NUM_THREADS`` (at most 1024), or the number of cores this
    process may run on.

    Parameters
    ----------
    count : int
        1 to 1024.

    Raises
    ------
    TypeError
        If `count` is not an integer. A bool does not count as one.
    ValueError
        If it is less than 1 or more than 1024.

    Examples
    --------
    >>> import minigrad as mg
    >>> before = mg.get_num_threads()
    >>> mg.set_num_threads(1)
    >>> mg.get_num_threads()
    1
    >>> mg.set_num_threads(before)
    """
    try:
        if isinstance(count, bool):
            raise TypeError
        number = operator.index(count)
    except TypeError:
        raise TypeError(f"[set_num_threads] expected an integer, got {count!r}") from None
    if not 1 <= number <= MAX_THREADS:
        raise ValueError(f"[set_num_threads] expected 1 to {MAX_THREADS:,}, got {number}")
    set_threads(number)


point_to(ACTIVE)
register(0, CPU())
