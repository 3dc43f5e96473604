// Row normalization: LayerNorm forward and backward on x[rows, width].
//
// Deviations are taken from a float near the mean and corrected afterwards, so that a row keeps its digits where one
// float cannot hold its mean. What is computed for a row depends on no other row.
#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 15;  // elements: a few microseconds of work

// Narrow rows go in pairs, which hides the latency of the horizontal sums. Wide rows go one by one: the processor
// fetches the next row from memory while it works on this one, and a pair is more than it looks ahead.
// f.template operator()<rows, wide>(first row)
template <class T, class F>
MG_INLINE void each_row(int64_t width, int64_t begin, int64_t end, F f) {
    if (width * int64_t(sizeof(T)) > 2048) {
        for (int64_t r = begin; r < end; r++) f.template operator()<1, true>(r);
    } else {
        for (; begin + 2 <= end; begin += 2) f.template operator()<2, false>(begin);
        if (begin < end) f.template operator()<1, false>(begin);
    }
}

// R rows. With any center c near the mean, and d = x - c,
//   mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2
// c is the mean of the first four; where that is so far off that the difference would cancel, the mean found first
// becomes the center of a second pass.
template <class T, int R, bool wide>
void normalize(int64_t width, const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean, T* rstd) {
    const double inverse_width = 1 / double(width);
    double shift[R], variance[R];
    T center[R];
    for (int r = 0; r < R; r++) {
        const T* v = x + r * width;
        center[r] = width < 4 ? v[0] : ((v[0] + v[1]) + (v[2] + v[3])) * T(0.25);
    }
    for (bool first = true;; first = false) {
        double moments[2 * R] = {};
        sums<T, 2 * R,
             wide             ? 4
             : REGISTER == 64 ? 1
                              : 2>(width, moments, [&](auto at, auto& sum) MG_INLINED {
            for (int r = 0; r < R; r++) {
                const Vector<T> d = at.keep(at.load(x + r * width) - center[r]);
                sum[r] += d;
                sum[R + r] += d * d;
            }
        });
        bool again = false;
        for (int r = 0; r < R; r++) {
            shift[r] = moments[r] * inverse_width;
            const double square = shift[r] * shift[r];
            variance[r] = moments[R + r] * inverse_width - square;
            if (first && square > 4 * variance[r]) {
                center[r] = T(center[r] + shift[r]);
                again = true;
            }
        }
        if (!again) break;
    }

    T scale[R], offset[R];  // (x - mean) rstd = (x - center) scale + offset
    for (int r = 0; r < R; r++) {
        const double inverse = 1 / __builtin_sqrt((variance[r] < 0 ? 0 : variance[r]) + eps);
        mean[r] = T(center[r] + shift[r]);
        rstd[r] = scale[r] = T(inverse);
        offset[r] = T(-shift[r] * inverse);
    }
    sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED {
        for (int r = 0; r < R; r++) {
            Vector<T> v = (at.load(x + r * width) - center[r]) * scale[r] + offset[r];
            if (gamma) v = v * at.load(gamma);
            if (beta) v = v + at.load(beta);
            at.store(y + r * width, v);
            if (wide) __builtin_prefetch(x + width + at.i, 0, 2);
        }
    });
}

template <class T>
void layer_norm(int64_t rows, int64_t width, const void* x_, const void* gamma_, const void* beta_, double eps,
                void* y_, void* mean_, void* rstd_) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_),
            *beta = static_cast<const T*>(beta_);
    T *y = static_cast<T*>(y_), *mean = static_cast<T*>(mean_), *rstd = static_cast<T*>(rstd_);
    if (width == 0) return;
    parallel(rows, 2 + GRAIN / width, [=](int64_t begin, int64_t end) {
        each_row<T>(width, begin, end, [=]<int R, bool wide>(int64_t r) {
            normalize<T, R, wide>(width, x + r * width, gamma, beta, eps, y + r * width, mean + r, rstd + r);
        });
    });
}

