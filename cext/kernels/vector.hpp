// Vectors of one register, for reductions, to which the auto-vectorizer gives a single accumulator.
//
// Vector<T> is a compiler vector, so + - * / < ?: work on it and mix with scalars. `sweep` walks a row in
// registers, the last few elements included; `sums` adds up terms of a row with several accumulators.
#pragma once

#include <cstdint>

#include "isa.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// For lambdas that handle vectors: [&](auto at) MG_INLINED { ... }
#define MG_INLINED __attribute__((always_inline))

namespace mg::MG_ISA {

#if defined(__AVX512F__)
constexpr int REGISTER = 64;
#elif defined(__AVX2__)
constexpr int REGISTER = 32;
#else
constexpr int REGISTER = 16;
#endif

template <class T, int bytes>
struct VectorOf {
    typedef T type __attribute__((vector_size(bytes)));
};
template <class T>
using Vector = typename VectorOf<T, REGISTER>::type;
template <class T>
constexpr int LANES = REGISTER / sizeof(T);

// f(i) for every i < n, where f calls functions of T: in float32 they are vectorized, in float64 the C library's.
template <class T, class Index, class F>
MG_INLINE void for_each(Index n, F f) {
    if constexpr (sizeof(T) == 4) {
#pragma omp simd
        for (Index i = 0; i < n; i++) f(i);
    } else {
        for (Index i = 0; i < n; i++) f(i);
    }
}

// f of every lane
template <class T, class F>
MG_INLINE Vector<T> map(Vector<T> v, F f) {
    typedef Vector<T> Lanes __attribute__((may_alias));
    alignas(REGISTER) T lane[LANES<T>];
    *reinterpret_cast<Lanes*>(lane) = v;  // memcpy would go through memory
    for_each<T>(LANES<T>, [&](int i) MG_INLINED { lane[i] = f(lane[i]); });
    return *reinterpret_cast<Lanes*>(lane);
}

template <class T>
MG_INLINE Vector<T> sqrt(Vector<T> v) {  // one instruction in either precision
#pragma omp simd
    for (int i = 0; i < LANES<T>; i++) v[i] = sizeof(T) == 4 ? __builtin_sqrtf(v[i]) : __builtin_sqrt(v[i]);
    return v;
}

template <class T, int bytes>
struct Halves {
    typename VectorOf<T, bytes / 2>::type low, high;

    MG_INLINE explicit Halves(typename VectorOf<T, bytes>::type v) {
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
        const auto d = (typename VectorOf<double, bytes>::type)v;  // stays in registers
        if constexpr (bytes == 64) {
            low = (decltype(low))__builtin_shufflevector(d, d, 0, 1, 2, 3);
            high = (decltype(low))__builtin_shufflevector(d, d, 4, 5, 6, 7);
        } else {
            low = (decltype(low))__builtin_shufflevector(d, d, 0, 1);
            high = (decltype(low))__builtin_shufflevector(d, d, 2, 3);
        }
#else
        __builtin_memcpy(this, &v, bytes);
#endif
    }
};

// The lanes of a vector combined in pairs by f.
template <class T, int bytes = REGISTER, class F>
MG_INLINE T fold(typename VectorOf<T, bytes>::type v, F f) {
    if constexpr (bytes > 16) {
        const Halves<T, bytes> half(v);
        return fold<T, bytes / 2>(f(half.low, half.high), f);
    } else if constexpr (sizeof(T) == 4) {
        return f(f(v[0], v[2]), f(v[1], v[3]));
    } else {
        return f(v[0], v[1]);
    }
}

// Streams: writes that bypass the cache, for data that would not stay in it; its lines are not read from memory first.
// They need whole, aligned registers, and finish_streams() before another thread reads the data.
inline bool can_stream([[maybe_unused]] const void* p) {
#if defined(__AVX2__)
    return reinterpret_cast<uintptr_t>(p) % REGISTER == 0;
#else
    return false;
#endif
}
inline void finish_streams() {
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

// Elements i, i + 1, ... of arrays, one register full.
template <class T>
struct Whole {
    int64_t i;

    MG_INLINE Vector<T> load(const T* p, T = 0) const {
        Vector<T> v;
        __builtin_memcpy(&v, p + i, REGISTER);
        return v;
    }
    MG_INLINE void store(T* p, Vector<T> v) const { __builtin_memcpy(p + i, &v, REGISTER); }
    MG_INLINE void stream(T* p, Vector<T> v) const {
#if defined(__AVX512F__)
        _mm512_stream_si512((__m512i*)(p + i), (__m512i)v);
#elif defined(__AVX2__)
        _mm256_stream_si256((__m256i*)(p + i), (__m256i)v);
#else
        store(p, v);
#endif
    }
    MG_INLINE Vector<T> keep(Vector<T> v) const { return v; }
};

// Elements i, ..., i + count - 1 in the first lanes; memory after them is not touched.
template <class T>
struct Part {
    int64_t i;
    int count;

    MG_INLINE auto mask() const {
        decltype(Vector<T>{} < Vector<T>{}) lane;
        for (int j = 0; j < LANES<T>; j++) lane[j] = j;
        return lane < count;
    }
    // The other lanes become 0.
    MG_INLINE Vector<T> keep(Vector<T> v) const { return mask() ? v : Vector<T>{}; }

    MG_INLINE Vector<T> load(const T* p, T fill = 0) const {
        Vector<T> v = Vector<T>{} + fill;
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4)
            return (Vector<T>)_mm512_mask_loadu_epi32((__m512i)v, bits(), p + i);
        else
            return (Vector<T>)_mm512_mask_loadu_epi64((__m512i)v, bits(), p + i);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4) {
            return mask() ? (Vector<T>)_mm256_maskload_epi32((const int*)(p + i), (__m256i)mask()) : v;
        } else {
            return mask() ? (Vector<T>)_mm256_maskload_epi64((const long long*)(p + i), (__m256i)mask()) : v;
        }
#else
        for (int j = 0; j < LANES<T>; j++) v[j] = j < count ? p[i + j] : fill;
        return v;
#endif
    }

