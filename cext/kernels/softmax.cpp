// Softmax and the functions based on it, on the rows of x[rows, width]. Every row is shifted by its maximum first.
#include "../runtime/pool.hpp"
#include "exponentials.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // elements: a few microseconds of work

// f(r, row r of each array) for all rows
template <class F, class... T>
void each_row(int64_t rows, int64_t width, F f, T*... arrays) {
    parallel_each(rows, 1 + GRAIN / (1 + width), [&](int64_t r) { f(r, arrays + r * width...); });
}

// log sum exp x = shift + log, shift being the largest element
template <class T>
struct LogSumExp {
    T shift, log;
};

template <class T>
LogSumExp<T> log_sum_exp(int64_t width, const T* x) {
    const T top = largest(width, x);
    if (top - top == 0) return {top, log(T(sum_exp<T>(width, x, top, nullptr)))};
    T sum = 0;  // the largest is infinite: no shift makes it finite
    for (int64_t c = 0; c < width; c++) sum += exp(x[c]);
    return {0, log(sum)};
}

// y = exp(x - max x) / sum exp(x - max x)
MG_KERNEL(softmax[FLOATS])
template <class T>
void softmax(int64_t rows, int64_t width, const T* x, T* y) {
    const auto row = [=](int64_t, const T* x, T* y) {
        const T inverse = T(1 / sum_exp(width, x, largest(width, x), y));
        sweep<T, 4>(0, width, [&](auto at, int) MG_INLINED { at.store(y, at.load(y) * inverse); });
    };
    each_row(rows, width, row, x, y);
}

// dx = y (g - sum(g y))
MG_KERNEL(softmax_backward[FLOATS])
template <class T>
void softmax_backward(int64_t rows, int64_t width, const T* y, const T* g, T* dx) {
    const auto row = [=](int64_t, const T* y, const T* g, T* dx) {
        double total = 0;
        sums<T, 1, 4>(width, &total, [&](auto at, auto& sum) MG_INLINED { sum[0] += at.load(g) * at.load(y); });
        const T mean = T(total);
        sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED { at.store(dx, at.load(y) * (at.load(g) - mean)); });
    };
    each_row(rows, width, row, y, g, dx);
}

// y = x - log sum exp x
MG_KERNEL(log_softmax[FLOATS])
template <class T>
void log_softmax(int64_t rows, int64_t width, const T* x, T* y) {
    const auto row = [=](int64_t, const T* x, T* y) {
        const auto [shift, log] = log_sum_exp(width, x);
        const T shift_ = shift, log_ = log;
        sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED { at.store(y, at.load(x) - shift_ - log_); });
    };
    each_row(rows, width, row, x, y);
}

// dx = g - exp(y) sum(g)
MG_KERNEL(log_softmax_backward[FLOATS])
template <class T>
void log_softmax_backward(int64_t rows, int64_t width, const T* y, const T* g, T* dx) {
    const auto row = [=](int64_t, const T* y, const T* g, T* dx) {
        double total = 0;
        sums<T, 1, 4>(width, &total, [&](auto at, auto& sum) MG_INLINED { sum[0] += at.load(g); });
        const T sum = T(total);
        sweep<T, 2>(0, width,
                    [&](auto at, int) MG_INLINED { at.store(dx, at.load(g) - exponential<T>(at.load(y)) * sum); });
    };
    each_row(rows, width, row, y, g, dx);
}

MG_KERNEL(logsumexp[FLOATS])
template <class T>
void logsumexp(int64_t rows, int64_t width, const T* x, T* y) {
    const auto row = [=](int64_t r, const T* x) {
        const auto lse = log_sum_exp(width, x);
        y[r] = lse.shift + lse.log;
    };
    each_row(rows, width, row, x);
}

// loss = (1 - s) w_t (lse - z_t) + s/width sum_c w_c (lse - z_c)
MG_KERNEL(cross_entropy[FLOATS])
template <class T>
void cross_entropy(int64_t rows, int64_t width, const T* z, const int64_t* labels, int64_t ignore, const T* w,
                   double smoothing, T* losses, T* all_lse) {
    const auto row = [=](int64_t r, const T* z) {
        T &loss = losses[r], &lse = all_lse[r];
        const int64_t t = labels[r];
        loss = lse = 0;
        if (t == ignore) return;
        const auto parts = log_sum_exp(width, z);
        const T shift = parts.shift, log = parts.log;
        lse = shift + log;
        double total = 0;  // lse - z as log - (z - shift): a large shift costs a small loss no digits
        if (smoothing != 0) {
            sums<T, 1, 2>(width, &total, [&](auto at, auto& sum) MG_INLINED {
                const Vector<T> v = log - (at.load(z) - shift);
                sum[0] += at.keep(w ? v * at.load(w) : v);
            });
        }
        loss = T((1 - smoothing) * (w ? w[t] : 1) * (log - (z[t] - shift)) + smoothing / double(width) * total);
    };
    each_row(rows, width, row, z);
}

// dz = g (softmax(z) ((1 - s) w_t + s/width sum_k w_k) - (1 - s) w_t [c = t] - s/width w_c)
MG_KERNEL(cross_entropy_backward[FLOATS])
template <class T>
void cross_entropy_backward(int64_t rows, int64_t width, const T* z, const int64_t* labels, int64_t ignore, const T* w,
                            double smoothing, const T* lse, const T* all_g, int64_t g_stride, T* dz) {
    double all = 0;
    if (w && smoothing != 0) {
        sums<T, 1, 4>(width, &all, [&](auto at, auto& sum) MG_INLINED { sum[0] += at.load(w); });
    } else {
        all = double(width);
    }
    const double even = smoothing / double(width);
    const auto row = [=](int64_t r, const T* z, T* dz) {
        const int64_t t = labels[r];
        if (t == ignore) {
            clear(width, dz);
            return;
        }
        // lse is rounded: dividing by the sum, which should be 1, restores the digits
        const double g = all_g[r * g_stride], label = (1 - smoothing) * (w ? w[t] : 1);
        const double sum = sum_exp(width, z, lse[r], dz);
        const T scale = T(g * (label + even * all) / sum), rest = T(g * even);
        sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED {
            Vector<T> v = at.load(dz) * scale;
            if (even != 0) v = v - (w ? at.load(w) * rest : Vector<T>{} + rest);
            at.store(dz, v);
        });
        dz[t] -= T(g * label);
    };
    each_row(rows, width, row, z, dz);
}

}  // namespace

void fill_softmax(Kernels& k) { MG_PUT_SOFTMAX }

}  // namespace mg::MG_ISA
