from minigrad.engine.memory.array cimport Array

cdef enum:
    AFTER = -1      # in Node.hooks, instead of an output: called with the leaf after the accumulation

cdef int show_collector(Array x) except -1
