// Row normalization: LayerNorm forward and backward on x[rows, width].
//
// Deviations are taken from a float near the mean and corrected afterwards, so that a row keeps its digits where one
// float cannot hold its mean. What is computed for a row depends on no other row.
#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 15;  // elements: a few microseconds of work

// How rows are walked: LONG ones are read ahead of their use; with STREAMED ones so much is written that it cannot stay
// in the cache, so it bypasses it.
enum Walk { SHORT, LONG, STREAMED };

template <class T>
Walk choose_walk(int64_t rows, int64_t width, const void* out) {
    constexpr int64_t LONG_ROW = 2048, HUGE_OUTPUT = 8 << 20;  // bytes
    const int64_t row = width * int64_t(sizeof(T));
    if (row <= LONG_ROW) return SHORT;
    return rows * row >= HUGE_OUTPUT && row % REGISTER == 0 && can_stream(out) ? STREAMED : LONG;
}

// f.template operator()<walk>()
template <class F>
MG_INLINE void specialized(Walk walk, F f) {
    if (walk == SHORT) {
        f.template operator()<SHORT>();
    } else if (walk == LONG) {
        f.template operator()<LONG>();
    } else {
        f.template operator()<STREAMED>();
        finish_streams();
    }
}

template <Walk walk, class T, class At>
MG_INLINE void write(const At& at, T* p, Vector<T> v) {
    if constexpr (walk == STREAMED)
        at.stream(p, v);
    else
        at.store(p, v);
}

// One row. With any center c near the mean, and d = x - c,
//   mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2
// c is the mean of the first four; where that is so far off that the difference would cancel, the mean found first
// becomes the center of a second pass.
template <class T, Walk walk>
void normalize(int64_t width, const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean, T* rstd) {
    const double inverse_width = 1 / double(width);
    T center = width < 4 ? x[0] : ((x[0] + x[1]) + (x[2] + x[3])) * T(0.25);
    double shift, variance;
    for (bool first = true;; first = false) {
        double moments[2] = {};
        sums<T, 2,
             walk != SHORT    ? 4
             : REGISTER == 64 ? 1
                              : 2>(width, moments, [&](auto at, auto& sum) MG_INLINED {
            const Vector<T> d = at.keep(at.load(x) - center);
            sum[0] += d;
            sum[1] += d * d;
        });
        shift = moments[0] * inverse_width;
        const double square = shift * shift;
        variance = moments[1] * inverse_width - square;
        if (!first || !(square > 4 * variance)) break;
        center = T(center + shift);
    }

    // (x - mean) rstd = (x - center) scale + offset
    const double inverse = 1 / __builtin_sqrt((variance < 0 ? 0 : variance) + eps);
    const T scale = T(inverse), offset = T(-shift * inverse);
    *mean = T(center + shift);
    *rstd = scale;
    sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED {
        Vector<T> v = (at.load(x) - center) * scale + offset;
        if (gamma) v = v * at.load(gamma);
        if (beta) v = v + at.load(beta);
        write<walk>(at, y, v);
        if (walk != SHORT) __builtin_prefetch(x + width + at.i, 0, 2);
    });
}

template <class T>
void layer_norm(int64_t rows, int64_t width, const void* x_, const void* gamma_, const void* beta_, double eps,
                void* y_, void* mean_, void* rstd_) {
    const T *x = static_cast<const T*>(x_), *gamma = static_cast<const T*>(gamma_),
            *beta = static_cast<const T*>(beta_);
    T *y = static_cast<T*>(y_), *mean = static_cast<T*>(mean_), *rstd = static_cast<T*>(rstd_);
    if (width == 0) return;
    const Walk how = choose_walk<T>(rows, width, y);
    parallel(rows, 2 + GRAIN / width, [=](int64_t begin, int64_t end) {
        specialized(how, [=]<Walk walk>() {
            for (int64_t r = begin; r < end; r++)
                normalize<T, walk>(width, x + r * width, gamma, beta, eps, y + r * width, mean + r, rstd + r);
        });
    });
}

// One row of the backward pass. With h = g gamma, d = x - mean and xhat = d rstd, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
template <class T, Walk walk>
void differentiate(int64_t width, const T* x, const T* gamma, T mean, T rstd, const T* g, T* dx, T* dgamma, T* dbeta) {
    double total[3] = {};  // of d, of h, of h d
    sums<T, 3, walk == SHORT ? 1 : 2>(width, total, [&](auto at, auto& sum) MG_INLINED {
        const Vector<T> d = at.keep(at.load(x) - mean);
        Vector<T> h = at.load(g);
        if (gamma) h = h * at.load(gamma);
        sum[0] += d;
        sum[1] += h;
        sum[2] += h * d;
    });

    // xhat = d scale + offset and dx = h scale + d slope + constant; `shift` is what rounding took from the mean
    const double inverse_width = 1 / double(width), s = rstd, shift = total[0] * inverse_width,
                 h_mean = total[1] * inverse_width, k = s * s * s * (total[2] * inverse_width - shift * h_mean);
    const T scale = T(s), offset = T(-shift * s), slope = T(-k), constant = T(shift * k - s * h_mean);
    sweep<T, walk == SHORT ? 1 : 2>(0, width, [&](auto at, int) MG_INLINED {
        const Vector<T> d = at.load(x) - mean, v = at.load(g);
        if (dgamma) {
            at.store(dgamma, at.load(dgamma) + v * (d * scale + offset));
            at.store(dbeta, at.load(dbeta) + v);
        }
        if (dx) {
            const Vector<T> h = gamma ? v * at.load(gamma) : v;
            write<walk>(at, dx, h * scale + (d * slope + constant));
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
    const Walk how = choose_walk<T>(rows, width, dx);
    parallel(blocks, 1 + GRAIN / work, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; b++) {
            T* sums = affine ? partial + 2 * b * width : nullptr;
            for (int64_t c = 0; affine && c < 2 * width; c++) sums[c] = 0;
            const int64_t end = (b + 1) * LAYER_NORM_BLOCK < rows ? (b + 1) * LAYER_NORM_BLOCK : rows;
            specialized(how, [=]<Walk walk>() {
                for (int64_t r = b * LAYER_NORM_BLOCK; r < end; r++)
                    differentiate<T, walk>(width, x + r * width, gamma, mean[r], rstd[r], g + r * width,
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
