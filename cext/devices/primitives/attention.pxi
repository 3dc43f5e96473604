# flops: weights(q, k, causal) * (4 * q.shape[3] + SOFTMAX)
cpdef attention(self, str precision, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset,
                Array q, Array k, Array v, Array mask: Tensor | None, Array y, Array statistics):
    """y[N, H, L, V], not empty, and statistics[N, H, L, 2] of q[N, H, L, E], k[N, H/group, S, E] and
    v[N, H/group, S, V], where S is not 0. q and every head of k and v are contiguous; the heads of k and of v are the
    same number of rows apart.
    `Attention` of kernels.hpp has the formula. The mask[N, H, L, S], of bool or of q's dtype, may have any strides.
    `precision` is one of `set_float32_matmul_precision`; the backward pass needs that of the forward pass.
    """
    cdef Attention a = attention_of(precision, scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
    a.slots = slots_for(a.batch * a.heads * ((a.queries + QUERIES - 1) // QUERIES))
    cdef int64_t size = a.slots * attention_scratch(a, False)
    cdef Array scratch = empty(q.code, 1, &size, 0)
    a.scratch = scratch.data
    launch(statistics.count // 2 * (a.keys + 1) * (a.width + a.value_width), kernels.attention[q.code - FLOAT32], a)

# flops: weights(q, k, causal) * (10 * q.shape[3] + SOFTMAX + SOFTMAX_BACKWARD)
cpdef attention_backward(self, str precision, double scale, bint causal, double dropout, uint64_t seed,
                         uint64_t offset, Array q, Array k, Array v, Array mask: Tensor | None, Array y,
                         Array statistics, Array g, Array dq: Tensor | None, Array dk: Tensor | None,
                         Array dv: Tensor | None):
    """dq, dk and dv, each of which may be None, for the contiguous cotangent g[N, H, L, V]."""
    cdef Attention a = attention_of(precision, scale, causal, dropout, seed, offset, q, k, v, mask, y, statistics)
    a.g, a.dq, a.dk, a.dv = g.data, pointer(dq), pointer(dk), pointer(dv)
    cdef int64_t heads = a.batch * a.heads // a.group, size = statistics.count // 2
    cdef Array delta = empty(q.code, 1, &size, 0), partial, scratch
    a.parts = attention_parts(heads, a.keys)
    size = a.parts * q.count if a.parts > 1 and dq is not None else 0
    partial = empty(q.code, 1, &size, 0)
    a.slots = slots_for(heads * a.parts)
    size = a.slots * attention_scratch(a, True)
    scratch = empty(q.code, 1, &size, 0)
    a.delta, a.partial, a.scratch = delta.data, partial.data, scratch.data
    launch(delta.count * (a.keys + 1) * (a.width + a.value_width), kernels.attention_backward[q.code - FLOAT32], a)
