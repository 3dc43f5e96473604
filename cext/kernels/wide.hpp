// GELU and SiLU of 16 float32 at once, for AVX-512, whose permutations look numbers up in tables in registers.
//
// With fewer steps than math.hpp's and no division, memory is what limits their speed. Their errors stay within the
// bounds that math.hpp states.
#pragma once

#include "math.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {

#if defined(__AVX512F__)
constexpr bool HAS_WIDE = true;
using Wide = Vector<float>;
constexpr __mmask16 ALL = 0xffff;  // without a mask, GCC 12 warns of undefined values in its own headers

// 2^(j/32)
constexpr float POWERS[32] = {0x1p0f,        0x1.059b0ep0f, 0x1.0b5586p0f, 0x1.11301ep0f, 0x1.172b84p0f, 0x1.1d4874p0f,
                              0x1.2387a6p0f, 0x1.29e9ep0f,  0x1.306fep0f,  0x1.371a74p0f, 0x1.3dea64p0f, 0x1.44e086p0f,
                              0x1.4bfdaep0f, 0x1.5342b6p0f, 0x1.5ab07ep0f, 0x1.6247ecp0f, 0x1.6a09e6p0f, 0x1.71f75ep0f,
                              0x1.7a1148p0f, 0x1.82589ap0f, 0x1.8ace54p0f, 0x1.93737cp0f, 0x1.9c4918p0f, 0x1.a5503cp0f,
                              0x1.ae89fap0f, 0x1.b7f77p0f,  0x1.c199bep0f, 0x1.cb720ep0f, 0x1.d5818ep0f, 0x1.dfc974p0f,
                              0x1.ea4afap0f, 0x1.f50766p0f};

MG_INLINE Wide magnitude(Wide x, float limit) {  // NaN stays NaN
    return _mm512_maskz_min_ps(ALL, _mm512_set1_ps(limit), _mm512_and_ps(x, (Wide)_mm512_set1_epi32(INT32_MAX)));
}

// The part of 1 to which y belongs where x is negative, and the other part elsewhere
MG_INLINE Wide part_of_one(Wide x, Wide y) {
    const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NLT_UQ);
    return _mm512_mask_sub_ps(y, positive, _mm512_set1_ps(1), y);
}

