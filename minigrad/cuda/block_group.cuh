// Block groups: blocks that take the same samples of a recurrent layer through its steps, and divide its units.
//
// A block group is one block, a block cluster, or a cooperative grid. The blocks of a cluster write to each other's
// shared memory; the blocks of a grid exchange everything through the GPU's memory. A group takes its samples through
// all steps, or through a single step whose product was computed before. Each block has some of the units, with the
// columns of all their gates. It keeps its part of W in shared memory; a block that is alone may read W from the cache
// instead. In each step, the blocks may have to wait for each other three times: for the sums of a norm, for the
// sums of the norm of c, and for h.

enum { ALONE, CLUSTER, GRID };

// A block's part of two sums over a row
struct alignas(16) Pair {
    double first, second;
};

// A block group as `Plan` in minigrad/cuda/recurrent.py lays it out, seen by one thread of one of its blocks. A row of
// a block has the columns of its units, gate by gate.
struct BlockGroup {
    int kind, size;      // the kind of group, and the number of its blocks
    int units;           // units of a block; the last blocks may have fewer, or none
    int samples;         // samples that it takes through the steps at a time
    int lanes;           // threads that work on a sample: a warp or a block
    int width;           // samples that a product takes at a time
    int wide;            // threads that work on neighbouring columns of a product
    int chunk, stride;   // packs of rows of W that a product takes at a time; distance between two samples' factors
    int buffer;          // distance to the factors of the next step, which other blocks may write meanwhile
    const T* w;          // the part of W in shared memory, or W in the cache; null if the product is given
    Bool resident;       // whether w is in shared memory
    T *factors, *parts;  // the numbers that products multiply by W, and sums of some of their threads
    T* own;              // rows of the block in shared memory; if null, they are parts of the rows of an array
    Pair* sums;          // [samples, SUMS, size]
    int* arrived;        // counts the blocks of a grid at its barriers
    int turn, rank;      // barriers of a grid so far, and the number of this block
    int begin, count;    // the first of the block's units, and their number
    int lane;            // this thread's number among the lanes of its sample
    int slot, slots;     // the number of its sample among the samples at a time, and how many they are
    int column, row, rows;  // the first packs of this thread in a product, and the distance to its next row

    __device__ void place(int hidden) {
        turn = 0, rank = blockIdx.x % size;
        begin = min(rank * units, hidden), count = min(begin + units, hidden) - begin;
        lane = threadIdx.x % lanes, slot = threadIdx.x / lanes, slots = blockDim.x / lanes;
        column = threadIdx.x % wide, row = threadIdx.x / wide, rows = blockDim.x / wide;
    }

    // Waits for all threads of the group, and then sees everything they have written
    __device__ void wait() {
        if (kind == GRID) {
            wait_for_grid(arrived, ++turn);
        } else if (kind == CLUSTER) {
            wait_for_cluster();
        } else {
            __syncthreads();
        }
    }
    // The same for the threads that work on the sample
    __device__ void wait_for_lanes() const {
        if (lanes == 32) {
            __syncwarp();
        } else {
            __syncthreads();
        }
    }

    // The first factor of step t
    __device__ T* of_step(int64 t) const { return factors + (t & 1) * buffer; }

    // Makes x a factor of all blocks' products
    __device__ void give_factor(T* factor, T x) const {
        if (kind == GRID || !w) return;
        if (kind == ALONE) {
            *factor = x;
        } else {
            for (int b = 0; b < size; b++) in_block(*factor, b) = x;
        }
    }

    // Gives the other blocks this block's part of sum k of a sample; the lanes of the sample call it.
    __device__ void give(int s, int k, const Pair& sum) const {
        Pair& mine = sums[(s * SUMS + k) * size + rank];
        if (kind == CLUSTER) {
            if (lane < size) in_block(mine, lane) = sum;
        } else if (lane == 0) {
            mine = sum;
        }
    }

