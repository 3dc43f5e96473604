"""Tensors over the memory of others: NumPy and all that speak the buffer protocol or DLPack."""
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName
from libc.stdint cimport int64_t

import numpy as np

from minigrad.engine.array cimport (
    MAX_NDIM, NOWHERE, Array, DLManagedTensor, DLTensor, adopted, alias, current_stream, device_index, empty,
    parse_shape, product, transferred, view,
)
from minigrad.engine.dtype cimport BOOL, CODES, FLOAT32, FLOAT64, INT32, INT64, code_of, itemsize


cdef dict KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}      # of numbers, to DLPack


cdef Array tidied(Array x):
    """x, or a copy where it is of bytes that were made to be bools: kernels count on 0 and 1."""
    if x.code != BOOL or x.count == 0 or x.buffer.device:
        return x
    octets = alias(x).numpy().view(np.uint8)
    return x if octets.max() <= 1 else from_object(octets != 0, BOOL, 0, False)


# ── the buffer protocol ───────────────────────────────────────────────────────────────────────────

cdef void drop_buffer(void* owner) noexcept:
    PyBuffer_Release(<Py_buffer*>owner)
    PyMem_Free(owner)


cdef int code_of_format(const char* text, Py_ssize_t size) except -2:
    """The dtype of a buffer's format; -1 for one that minigrad does not have."""
    cdef str format = (<bytes>text).decode() if text != NULL else "B"
    if format[:1] in "@=<":
        format = format[1:]
    if format == "?":
        return BOOL
    if format in ("i", "l", "q") and size in (4, 8):
        return INT32 if size == 4 else INT64
    if format in ("f", "d"):
        return FLOAT32 if size == 4 else FLOAT64
    return -1


cdef Array from_buffer(object data):
    """A view of an exporter's memory; None where that is not possible without a copy."""
    cdef Py_buffer* info = <Py_buffer*>PyMem_Malloc(sizeof(Py_buffer))
    try:
        PyObject_GetBuffer(data, info, PyBUF_STRIDES | PyBUF_FORMAT | PyBUF_WRITABLE)
    except (BufferError, ValueError):
        PyMem_Free(info)
        return None
    cdef int code = code_of_format(info.format, info.itemsize), i
    cdef bint fits = code >= 0 and info.ndim <= MAX_NDIM and <size_t>info.buf % itemsize(code) == 0
    for i in range(info.ndim):
        fits = fits and (info.strides == NULL or info.strides[i] % info.itemsize == 0)
    if not fits:
        drop_buffer(info)
        return None
    cdef Array base = adopted(info.buf, info.len, 0, info, drop_buffer, code)
    cdef int64_t[MAX_NDIM] extent, step
    cdef int64_t gapless = info.itemsize
    for i in range(info.ndim - 1, -1, -1):
        extent[i] = info.shape[i]
        step[i] = info.strides[i] if info.strides != NULL else gapless      # ctypes names none, though asked for them
        gapless *= info.shape[i]
    return view(base, info.ndim, extent, step, <char*>info.buf)


cdef int check_range(str op, object source, object dtype) except -1:
    """Refuse to make integers of numbers that none of the dtype is near: NaN, infinity, and what lies beyond."""
    if source.size == 0 or source.dtype == dtype or source.dtype.kind == "b":
        return 0
    low, high, least = source.min(), source.max(), np.iinfo(dtype).min
    # -least is one more than the largest, and a float, which the largest may not be; NaN is nowhere between
    if not (least <= int(low) and int(high) < -least if source.dtype.kind in "iu"
            else float(least) <= np.trunc(low) and np.trunc(high) < -float(least)):
        raise ValueError(f"[{op}] expected numbers that fit {dtype}, got values from {low} to {high}")
    return 0


cdef object uninitialized(str op, Array x):
    """The error for a tensor whose class has an __init__ that did not call Tensor's."""
    return TypeError(f"[{op}] expected a tensor, got a {type(x).__name__} whose __init__ did not call Tensor's")


