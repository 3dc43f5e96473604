"""Transfer between devices."""
from minigrad.engine.memory.array cimport Array, transferred
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport code_of
from minigrad.engine.memory.shapes cimport device_index, names_device
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track


cdef Op to_op = operation("to", move_backward, "y = x, on another device", "dx = g, brought back")
cdef int move_backward(Node node, Array g) except -1:
    return node.send(0, move(g, node.extra))


cdef Array move(Array x, int device):
    if x.buffer.device == device:
        return x
    cdef Call _call = begin(to_op)
    cdef Array out = transferred(x, device)
    track(to_op, out, x, None, None, x.buffer.device)
    return out


cdef tuple destination(Array x, tuple args, object device, object dtype):
    """The device and the dtype that the arguments of `Tensor.to` name; those of x where they name none."""
    cdef int where = x.buffer.device, code = x.code
    for arg in args:
        if names_device(arg):
            where = device_index(arg, "to")
        elif isinstance(arg, Array):
            where, code = (<Array>arg).buffer.device, (<Array>arg).code
        elif arg is not None:
            try:
                code = code_of(arg, "to")
            except TypeError as error:
                raise TypeError(f'{error}; as a device, expected "cpu", "cuda" or "cuda:N"') from None
    if device is not None:
        where = device_index(device, "to")
    if dtype is not None:
        code = code_of(dtype, "to")
    return where, code
