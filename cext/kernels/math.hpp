// Elementary functions in float32 without branches, so that a loop over them becomes vector code.
//
// Infinities, NaN, subnormals and zeros of either sign are right. The largest errors over all float32, in units
// in the last place: pow 0.6, log 0.9, exp, exp2 1.0, erf 1.2, tanh 1.5, expm1, log1p 1.6, sin, cos 1.7, softplus,
// log2, log10 2.0, sigmoid 2.5, silu 3.1 (52 below -87), and where they are nearly 0, gelu 9 and gelu by tanh 180. The
// polynomials and rational functions are minimax fits of the relative error, their coefficients rounded. float64 goes
// to the C library.
#pragma once

#include "isa.hpp"

namespace mg::MG_ISA {

template <class To, class From>
MG_INLINE To bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, x);
}

MG_INLINE float abs(float x) { return __builtin_fabsf(x); }
MG_INLINE double abs(double x) { return __builtin_fabs(x); }

// c[0] + c[1] x + ... by Horner's rule
template <class T>
MG_INLINE T polynomial(T, T c) {
    return c;
}
template <class T, class... Rest>
MG_INLINE T polynomial(T x, T c, Rest... rest) {
    return c + x * polynomial(x, rest...);
}

// 2^n for -126 <= n <= 127; n is an int32 held unsigned, so that garbage from a NaN may wrap.
MG_INLINE float pow2(uint32_t n) { return bits<float>((n + 127) << 23); }

// x = n ln 2 + r, |r| <= ln 2 / 2
struct Reduced {
    float r;
    uint32_t n;
};

// The same for x - tail, a difference more exact than one float.
MG_INLINE Reduced reduce_exp(float x, float tail = 0) {
    constexpr float ROUND = 0x1.8p23f;  // adding it leaves the nearest integer in the low bits
    constexpr float LN2_HIGH = 0x1.62ep-1f, LN2_LOW = 0x1.0bfbe8p-15f;  // n LN2_HIGH is exact
    const float t = (x - tail) * 0x1.715476p0f + ROUND, n = t - ROUND;
    return {x - n * LN2_HIGH - n * LN2_LOW - tail, bits<uint32_t>(t) - bits<uint32_t>(ROUND)};
}

// e^r - 1 for |r| <= ln 2 / 2
template <class T>
MG_INLINE T expm1_reduced(T r) {
    constexpr T O = {};  // a coefficient of a vector is a vector
    return r + r * r *
                   polynomial(r, O + 0x1.fffffep-2f, O + 0x1.5554a8p-3f, O + 0x1.55578cp-5f, O + 0x1.122d38p-7f,
                              O + 0x1.6ae28ap-10f);
}

// y 2^n for |n| <= 252, in two factors: results may be subnormal or infinite
MG_INLINE float scale(float y, uint32_t n) {
    const uint32_t half = uint32_t(int32_t(n) >> 1);
    return y * pow2(half) * pow2(n - half);
}

MG_INLINE float clamp(float x, float low, float high) {  // NaN stays NaN
    x = x < low ? low : x;
    return x > high ? high : x;
}

MG_INLINE float exp(float x) {
    const auto [r, n] = reduce_exp(clamp(x, -104, 89));
    return scale(1 + expm1_reduced(r), n);
}

MG_INLINE float exp2(float x) {
    constexpr float ROUND = 0x1.8p23f;
    x = clamp(x, -151, 129);
    const float t = x + ROUND;
    return scale(1 + expm1_reduced((x - (t - ROUND)) * 0x1.62e43p-1f), bits<uint32_t>(t) - bits<uint32_t>(ROUND));
}

// e^x - 1 = 2 (2^(n-1) (e^r - 1) + 2^(n-1) - 1/2)
MG_INLINE float expm1(float x) {
    const auto [r, n] = reduce_exp(clamp(x, -18, 89));
    const float s = pow2(n - 1), y = s * expm1_reduced(r) + (s - 0.5f);
    return abs(x) < 0x1p-25f ? x : y + y;
}

// x = 2^e (1 + f), -1/3 <= f < 1/3, for normal x > 0
struct Split {
    float e, f;
};

MG_INLINE Split split_log(float x) {
    constexpr uint32_t LOWEST = 0x3f2aaaab;  // the bits of 2/3
    const uint32_t t = bits<uint32_t>(x) - LOWEST;
    return {float(int32_t(t) >> 23), bits<float>((t & 0x7fffff) + LOWEST) - 1};
}

