cpdef object repeat(object function, tuple args)
cdef int restore(list grads) except -1