// The normal distribution: Mills' ratio, cdf(-a)/pdf(a), over sqrt(2 pi) for 0 <= a < 15. With z = 1 + a, each eighth
// of an octave of z has a polynomial of its distance from the middle, whose coefficients of one power are a row.
// They also make up for the rounding of ln 2 below.
constexpr float MILLS[5][32] = {
    {0x1.f6704ep-3f, 0x1.bdb9f2p-3f, 0x1.8f6846p-3f, 0x1.690b32p-3f, 0x1.48de38p-3f, 0x1.2d938ap-3f, 0x1.1630fap-3f,
     0x1.01f838p-3f, 0x1.d0b31cp-4f, 0x1.99c2b6p-4f, 0x1.6e0408p-4f, 0x1.4a7248p-4f, 0x1.2d01fep-4f, 0x1.1445a4p-4f,
     0x1.fe6e5cp-5f, 0x1.da2cacp-5f, 0x1.ac629p-5f,  0x1.7b5f3p-5f,  0x1.545294p-5f, 0x1.348056p-5f, 0x1.1a1572p-5f,
     0x1.03cf02p-5f, 0x1.e18dd4p-6f, 0x1.c0a9bcp-6f, 0x1.e76f76p-2f, 0x1.bb9424p-2f, 0x1.95b88ep-2f, 0x1.74d7e8p-2f,
     0x1.58207ep-2f, 0x1.3ee88ep-2f, 0x1.28a5d4p-2f, 0x1.14e6fep-2f},
    {-0x1.f7946cp-4f, -0x1.9851d2p-4f, -0x1.4ffe52p-4f, -0x1.18274p-4f,  -0x1.d8c1aap-5f, -0x1.9328eap-5f,
     -0x1.5b2056p-5f, -0x1.2d7c0ep-5f, -0x1.ef2c4ep-6f, -0x1.85dc3cp-6f, -0x1.3a006ep-6f, -0x1.01c9a8p-6f,
     -0x1.ae3682p-7f, -0x1.6c06aap-7f, -0x1.37c32ap-7f, -0x1.0dd41ap-7f, -0x1.b9f9e6p-8f, -0x1.5bcafep-8f,
     -0x1.188fcap-8f, -0x1.cdee86p-9f, -0x1.82bddap-9f, -0x1.486da8p-9f, -0x1.1a50fcp-9f, -0x1.ea79bp-10f,
     -0x1.7a0d54p-2f, -0x1.455886p-2f, -0x1.19baa2p-2f, -0x1.eacbb4p-3f, -0x1.ade414p-3f, -0x1.7a88ep-3f,
     -0x1.4efb2cp-3f, -0x1.29d788p-3f},
    {0x1.b6594ap-5f,  0x1.4a0326p-5f,  0x1.f9a634p-6f,  0x1.899958p-6f,  0x1.36dd26p-6f,  0x1.f199b4p-7f,
     0x1.931dd4p-7f,  0x1.4a384ep-7f,  0x1.f2f568p-8f,  0x1.621fdap-8f,  0x1.031b4cp-8f,  0x1.852b6p-9f,
     0x1.2ae278p-9f,  0x1.d419e4p-10f, 0x1.74d5aep-10f, 0x1.2d6b52p-10f, 0x1.c0f95p-11f,  0x1.3ae7cap-11f,
     0x1.c9eb24p-12f, 0x1.56ee2p-12f,  0x1.073c52p-12f, 0x1.9ca83ep-13f, 0x1.494a46p-13f, 0x1.0ade6p-13f,
     0x1.cfce9ap-3f,  0x1.7e9386p-3f,  0x1.3dae36p-3f,  0x1.097b56p-3f,  0x1.be70a8p-4f,  0x1.7992fap-4f,
     0x1.411f8ep-4f,  0x1.1293eap-4f},
    {-0x1.577a98p-6f,  -0x1.e4d7b2p-7f,  -0x1.5cd9acp-7f,  -0x1.ff043ap-8f,  -0x1.7c7b9ep-8f,  -0x1.1f9f3ep-8f,
     -0x1.b8fbdep-9f,  -0x1.5676c4p-9f,  -0x1.e0ac9ap-10f, -0x1.35a9c8p-10f, -0x1.9dfa2ap-11f, -0x1.1daf76p-11f,
     -0x1.95659p-12f,  -0x1.26b3cap-12f, -0x1.b5b69ep-13f, -0x1.4b426ap-13f, -0x1.c37712p-14f, -0x1.1acb4ep-14f,
     -0x1.732dbap-15f, -0x1.fa4df4p-16f, -0x1.64a23cp-16f, -0x1.022f2p-16f,  -0x1.7eb862p-17f, -0x1.21826p-17f,
     -0x1.e53448p-4f,  -0x1.82516p-4f,   -0x1.35b772p-4f,  -0x1.f3ed9p-5f,   -0x1.9613fep-5f,  -0x1.4be4c6p-5f,
     -0x1.10e1fap-5f,  -0x1.c34f16p-6f},
    {0x1.ec2f96p-8f,  0x1.47feb2p-8f,  0x1.be3938p-9f,  0x1.35658ap-9f,  0x1.b4c2f4p-10f, 0x1.396eb6p-10f,
     0x1.c8da58p-11f, 0x1.51c4bcp-11f, 0x1.b973eap-12f, 0x1.03ee92p-12f, 0x1.3f4288p-13f, 0x1.96d2a4p-14f,
     0x1.0bb4ccp-14f, 0x1.6a7f34p-15f, 0x1.f7625ep-16f, 0x1.657198p-16f, 0x1.bd61d6p-17f, 0x1.f41e48p-18f,
     0x1.290ebcp-18f, 0x1.71ca0ep-19f, 0x1.ded196p-20f, 0x1.409316p-20f, 0x1.b9d69ep-21f, 0x1.383aaap-21f,
     0x1.c103bcp-5f,  0x1.5aa6ep-5f,   0x1.0d852ep-5f,  0x1.a5fa08p-6f,  0x1.4c87a2p-6f,  0x1.07ba3p-6f,
     0x1.a4ebep-7f,   0x1.51ec96p-7f}};

