// Column normalization: BatchNorm, forward and backward, on the channels of x[outer, channels, inner].
//
// Sums are taken in two stages: over each block and column, then over the blocks, in order. Deviations in a column are
// taken from a float near its mean in that block, which keeps their digits if a float cannot represent the mean.
#include "../runtime/pool.hpp"
#include "rows.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t TILE = 1024;   // columns at a time
constexpr int64_t MERGED = 128;  // columns at a time when blocks are merged: fewer, so that all threads have tiles

// A range of the channels
struct Channels {
    int64_t begin, end;
};

// Runs stage(channels) for all channels: one at a time if the planes of one fit into a core's cache, so that a second
// pass finds what the first one read; otherwise all together.
template <class T, class Stage>
void by_channels(const Columns& at, Stage stage) {
    constexpr int64_t FIT = (1 << 17) / sizeof(T), LEAST = 8;
    if (!at.planes() || at.outer * at.inner > FIT || at.channels < LEAST) return stage(Channels{0, at.channels});
    parallel_each(at.channels, 1 + NORM_GRAIN / (at.outer * at.inner), [&](int64_t c) { stage(Channels{c, c + 1}); });
}

// Runs f(rows, columns, first element, block, first column) for every block of rows and tile of columns, or for every
// plane (rows = 1, columns = inner) of the channels in `part`. A thread finishes its streams once, after all its
// blocks: finishing them after each short plane would take twice the time of the plane.
template <Walk walk = SHORT, class F>
void over_blocks(const Columns& at, Channels part, F f) {
    const auto each = [](int64_t n, int64_t grain, auto job) {
        parallel(n, grain, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) job(i);
            if constexpr (walk == STREAMED) finish_streams();
        });
    };
    if (at.planes()) {
        const int64_t channels = part.end - part.begin;
        each(at.outer * channels, 1 + NORM_GRAIN / at.inner, [&](int64_t i) {
            const int64_t block = i / channels, channel = part.begin + i % channels;
            f(1, at.inner, (block * at.channels + channel) * at.inner, block, channel);
        });
        return;
    }
    const int64_t tiles = (at.columns + TILE - 1) / TILE;
    each(at.blocks * tiles, 1 + NORM_GRAIN / (1 + at.rows * minimum(TILE, at.columns)), [&](int64_t i) {
        const int64_t block = i / tiles, first = block * at.rows, column = i % tiles * TILE;
        f(minimum(at.rows, at.outer - first), minimum(TILE, at.columns - column), first * at.columns + column, block,
          column);
    });
}

// Runs f(first channel, channels) for tiles of channels that have no more than MERGED columns together
template <class F>
void over_channels(const Columns& at, Channels part, F f) {
    const int64_t step = MERGED / at.repeat, tiles = (part.end - part.begin + step - 1) / step;
    parallel(tiles, 1 + NORM_GRAIN / (1 + at.blocks * minimum(MERGED, at.columns)), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) {
            const int64_t first = part.begin + i * step;
            f(first, minimum(step, part.end - first));
        }
    });
}

// Runs f(at, row, held) for every register of the columns and every row, which begins at `row`. Values that belong to
// the columns are loaded once for a group of rows: held = load(at) before it, and store(at, held) after it. Two
// registers alternate, so that whole lines are written; the rows four further down in the arrays `from` are prefetched
// meanwhile. A group reads at four places in turn, in one array or in two: with eight, sums over two arrays take a
// fifth longer.
template <class T, class Load, class F, class Store, class... From>
MG_INLINE void over_rows(int64_t rows, int64_t stride, int64_t columns, Load load, F f, Store store, From... from) {
    constexpr int64_t L = LANES<T>, AHEAD = 4, GROUP = AHEAD / sizeof...(From);
    const auto some = [&]<int count>(int64_t r) MG_INLINED {
        const bool more = r + AHEAD < rows;
        int64_t i = 0;
        for (; i + 2 * L <= columns; i += 2 * L) {
            const Whole<T> one{i}, two{i + L};
            auto first = load(one), second = load(two);
#pragma GCC unroll 4
            for (int k = 0; k < count; k++) {
                const int64_t row = (r + k) * stride;
                if (more) {
                    (read_ahead<LONG>(one, from, row + AHEAD * stride), ...);
                    (read_ahead<LONG>(two, from, row + AHEAD * stride), ...);
                }
                f(one, row, first);
                f(two, row, second);
            }
            store(one, first);
            store(two, second);
        }
        sweep<T, 1>(i, columns, [&](auto at, int) MG_INLINED {
            auto held = load(at);
            for (int k = 0; k < count; k++) f(at, (r + k) * stride, held);
            store(at, held);
        });
    };
    int64_t r = 0;
    for (; r + GROUP <= rows; r += GROUP) some.template operator()<GROUP>(r);
    for (; r < rows; r++) some.template operator()<1>(r);
}

