# The primitives of the CPU: each with its contract, which holds for every device, and its call.
#
# Arrays are written through the last arguments. "Contiguous" below means row-major without gaps; the primitives that
# take any strides say so. ``outer, n, inner`` are the lengths before, at and after the axis that a primitive works on.
# The sizes and arrays have been checked by the operations.
#
# From this list follow the interface that devices share (cext/declare.py) and the counts of a profile: "flops" (none
# where nothing is said), and "bytes" where a call does not read or write all of its arrays once. The names in these
# expressions are defined in minigrad/profiling/work.py.

@cython.binding(False)
@cython.embedsignature(True)
cdef class CPU(Backend):
    """The primitives on the CPU."""

    # flops: out.size
    cpdef unary(self, int op, Array x, Array out):
        """out = op(x), elementwise, any strides."""
        elementwise("unary", kernels.unary[op][x.code], 2, x, None, None, out)

    # flops: out.size
    cpdef binary(self, int op, Array a, Array b, Array out):
        """out = op(a, b), elementwise, equal shapes, any strides; out may be a or b."""
        elementwise("binary", kernels.binary[op][a.code], 3, a, b, None, out)

    # flops: out.size
    cpdef where(self, Array condition, Array a, Array b, Array out):
        """out = a where condition (bool) else b, any strides."""
        elementwise("where", kernels.where[a.code], 4, condition, a, b, out)

    # flops: 2 * x.size
    cpdef clip(self, double low: float, double high: float, Array x, Array out):
        """out = min(max(x, low), high) of floats, any strides; NaN stays NaN."""
        cdef Strided strided
        describe(&strided, 4, out)
        fill_operand(&strided, 0, x)
        repeat_operand(&strided, 1)
        repeat_operand(&strided, 2)
        launch(out.count, run_limited, kernels.clip[x.code - FLOAT32], strided, element_of(x.code, low),
               element_of(x.code, high))

    cpdef copy(self, Array x, Array out):
        """out = x, any strides, converted to out's dtype; overlapping only element for element."""
        elementwise("copy", kernels.cast[x.code][out.code], 2, x, None, None, out)

    cpdef fill(self, Array out, value: float):
        """out = value (a Python number) everywhere, any strides."""
        cdef Strided strided
        describe(&strided, 2, out)
        repeat_operand(&strided, 0)
        launch(out.count, run_filling, kernels.cast[out.code][out.code], strided, element_of(out.code, value))

    # ── reductions ──

    # flops: x.size
    cpdef reduce(self, int op, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        """out[outer, inner] = op over the middle axis of x[outer, n, inner], contiguous."""
        if kernels.reduce[op][x.code] == NULL:
            raise undefined("reduce", x.dtype)
        launch(x.count, kernels.reduce[op][x.code], outer, n, inner, x.data, out.data)

    # flops: MOMENTS * x.size
    cpdef moments(self, int64_t outer, int64_t n, int64_t inner, Array x, Array mean, Array m2):
        """The mean and the sum of squared deviations from it over the middle axis, contiguous."""
        launch(x.count, kernels.moments[x.code - FLOAT32], outer, n, inner, x.data, mean.data, m2.data)

    # flops: x.size
    cpdef cumulative_sum(self, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        """Running sums along the middle axis, contiguous."""
        launch(x.count, kernels.cumulative_sum[x.code], outer, n, inner, x.data, out.data)

    # flops: 2 * a.size
    cpdef linear_scan(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array b,
                      Array initial: Tensor | None, Array h):
        """h_t = a_t h_{t-1} + b_t along the middle axis, contiguous; h_0 = initial[outer, inner] or h_1 = b_1."""
        launch(2 * a.count, kernels.linear_scan[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data, b.data,
               pointer(initial), h.data)

    # flops: (2 + count(da)) * a.size
    cpdef linear_scan_backward(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a,
                               Array h: Tensor | None, Array initial: Tensor | None, Array g, Array da: Tensor | None,
                               Array db: Tensor | None, Array dinitial: Tensor | None):
        """Its gradients, of which each may be None; da reads h and initial."""
        launch(3 * a.count, kernels.linear_scan_backward[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data,
               pointer(h), pointer(initial), g.data, pointer(da), pointer(db), pointer(dinitial))

    # flops: CTC * e.size
    cpdef ctc(self, Array e, Array skip, Array lengths, Array last, Array alpha, Array loss):
        """loss[n] in float64, by the equations of `ctc_loss` in ops/scan, and alpha[T + 1, N, S] from e[T, N, S].

        A path goes two states on where skip[n, s] is 0 instead of -inf, and ends after lengths[n] steps in state
        last[n] or the one before it.
        """
        launch(16 * e.count, kernels.ctc, e.extent[0], e.extent[1], e.extent[2], <const double*>e.data,
               <const double*>skip.data, <const int64_t*>lengths.data, <const int64_t*>last.data, <double*>alpha.data,
               <double*>loss.data)

    # flops: CTC_BACKWARD * e.size
    cpdef ctc_backward(self, Array e, Array skip, Array lengths, Array last, Array alpha, Array loss, Array g,
                       Array beta, Array de):
        """de for the cotangent g[n], 0 for an infinite loss; beta[N, 2, S] is scratch."""
        launch(16 * e.count, kernels.ctc_backward, e.extent[0], e.extent[1], e.extent[2], <const double*>e.data,
               <const double*>skip.data, <const int64_t*>lengths.data, <const int64_t*>last.data,
               <const double*>alpha.data, <const double*>loss.data, <const double*>g.data, <double*>beta.data,
               <double*>de.data)

    # ── products ──

    # flops: out.size * (2 * a.shape[-1] + count(bias))
    cpdef gemm(self, Array a, Array b, Array out, double beta, Array bias: Tensor | None):
        """out = a @ b + beta out (+ bias on each row; bias may be None) for 2-d or 3-d (batched) floats.

        out is contiguous; in the last two axes of a and b one stride is the item size.
        """
        if not blas_loaded:
            load()
        cdef int last = out.ndim_ - 1
        cdef int64_t size = itemsize(out.code), batch = out.extent[0] if last == 2 else 1
        cdef int64_t m = out.extent[last - 1], n = out.extent[last], k = a.extent[last]
        cdef bint ta = a.step[last] != size, tb = b.step[last] != size
        # The stride of an axis of length one is meaningless; take the stride of a dense matrix.
        cdef int64_t lda = a.step[last if ta else last - 1] // size, ldb = b.step[last if tb else last - 1] // size
        if ta and a.extent[last] <= 1 and a.step[last - 1] == size:
            lda = max(lda, m)
        launch(batch * m * n * max(k // 16, 1), gemm_of, out.code, ta, tb, batch, m, n, k, a.data,
               max(lda, m if ta else k), (a.step[0] // size if last == 2 else 0), b.data,
               max(ldb, k if tb else n), (b.step[0] // size if last == 2 else 0), out.data,
               n, m * n, beta, <const void*>pointer(bias), rounds(out.code, min(m, n, k)))

    # ── rows and channels ──

    # flops: x.size * ((UNCENTERED if mean is None else LAYER_NORM) + count(gamma, beta))
    cpdef normalize(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma: Tensor | None,
                    Array beta: Tensor | None, double eps, Array y, Array mean: Tensor | None, Array rstd):
        """y = (x - mean) rstd gamma + beta on the rows of x[rows, m, inner]; gamma and beta may be None.

        Row r belongs to group r % groups; gamma and beta are [groups, m]. rstd is 1/sqrt(variance + eps) of a row. If
        mean is None, nothing is subtracted; then groups and inner must be 1 and beta None. mean[rows] and rstd[rows]
        have x's dtype if groups and inner are 1, otherwise they are float64.
        """
        launch(x.count, kernels.normalize[x.code - FLOAT32], rows, groups, m, inner, x.data, pointer(gamma),
               pointer(beta), eps, y.data, pointer(mean), rstd.data)

    # flops: x.size * ((UNCENTERED_BACKWARD if mean is None else LAYER_NORM_BACKWARD) + gains(gamma, dgamma, dbeta))
    cpdef normalize_backward(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x,
                             Array gamma: Tensor | None, Array mean: Tensor | None, Array rstd, Array g,
                             Array dx: Tensor | None, Array dgamma: Tensor | None, Array dbeta: Tensor | None):
        """The gradients of normalize for the cotangent g; dx, dgamma and dbeta may each be None."""
        cdef int64_t size = normalize_scratch(rows, groups, m, inner)
        cdef Array scratch = empty(rstd.code, 1, &size, 0)
        launch(2 * x.count, kernels.normalize_backward[x.code - FLOAT32], rows, groups, m, inner, x.data,
               pointer(gamma), pointer(mean), rstd.data, g.data, pointer(dx), pointer(dgamma), pointer(dbeta),
               scratch.data)

    # flops: x.size * (LAYER_NORM + count(gamma, beta))
    cpdef batch_norm(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma: Tensor | None,
                     Array beta: Tensor | None, double eps, Array y, Array mean, Array var, Array statistics):
        """y = (x - mean) rstd gamma + beta on the channels of x[outer, channels, inner]; gamma, beta may be None.

        var is biased; statistics[2, channels] (float64) gets mean and rstd.
        """
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(2 * x.count, kernels.batch_norm[x.code - FLOAT32], outer, channels, inner, x.data, pointer(gamma),
               pointer(beta), eps, y.data, mean.data, var.data, <double*>statistics.data, <double*>scratch.data)

    # flops: x.size * (GIVEN_STATISTICS + count(gamma, beta))
    cpdef batch_norm_eval(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma: Tensor | None,
                          Array beta: Tensor | None, Array mean, Array var, double eps, Array y, Array statistics):
        """The same with mean and var given."""
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(x.count, kernels.batch_norm_eval[x.code - FLOAT32], outer, channels, inner, x.data, pointer(gamma),
               pointer(beta), mean.data, var.data, eps, y.data, <double*>statistics.data, <double*>scratch.data)

    # flops: x.size * (LAYER_NORM_BACKWARD + gains(gamma, dgamma, dbeta))
    cpdef batch_norm_backward(self, int64_t outer, int64_t channels, int64_t inner, bint given, Array x,
                              Array gamma: Tensor | None, Array statistics, Array g, Array dx: Tensor | None,
                              Array dgamma: Tensor | None, Array dbeta: Tensor | None):
        """The gradients of batch_norm, or of batch_norm_eval where the statistics were `given`.

        dx, dgamma, dbeta may each be None.
        """
        cdef int64_t size = batch_norm_scratch(outer, channels, inner)
        cdef Array scratch = empty(FLOAT64, 1, &size, 0)
        launch(2 * x.count, kernels.batch_norm_backward[x.code - FLOAT32], outer, channels, inner, <bint_>given, x.data,
               pointer(gamma), <double*>statistics.data, g.data, pointer(dx), pointer(dgamma), pointer(dbeta),
               <double*>scratch.data)

    # ── windows ──

    # flops: y.size * (2 * math.prod(w.shape[1:]) + count(bias))
    cpdef conv2d(self, Array x, Array w, Array bias: Tensor | None, tuple at: tuple[int, ...], Array y):
        """y[N, O, P, Q] = x[N, C, H, W] correlated with w[O, C / groups, KH, KW], + bias[O] or None; contiguous.

        at = (stride_h, stride_w, top, left, dilation_h, dilation_w): window (p, q) begins at row p stride_h - top,
        column q stride_w - left of x, which is padded with as many zeros as y needs.
        """
        x = add_border(self, x, w, at, y, True)
        cdef Conv2d c = convolution(x, w, at, y)
        cdef int64_t size = c.depth()
        cdef Array offsets = empty(INT64, 1, &size, 0)
        launch(y.count * size // 16, kernels.conv2d[x.code - FLOAT32], c, x.data, w.data, pointer(bias), y.data,
               <int64_t*>offsets.data)

    # flops: 2 * g.size * math.prod(w.shape[1:])
    cpdef conv2d_backward_data(self, Array g, Array w, tuple at: tuple[int, ...], Array dx):
        """dx[N, C, H, W] of conv2d for the cotangent g[N, O, P, Q]; contiguous."""
        cdef Array padded = add_border(self, dx, w, at, g, False), turned = empty_as(w, w.code)
        cdef Conv2d c = convolution(padded, w, at, g)
        launch(g.count * c.depth() // 16, kernels.conv2d_backward_data[g.code - FLOAT32], c, g.data, w.data,
               padded.data, turned.data)
        if padded is not dx:
            self.copy(inside(padded, dx, at), dx)

    # flops: g.size * (2 * math.prod(dw.shape[1:]) + count(dbias))
    cpdef conv2d_backward_weight(self, Array x, Array g, tuple at: tuple[int, ...], Array dw,
                                 Array dbias: Tensor | None):
        """dw[O, C / groups, KH, KW] and dbias[O] of conv2d for the cotangent g; dbias may be None. Contiguous."""
        x = add_border(self, x, dw, at, g, True)
        cdef Conv2d c = convolution(x, dw, at, g)
        cdef int64_t size = c.depth(), partials = conv2d_partial(c)
        cdef Array offsets = empty(INT64, 1, &size, 0), partial = empty(x.code, 1, &partials, 0)
        launch(g.count * size // 16, kernels.conv2d_backward_weight[x.code - FLOAT32], c, x.data, g.data, dw.data,
               pointer(dbias), <int64_t*>offsets.data, partial.data)

    # flops: (index if y is None else y).size * at[0] * at[1]
    cpdef max_pool2d(self, Array x, tuple at: tuple[int, ...], Array y: Tensor | None, Array index: Tensor | None):
        """y[..., P, Q] = the largest elements of windows in x[..., H, W], index (int64) their places in H x W.

        at = (kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w); no window is empty. y or
        index may be None. NaN is larger than all numbers; of equal elements the first counts, of NaNs the last.
        """
        cdef Pool2d p = pooling(x, at, index if y is None else y)
        launch(2 * x.count, kernels.max_pool2d[x.code - FLOAT32], p, x.data, pointer(y), <int64_t*>pointer(index))

    # flops: g.size * (at[0] * at[1] + 1)
    cpdef max_pool2d_backward(self, Array x, Array g, tuple at: tuple[int, ...], Array dx):
        """dx of max_pool2d for the cotangent g[..., P, Q], contiguous."""
        launch(2 * x.count, kernels.max_pool2d_backward[x.code - FLOAT32], pooling(x, at, g), x.data, g.data, dx.data)

    # flops: x.size + y.size
    cpdef average_pool2d(self, Array x, Array rows, Array columns, double divisor, Array y):
        """y[..., P, Q] = sums of windows in x[..., H, W] over the divisor, or if it is 0 over their own lengths.

        Window (p, q) covers the rows from rows[p, 0] up to rows[p, 1], with rows[p, 2] as their length, and the columns
        given by columns[q] in the same way. Both are int64; all arrays are contiguous.
        """
        cdef int64_t height = x.extent[x.ndim_ - 2], width = x.extent[x.ndim_ - 1]
        launch(x.count, kernels.average_pool2d[x.code - FLOAT32], y.count // (rows.extent[0] * columns.extent[0]),
               height, width, rows.extent[0], columns.extent[0], x.data, <const int64_t*>rows.data,
               <const int64_t*>columns.data, divisor, y.data)

    # flops: dx.size + g.size
    cpdef average_pool2d_backward(self, Array g, Array rows, Array columns, double divisor, Array dx):
        """dx of average_pool2d for the cotangent g[..., P, Q]."""
        cdef int64_t height = dx.extent[dx.ndim_ - 2], width = dx.extent[dx.ndim_ - 1]
        launch(dx.count, kernels.average_pool2d_backward[g.code - FLOAT32],
               g.count // (rows.extent[0] * columns.extent[0]), height, width, rows.extent[0], columns.extent[0],
               g.data, <const int64_t*>rows.data, <const int64_t*>columns.data, divisor, dx.data)

    # ── softmax, attention and recurrent layers ──

    # flops: SOFTMAX * x.size
    cpdef softmax(self, int64_t rows, int64_t width, bint log, Array x, Array y):
        """y = softmax of each row of x, or its logarithm."""
        if log:
            launch(4 * x.count, kernels.log_softmax[x.code - FLOAT32], rows, width, x.data, y.data)
        else:
            launch(4 * x.count, kernels.softmax[x.code - FLOAT32], rows, width, x.data, y.data)

    # flops: SOFTMAX_BACKWARD * y.size
    cpdef softmax_backward(self, int64_t rows, int64_t width, bint log, Array y, Array g, Array dx):
        """The gradient of softmax from its result y and the cotangent g."""
        if log:
            launch(2 * y.count, kernels.log_softmax_backward[y.code - FLOAT32], rows, width, y.data, g.data, dx.data)
        else:
            launch(2 * y.count, kernels.softmax_backward[y.code - FLOAT32], rows, width, y.data, g.data, dx.data)

    # flops: LOGSUMEXP * x.size
    cpdef logsumexp(self, int64_t rows, int64_t width, Array x, Array y):
        """y[rows] = log of the sum of the exponentials of each row of x."""
        launch(4 * x.count, kernels.logsumexp[x.code - FLOAT32], rows, width, x.data, y.data)

    # flops: CROSS_ENTROPY * z.size
    cpdef cross_entropy(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore,
                        Array weight: Tensor | None, double smoothing, Array loss, Array lse):
        """loss[r] = (1 - s) w_t (lse - z_t) + s/width sum_c w_c (lse - z_c) of logits z, with lse = log sum_c exp z_c.

        t is the label (int64) of row r, s the smoothing, and w 1 without weights. The loss of a row with the label
        to `ignore` is 0.
        """
        launch(4 * z.count, kernels.cross_entropy[z.code - FLOAT32], rows, width, z.data,
               <const int64_t*>labels.data, ignore, pointer(weight), smoothing, loss.data, lse.data)

    # flops: CROSS_ENTROPY_BACKWARD * z.size
    cpdef cross_entropy_backward(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore,
                                 Array weight: Tensor | None, double smoothing, Array lse, Array g, Array dz):
        """dz for the cotangent g[rows], or one g for all rows; with p = softmax(z), it is
        g[r] (p_c ((1 - s) w_t + s/width sum_k w_k) - (1 - s) w_t [c = t] - s/width w_c)."""
        launch(4 * z.count, kernels.cross_entropy_backward[z.code - FLOAT32], rows, width, z.data,
               <const int64_t*>labels.data, ignore, pointer(weight), smoothing, lse.data, g.data,
               <int64_t>(0 if g.count == 1 else 1), dz.data)

    # flops: weights(q, k, causal) * (4 * q.shape[3] + SOFTMAX)
    cpdef attention(self, str precision, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset,
                    Array q, Array k, Array v, Array mask: Tensor | None, Array y, Array statistics):
        """y[N, H, L, V], not empty, and statistics[N, H, L, 2] of contiguous q[N, H, L, E], k[N, H/group, S, E] and
        v[N, H/group, S, V], where S is not 0.
        `Attention` of kernels.hpp has the formula. The mask[N, H, L, S], of bool or of q's dtype, may have any strides.
        `precision` is one of `set_float32_matmul_precision`; the backward pass needs that of the forward pass.
        """
        cdef Attention a = attention_of(precision, scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
        a.slots = slots_for(a.batch * a.heads * ((a.queries + QUERIES - 1) // QUERIES))
        cdef int64_t size = a.slots * attention_scratch(a, False)
        cdef Array scratch = empty(q.code, 1, &size, 0)
        a.scratch = scratch.data
        launch(statistics.count // 2 * (a.keys + 1) * (a.width + a.value_width), kernels.attention[q.code - FLOAT32], a)

    # flops: weights(q, k, causal) * (10 * q.shape[3] + SOFTMAX + SOFTMAX_BACKWARD)
    cpdef attention_backward(self, str precision, double scale, bint causal, double dropout, uint64_t seed,
                             uint64_t offset, Array q, Array k, Array v, Array mask: Tensor | None, Array y,
                             Array statistics, Array g, Array dq: Tensor | None, Array dk: Tensor | None,
                             Array dv: Tensor | None):
        """dq, dk and dv, each of which may be None, for the contiguous cotangent g[N, H, L, V]."""
        cdef Attention a = attention_of(precision, scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
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

    # flops: recurrent(cell, arrays, GATE, LAYER_NORM + 2)
    cpdef recurrent(self, cell: Cell, dict arrays: dict[str, Any]):
        """All steps of a recurrent layer, a Cell of ops/recurrent; arrays as in `Recurrence` of kernels.hpp."""
        cdef Recurrence r = recurrence(cell, arrays)
        cdef int code = (<Array>arrays["h"]).code
        r.panels = r.hidden * round_up(r.gates * r.hidden)
        _scratch = recurrent_scratch(&r, code)
        launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent[code - FLOAT32], r)

    # flops: recurrent(cell, arrays, GATE_BACKWARD, LAYER_NORM_BACKWARD + 4)
    cpdef recurrent_backward(self, cell: Cell, dict arrays: dict[str, Any]):
        """dx, dz, dgamma ... from gy; in dh and dc, the last states' gradients become the first ones'."""
        cdef Recurrence r = recurrence(cell, arrays)
        cdef Array h = <Array>arrays["h"], totals
        cdef int64_t size
        r.panels = r.gates * r.hidden * round_up(r.hidden)
        _scratch = recurrent_scratch(&r, h.code)
        if r.dgamma != NULL or r.dbeta != NULL or r.dgamma_c != NULL or r.dbeta_c != NULL:
            size = (r.batch + r.block - 1) // r.block * 2 * (r.gates + 1) * r.hidden
            totals = empty(FLOAT64, 1, &size, 0)
            r.totals = totals.data
        launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent_backward[h.code - FLOAT32], r)

    # ── indexing and order ──

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

    # ── random numbers ──

    cpdef uniform(self, uint64_t seed, uint64_t offset, double low, double high, Array out):
        """out ~ U[low, high) from the counter-based generator."""
        launch(4 * out.count, kernels.uniform[out.code - FLOAT32], seed, offset, out.count, low, high, out.data)

    cpdef normal(self, uint64_t seed, uint64_t offset, double mean, double std, Array out):
        """out ~ N(mean, std squared)."""
        launch(4 * out.count, kernels.normal[out.code - FLOAT32], seed, offset, out.count, mean, std, out.data)

    cpdef integers(self, uint64_t seed, uint64_t offset, int64_t low, int64_t high, Array out):
        """out (int64) uniform in [low, high)."""
        launch(4 * out.count, kernels.integers, seed, offset, out.count, low, high, <int64_t*>out.data)

    # flops: x.size
    cpdef dropout(self, uint64_t seed, uint64_t offset, double p, Array x, Array y, Array keep):
        """keep (bool) with probability 1 - p; y = x keep / (1 - p)."""
        launch(4 * x.count, kernels.dropout[x.code - FLOAT32], seed, offset, x.count, p, x.data, y.data,
               <bint_*>keep.data)

    # ── optimizers ──

    # flops: rule.flops * sum(x.size for x in p)
    cpdef optimize(self, rule: Rule, list p: list[Tensor], list g: list[Tensor],
                   list states: list[list[Tensor] | None], tuple numbers: tuple[float, ...]):
        """One step of an optimizer, a Rule of ops/optimizer, on all tensors of the lists; state lists may be None."""
        cdef TensorList tensors = TensorList([p, g, *states])
        cdef const Rule* found = rule_of(rule.name)
        cdef Update step
        cdef int i
        if len(numbers) != found.count:
            raise TypeError(f"[{rule.name}] expected {found.count} numbers, got {numbers}")
        for i in range(found.count):
            step.numbers[i] = numbers[i]
        launch(tensors.total, found.step[(<Array>p[0]).code - FLOAT32], tensors.list, step)

    # flops: 2 * sum(x.size for x in g)
    cpdef double sum_of_squares(self, list g: list[Tensor]) except *:
        """The sum of the squares of all elements of all tensors."""
        refuse_in_capture("the norm of gradients as a Python number")
        cdef TensorList tensors = TensorList([g, g])
        return kernels.sum_of_squares[(<Array>g[0]).code - FLOAT32](tensors.list)
