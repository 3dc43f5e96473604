from minigrad.engine.array cimport Array

cdef Array concatenated(list parts, int axis)
cdef list pieces(Array x, int axis, list bounds, bint keep)