// R rows of the backward pass. With h = g gamma, d = x - mean and xhat = d rstd, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
template <class T, int R, bool wide>
void differentiate(int64_t width, const T* x, const T* gamma, const T* mean_, const T* rstd, const T* g, T* dx,
                   T* dgamma, T* dbeta) {
    T mean[R];
    for (int r = 0; r < R; r++) mean[r] = mean_[r];
    double total[3 * R] = {};  // of d, of h, of h d
    sums<T, 3 * R, wide ? 2 : 1>(width, total, [&](auto at, auto& sum) MG_INLINED {
        for (int r = 0; r < R; r++) {
            const Vector<T> d = at.keep(at.load(x + r * width) - mean[r]);
            Vector<T> h = at.load(g + r * width);
            if (gamma) h = h * at.load(gamma);
            sum[3 * r] += d;
            sum[3 * r + 1] += h;
            sum[3 * r + 2] += h * d;
        }
    });

    // xhat = d scale + offset and dx = h scale + d slope + constant; `shift` is what rounding took from the mean
    const double inverse_width = 1 / double(width);
    T scale[R], offset[R], slope[R], constant[R];
    for (int r = 0; r < R; r++) {
        const double s = rstd[r], shift = total[3 * r] * inverse_width, h = total[3 * r + 1] * inverse_width;
        const double k = s * s * s * (total[3 * r + 2] * inverse_width - shift * h);
        scale[r] = T(s);
        offset[r] = T(-shift * s);
        slope[r] = T(-k);
        constant[r] = T(shift * k - s * h);
    }
    sweep<T, wide ? 2 : 1>(0, width, [&](auto at, int) MG_INLINED {
        Vector<T> sum_gamma = {}, sum_beta = {};
        if (dgamma) {
            sum_gamma = at.load(dgamma);
            sum_beta = at.load(dbeta);
        }
        for (int r = 0; r < R; r++) {
            const Vector<T> d = at.load(x + r * width) - mean[r], v = at.load(g + r * width);
            if (dgamma) {
                sum_gamma += v * (d * scale[r] + offset[r]);
                sum_beta += v;
            }
            if (dx) {
                const Vector<T> h = gamma ? v * at.load(gamma) : v;
                at.store(dx + r * width, h * scale[r] + (d * slope[r] + constant[r]));
            }
        }
        if (dgamma) {
            at.store(dgamma, sum_gamma);
            at.store(dbeta, sum_beta);
        }
    });
}

// y[width] = the sum over partials[blocks, 2, width], of either kind
template <class T>
void add_partials(int64_t blocks, int64_t width, const T* partial, T* y) {
    constexpr int64_t COLUMNS = 256;
    const int64_t tiles = (width + COLUMNS - 1) / COLUMNS;
    parallel(tiles, 1 + GRAIN / (COLUMNS * (1 + blocks)), [&](int64_t first, int64_t last) {
        for (int64_t begin = first * COLUMNS; begin < width && begin < last * COLUMNS; begin += COLUMNS) {
            const int64_t columns = width - begin < COLUMNS ? width - begin : COLUMNS;
            double sum[COLUMNS] = {};
            for (int64_t b = 0; b < blocks; b++) {
                for (int64_t c = 0; c < columns; c++) sum[c] += partial[2 * b * width + begin + c];
            }
            for (int64_t c = 0; c < columns; c++) y[begin + c] = T(sum[c]);
        }
    });
}

template <class T>
void layer_norm_backward(int64_t rows, int64_t width, const void* x_, const void* gamma_, const void* mean_,
                         const void* rstd_, const void* g_, void* dx_, void* dgamma, void* dbeta, void* partial_) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_), *g = static_cast<const T*>(g_);
    const T *mean = static_cast<const T*>(mean_), *rstd = static_cast<const T*>(rstd_);
    T *dx = static_cast<T*>(dx_), *partial = static_cast<T*>(partial_);
    const bool affine = dgamma || dbeta;
    if (width == 0) return;

    const int64_t blocks = layer_norm_partials(rows), work = LAYER_NORM_BLOCK * width;
    parallel(blocks, 1 + GRAIN / work, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; b++) {
            T* sums = affine ? partial + 2 * b * width : nullptr;
            for (int64_t c = 0; affine && c < 2 * width; c++) sums[c] = 0;
            const int64_t end = (b + 1) * LAYER_NORM_BLOCK < rows ? (b + 1) * LAYER_NORM_BLOCK : rows;
            each_row<T>(width, b * LAYER_NORM_BLOCK, end, [=]<int R, bool wide>(int64_t r) {
                differentiate<T, R, wide>(width, x + r * width, gamma, mean + r, rstd + r, g + r * width,
                                          dx ? dx + r * width : nullptr, sums, affine ? sums + width : nullptr);
            });
        }
    });
    if (dgamma) add_partials(blocks, width, partial, static_cast<T*>(dgamma));
    if (dbeta) add_partials(blocks, width, partial + width, static_cast<T*>(dbeta));
}

}  // namespace

void fill_norm(Kernels& k) {
    k.layer_norm[0] = layer_norm<float>;
    k.layer_norm[1] = layer_norm<double>;
    k.layer_norm_backward[0] = layer_norm_backward<float>;
    k.layer_norm_backward[1] = layer_norm_backward<double>;
}

}  // namespace mg::MG_ISA
