// Elementwise kernels: every unary and binary operation, where, copy and fill.
//
// The number of the operation is the same for all threads, so that one kernel may hold them all: it branches once, in
// front of its loop.

// ---- mathematics that CUDA does not have -----------------------------------------------------------------------------

#if FLOATING
__device__ inline T sigmoid(T x) { return 1 / (1 + exp(-x)); }
__device__ inline T softplus(T x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
__device__ inline T normal_pdf(T x) {
    const T square = x * x, lost = fma(x, x, -square);  // what rounding takes from it, the exponential multiplies
    return square > 2000 ? T(0) : (1 - lost / 2) * exp(-square / 2) * T(0.39894228040143267794);
}
__device__ inline T infinity() { return T(1) / T(0); }

// The remainder has the divisor's sign, and a = b floor_divide(a, b) + remainder(a, b). By zero: what a / b gives.
__device__ inline T remainder_of(T a, T b) {
    const T r = fmod(a, b);
    if (r == 0) return b < 0 ? -fabs(r) : fabs(r);
    return (r < 0) != (b < 0) ? r + b : r;
}
__device__ inline T floor_divide(T a, T b) {
    const T r = fmod(a, b);
    if (b == 0) return a / b;
    const T exact = (a - r) / b, q = r != 0 && (r < 0) != (b < 0) ? exact - 1 : exact;
    return q == 0 ? copysign(T(0), a / b) : rint(q);
}
__device__ inline T power(T a, T b) { return b == 2 ? a * a : b == 3 ? a * a * a : b == -1 ? 1 / a : pow(a, b); }
#elif !BOOLEAN
// The same for integers; by zero: 0. The lowest number divided by -1 does not fit, and wraps.
__device__ inline T remainder_of(T a, T b) {
    if (b == 0 || b == -1) return 0;
    const T r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
__device__ inline T floor_divide(T a, T b) {
    if (b == 0) return 0;
    if (b == -1) return T(-Traits<T>::Wrapping(a));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
// By squaring; a negative exponent of an integer is the caller's error.
__device__ inline T power(T a, T b) {
    Traits<T>::Wrapping y = 1, x = a;
    for (; b > 0; b >>= 1, x *= x) y *= b & 1 ? x : 1;
    return T(y);
}
#endif

// ---- loops ------------------------------------------------------------------------------------------------------------

typedef Traits<T>::Wrapping W;

// Every operation stands in one loop alone, over arrays of any layout, so that all of them compile in seconds: where an
// element lies is decided for each, by a branch that all threads take alike.
template <class R>
__device__ inline R& element(R* p, int64 i, bool dense, const Extent& shape, const Stride& step) {
    return dense ? p[i] : *(R*)((char*)p + offset(i, shape, step));
}

template <class R, class F>
__device__ void map(int64 n, bool dense, const Extent& shape, const T* x, const Stride& x_step, R* y,
                    const Stride& y_step, F f) {
    FOR_EACH(i, n) element(y, i, dense, shape, y_step) = f(element((T*)x, i, dense, shape, x_step));
}

template <class R, class F>
__device__ void map(int64 n, bool dense, const Extent& shape, const T* a, const Stride& a_step, const T* b,
                    const Stride& b_step, R* y, const Stride& y_step, F f) {
    FOR_EACH(i, n) {
        element(y, i, dense, shape, y_step) =
            f(element((T*)a, i, dense, shape, a_step), element((T*)b, i, dense, shape, b_step));
    }
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

#define UNARY(OP, R, expression)                                                                       \
    case OP:                                                                                           \
        return map(n, dense, shape, x, x_step, (R*)y, y_step, [](T x) -> R { return R(expression); });
#define BINARY(OP, R, expression)                                                \
    case OP:                                                                     \
        return map(n, dense, shape, a, a_step, b, b_step, (R*)y, y_step,         \
                   [](T a, T b) -> R { return R(expression); });

extern "C" __global__ void unary(int op, int64 n, Bool dense, Extent shape, const T* x, Stride x_step, void* y,
                                 Stride y_step) {
    switch (op) {
        UNARY(LOGICAL_NOT, Bool, x == 0)
#if BOOLEAN
        UNARY(INVERT, T, x ^ 1)
#else
        UNARY(NEG, T, -W(x))
        UNARY(SQUARE, T, W(x) * W(x))
        UNARY(SIGN, T, x != x ? x : T((x > 0) - (x < 0)))
#if !FLOATING
        UNARY(ABS, T, x < 0 ? -W(x) : W(x))
        UNARY(INVERT, T, ~x)
#else
        UNARY(ABS, T, fabs(x))
        UNARY(FLOOR, T, floor(x))
        UNARY(CEIL, T, ceil(x))
        UNARY(ROUND, T, rint(x))
        UNARY(EXP, T, exp(x))
        UNARY(EXPM1, T, expm1(x))
        UNARY(EXP2, T, exp2(x))
        UNARY(LOG, T, log(x))
        UNARY(LOG1P, T, log1p(x))
        UNARY(LOG2, T, log2(x))
        UNARY(LOG10, T, log10(x))
        UNARY(SQRT, T, sqrt(x))
        UNARY(RSQRT, T, 1 / sqrt(x))
        UNARY(RECIPROCAL, T, 1 / x)
        UNARY(SIN, T, sin(x))
        UNARY(COS, T, cos(x))
        UNARY(TAN, T, tan(x))
        UNARY(ASIN, T, asin(x))
        UNARY(ACOS, T, acos(x))
        UNARY(ATAN, T, atan(x))
        UNARY(SINH, T, sinh(x))
        UNARY(COSH, T, cosh(x))
        UNARY(TANH, T, tanh(x))
        UNARY(ASINH, T, asinh(x))
        UNARY(ACOSH, T, acosh(x))
        UNARY(ATANH, T, atanh(x))
        UNARY(ERF, T, erf(x))
        UNARY(SIGMOID, T, sigmoid(x))
        UNARY(RELU, T, x < 0 ? T(0) : x)
        UNARY(SOFTPLUS, T, softplus(x))
        UNARY(GELU, T, x * normcdf(x))
        UNARY(SILU, T, x * sigmoid(x))
        UNARY(ISNAN, Bool, x != x)
        UNARY(ISINF, Bool, fabs(x) == infinity())
        UNARY(ISFINITE, Bool, fabs(x) < infinity())
#endif
#endif
    }
}

extern "C" __global__ void binary(int op, int64 n, Bool dense, Extent shape, const T* a, Stride a_step, const T* b,
                                  Stride b_step, void* y, Stride y_step) {
    switch (op) {
        BINARY(MAXIMUM, T, a > b || a != a ? a : b)
        BINARY(MINIMUM, T, a < b || a != a ? a : b)
        BINARY(EQ, Bool, a == b)
        BINARY(NE, Bool, a != b)
        BINARY(LT, Bool, a < b)
        BINARY(LE, Bool, a <= b)
        BINARY(GT, Bool, a > b)
        BINARY(GE, Bool, a >= b)
#if !FLOATING
        BINARY(AND, T, a & b)
        BINARY(OR, T, a | b)
        BINARY(XOR, T, a ^ b)
#endif
#if BOOLEAN
        BINARY(ADD, T, a | b)
        BINARY(MUL, T, a & b)
#else
        BINARY(ADD, T, W(a) + W(b))
        BINARY(SUB, T, W(a) - W(b))
        BINARY(MUL, T, W(a) * W(b))
        BINARY(FLOOR_DIVIDE, T, floor_divide(a, b))
        BINARY(REMAINDER, T, remainder_of(a, b))
        BINARY(POW, T, power(a, b))
#if FLOATING
        BINARY(DIVIDE, T, a / b)
        BINARY(ATAN2, T, atan2(a, b))
        // derivatives of activations: (g, y) -> dx for the first two, (g, x) -> dx for the others
        BINARY(TANH_GRAD, T, a * (1 - b * b))
        BINARY(SIGMOID_GRAD, T, a * (b * (1 - b)))
        BINARY(RELU_GRAD, T, b <= 0 ? T(0) : a)
        BINARY(GELU_GRAD, T, a * (normcdf(b) + b * normal_pdf(b)))
        BINARY(SILU_GRAD, T, a * (sigmoid(b) * (1 + b * sigmoid(-b))))
        BINARY(SOFTPLUS_GRAD, T, a * sigmoid(b))
#endif
#endif
    }
}

// y = c ? a : b
extern "C" __global__ void where(int64 n, Bool dense, Extent shape, const Bool* c, Stride c_step, const T* a,
                                 Stride a_step, const T* b, Stride b_step, T* y, Stride y_step) {
    FOR_EACH(i, n) {
        element(y, i, dense, shape, y_step) = element((Bool*)c, i, dense, shape, c_step)
                                                  ? element((T*)a, i, dense, shape, a_step)
                                                  : element((T*)b, i, dense, shape, b_step);
    }
}

// A float that an integer cannot hold goes to the nearest it can, NaN to 0; integers wrap.
template <class R>
__device__ inline R convert(T x) {
#if FLOATING
    if constexpr (!Traits<R>::floating) {
        typedef typename Traits<R>::Wrapping Unsigned;
        const R highest = R(~Unsigned(0) >> 1);
        const T limit = T(Unsigned(1) << (sizeof(R) * 8 - 1));
        if (x != x) return R(0);
        return x >= limit ? highest : x < -limit ? R(-highest - 1) : R(x);
    }
#endif
    return R(x);
}

// y = x in y's dtype
extern "C" __global__ void copy(int dtype, int64 n, Bool dense, Extent shape, const T* x, Stride x_step, void* y,
                                Stride y_step) {
    switch (dtype) {
        UNARY(BOOL, Bool, x != 0)
        UNARY(INT32, int, convert<int>(x))
        UNARY(INT64, int64, convert<int64>(x))
        UNARY(FLOAT32, float, convert<float>(x))
        UNARY(FLOAT64, double, convert<double>(x))
    }
}

// y = value, of which `number` is used for floats, `integer` otherwise
extern "C" __global__ void fill(int64 n, Bool dense, Extent shape, double number, int64 integer, T* y, Stride y_step) {
    FOR_EACH(i, n) element(y, i, dense, shape, y_step) = FLOATING ? T(number) : T(integer);
}
