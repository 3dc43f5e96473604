from minigrad.engine.memory.array cimport empty_as

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
