cdef enum:
    AFTER = -1      # in Node.hooks, instead of an output: called with the leaf after the accumulation
