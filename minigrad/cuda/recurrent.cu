// Recurrent layers: the steps of one layer, with the samples of a batch divided among crews of blocks of threads.
//
// A step computes  z = W h + b,  u = LN(z) or z,  a = u + x,  then gates and state, where x is the input's projection.
// The norm is applied segment by segment, to z (NORM_STATE) or to z + x (NORM_SUM; then a = u). LN is RMSNorm if the
// layer is not centered: then the means below are 0.

#if FLOATING

// In the order of KINDS and NORMS in ops/recurrent.pyx
enum Kind { RNN_TANH, RNN_RELU, LSTM, GRU };
enum { NO_NORM, NORM_STATE, NORM_SUM };
enum { MOST_SEGMENTS = 4, OF_CELL = MOST_SEGMENTS, SUMS };  // of a row: one for each segment, and one of c

// The statistics kept of a normalized row: xhat = (x - center) scale + offset
struct Kept {
    T center, scale, offset;

    __device__ T standard(T x) const { return (x - center) * scale + offset; }
};

// A layer of N samples and H units, columns = G H; pointers are null for parts that the layer does not have.
struct Layer {
    int kind, gates, norm;
    Bool norm_cell, centered, swap;  // swap: the GRU's update gate weights the new state instead of the old one
    T slope;                    // of the hard sigmoid; 0 for the logistic function
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

#include "crew.cuh"

// ---- forward: sample s of a crew, n of the batch, at step t -----------------------------------------------------------

// What a forward pass has besides the layer
struct Forward {
    const T *x, *bias;       // [T, N, columns], [columns]
    double eps, eps_c;
    T *h_last, *c_last;      // [N, H]: the states after a sample's last step
};

// What a block has of the rows of a step. If these are in its shared memory, `keep_rows` copies them to the arrays after
// the step: a barrier of a cluster or a grid waits for everything that was written before.
struct Step {
    Rows<T> z, act, c, h;    // z has b, and with NORM_SUM x, added
    Rows<T> next_c, next_h;  // the same as c and h in shared memory

    __device__ Step(const Layer& r, const Crew& crew, int64 t, int64 first) {
        const int H = r.hidden, U = crew.units, row = (2 * r.gates + 2) * U;
        if (crew.own) {
            z = {crew.own, row, U}, act = {crew.own + r.gates * U, row, U};
            c = next_c = {crew.own + 2 * r.gates * U, row, 0}, h = next_h = {crew.own + (2 * r.gates + 1) * U, row, 0};
            return;
        }
        z = {r.row(r.z, r.kept(t), first, r.columns) + crew.begin, r.columns, H};
        act = {r.row(r.act, r.kept(t), first, r.columns) + crew.begin, r.columns, H};
        h = {r.row(r.h, t, first, H) + crew.begin, H, 0}, next_h = {r.row(r.h, t + 1, first, H) + crew.begin, H, 0};
        if (!r.c) return;
        c = {r.row(r.c, t, first, H) + crew.begin, H, 0}, next_c = {r.row(r.c, t + 1, first, H) + crew.begin, H, 0};
    }
};

// Keeps h of unit u for the next step
__device__ inline void finish(const Layer& r, const Forward& f, const Crew& crew, const Step& my, int64 t, int s, int64 n,
                              int u, T h, T c) {
    const int H = r.hidden, j = crew.begin + u;
    my.next_h.at(s, 0, u) = h;
    if (crew.kind == GRID) r.row(r.h, t + 1, n, H)[j] = h;
    crew.give_factor(crew.of_step(t + 1) + s * crew.stride + j, h);
    if (!r.ends_at(t, n)) return;
    f.h_last[n * H + j] = h;
    if (r.c) f.c_last[n * H + j] = c;
}

// i, f, o = gate(a_i), gate(a_f), gate(a_o), g = tanh(a_g), c' = f c + i g. The order in memory is i, f, g, o.
// h = o tanh(c'), unless c' is normalized first.
__device__ inline void lstm(const Layer& r, const Forward& f, const Crew& crew, const Step& my, int64 t, int s, int64 n,
                            int u, const T (&a)[4]) {
    const T i = gate(r.slope, a[0]), forget = gate(r.slope, a[1]), g = tanh(a[2]), o = gate(r.slope, a[3]);
    const T y = forget * my.c.at(s, 0, u) + i * g;
    my.act.at(s, 0, u) = i, my.act.at(s, 1, u) = forget, my.act.at(s, 2, u) = g, my.act.at(s, 3, u) = o;
    my.next_c.at(s, 0, u) = y;
    if (!r.norm_cell) finish(r, f, crew, my, t, s, n, u, o * tanh(y), y);
}

// m = LN(c'), h = o tanh(m); the next step gets c', or m.
__device__ inline void lstm_output(const Layer& r, const Forward& f, const Crew& crew, const Step& my, int64 t, int s,
                                   int64 n) {
    const int H = r.hidden;
    const Kept kept = merge(r, crew, s, OF_CELL, 1, 0, H, 0, f.eps_c);
    if (crew.rank == 0 && crew.lane == 0) *r.row(r.stats_c, r.kept(t), n, 1) = kept;
    T* raw = r.row(r.raw_c, r.kept(t), n, H);
    UNITS(u, crew) {
        const int j = crew.begin + u;
        const T y = my.next_c.at(s, 0, u), m = kept.standard(y) * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0);
        if (raw) {  // the normalized cell is carried on
            raw[j] = y;
            my.next_c.at(s, 0, u) = m;
        }
        finish(r, f, crew, my, t, s, n, u, my.act.at(s, 3, u) * tanh(m), raw ? m : y);
    }
}