    // total[2] becomes the sum of the terms that f(block, its part, total) adds, the same in all lanes.
    template <class F>
    __device__ void add_blocks(int s, int k, double* total, F f) const {
        int spread = 1;
        while (spread < size && spread < 32) spread *= 2;
        for (int b = threadIdx.x % spread; b < size; b += spread) f(b, sums[(s * SUMS + k) * size + b], total);
        team_sum<2>(spread, total);
    }
};

// The columns [first, last) of a gate that are in [begin, end) and of a block's units
struct Range {
    int first, last;

    __device__ Range(const Layer& r, const BlockGroup& group, int block, int gate, int begin, int end) {
        const int unit = min(block * group.units, r.hidden), next = min(unit + group.units, r.hidden);
        first = max(begin, gate * r.hidden + unit);
        last = max(first, min(end, gate * r.hidden + next));
    }
};

// How many columns of [begin, end) a block has
__device__ inline int share(const Layer& r, const BlockGroup& group, int block, int gates, int begin, int end) {
    int total = 0;
    for (int g = 0; g < gates; g++) {
        const Range range(r, group, block, g, begin, end);
        total += range.last - range.first;
    }
    return total;
}

// for (int u : this thread's units of the block); j = begin + u is the number of the unit
#define UNITS(u, group) for (int u = (group).lane; u < (group).count; u += (group).lanes)

// for (int s : the samples of this thread, of n in all)
#define SAMPLES(s, n, group) for (int s = (group).slot; s < (n); s += (group).slots)

// Rows of a block's columns or units, in shared memory or as parts of the rows of an array
template <class V>
struct Rows {
    V* base;
    int sample, gate;  // distances

    __device__ V& at(int s, int g, int u) const { return base[s * sample + g * gate + u]; }
};

// ---- products ---------------------------------------------------------------------------------------------------------

// Loads the block's part of W: element(i, c) for k rows and n columns, and 0 beyond them
template <class Element>
__device__ void load_matrix(T* matrix, int k, int n, Element element) {
    const int rows = (k + WIDE - 1) / WIDE * WIDE, columns = (n + WIDE - 1) / WIDE * WIDE;
    for (int c = threadIdx.x % 32; c < columns; c += 32) {
#pragma unroll 8
        for (int i = threadIdx.x / 32; i < rows; i += blockDim.x / 32)
            matrix[i * columns + c] = i < k && c < n ? element(i, c) : T(0);
    }
}

// Loads packs [begin, end) of the rows of S samples, each of k numbers, and 0 beyond them
template <int S, class Row>
__device__ void load_factors(const BlockGroup& group, int k, int begin, int end, Row row) {
    __syncthreads();
    for (int i = begin + threadIdx.x; i < end; i += blockDim.x) {
        Pack<WIDE> x[S] = {};
UNROLLED(s, S) {
            const T* from = row(s);
            if (!from) continue;
            if (is_aligned(from) && (i + 1) * WIDE <= k) {
                x[s] = ((const Pack<WIDE>*)from)[i];
            } else {
                for (int e = 0; e < WIDE && i * WIDE + e < k; e++) x[s].v[e] = from[i * WIDE + e];
            }
        }
UNROLLED(s, S) *(Pack<WIDE>*)(group.factors + s * group.stride + (i - begin) * WIDE) = x[s];
    }
    __syncthreads();
}

// Adds up v[count] over the lanes of a warp whose numbers differ in the bits from `distance` on: each lane adds up
// half of v and leaves the other half to its partner. store(place in v, sum) gets the sums.
template <int count, class Store>
__device__ inline void fold(T (&v)[count], int distance, int place, Store store) {
    if constexpr (count == 1) {
        for (; distance < 32; distance *= 2) v[0] += __shfl_xor_sync(~0u, v[0], distance);
        store(place, v[0]);
    } else if (distance == 32) {
        for (int k = 0; k < count; k++) store(place + k, v[k]);
    } else {
        const bool upper = threadIdx.x & distance;
        T half[count / 2];
UNROLLED(k, count / 2) {
            const T given = upper ? v[k] : v[k + count / 2], held = upper ? v[k + count / 2] : v[k];
            half[k] = held + __shfl_xor_sync(~0u, given, distance);
        }
        fold(half, 2 * distance, place + (upper ? count / 2 : 0), store);
    }
}

