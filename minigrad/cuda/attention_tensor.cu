// Attention on tensor cores, in float32 and for widths up to 128: as in attention.cu, in products by warps.
//
// A warp computes 16 rows of a result. The WARPS warps of a block share tiles of the other factor in shared memory. The
// weights stay in registers: the elements of a sum that a lane has, c[g, 2 t] and c[g, 2 t + 1], become its elements
// a[g, t] and a[g, t + 4] of the next product, so the terms of that product are in the order 0, 2, 4, 6, 1, 3, 5, 7.
// `fast` rounds all factors to TF32.

#if SINGLE
#include "attention.cuh"

const int WARPS = 4, HEIGHT = 16 * WARPS;

// `count` rows of a matrix in shared memory, with zeros up to a width of W. The lanes of a warp read x[g, t] and
// x[2 t, g] from different banks.
template <int count, int W>
struct Panel {
    Pack<WIDE> rows[count][W / WIDE + 1];

    enum { NEXT = W + WIDE };  // elements from a row to the next
    __device__ const float* at(int row, int column) const { return rows[0][0].v + row * NEXT + column; }
    // Reads the rows of x[length, columns] from `first` on.
    __device__ __forceinline__ void read(const float* x, int64 first, int64 length, int columns) {
        const int left = length - first < count ? int(length - first) : count;
        x += first * columns;
        if (columns % WIDE == 0 && is_aligned(x)) {
            const int STEP = 32 * WARPS / (W / WIDE), column = threadIdx.x % (W / WIDE) * WIDE;
            int row = threadIdx.x / (W / WIDE);
            x += row * columns + column;
            if (column >= columns) row = count;  // zeros
#pragma unroll
            for (int k = 0; k < count / STEP; k++, x += STEP * columns) {
                Pack<WIDE> p = {};
                if (row + k * STEP < left) p = *(const Pack<WIDE>*)x;
                rows[threadIdx.x / (W / WIDE) + k * STEP][column / WIDE] = p;
            }
        } else {
#pragma unroll 1
            for (int u = threadIdx.x; u < count * W; u += 32 * WARPS) {
                const int row = u / W, column = u % W;
                rows[row][column / WIDE].v[column % WIDE] =
                    row < left && column < columns ? x[row * columns + column] : 0;
            }
        }
    }
};

// The 16 rows of x[length, columns] of which this lane has elements of the rows `row` and row + 8. They stay in
// registers if there are enough.
template <int W>
struct Rows {
    static const bool KEPT = W <= 64;
    const float* from[2];
    int columns;
    float kept[KEPT ? W / 8 : 1][4];

    __device__ Rows(const float* x, int64 length, int columns, int64 row) : columns(columns) {
        for (int r = 0; r < 2; r++) from[r] = row + 8 * r < length ? x + (row + 8 * r) * columns : nullptr;
#pragma unroll
        for (int e = 0; e < W / 8 && KEPT; e++) read(e, kept[KEPT ? e : 0]);
    }
    __device__ void read(int e, float (&to)[4]) const {
UNROLLED(k, 4) {
            const int column = 8 * e + threadIdx.x % 4 + k / 2 * 4;
            to[k] = from[k % 2] && column < columns ? from[k % 2][column] : 0;
        }
    }
    // s = the products of these rows with the rows of a panel
    template <bool full, int count>
    __device__ __forceinline__ void multiply(const Panel<count, W>& panel, float (&s)[count / 8][4]) const {
        const float* const theirs = panel.at(threadIdx.x % 32 / 4, threadIdx.x % 4);
UNROLLED(c, count / 8) s[c][0] = s[c][1] = s[c][2] = s[c][3] = 0;
#pragma unroll(KEPT ? W / 8 : 1)
        for (int e = 0; e < W / 8; e++) {
            float mine[4];
            if (!KEPT) read(e, mine);
#pragma unroll
            for (int k = 0; k < 4 && KEPT; k++) mine[k] = kept[KEPT ? e : 0][k];
            const Factor<full, 4> a(mine);
UNROLLED(c, count / 8) {
                const float* const b = theirs + 8 * c * panel.NEXT + 8 * e;
                multiply_add(a, Factor<full, 2>({b[0], b[4]}), s[c]);
            }
        }
    }
};

