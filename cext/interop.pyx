"""Memory shared with NumPy and other libraries, in both directions, by the buffer protocol or DLPack."""
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import sys
from collections.abc import Sequence

import numpy as np

from minigrad.engine.array cimport (
    MAX_NDIM, NOWHERE, Array, adopted, alias, device_index, device_name, device_streams, empty, keep_values, note_use,
    parse_shape, product, tell_reader, transferred, view,
)
from minigrad.engine.calls cimport ACTIVE, Call, begin, is_recorded, refuse_in_capture
from minigrad.engine.dtype cimport (
    BOOL, CODES, FLOAT32, FLOAT64, INT32, INT64, code_of, default_float, dtype_of, is_float, itemsize,
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
            else float(least) <= np.trunc(float(low)) and np.trunc(float(high)) < -float(least)):
        raise ValueError(f"[{op}] expected numbers that fit {dtype}, got values from {low} to {high}")
    return 0


cdef object uninitialized(str op, Array x):
    """The error for a tensor whose class has an __init__ that did not call Tensor's."""
    return TypeError(f"[{op}] expected a tensor, got a {type(x).__name__} whose __init__ did not call Tensor's")


cdef object unrecorded_numpy(Array x):
    """The memory of x for NumPy, also while a step is recorded."""
    cdef bint paused = is_recorded()
    if paused:
        ACTIVE.kernel_list.paused = True
    try:
        return alias(x).numpy()
    finally:
        if paused:
            ACTIVE.kernel_list.paused = False


cdef object must_copy(str op, object data):
    """The error for data whose memory cannot be used as it is, although that was asked for."""
    return ValueError(f"[{op}] expected memory that can be shared, for copy=False, got {type(data).__name__}: "
                      f"copy=None copies where that is necessary")


cdef str place_of_tensor(object data, int depth=0):
    """Where the first tensor in nested lists and tuples is, such as "[0][1]"; None if there is none."""
    cdef Py_ssize_t i = 0
    if isinstance(data, (list, tuple)) and depth <= MAX_NDIM:
        for item in data:
            place = "" if isinstance(item, Array) else place_of_tensor(item, depth + 1)
            if place is not None:
                return f"[{i}]{place}"
            i += 1
    return None


cdef str shown_tensors(object data):
    """A list or tuple that holds tensors, as an error shows it; None for anything else."""
    place = place_of_tensor(data)
    if place is None:
        return None
    first = ", ".join([type(item).__name__ for item in data[:4]])
    return f"{type(data).__name__} ({first}{', ...' if len(data) > 4 else ''}), whose {place} is one"


cdef object unsupported(str op, str got, bint here=True):
    """The error for numbers of a dtype that minigrad lacks, in memory that can be converted here or not."""
    way = "" if "complex" in got else ": convert it first, as x.float() or x.astype('float32') does"
    return TypeError(f"[{op}] expected float32, float64, int32, int64 or bool, got {got}{way}"
                     f"{", or use mg.asarray(x, dtype='float32')" if here else ''}")


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


cdef object read(str op, object data, int code):
    """The array that NumPy makes of data; where it has no numbers, it is asked for the dtype `code` if there is one."""
    try:
        source = np.asarray(data)
        if source.dtype.kind == "O" and hasattr(data, "__array__") and not isinstance(data, np.ndarray):
            if code < 0:    # such as a pandas table, whose columns have no common dtype of NumPy
                raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}: give a dtype, "
                                f"or convert it first, as x.to_numpy('float32') does")
            return np.asarray(data, dtype="int64" if code == INT32 else dtype_of(code).name)
    except (OverflowError, TypeError, ValueError) as error:
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
        x = from_buffer(data)
        x = x if x is None else tidied(x, shared)
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
        raise TypeError(f"[{op}] expected numbers, got {type(data).__name__} of {source.dtype}")
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
    if code == INT32 or code == INT64:
        check_range(op, source, numbers.dtype)
    np.copyto(numbers, source, casting="unsafe")
    return transferred(out, device) if device else out


# ── DLPack: import ────────────────────────────────────────────────────────────────────────────────

cdef struct DLManagedTensorVersioned:       # as of version 1 of DLPack
    uint32_t major, minor
    void* context
    void (*deleter)(DLManagedTensorVersioned*) noexcept nogil
    uint64_t flags                          # READ_ONLY, IS_COPIED
    DLTensor tensor


cdef enum:
    READ_ONLY = 1
    IS_COPIED = 2


cdef void drop_import(void* owner) noexcept:
    cdef DLManagedTensor* managed = <DLManagedTensor*>owner
    if managed.deleter != NULL:
        managed.deleter(managed)


cdef void drop_versioned(void* owner) noexcept:
    cdef DLManagedTensorVersioned* managed = <DLManagedTensorVersioned*>owner
    if managed.deleter != NULL:
        managed.deleter(managed)


cdef object capsule_of(str op, object data):
    """The DLPack capsule of an object, of version 1 if it has that: only that one says if memory is read-only."""
    if not (hasattr(data, "__dlpack__") and hasattr(data, "__dlpack_device__")):
        raise TypeError(f"[{op}] expected an object with __dlpack__ and __dlpack_device__, got {type(data).__name__}")
    kind, number = data.__dlpack_device__()
    options = {"stream": device_streams.current(number)} if kind in (2, 13) else {}
    try:
        return data.__dlpack__(max_version=(1, 0), **options)
    except TypeError as error:
        try:
            return data.__dlpack__(**options)   # the library is older than version 1
        except Exception:
            raise error from None


