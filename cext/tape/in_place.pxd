from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Node

cdef int check_write(str op, Array x, bint recorded) except -1
cdef int note_unrecorded_write(Array x) except -1
cdef Array before_write(Array x)
cdef bint shares_nothing(Array x)
cdef int replace(Array x, Array old, Array result) except -1
cdef list keep_saved(Array x, Array old, Array region, Node last)
cdef int take_history(Array x, Array old, Array result) except -1
cdef int follow(Array x, Node old, Node new) except -1
