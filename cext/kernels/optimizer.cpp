// Optimizer steps: one pass over all parameters of a list, and the norm of their gradients.
//
// The work is split over the elements of all tensors together. Constants are combined in double; the formulas are
// PyTorch's.
#include "../runtime/pool.hpp"
#include "math.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // elements: a few microseconds of work, and all their arrays fit the cache

// piece(i, begin, end) for the pieces of tensors that make up elements [begin, end) of the whole list, their borders
// moved up to a cache line's within each tensor
template <class Piece>
void each_piece(const Tensors& list, int64_t begin, int64_t end, Piece piece) {
    int64_t start = 0;
    for (int64_t i = 0; i < list.count && start < end; start += list.sizes[i++]) {
        const auto inside = [&](int64_t border) {
            const int64_t place = border > start ? (border - start + 15) / 16 * 16 : 0;
            return place < list.sizes[i] ? place : list.sizes[i];
        };
        if (inside(begin) < inside(end)) piece(i, inside(begin), inside(end));
    }
}

int64_t total_size(const Tensors& list) {
    int64_t total = 0;
    for (int64_t i = 0; i < list.count; i++) total += list.sizes[i];
    return total;
}

template <class Piece>
void update(const Tensors& list, Piece piece) {
    parallel(total_size(list), GRAIN, [&](int64_t begin, int64_t end) { each_piece(list, begin, end, piece); });
}

template <class T>
MG_INLINE T* at(void* const* arrays, int64_t i) {
    return static_cast<T*>(arrays[i]);
}
template <class T>
MG_INLINE const T* at(const void* const* arrays, int64_t i) {
    return static_cast<const T*>(arrays[i]);
}

// g += weight_decay p
// without momentum: p -= lr g, otherwise buffer = momentum buffer + (1 - dampening) g, at first g, and then
// p -= lr buffer, nesterov: p -= lr (g + momentum buffer)
template <class T>
void sgd(const Tensors& list, const Step& step) {
    const T lr = T(step.lr), decay = T(step.weight_decay), momentum = T(step.momentum);
    const bool first = step.first;
    const T fresh = T(1 - step.dampening), of_g = step.nesterov ? 1 : 0, of_buffer = step.nesterov ? momentum : 1;
    update(list, [=, &list](int64_t i, int64_t begin, int64_t end) {
        T* __restrict p = at<T>(list.p, i);
        const T* __restrict g = at<T>(list.g, i);
        if (!list.s1) {
#pragma omp simd
            for (int64_t j = begin; j < end; j++) p[j] -= lr * (g[j] + decay * p[j]);
            return;
        }
        T* __restrict buffer = at<T>(list.s1, i);
#pragma omp simd
        for (int64_t j = begin; j < end; j++) {
            const T d = g[j] + decay * p[j];
            buffer[j] = first ? d : momentum * buffer[j] + fresh * d;
            p[j] -= lr * (of_g * d + of_buffer * buffer[j]);
        }
    });
}

