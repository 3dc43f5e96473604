// Recurrent layers: all steps of one layer. Block groups (block_group.cuh) divide the samples of a batch among
// themselves.
//
// A step computes  z = W h + b,  u = LN(z) or z,  a = u + x,  then gates and state, where x is the input's projection.
// The norm is applied segment by segment, to z (NORM_STATE) or to z + x (NORM_SUM; then a = u). LN is RMSNorm if the
// layer is not centered: then the means below are 0.

#if FLOATING

// In the order of KINDS and NORMS in ops/recurrent.pyx
enum Kind { RNN_TANH, RNN_RELU, LSTM, GRU };
enum { NO_NORM, NORM_STATE, NORM_SUM };
enum { MOST_SEGMENTS = 4, OF_CELL = MOST_SEGMENTS, SUMS };  // a row's sums: one for each segment, and one for c

// The statistics kept of a normalized row: xhat = (x - center) scale + offset
struct Kept {
    T center, scale, offset;

    __device__ T standard(T x) const { return (x - center) * scale + offset; }
};

// A layer of N samples and H units, columns = G H; pointers are null for parts that the layer does not have.
struct Layer {
    int kind, gates, norm;
    Bool norm_cell, centered, swap;  // swap: the GRU's update gate weights the new state instead of the old one
    T slope;                    // the hard sigmoid's; 0 for the logistic function
    int64 batch, steps;
    int hidden, columns, segments;
    Extent ends;                // columns that are normalized together: [0, ends[0]), [ends[0], ends[1]), ...
    Bool keep;                  // whether z, act and stats of every step are kept
    const int64* lengths;       // [N]
    const T *gamma, *beta, *gamma_c, *beta_c;  // [columns], [H]
    T *h, *c;                   // [T + 1, N, H], with the first given; c only in an LSTM
    T *z, *act;                 // [T, N, columns] or [N, columns]; act may be z
    Kept *stats, *stats_c;      // [T, N, segments], [T, N]
    T* raw_c;                   // [T, N, H]: c' before its norm, if the norm is carried

    template <class P>
    __device__ P* row(P* base, int64 t, int64 n, int64 width) const {
        return base ? base + (t * batch + n) * width : base;
    }
    __device__ int first(int segment) const { return segment ? int(ends.n[segment - 1]) : 0; }
    __device__ int end(int segment) const { return int(ends.n[segment]); }
    __device__ int64 kept(int64 t) const { return keep ? t : 0; }
    __device__ bool alive(int64 t, int64 n) const { return !lengths || t < lengths[n]; }
    __device__ bool ends_at(int64 t, int64 n) const { return t + 1 == (lengths ? lengths[n] : steps); }
};

// for (int k : the segments of a row), unrolled
#define SEGMENTS(k, r) UNROLLED(k, MOST_SEGMENTS) if (k >= (r).segments) break; else

__device__ inline T gate(T slope, T a) {
    if (slope == 0) return 1 / (1 + exp(-a));
    const T y = slope * a + T(0.5);
    return y < 0 ? T(0) : y > 1 ? T(1) : y;
}

// The derivative of `gate`, from its result; NaN stays NaN
__device__ inline T gate_slope(T slope, T y) {
    return slope == 0 ? y * (1 - y) : y > 0 && y < 1 ? slope : y != y ? y : T(0);
}

__device__ inline T at(const T* p, int j, T missing) { return p ? p[j] : missing; }

#include "block_group.cuh"

// ---- forward: sample s of a group, n of the batch, at step t -----------------------------------------------------------

// The arguments of the forward pass besides the layer
struct Forward {
    const T *x, *bias;       // [T, N, columns], [columns]
    double eps, eps_c;
    T *h_last, *c_last;      // [N, H]: the states after a sample's last step
};

// A block's part of the rows of a step. If it is in shared memory, `keep_rows` copies it to the arrays after the step:
// a barrier of a cluster or a grid waits for everything that was written before.
struct Step {
    Rows<T> z, act, c, h;    // z has b, and with NORM_SUM x, added
    Rows<T> next_c, next_h;  // the same as c and h in shared memory

    __device__ Step(const Layer& r, const BlockGroup& group, int64 t, int64 first) {
        const int H = r.hidden, U = group.units, row = (2 * r.gates + 2) * U;
        if (group.own) {
            z = {group.own, row, U}, act = {group.own + r.gates * U, row, U};
            c = next_c = {group.own + 2 * r.gates * U, row, 0}, h = next_h = {group.own + (2 * r.gates + 1) * U, row, 0};
            return;
        }
        z = {r.row(r.z, r.kept(t), first, r.columns) + group.begin, r.columns, H};
        act = {r.row(r.act, r.kept(t), first, r.columns) + group.begin, r.columns, H};
        h = {r.row(r.h, t, first, H) + group.begin, H, 0}, next_h = {r.row(r.h, t + 1, first, H) + group.begin, H, 0};
        if (!r.c) return;
        c = {r.row(r.c, t, first, H) + group.begin, H, 0}, next_c = {r.row(r.c, t + 1, first, H) + group.begin, H, 0};
    }
};

