// Elementwise kernels: every function of the table in cext/kernels/functions.inc, where, copy and fill. The macros
// UNARY_FUNCTIONS and BINARY_FUNCTIONS contain the rows of the table that exist for T.
//
// An operation's number is the same for all threads, so a single kernel contains all of them; it branches once for every
// few elements, between loading and storing them, and so each function is compiled only once.

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
// CUDA's overflows for the largest number and another that does not change it.
__device__ inline T hypotenuse(T a, T b) {
    a = fabs(a), b = fabs(b);
    const T larger = a > b ? a : b, smaller = a > b ? b : a;  // NaN is the smaller or both
    return smaller <= larger * (sizeof(T) == 4 ? T(0x1p-26) : T(0x1p-55)) ? larger : hypot(a, b);
}
#define hypot hypotenuse
// x to the power 0.5 as C defines it.
__device__ inline T root(T x) { return x == -infinity<T>() ? infinity<T>() : sqrt(x + T(0)); }
__device__ inline T power(T a, T b) {
    return b == 1 ? a : b == 2 ? a * a : b == 3 ? a * a * a : b == T(0.5) ? root(a) : b == -1 ? 1 / a : pow(a, b);
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

// Where the elements of the arrays of a kernel are. The host drops axes of length one, and merges axes that are one axis
// in all arrays. `axis` says which axis of the strides each axis is.
struct Layout {
    int64 n, packed;  // the first `packed` elements may be read in packs, if the addresses are aligned
    int axes, linear;  // bit k: in array k, 0 being y, the elements are one stride apart from the first to the last
    const Extent &shape, &axis;
};

template <class R, int P>
struct alignas(P * sizeof(R)) Several {
    R v[P];
};

template <class R, int P>
struct Values {
    Several<R, P> pack;
    R number;

    __device__ void load(const R* p, bool one) {
        if (one)
            number = *p;
        else
            pack = *(const Several<R, P>*)p;
    }
};

struct Nothing {  // no operand
    typedef Bool Element;
    static const bool present = false;
    enum : int64 { last = 0 };
    __device__ bool aligned(int) const { return true; }
    __device__ Bool* place(const Layout&, int64) const { return nullptr; }
};

template <class R>
struct Plain {
    typedef R Type;
};
template <class R>
struct Plain<const R> {
    typedef R Type;
};

template <class R>
struct Array {
    typedef typename Plain<R>::Type Element;
    static const bool present = true;
    R* p;
    const Stride& step;
    int64 last;  // the stride along the last axis; 0 for a number or a column, which a pack reads once
    bool linear;

    __device__ Array(const Layout& at, int k, R* p, const Stride& step)
        : p(p), step(step), last(step.n[at.axis.n[7]]), linear(at.linear >> k & 1) {}

    __device__ bool aligned(int pack) const { return last == 0 || (uint64)p % (pack * sizeof(R)) == 0; }

    __device__ R* place(const Layout& at, int64 i) const {
        if (linear) return (R*)((char*)p + i * last);
        int64 offset = 0;
        for (int d = 7; d > 8 - at.axes; d--) {
            const int64 length = at.shape.n[d], q = quotient(i, length);
            offset += (i - q * length) * step.n[at.axis.n[d]];
            i = q;
        }
        return (R*)((char*)p + offset + i * step.n[at.axis.n[8 - at.axes]]);
    }
};

// The values of P elements of an operand, loaded from P places, or from the last of them in packs
template <class A, int P>
struct Operand {
    typedef typename A::Element R;
    const A& array;
    const R* p[P];
    Values<R, P> x, next;

    __device__ Operand(const A& array) : array(array) {}

    __device__ void look(const Layout& at, int64 i) {
#pragma unroll
        for (int k = 0; k + 1 < P; k++) p[k] = p[k + 1];
        p[P - 1] = array.place(at, i);
    }
    __device__ void load(bool packed, int count) {
        if (!A::present) return;
        if (packed) {
            x.load(p[P - 2], array.last == 0);
            if (count > 1) next.load(p[P - 1], array.last == 0);
        } else {
#pragma unroll
            for (int k = 0; k < P; k++) {
                if (k < count) x.pack.v[k] = *p[k];
            }
        }
    }
    __device__ Several<R, P> get(bool packed) {
        Several<R, P> found;
#pragma unroll
        for (int k = 0; k < P; k++) found.v[k] = packed && array.last == 0 ? x.number : x.pack.v[k];
        x = next;
        return found;
    }
};

// y = f(P elements of a, b and c). P elements are either a pack, of which a thread loads two before it uses the first,
// or, where that is not possible, elements far apart, so that neighbouring threads access neighbouring elements.
template <int P, class Y, class A, class B, class C, class F>
__device__ inline void map(const Layout& at, const Array<Y>& y, const A& a, const B& b, const C& c, F f) {
    const bool aligned = y.aligned(P) && a.aligned(P) && b.aligned(P) && c.aligned(P);
    const int64 whole = aligned ? at.packed : 0, packs = whole / P, others = (at.n - whole + P - 1) / P;
    const int64 step = gridDim.x * (int64)blockDim.x;
    for (int64 g = blockIdx.x * (int64)blockDim.x + threadIdx.x; g < packs + others; g += step) {
        const bool packed = g < packs;
        const int64 first = packed ? g * P : whole + g - packs, stride = packed ? step * P : others;
        const int64 end = packed ? whole : at.n;
        const int turns = packed ? 2 : P;
        int count = 1;
        while (count < turns && first + count * stride < end) count++;
        Operand<A, P> of_a(a);
        Operand<B, P> of_b(b);
        Operand<C, P> of_c(c);
        Y* place[P];
#pragma unroll 1
        for (int k = 0; k < turns; k++) {
            const int64 i = k < count ? first + k * stride : first;
            of_a.look(at, i);
            of_b.look(at, i);
            of_c.look(at, i);
#pragma unroll
            for (int j = 0; j + 1 < P; j++) place[j] = place[j + 1];
            place[P - 1] = y.place(at, i);
        }
        of_a.load(packed, count);
        of_b.load(packed, count);
        of_c.load(packed, count);
        if (packed && count > 1) g += step;
#pragma unroll 1
        for (int turn = 0; turn < (packed ? count : 1); turn++) {
            Several<Y, P> result;
            const auto u = of_a.get(packed);
            const auto v = of_b.get(packed);
            const auto w = of_c.get(packed);
            f(u.v, v.v, w.v, result.v);
            if (packed) {
                *(Several<Y, P>*)place[P - 2] = result;
                place[P - 2] = place[P - 1];
            } else {
#pragma unroll
                for (int k = 0; k < P; k++) {
                    if (k < count) *place[k] = result.v[k];
                }
            }
        }
    }
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

template <class A, class B>
constexpr bool SAME = false;
template <class A>
constexpr bool SAME<A, A> = true;

// y = f(a, b) of WIDE elements, in a loop that contains f only once, as some functions are long. What follows rotates
// through the first place, since registers have no index.
template <class Y, class F>
__device__ inline void one_by_one(F f, const T* a, const T* b, Y* y) {
    T left[WIDE], right[WIDE];
#pragma unroll
    for (int k = 0; k < WIDE; k++) {
        left[k] = a[k];
        right[k] = b[k];
        y[k] = Y();
    }
#pragma unroll 2
    for (int turn = 0; turn < WIDE; turn++) {
        const Y result = f(left[0], right[0]);
#pragma unroll
        for (int k = 0; k + 1 < WIDE; k++) {
            left[k] = left[k + 1];
            right[k] = right[k + 1];
            y[k] = y[k + 1];
        }
        y[WIDE - 1] = result;
    }
}

// The functions with results of type Y
template <class Y>
struct UnaryFunction {
    int op;
    __device__ void operator()(const T* x_, const Bool*, const Bool*, Y* y_) const {
#define UNARY(OP, R, expression)                                                                      \
    case OP:                                                                                          \
        if constexpr (SAME<R, Y>) each([](T x) -> R { return R(expression); }, x_, y_);                \
        return;
        switch (op) {
            UNARY_FUNCTIONS
        }
    }
    template <class F>
    static __device__ void each(F f, const T* x, Y* y) {
        one_by_one([&](T x, T) { return f(x); }, x, x, y);
    }
};
template <class Y>
struct BinaryFunction {
    int op;
    __device__ void operator()(const T* a_, const T* b_, const Bool*, Y* y_) const {
#define BINARY(OP, R, expression)                                                                       \
    case OP:                                                                                            \
        if constexpr (SAME<R, Y>) one_by_one([](T a, T b) -> R { return R(expression); }, a_, b_, y_);         \
        return;
        switch (op) {
            BINARY_FUNCTIONS
        }
    }
};

// Structs that a kernel indexes by a variable would be copied to the memory of each thread without __grid_constant__.
// `truth` says that the results are bool.
extern "C" __global__ void unary(int op, Bool truth, int64 n, int64 packed, int axes, int linear,
                                 const __grid_constant__ Extent shape, const __grid_constant__ Extent axis, const T* x,
                                 const __grid_constant__ Stride x_step, void* y, const __grid_constant__ Stride y_step) {
    const Layout at = {n, packed, axes, linear, shape, axis};
    const Array<const T> from(at, 1, x, x_step);
    if (truth && !BOOLEAN)
        map<WIDE>(at, Array<Bool>(at, 0, (Bool*)y, y_step), from, Nothing(), Nothing(), UnaryFunction<Bool>{op});
    else
        map<WIDE>(at, Array<T>(at, 0, (T*)y, y_step), from, Nothing(), Nothing(), UnaryFunction<T>{op});
}

extern "C" __global__ void binary(int op, Bool truth, int64 n, int64 packed, int axes, int linear,
                                  const __grid_constant__ Extent shape, const __grid_constant__ Extent axis, const T* a,
                                  const __grid_constant__ Stride a_step, const T* b,
                                  const __grid_constant__ Stride b_step, void* y,
                                  const __grid_constant__ Stride y_step) {
    const Layout at = {n, packed, axes, linear, shape, axis};
    const Array<const T> first(at, 1, a, a_step), second(at, 2, b, b_step);
    if (truth && !BOOLEAN)
        map<WIDE>(at, Array<Bool>(at, 0, (Bool*)y, y_step), first, second, Nothing(), BinaryFunction<Bool>{op});
    else
        map<WIDE>(at, Array<T>(at, 0, (T*)y, y_step), first, second, Nothing(), BinaryFunction<T>{op});
}

// y = c ? a : b
extern "C" __global__ void where(int64 n, int64 packed, int axes, int linear, const __grid_constant__ Extent shape,
                                 const __grid_constant__ Extent axis, const Bool* c,
                                 const __grid_constant__ Stride c_step, const T* a,
                                 const __grid_constant__ Stride a_step, const T* b,
                                 const __grid_constant__ Stride b_step, T* y, const __grid_constant__ Stride y_step) {
    const Layout at = {n, packed, axes, linear, shape, axis};
    map<WIDE>(at, Array<T>(at, 0, y, y_step), Array<const Bool>(at, 1, c, c_step), Array<const T>(at, 2, a, a_step),
              Array<const T>(at, 3, b, b_step), [](const Bool* c, const T* a, const T* b, T* y) {
#pragma unroll
                  for (int k = 0; k < WIDE; k++) y[k] = c[k] ? a[k] : b[k];
              });
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

template <class R>
__device__ void copy_as(const Layout& at, const T* x, const Stride& x_step, void* y, const Stride& y_step) {
    constexpr int pack = 16 / (sizeof(T) > sizeof(R) ? sizeof(T) : sizeof(R));
    map<pack>(at, Array<R>(at, 0, (R*)y, y_step), Array<const T>(at, 1, x, x_step), Nothing(), Nothing(),
              [](const T* x, const Bool*, const Bool*, R* y) {
#pragma unroll
                  for (int k = 0; k < pack; k++) {
                      if constexpr (SAME<R, Bool>)
                          y[k] = x[k] != 0;
                      else
                          y[k] = convert<R>(x[k]);
                  }
              });
}

// y = x, converted to the dtype of y
extern "C" __global__ void copy(int dtype, int64 n, int64 packed, int axes, int linear,
                                const __grid_constant__ Extent shape, const __grid_constant__ Extent axis, const T* x,
                                const __grid_constant__ Stride x_step, void* y, const __grid_constant__ Stride y_step) {
    const Layout at = {n, packed, axes, linear, shape, axis};
    switch (dtype) {
        case BOOL: return copy_as<Bool>(at, x, x_step, y, y_step);
        case INT32: return copy_as<int>(at, x, x_step, y, y_step);
        case INT64: return copy_as<int64>(at, x, x_step, y, y_step);
        case FLOAT32: return copy_as<float>(at, x, x_step, y, y_step);
        case FLOAT64: return copy_as<double>(at, x, x_step, y, y_step);
    }
}

// y = x, of one dtype, where neighbours in x lie along axis `row` and neighbours in y along axis `column`, numbers of
// axes of the strides. Tiles of 32 x 32 elements pass through shared memory; `shape` and `axis` describe the other axes.
extern "C" __global__ void transpose(int64 rows, int64 columns, int row, int column, int64 matrices, int axes,
                                     const __grid_constant__ Extent shape, const __grid_constant__ Extent axis,
                                     const T* x, const __grid_constant__ Stride x_step, T* y,
                                     const __grid_constant__ Stride y_step) {
    __shared__ T tile[32][33];
    const Layout at = {matrices, 0, axes, 0, shape, axis};
    const Array<const T> from(at, 1, x, x_step);
    const Array<T> to(at, 0, y, y_step);
    const int64 down = (rows + 31) / 32, across = (columns + 31) / 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int64 job = blockIdx.x; job < matrices * down * across; job += gridDim.x) {
        const int64 rest = quotient(job, down), matrix = quotient(rest, across);
        const int64 r = (job - rest * down) * 32, c = (rest - matrix * across) * 32;
        const char* source = (const char*)from.place(at, matrix);
        char* target = (char*)to.place(at, matrix);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k += 8) {
            if (r + lane < rows && c + warp + k < columns)
                tile[warp + k][lane] =
                    *(const T*)(source + (r + lane) * (int64)sizeof(T) + (c + warp + k) * x_step.n[column]);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k += 8) {
            if (c + lane < columns && r + warp + k < rows)
                *(T*)(target + (c + lane) * (int64)sizeof(T) + (r + warp + k) * y_step.n[row]) = tile[lane][warp + k];
        }
    }
}

// y = the value, `number` for floats and `integer` otherwise
extern "C" __global__ void fill(int64 n, int64 packed, int axes, int linear, const __grid_constant__ Extent shape,
                                const __grid_constant__ Extent axis, double number, int64 integer, T* y,
                                const __grid_constant__ Stride y_step) {
    const Layout at = {n, packed, axes, linear, shape, axis};
    const T value = FLOATING ? T(number) : T(integer);
    map<WIDE>(at, Array<T>(at, 0, y, y_step), Nothing(), Nothing(), Nothing(),
              [&](const Bool*, const Bool*, const Bool*, T* y) {
#pragma unroll
                  for (int k = 0; k < WIDE; k++) y[k] = value;
              });
}
