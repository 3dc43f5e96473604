cpdef object repeat(object function, tuple args)