// e^(-a^2/2) = 2^n rest, where of n, a multiple of 1/32, only the whole part counts
struct WideNormal {
    Wide a, mills, n, rest;

    MG_INLINE explicit WideNormal(Wide x) : a(magnitude(x, 14.9f)) {
        constexpr float ROUND = 0x1.8p18f;  // adding it leaves the nearest multiple of 1/32 in the low bits
        const Wide square = a * a, lost = _mm512_fmsub_ps(a, a, square), t = square * -0x1.715476p-1f + ROUND;
        const Wide root = _mm512_permutex2var_ps(_mm512_loadu_ps(POWERS), (__m512i)t, _mm512_loadu_ps(POWERS + 16));
        n = t - ROUND;
        const Wide r = (Wide)_mm512_fnmsub_ps(n, _mm512_set1_ps(0x1.62e43p0f), square) - lost, first = root * r;
        rest = root + first * (r * 0.125f + 0x1.0000f6p-1f);  // root e^(r/2)

        const __m512i z = (__m512i)(a + 1.0f), piece = (__m512i)((Vector<uint32_t>)z >> 20);
        const __m512i kept = _mm512_set1_epi32(-0x100000), half = _mm512_set1_epi32(0x80000);
        const Wide d = (Wide)z - (Wide)_mm512_ternarylogic_epi32(z, kept, half, 0xea);  // z & kept | half
        const auto row = [&](int k) MG_INLINED {
            return (Wide)_mm512_permutex2var_ps(_mm512_loadu_ps(MILLS[k]), piece, _mm512_loadu_ps(MILLS[k] + 16));
        };
        mills = polynomial(d, row(0), row(1), row(2), row(3), row(4));
    }
    MG_INLINE Wide exp_times(Wide y) const { return _mm512_maskz_scalef_ps(ALL, rest * y, n); }
};

MG_INLINE Wide gelu(Wide x) {
    const WideNormal normal(x);
    return x * part_of_one(x, normal.exp_times(normal.mills));
}
MG_INLINE Wide gelu_derivative(Wide x) {
    const WideNormal normal(x);
    return part_of_one(x, normal.exp_times(normal.mills - normal.a * 0x1.988454p-2f));
}

// a/b for normal numbers: 14 digits of 1/b give a quotient, and its remainder gives the others
MG_INLINE Wide divide(Wide a, Wide b) {
    const Wide inverse = _mm512_maskz_rcp14_ps(ALL, b), quotient = a * inverse;
    return quotient + inverse * (Wide)_mm512_fnmadd_ps(b, quotient, a);
}

template <>
MG_INLINE Logistic<Wide> logistic(Wide x) {
    constexpr float ROUND = 0x1.8p23f, LN2 = 0x1.62e43p-1f, LN2_LOW = -0x1.05c61p-29f;
    const Wide one = Wide{} + 1.0f, a = magnitude(x, 104), n = (a * -0x1.715476p0f + ROUND) - ROUND;
    const Wide r = (Wide)_mm512_fnmsub_ps(n, _mm512_set1_ps(LN2), a) - n * LN2_LOW;
    const Wide e = _mm512_maskz_scalef_ps(ALL, one + expm1_reduced(r), n);  // e^-|x|
    const __mmask16 negative = _mm512_cmp_ps_mask(x, Wide{}, _CMP_LT_OQ);
    return {divide(_mm512_mask_mov_ps(one, negative, e), one + e),
            divide(_mm512_mask_mov_ps(e, negative, one), one + e)};
}
#else
constexpr bool HAS_WIDE = false;
#endif

}  // namespace mg::MG_ISA
