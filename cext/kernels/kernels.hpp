// The table of kernels: pure functions on pointers and sizes.
//
// A kernel knows nothing of Python, tensors or gradients, and allocates nothing. Every file of this
// folder is compiled once per instruction set, inside the namespace MG_ISA, and fills its part of
// one table per instruction set; the processor decides at run time which table is used.
//
// Comments give shapes as x[rows, width]; arrays are contiguous and row-major unless they come with
// strides. FLOATS counts {float32, float64}: index with dtype - FLOAT32.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace mg {

enum Unary {
#define UNARY(name, ...) name,
#include "kernels/functions.inc"
    UNARY_OPS
};

enum Binary {
#define BINARY(name, ...) name,
#include "kernels/functions.inc"
    BINARY_OPS
};

enum Reduce { SUM, PROD, MAX, MIN, ANY, ALL, ARGMAX, ARGMIN, REDUCE_OPS };

// The numbers n of one optimizer step, see minigrad/cuda/update_rules.cuh. The optimizer has combined its
// hyperparameters in double.
struct Update {
    static constexpr int MOST = 12;
    double numbers[MOST];

    constexpr double operator[](int i) const { return numbers[i]; }
};

struct Tensors;

// The update rule of an optimizer, which takes `count` numbers and, of up to three lists of states, the first `states`
struct Rule {
    const char* name;
    int states, count;
    void (*step[2])(const Tensors& list, const Update& step);  // for float32 and float64
};

// In the order of KINDS and NORMS in ops/recurrent.pyx
enum CellKind { RNN_TANH, RNN_RELU, LSTM, GRU };
enum CellNorm { NO_NORM, NORM_STATE, NORM_SUM };  // normalizes the state's part of the sum, or the whole sum

// All steps of one recurrent layer: T steps, N samples, H units, G gates, columns = G H. Pointers to parts that the
// layer lacks are null. recurrent.cpp has the equations.
struct Recurrence {
    int32_t cell, norm, norm_cell;
    int32_t rounded;    // whether products round their factors to bfloat16
    int32_t centered;   // whether the norms subtract the mean: LN, otherwise RMSNorm
    int32_t swap;       // GRU: its update gate weighs the new state instead of the old one
    double slope;       // the hard sigmoid's; 0: the logistic function
    double eps, eps_c;  // for the norms of the columns, and for the norm of c'
    int64_t steps, batch, hidden, gates;
    int64_t segments, ends[4];  // columns that are normalized together: [0, ends[0]), [ends[0], ends[1]), ...
    int64_t block, keep;        // samples that a thread takes at once; 1: z, act, stats of every step are kept, 0: not
    const int64_t* lengths;     // [N]
    const void *x, *w, *bias;   // [T, N, columns] the input's part, [columns, H], [columns]
    const void *gamma, *beta, *gamma_c, *beta_c;  // [columns], [H]
    void *h, *c;                                  // [T + 1, N, H], the first of them given; c: LSTM
    void *h_last, *c_last;                        // [N, H]
    void *z, *act;                                // [T, N, columns] or [N, columns]; act may be z
    void *stats, *stats_c, *raw_c;                // [T, N, segments, 3], [T, N, 3], [T, N, H]: c' if m is carried
    // backward
    const void* gy;  // [T, N, H]
    void *dh, *dc;   // [N, H]: gradients of the last states, replaced by the first ones'
    void *dx, *dz;   // [T, N, columns]; dz may be dx
    void *dgamma, *dbeta, *dgamma_c, *dbeta_c;
    // scratch buffers: [panels + blocks (2 columns + 4 H)], and doubles [blocks, 2 (columns + H)] or null
    void *scratch, *totals;
    int64_t panels;  // H, or in backward columns, rows of the other one rounded up to 32
};

// C[batch, m, n] = op(A)[batch, m, k] op(B)[batch, k, n] + C or bias[n] or nothing, with factors rounded to bfloat16.
// The arguments are those of `gemm` (runtime/gemm.hpp).
struct RoundedProduct {
    bool transpose_a, transpose_b, accumulate;
    int64_t batch, m, n, k;
    const float* a;
    int64_t lda, stride_a;
    const float* b;
    int64_t ldb, stride_b;
    float* c;
    int64_t ldc, stride_c;
    const float* bias;
};

