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

// The numbers of one optimizer step, in the order of the kernel's parameters in optimizer.cu. The optimizer has
// combined its hyperparameters in double.
struct Update {
    static constexpr int MOST = 12;
    double numbers[MOST];

    constexpr double operator[](int i) const { return numbers[i]; }
};

struct Tensors;

// The update rule of an optimizer, which takes `count` numbers
struct Rule {
    const char* name;
    int count;
    void (*step[2])(const Tensors& list, const Update& step);  // for float32 and float64
};

// In the order of KINDS and NORMS in ops/recurrent.pyx
enum CellKind { RNN_TANH, RNN_RELU, LSTM, GRU };
enum CellNorm { NO_NORM, NORM_STATE, NORM_SUM };  // of the state's part of the sum, or of the whole sum

// All steps of one recurrent layer: T steps, N samples, H units, G gates, columns = G H. Pointers may be null for parts
// that the layer does not have. recurrent.cpp has the equations.
struct Recurrence {
    int32_t cell, norm, norm_cell;
    int32_t centered;   // whether the norms subtract the mean: LN, otherwise RMSNorm
    int32_t swap;       // GRU: its update gate weighs the new state instead of the old one
    double slope;       // of the hard sigmoid; 0: the logistic function
    double eps, eps_c;  // of the norms of the columns, and of c'
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
    static constexpr int64_t KEYS = 128, QUERIES = 128, QUERIES_BACKWARD = 64;  // of a block

    int64_t batch, heads, group, queries, keys, width, value_width;
    double scale;
    int32_t causal;
    const void *q, *k, *v;
    const void *bools, *numbers;
    int64_t mask_step[4];
    double dropout;
    uint64_t seed, offset;
    void *y, *statistics;  // [.., queries, value_width]; [.., queries, 2]: top = max s, and 1 / sum of e^(s - top)
    // backward; dq, dk and dv may each be null
    const void* g;
    void *dq, *dk, *dv;
    void *delta, *partial;  // scratch: [.., queries], and dq of each part if there are several
    int64_t parts;          // of the keys of a head, summed separately; depends on the shape alone
    int64_t slots;          // tasks that may run at once
    void* scratch;          // [slots, attention_scratch(..)]

    static constexpr int64_t whole(int64_t n) { return (n + 31) / 32 * 32; }  // panels, at their widest
    static constexpr int64_t panels(int64_t width, int64_t value_width) {
        return KEYS * whole(width > value_width ? width : value_width);
    }
};

constexpr int64_t MASK_CHUNK = 1 << 15;

struct Kernels {
    const char* isa;

    // elementwise.cpp; null where an op is not defined for a dtype (of the inputs)
    Loop unary[UNARY_OPS][DTYPES];    // (x, y)
    Loop binary[BINARY_OPS][DTYPES];  // (a, b, y)
    Loop where[DTYPES];               // (bool c, a, b, y)
    Loop clip[FLOATS];                // (x, low, high, y)
    Loop cast[DTYPES][DTYPES];        // [from][to], (x, y); to bool: x != 0

    // reduce.cpp. For n = 0: SUM 0, PROD 1, ANY false, ALL true; the others are never called with it.
    // MAX, MIN, ARGMAX, ARGMIN: NaN wins, the first index wins. Output dtype: the input's, but bool
    // for ANY and ALL and int64 for ARGMAX and ARGMIN.
    Reduction reduce[REDUCE_OPS][DTYPES];
    // mean[outer, inner] and the sum of squared deviations m2[outer, inner], two-pass
    void (*moments[FLOATS])(int64_t outer, int64_t n, int64_t inner, const void* x, void* mean, void* m2);
    Reduction cumulative_sum[DTYPES];  // y[outer, n, inner]

    // scan.cpp: linear recurrences along the middle axis of a, b, h[outer, n, inner]; reverse: from the last step on
    //   h_t = a_t h_{t-1} + b_t; h_0 = initial[outer, inner], or if that is null, h_1 = b_1
    void (*linear_scan[FLOATS])(int64_t outer, int64_t n, int64_t inner, int32_t reverse, const void* a, const void* b,
                                const void* initial, void* h);
    //   d_t = g_t + a_{t+1} d_{t+1}, da_t = d_t h_{t-1}, db_t = d_t, dinitial = a_1 d_1; da, db and dinitial may each
    //   be null, and h is read for da alone
    void (*linear_scan_backward[FLOATS])(int64_t outer, int64_t n, int64_t inner, int32_t reverse, const void* a,
                                         const void* h, const void* initial, const void* g, void* da, void* db,
                                         void* dinitial);