// Keeps h of unit u for the next step
__device__ inline void finish(const Layer& r, const Forward& f, const BlockGroup& group, const Step& my, int64 t, int s, int64 n,
                              int u, T h, T c) {
    const int H = r.hidden, j = group.begin + u;
    my.next_h.at(s, 0, u) = h;
    if (group.kind == GRID) r.row(r.h, t + 1, n, H)[j] = h;
    group.give_factor(group.of_step(t + 1) + s * group.stride + j, h);
    if (!r.ends_at(t, n)) return;
    f.h_last[n * H + j] = h;
    if (r.c) f.c_last[n * H + j] = c;
}

// i, f, o = gate(a_i), gate(a_f), gate(a_o), g = tanh(a_g), c' = f c + i g. The order in memory is i, f, g, o.
// h = o tanh(c'), unless c' is normalized first.
__device__ inline void lstm(const Layer& r, const Forward& f, const BlockGroup& group, const Step& my, int64 t, int s, int64 n,
                            int u, const T (&a)[4]) {
    const T i = gate(r.slope, a[0]), forget = gate(r.slope, a[1]), g = tanh(a[2]), o = gate(r.slope, a[3]);
    const T y = forget * my.c.at(s, 0, u) + i * g;
    my.act.at(s, 0, u) = i, my.act.at(s, 1, u) = forget, my.act.at(s, 2, u) = g, my.act.at(s, 3, u) = o;
    my.next_c.at(s, 0, u) = y;
    if (!r.norm_cell) finish(r, f, group, my, t, s, n, u, o * tanh(y), y);
}

// m = LN(c'), h = o tanh(m); the next step gets c', or m.
__device__ inline void lstm_output(const Layer& r, const Forward& f, const BlockGroup& group, const Step& my, int64 t, int s,
                                   int64 n) {
    const int H = r.hidden;
    const Kept kept = merge(r, group, s, OF_CELL, 1, 0, H, 0, f.eps_c);
    if (group.rank == 0 && group.lane == 0) *r.row(r.stats_c, r.kept(t), n, 1) = kept;
    T* raw = r.row(r.raw_c, r.kept(t), n, H);
    UNITS(u, group) {
        const int j = group.begin + u;
        const T y = my.next_c.at(s, 0, u), m = kept.standard(y) * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0);
        if (raw) {  // the normalized cell is carried on
            raw[j] = y;
            my.next_c.at(s, 0, u) = m;
        }
        finish(r, f, group, my, t, s, n, u, my.act.at(s, 3, u) * tanh(m), raw ? m : y);
    }
}

// r, z = gate(a_r), gate(a_z), n = tanh(x_n + r u_n), h' = (1 - z) n + z h, or with swap z n + (1 - z) h. The order in
// memory is r, z, n.
__device__ inline void gru(const Layer& r, const Forward& f, const BlockGroup& group, const Step& my, int64 t, int s, int64 n,
                           int u, const T (&a)[4]) {
    const T reset = gate(r.slope, a[0]), update = gate(r.slope, a[1]), w = r.swap ? 1 - update : update;
    const T y = tanh(r.row(f.x, t, n, r.columns)[2 * r.hidden + group.begin + u] + reset * a[2]);
    my.act.at(s, 0, u) = reset, my.act.at(s, 1, u) = update, my.act.at(s, 2, u) = y;
    finish(r, f, group, my, t, s, n, u, y + w * (my.h.at(s, 0, u) - y), 0);
}

