"""Names of devices, and shapes as arguments."""
import operator

from libc.stdint cimport int64_t


class Size(int):
    """The number of elements, an int, with PyTorch's calls: ``x.size()`` is the shape, ``x.size(axis)`` a length."""

    def __call__(self, dim: int | None = None) -> Any:
        if dim is None:
            return self.shape
        count = len(self.shape)
        try:
            axis = operator.index(dim)
        except TypeError:
            raise TypeError(f"[size] expected an axis, got {dim!r}") from None
        if not -count <= axis < count:
            raise IndexError(f"[size] expected an axis from {-count} to {count - 1} for {count} axes, got {axis}")
        return self.shape[axis]

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


cdef dict SIZES = {}        # by shape: a lookup takes a third of the time that making one does
cdef enum:
    MOST_SIZES = 4096


cdef object size_of(tuple shape, int64_t count):
    """The `Size` of a shape."""
    size = SIZES.get(shape)
    if size is None:
        if len(SIZES) == MOST_SIZES:
            SIZES.clear()
        size = SIZES[shape] = Size(count)
        size.shape = shape
    return size


cdef enum:
    GPUS = 63
cdef tuple DEVICES = ("cpu", *[f"cuda:{i}" for i in range(GPUS)])
cdef dict INDICES = {name: i for i, name in enumerate(DEVICES)} | {"cuda": 1}


def parse_device(device: str | None, str op="device") -> int:
    """int: 0 for the CPU, 1 + i for "cuda:i"."""
    return device_index(device, op)


cdef int device_index(object device, str op="device") except -1:
    """0 for the CPU, 1 + i for "cuda:i"."""
    if device is None:
        return 0
    if isinstance(device, str):
        index = INDICES.get(device)
        if index is not None:
            return index
        if device.startswith("cuda:") and device[5:].isdigit() and int(device[5:]) < GPUS:
            return 1 + int(device[5:])      # "cuda:01"
    raise ValueError(f'[{op}] expected the device "cpu", "cuda" or "cuda:N", got {device!r}')


cpdef bint names_device(object value):  # -> TypeGuard[str]
    """Whether a value that may be a device or a dtype is meant as a device."""
    return isinstance(value, str) and (value == "cpu" or value.startswith("cuda"))


cdef str device_name(int index):
    return <str>DEVICES[index] if index <= GPUS else f"cuda:{index - 1}"


cdef int parse_shape(object shape, int64_t* extent, str op="shape") except -1:
    """Write a shape given as an int or a sequence of ints to `extent` and return its length."""
    if type(shape) is not tuple and type(shape) is not list and (isinstance(shape, str) or
                                                                 not hasattr(shape, "__iter__")):
        shape = (shape,)
    cdef int i = 0
    for n in shape:
        if i == MAX_NDIM:       # counted here, as a sequence may grow while its elements are converted
            raise ValueError(f"[{op}] expected at most {MAX_NDIM} axes, got {MAX_NDIM + 1} or more")
        if not hasattr(n, "__index__"):
            raise TypeError(f"[{op}] expected a shape of integers, got {n!r}")
        try:
            extent[i] = n.__index__()
        except OverflowError:
            raise ValueError(f"[{op}] expected lengths below 2**63, got {n}") from None
        i += 1
    return i


cdef int parse_lengths(str op, object shape, int64_t* extent) except -1:
    """`parse_shape` for a new tensor, whose lengths may not be negative."""
    cdef int ndim = parse_shape(shape, extent, op), i
    for i in range(ndim):
        if extent[i] < 0:
            raise ValueError(f"[{op}] expected lengths of 0 or more, got {extent[i]} on axis {i}")
    return ndim


cdef int64_t product(int ndim, const int64_t* extent) except -1:
    """The number of elements of a shape."""
    cdef int64_t count = 1
    cdef int i
    for i in range(ndim):
        if extent[i] == 0:
            return 0
    for i in range(ndim):
        if count > (<int64_t>1 << 58) // extent[i]:
            raise ValueError(f"[shape] a shape of {tuple([extent[j] for j in range(ndim)])} has too many elements")
        count *= extent[i]
    return count
