from minigrad.engine.memory.array cimport Array

cdef Array join_along(list parts, int axis)
cdef list pieces(Array x, int axis, list bounds, bint keep)
