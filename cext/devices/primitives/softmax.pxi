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
