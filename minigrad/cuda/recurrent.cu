// Recurrent layers: the steps of one layer, with the samples of a batch divided among blocks of threads.
//
// A step computes  z = W h + b,  u = LN(z) or z,  a = u + x,  then gates and state, where x is the input's projection.
// The norm is applied segment by segment, to z (NORM_STATE) or to z + x (NORM_SUM; then a = u). LN is RMSNorm if the
// layer is not centered: then the means below are 0. A block takes its samples
// through all steps, computing the products itself with a matrix that stays in the cache, or through a single step whose
// product was computed before. The threads of a block exchange rows through memory, between barriers.

#if FLOATING

// In the order of KINDS and NORMS in ops/recurrent.pyx
enum Kind { RNN_TANH, RNN_RELU, LSTM, GRU };
enum { NO_NORM, NORM_STATE, NORM_SUM };

const int MOST_THREADS = 512, MOST_SAMPLES = 4;
const int MOST_FACTORS = sizeof(T) == 4 ? 1024 : 736;  // rows of a matrix of a mebibyte with at most four gates

// The statistics kept of a normalized row: xhat = (x - center) scale + offset
struct Kept {
    T center, scale, offset;

    __device__ T standard(T x) const { return (x - center) * scale + offset; }
};

// A layer of N samples and H units, columns = G H; pointers are null for parts that the layer does not have.
struct Layer {
    int norm;
    Bool norm_cell, centered, swap;  // swap: the GRU's update gate weights the new state instead of the old one
    T slope;                    // of the hard sigmoid; 0 for the logistic function
    int64 batch, hidden, columns, steps;
    int segments;
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
    __device__ int64 kept(int64 t) const { return keep ? t : 0; }
    __device__ bool alive(int64 t, int64 n) const { return !lengths || t < lengths[n]; }
    __device__ bool ends_at(int64 t, int64 n) const { return t + 1 == (lengths ? lengths[n] : steps); }
    __device__ int64 end(int s) const { return ends.n[s]; }
};

// for (int64 j : this thread's positions in a row)
#define PLACES(j, n) for (int64 j = threadIdx.x; j < (n); j += blockDim.x)

__device__ inline T gate(T slope, T a) {
    if (slope == 0) return 1 / (1 + exp(-a));
    const T y = slope * a + T(0.5);
    return y < 0 ? T(0) : y > 1 ? T(1) : y;
}

// The derivative of `gate`, from its result; NaN stays NaN
__device__ inline T gate_slope(T slope, T y) {
    return slope == 0 ? y * (1 - y) : y > 0 && y < 1 ? slope : y != y ? y : T(0);
}

__device__ inline T at(const T* p, int64 j, T missing) { return p ? p[j] : missing; }

// ---- products ---------------------------------------------------------------------------------------------------------

// sum[s] += factor[s] w, if the row is one of the matrix
template <int S>
__device__ inline void add_products(const T* factor, bool inside, const Pack<WIDE>& w, T (*sum)[WIDE]) {
#pragma unroll
    for (int s = 0; s < S; s++) {
        const T f = factor[s * MOST_FACTORS];
#pragma unroll
        for (int e = 0; e < WIDE; e++) {
            const T more = sum[s][e] + f * w.v[e];
            sum[s][e] = inside ? more : sum[s][e];
        }
    }
}