// sum += p x, where x are the rows of a panel, and p is the result of a product with them
template <bool full, int count, int W>
__device__ __forceinline__ void combine(const float (&p)[count / 8][4], const Panel<count, W>& panel,
                                        float (&sum)[W / 8][4]) {
    const float* const theirs = panel.at(threadIdx.x % 4 * 2, threadIdx.x % 32 / 4);
UNROLLED(c, count / 8) {
        const float mine[4] = {p[c][0], p[c][2], p[c][1], p[c][3]};
        const Factor<full, 4> a(mine);
UNROLLED(m, W / 8) {
            const float* const b = theirs + 8 * c * panel.NEXT + 8 * m;
            multiply_add(a, Factor<full, 2>({b[0], b[panel.NEXT]}), sum[m]);
        }
    }
}

// The mask of head n
__device__ inline const char* mask_of(const Attention& a, int64 n) {
    return (const char*)a.mask + (n / a.heads * a.mask_step[0] + n % a.heads * a.mask_step[1]);
}

// f(c, x[c]) for all c. The elements rotate through the first place, where f finds them, so that its code is there once
// and they stay in registers, which have no index.
template <int tiles, class F>
__device__ __forceinline__ void in_turn(float (&x)[tiles][4], F f) {
#pragma unroll 1
    for (int c = 0; c < tiles; c++) {
        f(c, x[0]);
UNROLLED(k, 4) {
            const float first = x[0][k];
#pragma unroll
            for (int next = 1; next < tiles; next++) x[next - 1][k] = x[next][k];
            x[tiles - 1][k] = first;
        }
    }
}

// Turns the products of the rows row and row + 8 with the columns from `column` on into scores. Queries are the rows,
// or the columns if `turned`.
template <bool turned, int tiles>
__device__ __forceinline__ void score(const Attention& a, const char* mask, int64 row, int64 column,
                                      float (&s)[tiles][4]) {
    const int t = threadIdx.x % 4;
    int begin[2], end[2];  // the columns that see, or are seen by, each of the two rows
UNROLLED(r, 2) {
        const int64 i = row + 8 * r, all = turned ? a.queries : a.keys;
        const int64 low = turned && a.causal ? i : 0, high = !turned && a.causal && i + 1 < all ? i + 1 : all;
        begin[r] = low <= column ? 0 : low - column < 8 * tiles ? int(low - column) : 8 * tiles;
        end[r] = i >= (turned ? a.keys : a.queries) ? 0 : high - column < 8 * tiles ? int(high - column) : 8 * tiles;
    }
UNROLLED(c, tiles) {
UNROLLED(k, 4) {
            const int at = 8 * c + 2 * t + k % 2;
            s[c][k] = at >= begin[k / 2] && at < end[k / 2] ? s[c][k] * a.scale : -infinity<T>();
        }
    }
    if (!a.mask_kind) return;
    in_turn(s, [&](int c, float (&x)[4]) {
UNROLLED(k, 4) {
            const int64 r = row + k / 2 * 8, at = column + 8 * c + 2 * t + k % 2;
            if (x[k] == -infinity<T>()) continue;
            x[k] = a.masked(x[k], mask + (turned ? at : r) * a.mask_step[2] + (turned ? r : at) * a.mask_step[3]);
        }
    });
}

// Multiplies by the factors of dropout.
template <bool turned, int tiles>
__device__ __forceinline__ void drop(const Attention& a, int64 n, int64 row, int64 column, float (&p)[tiles][4]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    in_turn(p, [&](int c, float (&x)[4]) {
        float f[4];
UNROLLED(k, 4) {
            const int64 r = row + k / 2 * 8, at = column + 8 * c + 2 * t;
            if (turned) {
                a.survive(n, at + k % 2, r - g % 4, f);
                x[k] *= g & 2 ? (g & 1 ? f[3] : f[2]) : (g & 1 ? f[1] : f[0]);
            } else {
                if (k % 2 == 0) a.survive(n, r, at - at % 4, f);
                x[k] *= t & 1 ? f[2 + k % 2] : f[k % 2];
            }
        }
    });
}

// merge over the four lanes that have parts of the same rows
template <class F>
__device__ float across_lanes(float x, F merge) {
    x = merge(x, __shfl_xor_sync(~0u, x, 1));
    return merge(x, __shfl_xor_sync(~0u, x, 2));
}

