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
