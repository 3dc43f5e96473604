# cython: allow_none_for_extension_args=True
"""The interface between operations and devices: the primitives that each device implements once.

An operation allocates its results, normalizes its shapes, and asks `backend(x)` to compute; it never asks which
device that is. The files of primitives/ state each primitive once, as a method of the CPU with its contract, which
holds for every device; another device may implement it in Python.

Arrays are written through the last arguments. "Contiguous" in a contract means row-major without gaps; the primitives
that take any strides say so. ``outer, n, inner`` are the lengths before, at and after the axis that a primitive works
on. The operations have checked the sizes and arrays. The lines above a primitive are what a profile counts: "flops"
(none where nothing is said), and "bytes" where a call does not read or write all of its arrays once. The names in these
expressions are defined in minigrad/profiling/work.py.
"""
from enum import IntEnum

from cpython.object cimport PyObject

from minigrad.engine.memory.shapes cimport device_name

cdef extern from *:
    """
    // The rows of functions.inc as text
    struct Function {
        bool binary;
        int number;
        const char *name, *types, *result, *expression;
    };
    static const Function functions[] = {
    #define UNARY(name, types, result, loop, ...) {false, mg::name, #name, #types, #result, #__VA_ARGS__},
    #define UNARY_ALSO UNARY
    #define BINARY(name, types, result, loop, ...) {true, mg::name, #name, #types, #result, #__VA_ARGS__},
    #define BINARY_ALSO BINARY
    #include "kernels/functions.inc"
    };
    static const int function_count = sizeof functions / sizeof *functions;
    """
    struct Function:
        bint binary
        int number
        const char* name
        const char* types
        const char* result
        const char* expression
    const Function* functions
    int function_count


cdef list texts(bint binary):
    return [(functions[i].name.decode(), functions[i].number, functions[i].types.decode(), functions[i].result.decode(),
             functions[i].expression.decode()) for i in range(function_count) if functions[i].binary == binary]


# (name, number, types, type of the result, expression) of the element-wise functions; see kernels/functions.inc
FUNCTIONS: dict[str, list[tuple[str, int, str, str, str]]] = {"unary": texts(False), "binary": texts(True)}
Unary: type[IntEnum] = IntEnum("Unary", {row[0]: row[1] for row in FUNCTIONS["unary"]}, module=__name__)
Binary: type[IntEnum] = IntEnum("Binary", {row[0]: row[1] for row in FUNCTIONS["binary"]}, module=__name__)

cdef enum:
    DEVICES = 64

cdef PyObject* registered[DEVICES]


cdef Backend backend(Array x):
    """The backend of x's device."""
    cdef PyObject* found = registered[x.buffer.device]
    if found == NULL:
        raise RuntimeError(f"[device] no backend for {device_name(x.buffer.device)}")
    return <Backend>found


cdef dict instances = {}    # device -> its backend
cdef dict serving = {}      # device -> that backend, or the interceptor around it
cdef object interceptor = None


cdef Backend chosen(int device, Backend instance, object function):
    """The backend that serves a device: its own, or the one that function(device, instance) returns."""
    return <Backend?>(instance if function is None else function(device, instance))


cdef int serve(int device, Backend found) except -1:
    registered[device] = <PyObject*>found
    serving[device] = found
    return 0


cpdef void register(int device, Backend instance) except *:
    """Register `instance` as the backend of a device: 0 for the CPU, 1 + i for cuda:i."""
    if not 0 <= device < DEVICES:
        raise ValueError(f"[register] expected a device from 0 to {DEVICES - 1}, got {device}")
    cdef Backend found = chosen(device, instance, interceptor)
    instances[device] = instance
    serve(device, found)


def intercept(function: Callable[[int, Backend], Backend] | None) -> None:
    """Replace the backend of every device by function(device, instance), until called with None.

    Devices that are registered later are included.
    """
    global interceptor
    found = {device: chosen(device, instance, function) for device, instance in instances.items()}
    interceptor = function
    for device in found:
        serve(device, found[device])


def is_intercepted() -> bool:
    """Whether primitives are replaced, as they are by a profile."""
    return interceptor is not None


include "interface.pxi"
