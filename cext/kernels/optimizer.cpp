// Optimizer steps: one pass over all parameters of a list, and the norm of their gradients.
//
// The work is split over the elements of all tensors together and done in whole registers: the tail of a tensor runs
// the same instructions as its other elements. In a loop over elements, a compiler may fuse other products in the tail
// than in the body, and the new value of an element would depend on its position. Constants are combined in double; the
// formulas are PyTorch's.
//
// A mean or a sum of squares overflows long before the gradients do: from 1.8e19 in float32. A square above the largest
// number is stored as the negative of its root: -r means r^2.
#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // elements: a few microseconds of work, and all their arrays fit the cache

template <class T>
constexpr T MOST = sizeof(T) == 4 ? T(__FLT_MAX__) : T(__DBL_MAX__);

// piece(i, begin, end) for the pieces of tensors that make up elements [begin, end) of the whole list, with borders
// rounded up to a cache line within each tensor
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

// The arrays of one tensor; states that an optimizer does not have are null.
template <class T>
struct Arrays {
    T *p, *s1, *s2, *s3;
    const T* g;

    MG_INLINE Arrays(const Tensors& list, int64_t i) : g(static_cast<const T*>(list.g[i])) {
        const auto of = [=](void* const* arrays) { return arrays ? static_cast<T*>(arrays[i]) : nullptr; };
        p = of(list.p), s1 = of(list.s1), s2 = of(list.s2), s3 = of(list.s3);
    }
};

// rule(arrays of a tensor) returns the function that updates its registers.
template <class T, class Rule>
void update(const Tensors& list, Rule rule) {
    parallel(total_size(list), GRAIN, [&](int64_t begin, int64_t end) {
        each_piece(list, begin, end, [&](int64_t i, int64_t first, int64_t last) {
            const auto step = rule(Arrays<T>(list, i));
            sweep<T, 1>(first, last, [&](auto at, int) MG_INLINED { step(at); });
        });
    });
}

// g + weight_decay p; without decay, an infinite parameter does not turn it into NaN
template <class T, class At>
MG_INLINE Vector<T> decayed(At at, const Arrays<T>& a, T decay) {
    return decay == 0 ? at.load(a.g) : at.load(a.g) + decay * at.load(a.p);
}

// Whether a lane has its sign bit set
template <class T>
MG_INLINE bool has_sign(Vector<T> v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        return _mm512_cmplt_epi32_mask((__m512i)v, _mm512_setzero_si512()) != 0;
    else
        return _mm512_cmplt_epi64_mask((__m512i)v, _mm512_setzero_si512()) != 0;
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
        return _mm256_movemask_ps((__m256)v) != 0;
    else
        return _mm256_movemask_pd((__m256d)v) != 0;
#else
    const auto bits = (decltype(v < v))v;
    auto all = bits[0];
    for (int i = 1; i < LANES<T>; i++) all |= bits[i];
    return all < 0;
#endif
}

// The root of a stored square
template <class T>
MG_INLINE Vector<T> root_of(Vector<T> v) {
    return v < 0 ? -v : sqrt<T>(v);
}

// v = keep v + fresh d^2; returns whether an element of v or `other` may be negative. Where the square overflows, roots
// are added: sqrt(a^2 + b^2) = a sqrt(1 + (b/a)^2) for a >= b. A d that is not finite has the same result as without
// this.
template <class T>
MG_INLINE bool advance(Vector<T>& v, Vector<T> d, T keep, T fresh, Vector<T> other = Vector<T>{}) {
    typedef decltype(d < d) Bits;
    const Vector<T> before = v, left = MOST<T> - (v = keep * before + fresh * (d * d));
    if (!has_sign<T>((Vector<T>)((Bits)before | (Bits)left | (Bits)other))) [[likely]]
        return false;
    const Vector<T> x = sqrt<T>(Vector<T>{} + keep) * root_of<T>(before);
    const Vector<T> y = sqrt<T>(Vector<T>{} + fresh) * (d < 0 ? -d : d);
    const Vector<T> most = x > y ? x : y, ratio = (x > y ? y : x) / most, sum = most * sqrt<T>(1 + ratio * ratio);
    const Bits large = ((before < 0) | (left < 0)) & (sum <= MOST<T>);
    v = large ? (sum * sum <= MOST<T> ? sum * sum : -sum) : v;
    return true;
}

