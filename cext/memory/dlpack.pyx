"""DLPack: memory shared with other libraries, on every device."""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import sys

import numpy as np

from minigrad.engine.memory.array cimport Array, adopted, alias, note_use, tidied, view
from minigrad.engine.memory.dtype cimport BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT8, is_float, itemsize
from minigrad.engine.memory.pool cimport gpus
from minigrad.engine.memory.refusals cimport must_copy, unsupported
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_index, device_name, product

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


# ── import ────────────────────────────────────────────────────────────────────────────────

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
    options = {"stream": gpus.current_stream(number)} if kind in (2, 13) else {}
    try:
        return data.__dlpack__(max_version=(1, 0), **options)
    except TypeError as error:
        if "max_version" not in str(error) and "keyword" not in str(error):
            raise
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
        code = {(6, 8): BOOL, (1, 8): UINT8, (0, 32): INT32, (0, 64): INT64, (2, 32): FLOAT32, (2, 64): FLOAT64}.get(
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
    cdef Array x = view(base, t.ndim, t.shape, step, base.data), tidy = tidied(x)
    if shared and tidy is not x:
        raise must_copy("asarray", x)
    return tidy, readonly


# ── export ────────────────────────────────────────────────────────────────────────────────

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
    t.dtype.code = 6 if x.code == BOOL else 1 if x.code == UINT8 else 2 if is_float(x.code) else 0
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
        gpus.hand_over(exported.buffer.device - 1, stream)
    elif stream is not None:
        raise BufferError(f"[dlpack] expected stream None for a tensor on the CPU, got {stream}")
    return to_capsule(exported, versioned, copied)
