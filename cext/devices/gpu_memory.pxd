cdef tuple workspace_on(int device)
