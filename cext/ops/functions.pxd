from minigrad.engine.memory.array cimport Array
from minigrad.engine.tape.node cimport Op

cdef Array function(Op op, int number, object x)
cdef Op fused(int number, Op op)
cdef Op sloped(int number, Op op)
cdef Array with_parameter(Op op, int number, Array x, object parameter)

cpdef Array exp(x)
cpdef Array expm1(x)
cpdef Array exp2(x)
cpdef Array log(x)
cpdef Array log1p(x)
cpdef Array log2(x)
cpdef Array log10(x)
cpdef Array logaddexp(x, y)
cpdef Array sqrt(x)
cpdef Array rsqrt(x)
cpdef Array square(x)
cpdef Array power(x, y)
cpdef Array hypot(x, y)
cpdef Array erf(x)
