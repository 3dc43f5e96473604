from libc.stdint cimport int64_t

from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Node, Op

cdef int64_t last_sequence() noexcept
cdef Node track(Op op, Array out, Array a, Array b=*, Array c=*, object extra=*)
cdef Node track_many(Op op, list outs, list inputs, list saved, object extra=*)
cdef Node gradient_node(Array x)
cdef int accumulate(Node node, Array g) except -1
cdef Op copy_op, leaf_op
cdef Array owned(Array g, bint exclusive)
cdef int retire_leaf(Array x) except -1
cdef bint is_leaf(Array x)
cdef Array as_leaf(str op, Array x, bint requires_grad)