// The rows row and row + 8 of to[length, columns] = factor * sum
template <int tiles>
__device__ __forceinline__ void write(float* to, int64 length, int columns, int64 row, const float (&factor)[2],
                                      const float (&sum)[tiles][4]) {
UNROLLED(r, 2) {
        if (row + 8 * r >= length) continue;
        float* const here = to + (row + 8 * r) * columns;
UNROLLED(k, 2 * tiles) {
            const int column = k / 2 * 8 + threadIdx.x % 4 * 2 + k % 2;
            if (column < columns) here[column] = factor[r] * sum[k / 2][2 * r + k % 2];
        }
    }
}

// The last queries, which see the most keys, come first.
template <bool full, int W, int STEP>
__device__ __forceinline__ void attend(const Attention& a, int64 jobs, Panel<STEP, W>& of_keys,
                                       Panel<STEP, W>& of_values, const T* q, const T* k, const T* v, T* y,
                                       T* statistics) {
    const int64 tiles = (a.queries + HEIGHT - 1) / HEIGHT, all = jobs / tiles;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 n = job % all, top = (tiles - 1 - job / all) * HEIGHT, bottom = top + threadIdx.x / 32 * 16 + 16;
        const int64 row = bottom - 16 + threadIdx.x % 32 / 4;
        const int64 before = n / a.group * a.rows;
        const T *keys = k + before * a.width, *values = v + before * a.value_width;
        const char* const mask = mask_of(a, n);
        const Rows<W> mine(q + n * a.queries * a.width, a.queries, a.width, row);
        const int64 end = a.causal && top + HEIGHT < a.keys ? top + HEIGHT : a.keys;
        float out[W / 8][4] = {}, most[2] = {-infinity<T>(), -infinity<T>()}, total[2] = {}, inverse[2];
        for (int64 first = 0; first < end; first += STEP) {
            __syncthreads();
            of_keys.read(keys, first, a.keys, a.width);
            of_values.read(values, first, a.keys, a.value_width);
            __syncthreads();
            if (a.causal && first >= bottom) continue;  // this warp sees none of these keys
            float s[STEP / 8][4];
            mine.template multiply<full>(of_keys, s);
            score<false>(a, mask, row, first, s);
UNROLLED(r, 2) {
                float found = most[r];
UNROLLED(c, STEP / 4) {
                    const float x = s[c / 2][2 * r + c % 2];
                    if (x > found) found = x;
                }
                found = across_lanes(found, [](float x, float y) { return x > y ? x : y; });
                const float shift = found == -infinity<T>() ? 0 : found;  // so that NaN shows, and -inf gives 0
                const float factor = exp(most[r] - shift);
                most[r] = found;
                total[r] *= factor;
UNROLLED(m, W / 4) out[m / 2][2 * r + m % 2] *= factor;
UNROLLED(c, STEP / 4) {
                    float& x = s[c / 2][2 * r + c % 2];
                    x = exp(x - shift);
                    total[r] += x;
                }
            }
            if (a.dropout > 0) drop<false>(a, n, row, first, s);
            combine<full>(s, of_values, out);
        }
UNROLLED(r, 2) {
            total[r] = across_lanes(total[r], [](float x, float y) { return x + y; });
            inverse[r] = total[r] == 0 ? 0 : 1 / total[r];
            const int64 i = row + 8 * r;
            if (threadIdx.x % 4 || i >= a.queries) continue;
            T* const to = statistics + 2 * (n * a.queries + i);
            to[0] = most[r] == -infinity<T>() ? 0 : most[r];
            to[1] = inverse[r];
        }
        write(y + n * a.queries * a.value_width, a.queries, a.value_width, row, inverse, out);
        if (a.hides()) mend({a, q, k, v}, n, bottom - 16, 16, 0, a.value_width, y);
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------

template <bool full, int W, int STEP>
__device__ __forceinline__ void attend_backward_query(const Attention& a, int64 jobs, Panel<STEP, W>& of_keys,
                                                      Panel<STEP, W>& of_values, const T* q, const T* k, const T* v,
                                                      const T* statistics, const T* g, const T* delta, T* dq) {
    const int64 tiles = (a.queries + HEIGHT - 1) / HEIGHT, all = jobs / tiles;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 n = job % all, top = (tiles - 1 - job / all) * HEIGHT, bottom = top + threadIdx.x / 32 * 16 + 16;
        const int64 row = bottom - 16 + threadIdx.x % 32 / 4;
        const T *keys = k + n / a.group * a.rows * a.width, *values = v + n / a.group * a.rows * a.value_width;
        const char* const mask = mask_of(a, n);
        const Rows<W> mine(q + n * a.queries * a.width, a.queries, a.width, row);
        const Rows<W> given(g + n * a.queries * a.value_width, a.queries, a.value_width, row);
        float shift[2], inverse[2], mean[2], out[W / 8][4] = {};
UNROLLED(r, 2) {
            const int64 i = row + 8 * r, at = n * a.queries + (i < a.queries ? i : a.queries - 1);
            shift[r] = statistics[2 * at], inverse[r] = statistics[2 * at + 1], mean[r] = delta[at];
        }
        const int64 end = a.causal && top + HEIGHT < a.keys ? top + HEIGHT : a.keys;
        for (int64 first = 0; first < end; first += STEP) {
            __syncthreads();
            of_keys.read(keys, first, a.keys, a.width);
            of_values.read(values, first, a.keys, a.value_width);
            __syncthreads();
            if (a.causal && first >= bottom) continue;
            float s[STEP / 8][4], dp[STEP / 8][4];
            mine.template multiply<full>(of_keys, s);
            given.template multiply<full>(of_values, dp);
            score<false>(a, mask, row, first, s);
            if (a.dropout > 0) drop<false>(a, n, row, first, dp);
UNROLLED(c, STEP / 2) {
                const int r = c % 4 / 2;
                float& x = s[c / 4][c % 4];
                x = exp(x - shift[r]) * inverse[r] * (dp[c / 4][c % 4] - mean[r]) * a.scale;
            }
            combine<full>(s, of_keys, out);
        }
        const float one[2] = {1, 1};
        write(dq + n * a.queries * a.width, a.queries, a.width, row, one, out);
        if (a.hides()) mend_query({a, q, k, v, statistics, g, delta}, n, bottom - 16, 16, 0, a.width, dq);
    }
}

