// Row normalization: LayerNorm, RMSNorm and GroupNorm, forward and backward, on x[rows, width].
//
// Deviations are taken from a float near the mean and corrected afterwards, so that a row keeps its digits where one
// float cannot hold its mean. What is computed for a row depends on no other row. `centered` is false in RMSNorm, which
// leaves the mean where it is.
#include "../runtime/pool.hpp"
#include "rows.hpp"

namespace mg::MG_ISA {
namespace {

// One row, with a gain and a shift per element; either may be null.
template <class T, Walk walk, bool centered>
Standard<T> normalize(int64_t width, const T* x, const T* gamma, const T* beta, double eps, T* y) {
    const Standard<T> s = standardize<T, walk, centered>(width, x, eps);
    sweep<T, 2>(0, width, [=](auto at, int) MG_INLINED {
        Vector<T> v = centered ? (at.load(x) - s.center) * s.scale + s.offset : at.load(x) * s.scale;
        if (gamma) v = v * at.load(gamma);
        if (beta) v = v + at.load(beta);
        write<walk>(at, y, v);
        read_ahead<walk>(at, x, width);
    });
    return s;
}

template <class T, bool centered>
void norm(int64_t rows, int64_t width, const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean, T* rstd) {
    if (width == 0) return;
    const Walk how = choose_walk<T>(2, rows, width, y);
    parallel(rows, 2 + NORM_GRAIN / width, [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++) {
                const Standard<T> s =
                    normalize<T, walk, centered>(width, x + r * width, gamma, beta, eps, y + r * width);
                if (centered) mean[r] = T(s.mean);
                rstd[r] = s.scale;
            }
        });
    });
}

template <class T>
void layer_norm(int64_t rows, int64_t width, const void* x, const void* gamma, const void* beta, double eps, void* y,
                void* mean, void* rstd) {
    norm<T, true>(rows, width, static_cast<const T*>(x), static_cast<const T*>(gamma), static_cast<const T*>(beta), eps,
                  static_cast<T*>(y), static_cast<T*>(mean), static_cast<T*>(rstd));
}

template <class T>
void rms_norm(int64_t rows, int64_t width, const void* x, const void* gamma, double eps, void* y, void* rstd) {
    norm<T, false>(rows, width, static_cast<const T*>(x), static_cast<const T*>(gamma), nullptr, eps,
                   static_cast<T*>(y), nullptr, static_cast<T*>(rstd));
}

