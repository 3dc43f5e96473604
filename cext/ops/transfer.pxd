from minigrad.engine.memory.array cimport Array

cdef Array move(Array x, int device)