// g += weight_decay p
// without momentum: p -= lr g, otherwise buffer = momentum buffer + (1 - dampening) g, at first g, and then
// p -= lr buffer, nesterov: p -= lr (g + momentum buffer)
template <class T>
void sgd(const Tensors& list, const Update& step) {
    const T lr = T(step[0]), decay = T(step[1]);
    update<T>(list, [=](Arrays<T> a) MG_INLINED {
        return [=](auto at) MG_INLINED { at.store(a.p, at.load(a.p) - lr * decayed(at, a, decay)); };
    });
}
template <class T, bool first>
void sgd_with_momentum(const Tensors& list, const Update& step) {
    const T lr = T(step[0]), decay = T(step[1]), momentum = T(step[2]), fresh = T(step[3]);
    const bool nesterov = step[4];
    update<T>(list, [=](Arrays<T> a) MG_INLINED {
        return [=](auto at) MG_INLINED {
            const Vector<T> d = decayed(at, a, decay);
            const Vector<T> b = first ? d : momentum * at.load(a.s1) + fresh * d;
            at.store(a.s1, b);
            at.store(a.p, at.load(a.p) - lr * (nesterov ? d + momentum * b : b));
        };
    });
}

// g += weight_decay p; decoupled (AdamW): p = shrink p instead
// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  amsgrad: v' = v_max = max(v_max, v), otherwise v' = v
// p -= rate m / (root sqrt(v') + eps)
template <class T, bool amsgrad>
void adam(const Tensors& list, const Update& step) {
    const T rate = T(step[0]), root = T(step[1]), eps = T(step[2]), beta1 = T(step[3]), beta2 = T(step[4]);
    const T fresh1 = T(step[5]), fresh2 = T(step[6]), decay = T(step[7]), shrink = T(step[8]);
    update<T>(list, [=](Arrays<T> a) MG_INLINED {
        return [=](auto at) MG_INLINED {
            const Vector<T> d = decayed(at, a, decay);
            const Vector<T> first = beta1 * at.load(a.s1) + fresh1 * d;
            const Vector<T> before = amsgrad ? at.load(a.s3) : Vector<T>{};
            Vector<T> second = at.load(a.s2);
            const bool large = advance<T>(second, d, beta2, fresh2, before);
            at.store(a.s1, first);
            at.store(a.s2, second);
            if constexpr (amsgrad) {
                auto larger = (second > before) | (second != second);
                if (large) [[unlikely]] {
                    larger ^= (second < 0) | (before < 0);
                    larger |= second > MOST<T>;
                }
                second = larger ? second : before;
                at.store(a.s3, second);
            }
            const Vector<T> deviation = large ? root_of<T>(second) : sqrt<T>(second);
            at.store(a.p, shrink * at.load(a.p) - rate * first / (deviation * root + eps));
        };
    });
}

