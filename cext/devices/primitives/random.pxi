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
