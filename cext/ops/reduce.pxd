from minigrad.engine.memory.array cimport Array

cdef Array mean_axes(Array x, list axes, bint keepdims, object inverse)
