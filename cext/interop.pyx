"""Memory shared with NumPy and other libraries, in both directions, by the buffer protocol or DLPack."""
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import numpy as np

from minigrad.engine.array cimport (
    MAX_NDIM, NOWHERE, Array, adopted, alias, device_index, device_name, device_streams, empty, keep_values, note_use,
    parse_shape, product, tell_reader, transferred, view,
)
from minigrad.engine.calls cimport Call, RUNNING, begin, is_recorded, refuse_in_capture
from minigrad.engine.dtype cimport (
    BOOL, CODES, FLOAT32, FLOAT64, INT32, INT64, code_of, default_float, is_float, itemsize,
)

cdef extern from "Python.h":
    bint Py_IsInitialized() nogil

cdef extern from "runtime/dlpack.hpp":
    struct DLDevice:
        int32_t type
        int32_t id
    struct DLDataType:
        unsigned char code
        unsigned char bits
        unsigned short lanes
    struct DLTensor:
        void* data
        DLDevice device
        int32_t ndim
        DLDataType dtype
        int64_t* shape
        int64_t* strides
        size_t byte_offset
    struct DLManagedTensor:
        DLTensor tensor
        void* context
        void (*deleter)(DLManagedTensor*) noexcept nogil


cdef dict KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}      # DLPack's kinds of numbers


cdef Array tidied(Array x, bint shared=False):
    """x, or a copy if some of its bools are bytes other than 0 and 1: kernels rely on these two values."""
    if x.code != BOOL or x.count == 0 or x.buffer.device:
        return x
    octets = unrecorded_numpy(x).view(np.uint8)
    distinct = octets[tuple([slice(1 if x.step[i] == 0 else None) for i in range(x.ndim_)])]
    if distinct.max() <= 1:
        return x
    if shared:
        raise must_copy("asarray", x)
    return from_object(octets != 0, BOOL, 0, False)


# ── the buffer protocol ───────────────────────────────────────────────────────────────────────────

cdef void drop_buffer(void* owner) noexcept:
    PyBuffer_Release(<Py_buffer*>owner)
    PyMem_Free(owner)


cdef int code_of_format(const char* text, Py_ssize_t size) except -2:
    """The dtype of a buffer's format; -1 if minigrad does not support it."""
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
    low, high, least = source.min(), source.max(), np.iinfo(dtype).min
    # -least is the largest plus one, and exact as a float, which the largest may not be; NaN fails both comparisons
    if not (least <= int(low) and int(high) < -least if source.dtype.kind in "iu"
            else float(least) <= np.trunc(low) and np.trunc(high) < -float(least)):
        raise ValueError(f"[{op}] expected numbers that fit {dtype}, got values from {low} to {high}")
    return 0


cdef object uninitialized(str op, Array x):
    """The error for a tensor whose class has an __init__ that did not call Tensor's."""
    return TypeError(f"[{op}] expected a tensor, got a {type(x).__name__} whose __init__ did not call Tensor's")


cdef object unrecorded_numpy(Array x):
    """The memory of x for NumPy, also while a step is recorded."""
    cdef bint paused = is_recorded()
    if paused:
        RUNNING.recording.paused = True
    try:
        return alias(x).numpy()
    finally:
        if paused:
            RUNNING.recording.paused = False


cdef object must_copy(str op, object data):
    """The error for data whose memory cannot be used as it is, although that was asked for."""
    return ValueError(f"[{op}] expected memory that can be shared, for copy=False, got {type(data).__name__}: "
                      f"copy=None copies where that is necessary")


