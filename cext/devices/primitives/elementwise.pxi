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
