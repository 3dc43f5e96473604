cdef list history_of(list roots)
