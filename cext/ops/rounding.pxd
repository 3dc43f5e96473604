from minigrad.engine.memory.array cimport Array

cpdef Array absolute(x)
cpdef Array sign(x)
cpdef Array copysign(x, y)
cpdef Array nextafter(x, y)
cpdef Array floor(x)
cpdef Array ceil(x)
cpdef Array trunc(x)
cpdef Array round(x)
cpdef Array isnan(x)
cpdef Array isinf(x)
cpdef Array signbit(x)
cpdef Array isfinite(x)
