// Attention: tiles of queries meet tiles of keys, as in cext/kernels/attention.cpp, which has the formulas.
//
// A block of threads computes SIDE rows by SIDE columns of a result. It computes the weights of its rows tile by tile,
// keeps each tile in shared memory, and multiplies it by a tile of the values (in the backward pass, of the queries,
// the keys or g). Wider results take several blocks, which compute the same weights. A thread holds EDGE adjacent rows
// by EDGE adjacent columns of a tile. Nothing is added across blocks, so the bits are always the same.

#if FLOATING
#include "attention.cuh"

const int SIDE = 64, EDGE = 4, ACROSS = SIDE / EDGE, THREADS = ACROSS * ACROSS;
const int ROWS = 32 / ACROSS * EDGE;  // rows that a warp has
const int DEPTH = 64 / sizeof(T);     // terms of a product in shared memory at once

// sum[EDGE, EDGE] += the product of left[SIDE, depth] and right[depth, SIDE], whose elements are left(i, e) and
// right(e, j). Neighbouring threads read neighbours along e (`together`) or along the side. Two elements of each factor
// are loaded at a time: more of them would take the registers of the sums.
struct Staged {
    T left[DEPTH][SIDE + EDGE], right[DEPTH][SIDE + EDGE];
};
template <bool left_together, bool right_together, class L, class R>
__device__ void multiply(Staged& staged, int depth, L left, R right, T (&sum)[EDGE][EDGE]) {
    T(&a)[DEPTH][SIDE + EDGE] = staged.left, (&b)[DEPTH][SIDE + EDGE] = staged.right;
    const int t = threadIdx.x, row = t / ACROSS * EDGE, column = t % ACROSS * EDGE;
    for (int first = 0; first < depth; first += DEPTH) {
        __syncthreads();
#pragma unroll 2
        for (int u = t; u < SIDE * DEPTH; u += THREADS) {
            const int d = left_together ? u % DEPTH : u / SIDE, i = left_together ? u / DEPTH : u % SIDE;
            const int e = right_together ? u % DEPTH : u / SIDE, j = right_together ? u / DEPTH : u % SIDE;
            a[d][i] = first + d < depth ? left(i, first + d) : T(0);
            b[e][j] = first + e < depth ? right(first + e, j) : T(0);
        }
        __syncthreads();
UNROLLED(e, DEPTH) {
UNROLLED(r, EDGE) {
UNROLLED(c, EDGE) sum[r][c] += a[e][row + r] * b[e][column + c];
            }
        }
    }
}

// x[row, column] of a matrix [rows, columns], 0 outside
__device__ inline T element(const T* x, int64 rows, int columns, int64 row, int64 column) {
    return row < rows && column < columns ? x[row * columns + column] : T(0);
}

// merge over the ACROSS threads that hold parts of the same rows; each of them gets the result
template <class F>
__device__ T across(T x, F merge) {
    for (int distance = ACROSS / 2; distance > 0; distance /= 2) x = merge(x, __shfl_xor_sync(~0u, x, distance));
    return x;
}

