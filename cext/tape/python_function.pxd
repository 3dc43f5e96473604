from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Node

cdef int function_backward(Node node, Array g) except -1
