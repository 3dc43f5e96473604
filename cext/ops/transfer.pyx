"""Transfer between devices."""
from minigrad.engine.memory.array cimport Array, transferred
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track


cdef Op to_op = operation("to", moved_backward, "y = x, on another device", "dx = g, brought back")


cdef int moved_backward(Node node, Array g) except -1:
    return node.send(0, move(g, node.extra))


cdef Array move(Array x, int device):
    if x.buffer.device == device:
        return x
    cdef Call _call = begin(to_op)
    cdef Array out = transferred(x, device)
    track(to_op, out, x, None, None, x.buffer.device)
    return out
