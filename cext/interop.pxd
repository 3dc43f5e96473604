from minigrad.engine.array cimport Array

cdef Array from_object(object data, int code, int device, bint copy, str op=*, bint shared=*, bint given=*)
cdef str shown_tensors(object data)
cdef object must_copy(str op, object data)
cdef object uninitialized(str op, Array x)
cdef tuple dlpack_device(Array x)
cdef object to_dlpack(Array x, object stream, object max_version, object dl_device, object copy)
