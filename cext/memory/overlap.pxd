from minigrad.engine.memory.array cimport Array

cdef bint overlaps_itself(Array x) noexcept
cdef bint may_share_memory(Array a, Array b) noexcept