// A two-dimensional convolution, without padding: its borders have been added to x before. In groups, or one:
//   y[n, g, o, r, q] = bias[g, o] + sum over c, i, j of w[g, o, c, i, j] x[n, g, c, r stride_h + i dilation_h,
//                                                                          q stride_w + j dilation_w]
struct Conv2d {
    int64_t batch, groups, channels, height, width;  // x[batch, groups, channels, height, width]
    int64_t outputs, kernel_h, kernel_w;             // w[groups, outputs, channels, kernel_h, kernel_w]
    int64_t rows, columns;                           // y[batch, groups, outputs, rows, columns]
    int64_t stride_h, stride_w, dilation_h, dilation_w;

    constexpr int64_t depth() const { return channels * kernel_h * kernel_w; }
    constexpr int64_t positions() const { return rows * columns; }
};

// The windows of two-dimensional pooling on planes x[planes, height, width], y[planes, rows, columns]: window (r, q)
// holds the elements of x at (r stride_h - pad_h + i dilation_h, q stride_w - pad_w + j dilation_w) that exist.
struct Pool2d {
    int64_t planes, height, width, rows, columns, kernel_h, kernel_w;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Attention of q[batch, heads, queries, width] to k[batch, heads / group, keys, width] and v[.., keys, value_width]:
//   s = scale q kᵀ + mask,  p = softmax s,  y[batch, heads, queries, value_width] = p v
// A query i of causal attention sees the keys up to i. The mask, at most one of `bools` (true: seen) and `numbers`, is
// read at steps for batch, heads, queries and keys. A weight is dropped, and the others are divided by 1 - dropout, by
// the generator of random.cpp: row r, counted over all heads, begins with block offset + r ceil(keys/4).
struct Attention {
    static constexpr int64_t KEYS = 128, QUERIES = 128;  // in a block
    static constexpr int64_t TILE = 32, FEW = 8;         // queries in a tile; up to FEW are computed in rows

    int64_t batch, heads, group, queries, keys, width, value_width;
    double scale;
    int32_t causal, rounded;  // rounded: products round their factors to bfloat16
    const void *q, *k, *v;
    int64_t rows;  // from the keys and values of a head to those of the next
    const void *bools, *numbers;
    int64_t mask_step[4];
    double dropout;
    uint64_t seed, offset;
    void *y, *statistics;  // [.., queries, value_width]; [.., queries, 2]: top = max s, and 1 / sum of e^(s - top)
    // backward; dq, dk and dv may each be null
    const void* g;
    void *dq, *dk, *dv;
    void *delta, *partial;  // scratch: [.., queries], and dq of each part if there are several
    int64_t parts;          // into which the keys of a head are split; depends on the shape alone
    int64_t slots;          // tasks that may run at once
    void* scratch;          // [slots, attention_scratch(..)]

    static constexpr int64_t whole(int64_t n) { return (n + 31) / 32 * 32; }  // panels, at their widest
    constexpr int64_t masked_scratch() const { return bools || numbers || dropout > 0 ? 2 * KEYS * TILE : 0; }
};

constexpr int64_t MASK_CHUNK = 1 << 15;

// Precedes the definition of a kernel of this table, whose member cext/declare.py declares; the types count its dtypes.
#define MG_KERNEL(member)

#include "kernels/table.inc"

struct Kernels : Table {
    const char* isa;

    // elementwise.cpp; null where an op is not defined for a dtype (of the inputs)
    Loop unary[UNARY_OPS][DTYPES];    // (x, y)
    Loop binary[BINARY_OPS][DTYPES];  // (a, b, y)
    Loop where[DTYPES];               // (bool c, a, b, y)
    Loop cast[DTYPES][DTYPES];        // [from][to], (x, y); to bool: x != 0

