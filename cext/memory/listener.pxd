cdef class Listener:
    cdef Listener outer             # the one that this thread had before

cdef int listeners                  # the number of listeners of all threads