template <class T, int n>
struct Held {
    Vector<T> v[n];
};

// Prefetches the beginning of a channel's next plane, which is far away in memory, before this one is summed
template <class T>
MG_INLINE void ask_ahead(const Columns& at, Channels part, const T* plane) {
    constexpr int64_t LINE = 64 / sizeof(T), LINES = 16;
    if (part.end - part.begin > 1) return;
    for (int64_t k = 0; k < LINES; k++) prefetch(plane, at.channels * at.inner + k * LINE);
}

// ── sums ──

// first[c] and second[c] = the sums of the terms that f(at, row, sum) adds to sum.v[0] and sum.v[1]; RUN rows are
// summed in T, then these sums in double
template <class T, class F, class... From>
MG_INLINE void column_sums(int64_t rows, int64_t stride, int64_t columns, double* first, double* second, F f,
                           From... from) {
    constexpr int64_t RUN = 64;
    T sum[2][TILE];
    for (int64_t c = 0; c < columns; c++) first[c] = second[c] = 0;
    for (int64_t r = 0; r < rows; r += RUN) {
        for (int64_t c = 0; c < columns; c++) sum[0][c] = sum[1][c] = 0;
        over_rows<T>(
            minimum(RUN, rows - r), stride, columns,
            [&](auto at) MG_INLINED { return Held<T, 2>{at.load(sum[0]), at.load(sum[1])}; },
            [&](auto at, int64_t row, auto& held) MG_INLINED { f(at, row + r * stride, held); },
            [&](auto at, auto& held) MG_INLINED {
                at.store(sum[0], held.v[0]);
                at.store(sum[1], held.v[1]);
            },
            (from + r * stride)...);
        for (int64_t c = 0; c < columns; c++) first[c] += sum[0][c], second[c] += sum[1][c];
    }
}

// The means of the columns and the sums of squared deviations from them; the center as in `moments_of`.
template <class T>
void column_moments(int64_t rows, int64_t stride, int64_t columns, const T* x, double* mean, double* m2) {
    T center[TILE];
    const int64_t four = rows < 4 ? 0 : stride;
    const double inverse = 1 / double(rows);
    for (int64_t c = 0; c < columns; c++)
        center[c] = (x[c] * T(0.25) + x[c + four] * T(0.25)) + (x[c + 2 * four] * T(0.25) + x[c + 3 * four] * T(0.25));
    const auto add_up = [&](double* first, double* second) {
        column_sums<T>(
            rows, stride, columns, first, second,
            [&](auto at, int64_t row, auto& sum) MG_INLINED {
                const Vector<T> d = at.load(x + row) - at.load(center);
                sum.v[0] += d;
                sum.v[1] += d * d;
            },
            x);
    };
    const auto settle = [&](int64_t c, double sum, double squares) MG_INLINED {
        const double shift = sum * inverse, lost = shift * sum, rest = squares - lost;
        mean[c] = center[c] + shift;
        m2[c] = lost > std::numeric_limits<double>::max() ? lost : rest < 0 ? 0 : rest;  // inf, not inf - inf
        return int64_t(lost <= 4 * rest);
    };
    add_up(mean, m2);
    int64_t settled[TILE], count = 0;  // as wide as their operands, for the vectorizer
    for (int64_t c = 0; c < columns; c++) count += settled[c] = settle(c, mean[c], m2[c]);
    if (count == columns) return;

    // the result of a column does not depend on the others
    for (int64_t c = 0; c < columns; c++) center[c] = settled[c] ? center[c] : T(mean[c]);
    double total[2][TILE];
    add_up(total[0], total[1]);
    for (int64_t c = 0; c < columns; c++)
        if (!settled[c]) settle(c, total[0][c], total[1][c]);
}

template <class T>
void block_moments(const Columns& at, Channels part, const T* x, double* mean, double* m2) {
    over_blocks(at, part, [=, &at](int64_t rows, int64_t columns, int64_t first, int64_t block, int64_t column) {
        const int64_t to = block * at.columns + column;
        if (at.planes()) {
            ask_ahead(at, part, x + first);
            const RowMoments<T> m = moments_of<T, 4>(columns, x + first);
            mean[to] = m.mean();
            m2[to] = m.variance * double(columns);
        } else {
            column_moments(rows, at.columns, columns, x + first, mean + to, m2 + to);
        }
    });
}

