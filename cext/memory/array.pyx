"""The array under every tensor: a typed, strided view of a reference-counted buffer.

`Array` is the part of a tensor that knows nothing about operations; `tensor.Tensor` derives from it and adds operators
and methods. Its memory comes from a pool and is accessible through the buffer protocol (NumPy) and DLPack; see
`interop`.
"""
cimport cython
from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t

import numpy as np

from minigrad.engine.memory.calls cimport ACTIVE, ActiveCalls, is_capturing, refuse_in_capture
from minigrad.engine.memory.dtype cimport BOOL, FLOAT32, FLOAT64, INT32, INT64, UINT8, dtype_of, itemsize
from minigrad.engine.memory.pool cimport Drop, adopt, gpus, new_buffer, owner_of_memory, release
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_name, size_of

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void*)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef extern from "runtime/active_calls.hpp" namespace "mg":
    void give_up(Buffer* buffer)
    void point_to(ActiveCalls* state)

ctypedef object (*New)(PyTypeObject*, PyObject*, PyObject*)
cdef tuple NO_ARGUMENTS = ()
cdef char** FORMATS = ["?", "B", "i", "l", "f", "d"]     # names in the buffer protocol, by dtype
if sizeof(long) == 4:   # on Windows
    FORMATS[3] = "q"


# ── the layout of an array ──────────────────────────────────────────────────────────────────────

cdef tuple shape_of(Array x):
    cdef int i
    if x.ndim_ == 2:
        return (x.extent[0], x.extent[1])
    return tuple([x.extent[i] for i in range(x.ndim_)])


cdef bint same_shape(Array a, Array b) noexcept:
    cdef int i
    if a.ndim_ != b.ndim_:
        return False
    for i in range(a.ndim_):
        if a.extent[i] != b.extent[i]:
            return False
    return True


cdef int check_same_device(str op, Array a, Array b) except -1:
    if a.buffer.device != b.buffer.device:
        raise ValueError(f"[{op}] expected tensors on one device, got {device_name(a.buffer.device)} and "
                         f"{device_name(b.buffer.device)}")
    return 0


# ── the array ─────────────────────────────────────────────────────────────────────────────────────

cdef Buffer nowhere     # zero-initialized
nowhere.references = 1
NOWHERE = &nowhere

point_to(ACTIVE)


