"""Emulates the products of cuBLAS: column-major matrices at addresses, in NumPy, on a stream."""

import ctypes
import traceback

import numpy as np
from cupy import cuda, load_library

OP_N, FAILED = 0, 13
FRACTION = {0: None, 3: 10, 75: 7}  # the bits that remain of factors, by mode: all, TF32, bfloat16


def at(address, dtype, count):
    """Return `count` numbers at an address as an array."""
    return np.frombuffer((ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address), dtype)


def multiply(is_double, mode, stream, workspace, *arguments):
    try:
        kind = "float64" if is_double else "float32"
        cuda.submit(stream or 0, product(kind, FRACTION[mode], stream, workspace, *arguments))
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0


def shortened(x, fraction):
    """Return floats rounded to so many bits after the leading one."""
    bits, rest = np.ascontiguousarray(x).view(np.uint32), 23 - fraction
    return ((bits + (1 << rest - 1)) >> rest << rest).astype(np.uint32).view(np.float32)


def product(dtype, fraction, stream, workspace, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,
            stride_c, batch):  # fmt: skip
    """Return what computes c = alpha op(a) op(b) + beta c for each of a batch."""
    for op, rows, columns, ld in ((op_a, m, k, lda), (op_b, k, n, ldb), (OP_N, m, n, ldc)):
        least = rows if op == OP_N else columns
        assert ld >= max(1, least), f"cuBLAS would refuse a leading dimension of {ld} for {least} rows"
    assert workspace or not cuda.is_capturing(stream), "cuBLAS would allocate memory in each run of a graph"
    size = np.dtype(dtype).itemsize

    def matrix(address, op, rows, columns, ld):
        """Return the view op(x)[rows, columns] of a column-major matrix."""
        held = (rows, columns) if op == OP_N else (columns, rows)
        flat = at(address, dtype, ld * (held[1] - 1) + held[0])
        x = np.lib.stride_tricks.as_strided(flat, held, (size, ld * size))
        return x if op == OP_N else x.T

    def run():
        if workspace:
            assert workspace in cuda.owners, "the workspace of a graph was freed"
            ctypes.memset(workspace, 0xFF, 1 << 10)
        for i in range(batch):
            out = matrix(c + i * stride_c * size, OP_N, m, n, ldc)
            left = matrix(a + i * stride_a * size, op_a, m, k, lda)
            right = matrix(b + i * stride_b * size, op_b, k, n, ldb)
            if fraction:
                left, right = shortened(left, fraction), shortened(right, fraction)
            with np.errstate(all="ignore"):  # like cuBLAS, without warnings
                value = out.dtype.type(alpha) * (left @ right)
                out[...] = value + out.dtype.type(beta) * out if beta else value

    return run


INT, LONG, POINTER, DOUBLE = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p, ctypes.c_double
CALLBACK = ctypes.CFUNCTYPE(INT, INT, INT, POINTER, POINTER, INT, INT, INT, INT, INT, DOUBLE, POINTER, INT, LONG, POINTER,
                            INT, LONG, DOUBLE, POINTER, INT, LONG, INT)(multiply)  # fmt: skip
load_library("libcublas.so.12", "cublas.cpp", multiply=CALLBACK)