// r, z = gate(a_r), gate(a_z), n = tanh(x_n + r u_n), h' = (1 - z) n + z h, or with swap z n + (1 - z) h. The order in
// memory is r, z, n.
__device__ inline void gru(const Layer& r, const Forward& f, const Crew& crew, const Step& my, int64 t, int s, int64 n,
                           int u, const T (&a)[4]) {
    const T reset = gate(r.slope, a[0]), update = gate(r.slope, a[1]), w = r.swap ? 1 - update : update;
    const T y = tanh(r.row(f.x, t, n, r.columns)[2 * r.hidden + crew.begin + u] + reset * a[2]);
    my.act.at(s, 0, u) = reset, my.act.at(s, 1, u) = update, my.act.at(s, 2, u) = y;
    finish(r, f, crew, my, t, s, n, u, y + w * (my.h.at(s, 0, u) - y), 0);
}

// The gates of a sample, from its row of z
__device__ inline void step(const Layer& r, const Forward& f, const Crew& crew, const Step& my,
                            const int (&owners)[MOST_SEGMENTS], int64 t, int s, int64 n) {
    const int H = r.hidden;
    Kept kept[MOST_SEGMENTS] = {};
    if (r.norm != NO_NORM) {
#pragma unroll
        for (int k = 0; k < MOST_SEGMENTS; k++) {
            if (k >= r.segments) break;
            kept[k] = merge(r, crew, s, k, r.gates, r.first(k), r.end(k), owners[k], f.eps);
            if (crew.rank == 0 && crew.lane == 0) r.row(r.stats, r.kept(t), n, r.segments)[k] = kept[k];
        }
    }
    const T* x = r.row(f.x, t, n, r.columns);
    UNITS(u, crew) {
        T a[4] = {};
#pragma unroll
        for (int g = 0; g < 4; g++) {
            if (g >= r.gates) break;
            const int j = g * H + crew.begin + u;
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
            lstm(r, f, crew, my, t, s, n, u, a);
        } else if (r.kind == GRU) {
            gru(r, f, crew, my, t, s, n, u, a);
        } else {
            finish(r, f, crew, my, t, s, n, u, r.kind == RNN_TANH ? tanh(a[0]) : a[0] < 0 ? T(0) : a[0], 0);
        }
    }
}

