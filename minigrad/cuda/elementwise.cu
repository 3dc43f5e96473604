// Elementwise kernels: every function of the table in cext/kernels/functions.inc, where, copy and fill. The macros
// UNARY_FUNCTIONS and BINARY_FUNCTIONS contain the rows of the table that exist for T.
//
// The operation's number is the same for all threads, so a single kernel contains all of them and branches once, before
// its loop.

// ---- functions that the table uses and CUDA lacks ---------------------------------------------------------------------

#if FLOATING
__device__ inline T sigmoid(T x) { return 1 / (1 + exp(-x)); }
__device__ inline T softplus(T x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
__device__ inline T silu(T x) { return x * sigmoid(x); }
__device__ inline T silu_derivative(T x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }
__device__ inline T gelu(T x) { return x * normcdf(x); }
__device__ inline T gelu_derivative(T x) {
    const T square = x * x, lost = fma(x, x, -square);  // the rounding error, which the exponential would amplify
    const T pdf = square > 2000 ? T(0) : (1 - lost / 2) * exp(-square / 2) * T(0.39894228040143267794);
    return normcdf(x) + x * pdf;
}

// The remainder has the sign of the divisor, and a = b floor_divide(a, b) + remainder_of(a, b). Division by zero gives
// the same as a / b.
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
// x to the power 0.5 as C defines it.
__device__ inline T root(T x) { return x == -infinity<T>() ? infinity<T>() : sqrt(x + T(0)); }
__device__ inline T power(T a, T b) {
    return b == 2 ? a * a : b == 3 ? a * a * a : b == T(0.5) ? root(a) : b == -1 ? 1 / a : pow(a, b);
}
#elif !BOOLEAN
// The same for integers, where division by zero gives 0. The lowest number divided by -1 overflows and wraps.
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
// By squaring; the caller rejects negative exponents of integers.
__device__ inline T power(T a, T b) {
    Traits<T>::Wrapping y = 1, x = a;
    for (; b > 0; b >>= 1, x *= x) y *= b & 1 ? x : 1;
    return T(y);
}
#endif

// ---- loops ------------------------------------------------------------------------------------------------------------

typedef Traits<T>::Wrapping W;

// Every operation has a single loop for arrays of any layout, so that all of them compile in seconds. The branch that
// selects the address of each element is the same for all threads.
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
        UNARY_FUNCTIONS
    }
}

extern "C" __global__ void binary(int op, int64 n, Bool dense, Extent shape, const T* a, Stride a_step, const T* b,
                                  Stride b_step, void* y, Stride y_step) {
    switch (op) {
        BINARY_FUNCTIONS
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

// Floats outside the range of an integer dtype are clamped, and NaN becomes 0; integers wrap.
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

// y = x, converted to the dtype of y
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

// y = the value, `number` for floats and `integer` otherwise
extern "C" __global__ void fill(int64 n, Bool dense, Extent shape, double number, int64 integer, T* y, Stride y_step) {
    FOR_EACH(i, n) element(y, i, dense, shape, y_step) = FLOATING ? T(number) : T(integer);
}