template <bool full, int W, int STEP>
__device__ __forceinline__ void attend_backward_key(const Attention& a, int64 jobs, Panel<STEP, W>& of_queries,
                                                    Panel<STEP, W>& of_g, const T* q, const T* k, const T* v,
                                                    const T* statistics, const T* g, const T* delta, T* dk, T* dv) {
    __shared__ float shift[STEP], inverse[STEP], mean[STEP];
    const int64 tiles = (a.keys + HEIGHT - 1) / HEIGHT, all = jobs / tiles;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 source = job % all, top = job / all * HEIGHT, mine = top + threadIdx.x / 32 * 16;
        const int64 row = mine + threadIdx.x % 32 / 4;
        const Rows<W> keys(k + source * a.rows * a.width, a.keys, a.width, row);
        const Rows<W> values(v + source * a.rows * a.value_width, a.keys, a.value_width, row);
        float of_k[W / 8][4] = {}, of_v[W / 8][4] = {};
        for (int64 n = source * a.group; n < (source + 1) * a.group; n++) {
            const char* const mask = mask_of(a, n);
            for (int64 first = a.causal ? top : 0; first < a.queries; first += STEP) {
                __syncthreads();
                of_queries.read(q + n * a.queries * a.width, first, a.queries, a.width);
                of_g.read(g + n * a.queries * a.value_width, first, a.queries, a.value_width);
                if (threadIdx.x < STEP) {
                    const int64 i = first + threadIdx.x, at = n * a.queries + i;
                    const bool inside = i < a.queries;
                    shift[threadIdx.x] = inside ? statistics[2 * at] : 0;
                    inverse[threadIdx.x] = inside ? statistics[2 * at + 1] : 0;
                    mean[threadIdx.x] = inside && dk ? delta[at] : 0;
                }
                __syncthreads();
                if (a.causal && mine >= first + STEP) continue;  // none of these queries sees a key of this warp
                float p[STEP / 8][4], dp[STEP / 8][4];
                keys.template multiply<full>(of_queries, p);
                score<true>(a, mask, row, first, p);
                const int t = threadIdx.x % 4;
UNROLLED(c, STEP / 2) {
                    const int at = c / 4 * 8 + 2 * t + c % 2;
                    float& x = p[c / 4][c % 4];
                    x = exp(x - shift[at]) * inverse[at];
                }
                if (dk) values.template multiply<full>(of_g, dp);
                if (a.dropout > 0) {
                    // dv takes weights times factors, and dk takes weights times (factors times products less mean).
                    float factor[STEP / 8][4];
UNROLLED(c, STEP / 2) factor[c / 4][c % 4] = 1;
                    drop<true>(a, n, row, first, factor);
UNROLLED(c, STEP / 2) {
                        const int at = c / 4 * 8 + 2 * t + c % 2;
                        float &x = p[c / 4][c % 4], &d = dp[c / 4][c % 4], f = factor[c / 4][c % 4];
                        d = x * (f * d - mean[at]) * a.scale;
                        x *= f;
                    }
                } else {
UNROLLED(c, STEP / 2) {
                        const int at = c / 4 * 8 + 2 * t + c % 2;
                        dp[c / 4][c % 4] = p[c / 4][c % 4] * (dp[c / 4][c % 4] - mean[at]) * a.scale;
                    }
                }
                if (dv) combine<full>(p, of_g, of_v);
                if (dk) combine<full>(dp, of_queries, of_k);
            }
        }
        const float one[2] = {1, 1};
        if (dk) write(dk + source * a.keys * a.width, a.keys, a.width, row, one, of_k);
        if (dv) write(dv + source * a.keys * a.value_width, a.keys, a.value_width, row, one, of_v);
        if (!a.hides()) continue;
        const Pairs pairs = {a, q, k, v, statistics, g, delta};
        if (dk) mend_key(pairs, source, mine, 16, 0, a.width, dk, true);
        if (dv) mend_key(pairs, source, mine, 16, 0, a.value_width, dv, false);
    }
}

