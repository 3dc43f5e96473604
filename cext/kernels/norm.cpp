// Row normalization, forward and backward: LayerNorm, RMSNorm, GroupNorm and InstanceNorm.
//
// The rows of x[rows, m, inner] consist of m channels of `inner` elements. Row r belongs to group r % groups, and
// gamma[groups, m] and beta[groups, m] have one value per channel, which is one per element if inner = 1. Deviations
// are taken from a T near the mean and corrected afterwards, so that a row keeps its digits even if a T cannot
// represent its mean. The result of a row depends on no other row. RMSNorm is not `centered`: it does not subtract the
// mean.
#include "../runtime/pool.hpp"
#include "rows.hpp"

namespace mg::MG_ISA {
namespace {

// f(at, u) for every register of a channel's elements; one(i) for each element if they do not fill registers
template <class T, class F, class One>
MG_INLINE void over_channel(int64_t inner, F f, One one) {
    if (inner < 2 * LANES<T>) {
        for (int64_t i = 0; i < inner; i++) one(i);
    } else {
        sweep<T, 2>(0, inner, f);
    }
}

// y = xhat gamma + beta for a row with one gamma and one beta per element; either may be null.
template <class T, Walk walk, bool centered>
void apply_elements(int64_t width, const T* x, Standard<T> s, const T* gamma, const T* beta, T* y) {
    for_affine(gamma, beta, [=](auto gamma, auto beta) MG_INLINED {
        sweep<T, 2>(0, width, [=](auto at, int) MG_INLINED {
            const Vector<T> v = centered ? (at.load(x) - s.center) * s.scale + s.offset : at.load(x) * s.scale;
            write<walk>(at, y, affine<T>(at, v, gamma, beta));
            read_ahead<walk>(at, x, width);
        });
    });
}

// The same with one gamma and one beta per channel, which become part of the scale and the offset of its elements. The
// hardware prefetcher already covers the single input stream: prefetching the next row makes this a tenth slower if the
// row is in the shared cache, and faster only if it comes from memory (gn4_fwd of benchmarks/workloads.py).
template <class T, Walk walk>
MG_INLINE void apply_channels(int64_t m, int64_t inner, const T* x, Standard<T> s, const T* gamma, const T* beta,
                              T* y) {
    for (int64_t c = 0; c < m; c++) {
        const T k = gamma ? gamma[c] : T(1), scale = s.scale * k, offset = fused(s.offset, k, beta ? beta[c] : T(0));
        const T* from = x + c * inner;
        T* to = y + c * inner;
        over_channel<T>(
            inner,
            [=](auto at, int) MG_INLINED {
                write<walk>(at, to, (at.load(from) - s.center) * scale + offset);
                if constexpr (walk == STREAMED) read_ahead<walk>(at, from, m * inner);
            },
            [&](int64_t i) MG_INLINED { to[i] = (from[i] - s.center) * scale + offset; });
    }
}

// If all rows have the same gamma and beta (`shared`), one per element, groups and inner are 1. S is the type in which
// the mean and rstd of a row are kept for the backward pass.
template <class T, bool shared, bool centered, class S = std::conditional_t<shared, T, double>>
void normalize_rows(int64_t rows, int64_t groups, int64_t m, int64_t inner, const T* x, const T* gamma, const T* beta,
                    double eps, T* y, S* mean, S* rstd) {
    const int64_t width = shared ? m : m * inner;
    const bool elements = shared || inner == 1;
    if (width == 0) return;
    const Walk how = choose_walk<T>(2, rows, width, y, elements ? width : inner);
    parallel(rows, 2 + NORM_GRAIN / width, [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++) {
                const int64_t first = shared ? 0 : r % groups * m;
                const T *from = x + r * width, *row_gamma = gamma ? gamma + first : nullptr,
                        *row_beta = beta ? beta + first : nullptr;
                const Standard<T> s = standardize<T, walk, centered>(width, from, eps);
                if (centered) mean[r] = S(s.mean);
                rstd[r] = S(s.inverse);
                if (elements)
                    apply_elements<T, walk, centered>(width, from, s, row_gamma, row_beta, y + r * width);
                else
                    apply_channels<T, walk>(m, inner, from, s, row_gamma, row_beta, y + r * width);
            }
        });
    });
}

