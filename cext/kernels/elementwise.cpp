// Elementwise kernels: the one-dimensional inner loops of every function of functions.inc, of where and of cast.
//
// Cheap operations have vector loops for contiguous operands and for operands of stride 0 (broadcast
// scalars), and one loop for any other strides. Costly float32 functions run in blocks of 16 that lie
// in place or, at the tail and for any strides, are gathered into a buffer: one vector body handles all.
// Those with a version in wide.hpp take a block as one vector where AVX-512 is available.
// Functions of the C library run in one plain loop. A bool is a byte, 0 or 1; integers wrap.
#include "math.hpp"
#include "vector.hpp"
#include "wide.hpp"

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

template <class T>
using W = Wrapping<T>;

// ---- functions for the table's expressions that math.hpp lacks ----------------------------------------------------

#define MG_LIBRARY(function)                                                 \
    MG_INLINE float function(float x) { return __builtin_##function##f(x); } \
    MG_INLINE double function(double x) { return __builtin_##function(x); }
#define MG_LIBRARY2(function)                                                            \
    MG_INLINE float function(float a, float b) { return __builtin_##function##f(a, b); } \
    MG_INLINE double function(double a, double b) { return __builtin_##function(a, b); }

#define MG_OF_ONE(f) \
    f(fabs) f(floor) f(ceil) f(trunc) f(rint) f(tan) f(asin) f(acos) f(atan) f(sinh) f(cosh) f(asinh) f(acosh) f(atanh)
#define MG_OF_TWO(f) f(fmod) f(atan2) f(hypot) f(copysign) f(nextafter)
MG_OF_ONE(MG_LIBRARY)
MG_OF_TWO(MG_LIBRARY2)

template <class T>
constexpr T infinity() {
    return T(__builtin_inf());
}

// x to the power 0.5 as C defines it.
template <class T>
MG_INLINE T root(T x) {
    return x == -infinity<T>() ? infinity<T>() : sqrt(x + T(0));
}

// The remainder has the divisor's sign, and a = b floor_divide(a, b) + remainder_of(a, b). Division by zero gives 0 for
// integers, and for floats what a / b gives.
template <class T>
MG_INLINE T remainder_of(T a, T b) {
    if constexpr (is_float<T>) {
        const T r = fmod(a, b);
        if (r == 0) return b < 0 ? -abs(r) : abs(r);
        return (r < 0) != (b < 0) ? r + b : r;
    } else {
        if (b == 0 || b == -1) return T(0);  // lowest % -1 would trap
        const T r = a % b;
        return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
    }
}

template <class T>
MG_INLINE T floor_divide(T a, T b) {
    if constexpr (is_float<T>) {
        const T r = fmod(a, b);
        if (b == 0) return a / b;
        const T exact = (a - r) / b, q = r != 0 && (r < 0) != (b < 0) ? exact - 1 : exact;
        return q == 0 ? copysign(T(0), a / b) : rint(q);
    } else {
        if (b == 0) return T(0);
        if (b == -1) return T(-W<T>(a));
        const T q = a / b;
        return a % b != 0 && (a < 0) != (b < 0) ? T(q - 1) : q;
    }
}

// Integer powers by squaring; the caller refuses negative exponents.
template <class T>
MG_INLINE T power(T a, T b) {
    if constexpr (is_float<T>) {
        return pow(a, b);
    } else {
        W<T> y = 1, x = W<T>(a);
        for (T e = b; e > 0; e >>= 1, x *= x) y *= e & 1 ? x : 1;
        return T(y);
    }
}

// ---- the functions, each a class for the loops --------------------------------------------------------------------

template <class...>
struct Types {};
using BIT = Types<Bool>;
using WHOLE = Types<int32_t, int64_t>;
using INTEGER = Types<Bool, int32_t, int64_t>;
using FLOAT = Types<float, double>;
using NUMBER = Types<int32_t, int64_t, float, double>;
using EVERY = Types<Bool, int32_t, int64_t, float, double>;

template <Unary op, class types>
struct UnaryFunction;
template <Binary op, class types>
struct BinaryFunction;

#define UNARY(name, types, result, loop, ...) \
    template <>                               \
    struct UnaryFunction<name, types> {       \
        template <class T>                    \
        MG_INLINE static auto apply(T x) {    \
            using W [[maybe_unused]] = W<T>;  \
            return result(__VA_ARGS__);       \
        }                                     \
    };
#define UNARY_ALSO UNARY
#define BINARY(name, types, result, loop, ...)  \
    template <>                                 \
    struct BinaryFunction<name, types> {        \
        template <class T>                      \
        MG_INLINE static auto apply(T a, T b) { \
            using W [[maybe_unused]] = W<T>;    \
            return result(__VA_ARGS__);         \
        }                                       \
    };
#define BINARY_ALSO BINARY
#include "kernels/functions.inc"

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

// y = value. Zeros use memset, which need not read what it overwrites.
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

// Blocks of float32, as many as lie in place in all operands, or one of m <= BLOCK elements that goes through buffers
constexpr int BLOCK = 16;

MG_INLINE void gather(char* p, int64_t stride, int64_t m, float* buffer) {
    for (int64_t j = 0; j < m; j++) buffer[j] = at<float>(p, j * stride);
}

MG_INLINE void scatter(const float* y, char* p, int64_t stride, int64_t m) {
    for (int64_t j = 0; j < m; j++) at<float>(p, j * stride) = y[j];
}

// y = f(x...) for the elements of a block
template <class Op, bool wide, class... X>
MG_INLINE void apply_block(float* y, const X*... x) {
    if constexpr (wide) {
        constexpr Whole<float> whole{0};
        whole.store(y, Op::apply(whole.load(x)...));
    } else {
#pragma omp simd
        for (int j = 0; j < BLOCK; j++) y[j] = Op::apply(x[j]...);
    }
}

template <class Op, bool wide = false>
void unary_blocks(int64_t n, char* const* data, const int64_t* strides) {
    float buffer[BLOCK] = {}, result[BLOCK];
    const bool packed = strides[0] == sizeof(float) && strides[1] == sizeof(float);
    for (int64_t i = 0, m; i < n; i += m) {
        char *from = data[0] + i * strides[0], *to = data[1] + i * strides[1];
        const bool direct = packed && n - i >= BLOCK;
        m = direct ? (n - i) / BLOCK * BLOCK : minimum(n - i, BLOCK);
        if (!direct) gather(from, strides[0], m, buffer);
        const float* x = direct ? &at<float>(from, 0) : buffer;
        float* y = direct ? &at<float>(to, 0) : result;
        for (int64_t j = 0; j < m; j += BLOCK) apply_block<Op, wide>(y + j, x + j);
        if (!direct) scatter(result, to, strides[1], m);
    }
}

template <class Op, bool wide = false>
void binary_blocks(int64_t n, char* const* data, const int64_t* strides) {
    constexpr int64_t SIZE = sizeof(float);
    float buffer[2][BLOCK] = {}, result[BLOCK];
    bool packed = strides[2] == SIZE;
    for (int k = 0; k < 2; k++) {
        packed &= strides[k] == SIZE || strides[k] == 0;
        if (strides[k] == 0) gather(data[k], 0, minimum(n, BLOCK), buffer[k]);  // a number is gathered once
    }
    for (int64_t i = 0, m; i < n; i += m) {
        char* to = data[2] + i * strides[2];
        const bool direct = packed && n - i >= BLOCK;
        m = direct ? (n - i) / BLOCK * BLOCK : minimum(n - i, BLOCK);
        const auto operand = [&](int k) -> const float* {
            char* from = data[k] + i * strides[k];
            if (strides[k] != 0 && direct) return &at<float>(from, 0);
            if (strides[k] != 0) gather(from, strides[k], m, buffer[k]);
            return buffer[k];
        };
        const float *a = operand(0), *b = operand(1);
        float* y = direct ? &at<float>(to, 0) : result;
        const int64_t step_a = strides[0] / SIZE, step_b = strides[1] / SIZE;  // 0 or 1 if there are several blocks
        for (int64_t j = 0; j < m; j += BLOCK) apply_block<Op, wide>(y + j, a + j * step_a, b + j * step_b);
        if (!direct) scatter(result, to, strides[2], m);
    }
}

// sin and cos: runs of up to 256 elements go to the C library if one of them is large, infinite or NaN.
template <Unary op>
struct FromLibrary {
    MG_INLINE static float apply(float x) {
        static_assert(op == SIN || op == COS);
        return op == SIN ? __builtin_sinf(x) : __builtin_cosf(x);
    }
};

template <Unary op>
void trigonometric(int64_t n, char* const* data, const int64_t* strides) {
    for (int64_t i = 0; i < n; i += 256) {
        const int64_t m = n - i < 256 ? n - i : 256;
        char* const run[] = {data[0] + i * strides[0], data[1] + i * strides[1]};
        bool near = true;
        for (int64_t j = 0; j < m; j++) near &= abs(at<float>(run[0], j * strides[0])) < TRIG_LIMIT;
        (near ? unary_blocks<UnaryFunction<op, FLOAT>> : unary_strided<FromLibrary<op>, float>)(m, run, strides);
    }
}

struct Cube {
    template <class T>
    MG_INLINE static T apply(T x) {
        return T(double(x) * double(x) * double(x));  // a float32 is rounded once
    }
};

// x^p, where one exponent p for the whole loop is often a small number.
template <class Op, class T>
void powers(int64_t n, char* const* data, const int64_t* strides) {
    const T p = n > 0 && strides[1] == 0 ? at<T>(data[1], 0) : T(0);
    char* const operands[] = {data[0], data[2]};
    const int64_t steps[] = {strides[0], strides[2]};
    if (p == 2) return unary<UnaryFunction<SQUARE, NUMBER>, T>(n, operands, steps);
    if (p == 3) return unary<Cube, T>(n, operands, steps);
    if (p == T(0.5)) return unary<UnaryFunction<ROOT, FLOAT>, T>(n, operands, steps);
    if (p == -1) return unary<UnaryFunction<RECIPROCAL, FLOAT>, T>(n, operands, steps);
    if constexpr (std::is_same_v<T, float>)
        binary_blocks<Op>(n, data, strides);
    else
        binary_strided<Op, T>(n, data, strides);
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
        const auto choose = [=](auto a, auto b) MG_INLINED {
#pragma omp simd
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a(i) : b(i);
        };
        const auto with_b = [=](auto of_a) MG_INLINED {
            sb ? choose(of_a, [=](int64_t i) MG_INLINED { return b[i]; })
               : choose(of_a, [number = *b](int64_t) MG_INLINED { return number; });
        };
        sa ? with_b([=](int64_t i) MG_INLINED { return a[i]; })
           : with_b([number = *a](int64_t) MG_INLINED { return number; });
        return;
    }
    char *c = data[0], *a = data[1], *b = data[2], *y = data[3];
    for (int64_t i = 0; i < n; i++, c += strides[0], a += sa, b += sb, y += strides[3])
        at<T>(y, 0) = at<Bool>(c, 0) ? at<T>(a, 0) : at<T>(b, 0);
}

// min(max(x, low), high) for two numbers; NaN stays NaN
MG_KERNEL(clip[FLOATS])
template <class T>
void clip(int64_t n, char* const* data, const int64_t* strides) {
    const T low = at<T>(data[1], 0), high = at<T>(data[2], 0);
    const auto limited = [=](T x) {
        x = x < low ? low : x;
        return x > high ? high : x;
    };
    char *x = data[0], *y = data[3];
    if (strides[0] == sizeof(T) && strides[3] == sizeof(T)) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) at<T>(y, i * int64_t(sizeof(T))) = limited(at<T>(x, i * int64_t(sizeof(T))));
        return;
    }
    for (int64_t i = 0; i < n; i++, x += strides[0], y += strides[3]) at<T>(y, 0) = limited(at<T>(x, 0));
}

// A float out of range becomes the nearest integer in range, and NaN becomes 0; integers wrap.
template <class To, bool truth = false>
struct Cast {
    template <class From>
    MG_INLINE static To apply(From x) {
        if constexpr (truth) {
            return x != 0;
        } else if constexpr (is_float<From> && !is_float<To>) {
            constexpr bool has_sign = To(-1) < 0;
            constexpr To HIGHEST = To(Wrapping<To>(~Wrapping<To>(0)) >> has_sign);
            constexpr From LIMIT = From(uint64_t{1} << (sizeof(To) * 8 - has_sign));
            if (x != x) return 0;
            return x >= LIMIT ? HIGHEST : x < (has_sign ? -LIMIT : 0) ? To(-HIGHEST - 1) : To(x);
        } else {
            return To(x);
        }
    }
};

// ---- the table --------------------------------------------------------------------------------------------------

enum Kind { VECTOR, BLOCKS, WIDE, PLAIN, TRIGONOMETRIC, POWER };  // the loops that functions.inc names

template <Kind kind, Unary op, class types, class... T>
void set_unary(Kernels& k, Types<T...>) {
    using F = UnaryFunction<op, types>;
    auto loop = []<class U>(U) -> Loop {
        if constexpr (kind == VECTOR) return unary<F, U>;
        if constexpr (kind == BLOCKS && std::is_same_v<U, float>) return unary_blocks<F>;
        if constexpr (kind == WIDE && std::is_same_v<U, float>) return unary_blocks<F, HAS_WIDE>;
        if constexpr (kind == TRIGONOMETRIC && std::is_same_v<U, float>) return trigonometric<op>;
        return unary_strided<F, U>;
    };
    ((k.unary[op][dtype_of<T>] = loop(T())), ...);
    if constexpr (std::is_same_v<types, EVERY>) k.unary[op][UINT8] = k.unary[op][BOOL];
}

template <Kind kind, Binary op, class types, class... T>
void set_binary(Kernels& k, Types<T...>) {
    using F = BinaryFunction<op, types>;
    auto loop = []<class U>(U) -> Loop {
        if constexpr (kind == VECTOR) return binary<F, U>;
        if constexpr (kind == BLOCKS && std::is_same_v<U, float>) return binary_blocks<F>;
        if constexpr (kind == WIDE && std::is_same_v<U, float>) return binary_blocks<F, HAS_WIDE>;
        if constexpr (kind == POWER && is_float<U>) return powers<F, U>;
        return binary_strided<F, U>;
    };
    ((k.binary[op][dtype_of<T>] = loop(T())), ...);
    if constexpr (std::is_same_v<types, EVERY>) k.binary[op][UINT8] = k.binary[op][BOOL];
}

template <class From, class... To>
void set_cast(Kernels& k) {
    ((k.cast[dtype_of<From>][dtype_of<To>] = unary<Cast<To, std::is_same_v<To, Bool>>, From>), ...);
    k.cast[dtype_of<From>][UINT8] = unary_strided<Cast<uint8_t>, From>;  // seldom called, and small
}

template <class... T>
void set_casts(Kernels& k) {
    (set_cast<T, Bool, int32_t, int64_t, float, double>(k), ...);
}

template <class... T>
void set_where(Kernels& k) {
    ((k.where[dtype_of<T>] = where<T>), ...);
}

}  // namespace

void fill_elementwise(Kernels& k) {
#define UNARY(name, types, result, loop, ...) set_unary<loop, name, types>(k, types());
#define UNARY_ALSO UNARY
#define BINARY(name, types, result, loop, ...) set_binary<loop, name, types>(k, types());
#define BINARY_ALSO BINARY
#include "kernels/functions.inc"
    set_where<Bool, int32_t, int64_t, float, double>(k);
    MG_PUT_ELEMENTWISE
    set_casts<Bool, int32_t, int64_t, float, double>(k);
    // uint8 has the type of a bool in C++, and shares its kernels that make no use of the two values
    k.where[UINT8] = k.where[BOOL];
    k.cast[BOOL][UINT8] = unary<Cast<uint8_t>, Bool>;
    for (int to = 0; to < DTYPES; to++) k.cast[UINT8][to] = k.cast[BOOL][to];
}

}  // namespace mg::MG_ISA