// Copies what later steps and the backward pass need to the arrays; the states of a sample that has ended are 0.
__device__ inline void keep_rows(const Layer& r, const Crew& crew, const Step& my, int64 t, int s, int64 n) {
    const int H = r.hidden;
    const bool alive = r.alive(t, n);
    if (alive && !crew.own) return;
    T *z = r.row(r.z, r.kept(t), n, r.columns) + crew.begin, *act = r.row(r.act, r.kept(t), n, r.columns) + crew.begin;
    T *h = r.row(r.h, t + 1, n, H) + crew.begin, *c = r.c ? r.row(r.c, t + 1, n, H) + crew.begin : r.c;
    UNITS(u, crew) {
        if (!alive || crew.kind != GRID) h[u] = alive ? my.next_h.at(s, 0, u) : 0;
        if (c) c[u] = alive ? my.next_c.at(s, 0, u) : 0;
        for (int g = 0; g < r.gates && alive && r.keep; g++) {
            if (r.norm != NO_NORM || r.kind == GRU) z[g * H + u] = my.z.at(s, g, u);
            if (r.kind == LSTM || r.kind == GRU) act[g * H + u] = my.act.at(s, g, u);
        }
    }
}

__device__ inline void steps_of(const Layer& r, const Forward& f, Crew& crew, int64 begin, int64 end) {
    const int H = r.hidden;
    const int n = r.gates * crew.units, crews = gridDim.x / crew.size;
    int owners[MOST_SEGMENTS];  // the blocks that have the first columns of the segments
#pragma unroll
    for (int k = 0; k < MOST_SEGMENTS; k++) owners[k] = k < r.segments ? r.first(k) % H / crew.units : 0;
    if (crew.resident)
        load_matrix((T*)dynamic_shared(), int(H), n, [&](int i, int c) {
            const int u = c % crew.units;
            const int64 j = c / crew.units * H + crew.begin + u;
            return u < crew.count ? crew.w[j * H + i] : T(0);
        });
    for (int64 first = blockIdx.x / crew.size * (int64)crew.samples; first < r.batch; first += crews * (int64)crew.samples) {
        const int count = int(min(int64(crew.samples), r.batch - first));
        if (crew.w && crew.kind != GRID) {
            const T* now = crew.of_step(begin);
            for (T* factor = crew.factors + threadIdx.x; factor < crew.parts; factor += blockDim.x) {
                const int s = int(factor - now) / crew.stride, k = int(factor - now) % crew.stride;
                const bool given = factor >= now && s < count && k < H;
                *factor = given ? r.row(r.h, begin, first + s, H)[k] : T(0);
            }
        }
        if (crew.own) {
            const Step my(r, crew, begin, first);
            SAMPLES(s, count, crew) {
                UNITS(u, crew) {
                    my.h.at(s, 0, u) = r.row(r.h, begin, first + s, H)[crew.begin + u];
                    if (r.c) my.c.at(s, 0, u) = r.row(r.c, begin, first + s, H)[crew.begin + u];
                }
            }
        }
        crew.wait();
        for (int64 t = begin; t < end; t++) {
            const Step my(r, crew, t, first);
            const auto store = [&](int s, int c, T product) {
                const int U = crew.units, g = (c >= U) + (c >= 2 * U) + (c >= 3 * U), u = c - g * U;
                const int j = g * H + crew.begin + u;
                if (u >= crew.count || !r.alive(t, first + s)) return;
                const T x = r.norm == NORM_SUM ? r.row(f.x, t, first + s, r.columns)[j] : T(0);
                my.z.at(s, g, u) = product + at(f.bias, j, 0) + x;
            };
            if (crew.w) {
                multiply_all(crew, int(H), n, crew.of_step(t), count,
                             [&](int s) { return r.alive(t, first + s) ? r.row(r.h, t, first + s, H) : (T*)0; }, store);
            } else {
                for (int64 q = threadIdx.x; q < count * (int64)n; q += blockDim.x) {
                    const int s = int(q / n), c = int(q % n);
                    store(s, c, my.z.at(s, c / crew.units, c % crew.units));
                }
                __syncthreads();
            }
            if (r.norm != NO_NORM) {
                SAMPLES(s, count, crew) {
                    if (!r.alive(t, first + s)) continue;
#pragma unroll
                    for (int k = 0; k < MOST_SEGMENTS; k++) {
                        if (k >= r.segments) break;
                        crew.give(s, k, moments(r, crew, r.gates, r.first(k), r.end(k), [&](int g, int j) {
                            return my.z.at(s, g, j - g * H - crew.begin);
                        }));
                    }
                }
                crew.wait();
            }
            SAMPLES(s, count, crew) {
                if (!r.alive(t, first + s)) continue;
                step(r, f, crew, my, owners, t, s, first + s);
                if (!r.norm_cell) continue;
                crew.wait_for_lanes();
                crew.give(s, OF_CELL, moments(r, crew, 1, 0, H, [&](int, int j) {
                    return my.next_c.at(s, 0, j - crew.begin);
                }));
            }
            if (r.norm_cell) {
                crew.wait();
                SAMPLES(s, count, crew) {
                    if (r.alive(t, first + s)) lstm_output(r, f, crew, my, t, s, first + s);
                }
            }
            crew.wait();
            SAMPLES(s, count, crew) keep_rows(r, crew, my, t, s, first + s);
        }
    }
}