// log(1 + f) - f for the f of Split
MG_INLINE float log1p_reduced(float f) {
    const float p = polynomial(f, 0x1.555506p-2f, -0x1.fffefp-3f, 0x1.99d028p-3f, -0x1.559dcap-3f, 0x1.1ed718p-3f,
                               -0x1.f3114p-4f, 0x1.1e66b2p-3f, -0x1.08058p-3f);
    return f * f * (f * p - 0.5f);
}

// The values of any logarithm that are not finite: log 0 = -inf, log inf = inf, and NaN below 0.
MG_INLINE float finish_log(float x, float y) {
    y = x > 0x1.fffffep127f ? x : y;
    y = x == 0 ? -__builtin_inff() : y;
    return x < 0 || x != x ? __builtin_nanf("") : y;
}

// Subnormal numbers are multiplied by 2^23 first.
template <class Combine>
MG_INLINE float logarithm(float x, Combine combine) {
    const bool small = x < 0x1p-126f;
    const Split s = split_log(small ? x * 0x1p23f : x);
    return finish_log(x, combine(s.e - (small ? 23.0f : 0.0f), s.f, log1p_reduced(s.f)));
}

MG_INLINE float log(float x) {
    return logarithm(x, [](float e, float f, float y) { return e * 0x1.62ep-1f + (f + (y + e * 0x1.0bfbe8p-15f)); });
}
MG_INLINE float log2(float x) {
    return logarithm(x, [](float e, float f, float y) {
        return e + (f * 0x1.715476p0f + (f * 0x1.4ae0bfp-26f + y * 0x1.715476p0f));
    });
}
MG_INLINE float log10(float x) {
    return logarithm(x, [](float e, float f, float y) {
        return e * 0x1.344p-2f +
               (f * 0x1.bcb7b2p-2f + (e * 0x1.3509f8p-18f + (f * -0x1.5b235ep-27f + y * 0x1.bcb7b2p-2f)));
    });
}

// log(1 + x) where that is finite. u = 1 + x loses c = x - (u - 1), which is added to f at the scale of u.
MG_INLINE float log1p_finite(float x) {
    const float u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v);
    const Split s = split_log(u);
    // for the largest u, where 2^-e is not a normal number, c = 1 is negligible
    const float f = s.f + c * pow2(uint32_t(-int32_t(s.e > 126 ? 126.0f : s.e)));
    const float y = s.e * 0x1.62ep-1f + (f + (log1p_reduced(f) + s.e * 0x1.0bfbe8p-15f));
    return abs(x) < 0x1p-25f ? x : y;
}

MG_INLINE float log1p(float x) { return finish_log(1 + x, log1p_finite(x)); }

// A polynomial below 1/2, t/(t + 2) with t = e^(2|x|) - 1 above.
MG_INLINE float tanh(float x) {
    const float a = abs(x), z = a > 9.1f ? 9.1f : a, u = z * z;
    const float small = z + z * u * polynomial(u, -0x1.5554d6p-2f, 0x1.10e9fcp-3f, -0x1.b28c78p-5f, 0x1.1a7c1p-6f);
    const auto [r, n] = reduce_exp(2 * z);
    const float s = pow2(n), t = s * expm1_reduced(r) + (s - 1);
    return __builtin_copysignf(z < 0.5f ? small : t / (t + 2), x);
}

// A polynomial below 0.9, 1 - e^log(erfc) above, where log(erfc) is a polynomial.
MG_INLINE float erf(float x) {
    const float a = abs(x), z = a > 3.95f ? 3.95f : a, u = z * z;
    const float small = z + z * polynomial(u, 0x1.06eba6p-3f, -0x1.8126fap-2f, 0x1.ce1dd2p-4f, -0x1.b6bee2p-6f,
                                           0x1.4876cap-8f, -0x1.3f4f72p-11f);
    const auto [r, n] = reduce_exp(polynomial(z, -0x1.5d1374p-13f, -0x1.20b752p0f, -0x1.4621bcp-1f, -0x1.aa7312p-4f,
                                              0x1.6d9cb8p-6f, -0x1.91cca2p-9f, 0x1.9fb21cp-13f));
    const float s = pow2(n), large = 1 - (s + s * expm1_reduced(r));
    return __builtin_copysignf(z < 0.9f ? small : large, x);
}

