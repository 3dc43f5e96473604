"""An emulation of CuPy's cuBLAS: column-major matrix products at addresses, in NumPy, on the current stream."""

import ctypes

import numpy as np
from cupy import cuda

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1


def at(address, dtype, count):
    """Return `count` numbers at an address as an array."""
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address), dtype)


def batched(dtype):
    def product(handle, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c, batch):
        for op, rows, columns, ld in ((op_a, m, k, lda), (op_b, k, n, ldb), (CUBLAS_OP_N, m, n, ldc)):
            least = rows if op == CUBLAS_OP_N else columns
            assert ld >= max(1, least), f"cuBLAS would refuse a leading dimension of {ld} for {least} rows"

        def matrix(address, op, rows, columns, ld):
            """Return the view op(x)[rows, columns] of a column-major matrix."""
            held = (rows, columns) if op == CUBLAS_OP_N else (columns, rows)
            flat = at(address, dtype, ld * (held[1] - 1) + held[0])
            size = flat.itemsize
            x = np.lib.stride_tricks.as_strided(flat, held, (size, ld * size))
            return x if op == CUBLAS_OP_N else x.T

        one, other = at(alpha, dtype, 1)[0], at(beta, dtype, 1)[0]
        size = np.dtype(dtype).itemsize

        def run():
            for i in range(batch):
                out = matrix(c + i * stride_c * size, CUBLAS_OP_N, m, n, ldc)
                left, right = (
                    matrix(a + i * stride_a * size, op_a, m, k, lda),
                    matrix(b + i * stride_b * size, op_b, k, n, ldb),
                )
                with np.errstate(all="ignore"):  # like cuBLAS, without warnings
                    value = one * (left @ right)
                    out[...] = value + other * out if other else value

        cuda.submit(cuda.get_current_stream().ptr, run)

    return product


sgemmStridedBatched, dgemmStridedBatched = batched("float32"), batched("float64")
