from minigrad.engine.tape.node cimport Op

cdef Op copy_op, leaf_op
