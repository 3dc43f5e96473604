from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Node

cdef list pull_back(list roots, list grads, list targets, bint retain, bint create, str op=*,
                    bint allow_unused=*)
cdef int continue_pass(Node node, list outs, Array g) except -1
cdef int composed_backward(Node node, object composition, list inputs, Array g) except -1
cdef int check_gradient(str op, Node to, object grad, int output) except -1