// g += weight_decay p; decoupled (AdamW): p -= lr weight_decay p instead
// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  amsgrad: v' = v_max = max(v_max, v), otherwise v' = v
// p -= lr/(1 - beta1^t) m / (sqrt(v')/sqrt(1 - beta2^t) + eps)
template <class T, bool amsgrad>
void adam(const Tensors& list, const Step& step) {
    const T rate = T(step.lr / step.correction1), root = T(1 / __builtin_sqrt(step.correction2)), eps = T(step.eps);
    const T beta1 = T(step.beta1), beta2 = T(step.beta2), fresh1 = T(1 - step.beta1), fresh2 = T(1 - step.beta2);
    const T decay = T(step.decoupled ? 0 : step.weight_decay);
    const T shrink = T(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
    update(list, [=, &list](int64_t i, int64_t begin, int64_t end) {
        T* __restrict p = at<T>(list.p, i);
        const T* __restrict g = at<T>(list.g, i);
        T* __restrict m = at<T>(list.s1, i);
        T* __restrict v = at<T>(list.s2, i);
        T* __restrict top = amsgrad ? at<T>(list.s3, i) : v;
#pragma omp simd
        for (int64_t j = begin; j < end; j++) {
            const T d = g[j] + decay * p[j];
            m[j] = beta1 * m[j] + fresh1 * d;
            v[j] = beta2 * v[j] + fresh2 * (d * d);
            if (amsgrad) top[j] = v[j] > top[j] || v[j] != v[j] ? v[j] : top[j];
            p[j] = shrink * p[j] - rate * m[j] / (sqrt(top[j]) * root + eps);
        }
    });
}

// g += weight_decay p,  v = alpha v + (1 - alpha) g^2 with alpha in beta2
// centered: a = alpha a + (1 - alpha) g,  r = sqrt(v - a^2) + eps, otherwise r = sqrt(v) + eps
// p -= lr buffer with momentum, buffer = momentum buffer + g/r, otherwise p -= lr g/r
template <class T, bool with_momentum, bool centered>
void rmsprop(const Tensors& list, const Step& step) {
    const T lr = T(step.lr), decay = T(step.weight_decay), eps = T(step.eps), momentum = T(step.momentum);
    const T alpha = T(step.beta2), fresh = T(1 - step.beta2);
    update(list, [=, &list](int64_t i, int64_t begin, int64_t end) {
        T* __restrict p = at<T>(list.p, i);
        const T* __restrict g = at<T>(list.g, i);
        T* __restrict v = at<T>(list.s1, i);
        T* __restrict buffer = with_momentum ? at<T>(list.s2, i) : p;
        T* __restrict mean = centered ? at<T>(list.s3, i) : v;
#pragma omp simd
        for (int64_t j = begin; j < end; j++) {
            const T d = g[j] + decay * p[j];
            T variance = v[j] = alpha * v[j] + fresh * (d * d);
            if (centered) {
                const T a = mean[j] = alpha * mean[j] + fresh * d;
                variance -= a * a;
                variance = variance < 0 ? 0 : variance;  // rounding
            }
            T change = d / (sqrt(variance) + eps);
            if (with_momentum) change = buffer[j] = momentum * buffer[j] + change;
            p[j] -= lr * change;
        }
    });
}

template <class T>
void rmsprop_any(const Tensors& list, const Step& step) {
    if (list.s2)
        (list.s3 ? rmsprop<T, true, true> : rmsprop<T, true, false>)(list, step);
    else
        (list.s3 ? rmsprop<T, false, true> : rmsprop<T, false, false>)(list, step);
}

template <class T>
void adam_any(const Tensors& list, const Step& step) {
    (list.s3 ? adam<T, true> : adam<T, false>)(list, step);
}

// g += weight_decay p,  s += g^2,  p -= lr g / (sqrt(s) + eps)
template <class T>
void adagrad(const Tensors& list, const Step& step) {
    const T lr = T(step.lr), decay = T(step.weight_decay), eps = T(step.eps);
    update(list, [=, &list](int64_t i, int64_t begin, int64_t end) {
        T* __restrict p = at<T>(list.p, i);
        const T* __restrict g = at<T>(list.g, i);
        T* __restrict s = at<T>(list.s1, i);
#pragma omp simd
        for (int64_t j = begin; j < end; j++) {
            const T d = g[j] + decay * p[j];
            s[j] += d * d;
            p[j] -= lr * d / (sqrt(s[j]) + eps);
        }
    });
}

// In double from the square on: a gradient of 1e20 has a norm. Pieces are added in their order.
template <class T>
double sum_of_squares(const Tensors& list) {
    constexpr int64_t PIECES = 256;
    const int64_t total = total_size(list), step = total > PIECES * GRAIN ? (total + PIECES - 1) / PIECES : GRAIN;
    double sums[PIECES] = {}, sum = 0;
    parallel(total, step, [&](int64_t begin, int64_t end) {
        each_piece(list, begin, end, [&](int64_t i, int64_t first, int64_t last) {
            const T* g = at<T>(list.g, i);
            double part = 0;
#pragma omp simd reduction(+ : part)
            for (int64_t j = first; j < last; j++) part += double(g[j]) * double(g[j]);
            sums[begin / step] += part;
        });
    });
    for (double part : sums) sum += part;
    return sum;
}

template <class T>
void fill(Kernels& k, int i) {
    k.sgd[i] = sgd<T>;
    k.adam[i] = adam_any<T>;
    k.rmsprop[i] = rmsprop_any<T>;
    k.adagrad[i] = adagrad<T>;
    k.sum_of_squares[i] = sum_of_squares<T>;
}

}  // namespace

void fill_optimizer(Kernels& k) {
    fill<float>(k, 0);
    fill<double>(k, 1);
}

}  // namespace mg::MG_ISA
