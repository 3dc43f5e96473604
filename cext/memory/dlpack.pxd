from minigrad.engine.memory.array cimport Array

cdef object capsule_of(str op, object data)
cdef object imported(str op, object capsule, bint shared, bint foreign)
cdef tuple dlpack_device(Array x)
cdef object to_dlpack(Array x, object stream, object max_version, object dl_device, object copy)
