// Sums of the exponentials of a row, from which its largest element is subtracted first.
#pragma once

#include "math.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {

// e^x for x <= 0, up to rounding: fewer steps than exp(x), and 0 instead of subnormal numbers
MG_INLINE float fraction(float x) {
    const auto [r, n] = reduce_exp(x);
    const float y = (1 + expm1_reduced(r)) * pow2(n);
    return x < -87 ? 0 : y;
}
MG_INLINE double fraction(double x) { return exp(x); }

template <class T>
MG_INLINE Vector<T> exponential(Vector<T> v) {
    return map<T>(v, [](T x) MG_INLINED { return fraction(x); });
}

// The largest element of a row; NaN does not count here but shows up in the sum.
template <class T>
T largest(int64_t width, const T* x) {
    return combine_row(width, x, -T(__builtin_inf()), [](auto a, auto b) MG_INLINED { return a > b ? a : b; });
}

// sum of exp(x - shift); the exponentials are kept in y if it is not null
template <class T>
double sum_exp(int64_t width, const T* x, T shift, T* y) {
    double total = 0;
    sums<T, 1, 2>(width, &total, [&](auto at, auto& sum) MG_INLINED {
        const Vector<T> e = at.keep(exponential<T>(at.load(x) - shift));
        if (y) at.store(y, e);
        sum[0] += e;
    });
    return total;
}

}  // namespace mg::MG_ISA
