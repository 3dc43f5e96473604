// Optimizer steps: one pass over all parameters of a list, and the norm of their gradients.
//
// The work is split over the elements of all tensors together and done in whole registers: the tail of a tensor runs
// the same instructions as its other elements. In a loop over elements, a compiler may fuse other products in the tail
// than in the body, and the new value of an element would depend on its position.
#include <type_traits>

#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // elements: a few microseconds of work, and all their arrays fit the cache

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

// Whether a lane of v or w has its sign bit set
template <class T>
MG_INLINE bool any_negative(Vector<T> v, Vector<T> w) {
    typedef decltype(v < w) Bits;
    const Bits bits = (Bits)v | (Bits)w;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4)
        return _mm512_cmplt_epi32_mask((__m512i)bits, _mm512_setzero_si512()) != 0;
    else
        return _mm512_cmplt_epi64_mask((__m512i)bits, _mm512_setzero_si512()) != 0;
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4)
        return _mm256_movemask_ps((__m256)bits) != 0;
    else
        return _mm256_movemask_pd((__m256d)bits) != 0;
#else
    auto all = bits[0];
    for (int i = 1; i < LANES<T>; i++) all |= bits[i];
    return all < 0;
#endif
}

template <class V>
MG_INLINE V square_root(V v) {
    return sqrt<std::remove_cvref_t<decltype(v[0])>>(v);
}

#define RULE MG_INLINE
#include "../../minigrad/cuda/update_rules.cuh"

// One step on all tensors with the states whose bits are set
template <class T, auto rule, int states>
void step_with(const Tensors& list, const Update& numbers) {
    parallel(total_size(list), GRAIN, [&](int64_t begin, int64_t end) {
        each_piece(list, begin, end, [&](int64_t i, int64_t first, int64_t last) {
            const Arrays<T> a(list, i);
            T n[Update::MOST];
            for (int k = 0; k < Update::MOST; k++) n[k] = T(numbers[k]);
            sweep<T, 1>(first, last, [&](auto at, int) MG_INLINED {
                Vector<T> p = at.load(a.p), s1{}, s2{}, s3{};
                if constexpr (states & 1) s1 = at.load(a.s1);
                if constexpr (states & 2) s2 = at.load(a.s2);
                if constexpr (states & 4) s3 = at.load(a.s3);
                rule(p, at.load(a.g), s1, s2, s3, (states & 4) != 0, n);
                at.store(a.p, p);
                if constexpr (states & 1) at.store(a.s1, s1);
                if constexpr (states & 2) at.store(a.s2, s2);
                if constexpr (states & 4) at.store(a.s3, s3);
            });
        });
    });
}

// `step_with` the states that there are: a rule has the first `needed` of them, and may have others up to `most`
template <class T, auto rule, int needed, int most, int states = 0>
void step(const Tensors& list, const Update& numbers) {
    constexpr int always = (1 << needed) - 1, possible = (1 << most) - 1;
    const int given = (list.s1 ? 1 : 0) | (list.s2 ? 2 : 0) | (list.s3 ? 4 : 0);
    if constexpr (states < possible) {
        if (given != states || (states & always) != always)
            return step<T, rule, needed, most, states + 1>(list, numbers);
    }
    if constexpr ((states & always) == always) step_with<T, rule, states>(list, numbers);
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

#define MG_RULE(rule, needed, most, count)                                                    \
    {                                                                                         \
        #rule, needed, count, {                                                               \
            step<float, [](auto&&... x) MG_INLINED { rules::rule(x...); }, needed, most>,     \
                step<double, [](auto&&... x) MG_INLINED { rules::rule(x...); }, needed, most> \
        }                                                                                     \
    }

constexpr Rule RULES[] = {
    MG_RULE(sgd, 0, 1, 6),
    MG_RULE(adam, 2, 3, 10),
    MG_RULE(rmsprop, 1, 3, 9),
    MG_RULE(adagrad, 1, 1, 4),
    MG_RULE(adadelta, 2, 2, 5),
    MG_RULE(lion, 1, 1, 6),
    {},
};

}  // namespace

void fill_optimizer(Kernels& k) {
    k.rules = RULES;
    MG_FLOATS(sum_of_squares);
}

}  // namespace mg::MG_ISA