// A sigmoid below the smallest normal number is 0: there e^-x overflows.
MG_INLINE float sigmoid(float x) {
    const auto [r, n] = reduce_exp(clamp(-x, -87, 89));
    return 1 / (1 + pow2(n) * (1 + expm1_reduced(r)));
}
MG_INLINE float softplus(float x) { return (x < 0 ? 0 : x) + log1p_finite(exp(-abs(x))); }

// The standard normal distribution: density and cumulative probability
struct Normal {
    float pdf, cdf;
};

// cdf(-a) = pdf(a) m(a) with Mills' ratio m, a rational function of a >= 0. The square in
// pdf = exp(-a^2/2)/sqrt(2 pi) is taken in two pieces: a^2 = h^2 + (a - h)(a + h), h^2 exact.
MG_INLINE Normal normal(float x) {
    const float z = abs(x), a = z > 16 ? 16 : z;
    const float h = bits<float>(bits<uint32_t>(a) & 0xfffff000);
    const auto [r, n] = reduce_exp(-0.5f * h * h, 0.5f * (a - h) * (a + h));
    const float pdf = scale(0x1.988454p-2f * (1 + expm1_reduced(r)), n);
    const float p = polynomial(a, 0x1.40d932p0f, 0x1.194082p0f, 0x1.d652f6p-2f, 0x1.a12f68p-4f, 0x1.521966p-7f);
    const float q = polynomial(a, 1.0f, 0x1.acaa48p0f, 0x1.33d716p0f, 0x1.e0bc7cp-2f, 0x1.a1362cp-4f, 0x1.521866p-7f);
    const float tail = pdf * p / q;
    return {pdf, x < 0 ? tail : 1 - tail};
}

MG_INLINE float gelu(float x) { return x * normal(x).cdf; }
MG_INLINE float gelu_derivative(float x) {
    const auto [pdf, cdf] = normal(x);
    return cdf + x * pdf;
}

// sin and cos for |x| < TRIG_LIMIT; beyond that, kernels call the C library.
constexpr float TRIG_LIMIT = 0x1p24f;

// sin(x + shift pi/2). x = (n + f) pi/2, |f| <= 1/2, in double precision: 2/pi = HIGH + LOW, x HIGH exact.
MG_INLINE float sin_shifted(float x, int32_t shift) {
    constexpr double ROUND = 0x1.8p52, HIGH = 0x1.45f306cp-1, LOW = 0x1.c9c882a53f84fp-29;
    const double d = x, y = d * HIGH, n = (y + ROUND) - ROUND;
    const float r = float(((y - n) + d * LOW) * 0x1.921fb54442d18p0), u = r * r;
    const uint32_t quadrant = uint32_t(int32_t(n)) + uint32_t(shift);
    const float s = r + r * u * polynomial(u, -0x1.555546p-3f, 0x1.110774p-7f, -0x1.9951eap-13f);
    const float c = 1 + u * (u * polynomial(u, 0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e80cp-16f) - 0.5f);
    const float v = quadrant & 1 ? c : s;
    return bits<float>(bits<uint32_t>(v) ^ ((quadrant & 2) << 30));
}

MG_INLINE float sin(float x) { return x == 0 ? x : sin_shifted(x, 0); }  // keeps -0
MG_INLINE float cos(float x) { return sin_shifted(x, 1); }