// One row of the backward pass. With h = g gamma, d = x - mean and xhat = d rstd, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
// and without mean(h) where the row is not centered: then mean = 0.
template <class T, Walk walk, bool centered>
void differentiate(int64_t width, const T* x, const T* gamma, T mean, T rstd, const T* g, T* dx, T* dgamma, T* dbeta) {
    double total[3] = {};  // of h d, of d, of h
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

    // xhat = d scale + offset and dx = (h - middle) scale + d slope + constant; `shift` is what rounding took from the
    // mean. Of h the mean goes first, because scale makes its rounding large where x hardly varies: of a row of one, 0
    // remains.
    const double inverse_width = 1 / double(width), s = rstd, shift = total[1] * inverse_width,
                 h_mean = total[2] * inverse_width, k = s * s * s * (total[0] * inverse_width - shift * h_mean);
    const T scale = T(s), offset = T(-shift * s), slope = T(-k), middle = T(h_mean),
            constant = T(shift * k - s * (h_mean - middle));
    sweep<T, walk == SHORT ? 1 : 2>(0, width, [&](auto at, int) MG_INLINED {
        const Vector<T> d = centered ? at.load(x) - mean : at.load(x), v = at.load(g);
        read_ahead<walk>(at, x, width);
        read_ahead<walk>(at, g, width);
        if (dgamma) {
            at.store(dgamma, at.load(dgamma) + v * (centered ? d * scale + offset : d * scale));
            if (centered) at.store(dbeta, at.load(dbeta) + v);
        }
        if (dx) {
            const Vector<T> h = gamma ? v * at.load(gamma) : v;
            write<walk>(at, dx, centered ? (h - middle) * scale + (d * slope + constant) : h * scale + d * slope);
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

template <class T, bool centered>
void norm_backward(int64_t rows, int64_t width, const T* x, const T* gamma, const T* mean, const T* rstd, const T* g,
                   T* dx, T* dgamma, T* dbeta, T* partial) {
    const bool affine = dgamma || dbeta;
    if (width == 0) return;

    const int64_t blocks = layer_norm_partials(rows), work = LAYER_NORM_BLOCK * width;
    const int64_t stride = centered ? 2 * width : width;
    const Walk how = choose_walk<T>(3, rows, width, dx);
    parallel(blocks, 1 + NORM_GRAIN / work, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; b++) {
            T* sums = affine ? partial + b * stride : nullptr;
            for (int64_t c = 0; affine && c < stride; c++) sums[c] = 0;
            const int64_t end = (b + 1) * LAYER_NORM_BLOCK < rows ? (b + 1) * LAYER_NORM_BLOCK : rows;
            specialized(how, [=]<Walk walk>() {
                for (int64_t r = b * LAYER_NORM_BLOCK; r < end; r++)
                    differentiate<T, walk, centered>(width, x + r * width, gamma, centered ? mean[r] : 0, rstd[r],
                                                     g + r * width, dx ? dx + r * width : nullptr, sums,
                                                     affine ? sums + width : nullptr);
            });
        }
    });
    if (dgamma) add_partials(blocks, width, stride, partial, dgamma);
    if (dbeta) add_partials(blocks, width, stride, partial + width, dbeta);
}

template <class T>
void layer_norm_backward(int64_t rows, int64_t width, const void* x, const void* gamma, const void* mean,
                         const void* rstd, const void* g, void* dx, void* dgamma, void* dbeta, void* partial) {
    norm_backward<T, true>(rows, width, static_cast<const T*>(x), static_cast<const T*>(gamma),
                           static_cast<const T*>(mean), static_cast<const T*>(rstd), static_cast<const T*>(g),
                           static_cast<T*>(dx), static_cast<T*>(dgamma), static_cast<T*>(dbeta),
                           static_cast<T*>(partial));
}

template <class T>
void rms_norm_backward(int64_t rows, int64_t width, const void* x, const void* gamma, const void* rstd, const void* g,
                       void* dx, void* dgamma, void* partial) {
    norm_backward<T, false>(rows, width, static_cast<const T*>(x), static_cast<const T*>(gamma), nullptr,
                            static_cast<const T*>(rstd), static_cast<const T*>(g), static_cast<T*>(dx),
                            static_cast<T*>(dgamma), nullptr, static_cast<T*>(partial));
}

// f(at, u) for every register of a channel's elements; one by one where they do not fill registers
template <class T, class F, class One>
MG_INLINE void over_channel(int64_t inner, F f, One one) {
    if (inner < 2 * LANES<T>) {
        for (int64_t i = 0; i < inner; i++) one(i);
    } else {
        sweep<T, 2>(0, inner, f);
    }
}

// Rows of m channels with `inner` elements each; row r holds the channels from r % groups m on, and the gain and the
// shift are one per channel, so that they go into the scale and the offset of its elements. The one array that is read
// the processor's own prefetching foresees: to ask for the next row makes it a tenth slower in the shared cache, and
// faster only where it comes from memory.
template <class T>
void group_norm(int64_t rows, int64_t groups, int64_t m, int64_t inner, const void* x_, const void* gamma_,
                const void* beta_, double eps, void* y_, double* mean, double* rstd) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_),
            *beta = static_cast<const T*>(beta_);
    T* y = static_cast<T*>(y_);
    const int64_t width = m * inner;
    if (width == 0) return;
    const Walk how = choose_walk<T>(2, rows, width, y, inner);
    parallel(rows, 2 + NORM_GRAIN / width, [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++) {
                const T* gain = gamma ? gamma + r % groups * m : nullptr;
                const T* rise = beta ? beta + r % groups * m : nullptr;
                const Standard<T> s = inner == 1
                                          ? normalize<T, walk, true>(m, x + r * width, gain, rise, eps, y + r * width)
                                          : standardize<T, walk, true>(width, x + r * width, eps);
                mean[r] = s.mean;
                rstd[r] = s.inverse;
                if (inner == 1) continue;
                for (int64_t c = 0; c < m; c++) {
                    const T k = gain ? gain[c] : T(1), scale = s.scale * k,
                            offset = s.offset * k + (rise ? rise[c] : T(0));
                    const T* from = x + r * width + c * inner;
                    T* to = y + r * width + c * inner;
                    over_channel<T>(
                        inner,
                        [=](auto at, int) MG_INLINED {
                            write<walk>(at, to, (at.load(from) - s.center) * scale + offset);
                            if constexpr (walk == STREAMED) read_ahead<walk>(at, from, width);
                        },
                        [&](int64_t i) MG_INLINED { to[i] = (from[i] - s.center) * scale + offset; });
                }
            }
        });
    });
}

