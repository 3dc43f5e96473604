// Elementwise kernels: the one-dimensional inner loops of every unary and binary operation, where and cast.
//
// Cheap operations have vector loops for contiguous operands and for operands of stride 0 (broadcast
// scalars), and one loop for any other strides. Costly float32 functions run in blocks of 16 that lie
// in place or, at the tail and for any strides, are gathered into a buffer: one vector body serves all.
// What the C library computes is one plain loop. A bool is a byte, 0 or 1; integers wrap.
#include <type_traits>

#include "math.hpp"

namespace mg::MG_ISA {
namespace {

using Bool = uint8_t;

template <class T>
constexpr DType dtype_of = std::is_same_v<T, Bool>      ? BOOL
                           : std::is_same_v<T, int32_t> ? INT32
                           : std::is_same_v<T, int64_t> ? INT64
                           : std::is_same_v<T, float>   ? FLOAT32
                                                        : FLOAT64;

template <class T>
constexpr bool is_float = std::is_floating_point_v<T>;

// The type in which T is added and multiplied: unsigned for integers, where overflow is defined.
template <class T>
struct Wrapping {
    using type = std::make_unsigned_t<T>;
};
template <>
struct Wrapping<float> {
    using type = float;
};
template <>
struct Wrapping<double> {
    using type = double;
};
template <class T>
using W = typename Wrapping<T>::type;

// ---- unary operations -------------------------------------------------------------------------------------------

#define MG_UNARY(Name, ...)                \
    struct Name {                          \
        template <class T>                 \
        MG_INLINE static auto apply(T x) { \
            __VA_ARGS__                    \
        }                                  \
    };

MG_UNARY(Neg, return T(-W<T>(x));)
MG_UNARY(Abs, if constexpr (is_float<T>) return abs(x); else return T(x < 0 ? -W<T>(x) : W<T>(x));)
MG_UNARY(Sign, const T s = T(x > 0) - T(x < 0); return x != x ? x : s;)
MG_UNARY(Square, return T(W<T>(x) * W<T>(x));)
MG_UNARY(Invert, if constexpr (std::is_same_v<T, Bool>) return T(x ^ 1); else return T(~x);)
MG_UNARY(LogicalNot, return Bool(x == 0);)
MG_UNARY(Sqrt, return sqrt(x);)
MG_UNARY(Rsqrt, return 1 / sqrt(x);)
MG_UNARY(Cube, return T(double(x) * double(x) * double(x));)  // a float32 is rounded once
MG_UNARY(Reciprocal, return 1 / x;)
MG_UNARY(Relu, return x < 0 ? T(0) : x;)
MG_UNARY(IsNan, return Bool(x != x);)
MG_UNARY(IsInf, return Bool(abs(x) == T(__builtin_inf()));)
MG_UNARY(IsFinite, return Bool(abs(x) < T(__builtin_inf()));)

// The functions of math.hpp and those of the C library
#define MG_OURS(Name, function) MG_UNARY(Name, return function(x);)
#define MG_LIBRARY(Name, function)                                                            \
    MG_UNARY(Name, if constexpr (std::is_same_v<T, float>) return __builtin_##function##f(x); \
             else return __builtin_##function(x);)

MG_OURS(Exp, exp)
MG_OURS(Expm1, expm1)
MG_OURS(Exp2, exp2)
MG_OURS(Log, log)
MG_OURS(Log1p, log1p)
MG_OURS(Log2, log2)
MG_OURS(Log10, log10)
MG_OURS(Tanh, tanh)
MG_OURS(Erf, erf)
MG_OURS(Sigmoid, sigmoid)
MG_OURS(Softplus, softplus)
MG_OURS(Gelu, gelu)
MG_OURS(Silu, silu)
MG_OURS(SinNear, sin)
MG_OURS(CosNear, cos)
MG_LIBRARY(Floor, floor)
MG_LIBRARY(Ceil, ceil)
MG_LIBRARY(Round, nearbyint)
MG_LIBRARY(Sin, sin)
MG_LIBRARY(Cos, cos)
MG_LIBRARY(Tan, tan)
MG_LIBRARY(Asin, asin)
MG_LIBRARY(Acos, acos)
MG_LIBRARY(Atan, atan)
MG_LIBRARY(Sinh, sinh)
MG_LIBRARY(Cosh, cosh)
MG_LIBRARY(Asinh, asinh)
MG_LIBRARY(Acosh, acosh)
MG_LIBRARY(Atanh, atanh)

// ---- binary operations ------------------------------------------------------------------------------------------

#define MG_BINARY(Name, ...)                    \
    struct Name {                               \
        template <class T>                      \
        MG_INLINE static auto apply(T a, T b) { \
            __VA_ARGS__                         \
        }                                       \
    };

MG_BINARY(Add, return T(W<T>(a) + W<T>(b));)
MG_BINARY(Sub, return T(W<T>(a) - W<T>(b));)
MG_BINARY(Mul, return T(W<T>(a) * W<T>(b));)
MG_BINARY(Maximum, return a > b || a != a ? a : b;)
MG_BINARY(Minimum, return a < b || a != a ? a : b;)
MG_BINARY(Divide, return a / b;)
MG_BINARY(Eq, return Bool(a == b);)
MG_BINARY(Ne, return Bool(a != b);)
MG_BINARY(Lt, return Bool(a < b);)
MG_BINARY(Le, return Bool(a <= b);)
MG_BINARY(Gt, return Bool(a > b);)
MG_BINARY(Ge, return Bool(a >= b);)
MG_BINARY(And, return T(a & b);)
MG_BINARY(Or, return T(a | b);)
MG_BINARY(Xor, return T(a ^ b);)
MG_BINARY(TanhGrad, return a * (1 - b * b);)
MG_BINARY(SigmoidGrad, return a * (b * (1 - b));)
MG_BINARY(ReluGrad, return b <= 0 ? T(0) : a;)
MG_BINARY(GeluGrad, return a * gelu_derivative(b);)
MG_BINARY(SiluGrad, return a * silu_derivative(b);)
MG_BINARY(SoftplusGrad, return a * sigmoid(b);)

#define MG_LIBRARY2(function)                                                            \
    MG_INLINE float function(float a, float b) { return __builtin_##function##f(a, b); } \
    MG_INLINE double function(double a, double b) { return __builtin_##function(a, b); }

MG_LIBRARY2(fmod)
MG_LIBRARY2(pow)
MG_LIBRARY2(atan2)

MG_BINARY(Atan2, return atan2(a, b);)

// The remainder has the divisor's sign, and a = b floor_divide(a, b) + remainder(a, b). By zero:
// integers give 0, floats what a / b gives.
MG_BINARY(
    Remainder,
    if constexpr (is_float<T>) {
        const T r = fmod(a, b);
        if (r == 0) return b < 0 ? -abs(r) : abs(r);
        return (r < 0) != (b < 0) ? r + b : r;
    } else {
        if (b == 0 || b == -1) return T(0);  // lowest % -1 would trap
        const T r = a % b;
        return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
    })

MG_BINARY(
    FloorDivide,
    if constexpr (is_float<T>) {
        const T r = fmod(a, b);
        if (b == 0) return a / b;
        const T exact = (a - r) / b, q = r != 0 && (r < 0) != (b < 0) ? exact - 1 : exact;
        return q == 0 ? T(__builtin_copysign(0.0, a / b)) : Round::apply(q);
    } else {
        if (b == 0) return T(0);
        if (b == -1) return T(-W<T>(a));
        const T q = a / b;
        return a % b != 0 && (a < 0) != (b < 0) ? T(q - 1) : q;
    })

// By squaring; a negative exponent of an integer is the caller's error.
MG_BINARY(
    Pow, if constexpr (is_float<T>) { return pow(a, b); } else {
        W<T> y = 1, x = W<T>(a);
        for (T e = b; e > 0; e >>= 1, x *= x) y *= e & 1 ? x : 1;
        return T(y);
    })

// ---- loops ------------------------------------------------------------------------------------------------------

template <class T>
MG_INLINE T& at(char* p, int64_t offset) {
    return *reinterpret_cast<T*>(p + offset);
}

template <class Op, class T>
void unary_strided(int64_t n, char* const* data, const int64_t* strides) {
    using R = decltype(Op::apply(T()));
    char *x = data[0], *y = data[1];
    for (int64_t i = 0; i < n; i++, x += strides[0], y += strides[1]) at<R>(y, 0) = Op::apply(at<T>(x, 0));
}

// y = value. Zeros by memset: the processor need not read what it overwrites.
template <class T>
MG_INLINE void repeat(int64_t n, T value, T* y) {
    constexpr T zero = 0;
    if (__builtin_memcmp(&value, &zero, sizeof(T)) == 0) {  // not -0.0
        __builtin_memset(y, 0, sizeof(T) * static_cast<uint64_t>(n));
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = value;
}

template <class Op, class T>
void unary(int64_t n, char* const* data, const int64_t* strides) {
    using R = decltype(Op::apply(T()));
    if (strides[1] != sizeof(R) || (strides[0] != sizeof(T) && strides[0] != 0))
        return unary_strided<Op, T>(n, data, strides);
    const T* x = &at<T>(data[0], 0);
    R* y = &at<R>(data[1], 0);
    if (strides[0] == 0) return repeat(n, Op::apply(*x), y);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) y[i] = Op::apply(x[i]);
}

template <class Op, class T>
void binary_strided(int64_t n, char* const* data, const int64_t* strides) {
    using R = decltype(Op::apply(T(), T()));
    char *a = data[0], *b = data[1], *y = data[2];
    for (int64_t i = 0; i < n; i++, a += strides[0], b += strides[1], y += strides[2])
        at<R>(y, 0) = Op::apply(at<T>(a, 0), at<T>(b, 0));
}

template <class Op, class T>
void binary(int64_t n, char* const* data, const int64_t* strides) {
    using R = decltype(Op::apply(T(), T()));
    constexpr int64_t SIZE = sizeof(T);
    const int64_t sa = strides[0], sb = strides[1];
    if (strides[2] != sizeof(R) || (sa != 0 && sa != SIZE) || (sb != 0 && sb != SIZE) || sa + sb == 0 || n == 0)
        return binary_strided<Op, T>(n, data, strides);
    const T *a = &at<T>(data[0], 0), *b = &at<T>(data[1], 0);
    R* y = &at<R>(data[2], 0);
    if (sa == 0) {
        const T scalar = *a;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = Op::apply(scalar, b[i]);
    } else if (sb == 0) {
        const T scalar = *b;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = Op::apply(a[i], scalar);
    } else {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) y[i] = Op::apply(a[i], b[i]);
    }
}

// Blocks of float32: the m <= BLOCK elements of an operand, where they lie or gathered into the buffer
constexpr int BLOCK = 16;

MG_INLINE const float* gather(char* p, int64_t stride, int64_t m, float* buffer) {
    if (m == BLOCK && stride == sizeof(float)) return &at<float>(p, 0);
    for (int64_t j = 0; j < m; j++) buffer[j] = at<float>(p, j * stride);
    return buffer;
}

MG_INLINE void scatter(const float* y, char* p, int64_t stride, int64_t m) {
    for (int64_t j = 0; j < m; j++) at<float>(p, j * stride) = y[j];
}

template <class Op>
void unary_blocks(int64_t n, char* const* data, const int64_t* strides) {
    float buffer[BLOCK] = {}, result[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t m = n - i < BLOCK ? n - i : BLOCK;
        char* to = data[1] + i * strides[1];
        const bool direct = m == BLOCK && strides[1] == sizeof(float);
        const float* x = gather(data[0] + i * strides[0], strides[0], m, buffer);
        float* y = direct ? &at<float>(to, 0) : result;
#pragma omp simd
        for (int j = 0; j < BLOCK; j++) y[j] = Op::apply(x[j]);
        if (!direct) scatter(result, to, strides[1], m);
    }
}

template <class Op>
void binary_blocks(int64_t n, char* const* data, const int64_t* strides) {
    float buffer[2][BLOCK] = {}, result[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t m = n - i < BLOCK ? n - i : BLOCK;
        char* to = data[2] + i * strides[2];
        const bool direct = m == BLOCK && strides[2] == sizeof(float);
        const float* a = gather(data[0] + i * strides[0], strides[0], m, buffer[0]);
        const float* b = gather(data[1] + i * strides[1], strides[1], m, buffer[1]);
        float* y = direct ? &at<float>(to, 0) : result;
#pragma omp simd
        for (int j = 0; j < BLOCK; j++) y[j] = Op::apply(a[j], b[j]);
        if (!direct) scatter(result, to, strides[2], m);
    }
}

// sin and cos: runs of up to 256 elements go to the C library if one of them is large, infinite or NaN.
template <class Near, class Far>
void trigonometric(int64_t n, char* const* data, const int64_t* strides) {
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t m = n - i < 256 ? n - i : 256;
        char* const run[] = {data[0] + i * strides[0], data[1] + i * strides[1]};
        bool near = true;
        for (int64_t j = 0; j < m; j++) near &= abs(at<float>(run[0], j * strides[0])) < TRIG_LIMIT;
        (near ? unary_blocks<Near> : unary_strided<Far, float>)(m, run, strides);
    }
}

// x^p for the one exponent p of a whole loop is often a small number.
template <class T>
void power(int64_t n, char* const* data, const int64_t* strides) {
    const T p = n > 0 && strides[1] == 0 ? at<T>(data[1], 0) : T(0);
    char* const operands[] = {data[0], data[2]};
    const int64_t steps[] = {strides[0], strides[2]};
    if (p == 2) return unary<Square, T>(n, operands, steps);
    if (p == 3) return unary<Cube, T>(n, operands, steps);
    if (p == -1) return unary<Reciprocal, T>(n, operands, steps);
    binary_strided<Pow, T>(n, data, strides);
}

// c ? a : b
template <class T>
void where(int64_t n, char* const* data, const int64_t* strides) {
    constexpr int64_t SIZE = sizeof(T);
    const int64_t sa = strides[1], sb = strides[2];
    if (n > 0 && strides[0] == 1 && strides[3] == SIZE && (sa == 0 || sa == SIZE) && (sb == 0 || sb == SIZE)) {
        const Bool* c = &at<Bool>(data[0], 0);
        const T *a = &at<T>(data[1], 0), *b = &at<T>(data[2], 0);
        T* y = &at<T>(data[3], 0);
        const T a0 = *a, b0 = *b;
        if (sa && sb) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b[i];
        } else if (sa) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b0;
        } else if (sb) {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a0 : b[i];
        } else {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a0 : b0;
        }
        return;
    }
    char *c = data[0], *a = data[1], *b = data[2], *y = data[3];
    for (int64_t i = 0; i < n; i++, c += strides[0], a += sa, b += sb, y += strides[3])
        at<T>(y, 0) = at<Bool>(c, 0) ? at<T>(a, 0) : at<T>(b, 0);
}

// A float that an integer cannot hold goes to the nearest it can, NaN to 0; integers wrap.
template <class To>
struct Cast {
    template <class From>
    MG_INLINE static To apply(From x) {
        if constexpr (std::is_same_v<To, Bool>) {
            return x != 0;
        } else if constexpr (is_float<From> && !is_float<To>) {
            constexpr To HIGHEST = To(~std::make_unsigned_t<To>(0) >> 1);
            constexpr From LIMIT = From(std::make_unsigned_t<To>(1) << (sizeof(To) * 8 - 1));
            if (x != x) return 0;
            return x >= LIMIT ? HIGHEST : x < -LIMIT ? -HIGHEST - 1 : To(x);
        } else {
            return To(x);
        }
    }
};

// ---- the table --------------------------------------------------------------------------------------------------

template <class Op, class... T>
void set_unary(Kernels& k, Unary op) {
    ((k.unary[op][dtype_of<T>] = unary<Op, T>), ...);
}

template <class Op, class... T>
void set_binary(Kernels& k, Binary op) {
    ((k.binary[op][dtype_of<T>] = binary<Op, T>), ...);
}

template <class Op>
void set_library(Kernels& k, Unary op) {
    k.unary[op][FLOAT32] = unary_strided<Op, float>;
    k.unary[op][FLOAT64] = unary_strided<Op, double>;
}

template <class Op>
void set_math(Kernels& k, Unary op) {
    k.unary[op][FLOAT32] = unary_blocks<Op>;
    k.unary[op][FLOAT64] = unary_strided<Op, double>;
}

template <class Op>
void set_math(Kernels& k, Binary op) {
    k.binary[op][FLOAT32] = binary_blocks<Op>;
    k.binary[op][FLOAT64] = binary_strided<Op, double>;
}

template <class Op>
void set_division(Kernels& k, Binary op) {
    k.binary[op][INT32] = binary_strided<Op, int32_t>;
    k.binary[op][INT64] = binary_strided<Op, int64_t>;
    k.binary[op][FLOAT32] = binary_strided<Op, float>;
    k.binary[op][FLOAT64] = binary_strided<Op, double>;
}

template <class From, class... To>
void set_cast(Kernels& k) {
    ((k.cast[dtype_of<From>][dtype_of<To>] = unary<Cast<To>, From>), ...);
}

template <class... T>
void set_casts(Kernels& k) {
    (set_cast<T, Bool, int32_t, int64_t, float, double>(k), ...);
}

template <class... T>
void set_where(Kernels& k) {
    ((k.where[dtype_of<T>] = where<T>), ...);
}

#define MG_NUMBERS int32_t, int64_t, float, double
#define MG_INTEGERS Bool, int32_t, int64_t

void fill_unary(Kernels& k) {
    set_unary<Neg, MG_NUMBERS>(k, NEG);
    set_unary<Abs, MG_NUMBERS>(k, ABS);
    set_unary<Sign, MG_NUMBERS>(k, SIGN);
    set_unary<Square, MG_NUMBERS>(k, SQUARE);
    set_unary<Invert, MG_INTEGERS>(k, INVERT);
    set_unary<LogicalNot, Bool, MG_NUMBERS>(k, LOGICAL_NOT);
    set_unary<Floor, float, double>(k, FLOOR);
    set_unary<Ceil, float, double>(k, CEIL);
    set_unary<Round, float, double>(k, ROUND);
    set_math<Exp>(k, EXP);
    set_math<Expm1>(k, EXPM1);
    set_math<Exp2>(k, EXP2);
    set_math<Log>(k, LOG);
    set_math<Log1p>(k, LOG1P);
    set_math<Log2>(k, LOG2);
    set_math<Log10>(k, LOG10);
    set_unary<Sqrt, float, double>(k, SQRT);
    set_unary<Rsqrt, float, double>(k, RSQRT);
    set_unary<Reciprocal, float, double>(k, RECIPROCAL);
    k.unary[SIN][FLOAT32] = trigonometric<SinNear, Sin>;
    k.unary[SIN][FLOAT64] = unary_strided<Sin, double>;
    k.unary[COS][FLOAT32] = trigonometric<CosNear, Cos>;
    k.unary[COS][FLOAT64] = unary_strided<Cos, double>;
    set_library<Tan>(k, TAN);
    set_library<Asin>(k, ASIN);
    set_library<Acos>(k, ACOS);
    set_library<Atan>(k, ATAN);
    set_library<Sinh>(k, SINH);
    set_library<Cosh>(k, COSH);
    set_math<Tanh>(k, TANH);
    set_library<Asinh>(k, ASINH);
    set_library<Acosh>(k, ACOSH);
    set_library<Atanh>(k, ATANH);
    set_math<Erf>(k, ERF);
    set_math<Sigmoid>(k, SIGMOID);
    set_unary<Relu, float, double>(k, RELU);
    set_math<Softplus>(k, SOFTPLUS);
    set_math<Gelu>(k, GELU);
    set_math<Silu>(k, SILU);
    set_unary<IsNan, float, double>(k, ISNAN);
    set_unary<IsInf, float, double>(k, ISINF);
    set_unary<IsFinite, float, double>(k, ISFINITE);
}

void fill_binary(Kernels& k) {
    set_binary<Add, MG_NUMBERS>(k, ADD);
    set_binary<Or, Bool>(k, ADD);
    set_binary<Sub, MG_NUMBERS>(k, SUB);
    set_binary<Mul, MG_NUMBERS>(k, MUL);
    set_binary<And, Bool>(k, MUL);
    set_binary<Maximum, Bool, MG_NUMBERS>(k, MAXIMUM);
    set_binary<Minimum, Bool, MG_NUMBERS>(k, MINIMUM);
    set_division<FloorDivide>(k, FLOOR_DIVIDE);
    set_division<Remainder>(k, REMAINDER);
    k.binary[POW][INT32] = binary_strided<Pow, int32_t>;
    k.binary[POW][INT64] = binary_strided<Pow, int64_t>;
    k.binary[POW][FLOAT32] = power<float>;
    k.binary[POW][FLOAT64] = power<double>;
    set_binary<Divide, float, double>(k, DIVIDE);
    k.binary[ATAN2][FLOAT32] = binary_strided<Atan2, float>;
    k.binary[ATAN2][FLOAT64] = binary_strided<Atan2, double>;
    set_binary<Eq, Bool, MG_NUMBERS>(k, EQ);
    set_binary<Ne, Bool, MG_NUMBERS>(k, NE);
    set_binary<Lt, Bool, MG_NUMBERS>(k, LT);
    set_binary<Le, Bool, MG_NUMBERS>(k, LE);
    set_binary<Gt, Bool, MG_NUMBERS>(k, GT);
    set_binary<Ge, Bool, MG_NUMBERS>(k, GE);
    set_binary<And, MG_INTEGERS>(k, AND);
    set_binary<Or, MG_INTEGERS>(k, OR);
    set_binary<Xor, MG_INTEGERS>(k, XOR);
    set_binary<TanhGrad, float, double>(k, TANH_GRAD);
    set_binary<SigmoidGrad, float, double>(k, SIGMOID_GRAD);
    set_binary<ReluGrad, float, double>(k, RELU_GRAD);
    set_math<GeluGrad>(k, GELU_GRAD);
    set_math<SiluGrad>(k, SILU_GRAD);
    set_math<SoftplusGrad>(k, SOFTPLUS_GRAD);
}

}  // namespace

void fill_elementwise(Kernels& k) {
    fill_unary(k);
    fill_binary(k);
    set_where<Bool, MG_NUMBERS>(k);
    set_casts<Bool, MG_NUMBERS>(k);
}

}  // namespace mg::MG_ISA
