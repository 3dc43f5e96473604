// Reductions of the middle axis of x[outer, n, inner]: sums, extremes, moments, and running sums.
//
// One loop handles every shape. Where `inner` is small, k consecutive rows are read as one row of k inner columns, so
// all vectors are full; at the end the k partial results are folded in pairs. Floats are summed in short blocks, and
// blocks in double. Few long columns are cut into pieces whose number depends on the shape alone.
#include "../runtime/pool.hpp"
#include "rows.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t TILE = 256;  // columns reduced at a time

// The type in which blocks of T are summed.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, float>, double, Wrapping<T>>;

// An operation reads elements and combines them: BLOCK rows in Lane, blocks in Total; with BLOCK 0 all rows in Total.

template <class T>
struct Sum {
    using Lane = Wrapping<T>;
    using Total = Wide<T>;
    using Result = T;
    static constexpr int64_t BLOCK = 32;
    static constexpr Lane start() { return 0; }
    static Lane read(T x) { return Lane(x); }
    template <class A>
    static A combine(A a, A b) {
        return a + b;
    }

    // A row of floats is summed in registers.
    static double row(int64_t n, const T* x)
        requires(T(0.5) != 0)
    {
        double total = 0;
        sums<T, 1, 4>(n, &total, [&](auto at, auto& sum) MG_INLINED { sum[0] += at.load(x); });
        return total;
    }
};

template <class T>
struct Product {
    using Total = Wrapping<T>;
    using Result = T;
    static constexpr int64_t BLOCK = 0;
    static constexpr Total start() { return 1; }
    static Total read(T x) { return Total(x); }
    static Total combine(Total a, Total b) { return a * b; }

    static T row(int64_t n, const T* x)
        requires(T(0.5) != 0)
    {
        return combine_row(n, x, T(1), [](auto a, auto b) MG_INLINED { return a * b; });
    }
};

// The largest (or smallest) element; NaN takes precedence.
template <class T, bool largest>
struct Extreme {
    using Total = T;
    using Result = T;
    static constexpr int64_t BLOCK = 0;
    static constexpr T start() {
        if constexpr (T(0.5) != 0) return T(largest ? -__builtin_inf() : __builtin_inf());
        constexpr bool is_signed = T(-1) < 0;
        constexpr uint64_t top = ~uint64_t{0} >> (8 * (8 - sizeof(T)) + is_signed);
        return largest ? T(is_signed ? ~top : 0) : T(top);
    }
    static T read(T x) { return x; }
    template <class A>
    static auto better(A a, A b) {
        return (largest ? b > a : b < a) | (b != b);
    }
    template <class A>
    static A combine(A a, A b) {
        return better(a, b) ? b : a;
    }

    static T row(int64_t n, const T* x)
        requires(T(0.5) != 0)
    {
        return combine_row(n, x, start(), [](auto a, auto b) MG_INLINED { return combine(a, b); });
    }
};

template <class T, bool all>
struct Truth {
    using Total = Word<T>;
    using Result = bool;
    static constexpr int64_t BLOCK = 0;
    static constexpr Total start() { return all; }
    static Total read(T x) { return x != 0; }
    static Total combine(Total a, Total b) { return all ? a & b : a | b; }
};