MG_KERNEL(normalize[FLOATS])
template <class T>
void normalize(int64_t rows, int64_t groups, int64_t m, int64_t inner, const T* x, const T* gamma, const T* beta,
               double eps, T* y, void* mean, void* rstd) {
    const auto run = [=]<bool shared, bool centered>() {
        using S = std::conditional_t<shared, T, double>;
        normalize_rows<T, shared, centered>(rows, groups, m, inner, x, gamma, beta, eps, y, static_cast<S*>(mean),
                                            static_cast<S*>(rstd));
    };
    if (!mean)
        run.template operator()<true, false>();
    else if (groups == 1 && inner == 1)
        run.template operator()<true, true>();
    else
        run.template operator()<false, true>();
}

// The backward pass of a row. With h = g gamma, d = x - mean and xhat = (d - shift) rstd, where `shift` is the rounding
// error of the mean, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
// If the row is not centered, mean(h) is left out. Rearranged, with k = rstd^3 (mean(h d) - shift mean(h)),
//   dx = (h - middle) rstd - d k + shift k - rstd (mean(h) - middle) = (h - middle) scale + d slope + constant
template <class T>
struct Slopes {
    T scale, slope, middle, constant;

    // from the means of h and of h d; `middle` is either the first one, rounded, or 0
    MG_INLINE Slopes(double rstd, double shift, double h, double hd, T middle) : scale(T(rstd)), middle(middle) {
        const double k = rstd * rstd * rstd * (hd - shift * h);
        slope = T(-k), constant = T(shift * k - rstd * (h - middle));
    }
};

// One row with one gamma per element. Unless dgamma is null, the row's parts are added to dgamma and dbeta.
template <class T, Walk walk, bool centered>
void differentiate(int64_t width, const T* x, const T* gamma, T mean, T rstd, const T* g, T* dx, T* dgamma, T* dbeta) {
    double total[3] = {};  // the sums of h d, d and h
    sums<T, centered ? 3 : 1, walk == SHORT ? 1 : 2>(width, total, [&](auto at, auto& sum) MG_INLINED {
        const Vector<T> d = centered ? at.keep(at.load(x) - mean) : at.load(x);
        Vector<T> h = at.load(g);
        if (gamma) h = h * at.load(gamma);
        sum[0] += h * d;
        if constexpr (centered) {
            sum[1] += d;
            sum[2] += h;
        }
    });

    // The mean of h is subtracted before scaling, because the scale magnifies its rounding error if x hardly varies.
    // So dx is exactly 0 for a row of one element.
    const double n = 1 / double(width), shift = total[1] * n, h_mean = total[2] * n;
    const Slopes<T> s(rstd, shift, h_mean, total[0] * n, T(h_mean));
    const T offset = T(-shift * rstd);
    sweep<T, walk == SHORT ? 1 : 2>(0, width, [&](auto at, int) MG_INLINED {
        const Vector<T> d = centered ? at.load(x) - mean : at.load(x), v = at.load(g);
        read_ahead<walk>(at, x, width);
        read_ahead<walk>(at, g, width);
        if (dgamma) {
            at.store(dgamma, at.load(dgamma) + v * (centered ? d * s.scale + offset : d * s.scale));
            if (centered) at.store(dbeta, at.load(dbeta) + v);
        }
        if (dx) {
            const Vector<T> h = affine<T>(at, v, gamma, nullptr);
            write<walk>(at, dx,
                        centered ? (h - s.middle) * s.scale + (d * s.slope + s.constant) : h * s.scale + d * s.slope);
        }
    });
}

