cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:
    cpdef enum Code "mg::DType":
        BOOL
        UINT8
        INT32
        INT64
        FLOAT32
        FLOAT64

cdef class DType:
    cdef readonly str name          # "float32"
    cdef readonly int itemsize      # bytes
    cdef readonly str kind          # "b", "u", "i" or "f"
    cdef int code
    cdef object numpy_dtype

cdef inline int itemsize(int code) noexcept nogil:
    return 1 if code < INT32 else 4 if code == INT32 or code == FLOAT32 else 8

cdef inline bint is_float(int code) noexcept nogil:
    return code >= FLOAT32

cdef str EXPECTED                   # the names of all dtypes, for errors
cdef int default_float              # the code of `get_default_dtype()`
cdef str matmul_precision            # "highest", "high" or "medium"
cdef bint tf32_allowed              # whether products of float32 on a GPU may round their factors to TF32
cdef bint bfloat16_allowed          # whether products of float32 may round their factors to bfloat16
cdef dict CODES                     # by dtype name and by Python type