// The moments of a channel, merged over its blocks and columns (Chan, Golub and LeVeque 1979):
//   mean = sum of n_b mean_b / n,  m2 = sum of m2_b + n_b (mean_b - mean)^2
template <class F>
void merge_moments(const Columns& at, Channels part, const double* mean, const double* m2, F finish) {
    over_channels(at, part, [=, &at](int64_t channel, int64_t channels) {
        const int64_t columns = channels * at.repeat;
        double center[MERGED], square[MERGED];  // the center as the first block's mean and what is added to it
        for (int64_t c = 0; c < columns; c++) center[c] = square[c] = 0;
        const double* first = mean + channel * at.repeat;
        const auto size = [&](int64_t b) {
            return double(at.planes() ? at.inner : minimum(at.rows, at.outer - b * at.rows));
        };
        const double rows = double(at.planes() ? at.outer * at.inner : at.outer);
        for (int64_t b = 0; b < at.blocks; b++) {
            const double weight = size(b) / rows, *part = mean + b * at.columns + channel * at.repeat;
            for (int64_t c = 0; c < columns; c++) center[c] += weight * (part[c] - first[c]);
        }
        for (int64_t c = 0; c < columns; c++) center[c] += first[c];
        for (int64_t b = 0; b < at.blocks; b++) {
            const int64_t from = b * at.columns + channel * at.repeat;
            for (int64_t c = 0; c < columns; c++) {
                const double d = mean[from + c] - center[c];
                square[c] += m2[from + c] + size(b) * (d * d);
            }
        }
        for (int64_t c = 0; c < channels; c++) {
            const double *means = center + c * at.repeat, *squares = square + c * at.repeat;
            double mid = 0, total = 0;
            for (int64_t k = 0; k < at.repeat; k++) mid += means[k] - means[0];
            mid = means[0] + mid / double(at.repeat);
            for (int64_t k = 0; k < at.repeat; k++) total += squares[k] + rows * ((means[k] - mid) * (means[k] - mid));
            finish(channel + c, mid, total / (rows * double(at.repeat)));
        }
    });
}

// The sums of g and of g (x - mean) over each block and column of the channels
template <class T>
void block_sums(const Columns& at, Channels part, const T* x, const T* center, const T* g, double* first,
                double* second) {
    over_blocks(at, part, [=, &at](int64_t rows, int64_t columns, int64_t begin, int64_t block, int64_t column) {
        const int64_t to = block * at.columns + column;
        const T *from = x + begin, *given = g + begin, *middle = center + column;
        if (at.planes()) {
            ask_ahead(at, part, from);
            ask_ahead(at, part, given);
            double total[2] = {};
            sums<T, 2, 2>(columns, total, [&, c = *middle](auto i, auto& sum) MG_INLINED {
                const Vector<T> v = i.load(given);
                sum[0] += v;
                sum[1] += v * (i.load(from) - c);
            });
            first[to] = total[0];
            second[to] = total[1];
        } else {
            column_sums<T>(
                rows, at.columns, columns, first + to, second + to,
                [&](auto i, int64_t row, auto& sum) MG_INLINED {
                    const Vector<T> v = i.load(given + row);
                    sum.v[0] += v;
                    sum.v[1] += v * (i.load(from + row) - i.load(middle));
                },
                from, given);
        }
    });
}

// The sums over each channel, from its blocks and columns
template <class F>
void merge_sums(const Columns& at, Channels part, const double* first, const double* second, F finish) {
    over_channels(at, part, [=, &at](int64_t channel, int64_t channels) {
        double total[2][MERGED];
        const int64_t columns = channels * at.repeat;
        for (int64_t c = 0; c < columns; c++) total[0][c] = total[1][c] = 0;
        for (int64_t b = 0; b < at.blocks; b++) {
            const int64_t from = b * at.columns + channel * at.repeat;
            for (int64_t c = 0; c < columns; c++) {
                total[0][c] += first[from + c];
                total[1][c] += second[from + c];
            }
        }
        for (int64_t c = 0; c < channels; c++) {
            double a = 0, b = 0;
            for (int64_t k = c * at.repeat; k < (c + 1) * at.repeat; k++) a += total[0][k], b += total[1][k];
            finish(channel + c, a, b);
        }
    });
}

// ── maps ──

// The coefficients of the columns, after the sums in the scratch buffer
template <class T>
struct Coefficients {
    T* array[4];
    int64_t repeat;