    // norm.cpp: the rows of x[rows, m, inner], of n = m inner elements. Row r belongs to group r % groups. gamma and
    // beta are [groups, m]; each may be null.
    //   mean = sum(x)/n, rstd = 1/sqrt(sum((x - mean)^2)/n + eps), y = (x - mean) rstd gamma + beta
    // If mean is null, 0 takes its place; then groups and inner must be 1 and beta null. mean[rows] and rstd[rows] have
    // x's dtype if groups and inner are 1, otherwise double, which saves the backward pass over channels a sum.
    void (*normalize[FLOATS])(int64_t rows, int64_t groups, int64_t m, int64_t inner, const void* x, const void* gamma,
                              const void* beta, double eps, void* y, void* mean, void* rstd);
    //   dx, dgamma and dbeta may each be null. scratch[normalize_scratch(..)], in the dtype of rstd, holds partial sums
    //   over rows.
    void (*normalize_backward[FLOATS])(int64_t rows, int64_t groups, int64_t m, int64_t inner, const void* x,
                                       const void* gamma, const void* mean, const void* rstd, const void* g, void* dx,
                                       void* dgamma, void* dbeta, void* scratch);

    // batch_norm.cpp: the channels of x[outer, channels, inner]; gamma[channels], beta[channels] may be null
    //   mean, var = the moments over outer and inner (biased), y = (x - mean) rstd gamma + beta, rstd = 1/sqrt(var +
    //   eps)
    // statistics[2, channels] = mean and rstd, for the backward pass; scratch[batch_norm_scratch(..)]
    void (*batch_norm[FLOATS])(int64_t outer, int64_t channels, int64_t inner, const void* x, const void* gamma,
                               const void* beta, double eps, void* y, void* mean, void* var, double* statistics,
                               double* scratch);
    //   the same with mean and var given
    void (*batch_norm_eval[FLOATS])(int64_t outer, int64_t channels, int64_t inner, const void* x, const void* gamma,
                                    const void* beta, const void* mean, const void* var, double eps, void* y,
                                    double* statistics, double* scratch);
    //   dgamma = sum of g xhat, dbeta = sum of g; dx = gamma rstd (g - mean(g) - xhat mean(g xhat)), or gamma rstd g
    //   where the statistics were `given`. Each may be null.
    void (*batch_norm_backward[FLOATS])(int64_t outer, int64_t channels, int64_t inner, bool given, const void* x,
                                        const void* gamma, const double* statistics, const void* g, void* dx,
                                        void* dgamma, void* dbeta, double* scratch);

    // conv.cpp; offsets[depth]: scratch for the places of a window's elements
    void (*conv2d[FLOATS])(const Conv2d& at, const void* x, const void* w, const void* bias, void* y, int64_t* offsets);
    //   dx for the cotangent g; turned[groups, kernel_h, kernel_w, channels, outputs]: scratch for the weights
    void (*conv2d_backward_data[FLOATS])(const Conv2d& at, const void* g, const void* w, void* dx, void* turned);
    //   dw and dbias, each of which may be null; partial[conv2d_partial(at)]: scratch for sums over blocks of samples
    void (*conv2d_backward_weight[FLOATS])(const Conv2d& at, const void* x, const void* g, void* dw, void* dbias,
                                           int64_t* offsets, void* partial);

    // pooling.cpp
    //   y[planes, rows, columns]: the maxima of the windows; their place in the plane goes to index, which may be null,
    //   as may y. The first of equals wins, and the last NaN.
    void (*max_pool2d[FLOATS])(const Pool2d& at, const void* x, void* y, int64_t* index);
    void (*max_pool2d_backward[FLOATS])(const Pool2d& at, const void* x, const void* g, void* dx);
    //   y[planes, m, n] = sums over x[planes, height, width] from rows[m, 0] up to rows[m, 1] and columns[n, 0] up to
    //   columns[n, 1], over the divisor, or if it is 0 over rows[m, 2] columns[n, 2]
    void (*average_pool2d[FLOATS])(int64_t planes, int64_t height, int64_t width, int64_t m, int64_t n, const void* x,
                                   const int64_t* rows, const int64_t* columns, double divisor, void* y);
    void (*average_pool2d_backward[FLOATS])(int64_t planes, int64_t height, int64_t width, int64_t m, int64_t n,
                                            const void* g, const int64_t* rows, const int64_t* columns, double divisor,
                                            void* dx);

    // recurrent.cpp
    void (*recurrent[FLOATS])(const Recurrence& layer);
    void (*recurrent_backward[FLOATS])(const Recurrence& layer);