// g += weight_decay p,  v = alpha v + (1 - alpha) g^2
// centered: a = alpha a + (1 - alpha) g,  r = sqrt(v - a^2) + eps, otherwise r = sqrt(v) + eps
// p -= lr buffer with momentum, buffer = momentum buffer + g/r, otherwise p -= lr g/r
template <class T, bool with_momentum, bool centered>
void rmsprop(const Tensors& list, const Update& step) {
    const T lr = T(step[0]), decay = T(step[1]), eps = T(step[2]), alpha = T(step[3]), fresh = T(step[4]);
    const T momentum = T(step[5]);
    update<T>(list, [=](Arrays<T> a) MG_INLINED {
        return [=](auto at) MG_INLINED {
            const Vector<T> d = decayed(at, a, decay);
            Vector<T> square = at.load(a.s1);
            const bool large = advance<T>(square, d, alpha, fresh);
            Vector<T> deviation = large ? root_of<T>(square) : sqrt<T>(square);
            at.store(a.s1, square);
            if constexpr (centered) {
                const Vector<T> mean = alpha * at.load(a.s3) + fresh * d, variance = square - mean * mean;
                at.store(a.s3, mean);
                const auto root = [](Vector<T> x) MG_INLINED { return sqrt<T>(x < 0 ? Vector<T>{} : x); };  // rounding
                deviation = root(variance);
                if (large) [[unlikely]] {
                    const Vector<T> ratio = mean / square;
                    deviation = square < 0 ? -square * root(1 - ratio * ratio) : deviation;
                }
            }
            Vector<T> change = d / (deviation + eps);
            if constexpr (with_momentum) {
                change += momentum * at.load(a.s2);
                at.store(a.s2, change);
            }
            at.store(a.p, at.load(a.p) - lr * change);
        };
    });
}

template <class T>
void sgd_any(const Tensors& list, const Update& step) {
    (!list.s1 ? sgd<T> : step[6] ? sgd_with_momentum<T, true> : sgd_with_momentum<T, false>)(list, step);
}

template <class T>
void rmsprop_any(const Tensors& list, const Update& step) {
    if (list.s2)
        (list.s3 ? rmsprop<T, true, true> : rmsprop<T, true, false>)(list, step);
    else
        (list.s3 ? rmsprop<T, false, true> : rmsprop<T, false, false>)(list, step);
}

template <class T>
void adam_any(const Tensors& list, const Update& step) {
    (list.s3 ? adam<T, true> : adam<T, false>)(list, step);
}

// g += weight_decay p,  s += g^2,  p -= lr g / (sqrt(s) + eps)
template <class T>
void adagrad(const Tensors& list, const Update& step) {
    const T lr = T(step[0]), decay = T(step[1]), eps = T(step[2]);
    update<T>(list, [=](Arrays<T> a) MG_INLINED {
        return [=](auto at) MG_INLINED {
            const Vector<T> d = decayed(at, a, decay);
            Vector<T> sum = at.load(a.s1);
            const bool large = advance<T>(sum, d, 1, 1);
            at.store(a.s1, sum);
            at.store(a.p, at.load(a.p) - lr * d / ((large ? root_of<T>(sum) : sqrt<T>(sum)) + eps));
        };
    });
}

// Squares are double, so that a gradient of 1e20 has a norm. Pieces are added in order.
template <class T>
double sum_of_squares(const Tensors& list) {
    constexpr int64_t PIECES = 256;
    const int64_t total = total_size(list), step = total > PIECES * GRAIN ? (total + PIECES - 1) / PIECES : GRAIN;
    double sums[PIECES] = {}, sum = 0;
    parallel(total, step, [&](int64_t begin, int64_t end) {
        each_piece(list, begin, end, [&](int64_t i, int64_t first, int64_t last) {
            const T* g = static_cast<const T*>(list.g[i]);
            double part = 0;
#pragma omp simd reduction(+ : part)
            for (int64_t j = first; j < last; j++) part += double(g[j]) * double(g[j]);
            sums[begin / step] += part;
        });
    });
    for (double part : sums) sum += part;
    return sum;
}

constexpr Rule RULES[] = {
    {"sgd", 0, 7, {sgd_any<float>, sgd_any<double>}},
    {"adam", 2, 10, {adam_any<float>, adam_any<double>}},
    {"rmsprop", 1, 8, {rmsprop_any<float>, rmsprop_any<double>}},
    {"adagrad", 1, 3, {adagrad<float>, adagrad<double>}},
    {},
};

}  // namespace

void fill_optimizer(Kernels& k) {
    k.rules = RULES;
    MG_FLOATS(sum_of_squares);
}

}  // namespace mg::MG_ISA