// In float32, three blocks share a multiprocessor, at the price of a few spills outside of the products by NVRTC 12.9.
extern "C" __global__ void __launch_bounds__(256, SINGLE ? 3 : 2) attention(ATTENTION_PARAMETERS, T* y, T* statistics) {
    const Attention a GIVEN;
    __shared__ T p[SIDE][SIDE + 1];
    __shared__ Staged staged;
    const int t = threadIdx.x, row = t / ACROSS * EDGE, column = t % ACROSS * EDGE;
    const int64 slices = (value_width + SIDE - 1) / SIDE, tiles = (queries + SIDE - 1) / SIDE;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 n = job / slices / tiles, top = job / slices % tiles * SIDE, slice = job % slices * SIDE;
        const int64 before = n / group * rows;
        const T *queries_ = q + n * queries * width, *keys_ = k + before * width, *values = v + before * value_width;
        const int64 end = causal && top + SIDE < keys ? top + SIDE : keys;
        T out[EDGE][EDGE] = {}, most[EDGE], total[EDGE] = {};
        for (int r = 0; r < EDGE; r++) most[r] = -infinity<T>();
        for (int64 first = 0; first < end; first += SIDE) {
            T s[EDGE][EDGE] = {};
            multiply<true, true>(
                staged, width, [&](int i, int e) { return element(queries_, queries, width, top + i, e); },
                [&](int e, int j) { return element(keys_, keys, width, first + j, e); }, s);
            for (int r = 0; r < EDGE; r++) {
                const int64 i = top + row + r;
                T found = -infinity<T>(), added = 0;
                for (int c = 0; c < EDGE; c++) {
                    s[r][c] = a.score(s[r][c], n, i, first + column + c);
                    if (s[r][c] > found) found = s[r][c];
                }
                found = across(found, [](T x, T y) { return x > y ? x : y; });
                if (found > most[r]) {
                    const T factor = most[r] == -infinity<T>() ? T(1) : exp(most[r] - found);
                    total[r] *= factor;
                    for (int c = 0; c < EDGE; c++) out[r][c] *= factor;
                    most[r] = found;
                }
                const T shift = most[r] == -infinity<T>() ? T(0) : most[r];  // so that NaN shows, and -inf gives 0
                T factor[EDGE] = {1, 1, 1, 1};
                if (dropout > 0) a.survive(n, i, first + column, factor);
                for (int c = 0; c < EDGE; c++) {
                    const T e = exp(s[r][c] - shift);
                    added += e;
                    p[row + r][column + c] = e * factor[c];
                }
                total[r] += across(added, [](T x, T y) { return x + y; });
            }
            multiply<true, false>(
                staged, SIDE, [&](int i, int e) { return p[i][e]; },
                [&](int e, int j) { return element(values, keys, value_width, first + e, slice + j); }, out);
        }
        for (int r = 0; r < EDGE; r++) {
            const int64 i = top + row + r;
            if (i >= queries) continue;
            // A query that sees no key has the result 0, and with these statistics all its weights are 0 again.
            const T inverse = total[r] == 0 ? T(0) : 1 / total[r];
            for (int c = 0; c < EDGE; c++) {
                if (slice + column + c < value_width)
                    y[(n * queries + i) * value_width + slice + column + c] = out[r][c] * inverse;
            }
            if (slice == 0 && column == 0) {
                T* const to = statistics + 2 * (n * queries + i);
                to[0] = most[r] == -infinity<T>() ? T(0) : most[r];
                to[1] = inverse;
            }
        }
        if (a.hides()) {
            const int end = slice + SIDE < value_width ? int(slice) + SIDE : value_width;
            mend({a, q, k, v}, n, top + t / 32 * ROWS, ROWS, int(slice), end, y);
        }
    }
}

// ---- backward -----------------------------------------------------------------------------------------------------

// delta[rows] = the sum of g y over each row; a warp per row
extern "C" __global__ void attention_delta(int64 rows, int value_width, const T* g, const T* y, T* delta) {
    const int lane = threadIdx.x % 32;
    for (int64 r = (blockIdx.x * (int64)blockDim.x + threadIdx.x) / 32; r < rows; r += (int64)gridDim.x * blockDim.x / 32) {
        double sum = 0;
        for (int c = lane; c < value_width; c += 32) sum += g[r * value_width + c] * y[r * value_width + c];
        team_sum<1>(32, &sum);
        if (lane == 0) delta[r] = T(sum);
    }
}

// dq = scale ds k with ds = p (g vᵀ - delta)
extern "C" __global__ void __launch_bounds__(256) attention_backward_query(
    ATTENTION_PARAMETERS, const T* statistics, const T* g, const T* delta, T* dq) {
    const Attention a GIVEN;
    __shared__ T ds[SIDE][SIDE + 1];
    __shared__ Staged staged;
    const int t = threadIdx.x, row = t / ACROSS * EDGE, column = t % ACROSS * EDGE;
    const int64 slices = (width + SIDE - 1) / SIDE, tiles = (queries + SIDE - 1) / SIDE;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 n = job / slices / tiles, top = job / slices % tiles * SIDE, slice = job % slices * SIDE;
        const T *queries_ = q + n * queries * width, *keys_ = k + n / group * rows * width;
        const T *values = v + n / group * rows * value_width, *g_ = g + n * queries * value_width;
        const int64 end = causal && top + SIDE < keys ? top + SIDE : keys;
        T out[EDGE][EDGE] = {};
        for (int64 first = 0; first < end; first += SIDE) {
            T s[EDGE][EDGE] = {}, dp[EDGE][EDGE] = {};
            multiply<true, true>(
                staged, width, [&](int i, int e) { return element(queries_, queries, width, top + i, e); },
                [&](int e, int j) { return element(keys_, keys, width, first + j, e); }, s);
            multiply<true, true>(
                staged, value_width, [&](int i, int e) { return element(g_, queries, value_width, top + i, e); },
                [&](int e, int j) { return element(values, keys, value_width, first + j, e); }, dp);
            for (int r = 0; r < EDGE; r++) {
                const int64 i = top + row + r, at = n * queries + (i < queries ? i : queries - 1);
                T factor[EDGE] = {1, 1, 1, 1};
                if (dropout > 0) a.survive(n, i, first + column, factor);
                for (int c = 0; c < EDGE; c++) {
                    const T weight =
                        exp(a.score(s[r][c], n, i, first + column + c) - statistics[2 * at]) * statistics[2 * at + 1];
                    ds[row + r][column + c] = weight * (dp[r][c] * factor[c] - delta[at]) * scale;
                }
            }
            multiply<true, false>(
                staged, SIDE, [&](int i, int e) { return ds[i][e]; },
                [&](int e, int j) { return element(keys_, keys, width, first + e, slice + j); }, out);
        }
        for (int r = 0; r < EDGE; r++) {
            for (int c = 0; c < EDGE; c++) {
                const int64 i = top + row + r, j = slice + column + c;
                if (i < queries && j < width) dq[(n * queries + i) * width + j] = out[r][c];
            }
        }
        if (a.hides()) {
            const int end = slice + SIDE < width ? int(slice) + SIDE : width;
            mend_query({a, q, k, v, statistics, g, delta}, n, top + t / 32 * ROWS, ROWS, int(slice), end, dq);
        }
    }
}

