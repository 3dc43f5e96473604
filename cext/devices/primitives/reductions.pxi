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