// A place in a block's shared memory, which minigrad/cuda/recurrent.py divides: packs from its beginning
__device__ inline T* shared_at(int place) { return (T*)dynamic_shared() + place * WIDE; }

// A crew's part of the parameters of both kernels
#define CREW                                                                                                           \
    {crew, size, units, samples, lanes, width, wide, chunk, stride, buffer, w, resident, shared_at(factors),           \
     shared_at(parts), own < 0 ? (T*)0 : shared_at(own), sums ? (Pair*)sums : (Pair*)shared_at(moments), arrived}
#define LAYER                                                                                                          \
    {kind, kind == LSTM ? 4 : kind == GRU ? 3 : 1, norm, norm_cell, centered, swap, T(slope), batch, steps,            \
     int(hidden), int(columns), segments, ends, keep, lengths, gamma, beta, gamma_c, beta_c, h, c, z, act,             \
     (Kept*)stats, (Kept*)stats_c, raw_c}

// The steps from `begin` to `end`. w is W[columns, H], or for a block that reads it from the cache its transpose
// [H, columns], whose rows and columns are padded to multiples of 16 bytes; or null if z has the product of the only
// step.
extern "C" __global__ void __launch_bounds__(256, 1) recurrent(
    int crew, int size, int units, int samples, int lanes, int width, int wide, int chunk, int stride, int buffer,
    Bool resident, int factors, int parts, int own, int moments, double* sums, int* arrived, const T* w,
    int kind, int64 begin, int64 end, int norm, Bool norm_cell, Bool centered, Bool swap, double slope, int64 batch,
    int64 hidden, int64 columns, int64 steps, int segments, Extent ends, Bool keep, const int64* lengths,
    const T* gamma, const T* beta, const T* gamma_c, const T* beta_c, T* h, T* c, T* z, T* act, T* stats, T* stats_c,
    T* raw_c, const T* x, const T* bias, double eps, double eps_c, T* h_last, T* c_last) {
    Crew of = CREW;
    const Layer r = LAYER;
    of.place(r.hidden);
    steps_of(r, {x, bias, eps, eps_c, h_last, c_last}, of, begin, end);
}

// ---- backward: sample s of a crew, n of the batch, at step t ----------------------------------------------------------