    Coefficients(const Columns& at, double* scratch) : repeat(at.repeat) {
        for (int k = 0; k < 4; k++) array[k] = reinterpret_cast<T*>(scratch + (2 * at.blocks + k) * at.columns);
    }
    void set(int64_t channel, int k, double value) const {
        for (int64_t c = channel * repeat; c < (channel + 1) * repeat; c++) array[k][c] = T(value);
    }
};

// The rows of `arrays` follow one another as one long row; it is written in parts of rows or plane by plane.
template <class T>
Walk walk_of(const Columns& at, int arrays, const T* out) {
    return choose_walk<T>(arrays, 1, at.outer * at.channels * at.inner, out, at.planes() ? at.inner : at.columns);
}

// y = (x - center) scale + offset, in the order of the coefficients. Rows are walked in memory order: if everything
// stays in the cache, that gains more than holding the coefficients in registers for a few rows. Input and output are
// prefetched together, whole rows ahead: up to a third faster if others use the cache too, a tenth slower if rows are
// short or all of x fits into a core's own cache (bn4_fwd of benchmarks/workloads.py). Prefetching x alone would be
// slower than not prefetching.
template <class T>
void apply(const Columns& at, Channels part, const T* x, const Coefficients<T>& by, T* y) {
    constexpr int64_t FAR = (24 << 10) / sizeof(T), SHORT_ROW = (2 << 10) / sizeof(T), FIT = (1 << 20) / sizeof(T);
    Walk how = walk_of(at, 2, y);
    if (how == LONG && (at.columns <= SHORT_ROW || at.outer * at.channels * at.inner <= FIT)) how = SHORT;
    specialized(how, [=, &at]<Walk walk>() {
        over_blocks<walk>(at, part, [=, &at](int64_t rows, int64_t columns, int64_t first, int64_t, int64_t column) {
            const T *from = x + first, *center = by.array[0] + column, *scale = by.array[1] + column,
                    *offset = by.array[2] + column;
            T* to = y + first;
            if (at.planes()) {
                sweep<T, 4>(0, columns, [&, c = *center, s = *scale, o = *offset](auto i, int) MG_INLINED {
                    write<walk>(i, to, (i.load(from) - c) * s + o);
                });
                return;
            }
            const int64_t ahead = (FAR + at.columns - 1) / at.columns * at.columns;
            for (int64_t end = rows * at.columns, row = 0; row < end; row += at.columns)
                sweep<T, 2>(0, columns, [=](auto i, int) MG_INLINED {
                    if constexpr (walk == LONG) {
                        read_ahead<walk>(i, from, row + ahead);
                        write_ahead<walk>(i, to, row + ahead);
                    }
                    const Vector<T> d = i.load(from + row) - i.load(center);
                    write<walk>(i, to + row, d * i.load(scale) + i.load(offset));
                });
        });
    });
}

// dx = g scale + ((x - center) slope + constant), or g scale where the statistics were given
template <class T, bool given>
void apply_backward(const Columns& at, Channels part, const T* x, const T* g, const Coefficients<T>& by, T* dx) {
    specialized(walk_of(at, given ? 2 : 3, dx), [=, &at]<Walk walk>() {
        over_blocks<walk>(at, part, [=, &at](int64_t rows, int64_t columns, int64_t first, int64_t, int64_t column) {
            const T *from = x + first, *cotangent = g + first, *center = by.array[0] + column,
                    *scale = by.array[1] + column, *slope = by.array[2] + column, *constant = by.array[3] + column;
            T* to = dx + first;
            const auto map = [=](auto i, int64_t row, auto c, auto s, auto k, auto o) MG_INLINED {
                if constexpr (given)
                    return i.load(cotangent + row) * s;
                else
                    return i.load(cotangent + row) * s + ((i.load(from + row) - c) * k + o);
            };
            if (at.planes()) {
                sweep<T, 2>(0, columns,
                            [&, c = *center, s = *scale, k = *slope, o = *constant](auto i, int)
                                MG_INLINED { write<walk>(i, to, map(i, 0, c, s, k, o)); });
                return;
            }
            const auto walk_rows = [&](auto... read) MG_INLINED {
                over_rows<T>(
                    rows, at.columns, columns,
                    [&](auto i) MG_INLINED {
                        return Held<T, 4>{i.load(center), i.load(scale), i.load(slope), i.load(constant)};
                    },
                    [&](auto i, int64_t row, auto& by)
                        MG_INLINED { write<walk>(i, to + row, map(i, row, by.v[0], by.v[1], by.v[2], by.v[3])); },
                    [](auto, auto&) MG_INLINED {}, read...);
            };
            if constexpr (given)
                walk_rows(cotangent);
            else
                walk_rows(cotangent, from);
        });
    });
}