// The gates of a sample, from its row of z
__device__ inline void step(const Layer& r, const Forward& f, const BlockGroup& group, const Step& my,
                            const int (&owners)[MOST_SEGMENTS], int64 t, int s, int64 n) {
    const int H = r.hidden;
    Kept kept[MOST_SEGMENTS] = {};
    if (r.norm != NO_NORM) {
SEGMENTS(k, r) {
            kept[k] = merge(r, group, s, k, r.gates, r.first(k), r.end(k), owners[k], f.eps);
            if (group.rank == 0 && group.lane == 0) r.row(r.stats, r.kept(t), n, r.segments)[k] = kept[k];
        }
    }
    const T* x = r.row(f.x, t, n, r.columns);
    UNITS(u, group) {
        T a[4] = {};
UNROLLED(g, 4) {
            if (g >= r.gates) break;
            const int j = g * H + group.begin + u;
            a[g] = my.z.at(s, g, u);
            if (r.norm != NO_NORM) {
                Kept of = kept[0];
#pragma unroll
                for (int k = 1; k < MOST_SEGMENTS; k++) {
                    if (k < r.segments && j >= r.first(k)) of = kept[k];
                }
                a[g] = of.standard(a[g]) * at(r.gamma, j, 1) + at(r.beta, j, 0);
            }
            // A GRU's reset gate multiplies u of the candidate before x is added.
            if (r.norm != NORM_SUM && !(r.kind == GRU && g == 2)) a[g] += x[j];
        }
        if (r.kind == LSTM) {
            lstm(r, f, group, my, t, s, n, u, a);
        } else if (r.kind == GRU) {
            gru(r, f, group, my, t, s, n, u, a);
        } else {
            finish(r, f, group, my, t, s, n, u, r.kind == RNN_TANH ? tanh(a[0]) : a[0] < 0 ? T(0) : a[0], 0);
        }
    }
}

// Copies the rows that later steps and the backward pass need to the arrays; a sample that has ended has states 0.
__device__ inline void keep_rows(const Layer& r, const BlockGroup& group, const Step& my, int64 t, int s, int64 n) {
    const int H = r.hidden;
    const bool alive = r.alive(t, n);
    if (alive && !group.own) return;
    T *z = r.row(r.z, r.kept(t), n, r.columns) + group.begin, *act = r.row(r.act, r.kept(t), n, r.columns) + group.begin;
    T *h = r.row(r.h, t + 1, n, H) + group.begin, *c = r.c ? r.row(r.c, t + 1, n, H) + group.begin : r.c;
    UNITS(u, group) {
        if (!alive || group.kind != GRID) h[u] = alive ? my.next_h.at(s, 0, u) : 0;
        if (c) c[u] = alive ? my.next_c.at(s, 0, u) : 0;
        for (int g = 0; g < r.gates && alive && r.keep; g++) {
            if (r.norm != NO_NORM || r.kind == GRU) z[g * H + u] = my.z.at(s, g, u);
            if (r.kind == LSTM || r.kind == GRU) act[g * H + u] = my.act.at(s, g, u);
        }
    }
}

__device__ inline void steps_of(const Layer& r, const Forward& f, BlockGroup& group, int64 begin, int64 end) {
    const int H = r.hidden;
    const int n = r.gates * group.units, groups = gridDim.x / group.size;
    int owners[MOST_SEGMENTS];  // the blocks that have the first columns of the segments
UNROLLED(k, MOST_SEGMENTS) owners[k] = k < r.segments ? r.first(k) % H / group.units : 0;
    if (group.resident)
        load_matrix((T*)dynamic_shared(), int(H), n, [&](int i, int c) {
            const int u = c % group.units;
            const int64 j = c / group.units * H + group.begin + u;
            return u < group.count ? group.w[j * H + i] : T(0);
        });
    for (int64 first = blockIdx.x / group.size * (int64)group.samples; first < r.batch; first += groups * (int64)group.samples) {
        const int count = int(min(int64(group.samples), r.batch - first));
        if (group.w && group.kind != GRID) {
            const T* now = group.of_step(begin);
            for (T* factor = group.factors + threadIdx.x; factor < group.parts; factor += blockDim.x) {
                const int s = int(factor - now) / group.stride, k = int(factor - now) % group.stride;
                const bool given = factor >= now && s < count && k < H;
                *factor = given ? r.row(r.h, begin, first + s, H)[k] : T(0);
            }
        }
        if (group.own) {
            const Step my(r, group, begin, first);
            SAMPLES(s, count, group) {
                UNITS(u, group) {
                    my.h.at(s, 0, u) = r.row(r.h, begin, first + s, H)[group.begin + u];
                    if (r.c) my.c.at(s, 0, u) = r.row(r.c, begin, first + s, H)[group.begin + u];
                }
            }
        }
        group.wait();
        for (int64 t = begin; t < end; t++) {
            const Step my(r, group, t, first);
            const auto store = [&](int s, int c, T product) {
                const int U = group.units, g = (c >= U) + (c >= 2 * U) + (c >= 3 * U), u = c - g * U;
                const int j = g * H + group.begin + u;
                if (u >= group.count || !r.alive(t, first + s)) return;
                const T x = r.norm == NORM_SUM ? r.row(f.x, t, first + s, r.columns)[j] : T(0);
                my.z.at(s, g, u) = product + at(f.bias, j, 0) + x;
            };
            if (group.w) {
                multiply_all(group, int(H), n, group.of_step(t), count,
                             [&](int s) { return r.alive(t, first + s) ? r.row(r.h, t, first + s, H) : (T*)0; }, store);
            } else {
                for (int64 q = threadIdx.x; q < count * (int64)n; q += blockDim.x) {
                    const int s = int(q / n), c = int(q % n);
                    store(s, c, my.z.at(s, c / group.units, c % group.units));
                }
                __syncthreads();
            }
            if (r.norm != NO_NORM) {
                SAMPLES(s, count, group) {
                    if (!r.alive(t, first + s)) continue;
SEGMENTS(k, r) {
                        group.give(s, k, moments(r, group, r.gates, r.first(k), r.end(k), [&](int g, int j) {
                            return my.z.at(s, g, j - g * H - group.begin);
                        }));
                    }
                }
                group.wait();
            }
            SAMPLES(s, count, group) {
                if (!r.alive(t, first + s)) continue;
                step(r, f, group, my, owners, t, s, first + s);
                if (!r.norm_cell) continue;
                group.wait_for_lanes();
                group.give(s, OF_CELL, moments(r, group, 1, 0, H, [&](int, int j) {
                    return my.next_c.at(s, 0, j - group.begin);
                }));
            }
            if (r.norm_cell) {
                group.wait();
                SAMPLES(s, count, group) {
                    if (r.alive(t, first + s)) lstm_output(r, f, group, my, t, s, first + s);
                }
            }
            group.wait();
            SAMPLES(s, count, group) keep_rows(r, group, my, t, s, first + s);
        }
    }
}