// The buffers of the backward pass. Before a step, dh has the gradient of its h without gy; after the step, it has the
// gradient of the previous h on all paths.
struct Gradients {
    const T* gy;                      // [T, N, H]
    T *dh, *dc;                       // [N, H]
    T *dx, *dz;                       // [T, N, columns]; dz may be dx
    double *affine, *affine_c;        // [N, 2, columns], [N, 2, H]: dgamma and dbeta, and those of c
};

// What a block has of the rows of a step. If these are in its shared memory, the gradients of a and z are copied to the
// arrays after the step, by `keep_gradients`, and the others after the last step.
struct StepBack {
    Rows<T> da, dh, dc;           // da is the gradient of u: a GRU's candidate has another one of a
    Rows<double> affine, affine_c;  // dgamma of each gate, then dbeta of each

    __device__ StepBack(const Layer& r, const Gradients& d, const Crew& crew, int64 t, int64 first) {
        const int H = r.hidden, U = crew.units;
        if (crew.own) {
            const int row = (r.gates + 2) * U, sums = (2 * r.gates + 2) * U;
            da = {crew.own, row, U}, dh = {crew.own + r.gates * U, row, 0}, dc = {crew.own + (r.gates + 1) * U, row, 0};
            double* base = (double*)(crew.own + (crew.samples * row + WIDE - 1) / WIDE * WIDE);
            affine = {base, sums, U}, affine_c = {base + 2 * r.gates * U, sums, U};
            if (!d.affine) affine.base = 0;
            if (!d.affine_c) affine_c.base = 0;
        } else {
            da = {r.row(r.kind == GRU ? d.dz : d.dx, t, first, r.columns) + crew.begin, r.columns, H};
            of_arrays(r, d, crew, first);
        }
    }

    // What is summed over the steps, in the arrays
    __device__ void of_arrays(const Layer& r, const Gradients& d, const Crew& crew, int64 first) {
        const int H = r.hidden;
        dh = {r.row(d.dh, 0, first, H) + crew.begin, H, 0};
        dc = {d.dc ? r.row(d.dc, 0, first, H) + crew.begin : d.dc, H, 0};
        affine = {d.affine ? d.affine + first * 2 * r.columns + crew.begin : d.affine, 2 * r.columns, H};
        affine_c = {d.affine_c ? d.affine_c + first * 2 * H + crew.begin : d.affine_c, 2 * H, H};
    }

    // Copies these sums, where there are any
    __device__ void copy_to(const StepBack& other, const Layer& r, const Crew& crew, int s) const {
        UNITS(u, crew) {
            other.dh.at(s, 0, u) = dh.at(s, 0, u);
            if (dc.base && other.dc.base) other.dc.at(s, 0, u) = dc.at(s, 0, u);
            for (int g = 0; g < 2 * r.gates && affine.base; g++) other.affine.at(s, g, u) = affine.at(s, g, u);
            for (int g = 0; g < 2 && affine_c.base; g++) other.affine_c.at(s, g, u) = affine_c.at(s, g, u);
        }
    }
};

// Takes the gradients of a and u. Without a norm, u is z, so its gradient is a factor of the product.
__device__ inline void give_gradient(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my, int64 t,
                                     int s, int64 n, int g, int u, T da, T du) {
    const int j = g * r.hidden + crew.begin + u;
    my.da.at(s, g, u) = du;
    if (!crew.own || (r.kind == GRU && g == 2)) r.row(d.dx, t, n, r.columns)[j] = da;
    if (r.norm != NO_NORM) return;
    if (!crew.own || crew.kind == GRID) r.row(d.dz, t, n, r.columns)[j] = du;
    crew.give_factor(crew.of_step(t) + s * crew.stride + j, du);
}

