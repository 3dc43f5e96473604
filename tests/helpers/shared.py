"""Arrays whose memory tensors share: dtypes, views, and one that only supports DLPack."""

import numpy as np

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]
VIEWS = {
    "contiguous": lambda a: a, "transposed": lambda a: a.T, "strided": lambda a: a[:, ::2],
    "reversed": lambda a: a[::-1, ::-1], "0-d": lambda a: a[1, 1], "empty": lambda a: a[:0],
}  # fmt: skip


def matrix(dtype="float64"):
    return np.arange(12).reshape(3, 4).astype(dtype)


class Capsule:
    """An array that only supports DLPack."""

    def __init__(self, a):
        self.__dlpack__, self.__dlpack_device__ = a.__dlpack__, a.__dlpack_device__