// total[c] = the combination of the elements x[j, c] of `rows` rows, `stride` elements apart, for c < columns <= TILE.
// `read` maps an element and its column to a Lane.
template <class Op, class T, class Read>
__attribute__((noinline)) void reduce_tile(int64_t rows, int64_t stride, int64_t columns, const T* x,
                                           typename Op::Total* total, Read read) {
    // columns < stride: a part of each row; otherwise the rows are contiguous and k of them make one
    const int64_t k = columns < stride ? 1 : maximum(1, minimum(TILE / 2 / columns, rows)), width = k * columns;
    const int64_t groups = rows / k, rest = rows % k * columns;
    // The hardware prefetcher does not predict parts of rows that lie apart; if they are few, a cache often holds them.
    constexpr int64_t MANY = 256, AHEAD = 8;  // rows
    const bool ahead = columns < stride && rows >= MANY;
    const auto start = [=](auto* into) {
        for (int64_t c = 0; c < width; c++) into[c] = Op::start();
    };
    const auto add = [=](auto* into, int64_t begin, int64_t end, int64_t count) {
        for (const T* row = x + begin * k * stride; begin < end; begin++, row += k * stride) {
            for (int64_t c = 0; ahead && c < count; c += 64 / int64_t(sizeof(T))) prefetch(row, AHEAD * stride + c);
#pragma omp simd
            for (int64_t c = 0; c < count; c++) into[c] = Op::combine(into[c], read(row[c], c));
        }
    };
    typename Op::Total sum[TILE];
    start(sum);
    if constexpr (Op::BLOCK == 0) {
        add(sum, 0, groups, width);
        if (rest) add(sum, groups, groups + 1, rest);
    } else {
        typename Op::Lane lane[TILE];
        for (int64_t begin = 0; begin <= groups; begin += Op::BLOCK) {
            start(lane);
            add(lane, begin, minimum(groups, begin + Op::BLOCK), width);
            if (rest && groups - begin < Op::BLOCK) add(lane, groups, groups + 1, rest);
            for (int64_t c = 0; c < width; c++) sum[c] += lane[c];
        }
    }
    for (int64_t m = k; m > 1; m = (m + 1) / 2) {
        const int64_t upper = (m + 1) / 2 * columns, count = m * columns - upper;
#pragma omp simd
        for (int64_t c = 0; c < count; c++) sum[c] = Op::combine(sum[c], sum[upper + c]);
    }
    for (int64_t c = 0; c < columns; c++) total[c] = sum[c];
}

template <class Op, class T>
void reduce_tile(int64_t rows, int64_t stride, int64_t columns, const T* x, typename Op::Total* total) {
    reduce_tile<Op>(rows, stride, columns, x, total, [](T v, int64_t) { return Op::read(v); });
}

// Runs tile(o, first row, rows, first column, columns, partial) over all of x[outer, n, inner], then
// finish(o, first column, columns, partial) per column. Long columns are cut into pieces, each added to those before it
// by combine(partial, piece, columns); these depend on n and inner alone, so a column's result is the same in any
// batch.
template <class Partial, class Tile, class Combine, class Finish>
void over_tiles(int64_t outer, int64_t n, int64_t inner, Tile tile, Combine combine, Finish finish) {
    if (outer == 0 || inner == 0) return;
    constexpr int64_t SCRATCH = (1 << 17) / sizeof(Partial);
    const int64_t tiles = (inner + TILE - 1) / TILE, columns = minimum(inner, TILE), jobs = outer * tiles;
    const int64_t pieces = maximum(1, minimum(minimum(64, 4096 / columns), n * columns / GRAIN));
    const int64_t step = (n + pieces - 1) / pieces;

    const auto piece = [&](int64_t job, int64_t p, Partial* partial) {
        const int64_t begin = minimum(n, p * step), c = job % tiles * TILE;
        tile(job / tiles, begin, minimum(step, n - begin), c, minimum(columns, inner - c), partial);
    };
    // Both branches below use these two; one copy is enough.
    const auto add = [&](int64_t job, Partial* partial, const Partial* next) __attribute__((noinline)) {
        combine(partial, next, minimum(columns, inner - job % tiles * TILE));
    };
    const auto finished = [&](int64_t job, const Partial* partial) __attribute__((noinline)) {
        const int64_t c = job % tiles * TILE;
        finish(job / tiles, c, minimum(columns, inner - c), partial);
    };

    if (pieces > 1 && jobs * pieces * columns <= SCRATCH) {  // few jobs: their pieces run in parallel
        Partial scratch[SCRATCH];
        parallel_each(jobs * pieces, 1, [&](int64_t i) { piece(i / pieces, i % pieces, scratch + i * columns); });
        for (int64_t job = 0; job < jobs; job++) {
            Partial* partial = scratch + job * pieces * columns;
            for (int64_t p = 1; p < pieces; p++) add(job, partial, partial + p * columns);
            finished(job, partial);
        }
        return;
    }
    parallel(jobs, 1 + GRAIN / (1 + n * columns), [&](int64_t begin, int64_t end) {
        Partial partial[TILE], next[TILE];
        for (int64_t job = begin; job < end; job++) {
            piece(job, 0, partial);
            for (int64_t p = 1; p < pieces; p++) {
                piece(job, p, next);
                add(job, partial, next);
            }
            finished(job, partial);
        }
    });
}

