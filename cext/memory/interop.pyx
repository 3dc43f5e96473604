"""Arrays made of what other libraries and Python hold: buffers, DLPack, NumPy arrays, nested lists."""
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int64_t

from collections.abc import Sequence

import numpy as np

from minigrad.engine.memory.array cimport (
    NOWHERE, Array, adopted, empty, keep_values, tell_reader, tidied, transferred, unrecorded_numpy, view,
)
from minigrad.engine.memory.calls cimport Call, begin, refuse_in_capture
from minigrad.engine.memory.dlpack cimport capsule_of, imported
from minigrad.engine.memory.dtype cimport (
    BOOL, CODES, FLOAT32, FLOAT64, INT32, INT64, UINT8, code_of, is_float, default_float, dtype_of, itemsize,
)
from minigrad.engine.memory.refusals cimport must_copy, shown_tensors, uninitialized, unsupported
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_index, parse_shape, product


cdef void drop_buffer(void* owner) noexcept:
    PyBuffer_Release(<Py_buffer*>owner)
    PyMem_Free(owner)


cdef int code_of_format(const char* text, Py_ssize_t size) except -2:
    """The dtype of a buffer's format; -1 if minigrad does not support it."""
    cdef str format = (<bytes>text).decode() if text != NULL else "B"
    if format[:1] in "@=<":
        format = format[1:]
    if format == "?" or format == "B":
        return BOOL if format == "?" else UINT8
    if format in ("i", "l", "q") and size in (4, 8):
        return INT32 if size == 4 else INT64
    if format in ("f", "d"):
        return FLOAT32 if size == 4 else FLOAT64
    return -1


cdef Array from_buffer(object data):
    """A view of an exporter's memory; None if that is not possible without a copy."""
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
    try:
        product(info.ndim, <int64_t*>info.shape)
    except ValueError:
        drop_buffer(info)
        raise
    cdef Array base = adopted(info.buf, info.len, 0, info, drop_buffer, code)
    cdef int64_t[MAX_NDIM] extent, step
    cdef int64_t gapless = info.itemsize
    for i in range(info.ndim - 1, -1, -1):
        extent[i] = info.shape[i]
        step[i] = info.strides[i] if info.strides != NULL else gapless      # ctypes gives none, even if asked
        gapless *= info.shape[i]
    return view(base, info.ndim, extent, step, <char*>info.buf)


cdef int check_range(str op, object source, object dtype) except -1:
    """Refuse numbers that cannot become integers of the dtype: NaN, infinities, and numbers out of range."""
    if source.size == 0 or source.dtype == dtype or source.dtype.kind == "b":
        return 0
    low, high, least, end = source.min(), source.max(), np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    # Both bounds are exact as floats, which the largest integer may not be; NaN fails both comparisons
    if not (least <= int(low) and int(high) < end if source.dtype.kind in "iu"
            else float(least) <= np.trunc(float(low)) and np.trunc(float(high)) < float(end)):
        raise ValueError(f"[{op}] expected numbers that fit {dtype}, got values from {low} to {high}")
    return 0


cdef int note_dtypes(object data, set found) except -1:
    """Add the dtypes of the arrays and of NumPy's numbers in nested sequences, which are not Python's numbers."""
    if isinstance(data, (list, tuple)):
        for item in data:
            if type(item) is not float and type(item) is not int:
                note_dtypes(item, found)
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__") or PyObject_CheckBuffer(data):
        found.add(data.dtype if isinstance(data, np.generic) else np.asarray(data).dtype)
    elif isinstance(data, Sequence):
        note_dtypes(list(data), found)
    return 0


cdef int code_found(object data, object source) except -1:
    """The dtype for data that NumPy has read as `source`: NumPy's, but the default dtype for Python's floats."""
    cdef set found = set()
    if source.dtype == np.float64:
        note_dtypes(data, found)
        if not found or np.result_type(*found) != np.float64:
            return default_float
    return code_of(source.dtype)


cdef object without_mask(str op, object source):
    """Return a plain NumPy array; refuse one that masks elements, such as the missing values of a netCDF file."""
    if type(source) is not np.ndarray:
        if isinstance(source, np.ma.MaskedArray) and np.ma.is_masked(source):
            raise ValueError(f"[{op}] expected numbers, got a masked array with {np.ma.count_masked(source):,} masked "
                             f"elements, which would be read as numbers: use x.filled(value) or x.compressed()")
        source = np.asarray(source)
    return source