class Foreign:
    """Memory of numbers that minigrad lacks, described for NumPy, which keeps this object and with it the capsule."""

    def __init__(self, interface: dict[str, Any], capsule: Any) -> None:
        self.__array_interface__, self.capsule = interface, capsule


cdef object imported(str op, object capsule, bint shared, bint foreign):
    """(the memory of a capsule, whether it is read-only): an Array; if `foreign` is allowed, else an array of NumPy."""
    cdef DLManagedTensor* old = NULL
    cdef DLManagedTensorVersioned* new = NULL
    cdef DLTensor* t
    cdef int code = -1, place, i
    cdef bint readonly = False
    if PyCapsule_IsValid(capsule, "dltensor_versioned"):
        new = <DLManagedTensorVersioned*>PyCapsule_GetPointer(capsule, "dltensor_versioned")
        if new.major != 1:
            raise BufferError(f"[{op}] expected a capsule of DLPack 1, got version {new.major}.{new.minor}")
        t, readonly = &new.tensor, new.flags & READ_ONLY
    elif PyCapsule_IsValid(capsule, "dltensor"):
        old = <DLManagedTensor*>PyCapsule_GetPointer(capsule, "dltensor")
        t = &old.tensor
    else:
        raise TypeError(f"[{op}] expected an unused capsule named 'dltensor' or 'dltensor_versioned'")
    if not 0 <= t.ndim <= MAX_NDIM:
        raise ValueError(f"[{op}] expected at most {MAX_NDIM} axes, got {t.ndim}")
    cdef int64_t count = product(t.ndim, t.shape)       # raises if the product of the lengths overflows
    if t.device.type in (1, 3):
        place = 0
    elif t.device.type in (2, 13):
        place = device_index(f"cuda:{t.device.id}", op)
    else:
        raise TypeError(f"[{op}] expected memory of the CPU or CUDA, got device type {t.device.type}")
    if t.dtype.lanes == 1:
        code = {(6, 8): BOOL, (0, 32): INT32, (0, 64): INT64, (2, 32): FLOAT32, (2, 64): FLOAT64}.get(
            (t.dtype.code, t.dtype.bits), -1)
    if code < 0:
        letter = "u" if (t.dtype.code, t.dtype.bits) == (4, 16) else {0: "i", 1: "u", 2: "f"}.get(t.dtype.code)
        here = place == 0 and letter is not None and t.dtype.lanes == 1 and t.dtype.bits in (8, 16, 32, 64)
        if not (here and foreign):
            name = KINDS.get(t.dtype.code, f"type {t.dtype.code} of ")
            lanes = f" times {t.dtype.lanes}" if t.dtype.lanes != 1 else ""
            raise unsupported(op, f"{name}{t.dtype.bits}{lanes}", here)
        width = t.dtype.bits // 8
        shape = tuple([t.shape[i] for i in range(t.ndim)])
        strides = None if t.strides == NULL else tuple([t.strides[i] * width for i in range(t.ndim)])
        array = np.empty(shape, f"{letter}{width}") if count == 0 else np.asarray(Foreign(
            {"version": 3, "shape": shape, "strides": strides, "typestr": f"|{letter}1" if width == 1 else
             f"{'<' if sys.byteorder == 'little' else '>'}{letter}{width}",
             "data": (<size_t>t.data + t.byte_offset, True)}, capsule))
        return (array.astype("u4") << 16).view("f4") if t.dtype.code == 4 else array, readonly
    PyCapsule_SetName(capsule, "used_dltensor" if new == NULL else "used_dltensor_versioned")
    cdef int64_t[MAX_NDIM] step
    count = itemsize(code)
    for i in range(t.ndim - 1, -1, -1):
        step[i] = t.strides[i] * itemsize(code) if t.strides != NULL else count
        count *= t.shape[i]
    cdef char* data = <char*>t.data + t.byte_offset
    cdef Array base = (adopted(data, count, place, old, drop_import, code) if new == NULL else
                       adopted(data, count, place, new, drop_versioned, code))
    return tidied(view(base, t.ndim, t.shape, step, base.data), shared), readonly


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


# ── DLPack: export ────────────────────────────────────────────────────────────────────────────────

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
        new.major, new.minor, new.flags = 1, 0, IS_COPIED if copied else 0
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
    cdef int i
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
    for i in range(x.ndim_):
        if x.step[i] < 0:           # not every consumer can represent negative strides
            if copy is not None and not copy:
                raise BufferError("[dlpack] expected strides of 0 or more, for copy=False: export x.contiguous()")
            copied = True
    if copied:
        exported = <Array?>exported.copy()
    if exported.buffer.device:
        device_streams.hand_over(exported.buffer.device - 1, stream)
    elif stream is not None:
        raise BufferError(f"[dlpack] expected stream None for a tensor on the CPU, got {stream}")
    return to_capsule(exported, versioned, copied)