template <class Op, class T>
void reduce(int64_t outer, int64_t n, int64_t inner, const T* x, typename Op::Result* y) {
    using Total = typename Op::Total;
    over_tiles<Total>(
        outer, n, inner,
        [=](int64_t o, int64_t j, int64_t rows, int64_t c, int64_t columns, Total* total) {
            const T* tile = x + (o * n + j) * inner + c;
            if constexpr (requires { Op::row(rows, tile); }) {
                if (inner == 1) {
                    *total = Op::row(rows, tile);
                    return;
                }
            }
            reduce_tile<Op>(rows, inner, columns, tile, total);
        },
        [](Total* a, const Total* b, int64_t columns) {
            for (int64_t c = 0; c < columns; c++) a[c] = Op::combine(a[c], b[c]);
        },
        [=](int64_t o, int64_t c, int64_t columns, const Total* total) {
            for (int64_t i = 0; i < columns; i++) y[o * inner + c + i] = typename Op::Result(total[i]);
        });
}

// The index of the first extreme of a row: first its value, which runs in vectors, then its index.
template <class T>
int64_t find_extreme(int64_t n, const T* row, T best) {
    constexpr int64_t STEP = 64;
    const auto found = [=](T v) { return (v == best) | (v != v); };
    int64_t j = 0;
    for (int hit = 0; j + STEP <= n; j += STEP) {
#pragma omp simd reduction(| : hit)
        for (int64_t i = 0; i < STEP; i++) hit |= found(row[j + i]);
        if (hit) break;
    }
    while (!found(row[j])) j++;
    return j;
}

// The index of the first extreme of each column. Within a block of rows, indices are as wide as the elements, for
// vectors.
template <class Op, class T>
void find_extremes(int64_t rows, int64_t stride, int64_t columns, const T* x, int64_t* where) {
    using Place = typename WordOf<sizeof(T) == 8 ? 8 : 4>::type;
    constexpr int64_t BLOCK = 1 << 30;
    T best[TILE];
    Place place[TILE];
    for (int64_t c = 0; c < columns; c++) best[c] = x[c], where[c] = 0;
    for (int64_t begin = 0; begin < rows; begin += BLOCK) {
        const int64_t end = minimum(rows, begin + BLOCK);
        for (int64_t c = 0; c < columns; c++) place[c] = BLOCK;
        for (int64_t j = begin; j < end; j++) {
            const T* row = x + j * stride;
#pragma omp simd
            for (int64_t c = 0; c < columns; c++) {
                const bool better = Op::better(best[c], row[c]) & (best[c] == best[c]);
                best[c] = better ? row[c] : best[c];
                place[c] = better ? Place(j - begin) : place[c];
            }
        }
        for (int64_t c = 0; c < columns; c++) where[c] = place[c] < BLOCK ? begin + int64_t(place[c]) : where[c];
    }
}

template <class T, bool largest>
void arg_extreme(int64_t outer, int64_t n, int64_t inner, const T* x, int64_t* y) {
    using Op = Extreme<T, largest>;
    if (inner == 1) {
        parallel_each(outer, 1 + GRAIN / (1 + n), [=](int64_t o) {
            T best;
            reduce<Op, T>(1, n, 1, x + o * n, &best);
            y[o] = find_extreme(n, x + o * n, best);
        });
        return;
    }
    const int64_t tiles = ceil_divide(inner, TILE);
    parallel_each(outer * tiles, 1 + GRAIN / (1 + n * minimum(inner, TILE)), [=](int64_t job) {
        const int64_t o = job / tiles, first = job % tiles * TILE;
        find_extremes<Op>(n, inner, minimum(TILE, inner - first), x + o * n * inner + first, y + o * inner + first);
    });
}

