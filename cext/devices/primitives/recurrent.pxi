# flops: 2 * a.size
cpdef linear_scan(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array b,
                  Array initial: Tensor | None, Array h):
    """h_t = a_t h_{t-1} + b_t along the middle axis, contiguous; h_0 = initial[outer, inner] or h_1 = b_1."""
    launch(2 * a.count, kernels.linear_scan[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data, b.data,
           pointer(initial), h.data)

# flops: (2 + count(da)) * a.size
cpdef linear_scan_backward(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a,
                           Array h: Tensor | None, Array initial: Tensor | None, Array g, Array da: Tensor | None,
                           Array db: Tensor | None, Array dinitial: Tensor | None):
    """Its gradients, of which each may be None; da reads h and initial."""
    launch(3 * a.count, kernels.linear_scan_backward[a.code - FLOAT32], outer, n, inner, <int32_t>reverse, a.data,
           pointer(h), pointer(initial), g.data, pointer(da), pointer(db), pointer(dinitial))

# flops: recurrent(cell, arrays, GATE, LAYER_NORM + 2)
cpdef recurrent(self, cell: Cell, dict arrays: dict[str, Any]):
    """All steps of a recurrent layer, a Cell of ops/recurrent; arrays as in `Recurrence` of kernels.hpp."""
    cdef Recurrence r = recurrence(cell, arrays)
    cdef int code = (<Array>arrays["h"]).code
    r.panels = r.hidden * round_up(r.gates * r.hidden)
    _scratch = recurrent_scratch(&r, code)
    launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent[code - FLOAT32], r)

# flops: recurrent(cell, arrays, GATE_BACKWARD, LAYER_NORM_BACKWARD + 4)
cpdef recurrent_backward(self, cell: Cell, dict arrays: dict[str, Any]):
    """dx, dz, dgamma ... from gy; in dh and dc, the last states' gradients become the first ones'."""
    cdef Recurrence r = recurrence(cell, arrays)
    cdef Array h = <Array>arrays["h"], totals
    cdef int64_t size
    r.panels = r.gates * r.hidden * round_up(r.hidden)
    _scratch = recurrent_scratch(&r, h.code)
    if r.dgamma != NULL or r.dbeta != NULL or r.dgamma_c != NULL or r.dbeta_c != NULL:
        size = (r.batch + r.block - 1) // r.block * 2 * (r.gates + 1) * r.hidden
        totals = empty(FLOAT64, 1, &size, 0)
        r.totals = totals.data
    launch(r.steps * r.batch * r.gates * r.hidden * r.hidden, kernels.recurrent_backward[h.code - FLOAT32], r)
