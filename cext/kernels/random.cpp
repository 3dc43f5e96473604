// Random numbers from the counter-based generator.
//
// Value i takes word i % 4 of block offset + i/4, in streams 0 and 1 if it needs 64 bits. Drawing n values uses up
// (n + 3)/4 blocks.
#include "../runtime/pool.hpp"
#include "math.hpp"
#include "philox.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t BLOCKS = 64;         // computed together, so that a round is a loop over vectors
constexpr int64_t BATCH = 4 * BLOCKS;  // their words
constexpr int64_t GRAIN = 64;          // batches: about ten microseconds of work

// The random bits of BATCH values: words, or pairs of words where a value needs 64 bits.
template <class Bits>
void draw(uint64_t seed, uint64_t block, Bits* bits) {
    if constexpr (sizeof(Bits) == 4) {
        philox<BLOCKS>(seed, block, 0, bits);
    } else {
        uint32_t high[BATCH], low[BATCH];
        philox<BLOCKS>(seed, block, 0, high);
        philox<BLOCKS>(seed, block, 1, low);
        for (int64_t i = 0; i < BATCH; i++) bits[i] = uint64_t{high[i]} << 32 | low[i];
    }
}

// fill(bits, begin, count) for the values from `begin` on, at most BATCH at a time
template <class Bits, class Fill>
void each_batch(uint64_t seed, uint64_t offset, int64_t n, Fill fill) {
    parallel(ceil_divide(n, BATCH), GRAIN, [=](int64_t first, int64_t last) {
        Bits bits[BATCH];
        for (int64_t i = first; i < last; i++) {
            draw(seed, offset + static_cast<uint64_t>(i * BLOCKS), bits);
            fill(bits, i * BATCH, minimum(n - i * BATCH, BATCH));
        }
    });
}

MG_INLINE float below(float x) { return __builtin_nextafterf(x, -__builtin_inff()); }
MG_INLINE double below(double x) { return __builtin_nextafter(x, -__builtin_inf()); }

MG_KERNEL(uniform[FLOATS])
template <class T>
void uniform(uint64_t seed, uint64_t offset, int64_t n, double low, double high, T* y) {
    const T start = T(low), length = T(high - low), end = T(high) > start ? below(T(high)) : start;
    each_batch<Word<T>>(seed, offset, n, [=](const auto* bits, int64_t begin, int64_t count) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const T v = start + length * unit(bits[i]);
            y[begin + i] = v > end ? end : v;  // rounding may reach `high`
        }
    });
}

// In (0, 1], with as many bits as possible near 0, which make the tails of the normal distribution.
MG_INLINE float positive_unit(uint32_t bits) { return float(int32_t(bits >> 1 | 1)) * 0x1p-31f; }
MG_INLINE double positive_unit(uint64_t bits) { return double(int64_t(bits >> 1 | 1)) * 0x1p-63; }

// cos and sin of 2 pi bits/2^32 (or 2^64): the nearest quarter turn from two bits, and a Taylor series in the rest of
// the angle, which is within pi/4
template <class T, class Bits>
MG_INLINE void circle(Bits bits, T& cosine, T& sine) {
    constexpr int SHIFT = 8 * sizeof(Bits) - 2;
    const Bits turned = bits + (Bits{1} << (SHIFT - 1)), quarter = turned >> SHIFT;
    const T x = (unit(Bits(turned << 2)) - T(0.5)) * T(1.5707963267948966), u = x * x;
    T s, c;
    if constexpr (sizeof(T) == 4) {
        s = x + x * u * polynomial(u, -1 / 6.0f, 1 / 120.0f, -1 / 5040.0f, 1 / 362880.0f);
        c = 1 + u * polynomial(u, -0.5f, 1 / 24.0f, -1 / 720.0f, 1 / 40320.0f);
    } else {
        s = sin(x);
        c = cos(x);
    }
    const T sine_ = quarter & 1 ? c : s, cosine_ = quarter & 1 ? s : c;
    sine = quarter & 2 ? -sine_ : sine_;
    cosine = (quarter + 1) & 2 ? -cosine_ : cosine_;
}

// Box and Muller 1958: values 2i and 2i + 1 are r cos(2 pi u) and r sin(2 pi u) with r = sqrt(-2 log v)
MG_KERNEL(normal[FLOATS])
template <class T>
void normal(uint64_t seed, uint64_t offset, int64_t n, double mean, double std, T* y) {
    using Bits = Word<T>;
    const T center = T(mean), spread = T(std);
    each_batch<Bits>(seed, offset, n, [=](const Bits* bits, int64_t begin, int64_t count) {
        T value[BATCH];
#pragma omp simd
        for (int64_t i = 0; i < BATCH; i += 2) {
            const T r = spread * sqrt(-2 * log(positive_unit(bits[i])));
            T cosine, sine;
            circle(bits[i + 1], cosine, sine);
            value[i] = center + r * cosine;
            value[i + 1] = center + r * sine;
        }
        for (int64_t i = 0; i < count; i++) y[begin + i] = value[i];
    });
}

// low + floor(u (high - low)) for the u in [0, 1) of 64 bits: no value is likelier than another by more than
// (high - low)/2^64
MG_KERNEL(integers)
void integers(uint64_t seed, uint64_t offset, int64_t n, int64_t low, int64_t high, int64_t* y) {
    const uint64_t start = static_cast<uint64_t>(low), range = static_cast<uint64_t>(high) - start;
    each_batch<uint64_t>(seed, offset, n, [=](const uint64_t* bits, int64_t begin, int64_t count) {
        for (int64_t i = 0; i < count; i++) {
            const auto product = static_cast<unsigned __int128>(bits[i]) * range;
            y[begin + i] = static_cast<int64_t>(start + static_cast<uint64_t>(product >> 64));
        }
    });
}

MG_KERNEL(dropout[FLOATS])
template <class T>
void dropout(uint64_t seed, uint64_t offset, int64_t n, double p, const T* x, T* y, bool* keep) {
    const T scale = T(1 / (1 - p));
    const float threshold = float(p);
    each_batch<uint32_t>(seed, offset, n, [=](const uint32_t* bits, int64_t begin, int64_t count) {
        const T* __restrict from = x + begin;
        T* __restrict to = y + begin;
        bool* __restrict kept = keep + begin;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) {
            const bool in = unit(bits[i]) >= threshold;
            kept[i] = in;
            to[i] = in ? from[i] * scale : 0;
        }
    });
}

}  // namespace

void fill_random(Kernels& k) { MG_PUT_RANDOM }

}  // namespace mg::MG_ISA