// The mean of `count` elements and the sum m2 of their squared deviations from it.
struct Moments {
    double count, mean, m2;
};

// Chan, Golub and LeVeque 1979:  m2 = m2_a + m2_b + (mean_b - mean_a)^2 n_a n_b / (n_a + n_b)
MG_INLINE Moments operator+(const Moments& a, const Moments& b) {
    const double count = a.count + b.count, d = b.mean - a.mean;
    if (count == 0) return a;
    return {count, a.mean + d * (b.count / count), a.m2 + b.m2 + d * d * (a.count * b.count / count)};
}

// With any center c near the mean, and d = x - c,
//   mean = c + sum(d)/n,  m2 = sum(d^2) - sum(d)^2/n
MG_INLINE Moments centered(int64_t n, double center, double first, double second) {
    const double shift = first / double(n), m2 = second - shift * first;
    return {double(n), center + shift, m2 < 0 ? 0 : m2};
}

template <class T>
Moments row_moments(int64_t n, const T* x) {
    if (n == 0) return {};
    const RowMoments<T> m = moments_of<T, 4>(n, x);
    return {double(n), m.mean(), double(n) * m.variance};
}

// The same for columns, one pass for each sum. The center is the mean of the first few elements; where that is so far
// off that the difference of sums would cancel, the mean found first becomes the center of a second pass.
template <class T>
void tile_moments(int64_t rows, int64_t stride, int64_t columns, const T* x, Moments* y) {
    if (stride == 1 || rows == 0) {
        for (int64_t c = 0; c < columns; c++) y[c] = row_moments(rows, x);
        return;
    }
    using Op = Sum<T>;
    double first[TILE], second[TILE];
    T center[TILE];
    const int64_t four = rows < 4 ? 0 : stride;
    for (int64_t c = 0; c < columns; c++) {
        center[c] = ((x[c] + x[c + four]) + (x[c + 2 * four] + x[c + 3 * four])) * T(0.25);
    }
    for (bool again = true;; again = false) {
        // reduce_tile may read k rows as one
        for (int64_t c = columns; columns == stride && c < TILE; c++) center[c] = center[c - columns];
        const T* middle = center;
        reduce_tile<Op>(rows, stride, columns, x, first, [=](T v, int64_t c) { return v - middle[c]; });
        reduce_tile<Op>(rows, stride, columns, x, second,
                        [=](T v, int64_t c) { return (v - middle[c]) * (v - middle[c]); });
        bool canceled = false;
        for (int64_t c = 0; c < columns; c++) {
            y[c] = centered(rows, center[c], first[c], second[c]);
            if (first[c] * first[c] > 4 * double(rows) * y[c].m2) {
                center[c] = T(y[c].mean);
                canceled = true;
            }
        }
        if (!again || !canceled) return;
    }
}

MG_KERNEL(moments[FLOATS])
template <class T>
void moments(int64_t outer, int64_t n, int64_t inner, const T* x, T* mean, T* m2) {
    over_tiles<Moments>(
        outer, n, inner,
        [=](int64_t o, int64_t j, int64_t rows, int64_t c, int64_t columns, Moments* y) {
            tile_moments(rows, inner, columns, x + (o * n + j) * inner + c, y);
        },
        [](Moments* a, const Moments* b, int64_t columns) {
            for (int64_t c = 0; c < columns; c++) a[c] = a[c] + b[c];
        },
        [=](int64_t o, int64_t c, int64_t columns, const Moments* y) {
            for (int64_t i = 0; i < columns; i++) {
                mean[o * inner + c + i] = T(y[i].mean);
                m2[o * inner + c + i] = T(y[i].m2);
            }
        });
}

