// Long rows: how they are walked, their moments, and what scales them.
#pragma once

#include <limits>

#include "vector.hpp"

namespace mg::MG_ISA {

constexpr int64_t GRAIN = 1 << 15;       // elements: a few microseconds of work
constexpr int64_t NORM_GRAIN = 1 << 13;  // the same for a normalization, which touches each twice

// How rows are walked: all but SHORT ones may be prefetched. If input and output exceed the cache that cores share, the
// output is STREAMED past it; otherwise that would be slower: AMD's cores write to memory at half the rate at which
// they read.
enum Walk { SHORT, LONG, STREAMED };

// The walk for `arrays` arrays of rows of this width, read and written. If the rows of `out` are written in pieces (by
// default they are not), `piece` is their width, and each must begin at a whole register to be STREAMED.
template <class T>
Walk choose_walk(int arrays, int64_t rows, int64_t width, const void* out, int64_t piece = 0) {
    constexpr int64_t LONG_ROW = 2048, CACHE = 32 << 20;  // bytes; a common size of that cache
    const int64_t row = width * int64_t(sizeof(T)), part = (piece ? piece : width) * int64_t(sizeof(T));
    if (row <= LONG_ROW) return SHORT;
    return arrays * rows * row > CACHE && part % REGISTER == 0 && can_stream(out) ? STREAMED : LONG;
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

// Prefetches the line `distance` elements from p, possibly past the end of an array, where no pointer may point. A line
// to be `written` is prefetched like one to be read on x86, unless compiled for PREFETCHW, which is no faster.
template <bool written = false, class T>
MG_INLINE void prefetch(const T* p, int64_t distance) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p) + uintptr_t(distance) * sizeof(T);
    __builtin_prefetch(reinterpret_cast<const void*>(at), written, 2);
}

// Prefetches what is read soon, `distance` elements after p + at; once per line.
template <Walk walk, class T, class At>
MG_INLINE void read_ahead(const At& at, const T* p, int64_t distance) {
    if constexpr (walk != SHORT) {
        if (at.i % (64 / sizeof(T)) == 0) prefetch(p, at.i + distance);
    }
}

// The same for what is written soon, unless it bypasses the cache.
template <Walk walk, class T, class At>
MG_INLINE void write_ahead(const At& at, const T* p, int64_t distance) {
    if constexpr (walk == LONG) {
        if (at.i % (64 / sizeof(T)) == 0) prefetch<true>(p, at.i + distance);
    }
}

// a b + c, rounded once where the processor can. It is for a product and a sum with a test between them, which GCC
// fuses in some of the loops that it makes of one loop and not in others.
template <class T>
MG_INLINE T fused(T a, T b, T c) {
#if !(defined(__FMA__) || defined(__ARM_FEATURE_FMA)) || defined(__clang__)
    return a * b + c;
#else
    return sizeof(T) == 4 ? __builtin_fmaf(a, b, c) : __builtin_fma(a, b, c);
#endif
}
template <class T>
MG_INLINE Vector<T> fused(Vector<T> a, Vector<T> b, Vector<T> c) {
#if !(defined(__FMA__) || defined(__ARM_FEATURE_FMA)) || defined(__clang__)
    return a * b + c;
#else
#pragma omp simd
    for (int i = 0; i < LANES<T>; i++) c[i] = fused(a[i], b[i], c[i]);
    return c;
#endif
}

// v gamma + beta, of which either may be null: -0 is the number that a sum ignores. Without beta, this is the rounded
// product, with which no later sum is fused.
template <class T, class At>
MG_INLINE Vector<T> affine(const At& at, Vector<T> v, const T* gamma, const T* beta) {
    if (!gamma && !beta) return v;
    return fused<T>(v, gamma ? at.load(gamma) : Vector<T>{} + 1, beta ? at.load(beta) : -Vector<T>{});
}

// f(gamma, beta), compiled for each case of one that is null, where GCC would test them in every step of a loop.
template <class T, class F>
MG_INLINE void for_affine(const T* gamma, const T* beta, F f) {
    constexpr std::integral_constant<const T*, nullptr> none;
    if (gamma) {
        beta ? f(gamma, beta) : f(gamma, none);
    } else {
        beta ? f(none, beta) : f(none, none);
    }
}

// The moments of a row, whose mean is center + shift, as one T may not hold it.
template <class T>
struct RowMoments {
    T center;
    double shift, variance;

    MG_INLINE double mean() const { return center + shift; }
};

// With any center c near the mean, and d = x - c,
//   mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2
// c is the mean of the first four; where that is so far off that the difference would cancel, or overflows, the mean
// found first becomes the center of a second pass. This is a separate function because in a caller that holds other
// values in registers, GCC keeps an accumulator of the loop in memory, and a row of 256 takes 70 % longer
// (ln_fwd of benchmarks/workloads.py).
template <class T, int unroll>
__attribute__((noinline)) RowMoments<T> moments_of(int64_t width, const T* x) {
    const double inverse_width = 1 / double(width);
    RowMoments<T> m;
    const auto quarter = [=](int i) MG_INLINED { return x[i] * T(0.25); };  // four of the largest overflow
    m.center = width < 4 ? x[0] : (quarter(0) + quarter(1)) + (quarter(2) + quarter(3));
    for (bool first = true;; first = false) {
        double total[2] = {};
        sums<T, 2, unroll>(width, total, [&](auto at, auto& sum) MG_INLINED {
            const Vector<T> d = at.keep(at.load(x) - m.center);
            sum[0] += d;
            sum[1] += d * d;
        });
        m.shift = total[0] * inverse_width;
        const double square = m.shift * m.shift;
        m.variance = total[1] * inverse_width - square;
        if (!first || square <= 4 * m.variance) break;
        m.center = T(m.mean());
    }
    if (m.variance < 0) m.variance = 0;
    if (m.shift * m.shift > std::numeric_limits<double>::max()) m.variance = m.shift * m.shift;  // it was inf - inf
    return m;
}

// The numbers that standardize a row: x̂ = (x - center) scale + offset.
template <class T>
struct Standard {
    T center, scale, offset;
    double mean, inverse;
};

template <class T, Walk walk, bool centered>
MG_INLINE Standard<T> standardize(int64_t width, const T* x, double eps) {
    constexpr int unroll = walk != SHORT ? 4 : REGISTER == 64 ? 1 : 2;
    if constexpr (centered) {
        const RowMoments<T> m = moments_of<T, unroll>(width, x);
        const double inverse = 1 / __builtin_sqrt(m.variance + eps);
        return {m.center, T(inverse), T(-m.shift * inverse), m.mean(), inverse};
    } else {
        double square = 0;
        sums<T, 1, unroll>(width, &square, [&](auto at, auto& sum) MG_INLINED {
            const Vector<T> v = at.load(x);
            sum[0] += v * v;
        });
        const double inverse = 1 / __builtin_sqrt(square / double(width) + eps);
        return {0, T(inverse), 0, 0, inverse};
    }
}

}  // namespace mg::MG_ISA