// An LSTM's gradients of m and o; dh becomes that of m.
__device__ inline void lstm_output_backward(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my,
                                            int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *next = r.row(r.c, t + 1, n, H), *gy = r.row(d.gy, t, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : next;
    Kept kept = {};
    if (r.norm_cell) kept = *r.row(r.stats_c, t, n, 1);
    double total[2] = {};
    add_up<2, int>(crew.lane, crew.count, crew.lanes, total, [&](int u, T* part) {
        const int j = crew.begin + u;
        const T xhat = kept.standard(raw[j]);
        const T m = r.norm_cell && !r.raw_c ? xhat * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0) : next[j];
        const T o = act[3 * H + j], y = tanh(m), dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        T dm = dh * o * (1 - y * y);
        if (r.raw_c) {
            dm += my.dc.at(s, 0, u);
            my.dc.at(s, 0, u) = 0;
        }
        const T da = dh * y * gate_slope(r.slope, o);
        give_gradient(r, d, crew, my, t, s, n, 3, u, da, da);
        my.dh.at(s, 0, u) = dm;
        part[0] += dm * at(r.gamma_c, j, 1);
        part[1] += dm * at(r.gamma_c, j, 1) * xhat;
    });
    if (!r.norm_cell) return;
    team_sum<2>(crew.lanes, total);
    crew.give(s, OF_CELL, {total[0], total[1]});
}

