from minigrad.engine.array cimport Array
from minigrad.engine.tape cimport Backward, Node

cdef enum:      # what a derivative reads
    INPUT
    OUTPUT

cdef Array function(int op, const char* name, object x, Backward backward, int reads)
cdef Array result(Node node)

cpdef Array exp(x)
cpdef Array expm1(x)
cpdef Array exp2(x)
cpdef Array log(x)
cpdef Array log1p(x)
cpdef Array log2(x)
cpdef Array log10(x)
cpdef Array sqrt(x)
cpdef Array rsqrt(x)
cpdef Array square(x)
cpdef Array power(x, y)
cpdef Array erf(x)
cpdef Array absolute(x)
cpdef Array sign(x)
cpdef Array floor(x)
cpdef Array ceil(x)
cpdef Array round(x)
cpdef Array isnan(x)
cpdef Array isinf(x)
cpdef Array isfinite(x)
