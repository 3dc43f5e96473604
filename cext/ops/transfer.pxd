from minigrad.engine.memory.array cimport Array

cdef Array move(Array x, int device)
cdef tuple destination(Array x, tuple args, object device, object dtype)