// y[width] = the sum over b of partial[b * stride + c]
template <class T, class Partial>
void add_partials(int64_t blocks, int64_t width, int64_t stride, const Partial* partial, T* y) {
    constexpr int64_t COLUMNS = 256;
    const int64_t tiles = (width + COLUMNS - 1) / COLUMNS;
    parallel(tiles, 1 + GRAIN / (COLUMNS * (1 + blocks)), [&](int64_t first, int64_t last) {
        for (int64_t begin = first * COLUMNS; begin < width && begin < last * COLUMNS; begin += COLUMNS) {
            const int64_t columns = width - begin < COLUMNS ? width - begin : COLUMNS;
            double sum[COLUMNS] = {};
            for (int64_t b = 0; b < blocks; b++) {
                for (int64_t c = 0; c < columns; c++) sum[c] += partial[b * stride + begin + c];
            }
            for (int64_t c = 0; c < columns; c++) y[begin + c] = T(sum[c]);
        }
    });
}

// Rows that share one gamma per element. Sums for each row would take as much memory as x, so each block of rows has
// its own: partial[norm_blocks(rows), 2 or 1, width], without dbeta if the rows are not centered.
template <class T, bool centered>
void elements_backward(int64_t rows, int64_t width, const T* x, const T* gamma, const T* mean, const T* rstd,
                       const T* g, T* dx, T* dgamma, T* dbeta, T* partial) {
    const bool affine = dgamma || dbeta;
    if (width == 0) return;

    const int64_t blocks = norm_blocks(rows), work = NORM_BLOCK * width;
    const int64_t stride = centered ? 2 * width : width;
    const Walk how = choose_walk<T>(3, rows, width, dx);
    parallel_each(blocks, 1 + NORM_GRAIN / work, [&](int64_t b) {
        T* sums = affine ? partial + b * stride : nullptr;
        for (int64_t c = 0; affine && c < stride; c++) sums[c] = 0;
        const int64_t end = (b + 1) * NORM_BLOCK < rows ? (b + 1) * NORM_BLOCK : rows;
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = b * NORM_BLOCK; r < end; r++)
                differentiate<T, walk, centered>(width, x + r * width, gamma, centered ? mean[r] : 0, rstd[r],
                                                 g + r * width, dx ? dx + r * width : nullptr, sums,
                                                 affine ? sums + width : nullptr);
        });
    });
    if (dgamma) add_partials(blocks, width, stride, partial, dgamma);
    if (dbeta) add_partials(blocks, width, stride, partial + width, dbeta);
}