// store(s, c, sum over i of factors[s, i] matrix[i, c]) for S samples, i < k and c < n. The rows of the matrix begin at
// multiples of 16 bytes, their number is a multiple of a pack, and factors beyond k are 0. Neighbouring threads read
// neighbouring packs of columns, and each pack once for all S samples. A column's sum is divided among blockDim.x /
// wide threads, each of which requests AHEAD packs of rows before it uses the first, as a cache takes hundreds of
// cycles to answer. The order of summation depends on k, n and the size of the block alone.
template <int S, int AHEAD, class Load, class Store>
__device__ void multiply(const BlockGroup& group, int k, int n, const T* matrix, const T* factors, Load load, Store store) {
    const int packs = (n + WIDE - 1) / WIDE, rows = (k + WIDE - 1) / WIDE;
    T sum[S * WIDE] = {};
    for (int begin = 0; begin < rows; begin += group.chunk) {
        const int end = min(rows, begin + group.chunk);
        load(begin, end);
        if (group.column >= packs) continue;
        const Pack<WIDE>* column = (const Pack<WIDE>*)matrix + group.column;
        const Pack<WIDE>* row = (const Pack<WIDE>*)factors;
#pragma unroll(AHEAD)
        for (int i = begin + group.row; i < end; i += group.rows) {
            Pack<WIDE> w[WIDE];
UNROLLED(e, WIDE) w[e] = column[(i * WIDE + e) * packs];
UNROLLED(s, S) {
                const Pack<WIDE> f = row[s * (group.stride / WIDE) + i - begin];
UNROLLED(e, WIDE) {
UNROLLED(v, WIDE) sum[s * WIDE + v] += f.v[e] * w[e].v[v];
                }
            }
        }
    }
    const int across = min(group.wide, 32), warp = threadIdx.x / 32, warps = blockDim.x / 32;
    T* parts = group.parts;  // [warps, S WIDE, across]
    fold(sum, across, 0, [&](int place, T v) {
        parts[(warp * S * WIDE + place) * across + threadIdx.x % across] = v;
    });
    __syncthreads();
    const int columns = group.wide * WIDE, bits = __ffs(columns) - 1;
    for (int q = threadIdx.x; q < S * columns; q += blockDim.x) {
        const int s = q >> bits, c = q & (columns - 1), pack = c / WIDE;
        if (c >= n) continue;
        T total = 0;
        for (int w = pack / 32; w < warps; w += max(group.wide / 32, 1))
            total += parts[(w * S * WIDE + s * WIDE + c % WIDE) * across + pack % 32];
        store(s, c, total);
    }
    __syncthreads();
}

// The same for all samples of a group. The blocks of a grid load their factors row(s) themselves.
template <int S, class Row, class Store>
__device__ void multiply_all(const BlockGroup& group, int k, int n, const T* factors, int count, Row row, Store store) {
    for (int first = 0; first < count; first += S) {
        const auto stored = [&](int s, int c, T total) {
            if (first + s < count) store(first + s, c, total);
        };
        if (group.kind == GRID) {
            const auto load = [&](int begin, int end) {
                load_factors<S>(group, k, begin, end, [&](int s) { return first + s < count ? row(first + s) : (T*)0; });
            };
            multiply<S, 1>(group, k, n, (const T*)dynamic_shared(), group.factors, load, stored);
        } else if (group.resident) {
            multiply<S, S == 1 ? 2 : 1>(group, k, n, (const T*)dynamic_shared(), factors + first * group.stride, [](int, int) {}, stored);
        } else {
            multiply<S, S == 1 ? 4 : 1>(group, k, n, group.w, factors + first * group.stride, [](int, int) {}, stored);
        }
    }
}