    // reduce.cpp. For n = 0: SUM 0, PROD 1, ANY false, ALL true; the others are never called with it.
    // MAX, MIN, ARGMAX, ARGMIN: NaN wins, the first index wins. Output dtype: the input's, but bool
    // for ANY and ALL and int64 for ARGMAX and ARGMIN.
    Reduction reduce[REDUCE_OPS][DTYPES];

    // optimizer.cpp; the last one has no name
    const Rule* rules;
    double (*sum_of_squares[FLOATS])(const Tensors& list);  // over all gradients, in double
};

constexpr int64_t NORM_BLOCK = 64;  // rows summed into one partial of dgamma and dbeta
constexpr int64_t norm_blocks(int64_t rows) { return (rows + NORM_BLOCK - 1) / NORM_BLOCK; }
constexpr int64_t normalize_scratch(int64_t rows, int64_t groups, int64_t m, int64_t inner) {
    return 2 * m * (groups == 1 && inner == 1 ? norm_blocks(rows) : rows);
}

constexpr int64_t attention_scratch(const Attention& a, bool backward) {
    const int64_t w = Attention::whole(a.width), v = Attention::whole(a.value_width);
    const int64_t tile = Attention::KEYS * Attention::TILE, more = a.masked_scratch();
    if (!backward) return Attention::QUERIES * w + Attention::KEYS * v + tile + more;
    return Attention::KEYS * w + 2 * Attention::TILE * (w + v) + 2 * tile + more;
}
// Parts that keep some cores busy if there are few heads
constexpr int64_t attention_parts(int64_t heads, int64_t keys) {
    const int64_t blocks = (keys + Attention::KEYS - 1) / Attention::KEYS,
                  wanted = heads < 16 ? 16 / (heads ? heads : 1) : 1;
    return blocks < wanted ? (blocks ? blocks : 1) : wanted;
}
constexpr int64_t attention_part(const Attention& a) {  // the keys of one part, in whole blocks
    const int64_t blocks = (a.keys + Attention::KEYS - 1) / Attention::KEYS;
    return (blocks + a.parts - 1) / a.parts * Attention::KEYS;
}

// How x[outer, channels, inner] is read where sums run over outer and inner: as a plane of `inner` elements for each
// block (an index of outer) and column (a channel); or, where planes are short, as a matrix whose columns are
// channels * inner, in blocks of `rows` rows. All depend on the shape alone.
struct Columns {
    static constexpr int64_t SHORT_PLANE = 64, MANY_ROWS = 4096;
    int64_t outer, channels, inner, repeat, columns, rows, blocks;  // repeat: columns of one channel

    constexpr Columns(int64_t outer, int64_t channels, int64_t inner)
        : outer(outer),
          channels(channels),
          inner(inner),
          repeat(inner < SHORT_PLANE ? inner : 1),
          columns(channels * repeat),
          rows(outer < MANY_ROWS ? 64 : 256),
          blocks(planes() ? outer : (outer + rows - 1) / rows) {}
    constexpr bool planes() const { return inner >= SHORT_PLANE; }
};
constexpr int64_t batch_norm_scratch(int64_t outer, int64_t channels, int64_t inner) {
    const Columns at(outer, channels, inner);
    return (2 * at.blocks + 4) * at.columns;  // two sums of each block, four coefficients
}

// How the sums over samples for the gradient of a convolution's weights are split; depends on the shape alone
constexpr int64_t conv2d_blocks(const Conv2d& at) {
    const int64_t weights = at.groups * at.outputs * at.depth();
    const int64_t most = weights < (1 << 18) ? 16 : weights < (1 << 22) ? 4 : 1;
    return at.batch < most ? at.batch : most;
}
constexpr int64_t conv2d_partial(const Conv2d& at) {
    return conv2d_blocks(at) * at.groups * (at.depth() + 1) * ((at.outputs + 31) / 32 * 32);
}

// One table per instruction set in this binary; `kernels` is the best of those that the processor
// supports, unless MINIGRAD_ISA names another.
extern const Kernels* const kernels;

}  // namespace mg