// The sums along a row are one chain of additions: several rows side by side keep the processor busy. They are read and
// written a cache line at a time, as rows that lie a power of two apart would evict each other from the cache.
template <class T, int rows>
MG_INLINE void cumulative_rows(int64_t n, const T* x, T* y) {
    constexpr int LINE = 64 / sizeof(T);
    Wide<T> sum[rows] = {};
    T block[rows][LINE];
    for (int64_t j = 0; j < n; j += LINE) {
        const int columns = n - j < LINE ? int(n - j) : LINE;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) block[r][c] = x[r * n + j + c];
        for (int c = 0; c < columns; c++) {
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) block[r][c] = T(sum[r] += Wide<T>(block[r][c]));
        }
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) y[r * n + j + c] = block[r][c];
    }
}

MG_KERNEL(cumulative_sum[DTYPES])
template <class T>
void cumulative_sum(int64_t outer, int64_t n, int64_t inner, const T* x, T* y) {
    using Total = Wide<T>;
    if (inner == 1) {
        constexpr int ROWS = 4;
        parallel(outer, ROWS * (1 + GRAIN / (1 + n * ROWS)), [=](int64_t begin, int64_t end) {
            for (; end - begin >= ROWS; begin += ROWS) cumulative_rows<T, ROWS>(n, x + begin * n, y + begin * n);
            for (; begin < end; begin++) cumulative_rows<T, 1>(n, x + begin * n, y + begin * n);
        });
        return;
    }
    const int64_t tiles = ceil_divide(inner, TILE);
    parallel_each(outer * tiles, 1 + GRAIN / (1 + n * minimum(inner, TILE)), [=](int64_t job) {
        const int64_t first = job % tiles * TILE, columns = minimum(TILE, inner - first);
        int64_t at = job / tiles * n * inner + first;
        Total sum[TILE];
        for (int64_t c = 0; c < columns; c++) sum[c] = 0;
        for (int64_t j = 0; j < n; j++, at += inner) {
#pragma omp simd
            for (int64_t c = 0; c < columns; c++) {
                sum[c] += Total(x[at + c]);
                y[at + c] = T(sum[c]);
            }
        }
    });
}

template <class T>
void fill(Kernels& k, DType dtype) {
    put_kernel<arg_extreme<T, true>>(k.reduce[ARGMAX][dtype]);
    put_kernel<arg_extreme<T, false>>(k.reduce[ARGMIN][dtype]);
    put_kernel<reduce<Truth<T, false>, T>>(k.reduce[ANY][dtype]);
    put_kernel<reduce<Truth<T, true>, T>>(k.reduce[ALL][dtype]);
    if constexpr (sizeof(T) == 1) {
        k.reduce[MAX][dtype] = k.reduce[ANY][dtype];
        k.reduce[MIN][dtype] = k.reduce[ALL][dtype];
    } else {
        put_kernel<reduce<Extreme<T, true>, T>>(k.reduce[MAX][dtype]);
        put_kernel<reduce<Extreme<T, false>, T>>(k.reduce[MIN][dtype]);
        put_kernel<reduce<Sum<T>, T>>(k.reduce[SUM][dtype]);
        put_kernel<reduce<Product<T>, T>>(k.reduce[PROD][dtype]);
        put_kernel<cumulative_sum<T>>(k.cumulative_sum[dtype]);
    }
}

}  // namespace

void fill_reduce(Kernels& k) {
    fill<uint8_t>(k, BOOL);  // bools are bytes of 0 and 1
    k.reduce[ARGMAX][UINT8] = k.reduce[ARGMAX][BOOL];
    k.reduce[ARGMIN][UINT8] = k.reduce[ARGMIN][BOOL];
    fill<int32_t>(k, INT32);
    fill<int64_t>(k, INT64);
    fill<float>(k, FLOAT32);
    fill<double>(k, FLOAT64);
    MG_PUT_REDUCE
}

}  // namespace mg::MG_ISA