// dk = scale dsᵀ q and dv = pᵀ g, each of which may be null; the slices of dk come first. Rows of a tile are keys, and
// its columns queries.
extern "C" __global__ void __launch_bounds__(256) attention_backward_key(
    ATTENTION_PARAMETERS, const T* statistics, const T* g, const T* delta, T* dk, T* dv) {
    const Attention a GIVEN;
    __shared__ T p[SIDE][SIDE + 1];
    __shared__ Staged staged;
    const int t = threadIdx.x, row = t / ACROSS * EDGE, column = t % ACROSS * EDGE;
    const int64 of_k = dk ? (width + SIDE - 1) / SIDE : 0, slices = of_k + (dv ? (value_width + SIDE - 1) / SIDE : 0);
    const int64 tiles = (keys + SIDE - 1) / SIDE;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 source = job / slices / tiles, top = job / slices % tiles * SIDE;
        const bool of_key = job % slices < of_k;
        const int64 slice = (job % slices - (of_key ? 0 : of_k)) * SIDE;
        const T *keys_ = k + source * rows * width, *values = v + source * rows * value_width;
        T out[EDGE][EDGE] = {};
        for (int64 n = source * group; n < (source + 1) * group; n++) {
            const T *queries_ = q + n * queries * width, *g_ = g + n * queries * value_width;
            for (int64 first = causal ? top : 0; first < queries; first += SIDE) {
                T s[EDGE][EDGE] = {}, dp[EDGE][EDGE] = {};
                multiply<true, true>(
                    staged, width, [&](int i, int e) { return element(keys_, keys, width, top + i, e); },
                    [&](int e, int j) { return element(queries_, queries, width, first + j, e); }, s);
                if (of_key)
                    multiply<true, true>(
                        staged, value_width, [&](int i, int e) { return element(values, keys, value_width, top + i, e); },
                        [&](int e, int j) { return element(g_, queries, value_width, first + j, e); }, dp);
                for (int c = 0; c < EDGE; c++) {
                    const int64 i = first + column + c, at = n * queries + i;
                    const bool inside = i < queries;
                    const T shift = inside ? statistics[2 * at] : T(0), inverse = inside ? statistics[2 * at + 1] : T(0);
                    const T mean = inside && of_key ? delta[at] : T(0);
                    T factor[EDGE] = {1, 1, 1, 1};
                    if (dropout > 0) a.survive(n, i, top + row, factor);
                    for (int r = 0; r < EDGE; r++) {
                        const T weight = exp(a.score(s[r][c], n, i, top + row + r) - shift) * inverse;
                        p[row + r][column + c] =
                            of_key ? weight * (dp[r][c] * factor[r] - mean) * scale : weight * factor[r];
                    }
                }
                multiply<true, false>(
                    staged, SIDE, [&](int i, int e) { return p[i][e]; },
                    [&](int e, int j) {
                        return of_key ? element(queries_, queries, width, first + e, slice + j)
                                      : element(g_, queries, value_width, first + e, slice + j);
                    },
                    out);
            }
        }
        const int columns = of_key ? width : value_width;
        T* const to = (of_key ? dk : dv) + source * keys * columns;
        for (int r = 0; r < EDGE; r++) {
            for (int c = 0; c < EDGE; c++) {
                const int64 j = top + row + r, e = slice + column + c;
                if (j < keys && e < columns) to[j * columns + e] = out[r][c];
            }
        }
        if (a.hides()) {
            const int end = slice + SIDE < columns ? int(slice) + SIDE : columns;
            mend_key({a, q, k, v, statistics, g, delta}, source, top + t / 32 * ROWS, ROWS, int(slice), end,
                     of_key ? dk : dv, of_key);
        }
    }
}
#endif