// x^p in double precision: |x| = 2^e (1 + s)/(1 - s) with |s| <= 1/5, where log2 |x| is e plus an odd polynomial of s.
MG_INLINE float pow(float base, float exponent) {
    constexpr double ROUND = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
    constexpr double INFINITE = __builtin_inf();
    constexpr uint64_t LOWEST = 0x3fe5555555555555, MANTISSA = 0xfffffffffffff;  // the bits of 2/3; a mask
    const double x = base, p = exponent, a = abs(x);
    const uint64_t t = bits<uint64_t>(a) - LOWEST + (uint64_t(1024) << 52);
    const double e = bits<double>((t >> 52) | 0x4330000000000000) - (0x1p52 + 1024);
    const double m = bits<double>((t & MANTISSA) + LOWEST), s = (m - 1) / (m + 1);
    const double logarithm = e + s * polynomial(s * s, 0x1.71547652b7e94p1, 0x1.ec709dcb58f5ep-1, 0x1.2776bc500da21p-1,
                                                0x1.a61e9da1271fap-2, 0x1.46f2b991f8b82p-2, 0x1.29cef69a81357p-2);
    double y = a == 1 ? 0 : p * logarithm;
    y = y < -151 ? -151 : y;
    y = y > 129 ? 129 : y;
    const double n = y + ROUND, r = y - (n - ROUND);
    const double root =
        polynomial(r, 0x1.00000002614f8p0, 0x1.62e430c7e8fafp-1, 0x1.ebfbdadcb1bcep-3, 0x1.c6aed4b98241ap-5,
                   0x1.3b2dbbc08f82cp-7, 0x1.5f456a784f2dfp-10, 0x1.41d333a2e39d1p-13);
    double power = root * bits<double>((bits<uint64_t>(n) + 1023) << 52);
    // As in C: powers of infinities and zeros, of negative numbers, of which only whole ones exist, and of NaN
    const double grows = p > 0 ? INFINITE : 0, shrinks = p > 0 ? 0 : INFINITE;
    power = a == INFINITE ? grows : power;
    power = a == 0 ? shrinks : power;
    const double q = abs(p) < 0x1p24 ? p : 2, half = 0.5 * q;  // larger numbers are even
    const double odd = (half + ROUND) - ROUND == half ? power : __builtin_copysign(power, x);
    const double broken = x < 0 ? __builtin_nan("") : power;
    power = (q + ROUND) - ROUND == q ? odd : a == INFINITE ? power : broken;
    power = x != x ? x : p != p ? p : power;
    return float(p == 0 ? 1 : x == 1 ? 1 : power);
}

MG_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
MG_INLINE double sqrt(double x) { return __builtin_sqrt(x); }

#define MG_DOUBLE(function) \
    MG_INLINE double function(double x) { return __builtin_##function(x); }
#define MG_DOUBLES(f) f(exp) f(exp2) f(expm1) f(log) f(log1p) f(log2) f(log10) f(sin) f(cos) f(tanh) f(erf)
MG_DOUBLES(MG_DOUBLE)
MG_INLINE double pow(double x, double p) { return __builtin_pow(x, p); }
MG_INLINE double sigmoid(double x) { return 1 / (1 + __builtin_exp(-x)); }
MG_INLINE double softplus(double x) { return (x < 0 ? 0.0 : x) + __builtin_log1p(__builtin_exp(-abs(x))); }
MG_INLINE double gelu(double x) { return 0.5 * x * __builtin_erfc(-0.7071067811865476 * x); }
MG_INLINE double gelu_derivative(double x) {
    return 0.5 * __builtin_erfc(-0.7071067811865476 * x) + x * 0.3989422804014327 * __builtin_exp(-0.5 * x * x);
}

// sigmoid(x) and sigmoid(-x), neither as 1 minus the other, so that both keep their digits where they are small
template <class T>
struct Logistic {
    T s, t;
};

template <class T>
MG_INLINE Logistic<T> logistic(T x) {
    const T e = exp(-abs(x)), sum = 1 + e;
    return {(x < 0 ? e : 1) / sum, (x < 0 ? 1 : e) / sum};
}

template <class T>
MG_INLINE T silu(T x) {
    return x * logistic(x).s;
}
template <class T>
MG_INLINE T silu_derivative(T x) {
    const auto [s, t] = logistic(x);
    return s * (x * t + 1.0f);
}

// gelu by tanh: x (1 + tanh z)/2 = x sigmoid(2 z), which keeps the digits of small results. 2 z = x (FIRST + THIRD x^2)
// with FIRST = 2 sqrt(2/pi) and THIRD = 0.044715 FIRST.
template <class T>
struct TanhGelu {
    using Number = std::conditional_t<std::is_same_v<T, double>, double, float>;
    static constexpr Number FIRST = Number(1.5957691216057308), THIRD = Number(0.07135481627260025);
    Logistic<T> of;

    MG_INLINE explicit TanhGelu(T x) : of(logistic(x * (x * x * THIRD + FIRST))) {}
};

template <class T>
MG_INLINE T gelu_tanh(T x) {
    return x * TanhGelu<T>(x).of.s;
}
template <class T>
MG_INLINE T gelu_tanh_derivative(T x) {
    using G = TanhGelu<T>;
    const auto [s, t] = G(x).of;
    const T y = s * x * t;  // 0 where the square of x overflows
    return s + (y * G::FIRST + x * (x * y) * (3 * G::THIRD));
}

}  // namespace mg::MG_ISA
