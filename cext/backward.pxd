from minigrad.engine.array cimport Array
from minigrad.engine.node cimport Node

cdef list pull_back(list roots, list grads, list targets, bint retain, bint create, str op=*,
                    bint allow_unused=*)
cdef int continue_pass(Node node, list roots, list grads) except -1
cdef int composed_backward(Node node, object composition, list inputs, Array g) except -1
cdef int function_backward(Node node, Array g) except -1