#include "recurrent_backward.cuh"

// ---- kernels ------------------------------------------------------------------------------------------------------------

// A place in a block's shared memory, which minigrad/cuda/recurrent.py divides: packs from its beginning
__device__ inline T* shared_at(int place) { return (T*)dynamic_shared() + place * WIDE; }

// The first parameters of both kernels, and the block group and the layer that they describe
#define LAYER_PARAMETERS                                                                                             \
    int block_kind, int size, int units, int samples, int lanes, int width, int wide, int chunk, int stride, int     \
    buffer, Bool resident, int factors, int parts, int own, int moments, double* sums, int* arrived, const T* w, int \
    kind, int64 begin, int64 end, int norm, Bool norm_cell, Bool centered, Bool swap, double slope, int64 batch,     \
    int64 hidden, int64 columns, int64 steps, int segments, Extent ends, Bool keep, const int64* lengths, const T*   \
    gamma, const T* beta, const T* gamma_c, const T* beta_c, T* h, T* c, T* z, T* act, T* stats, T* stats_c, T*      \
    raw_c
#define GROUP                                                                                                      \
    {block_kind, size, units, samples, lanes, width, wide, chunk, stride, buffer, w, resident, shared_at(factors), \
     shared_at(parts), own < 0 ? (T*)0 : shared_at(own), sums ? (Pair*)sums : (Pair*)shared_at(moments), arrived}
#define LAYER                                                                                               \
    {kind, kind == LSTM ? 4 : kind == GRU ? 3 : 1, norm, norm_cell, centered, swap, T(slope), batch, steps, \
     int(hidden), int(columns), segments, ends, keep, lengths, gamma, beta, gamma_c, beta_c, h, c, z, act,  \
     (Kept*)stats, (Kept*)stats_c, raw_c}

// The steps from `begin` to `end`. w is W[columns, H], or for a block that reads it from the cache its transpose
// [H, columns], whose rows and columns are padded to multiples of 16 bytes; or null if z has the product of the only
// step.
extern "C" __global__ void __launch_bounds__(256, 1) recurrent(
    LAYER_PARAMETERS, const T* x, const T* bias, double eps, double eps_c, T* h_last, T* c_last) {
    BlockGroup group = GROUP;
    const Layer r = LAYER;
    group.place(r.hidden);
    steps_of(r, {x, bias, eps, eps_c, h_last, c_last}, group, begin, end);
}

// The steps from `end` back to `begin`. w is W[columns, H], for a block that reads it from the cache with rows and
// columns padded to multiples of 16 bytes, or null if the caller adds dz W to dh, [N, H].
extern "C" __global__ void __launch_bounds__(256, 1) recurrent_backward(
    LAYER_PARAMETERS, const T* gy, T* dh, T* dc, T* dx, T* dz, double* affine, double* affine_c) {
    BlockGroup group = GROUP;
    const Layer r = LAYER;
    group.place(r.hidden);
    steps_back(r, {gy, dh, dc, dx, dz, affine, affine_c}, group, begin, end);
}

#endif