// Rows with one gamma per channel. The sums of g and g d over each channel of a row are also the row's part of dbeta
// and dgamma: partial[rows / groups, 2, groups * m]. The mean is in double, so that `shift` takes no sum over d. Each
// pass over a row prefetches for the next pass: the sums prefetch the lines of dx, and the map, which reads two arrays
// backwards, prefetches the next row. Together they make it a fifth faster, more than either alone, if the data comes
// from memory or from a cache that others use (gn4_bwd of benchmarks/workloads.py). Rows of up to NEAR bytes become a
// twentieth slower, and so do a few large rows that are in the core's own caches.
template <class T>
void channels_backward(int64_t rows, int64_t groups, int64_t m, int64_t inner, const T* x, const T* gamma,
                       const double* mean, const double* rstd, const T* g, T* dx, T* dgamma, T* dbeta,
                       double* partial) {
    constexpr int64_t NEAR = 1 << 12;  // bytes
    const int64_t width = m * inner, channels = groups * m, samples = width ? rows / groups : 0;

    Walk how = choose_walk<T>(3, rows, width, dx, inner);
    if (how == LONG && inner > 1 && width * int64_t(sizeof(T)) <= NEAR) how = SHORT;
    parallel(samples * groups, 1 + NORM_GRAIN / (1 + 2 * width), [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++) {
                const T *row = x + r * width, *g_row = g + r * width, *gain = gamma ? gamma + r % groups * m : nullptr;
                const T center = T(mean[r]);
                double *dgain = partial + r / groups * 2 * channels + r % groups * m, *dshift = dgain + channels;
                const double s = rstd[r], shift = mean[r] - center;
                if (inner == 1) {  // then there is one gamma per element
                    for (int64_t c = 0; c < m; c++) {
                        dshift[c] = g_row[c];
                        dgain[c] = s * (g_row[c] * ((row[c] - center) - shift));
                    }
                    if (dx)
                        differentiate<T, walk, true>(m, row, gain, center, T(s), g_row, dx + r * width, nullptr,
                                                     nullptr);
                    continue;
                }
                double h = 0, hd = 0;
                for (int64_t c = 0; c < m; c++) {
                    const T *from = row + c * inner, *given = g_row + c * inner,
                            *to = dx ? dx + r * width + c * inner : given;
                    double total[2] = {};
                    const auto add = [&](auto at, auto& sum) MG_INLINED {
                        write_ahead<walk>(at, to, 0);
                        const Vector<T> v = at.load(given);
                        sum[0] += v;
                        sum[1] += v * (at.load(from) - center);
                    };
                    if (inner >= 16 * LANES<T>) {
                        sums<T, 2, 4>(inner, total, add);
                    } else if (inner >= 2 * LANES<T>) {
                        sums<T, 2, 1>(inner, total, add);
                    } else {
                        for (int64_t i = 0; i < inner; i++) {
                            total[0] += given[i];
                            total[1] += given[i] * (from[i] - center);
                        }
                    }
                    const double k = gain ? gain[c] : 1;
                    h += k * total[0];
                    hd += k * total[1];
                    dshift[c] = total[0];
                    dgain[c] = s * (total[1] - shift * total[0]);
                }
                if (!dx) continue;
                h /= double(width);
                const Slopes<T> by(s, shift, h, hd / double(width), 0);
                // Backwards, because the nearest cache, which may not hold a whole row, has the channels read last.
                for (int64_t c = m; c-- > 0;) {
                    const T *from = row + c * inner, *given = g_row + c * inner;
                    const T scale = T(gain ? s * gain[c] : s);
                    T* to = dx + r * width + c * inner;
                    over_channel<T>(
                        inner,
                        [=](auto at, int) MG_INLINED {
                            write<walk>(at, to,
                                        at.load(given) * scale + ((at.load(from) - center) * by.slope + by.constant));
                            read_ahead<walk>(at, from, width);
                            read_ahead<walk>(at, given, width);
                        },
                        [&](int64_t i)
                            MG_INLINED { to[i] = given[i] * scale + ((from[i] - center) * by.slope + by.constant); });
                }
            }
        });
    });
    if (dgamma) add_partials(samples, channels, 2 * channels, partial, dgamma);
    if (dbeta) add_partials(samples, channels, 2 * channels, partial + channels, dbeta);
}

// scratch[normalize_scratch(..)], in the dtype of rstd, holds partial sums over rows.
MG_KERNEL(normalize_backward[FLOATS])
template <class T>
void normalize_backward(int64_t rows, int64_t groups, int64_t m, int64_t inner, const T* x, const T* gamma,
                        const void* mean, const void* rstd, const T* g, T* dx, T* dgamma, T* dbeta, void* scratch) {
    const auto given = typed(mean), spread = typed(rstd);
    const auto partial = typed(scratch);
    if (!mean)
        elements_backward<T, false>(rows, m, x, gamma, nullptr, spread, g, dx, dgamma, dbeta, partial);
    else if (groups == 1 && inner == 1)
        elements_backward<T, true>(rows, m, x, gamma, given, spread, g, dx, dgamma, dbeta, partial);
    else
        channels_backward<T>(rows, groups, m, inner, x, gamma, given, spread, g, dx, dgamma, dbeta, partial);
}

}  // namespace

void fill_norm(Kernels& k) { MG_PUT_NORM }

}  // namespace mg::MG_ISA
