// Random numbers from the counter-based generator, the same as in cext/kernels/random.cpp.
//
// A thread computes four values: one block of the generator, or one of each stream if a value needs 64 bits.

// f(bits, i) for every four values, of which the first is i, of n in all
template <class Bits, class F>
__device__ void each_block(uint64 seed, uint64 offset, int64 n, F f) {
    FOR_EACH(block, (n + 3) / 4) {
        const Words high = philox(seed, offset + uint64(block), 0);
        Bits bits[4];
        if constexpr (sizeof(Bits) == 4) {
            for (int k = 0; k < 4; k++) bits[k] = high.word[k];
        } else {
            const Words low = philox(seed, offset + uint64(block), 1);
            for (int k = 0; k < 4; k++) bits[k] = uint64(high.word[k]) << 32 | low.word[k];
        }
        f(bits, 4 * block);
    }
}

// y[i], y[i + 1], ... = four values, or fewer at the end; in one store if y is aligned
template <class R>
__device__ void store(R* y, int64 i, int64 n, const Pack<4, R>& value) {
    if (i + 4 <= n && (uint64)y % alignof(Pack<4, R>) == 0) {
        value.store(y + i, true);
    } else {
        for (int k = 0; k < 4 && i + k < n; k++) y[i + k] = value.v[k];
    }
}

// low + floor(u (high - low)) with a u in [0, 1) of 64 bits
#if !FLOATING
extern "C" __global__ void integers(uint64 seed, uint64 offset, int64 n, int64 low, int64 high, int64* y) {
    const uint64 range = uint64(high) - uint64(low);
    each_block<uint64>(seed, offset, n, [&](const uint64* bits, int64 i) {
        Pack<4, int64> value;
        for (int k = 0; k < 4; k++) value.v[k] = int64(uint64(low) + __umul64hi(bits[k], range));
        store(y, i, n, value);
    });
}
#else

template <int size>
struct BitsOf {
    typedef unsigned type;
};
template <>
struct BitsOf<8> {
    typedef uint64 type;
};
typedef BitsOf<sizeof(T)>::type Bits;

// low + u length, at most the number below `high`, which rounding could reach
extern "C" __global__ void uniform(uint64 seed, uint64 offset, int64 n, T low, T length, T most, T* y) {
    each_block<Bits>(seed, offset, n, [&](const Bits* bits, int64 i) {
        Pack<4> value;
        for (int k = 0; k < 4; k++) {
            const T v = fma(length, unit(bits[k]), low);
            value.v[k] = v > most ? most : v;
        }
        store(y, i, n, value);
    });
}

// In (0, 1], with all bits near 0, where they determine the tails of the normal distribution.
__device__ inline float positive_unit(unsigned bits) { return float(int(bits >> 1 | 1)) * 0x1p-31f; }
__device__ inline double positive_unit(uint64 bits) { return double(int64(bits >> 1 | 1)) * 0x1p-63; }

// cos and sin of 2 pi bits/2^32 (or 2^64): two bits give the nearest quarter turn, the others an angle within pi/4
__device__ inline void circle(Bits bits, T& cosine, T& sine) {
    const int SHIFT = 8 * sizeof(Bits) - 2;
    const Bits turned = bits + (Bits(1) << (SHIFT - 1)), quarter = turned >> SHIFT;
    const T x = (unit(Bits(turned << 2)) - T(0.5)) / 2, s = sinpi(x), c = cospi(x);
    const T sine_ = quarter & 1 ? c : s, cosine_ = quarter & 1 ? s : c;
    sine = quarter & 2 ? -sine_ : sine_;
    cosine = (quarter + 1) & 2 ? -cosine_ : cosine_;
}

// Box and Muller 1958: values 2i and 2i + 1 are r cos(2 pi u) and r sin(2 pi u) with r = sqrt(-2 log v)
extern "C" __global__ void normal(uint64 seed, uint64 offset, int64 n, T mean, T std, T* y) {
    each_block<Bits>(seed, offset, n, [&](const Bits* bits, int64 i) {
        Pack<4> value;
        for (int k = 0; k < 4; k += 2) {
            const T r = std * sqrt(-2 * log(positive_unit(bits[k])));
            T cosine, sine;
            circle(bits[k + 1], cosine, sine);
            value.v[k] = mean + r * cosine;
            value.v[k + 1] = mean + r * sine;
        }
        store(y, i, n, value);
    });
}

// y = x keep/(1 - p), keep = u >= p
extern "C" __global__ void dropout(uint64 seed, uint64 offset, int64 n, float p, T scale, const T* x, T* y,
                                   Bool* keep) {
    each_block<unsigned>(seed, offset, n, [&](const unsigned* bits, int64 i) {
        Pack<4> value;
        Pack<4, Bool> kept;
        for (int k = 0; k < 4; k++) {
            kept.v[k] = unit(bits[k]) >= p;
            value.v[k] = kept.v[k] && i + k < n ? x[i + k] * scale : T(0);
        }
        store(y, i, n, value);
        store(keep, i, n, kept);
    });
}
#endif