template <class Row, class Store>
__device__ void multiply_all(const BlockGroup& group, int k, int n, const T* factors, int count, Row row, Store store) {
    switch (group.width) {
        case 1: return multiply_all<1>(group, k, n, factors, count, row, store);
        case 4: return multiply_all<4>(group, k, n, factors, count, row, store);
        case 8: return multiply_all<8>(group, k, n, factors, count, row, store);
    }
}

// ---- one row, normalized by a group ------------------------------------------------------------------------------------

// The mean of a block's columns x(g, j) in [begin, end), and the sum of their squared distances from it; 0 and the
// sum of squares if the norm is not centered. With any center c near the mean, and d = x - c:
//     mean = c + sum(d)/n,  sum of squared distances = sum(d^2) - sum(d)^2/n
// c is the mean of a few elements. If it is so far off that the difference would cancel, a second pass uses the mean
// from the first one as its center.
template <class X>
__device__ Pair moments(const Layer& r, const BlockGroup& group, int gates, int begin, int end, X x) {
    const int n = share(r, group, group.rank, gates, begin, end);
    if (n == 0) return {0, 0};
    T center = 0;
    if (r.centered) {
        int points = 0;
        for (int g = 0; g < gates; g++) {
            const Range range(r, group, group.rank, g, begin, end);
            const int length = range.last - range.first;
            for (int k = 0; k < 4 && length > 0; k++, points++) center += x(g, range.first + length * k / 4);
        }
        center /= points;
    }
    for (bool first = true;; first = false) {
        double total[2] = {};
        for (int g = 0; g < gates; g++) {
            const Range range(r, group, group.rank, g, begin, end);
            add_up<2, int>(range.first + group.lane, range.last, group.lanes, total, [&](int j, T* part) {
                const T d = x(g, j) - center;
                part[0] += d;
                part[1] += d * d;
            });
        }
        team_sum<2>(group.lanes, total);
        if (!r.centered) return {0, total[1]};
        const double shift = total[0] / n, squares = total[1] - shift * total[0];
        if (!first || shift * shift * n <= 4 * squares) return {center + shift, squares < 0 ? 0 : squares};
        center = T(center + shift);
    }
}

// The statistics of columns [begin, end) from the moments of all blocks: with any center c, and d = mean - c of a
// block of n columns, the sum of squared distances from c is the sum of squares + n d^2. c is the mean of a block with
// columns.
__device__ inline Kept merge(const Layer& r, const BlockGroup& group, int s, int k, int gates, int begin, int end, int owner,
                             double eps) {
    const int width = end - begin;
    const double center = group.sums[(s * SUMS + k) * group.size + owner].first;
    double total[2] = {};
    group.add_blocks(s, k, total, [&](int block, const Pair& part, double* sum) {
        const int n = share(r, group, block, gates, begin, end);
        if (n == 0) return;
        const double d = part.first - center;
        sum[0] += n * d;
        sum[1] += part.second + n * d * d;
    });
    const double shift = total[0] / width, variance = total[1] / width - shift * shift;
    const T scale = 1 / sqrt(T((variance < 0 ? 0 : variance) + eps)), mean = T(center + shift);
    return {mean, scale, T((mean - (center + shift)) * scale)};
}

// dx = rstd (h - mean(h) - xhat mean(h xhat)) with h = g gamma. `mean` and `slope` are the two means.
struct Through {
    T mean, slope;

    __device__ T operator()(T h, T xhat, T scale) const { return (h - mean - xhat * slope) * scale; }
};

// From the blocks' sums of h and h xhat
__device__ inline Through means(const Layer& r, const BlockGroup& group, int s, int k, int width) {
    double total[2] = {};
    group.add_blocks(s, k, total, [](int, const Pair& part, double* sum) {
        sum[0] += part.first;
        sum[1] += part.second;
    });
    return {r.centered ? T(total[0] / width) : T(0), T(total[1] / width)};
}
