from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Node

cdef Array standard(Array x, list axes, Array near, double n, double eps)
cdef Array scale_and_shift(Array y, Array weight, Array bias)
cdef Array parameter(str op, str name, object given, Array x, int first, int last)
cdef Array plain(Array x)
cdef Array gradient_for(Node node, int i, Array x, int first, int last)
cdef list all_but_channels(Array x)
cdef int differentiate(Node node, object composition, list inputs, Array g, list shared) except -1
