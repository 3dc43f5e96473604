from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Op

cdef Array apply_unary(int op, Array x, int code)
cdef Array apply_binary(int op, Array a, Array b, int code)
cdef tuple match_operands(str op, object x, object y)
cdef tuple broadcast_pair(str op, Array a, Array b)
cdef tuple match_floats(str op, object x, object y)
cdef Array function_of_two(Op op, int number, object x, object y)
cdef Array function_of_numbers(Op op, int number, object x)
cpdef Array add(x, y)
cpdef Array subtract(x, y)
cpdef Array multiply(x, y)
cpdef Array divide(x, y)
cpdef Array floor_divide(x, y)
cpdef Array remainder(x, y)
cpdef Array negative(x)
cpdef Array reciprocal(x)