cdef object read(str op, object data, int code):
    """The array that NumPy makes of data; where it has no numbers, it is asked for the dtype `code` if there is one."""
    try:
        source = without_mask(op, np.asanyarray(data))
        if source.dtype.kind == "O" and hasattr(data, "__array__") and not isinstance(data, np.ndarray):
            if code < 0:    # such as a pandas table, whose columns have no common dtype of NumPy
                raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}: give a dtype, "
                                f"or convert it first, as x.to_numpy('float32') does")
            return np.asarray(data, dtype="int64" if code == INT32 or code == UINT8 else dtype_of(code).name)
    except (OverflowError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
            raise       # a GradientError of a tensor in data
        tensors = shown_tensors(data)
        if tensors is not None:
            raise TypeError(f"[{op}] expected numbers or a tensor, got {tensors}: mg.stack makes one tensor of several "
                            f"and keeps their gradients") from None
        if str(error).startswith(f"[{op}]"):
            raise
        raise (ValueError if isinstance(error, ValueError) else TypeError)(
            f"[{op}] expected a tensor or array-like, got {type(data).__name__}: {error}") from None
    if source.dtype.kind == "V" and source.dtype.type is not np.void:   # from the package ml_dtypes, such as bfloat16
        if code < 0:
            raise unsupported(op, source.dtype.name)
        return source.astype("float32")
    return source


cdef Array from_object(object data, int code, int device, bint copy, str op="asarray", bint shared=False,
                       bint given=False):
    """An array-like as an array of dtype `code` on `device` (-1: keep its own dtype or device).

    `given` tells data of the user, which may change, from what an operation computes from shapes and numbers alone.

    Memory is shared if the exporter allows writes to it and neither `copy` nor the dtype requires new memory; with
    `shared`, it is an error if it cannot be.
    """
    cdef Call _call = begin(None)
    cdef Array x = None
    if given and not isinstance(data, Array) and (hasattr(data, "__array__") or hasattr(data, "__dlpack__")):
        refuse_in_capture(f"a conversion from {type(data).__name__}, which it would not repeat: pass it as an argument")
    if isinstance(data, Array):
        x = <Array>data
        if x.buffer == NOWHERE:
            raise uninitialized(op, x)
        tell_reader(x)
    elif PyObject_CheckBuffer(data) and not isinstance(data, (bytes, bytearray)):
        if isinstance(data, np.ndarray):
            data = without_mask(op, data)
        found = from_buffer(data)
        if found is not None:
            x = tidied(<Array>found)
            if shared and x is not found:
                raise must_copy(op, found)
    elif hasattr(data, "__dlpack__"):
        try:
            capsule = capsule_of(op, data)
        except BufferError as error:        # such as an array that requires grad
            raise TypeError(f"[{op}] expected memory that may be shared, got {type(data).__name__}: {error}") from None
        except TypeError:
            if not hasattr(data, "__array__"):
                raise                       # otherwise NumPy may know how to convert them, as single bits or nulls
        else:
            found, readonly = imported(op, capsule, shared, code >= 0)
            copy = copy or readonly
            if isinstance(found, Array):
                x = <Array>found
            else:
                data = found
    if device < 0:
        device = x.buffer.device if x is not None else 0
    if x is not None and (code < 0 or x.code == code) and not copy and x.buffer.device == device:
        return x
    if shared:
        raise must_copy(op, data)
    if isinstance(data, Array):
        refuse_in_capture(f"{op} with a tensor, which copies its values outside of kernels: use copy() or astype()")
    if x is not None and x.buffer.device:
        if code < 0 or x.code == code:
            return transferred(x, device)   # directly: a detour through the host would have to wait
        x = transferred(x, 0)
    source = unrecorded_numpy(x) if x is not None else read(op, data, code)
    if source.dtype.kind not in "biufc":
        if "load_state_dict" in getattr(data, "__qualname__", ""):  # PyTorch calls type(value)(generator)
            raise TypeError(f"[{op}] expected numbers, got a generator: PyTorch's optimizers load PyTorch's tensors, "
                            f"torch.tensor(x.numpy())")
        advice = ": x.toarray() makes an array of a sparse one" if hasattr(data, "toarray") else ""
        raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}{advice}")
    if source.dtype.kind == "c" or code < 0 and source.dtype.name not in CODES:
        raise unsupported(op, str(source.dtype), source.dtype.kind != "c")
    if code < 0:
        code = x.code if x is not None else code_found(data, source)
    if source.ndim > MAX_NDIM:
        raise ValueError(f"[{op}] expected at most {MAX_NDIM} axes, got {source.ndim}")
    cdef int64_t[MAX_NDIM] extent
    cdef Array out = empty(code, parse_shape(source.shape, extent), extent, 0)
    keep_values(out)
    numbers = unrecorded_numpy(out)
    if code != BOOL and not is_float(code):
        check_range(op, source, numbers.dtype)
    np.copyto(numbers, source, casting="unsafe")
    return transferred(out, device) if device else out


def from_dlpack(data: Any, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of any object that supports DLPack.

    Parameters
    ----------
    data : object with ``__dlpack__`` and ``__dlpack_device__``
        For example an array of NumPy, CuPy, PyTorch or JAX.
    device : str, optional
        Where the result is; by default, where `data` is.
    copy : bool, optional
        True copies in any case; False makes it an error if the memory cannot be shared.

    Returns
    -------
    Tensor
        Shares the memory of `data`: a write to one shows in the other, also where the other's library considers it
        immutable without saying so, as JAX 0.10 does. Memory that is marked as read-only, such as Arrow's, is copied,
        and so are bools of bytes that are neither 0 nor 1. On a GPU, CuPy's current stream waits for the owner's
        pending writes.

    Raises
    ------
    TypeError
        If the data type is not one of minigrad's; `minigrad.asarray` with a dtype converts others.
    ValueError
        If the memory cannot be shared and `copy` is False.

    Examples
    --------
    >>> import numpy as np, minigrad as mg
    >>> a = np.arange(3.0)
    >>> x = mg.from_dlpack(a)
    >>> a[0] = 7
    >>> x
    tensor([7., 1., 2.], dtype=float64)
    """
    if not isinstance(data, Array):
        refuse_in_capture(f"from_dlpack of {type(data).__name__}, which it would not repeat: pass it as an argument")
    cdef int wanted = -1 if device is None else device_index(device, "from_dlpack")
    x, readonly = imported("from_dlpack", capsule_of("from_dlpack", data), copy is False, False)
    if readonly and copy is False:
        raise must_copy("from_dlpack", data)
    return from_object(x, -1, wanted, copy is True or readonly, "from_dlpack", copy is False, True)