    MG_INLINE void store(T* p, Vector<T> v) const {
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == 4)
            _mm512_mask_storeu_epi32(p + i, bits(), (__m512i)v);
        else
            _mm512_mask_storeu_epi64(p + i, bits(), (__m512i)v);
#elif defined(__AVX2__)
        if constexpr (sizeof(T) == 4)
            _mm256_maskstore_epi32((int*)(p + i), (__m256i)mask(), (__m256i)v);
        else
            _mm256_maskstore_epi64((long long*)(p + i), (__m256i)mask(), (__m256i)v);
#else
        for (int j = 0; j < LANES<T>; j++) {
            if (j < count) p[i + j] = v[j];
        }
#endif
    }

    MG_INLINE void stream(T* p, Vector<T> v) const { store(p, v); }  // never reached: rows are whole registers

  private:
    MG_INLINE unsigned bits() const { return (1u << count) - 1; }
};

// f(at, u) for every register of [begin, end): at is a Whole or a Part, u < unroll the accumulator to use.
template <class T, int unroll, class F>
MG_INLINE void sweep(int64_t begin, int64_t end, F&& f) {
    int64_t i = begin;
    for (; i + unroll * LANES<T> <= end; i += unroll * LANES<T>) {
#pragma GCC unroll 8
        for (int u = 0; u < unroll; u++) f(Whole<T>{i + u * LANES<T>}, u);
    }
    for (; i + LANES<T> <= end; i += LANES<T>) f(Whole<T>{i}, 0);
    if (i < end) f(Part<T>{i, static_cast<int>(end - i)}, unroll - 1);
}

// The elements of a row combined in registers by f, whose neutral element is `start`
template <class T, class F>
MG_INLINE T combine_row(int64_t n, const T* x, T start, F f) {
    Vector<T> v[4];
    for (auto& one : v) one = Vector<T>{} + start;
    sweep<T, 4>(0, n, [&](auto at, int u) MG_INLINED { v[u] = f(v[u], at.load(x, start)); });
    return fold<T>(f(f(v[0], v[1]), f(v[2], v[3])), f);
}

// total[k] += the sum over [0, n) of the terms that f(at, sum) adds to sum[k].
// Blocks are summed in T, in lanes; blocks are added in double, so that errors do not grow with n.
template <class T, int K, int unroll, class F>
MG_INLINE void sums(int64_t n, double* total, F&& f) {
    constexpr int64_t BLOCK = 1024;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        Vector<T> sum[unroll][K] = {};
        const int64_t end = n - begin < BLOCK ? n : begin + BLOCK;
        sweep<T, unroll>(begin, end, [&](auto at, int u) MG_INLINED { f(at, sum[u]); });
#pragma GCC unroll 8
        for (int k = 0; k < K; k++) {
            Vector<T> all = sum[0][k];
#pragma GCC unroll 8
            for (int u = 1; u < unroll; u++) all += sum[u][k];
            total[k] += fold<T>(all, [](auto a, auto b) MG_INLINED { return a + b; });
        }
    }
}

}  // namespace mg::MG_ISA
