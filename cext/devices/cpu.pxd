# The C++ code that the CPU backend uses.
from libc.stdint cimport int32_t, int64_t, uint64_t

from minigrad.engine.memory.calls cimport ActiveCalls

cdef extern from "runtime/pool.hpp" namespace "mg" nogil:
    int threads()
    void set_threads(int count)
    const int MAX_THREADS

cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:
    enum:
        UNARY_OPS, BINARY_OPS, REDUCE_OPS, DTYPES

    # kernels are passed on to `launch` unseen, so their types stay C++'s
    ctypedef void (*Loop "mg::Loop")(int64_t, char**, const int64_t*) noexcept nogil
    ctypedef void (*Reduction "mg::Reduction")(int64_t, int64_t, int64_t, const void*, void*) noexcept nogil
    cppclass Kernel:
        pass
    ctypedef void* Address "void*"
    cppclass Update:
        double* numbers
    struct Rule:
        const char* name
        int states, count
        Kernel* step
    struct Tensors:
        int64_t count
        const int64_t* sizes
        void** p
        const void** g
        void** s1
        void** s2
        void** s3
    struct Recurrence:
        int32_t cell, norm, norm_cell, rounded, centered, swap
        double slope, eps, eps_c
        int64_t steps, batch, hidden, gates, segments, block, keep, panels
        int64_t[4] ends
        int64_t* lengths
        Address x, w, bias, gamma, beta, gamma_c, beta_c
        Address h, c, h_last, c_last
        Address z, act, stats, stats_c, raw_c
        Address gy, dh, dc, dx, dz, dgamma, dbeta, dgamma_c, dbeta_c
        Address scratch, totals
    cppclass Conv2d:
        int64_t batch, groups, channels, height, width, outputs, kernel_h, kernel_w, rows, columns
        int64_t stride_h, stride_w, dilation_h, dilation_w
        int64_t depth()
    struct Pool2d:
        int64_t planes, height, width, rows, columns, kernel_h, kernel_w
        int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w
    cppclass Attention:
        int64_t batch, heads, group, queries, keys, width, value_width, rows
        double scale, dropout
        int32_t causal, rounded
        Address q, k, v, bools, numbers, y, statistics, g, dq, dk, dv, delta, partial, scratch
        int64_t[4] mask_step
        uint64_t seed, offset
        int64_t parts, slots

include "kernels/table.pxi"

cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:
    cppclass Kernels(Table):
        const char* isa
        Loop** unary
        Loop** binary
        Loop* where
        Loop** cast
        Reduction** reduce
        const Rule* rules
        double (**sum_of_squares)(const Tensors&) noexcept nogil
    const Kernels* kernels
    const bint has_bfloat16 "(mg::kernels->rounded_product != nullptr)"
    const int64_t MASK_CHUNK
    int64_t normalize_scratch(int64_t rows, int64_t groups, int64_t m, int64_t inner)
    int64_t batch_norm_scratch(int64_t outer, int64_t channels, int64_t inner)
    int64_t conv2d_partial(const Conv2d& at)
    const int64_t QUERIES "mg::Attention::QUERIES"
    int64_t attention_scratch(const Attention& a, bint backward)
    int64_t attention_parts(int64_t heads, int64_t keys)

cdef extern from "runtime/strided.hpp" namespace "mg" nogil:
    struct Strided:
        int ndim, operands
        int64_t count
        int64_t* extent
        int64_t** step
        int64_t* size
        char** data
    struct Flat:
        int operands
        int64_t count
        int64_t* step
        char** data
    void run(Loop, Strided)
    void run_filling(Loop, Strided, uint64_t)
    void run_limited(Loop, Strided, uint64_t, uint64_t)
    void run_flat(Loop, Flat)

cdef extern from "runtime/gemm.hpp" namespace "mg" nogil:
    bint load_blas(const char* path, char* message, int size)
    const char* blas_name()
    void gemm(...)

cdef extern from "runtime/launch.hpp" namespace "mg":
    void launch(...)
    void point_to(ActiveCalls* state)
