from minigrad.engine.memory.array cimport Array

cdef class Listener:
    cdef Listener outer             # the one that this thread had before

cdef int listeners                  # the number of listeners of all threads
cdef Listener current_listener()
cdef Listener set_listener(Listener listener)
cdef int note_read(Array x) except -1
cdef int note_grad(Array leaf, bint replaced) except -1
cdef int note_computed(str op, tuple outs, object inputs, object options) except -1
cdef int note_reads(object inputs) except -1