// The backward pass, as `differentiate`, from the sums of g and g d over each channel of a row, which are also the
// row's part of dbeta and dgamma: partial[rows / groups, 2, groups * m]. `shift` is what rounding takes from the mean.
// Each pass over a row asks for what the next one needs: the sums for the lines of dx, the map, which reads two arrays
// backwards, for the next row. A fifth faster where these come from memory or from a cache that others use, and more
// than either alone; rows that fit NEAR the core lose a twentieth, and so do a few large ones that its caches hold.
template <class T>
void group_norm_backward(int64_t rows, int64_t groups, int64_t m, int64_t inner, const void* x_, const void* gamma_,
                         const double* mean, const double* rstd, const void* g_, void* dx_, void* dgamma, void* dbeta,
                         double* partial) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_), *g = static_cast<const T*>(g_);
    T* dx = static_cast<T*>(dx_);
    constexpr int64_t NEAR = 1 << 12;  // bytes
    const int64_t width = m * inner, channels = groups * m, samples = width ? rows / groups : 0;

    Walk how = choose_walk<T>(3, rows, width, dx, inner);
    if (how == LONG && inner > 1 && width * int64_t(sizeof(T)) <= NEAR) how = SHORT;
    parallel(samples * groups, 1 + NORM_GRAIN / (1 + 2 * width), [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++) {
                const T *row = x + r * width, *of_row = g + r * width, *gain = gamma ? gamma + r % groups * m : nullptr;
                const T center = T(mean[r]);
                double *dgain = partial + r / groups * 2 * channels + r % groups * m, *dshift = dgain + channels;
                const double s = rstd[r], shift = mean[r] - center;
                if (inner == 1) {  // then the parameters are one per element
                    for (int64_t c = 0; c < m; c++) {
                        dshift[c] = of_row[c];
                        dgain[c] = s * (of_row[c] * ((row[c] - center) - shift));
                    }
                    if (dx)
                        differentiate<T, walk, true>(m, row, gain, center, T(s), of_row, dx + r * width, nullptr,
                                                     nullptr);
                    continue;
                }
                double h = 0, hd = 0;
                for (int64_t c = 0; c < m; c++) {
                    const T *from = row + c * inner, *of = of_row + c * inner,
                            *to = dx ? dx + r * width + c * inner : of;
                    double total[2] = {};
                    const auto add = [&](auto at, auto& sum) MG_INLINED {
                        write_ahead<walk>(at, to, 0);
                        const Vector<T> v = at.load(of);
                        sum[0] += v;
                        sum[1] += v * (at.load(from) - center);
                    };
                    if (inner >= 16 * LANES<T>) {
                        sums<T, 2, 4>(inner, total, add);
                    } else if (inner >= 2 * LANES<T>) {
                        sums<T, 2, 1>(inner, total, add);
                    } else {
                        for (int64_t i = 0; i < inner; i++) {
                            total[0] += of[i];
                            total[1] += of[i] * (from[i] - center);
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
                const double k = s * s * s * (hd / double(width) - shift * h);
                const T slope = T(-k), constant = T(shift * k - s * h);
                // backwards: the channels read last are still in the nearest cache, which may not hold a whole row
                for (int64_t c = m; c-- > 0;) {
                    const T *from = row + c * inner, *of = of_row + c * inner;
                    const T scale = T(gain ? s * gain[c] : s);
                    T* to = dx + r * width + c * inner;
                    over_channel<T>(
                        inner,
                        [=](auto at, int) MG_INLINED {
                            write<walk>(at, to, at.load(of) * scale + ((at.load(from) - center) * slope + constant));
                            read_ahead<walk>(at, from, width);
                            read_ahead<walk>(at, of, width);
                        },
                        [&](int64_t i) MG_INLINED { to[i] = of[i] * scale + ((from[i] - center) * slope + constant); });
                }
            }
        });
    });
    if (dgamma) add_partials(samples, channels, 2 * channels, partial, static_cast<T*>(dgamma));
    if (dbeta) add_partials(samples, channels, 2 * channels, partial + channels, static_cast<T*>(dbeta));
}

template <class T>
void fill(Kernels& k, int dtype) {
    k.layer_norm[dtype] = layer_norm<T>;
    k.layer_norm_backward[dtype] = layer_norm_backward<T>;
    k.rms_norm[dtype] = rms_norm<T>;
    k.rms_norm_backward[dtype] = rms_norm_backward<T>;
    k.group_norm[dtype] = group_norm<T>;
    k.group_norm_backward[dtype] = group_norm_backward<T>;
}

}  // namespace

void fill_norm(Kernels& k) {
    fill<float>(k, 0);
    fill<double>(k, 1);
}

}  // namespace mg::MG_ISA