    // softmax.cpp: rows of x[rows, width]
    void (*softmax[FLOATS])(int64_t rows, int64_t width, const void* x, void* y);
    void (*softmax_backward[FLOATS])(int64_t rows, int64_t width, const void* y, const void* g, void* dx);
    void (*log_softmax[FLOATS])(int64_t rows, int64_t width, const void* x, void* y);
    void (*log_softmax_backward[FLOATS])(int64_t rows, int64_t width, const void* y, const void* g, void* dx);
    void (*logsumexp[FLOATS])(int64_t rows, int64_t width, const void* x, void* y);  // y[rows]
    // Cross-entropy of logits z[rows, width] with labels[rows] (int64, checked by the caller;
    // ignore: loss and gradient 0), class weights w[width] or null, label smoothing s:
    //   loss[r] = (1 - s) w_t (lse - z_t) + s/width sum_c w_c (lse - z_c),  lse = log sum exp z
    void (*cross_entropy[FLOATS])(int64_t rows, int64_t width, const void* z, const int64_t* labels, int64_t ignore,
                                  const void* w, double smoothing, void* loss, void* lse);
    //   dz[r, c] = g[r] (softmax(z)_c ((1 - s) w_t + s/width sum_k w_k) - (1 - s) w_t [c = t] - s/width w_c)
    void (*cross_entropy_backward[FLOATS])(int64_t rows, int64_t width, const void* z, const int64_t* labels,
                                           int64_t ignore, const void* w, double smoothing, const void* lse,
                                           const void* g, int64_t g_stride, void* dz);

    // attention.cpp
    void (*attention[FLOATS])(const Attention& a);
    void (*attention_backward[FLOATS])(const Attention& a);

    // index.cpp: the positions of the elements of a mask x[n] that are true, in chunks of MASK_CHUNK elements. First
    // how many each chunk has; then the positions, those of chunk c from y[starts[c]] on.
    void (*count_true)(int64_t n, const uint8_t* x, int64_t* counts);
    void (*true_positions)(int64_t n, const uint8_t* x, const int64_t* starts, int64_t* y);

    // indices are int64, already checked and non-negative
    //   y[outer, m, inner] = x[outer, index[j], inner]; any dtype, by item size in bytes
    void (*take)(int64_t outer, int64_t n, int64_t inner, int64_t itemsize, const void* x, int64_t m,
                 const int64_t* index, void* y);
    //   x[outer, index[j], inner] = v[outer, j, inner]; the last of equal indices wins
    void (*put)(int64_t outer, int64_t n, int64_t inner, int64_t itemsize, void* x, int64_t m, const int64_t* index,
                const void* v);
    //   x[outer, index[j], inner] += v[outer, j, inner]; always in the order of j
    void (*add_at[FLOATS])(int64_t outer, int64_t n, int64_t inner, void* x, int64_t m, const int64_t* index,
                           const void* v);
    //   the same with an index per element: index[outer, m, inner]
    void (*take_along[DTYPES])(int64_t outer, int64_t n, int64_t inner, const void* x, int64_t m, const int64_t* index,
                               void* y);
    void (*add_along[FLOATS])(int64_t outer, int64_t n, int64_t inner, void* x, int64_t m, const int64_t* index,
                              const void* v);

    // order.cpp: index[row, j] = the place of the element of rank ranks[j] in x[row, n], NaN wherever there is one;
    // `keys` is memory of x's size
    void (*ranked[FLOATS])(int64_t rows, int64_t n, const void* x, int64_t m, const int64_t* ranks, void* keys,
                           int64_t* index);

    // optimizer.cpp: every parameter of a list in one call
    const Rule* rules;                                      // the last one has no name
    double (*sum_of_squares[FLOATS])(const Tensors& list);  // over all gradients, in double

    // random.cpp: Philox 4x32-10, value i depends only on (seed, offset + i/4), whatever the threads
    void (*uniform[FLOATS])(uint64_t seed, uint64_t offset, int64_t n, double low, double high,
                            void* y);  // [low, high)
    void (*normal[FLOATS])(uint64_t seed, uint64_t offset, int64_t n, double mean, double std, void* y);
    void (*integers)(uint64_t seed, uint64_t offset, int64_t n, int64_t low, int64_t high, int64_t* y);  // [low, high)
    // y = x keep/(1 - p), keep[i] = u_i >= p; the mask itself is written too
    void (*dropout[FLOATS])(uint64_t seed, uint64_t offset, int64_t n, double p, const void* x, void* y, bool* keep);
};

constexpr int64_t NORM_BLOCK = 64;  // rows summed into one partial of dgamma and dbeta
constexpr int64_t norm_blocks(int64_t rows) { return (rows + NORM_BLOCK - 1) / NORM_BLOCK; }
constexpr int64_t normalize_scratch(int64_t rows, int64_t groups, int64_t m, int64_t inner) {
    return 2 * m * (groups == 1 && inner == 1 ? norm_blocks(rows) : rows);
}

constexpr int64_t attention_scratch(const Attention& a, bool backward) {
    if (!backward) return Attention::panels(a.width, a.value_width) + Attention::QUERIES * Attention::KEYS;
    const int64_t w = Attention::whole(a.width), v = Attention::whole(a.value_width);
    return Attention::KEYS * (2 * w + v) + Attention::QUERIES_BACKWARD * (w + v + 2 * Attention::KEYS);
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