// store(s, j, sum over i of row(s)[i] matrix[i, j]) for S rows of k numbers and matrix[k, n], whose rows begin at multiples
// of 16 bytes. Neighbouring threads read neighbouring packs of columns, and each pack once for all S rows. A column's sum
// is divided among `deep` threads, each of which requests AHEAD packs before it uses the first, as the cache takes hundreds
// of cycles to answer. The order of summation depends on k and n alone.
template <int S, class Row, class Store>
__device__ void multiply(int64 k, int64 n, const T* matrix, T* factors, T* parts, Row row, Store store) {
    const int AHEAD = S == 1 ? 8 : 4, packs = int((n + WIDE - 1) / WIDE);
    int wide = 32;
    while (wide < packs && wide < blockDim.x) wide *= 2;
    const int lane = threadIdx.x % wide, group = threadIdx.x / wide, deep = blockDim.x / wide, rows = int(k);
    __syncthreads();
    for (int s = 0; s < S; s++) {
        const T* from = row(s);
        PLACES(i, k) factors[s * MOST_FACTORS + i] = from ? from[i] : T(0);
    }
    __syncthreads();
    for (int first = 0; first < packs; first += wide) {
        T sum[S][WIDE] = {};
        if (first + lane < packs) {
            const Pack<WIDE>* column = (const Pack<WIDE>*)matrix + first + lane;
            int i = group;
            for (; i + (AHEAD - 1) * deep < rows; i += AHEAD * deep) {
                Pack<WIDE> w[AHEAD];
#pragma unroll
                for (int b = 0; b < AHEAD; b++) w[b] = column[(i + b * deep) * packs];
#pragma unroll
                for (int b = 0; b < AHEAD; b++) add_products<S>(factors + i + b * deep, true, w[b], sum);
            }
            if (i < rows) {  // no branches below, past which the compiler would move the loads
                Pack<WIDE> w[AHEAD];
#pragma unroll
                for (int b = 0; b < AHEAD; b++) w[b] = column[min(i + b * deep, rows - 1) * packs];
#pragma unroll
                for (int b = 0; b < AHEAD; b++) {
                    const int row = i + b * deep;
                    add_products<S>(factors + min(row, rows - 1), row < rows, w[b], sum);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < S; s++) {
            __syncthreads();
            for (int e = 0; e < WIDE; e++) parts[threadIdx.x * WIDE + e] = sum[s][e];
            __syncthreads();
            for (int q = threadIdx.x; q < wide * WIDE && first * WIDE + q < n; q += blockDim.x) {
                T total = parts[q];
                for (int g = 1; g < deep; g++) total += parts[g * wide * WIDE + q];
                store(s, int64(first * WIDE + q), total);
            }
        }
    }
    __syncthreads();
}

// ---- one row, normalized by a block -----------------------------------------------------------------------------------

// With any center c near the mean, and d = x - c:  mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2
// c is the mean of the first four elements. If it is so far off that the difference would cancel, a second pass uses the
// mean from the first one as its center.
__device__ inline Kept standardize(int64 width, const T* x, double eps, bool centered) {
    if (!centered) {
        double square[1] = {};
        add_up<1>(threadIdx.x, width, blockDim.x, square, [&](int64 j, T* part) { part[0] += x[j] * x[j]; });
        team_sum<1>(blockDim.x, square);
        return {0, 1 / sqrt(T(square[0] / width + eps)), 0};
    }
    T center = 0;
    for (int k = 0; k < 4; k++) center += x[width < 4 ? 0 : k] * T(0.25);
    for (bool first = true;; first = false) {
        double total[2] = {};
        add_up<2>(threadIdx.x, width, blockDim.x, total, [&](int64 j, T* part) {
            const T d = x[j] - center;
            part[0] += d;
            part[1] += d * d;
        });
        team_sum<2>(blockDim.x, total);
        const double shift = total[0] / width, variance = total[1] / width - shift * shift;
        if (!first || shift * shift <= 4 * variance) {
            const T scale = 1 / sqrt(T((variance < 0 ? 0 : variance) + eps));
            return {center, scale, T(-shift * scale)};
        }
        center = T(center + shift);
    }
}

// dx = rstd (h - mean(h) - xhat mean(h xhat)) with h = g gamma, and dgamma += g xhat, dbeta += g, total[2, width]; dx may
// be g
__device__ inline void through_norm(int64 width, const T* x, const Kept& s, bool centered, const T* gamma, const T* g,
                                    T* dx, double* dgamma, double* dbeta) {
    double total[2] = {};
    add_up<2>(threadIdx.x, width, blockDim.x, total, [&](int64 j, T* part) {
        const T h = g[j] * at(gamma, j, 1);
        part[0] += h;
        part[1] += h * s.standard(x[j]);
    });
    team_sum<2>(blockDim.x, total);
    const T mean = centered ? T(total[0] / width) : T(0), slope = T(total[1] / width);
    PLACES(j, width) {
        const T xhat = s.standard(x[j]), v = g[j];
        if (dgamma) {
            dgamma[j] += v * xhat;
            dbeta[j] += v;
        }
        dx[j] = (v * at(gamma, j, 1) - mean - xhat * slope) * s.scale;
    }
}

// ---- forward: sample n at step t --------------------------------------------------------------------------------------

// i, f, o = gate(a_i), gate(a_f), gate(a_o), g = tanh(a_g), c' = f c + i g, m = LN(c') or c', h = o tanh(m); the next
// step gets c', or m. The order in memory is i, f, g, o.
__device__ inline void lstm(const Layer& r, int64 t, int64 n, double eps_c, T* a, T* h) {
    const int64 H = r.hidden;
    const T* c = r.row(r.c, t, n, H);
    T *next = r.row(r.c, t + 1, n, H), *raw = r.row(r.raw_c, r.kept(t), n, H);
    PLACES(j, H) {
        const T i = gate(r.slope, a[j]), f = gate(r.slope, a[H + j]), g = tanh(a[2 * H + j]), o = gate(r.slope, a[3 * H + j]);
        a[j] = i, a[H + j] = f, a[2 * H + j] = g, a[3 * H + j] = o;
        const T y = f * c[j] + i * g;
        next[j] = y;
        if (!r.norm_cell) h[j] = o * tanh(y);
    }
    if (!r.norm_cell) return;
    __syncthreads();
    const Kept s = standardize(H, next, eps_c, r.centered);
    if (threadIdx.x == 0) *r.row(r.stats_c, r.kept(t), n, 1) = s;
    __syncthreads();  // all threads have read the first four elements, from which `standardize` took its center
    PLACES(j, H) {
        const T m = s.standard(next[j]) * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0);
        if (raw) {  // the normalized cell is carried on
            raw[j] = next[j];
            next[j] = m;
        }
        h[j] = a[3 * H + j] * tanh(m);
    }
}

// r, z = gate(a_r), gate(a_z), n = tanh(x_n + r u_n), h' = (1 - z) n + z h, or with swap z n + (1 - z) h. The order in
// memory is r, z, n.
__device__ inline void gru(const Layer& r, int64 t, int64 n, const T* x, T* a, T* next) {
    const int64 H = r.hidden;
    const T* h = r.row(r.h, t, n, H);
    PLACES(j, H) {
        const T reset = gate(r.slope, a[j]), update = gate(r.slope, a[H + j]);
        const T y = tanh(x[2 * H + j] + reset * a[2 * H + j]), w = r.swap ? 1 - update : update;
        a[j] = reset, a[H + j] = update, a[2 * H + j] = y;
        next[j] = y + w * (h[j] - y);
    }
}

template <int kind>
__device__ void step(const Layer& r, int64 t, int64 n, const T* inputs, const T* bias, double eps, double eps_c,
                     T* h_last, T* c_last) {
    const int64 H = r.hidden;
    T *h = r.row(r.h, t + 1, n, H), *c = r.row(r.c, t + 1, n, H);
    if (!r.alive(t, n)) {
        PLACES(j, H) {
            h[j] = 0;
            if (c) c[j] = 0;
        }
        return;
    }
    const T* x = r.row(inputs, t, n, r.columns);
    T* z = r.row(r.z, r.kept(t), n, r.columns);
    T* a = kind == LSTM || kind == GRU ? r.row(r.act, r.kept(t), n, r.columns) : h;
    // x is added to u here except in the columns of a GRU's candidate, where the reset gate multiplies u first
    const int64 added = kind == GRU ? 2 * H : r.columns;
    PLACES(j, r.columns) {
        const T v = z[j] + at(bias, j, 0) + (r.norm == NORM_SUM ? x[j] : T(0));
        z[j] = v;
        if (r.norm == NO_NORM) a[j] = j < added ? v + x[j] : v;
    }
    __syncthreads();
    if (r.norm != NO_NORM) {
        for (int64 s = 0, begin = 0; s < r.segments; begin = r.end(s++)) {
            const Kept kept = standardize(r.end(s) - begin, z + begin, eps, r.centered);
            if (threadIdx.x == 0) r.row(r.stats, r.kept(t), n, r.segments)[s] = kept;
            for (int64 j = begin + threadIdx.x; j < r.end(s); j += blockDim.x)
                a[j] = kept.standard(z[j]) * at(r.gamma, j, 1) + at(r.beta, j, 0) +
                       (r.norm == NORM_STATE && j < added ? x[j] : T(0));
        }
        __syncthreads();
    }
    if (kind == LSTM) {
        lstm(r, t, n, eps_c, a, h);
    } else if (kind == GRU) {
        gru(r, t, n, x, a, h);
    } else {
        PLACES(j, H) h[j] = kind == RNN_TANH ? tanh(h[j]) : h[j] < 0 ? T(0) : h[j];
    }
    if (r.ends_at(t, n)) {
        PLACES(j, H) {
            r.row(h_last, 0, n, H)[j] = h[j];
            if (c) r.row(c_last, 0, n, H)[j] = c[j];
        }
    }
}

template <int kind, int S>
__device__ void steps_of(const Layer& r, int64 begin, int64 end, const T* transposed, T* factors, T* parts,
                         const T* inputs, const T* bias, double eps, double eps_c, T* h_last, T* c_last) {
    for (int64 first = blockIdx.x * (int64)S; first < r.batch; first += gridDim.x * (int64)S) {
        for (int64 t = begin; t < end; t++) {
            if (transposed)
                multiply<S>(
                    r.hidden, r.columns, transposed, factors, parts,
                    [&](int s) { return first + s < r.batch ? r.row(r.h, t, first + s, r.hidden) : (T*)0; },
                    [&](int s, int64 j, T z) {
                        if (first + s < r.batch) r.row(r.z, r.kept(t), first + s, r.columns)[j] = z;
                    });
            for (int64 n = first; n < first + S && n < r.batch; n++)
                step<kind>(r, t, n, inputs, bias, eps, eps_c, h_last, c_last);
        }
    }
}

#define EVERY_CELL(f, samples, ...)                                      \
    switch (kind * 8 + samples) {                                        \
        case RNN_TANH * 8 + 1: return f<RNN_TANH, 1>(__VA_ARGS__);       \
        case RNN_TANH * 8 + 4: return f<RNN_TANH, 4>(__VA_ARGS__);       \
        case RNN_RELU * 8 + 1: return f<RNN_RELU, 1>(__VA_ARGS__);       \
        case RNN_RELU * 8 + 4: return f<RNN_RELU, 4>(__VA_ARGS__);       \
        case LSTM * 8 + 1: return f<LSTM, 1>(__VA_ARGS__);               \
        case LSTM * 8 + 4: return f<LSTM, 4>(__VA_ARGS__);               \
        case GRU * 8 + 1: return f<GRU, 1>(__VA_ARGS__);                 \
        case GRU * 8 + 4: return f<GRU, 4>(__VA_ARGS__);                 \
    }

// The steps from `begin` to `end`. `transposed` is W as [H, columns], with rows padded to
// 16 bytes, or null if z has the product of the only step.
// x[T, N, columns] is the input's projection, h_last and c_last [N, H] the states after a sample's last step.
extern "C" __global__ void __launch_bounds__(512, 1) recurrent(
    int kind, int samples, int64 begin, int64 end, int norm, Bool norm_cell, Bool centered, Bool swap, double slope, int64 batch,
    int64 hidden, int64 columns, int64 steps, int segments, Extent ends, Bool keep, const int64* lengths,
    const T* gamma, const T* beta, const T* gamma_c, const T* beta_c, T* h, T* c, T* z, T* act, T* stats, T* stats_c,
    T* raw_c, const T* transposed, const T* x, const T* bias, double eps, double eps_c, T* h_last, T* c_last) {
    const Layer r = {norm, norm_cell, centered, swap, T(slope), batch, hidden, columns, steps, segments, ends, keep, lengths,
                     gamma, beta, gamma_c, beta_c, h, c, z, act, (Kept*)stats, (Kept*)stats_c, raw_c};
    __shared__ T factors[MOST_SAMPLES * MOST_FACTORS];
    __shared__ Pack<WIDE> parts[MOST_THREADS];
    EVERY_CELL(steps_of, samples, r, begin, end, transposed, factors, parts->v, x, bias, eps, eps_c, h_last, c_last)
}

// ---- backward: sample n at step t -------------------------------------------------------------------------------------

// The buffers of the backward pass. Before a step, `carry` has the gradient of its h without gy; after the step, it has
// the gradient of the previous h on all paths except through the product.
struct Gradients {
    const T* gy;                      // [T, N, H]
    T *carry, *dc;                    // [N, H]
    T *dx, *dz;                       // [T, N, columns]; dz may be dx
    double *affine, *affine_c;        // [N, 2, columns], [N, 2, H]: dgamma and dbeta, and those of c
};

__device__ inline void lstm_backward(const Layer& r, const Gradients& d, int64 t, int64 n, const T* gy, T* carry, T* dx) {
    const int64 H = r.hidden;
    const T *a = r.row(r.act, t, n, r.columns), *c = r.row(r.c, t, n, H), *next = r.row(r.c, t + 1, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : next;
    T* dc = r.row(d.dc, 0, n, H);
    Kept kept = {};
    if (r.norm_cell) kept = *r.row(r.stats_c, t, n, 1);
    PLACES(j, H) {
        const T m = r.norm_cell && !r.raw_c ? kept.standard(next[j]) * at(r.gamma_c, j, 1) + at(r.beta_c, j, 0) : next[j];
        const T o = a[3 * H + j], y = tanh(m), dh = carry[j] + at(gy, j, 0);
        T dm = dh * o * (1 - y * y);
        if (r.raw_c) {
            dm += dc[j];
            dc[j] = 0;
        }
        dx[3 * H + j] = dh * y * gate_slope(r.slope, o);
        carry[j] = dm;
    }
    if (r.norm_cell) {
        double* affine = d.affine_c ? d.affine_c + n * 2 * H : d.affine_c;
        through_norm(H, raw, kept, r.centered, r.gamma_c, carry, carry, affine, affine ? affine + H : affine);
    }
    PLACES(j, H) {
        const T i = a[j], f = a[H + j], g = a[2 * H + j], all = dc[j] + carry[j];
        dx[j] = all * g * gate_slope(r.slope, i);
        dx[H + j] = all * c[j] * gate_slope(r.slope, f);
        dx[2 * H + j] = all * i * (1 - g * g);
        dc[j] = all * f;
        carry[j] = 0;
    }
}

__device__ inline void gru_backward(const Layer& r, int64 t, int64 n, const T* gy, T* carry, T* dx, T* dz) {
    const int64 H = r.hidden;
    const T *a = r.row(r.act, t, n, r.columns), *z = r.row(r.z, t, n, r.columns), *h = r.row(r.h, t, n, H);
    Kept kept = {};
    if (r.norm != NO_NORM) kept = r.row(r.stats, t, n, r.segments)[r.segments - 1];
    PLACES(j, H) {
        const int64 k = 2 * H + j;
        const T u = r.norm == NO_NORM ? z[k] : kept.standard(z[k]) * at(r.gamma, k, 1) + at(r.beta, k, 0);
        const T reset = a[j], update = a[H + j], y = a[k], dh = carry[j] + at(gy, j, 0);
        const T w = r.swap ? 1 - update : update, dn = dh * (1 - w) * (1 - y * y);
        dx[j] = dz[j] = dn * u * gate_slope(r.slope, reset);
        dx[H + j] = dz[H + j] = (r.swap ? -dh : dh) * (h[j] - y) * gate_slope(r.slope, update);
        dx[k] = dn;
        dz[k] = dn * reset;
        carry[j] = dh * w;
    }
}

template <int kind>
__device__ void step_backward(const Layer& r, const Gradients& d, int64 t, int64 n) {
    const int64 H = r.hidden;
    T *dx = r.row(d.dx, t, n, r.columns), *dz = r.row(d.dz, t, n, r.columns), *carry = r.row(d.carry, 0, n, H);
    if (!r.alive(t, n)) {
        PLACES(j, r.columns) dx[j] = dz[j] = 0;
        return;
    }
    const T* gy = r.row(d.gy, t, n, H);
    if (kind == LSTM) {
        lstm_backward(r, d, t, n, gy, carry, dx);
    } else if (kind == GRU) {
        gru_backward(r, t, n, gy, carry, dx, dz);
    } else {
        const T* h = r.row(r.h, t + 1, n, H);
        PLACES(j, H) {
            const T y = h[j], dh = carry[j] + at(gy, j, 0);
            dx[j] = kind == RNN_TANH ? dh * (1 - y * y) : y <= 0 ? T(0) : dh;
            carry[j] = 0;
        }
    }
    if (r.norm == NO_NORM) return;
    __syncthreads();
    double* affine = d.affine ? d.affine + n * 2 * r.columns : d.affine;
    for (int64 s = 0, begin = 0; s < r.segments; begin = r.end(s++)) {
        const Kept kept = r.row(r.stats, t, n, r.segments)[s];
        through_norm(r.end(s) - begin, r.row(r.z, t, n, r.columns) + begin, kept, r.centered,
                     r.gamma ? r.gamma + begin : r.gamma, (kind == GRU ? dz : dx) + begin, dz + begin, affine ? affine + begin : affine,
                     affine ? affine + r.columns + begin : affine);
    }
}

template <int kind, int S>
__device__ void steps_back(const Layer& r, const Gradients& d, int64 begin, int64 end, const T* w, T* factors,
                           T* parts) {
    for (int64 first = blockIdx.x * (int64)S; first < r.batch; first += gridDim.x * (int64)S) {
        for (int64 t = end - 1; t >= begin; t--) {
            for (int64 n = first; n < first + S && n < r.batch; n++) step_backward<kind>(r, d, t, n);
            // dz is 0 for samples that have ended
            if (w)
                multiply<S>(
                    r.columns, r.hidden, w, factors, parts,
                    [&](int s) { return first + s < r.batch ? r.row(d.dz, t, first + s, r.columns) : (T*)0; },
                    [&](int s, int64 j, T dh) {
                        if (first + s < r.batch) r.row(d.carry, 0, first + s, r.hidden)[j] += dh;
                    });
        }
    }
}

// The steps from `end` back to `begin`. w is W[columns, H] with rows padded to 16 bytes, or null if the caller adds dz W to dh, [N, H].
extern "C" __global__ void __launch_bounds__(512, 1) recurrent_backward(
    int kind, int samples, int64 begin, int64 end, int norm, Bool norm_cell, Bool centered, Bool swap, double slope, int64 batch,
    int64 hidden, int64 columns, int64 steps, int segments, Extent ends, Bool keep, const int64* lengths,
    const T* gamma, const T* beta, const T* gamma_c, const T* beta_c, T* h, T* c, T* z, T* act, T* stats, T* stats_c,
    T* raw_c, const T* w, const T* gy, T* dh, T* dc, T* dx, T* dz, double* affine, double* affine_c) {
    const Layer r = {norm, norm_cell, centered, swap, T(slope), batch, hidden, columns, steps, segments, ends, keep, lengths,
                     gamma, beta, gamma_c, beta_c, h, c, z, act, (Kept*)stats, (Kept*)stats_c, raw_c};
    const Gradients d = {gy, dh, dc, dx, dz, affine, affine_c};
    __shared__ T factors[MOST_SAMPLES * MOST_FACTORS];
    __shared__ Pack<WIDE> parts[MOST_THREADS];
    EVERY_CELL(steps_back, samples, r, d, begin, end, w, factors, parts->v)
}

#endif