// Kernels for widths up to W, through STEP rows of the other factor at a time.
#define TENSOR_CORES(function, STEP, W, ...)                        \
    const Attention a GIVEN;                                        \
    __shared__ Panel<STEP, W> one, other;                           \
    if (fast)                                                       \
        function<false>(a, jobs, one, other, q, k, v, __VA_ARGS__); \
    else                                                            \
        function<true>(a, jobs, one, other, q, k, v, __VA_ARGS__);

extern "C" __global__ void __launch_bounds__(128, 2) attention_32(ATTENTION_PARAMETERS, Bool fast, T* y, T* statistics) {
    TENSOR_CORES(attend, 64, 32, y, statistics)
}
extern "C" __global__ void __launch_bounds__(128, 3) attention_64(ATTENTION_PARAMETERS, Bool fast, T* y, T* statistics) {
    TENSOR_CORES(attend, 64, 64, y, statistics)
}
extern "C" __global__ void __launch_bounds__(128, 3) attention_128(ATTENTION_PARAMETERS, Bool fast, T* y, T* statistics) {
    TENSOR_CORES(attend, 32, 128, y, statistics)
}

#define BACKWARD_PARAMETERS ATTENTION_PARAMETERS, Bool fast, const T* statistics, const T* g, const T* delta
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_query_32(BACKWARD_PARAMETERS, T* dq) {
    TENSOR_CORES(attend_backward_query, 32, 32, statistics, g, delta, dq)
}
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_query_64(BACKWARD_PARAMETERS, T* dq) {
    TENSOR_CORES(attend_backward_query, 32, 64, statistics, g, delta, dq)
}
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_query_128(BACKWARD_PARAMETERS, T* dq) {
    TENSOR_CORES(attend_backward_query, 32, 128, statistics, g, delta, dq)
}
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_key_32(BACKWARD_PARAMETERS, T* dk, T* dv) {
    TENSOR_CORES(attend_backward_key, 32, 32, statistics, g, delta, dk, dv)
}
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_key_64(BACKWARD_PARAMETERS, T* dk, T* dv) {
    TENSOR_CORES(attend_backward_key, 32, 64, statistics, g, delta, dk, dv)
}
extern "C" __global__ void __launch_bounds__(128, 2) attention_backward_key_128(BACKWARD_PARAMETERS, T* dk, T* dv) {
    TENSOR_CORES(attend_backward_key, 16, 128, statistics, g, delta, dk, dv)
}
#endif