// ── the kernels ──

// The coefficients of y = (x - mean) rstd gamma + beta: `center` is the mean as a T, and the offset holds its remainder
template <class T>
void standardize(const Columns& at, const Coefficients<T>& by, int64_t c, double mean, double rstd, const T* gamma,
                 const T* beta, double* statistics) {
    const T center = T(mean);
    const double scale = gamma ? rstd * gamma[c] : rstd;
    by.set(c, 0, center);
    by.set(c, 1, scale);
    by.set(c, 2, (beta ? beta[c] : 0) - (mean - center) * scale);
    statistics[c] = mean;
    statistics[at.channels + c] = rstd;
}

// scratch[batch_norm_scratch(..)] holds sums of blocks and coefficients, here and below.
MG_KERNEL(batch_norm[FLOATS])
template <class T>
void batch_norm(int64_t outer, int64_t channels, int64_t inner, const T* x, const T* gamma, const T* beta, double eps,
                T* y, T* mean, T* var, double* statistics, double* scratch) {
    if (outer * channels * inner == 0) return;
    const Columns at(outer, channels, inner);
    double *means = scratch, *m2 = scratch + at.blocks * at.columns;
    const Coefficients<T> by(at, scratch);
    by_channels<T>(at, [&](Channels part) {
        block_moments(at, part, x, means, m2);
        merge_moments(at, part, means, m2, [=, &at](int64_t c, double center, double variance) {
            mean[c] = T(center);
            var[c] = T(variance);
            standardize(at, by, c, center, 1 / __builtin_sqrt(variance + eps), gamma, beta, statistics);
        });
        apply(at, part, x, by, y);
    });
}

MG_KERNEL(batch_norm_eval[FLOATS])
template <class T>
void batch_norm_eval(int64_t outer, int64_t channels, int64_t inner, const T* x, const T* gamma, const T* beta,
                     const T* mean, const T* var, double eps, T* y, double* statistics, double* scratch) {
    const Columns at(outer, channels, inner);
    const Coefficients<T> by(at, scratch);
    for (int64_t c = 0; c < channels; c++)
        standardize(at, by, c, mean[c], 1 / __builtin_sqrt(var[c] + eps), gamma, beta, statistics);
    apply(at, {0, channels}, x, by, y);
}

// With d = x - center, where mean = center + shift, and xhat = (d - shift) rstd
MG_KERNEL(batch_norm_backward[FLOATS])
template <class T>
void batch_norm_backward(int64_t outer, int64_t channels, int64_t inner, bool given, const T* x, const T* gamma,
                         const double* statistics, const T* g, T* dx, T* dgamma, T* dbeta, double* scratch) {
    const Columns at(outer, channels, inner);
    if (outer * channels * inner == 0) {
        for (int64_t c = 0; dgamma && c < channels; c++) dgamma[c] = 0;
        for (int64_t c = 0; dbeta && c < channels; c++) dbeta[c] = 0;
        return;
    }
    double *first = scratch, *second = scratch + at.blocks * at.columns;
    const Coefficients<T> by(at, scratch);
    const double n = double(outer) * double(inner);
    for (int64_t c = 0; c < channels; c++) {
        by.set(c, 0, statistics[c]);
        by.set(c, 1, gamma ? statistics[channels + c] * gamma[c] : statistics[channels + c]);
    }
    by_channels<T>(at, [&](Channels part) {
        if (dgamma || dbeta || !given) {
            block_sums(at, part, x, by.array[0], g, first, second);
            merge_sums(at, part, first, second, [=](int64_t c, double sum, double product) {
                const double rstd = statistics[channels + c], scale = gamma ? rstd * gamma[c] : rstd,
                             shift = statistics[c] - double(T(statistics[c]));
                const double gain = rstd * (product - shift * sum), slope = -scale * rstd * gain / n;
                if (dgamma) dgamma[c] = T(gain);
                if (dbeta) dbeta[c] = T(sum);
                by.set(c, 2, slope);
                by.set(c, 3, -scale * sum / n - slope * shift);
            });
        }
        if (dx && given)
            apply_backward<T, true>(at, part, x, g, by, dx);
        else if (dx)
            apply_backward<T, false>(at, part, x, g, by, dx);
    });
}

}  // namespace

void fill_batch_norm(Kernels& k) { MG_PUT_BATCH_NORM }

}  // namespace mg::MG_ISA