# A method of a compiled class checks the type of `self` only as a plain descriptor, that is, without `binding`. The
# other two directives keep its signature for `inspect`. Every compiled class that has methods uses these directives.
@cython.no_gc_clear     # a cleared tensor could not tell its node that it is dying
@cython.freelist(1024)
@cython.binding(False)
@cython.embedsignature(True)
cdef class Array:
    """Memory, layout and place on the tape of a tensor; see `minigrad.Tensor`."""

    def __cinit__(self):
        # Only a hook can tie a tensor into a reference cycle, so the collector need not track a tensor
        # until it gets a hook (hooks.add_hook); a chain of a million then costs it nothing.
        PyObject_GC_UnTrack(<void*>self)
        self.buffer, self.ndim_, self.moment = NOWHERE, 1, moment

    def __dealloc__(self):
        if self.node is not None:
            above.forget(self)
        if self.grad_ is not None:
            free_grad(self)
        if self.left != NULL:
            leave_ring(self)
        if self.buffer != NOWHERE:
            release(self.buffer)

    @property
    def shape(self) -> tuple[int, ...]:
        """tuple of int: the length of each axis."""
        return shape_of(self)

    @property
    def ndim(self) -> int:
        """int: the number of axes."""
        return self.ndim_

    @property
    def size(self) -> Size:
        """int: the number of elements."""
        return size_of(shape_of(self), self.count)

    @property
    def nbytes(self) -> int:
        """int: the number of bytes of the elements."""
        return self.count * itemsize(self.code)

    @property
    def strides(self) -> tuple[int, ...]:
        """tuple of int: bytes from one element to the next along each axis, as in NumPy."""
        return tuple([self.step[i] for i in range(self.ndim_)])

    @property
    def dtype(self) -> DType:
        """DType: the data type of the elements."""
        return dtype_of(self.code)

    @property
    def device(self) -> str:
        """str: ``"cpu"`` or ``"cuda:N"``."""
        return device_name(self.buffer.device)

    @property
    def version(self) -> int:
        """int: how many times the memory of this tensor has been written in place."""
        return version(self)

    def is_contiguous(self) -> bool:
        """bool: whether the elements lie in memory in row-major order without gaps."""
        return bool(self.packed)

    def data_ptr(self) -> int:
        """int: the address of the first element."""
        return <size_t>self.data

    # ── exports ──

    def __getbuffer__(self, Py_buffer* out, int flags):
        note_use(self)
        # The view holds an alias, not the tensor, which could become another one (`hold`) and release its memory.
        cdef Array x = alias(self)
        if x.buffer.device:
            raise TypeError(f"[numpy] expected a tensor on the CPU, got one on {x.device}: use x.to('cpu')")
        if self.needs_grad:
            raise TypeError("[numpy] this tensor requires grad, and an array has no gradient: x.detach().numpy()")
        if not x.packed and not flags & PyBUF_STRIDES == PyBUF_STRIDES:
            raise BufferError("[numpy] the tensor is not contiguous")
        if not x.packed and (flags & PyBUF_C_CONTIGUOUS == PyBUF_C_CONTIGUOUS or
                             flags & PyBUF_ANY_CONTIGUOUS == PyBUF_ANY_CONTIGUOUS) \
                or flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS and not (x.packed and x.ndim_ < 2):
            raise BufferError("[numpy] the tensor does not have the requested memory layout")
        cdef Py_ssize_t* numbers = <Py_ssize_t*>PyMem_Malloc(2 * MAX_NDIM * sizeof(Py_ssize_t))
        cdef int i
        for i in range(x.ndim_):
            numbers[i] = x.extent[i]
            numbers[MAX_NDIM + i] = x.step[i]
        out.buf, out.obj, out.itemsize, out.len = x.data, x, itemsize(x.code), x.count * itemsize(x.code)
        out.readonly, out.ndim, out.suboffsets, out.internal = 0, x.ndim_, <Py_ssize_t*>NULL, numbers
        out.format = FORMATS[x.code] if flags & PyBUF_FORMAT else NULL
        out.shape = numbers if flags & PyBUF_ND else NULL
        out.strides = numbers + MAX_NDIM if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL

    def __releasebuffer__(self, Py_buffer* out):
        PyMem_Free(out.internal)

    def numpy(self) -> np.ndarray:
        """A NumPy array over the same memory.

        Returns
        -------
        numpy.ndarray
            Writes to it change the tensor, and vice versa; the tape does not see them.

        Raises
        ------
        TypeError
            If the tensor requires grad (use ``x.detach().numpy()``) or is not on the CPU.

        Examples
        --------
        >>> import minigrad as mg
        >>> x = mg.zeros(2)
        >>> x.numpy()[0] = 5
        >>> x
        tensor([5., 0.])
        """
        return np.asarray(memoryview(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        shared = self.numpy()
        if dtype is None or np.dtype(dtype) == shared.dtype:
            return shared.copy() if copy else shared
        if copy is False:
            raise ValueError(f"[numpy] a conversion from {self.dtype} to {dtype} needs a copy")
        return shared.astype(dtype)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers (a number for a 0-d tensor)."""
        return self._detached_numpy().tolist()

    def item(self) -> Any:
        """The only element as a Python number.

        Raises
        ------
        ValueError
            If the tensor does not have exactly one element.
        """
        if self.count != 1:
            raise ValueError(f"[item] expected one element, got shape {self.shape}")
        note_use(self)
        return first_element(self) if self.buffer.device == 0 else self._detached_numpy().item()

    def _detached_numpy(self):
        note_use(self)
        plain = alias(self)
        return (plain if plain.buffer.device == 0 else transferred(plain, 0)).numpy()


cdef object first_element(Array x):
    """The first element of an array on the CPU as a Python number."""
    if x.code == FLOAT32:
        return (<float*>x.data)[0]
    if x.code == FLOAT64:
        return (<double*>x.data)[0]
    if x.code == INT64:
        return (<int64_t*>x.data)[0]
    if x.code == INT32:
        return (<int32_t*>x.data)[0]
    return (<unsigned char*>x.data)[0] if x.code == UINT8 else x.data[0] != 0


cdef void free_grad(Array x) noexcept:
    """Free the gradient of a dying array without recursion: it may itself have a gradient, and so on."""
    cdef Array grad = x.grad_, next_grad
    x.grad_ = None
    while grad is not None and Py_REFCNT(<PyObject*>grad) == 1:
        next_grad, grad.grad_ = grad.grad_, None
        grad, next_grad = next_grad, None


cdef type result_type = Array


cpdef void set_result_type(type cls: type[Array]) except *:
    """Set the class of the tensors that operations make (tensor.Tensor)."""
    global result_type
    if not issubclass(cls, Array):
        raise TypeError(f"[set_result_type] expected a class of arrays, got {cls.__name__}")
    result_type = cls


cdef int tell_reader(Array x) except -1:
    """Note that values of x are read other than by an operation."""
    return above.read(x) if above.read != NULL else 0       # NULL while minigrad is imported


cdef int note_use(Array x) except -1:
    """Note that values of x leave it for Python."""
    tell_reader(x)
    if is_capturing():
        refuse_in_capture("a tensor whose values are read (item, print, numpy, if)")
    return 0


cdef int64_t moment = 0


cdef int64_t next_moment() noexcept:
    """Begin another moment and return its number, by which runs of `recompute` know which tensors they made."""
    global moment
    moment += 1
    return moment


cdef Array transferred(Array x, int device):
    """A copy of x on another device."""
    return gpus.transfer(x, device)


cdef Array blank():
    return <Array>(<New>(<PyTypeObject*>result_type).tp_new)(
        <PyTypeObject*>result_type, <PyObject*>NO_ARGUMENTS, NULL)


cdef object owner_of(Array x):
    """The object that owns x's memory on a device, or None: it is on the CPU, or foreign."""
    cdef void** place = owner_of_memory(x.buffer) if x.buffer.device else NULL
    return None if place == NULL else <object>place[0]


cdef int set_owner(Array x, object owner) except -1:
    """Let another object own the memory, which holds the owner so far."""
    before = owner_of(x)
    Py_INCREF(owner)
    owner_of_memory(x.buffer)[0] = <void*>owner
    Py_DECREF(before)
    return 0


cdef Array empty(int code, int ndim, const int64_t* extent, int device):
    """A contiguous array, not initialized."""
    cdef Array x = blank()
    cdef int64_t count = 1, width = itemsize(code)
    cdef int i
    for i in range(ndim - 1, -1, -1):
        if extent[i] < 0:
            raise ValueError(f"[shape] expected lengths of 0 or more, got {extent[i]} on axis {i}")
        x.extent[i] = extent[i]
        x.step[i] = width * count
        if extent[i] > 1 and count > (<int64_t>1 << 58) // extent[i]:   # the number of bytes has to fit into an int64_t
            raise MemoryError(f"[allocate] a shape of {[extent[j] for j in range(ndim)]} has too many elements")
        count *= extent[i]
    x.ndim_, x.code, x.count, x.packed = ndim, code, count, True
    x.buffer = new_buffer(count * width, device, False)
    x.data = x.buffer.data
    return x


cdef Array empty_as(Array x, int code):
    """A contiguous array of x's shape and device."""
    return empty(code, x.ndim_, x.extent, x.buffer.device)


cdef Array view(Array base, int ndim, const int64_t* extent, const int64_t* step, char* data):
    """An array with a shape and strides of its own, whose memory is base's; `data` is its first element."""
    cdef Array x = blank()
    lay_out(x, base, ndim, extent, step, data)
    join_ring(x, base)
    return x


cdef void lay_out(Array x, Array base, int ndim, const int64_t* extent, const int64_t* step, char* data) noexcept:
    """Make the new array x a view of base's memory."""
    cdef int64_t count = 1, expected = itemsize(base.code)
    cdef bint contiguous = True
    cdef int i
    for i in range(ndim - 1, -1, -1):
        x.extent[i] = extent[i]
        x.step[i] = step[i]
        if extent[i] != 1 and step[i] != expected:
            contiguous = False
        expected *= extent[i]
        count *= extent[i]
    x.ndim_, x.code, x.count, x.packed = ndim, base.code, count, contiguous or count == 0
    x.buffer = base.buffer
    x.buffer.references += 1
    x.data = data


cdef int hold(Array x, Array source) except -1:
    """Give x the memory and the layout of `source`, without its history."""
    if x.buffer != NOWHERE:
        x.epoch += x.buffer.version - source.buffer.version + 1
    return point(x, source)


cdef int point(Array x, Array source) except -1:
    """`hold` for memory that x only has for a time: it takes the version of this memory."""
    cdef Buffer* old = x.buffer
    cdef int i
    source.buffer.references += 1
    x.buffer, x.data, x.code, x.ndim_ = source.buffer, source.data, source.code, source.ndim_
    x.packed, x.count = source.packed, source.count
    for i in range(source.ndim_):
        x.extent[i], x.step[i] = source.extent[i], source.step[i]
    if old != NOWHERE:
        give_up(old)        # last, as it may run code that belongs to the memory's owner
    return 0


cdef int64_t version(Array x) noexcept:
    """How many times x was written or became another array; it never decreases."""
    return x.buffer.version + x.epoch


cdef Array adopted(void* data, int64_t bytes, int device, void* owner, Drop drop, int code):
    """A one-dimensional array over foreign memory, which `drop(owner)` releases."""
    cdef Array x = blank()
    x.buffer = adopt(data, bytes, device, owner, drop)
    x.data, x.code, x.ndim_, x.packed = <char*>data, code, 1, True
    x.count = x.extent[0] = bytes // itemsize(code)
    x.step[0] = itemsize(code)
    return x


cdef Array alias(Array x):
    """The same values without their history."""
    cdef Array new = blank()    # before x is read: the allocation may run a finalizer, which may replace x's memory
    lay_out(new, x, x.ndim_, x.extent, x.step, x.data)
    return new


# The views of a tensor, their views and what backward saves of them form a ring, by which a recorded write finds those
# whose history it changes. Its members do not own each other, and one that has other memory by now does not count.

cdef void join_ring(Array x, Array other) noexcept:
    """Put x, which is alone, into the ring of another tensor."""
    if other.left == NULL:
        other.left = other.right = <PyObject*>other
    x.left, x.right = <PyObject*>other, other.right
    (<Array>other.right).left = <PyObject*>x
    other.right = <PyObject*>x


cdef void leave_ring(Array x) noexcept:
    """Take x out of its ring, if it is in one."""
    if x.left == NULL:
        return
    (<Array>x.left).right, (<Array>x.right).left = x.right, x.left
    x.left = x.right = NULL


cdef int keep_values(Array x) except -1:
    """Give a new array other memory, if a step is being recorded, whose later runs find there what is written now."""
    if not is_capturing() or x.buffer.device:
        return 0
    cdef Buffer* buffer = new_buffer(x.count * itemsize(x.code), 0, True)
    release(x.buffer)
    x.buffer, x.data = buffer, buffer.data
    return 0


cdef object unrecorded_numpy(Array x):
    """The memory of x for NumPy, also while a step is recorded."""
    cdef bint paused = is_capturing()
    if paused:
        ACTIVE.kernel_list.paused = True
    try:
        return alias(x).numpy()
    finally:
        if paused:
            ACTIVE.kernel_list.paused = False


cdef Array tidied(Array x):
    """x, or a copy if some of its bools are bytes other than 0 and 1: kernels rely on these two values."""
    if x.code != BOOL or x.count == 0 or x.buffer.device:
        return x
    octets = unrecorded_numpy(x).view(np.uint8)
    distinct = octets[tuple([slice(1 if x.step[i] == 0 else None) for i in range(x.ndim_)])]
    if distinct.max() <= 1:
        return x
    cdef Array out = empty(BOOL, x.ndim_, x.extent, 0)
    keep_values(out)
    np.copyto(unrecorded_numpy(out).view(np.uint8), octets != 0)
    return out
