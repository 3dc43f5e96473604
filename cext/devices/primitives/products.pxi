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
           n, m * n, beta, <const void*>pointer(bias), rounds(bfloat16_allowed, out.code, min(m, n, k)))
