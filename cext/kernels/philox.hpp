// The counter-based generator of random bits: Philox 4x32-10.
//
// J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; rounds
// and constants are theirs. Block b of stream s is philox(counter = {b, s}, key = seed), which is four words.
#pragma once

#include "isa.hpp"

namespace mg::MG_ISA {

// word[4 blocks] = the blocks from `first` on
template <int64_t blocks>
void philox(uint64_t seed, uint64_t first, uint32_t stream, uint32_t* __restrict word) {
    uint32_t a[blocks], b[blocks], c[blocks], d[blocks];
    for (int64_t i = 0; i < blocks; i++) {
        const uint64_t counter = first + static_cast<uint64_t>(i);
        a[i] = static_cast<uint32_t>(counter);
        b[i] = static_cast<uint32_t>(counter >> 32);
        c[i] = stream;
        d[i] = 0;
    }
    uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9, key1 += 0xBB67AE85) {
#pragma omp simd
        for (int64_t i = 0; i < blocks; i++) {
            const uint64_t p = uint64_t{0xD2511F53} * a[i], q = uint64_t{0xCD9E8D57} * c[i];
            a[i] = static_cast<uint32_t>(q >> 32) ^ b[i] ^ key0;
            b[i] = static_cast<uint32_t>(q);
            c[i] = static_cast<uint32_t>(p >> 32) ^ d[i] ^ key1;
            d[i] = static_cast<uint32_t>(p);
        }
    }
    for (int64_t i = 0; i < blocks; i++) {
        word[4 * i] = a[i];
        word[4 * i + 1] = b[i];
        word[4 * i + 2] = c[i];
        word[4 * i + 3] = d[i];
    }
}

// k/2^24 from 32 bits, k/2^53 from 64: evenly spaced floats in [0, 1)
MG_INLINE float unit(uint32_t bits) { return float(int32_t(bits >> 8)) * 0x1p-24f; }
MG_INLINE double unit(uint64_t bits) { return double(int64_t(bits >> 11)) * 0x1p-53; }

}  // namespace mg::MG_ISA