__device__ inline void lstm_backward(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my,
                                     int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *c = r.row(r.c, t, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : r.row(r.c, t + 1, n, H);
    Kept kept = {};
    Through through = {};
    if (r.norm_cell) {
        kept = *r.row(r.stats_c, t, n, 1);
        through = means(r, crew, s, OF_CELL, H);
    }
    UNITS(u, crew) {
        const int j = crew.begin + u;
        T dm = my.dh.at(s, 0, u);
        if (r.norm_cell) {
            const T xhat = kept.standard(raw[j]);
            if (my.affine_c.base) {
                my.affine_c.at(s, 0, u) += dm * xhat;
                my.affine_c.at(s, 1, u) += dm;
            }
            dm = through(dm * at(r.gamma_c, j, 1), xhat, kept.scale);
        }
        const T i = act[j], f = act[H + j], g = act[2 * H + j], all = my.dc.at(s, 0, u) + dm;
        const T da[3] = {all * g * gate_slope(r.slope, i), all * c[j] * gate_slope(r.slope, f), all * i * (1 - g * g)};
#pragma unroll
        for (int k = 0; k < 3; k++) give_gradient(r, d, crew, my, t, s, n, k, u, da[k], da[k]);
        my.dc.at(s, 0, u) = all * f;
        my.dh.at(s, 0, u) = 0;
    }
}

__device__ inline void gru_backward(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my,
                                    int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *act = r.row(r.act, t, n, r.columns), *z = r.row(r.z, t, n, r.columns), *h = r.row(r.h, t, n, H);
    const T* gy = r.row(d.gy, t, n, H);
    Kept kept = {};
    if (r.norm != NO_NORM) kept = r.row(r.stats, t, n, r.segments)[r.segments - 1];
    UNITS(u, crew) {
        const int j = crew.begin + u, k = 2 * H + j;
        const T candidate = r.norm == NO_NORM ? z[k] : kept.standard(z[k]) * at(r.gamma, k, 1) + at(r.beta, k, 0);
        const T reset = act[j], update = act[H + j], y = act[k], dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        const T w = r.swap ? 1 - update : update, dn = dh * (1 - w) * (1 - y * y);
        const T of_reset = dn * candidate * gate_slope(r.slope, reset);
        const T of_update = (r.swap ? -dh : dh) * (h[j] - y) * gate_slope(r.slope, update);
        give_gradient(r, d, crew, my, t, s, n, 0, u, of_reset, of_reset);
        give_gradient(r, d, crew, my, t, s, n, 1, u, of_update, of_update);
        give_gradient(r, d, crew, my, t, s, n, 2, u, dn, dn * reset);
        my.dh.at(s, 0, u) = dh * w;
    }
}

__device__ inline void rnn_backward(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my,
                                    int64 t, int s, int64 n) {
    const int H = r.hidden;
    const T *h = r.row(r.h, t + 1, n, H), *gy = r.row(d.gy, t, n, H);
    UNITS(u, crew) {
        const int j = crew.begin + u;
        const T y = h[j], dh = my.dh.at(s, 0, u) + at(gy, j, 0);
        const T da = r.kind == RNN_TANH ? dh * (1 - y * y) : y <= 0 ? T(0) : dh;
        give_gradient(r, d, crew, my, t, s, n, 0, u, da, da);
        my.dh.at(s, 0, u) = 0;
    }
}

// What the block contributes to the sums of segment k of the row
__device__ inline void give_sums(const Layer& r, const Crew& crew, const StepBack& my, int64 t, int s, int64 n, int k) {
    const Kept kept = r.row(r.stats, t, n, r.segments)[k];
    const T* z = r.row(r.z, t, n, r.columns);
    double total[2] = {};
    for (int g = 0; g < r.gates; g++) {
        const Range range(r, crew, crew.rank, g, r.first(k), r.end(k));
        add_up<2, int>(range.first + crew.lane, range.last, crew.lanes, total, [&](int j, T* part) {
            const T v = my.da.at(s, g, j - g * r.hidden - crew.begin) * at(r.gamma, j, 1);
            part[0] += v;
            part[1] += v * kept.standard(z[j]);
        });
    }
    team_sum<2>(crew.lanes, total);
    crew.give(s, k, {total[0], total[1]});
}

// dz of segment k of the row, and its contribution to dgamma and dbeta
__device__ inline void through_norm(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my, int64 t, int s,
                                    int64 n, int k) {
    const Kept kept = r.row(r.stats, t, n, r.segments)[k];
    const Through through = means(r, crew, s, k, r.end(k) - r.first(k));
    const T* z = r.row(r.z, t, n, r.columns);
    T* dz = r.row(d.dz, t, n, r.columns);
    for (int g = 0; g < r.gates; g++) {
        const Range range(r, crew, crew.rank, g, r.first(k), r.end(k));
        for (int j = range.first + crew.lane; j < range.last; j += crew.lanes) {
            const int u = j - g * r.hidden - crew.begin;
            const T xhat = kept.standard(z[j]), v = my.da.at(s, g, u);
            if (my.affine.base) {
                my.affine.at(s, g, u) += v * xhat;
                my.affine.at(s, r.gates + g, u) += v;
            }
            const T of_z = through(v * at(r.gamma, j, 1), xhat, kept.scale);
            if (!crew.own || crew.kind == GRID) dz[j] = of_z;
            crew.give_factor(crew.of_step(t) + s * crew.stride + j, of_z);
        }
    }
}

// Copies the gradients of a step to the arrays; those of a sample that has ended are 0.
__device__ inline void keep_gradients(const Layer& r, const Gradients& d, const Crew& crew, const StepBack& my, int64 t,
                                      int s, int64 n) {
    const bool alive = r.alive(t, n);
    if (alive && !crew.own) return;
    T *dx = r.row(d.dx, t, n, r.columns), *dz = r.row(d.dz, t, n, r.columns);
    const T* factor = crew.of_step(t) + s * crew.stride;
    for (int g = 0; g < r.gates; g++) {
        UNITS(u, crew) {
            const int j = g * r.hidden + crew.begin + u;
            if (!alive) {
                dx[j] = dz[j] = 0;
                continue;
            }
            if (dx != dz && !(r.kind == GRU && g == 2)) dx[j] = my.da.at(s, g, u);
            if (crew.kind != GRID) dz[j] = factor[j];
        }
    }
}

__device__ inline void steps_back(const Layer& r, const Gradients& d, Crew& crew, int64 begin, int64 end) {
    const int H = r.hidden;
    const int n = crew.units, crews = gridDim.x / crew.size;
    if (crew.resident)
        load_matrix((T*)dynamic_shared(), int(r.columns), n, [&](int i, int c) {
            return c < crew.count ? crew.w[i * H + crew.begin + c] : T(0);
        });
    for (int64 first = blockIdx.x / crew.size * (int64)crew.samples; first < r.batch; first += crews * (int64)crew.samples) {
        const int count = int(min(int64(crew.samples), r.batch - first));
        StepBack sums(r, d, crew, 0, first);
        sums.of_arrays(r, d, crew, first);
        if (crew.w && crew.kind != GRID) {
            for (T* factor = crew.factors + threadIdx.x; factor < crew.parts; factor += blockDim.x) *factor = 0;
        }
        if (crew.own) {
            SAMPLES(s, count, crew) sums.copy_to(StepBack(r, d, crew, 0, first), r, crew, s);
        }
        crew.wait();
        for (int64 t = end - 1; t >= begin; t--) {
            const StepBack my(r, d, crew, t, first);
            SAMPLES(s, count, crew) {
                if (!r.alive(t, first + s)) continue;
                if (r.kind == LSTM) {
                    lstm_output_backward(r, d, crew, my, t, s, first + s);
                } else if (r.kind == GRU) {
                    gru_backward(r, d, crew, my, t, s, first + s);
                } else {
                    rnn_backward(r, d, crew, my, t, s, first + s);
                }
            }
            if (r.norm_cell) crew.wait();
            if (r.kind == LSTM) {
                SAMPLES(s, count, crew) {
                    if (r.alive(t, first + s)) lstm_backward(r, d, crew, my, t, s, first + s);
                }
            }
            if (r.norm != NO_NORM) {
                SAMPLES(s, count, crew) {
                    if (!r.alive(t, first + s)) continue;
                    crew.wait_for_lanes();
#pragma unroll
                    for (int k = 0; k < MOST_SEGMENTS; k++) {
                        if (k >= r.segments) break;
                        give_sums(r, crew, my, t, s, first + s, k);
                    }
                }
                crew.wait();
                SAMPLES(s, count, crew) {
                    if (!r.alive(t, first + s)) continue;
#pragma unroll
                    for (int k = 0; k < MOST_SEGMENTS; k++) {
                        if (k >= r.segments) break;
                        through_norm(r, d, crew, my, t, s, first + s, k);
                    }
                }
            }
            crew.wait();
            SAMPLES(s, count, crew) keep_gradients(r, d, crew, my, t, s, first + s);
            if (!crew.w) continue;
            multiply_all(crew, int(r.columns), n, crew.of_step(t), count,
                         [&](int s) { return r.alive(t, first + s) ? r.row(d.dz, t, first + s, r.columns) : (T*)0; },
                         [&](int s, int u, T product) {
                             if (u < crew.count && r.alive(t, first + s)) my.dh.at(s, 0, u) += product;
                         });
        }
        if (crew.own) {
            SAMPLES(s, count, crew) StepBack(r, d, crew, 0, first).copy_to(sums, r, crew, s);
        }
    }
}

// The steps from `end` back to `begin`. w is W[columns, H], for a block that reads it from the cache with rows and columns
// padded to multiples of 16 bytes, or null if the caller adds dz W to dh, [N, H].
extern "C" __global__ void __launch_bounds__(256, 1) recurrent_backward(
    int crew, int size, int units, int samples, int lanes, int width, int wide, int chunk, int stride, int buffer,
    Bool resident, int factors, int parts, int own, int moments, double* sums, int* arrived, const T* w,
    int kind, int64 begin, int64 end, int norm, Bool norm_cell, Bool centered, Bool swap, double slope, int64 batch,
    int64 hidden, int64 columns, int64 steps, int segments, Extent ends, Bool keep, const int64* lengths,
    const T* gamma, const T* beta, const T* gamma_c, const T* beta_c, T* h, T* c, T* z, T* act, T* stats, T* stats_c,
    T* raw_c, const T* gy, T* dh, T* dc, T* dx, T* dz, double* affine, double* affine_c) {
    Crew of = CREW;
    const Layer r = LAYER;
    of.place(r.hidden);
    steps_back(r, {gy, dh, dc, dx, dz, affine, affine_c}, of, begin, end);
}

#endif