cdef Array from_object(object data, int code, int device, bint copy, str op="asarray", bint shared=False,
                       bint given=False):
    """An array-like as an array of dtype `code` on `device` (-1: keep its own dtype or device).

    `given` tells data of the user, which may change, from what an operation computes from shapes and numbers alone.

    Memory is shared if the exporter allows it and neither `copy` nor the dtype requires new memory; with `shared`, it
    is an error if it cannot be.
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
        x = from_buffer(data)
        x = x if x is None else tidied(x, shared)
    elif hasattr(data, "__dlpack__"):
        try:
            x = from_dlpack(data, copy=False if shared else None)
        except BufferError as error:        # such as an array that requires grad
            raise TypeError(f"[{op}] expected memory that may be shared, got {type(data).__name__}: {error}") from None
        except TypeError:
            if code < 0 or not hasattr(data, "__array__"):
                raise                       # otherwise NumPy may know how to convert the dtype
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
    try:
        source = unrecorded_numpy(x) if x is not None else np.asarray(data)
    except (OverflowError, TypeError, ValueError) as error:
        raise (ValueError if isinstance(error, ValueError) else TypeError)(
            f"[{op}] expected a tensor or array-like, got {type(data).__name__}: {error}") from None
    if source.dtype.kind not in "biufc":
        if "load_state_dict" in getattr(data, "__qualname__", ""):  # PyTorch calls type(value)(generator)
            raise TypeError(f"[{op}] expected numbers, got a generator: PyTorch's optimizers load PyTorch's tensors, "
                            f"torch.tensor(x.numpy())")
        raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}")
    if source.dtype.kind == "c" or code < 0 and source.dtype.name not in CODES:
        raise TypeError(f"[{op}] expected float32, float64, int32, int64 or bool, got {source.dtype}: "
                        f"convert it first, or give a dtype")
    if code < 0:
        # Python floats take the default dtype
        plain = x is None and source.dtype == np.float64 and not hasattr(data, "dtype")
        code = default_float if plain else code_of(source.dtype)
    if source.ndim > MAX_NDIM:
        raise ValueError(f"[{op}] expected at most {MAX_NDIM} axes, got {source.ndim}")
    cdef int64_t[MAX_NDIM] extent
    cdef Array out = empty(code, parse_shape(source.shape, extent), extent, 0)
    keep_values(out)
    numbers = unrecorded_numpy(out)
    if code == INT32 or code == INT64:
        check_range(op, source, numbers.dtype)
    np.copyto(numbers, source, casting="unsafe")
    return transferred(out, device) if device else out


# ── DLPack: import ────────────────────────────────────────────────────────────────────────────────

cdef void drop_import(void* owner) noexcept:
    cdef DLManagedTensor* managed = <DLManagedTensor*>owner
    if managed.deleter != NULL:
        managed.deleter(managed)


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
        Shares the memory of `data`: a write to one shows in the other, even if the other's library considers it
        immutable, as JAX does. (Bools of bytes that are neither 0 nor 1 are copied.) On a GPU, CuPy's current stream
        waits for the owner's pending writes.

    Raises
    ------
    TypeError
        If the data type is not one of minigrad's.
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
    if not (hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__")):
        raise TypeError(f"[from_dlpack] expected an object with __dlpack__ and __dlpack_device__, got "
                        f"{type(data).__name__}")
    cdef bint shared = copy is False
    cdef int wanted = -1 if device is None else device_index(device, "from_dlpack")
    kind, number = data.__dlpack_device__()
    capsule = data.__dlpack__(stream=device_streams.current(number)) if kind in (2, 13) else data.__dlpack__()
    if not PyCapsule_IsValid(capsule, "dltensor"):
        raise TypeError("[from_dlpack] expected an unused capsule named 'dltensor'")
    cdef DLManagedTensor* managed = <DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
    cdef DLTensor* t = &managed.tensor
    cdef int code = -1, place
    if t.dtype.lanes == 1:
        code = {(6, 8): BOOL, (0, 32): INT32, (0, 64): INT64, (2, 32): FLOAT32, (2, 64): FLOAT64}.get(
            (t.dtype.code, t.dtype.bits), -1)
    if code < 0:
        name = KINDS.get(t.dtype.code, f"type {t.dtype.code} of ")
        raise TypeError(f"[from_dlpack] expected float32, float64, int32, int64 or bool, got {name}{t.dtype.bits}"
                        f"{f' times {t.dtype.lanes}' if t.dtype.lanes != 1 else ''}")
    if not 0 <= t.ndim <= MAX_NDIM:
        raise ValueError(f"[from_dlpack] expected at most {MAX_NDIM} axes, got {t.ndim}")
    product(t.ndim, t.shape)        # raises if the product of the lengths overflows
    if t.device.type in (1, 3):
        place = 0
    elif t.device.type in (2, 13):
        place = device_index(f"cuda:{t.device.id}", "from_dlpack")
    else:
        raise TypeError(f"[from_dlpack] expected memory of the CPU or CUDA, got device type {t.device.type}")
    PyCapsule_SetName(capsule, "used_dltensor")
    cdef int64_t[MAX_NDIM] step
    cdef int64_t count = itemsize(code)
    cdef int i
    for i in range(t.ndim - 1, -1, -1):
        step[i] = t.strides[i] * itemsize(code) if t.strides != NULL else count
        count *= t.shape[i]
    cdef Array base = adopted(<char*>t.data + t.byte_offset, count, place, managed, drop_import, code)
    cdef Array x = tidied(view(base, t.ndim, t.shape, step, base.data), shared)
    return from_object(x, code, wanted, copy is True, "from_dlpack", shared, True)


# ── DLPack: export ────────────────────────────────────────────────────────────────────────────────

cdef struct DLManagedTensorVersioned:       # as of version 1 of DLPack
    uint32_t major, minor
    void* context
    void (*deleter)(DLManagedTensorVersioned*) noexcept nogil
    uint64_t flags                          # 1: read-only, 2: a copy
    DLTensor tensor


ctypedef fused Managed:
    DLManagedTensor
    DLManagedTensorVersioned


cdef int describe(DLTensor* t, Array x) except -1:
    """Fill in the DLPack description of x."""
    cdef int64_t* numbers = <int64_t*>PyMem_Malloc(2 * MAX_NDIM * sizeof(int64_t))
    cdef int i
    for i in range(x.ndim_):
        numbers[i] = x.extent[i]
        numbers[MAX_NDIM + i] = x.step[i] // itemsize(x.code)
    t.data, t.byte_offset, t.ndim, t.shape, t.strides = x.data, 0, x.ndim_, numbers, numbers + MAX_NDIM
    t.device.type, t.device.id = dlpack_device(x)
    t.dtype.code = 6 if x.code == BOOL else 2 if is_float(x.code) else 0
    t.dtype.bits, t.dtype.lanes = 8 * itemsize(x.code), 1
    return 0


cdef void delete_export(Managed* managed) noexcept nogil:
    if not Py_IsInitialized():      # it was held by a C++ object that outlives the interpreter
        return
    with gil:
        Py_DECREF(<object>managed.context)
        PyMem_Free(managed.tensor.shape)
        PyMem_Free(managed)


cdef void delete_capsule(object capsule) noexcept:
    """The destructor of a capsule, which frees what no consumer has taken over."""
    cdef DLManagedTensor* old
    cdef DLManagedTensorVersioned* new
    if PyCapsule_IsValid(capsule, "dltensor"):
        old = <DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
        old.deleter(old)
    elif PyCapsule_IsValid(capsule, "dltensor_versioned"):
        new = <DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        new.deleter(new)


cdef object to_capsule(Array x, bint versioned, bint copied):
    """Without a version, a consumer cannot tell whether it may write, and NumPy then makes its array read-only."""
    cdef DLManagedTensor* old
    cdef DLManagedTensorVersioned* new
    Py_INCREF(x)
    if versioned:
        new = <DLManagedTensorVersioned*>PyMem_Malloc(sizeof(DLManagedTensorVersioned))
        describe(&new.tensor, x)
        new.major, new.minor, new.flags = 1, 0, 2 if copied else 0
        new.context, new.deleter = <void*>x, delete_export[DLManagedTensorVersioned]
        return PyCapsule_New(new, "dltensor_versioned", <void (*)(object) noexcept>delete_capsule)
    old = <DLManagedTensor*>PyMem_Malloc(sizeof(DLManagedTensor))
    describe(&old.tensor, x)
    old.context, old.deleter = <void*>x, delete_export[DLManagedTensor]
    return PyCapsule_New(old, "dltensor", <void (*)(object) noexcept>delete_capsule)


cdef tuple dlpack_device(Array x):
    """(device type, device id): (1, 0) on the CPU, (2, i) on cuda:i."""
    return (1, 0) if x.buffer.device == 0 else (2, x.buffer.device - 1)


cdef object to_dlpack(Array x, object stream, object max_version, object dl_device, object copy):
    """The capsule that `Tensor.__dlpack__` returns."""
    cdef bint copied = bool(copy), versioned = False
    cdef Array exported
    if dl_device is not None:
        dl_device = tuple(dl_device)
    if max_version is not None:
        try:
            major, _ = max_version
            versioned = major >= 1
        except (TypeError, ValueError):
            raise TypeError(f"[dlpack] expected a max_version (major, minor), got {max_version!r}") from None
    if x.needs_grad:
        raise BufferError("[dlpack] this tensor requires grad: export x.detach()")
    here = dlpack_device(x)
    if dl_device is not None and dl_device != here:
        raise BufferError(f"[dlpack] expected the device {here} for a tensor on {device_name(x.buffer.device)}, got "
                          f"{dl_device}: move the tensor with x.to(...)")
    note_use(x)
    exported = alias(x)
    if copied:
        exported = <Array?>exported.copy()
    if exported.buffer.device:
        device_streams.hand_over(exported.buffer.device - 1, stream)
    elif stream is not None:
        raise BufferError(f"[dlpack] expected stream None for a tensor on the CPU, got {stream}")
    return to_capsule(exported, versioned, copied)
