// Row normalization: LayerNorm forward and backward on x[rows, width].
//
// Deviations are taken from a float near the mean and corrected afterwards, so that a row keeps its digits where one
// float cannot hold its mean. Rows go in pairs, which hides the latency of the horizontal sums, and the next pair is
// fetched from memory meanwhile; what is computed for a row does not depend on its partner.
#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 15;  // elements: a few microseconds of work

// How far ahead to fetch: the next pair of rows, unless it would push this one out of the cache.
template <class T>
MG_INLINE int64_t next_pair(int64_t width) {
    return width * int64_t(sizeof(T)) <= 4096 ? 2 * width : 0;
}

// Two rows. With any center c near the mean, and d = x - c,
//   mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2
// c is the mean of the first four; where that is so far off that the difference would cancel, the mean found first
// becomes the center of a second pass.
template <class T>
void normalize(int64_t width, const T* x0, const T* x1, const T* gamma, const T* beta, double eps, T* y0, T* y1, T* mean0,
               T* mean1, T* rstd0, T* rstd1) {
    const T* x[] = {x0, x1};
    T *y[] = {y0, y1}, *mean[] = {mean0, mean1}, *rstd[] = {rstd0, rstd1};
    const double inverse_width = 1 / double(width);
    const int64_t next = next_pair<T>(width);
    double shift[2], variance[2];
    T center[2];
    for (int r = 0; r < 2; r++) center[r] = width < 4 ? x[r][0] : ((x[r][0] + x[r][1]) + (x[r][2] + x[r][3])) * T(0.25);
    for (bool first = true;; first = false) {
        double moments[4] = {};
        sums<T, 4, REGISTER == 64 ? 1 : 2>(width, moments, [&](auto at, auto& sum) MG_INLINED {
            for (int r = 0; r < 2; r++) {
                __builtin_prefetch(x[r] + next + at.i);
                const Vector<T> d = at.keep(at.load(x[r]) - center[r]);
                sum[r] += d;
                sum[2 + r] += d * d;
            }
        });
        bool again = false;
        for (int r = 0; r < 2; r++) {
            shift[r] = moments[r] * inverse_width;
            const double square = shift[r] * shift[r];
            variance[r] = moments[2 + r] * inverse_width - square;
            if (first && square > 16 * variance[r]) {
                center[r] = T(center[r] + shift[r]);
                again = true;
            }
        }
        if (!again) break;
    }

    T scale[2], offset[2];  // (x - mean) rstd = (x - center) scale + offset
    for (int r = 0; r < 2; r++) {
        const double inverse = 1 / __builtin_sqrt((variance[r] < 0 ? 0 : variance[r]) + eps);
        *mean[r] = T(center[r] + shift[r]);
        *rstd[r] = scale[r] = T(inverse);
        offset[r] = T(-shift[r] * inverse);
    }
    sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED {
        for (int r = 0; r < 2; r++) {
            Vector<T> v = (at.load(x[r]) - center[r]) * scale[r] + offset[r];
            if (gamma) v = v * at.load(gamma);
            if (beta) v = v + at.load(beta);
            at.store(y[r], v);
            __builtin_prefetch(y[r] + next + at.i, 1);
        }
    });
}

template <class T>
void layer_norm(int64_t rows, int64_t width, const void* x_, const void* gamma_, const void* beta_, double eps, void* y_,
                void* mean_, void* rstd_) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_), *beta = static_cast<const T*>(beta_);
    T *y = static_cast<T*>(y_), *mean = static_cast<T*>(mean_), *rstd = static_cast<T*>(rstd_);
    if (width == 0) return;
    parallel(rows, 2 + GRAIN / width, [=](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; r += 2) {
            const int64_t s = r + 1 < end ? r + 1 : r;  // the last row of an odd number is its own partner
            normalize(width, x + r * width, x + s * width, gamma, beta, eps, y + r * width, y + s * width, mean + r, mean + s,
                      rstd + r, rstd + s);
        }
    });
}

// R rows of the backward pass. With h = g gamma, d = x - mean and xhat = d rstd, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
template <class T, int R>
void differentiate(int64_t width, const T* x, const T* gamma, const T* mean_, const T* rstd, const T* g, T* dx, T* dgamma,
                   T* dbeta) {
    const int64_t next = next_pair<T>(width);
    T mean[R];
    for (int r = 0; r < R; r++) mean[r] = mean_[r];
    double total[3 * R] = {};  // of d, of h, of h d
    sums<T, 3 * R, 1>(width, total, [&](auto at, auto& sum) MG_INLINED {
        for (int r = 0; r < R; r++) {
            __builtin_prefetch(x + next + r * width + at.i);
            __builtin_prefetch(g + next + r * width + at.i);
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
    sweep<T, 1>(0, width, [&](auto at, int) MG_INLINED {
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
                at.store(dx + r * width, (gamma ? v * at.load(gamma) : v) * scale[r] + (d * slope[r] + constant[r]));
                __builtin_prefetch(dx + next + r * width + at.i, 1);
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
void layer_norm_backward(int64_t rows, int64_t width, const void* x_, const void* gamma_, const void* mean_, const void* rstd_,
                         const void* g_, void* dx_, void* dgamma, void* dbeta, void* partial_) {
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
            const auto run = [&]<int R>(int64_t r) {
                differentiate<T, R>(width, x + r * width, gamma, mean + r, rstd + r, g + r * width,
                                    dx ? dx + r * width : nullptr, sums, affine ? sums + width : nullptr);
            };
            int64_t r = b * LAYER_NORM_BLOCK;
            for (; r + 2 <= end; r += 2) run.template operator()<2>(r);
            if (r < end) run.template operator()<1>(r);
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