cdef Array from_object(object data, int code, int device, bint copy, str op="asarray"):
    """Any array-like as an array of dtype `code` on a device (-1: its own, of either).

    Memory is shared where the exporter allows it and neither `copy` nor the dtype asks for another.
    """
    cdef Array x = None
    if isinstance(data, Array):
        x = <Array>data
        if x.buffer == NOWHERE:
            raise uninitialized(op, x)
    elif PyObject_CheckBuffer(data) and not isinstance(data, (bytes, bytearray)):
        x = from_buffer(data)
        x = x if x is None else tidied(x)
    elif hasattr(data, "__dlpack__"):
        try:
            x = from_dlpack(data)
        except BufferError as error:        # of something that does not share its memory, such as a gradient's
            raise TypeError(f"[{op}] expected memory that may be shared, got {type(data).__name__}: {error}") from None
        except TypeError:
            if code < 0 or not hasattr(data, "__array__"):
                raise                       # else a dtype that NumPy may know how to convert
    if device < 0:
        device = x.buffer.device if x is not None else 0
    if x is not None and (code < 0 or x.code == code) and not copy and x.buffer.device == device:
        return x
    if x is not None and x.buffer.device:
        if code < 0 or x.code == code:
            return transferred(x, device)   # without a way round by the host, for which it would have to wait
        x = transferred(x, 0)
    try:
        source = alias(x).numpy() if x is not None else np.asarray(data)
    except (OverflowError, TypeError, ValueError) as error:
        raise (ValueError if isinstance(error, ValueError) else TypeError)(
            f"[{op}] expected a tensor or array-like, got {type(data).__name__}: {error}") from None
    if source.dtype.kind not in "biufc":
        raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}")
    if source.dtype.kind == "c" or code < 0 and source.dtype.name not in CODES:
        raise TypeError(f"[{op}] expected float32, float64, int32, int64 or bool, got {source.dtype}: "
                        f"convert it first, or give a dtype")
    if code < 0:
        # Python floats take the default dtype
        plain = x is None and source.dtype == np.float64 and not hasattr(data, "dtype")
        code = FLOAT32 if plain else code_of(source.dtype)
    if source.ndim > MAX_NDIM:
        raise ValueError(f"[{op}] expected at most {MAX_NDIM} axes, got {source.ndim}")
    cdef int64_t[MAX_NDIM] extent
    cdef Array out = empty(code, parse_shape(source.shape, extent), extent, 0)
    if code == INT32 or code == INT64:
        check_range(op, source, out.numpy().dtype)
    np.copyto(out.numpy(), source, casting="unsafe")
    return transferred(out, device) if device else out


# ── DLPack ────────────────────────────────────────────────────────────────────────────────────────

cdef void drop_import(void* owner) noexcept:
    cdef DLManagedTensor* managed = <DLManagedTensor*>owner
    if managed.deleter != NULL:
        managed.deleter(managed)


def from_dlpack(data):
    """A tensor over the memory of any object that speaks DLPack.

    Parameters
    ----------
    data : object with ``__dlpack__`` and ``__dlpack_device__``
        For example an array of NumPy, CuPy, PyTorch or JAX.

    Returns
    -------
    Tensor
        Shares the memory of `data`: what is written into one shows in the other, also where the other's library takes
        it for immutable, as JAX does. (Bools of bytes that are neither 0 nor 1 are copied.) On a GPU what its owner
        still has to write there is waited for on CuPy's current stream.

    Raises
    ------
    TypeError
        If the data type is not one of minigrad's.

    Examples
    --------
    >>> import numpy as np, minigrad as mg
    >>> a = np.arange(3.0)
    >>> x = mg.from_dlpack(a)
    >>> a[0] = 7
    >>> x
    tensor([7., 1., 2.], dtype=float64)
    """
    if not (hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__")):
        raise TypeError(f"[from_dlpack] expected an object with __dlpack__ and __dlpack_device__, got "
                        f"{type(data).__name__}")
    kind, number = data.__dlpack_device__()
    capsule = data.__dlpack__(stream=current_stream(1 + number)) if kind in (2, 13) else data.__dlpack__()
    if not PyCapsule_IsValid(capsule, "dltensor"):
        raise TypeError("[from_dlpack] expected an unused capsule named 'dltensor'")
    cdef DLManagedTensor* managed = <DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
    cdef DLTensor* t = &managed.tensor
    cdef int code = -1, device
    if t.dtype.lanes == 1:
        code = {(6, 8): BOOL, (0, 32): INT32, (0, 64): INT64, (2, 32): FLOAT32, (2, 64): FLOAT64}.get(
            (t.dtype.code, t.dtype.bits), -1)
    if code < 0:
        name = KINDS.get(t.dtype.code, f"type {t.dtype.code} of ")
        raise TypeError(f"[from_dlpack] expected float32, float64, int32, int64 or bool, got {name}{t.dtype.bits}"
                        f"{f' times {t.dtype.lanes}' if t.dtype.lanes != 1 else ''}")
    if not 0 <= t.ndim <= MAX_NDIM:
        raise ValueError(f"[from_dlpack] expected at most {MAX_NDIM} axes, got {t.ndim}")
    product(t.ndim, t.shape)        # refuses lengths whose product overflows
    if t.device.type in (1, 3):
        device = 0
    elif t.device.type in (2, 13):
        device = device_index(f"cuda:{t.device.id}", "from_dlpack")
    else:
        raise TypeError(f"[from_dlpack] expected memory of the CPU or CUDA, got device type {t.device.type}")
    PyCapsule_SetName(capsule, "used_dltensor")
    cdef int64_t[MAX_NDIM] step
    cdef int64_t count = itemsize(code)
    cdef int i
    for i in range(t.ndim - 1, -1, -1):
        step[i] = t.strides[i] * itemsize(code) if t.strides != NULL else count
        count *= t.shape[i]
    cdef Array base = adopted(<char*>t.data + t.byte_offset, count, device, managed, drop_import, code)
    return tidied(view(base, t.ndim, t.shape, step, base.data))
