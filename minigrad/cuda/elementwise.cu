// Elementwise kernels: every function of the table in cext/kernels/functions.inc, where, copy and fill. The macros
// UNARY_FUNCTIONS and BINARY_FUNCTIONS contain the rows of the table that exist for T.
//
// One kernel contains all operations, since the number of the operation is the same for all threads. It branches on the
// number once, after a thread has loaded its elements and before it stores the results, so each function is compiled
// once.

// ---- functions that the table uses and CUDA lacks ---------------------------------------------------------------------

#if FLOATING
__device__ inline T sigmoid(T x) { return 1 / (1 + exp(-x)); }
__device__ inline T softplus(T x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
__device__ inline T silu(T x) { return x * sigmoid(x); }
__device__ inline T silu_derivative(T x) { return sigmoid(x) * (1 + x * sigmoid(-x)); }
__device__ inline T gelu_tanh(T x) { return x * sigmoid(x * (T(1.5957691216057308) + T(0.07135481627260025) * (x * x))); }
__device__ inline T gelu_tanh_derivative(T x) {
    const T first = T(1.5957691216057308), third = T(0.07135481627260025), z = x * (first + third * (x * x));
    const T y = sigmoid(z) * x * sigmoid(-z);  // 0 where the square of x overflows
    return sigmoid(z) + (y * first + x * (x * y) * (3 * third));
}
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
// CUDA's hypot overflows if one number is the largest float, even if the other is too small to change the result.
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

// The shape of a kernel's arrays. The host drops axes of length one, and merges axes that are one axis in all arrays.
// `axis` holds the place of each remaining axis among the strides.
struct Layout {
    int64 n, packed;  // the first `packed` elements may be read in packs, if the addresses are aligned
    int axes, linear;  // bit k: in array k, 0 being y, the elements are one stride apart from the first to the last
    const Extent &shape, &axis;
};

const int PACK = WIDE < 4 ? WIDE : 4;  // elements that one instruction reads or writes
const int FLIGHT = 4;  // packs that a thread loads before it uses the first, so that many are on their way at once
typedef Pack<PACK> Elements;
typedef Pack<PACK, Bool> Bits;

struct Nothing {  // no operand
    typedef Bool Element;
    static const bool present = false;
    enum : int64 { last = 1 };
    __device__ bool aligned(int) const { return true; }
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
    int64 last;  // the stride along the last axis; 0 for a number or a column, of which a pack is one element
    bool linear;

    __device__ Array(const Layout& at, int k, R* p, const Stride& step)
        : p(p), step(step), last(step.n[at.axis.n[7]]), linear(at.linear >> k & 1) {}

    __device__ bool aligned(int pack) const { return last == 0 || (uint64)p % (pack * sizeof(R)) == 0; }

    __device__ R* place(const Layout& at, int64 i) const {
        if (linear) return (R*)((char*)p + i * last);
        int64 offset = 0;
#pragma unroll 1
        for (int d = 7; d > 8 - at.axes; d--) {
            const int64 length = at.shape.n[d], q = quotient(i, length);
            offset += (i - q * length) * step.n[at.axis.n[d]];
            i = q;
        }
        return (R*)((char*)p + offset + i * step.n[at.axis.n[8 - at.axes]]);
    }
    // found[k] = the address of element first + k * stride, or for k >= count of the first element
    __device__ void find(const Layout& at, int64 first, int stride, int count, R* (&found)[FLIGHT]) const {
        if (linear) {
            const int64 distance = stride * last;
UNROLLED(k, FLIGHT) found[k] = (R*)((char*)p + first * last + (k < count ? k * distance : 0));
            return;
        }
        R* const start = place(at, first);
UNROLLED(k, FLIGHT) found[k] = start;
        if (count <= 1) return;
#pragma unroll 1
        for (int turn = 1; turn < FLIGHT; turn++) {  // through the last place, since registers have no index
#pragma unroll
            for (int k = 0; k + 1 < FLIGHT; k++) found[k] = found[k + 1];
            found[FLIGHT - 1] = turn < count ? place(at, first + turn * stride) : start;
        }
    }
};

// The elements of an operand that a thread works on: packs, or single elements in the first one
template <class A, int P>
struct Operand {
    typedef typename A::Element R;
    Pack<P, R> pack[FLIGHT];

    __device__ void load(const A& array, const Layout& at, int64 first, int stride, int count, bool packed) {
        if constexpr (A::present) {
            const R* place[FLIGHT];
            array.find(at, first, stride, count, place);
UNROLLED(k, FLIGHT) {
                if (!packed) {
                    if (k < P) pack[0].v[k] = *place[k];
                } else if (array.last == 0) {
                    pack[k].v[0] = *place[k];
                } else {
                    pack[k] = *(const Pack<P, R>*)place[k];
                }
            }
        }
    }
    // Complete the packs of a number or a column, after all loads have begun.
    __device__ void spread(const A& array, bool packed) {
        if (!packed || array.last != 0) return;
UNROLLED(k, FLIGHT) {
#pragma unroll
            for (int j = 1; j < P; j++) pack[k].v[j] = pack[k].v[0];
        }
    }
};

// y = f(P elements of a, b and c). Neighbouring threads load neighbouring packs, or, where that is not possible, single
// elements; each thread FLIGHT of them, or one if the grid has enough threads. f gets all packs of a thread, and
// whether only the first one is used.
template <int P, class Y, class A, class B, class C, class F>
__device__ inline void map(const Layout& at, const Array<Y>& y, const A& a, const B& b, const C& c, F f) {
    const bool aligned = y.aligned(P) && a.aligned(P) && b.aligned(P) && c.aligned(P);
    const int64 whole = aligned ? at.packed : 0, packs = whole / P, others = at.n - whole;
    const int threads = blockDim.x;
    const bool few = packs + others <= gridDim.x * (int64)threads;
    const int most = few ? 1 : FLIGHT, single = few ? 1 : P < FLIGHT ? P : FLIGHT;
    const int64 rounds = quotient(packs + most * threads - 1, most * threads);
    for (int64 round = blockIdx.x;; round += gridDim.x) {
        const bool packed = round < rounds;
        const int turns = packed ? most : single;
        const int64 begin = (packed ? round : round - rounds) * (turns * threads), left = (packed ? packs : others) - begin;
        if (left <= 0) break;
        int count = turns;
        int64 first = begin + threadIdx.x;
        if (left < turns * threads) {  // a thread that has none loads what the first thread does
            count = 0;
            while (count < turns && threadIdx.x + count * threads < left) count++;
            if (count == 0) first = begin;
        }
        first = packed ? first * P : whole + first;
        const int stride = packed ? threads * P : threads;
        Operand<A, P> of_a;
        Operand<B, P> of_b;
        Operand<C, P> of_c;
        of_a.load(a, at, first, stride, count, packed);
        of_b.load(b, at, first, stride, count, packed);
        of_c.load(c, at, first, stride, count, packed);
        of_a.spread(a, packed);
        of_b.spread(b, packed);
        of_c.spread(c, packed);
        Pack<P, Y> result[FLIGHT];
        f(few || !packed, of_a.pack, of_b.pack, of_c.pack, result);
        Y* place[FLIGHT];
        y.find(at, first, stride, count, place);
UNROLLED(k, FLIGHT) {
            if (k >= count) break;
            if (packed)
                *(Pack<P, Y>*)place[k] = result[k];
            else if (k < P)
                *place[k] = result[0].v[k];
        }
    }
}

// f(k, j) for the elements of all packs, or of the first one
template <int P, class F>
__device__ inline void each(bool one, F f) {
UNROLLED(j, P) f(0, j);
    if (one) return;
#pragma unroll
    for (int k = 1; k < FLIGHT; k++) {
UNROLLED(j, P) f(k, j);
    }
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

template <class A, class B>
constexpr bool SAME = false;
template <class A>
constexpr bool SAME<A, A> = true;

// Whether an expression takes few instructions: it has no division, and no call other than the conversions T() and W().
__device__ constexpr bool is_brief(const char* text) {
    for (int letters = 0; *text; text++) {
        if (*text == '/' || (*text == '(' && letters > 1)) return false;
        const bool letter = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') || (*text >= '0' && *text <= '9');
        letters = letter || *text == '_' ? letters + 1 : 0;
    }
    return true;
}

// y = f(a, b) of all packs, or of the first one. The code of a brief f is repeated for each element of all packs, any
// other f only for each element of one pack, in a loop that rotates the packs through the first place: registers have
// no index.
template <bool brief, class Y, class F>
__device__ inline void apply(bool one, Elements* a, Elements* b, Pack<PACK, Y>* y, F f) {
    if constexpr (brief) {
        each<PACK>(one, [&](int k, int j) { y[k].v[j] = f(a[k].v[j], b[k].v[j]); });
    } else {
#pragma unroll 1
        for (int turn = 0; turn < (one ? 1 : FLIGHT); turn++) {
            Elements result;
UNROLLED(j, PACK) result.v[j] = f(a[0].v[j], b[0].v[j]);
            if (one) {
                a[0] = result;
                break;
            }
#pragma unroll
            for (int k = 0; k + 1 < FLIGHT; k++) {
                a[k] = a[k + 1];
                b[k] = b[k + 1];
            }
            a[FLIGHT - 1] = result;
        }
UNROLLED(k, FLIGHT) y[k] = a[k];
    }
}

// The functions with results of type Y. All functions with results of type bool are brief.
template <class Y>
struct UnaryFunction {
    int op;
    __device__ void operator()(bool one, Elements* x, Bits*, Bits*, Pack<PACK, Y>* y) const {
        Elements none[FLIGHT] = {};
#define UNARY(OP, R, expression)                                                                                     \
    case OP:                                                                                                         \
        if constexpr (SAME<R, Y>)                                                                                    \
            apply<!SAME<R, T> || is_brief(#expression)>(one, x, none, y, [](T x, T) -> R { return R(expression); }); \
        return;
        switch (op) {
            UNARY_FUNCTIONS
        }
    }
};
template <class Y>
struct BinaryFunction {
    int op;
    __device__ void operator()(bool one, Elements* a, Elements* b, Bits*, Pack<PACK, Y>* y) const {
#define BINARY(OP, R, expression)                                                                                   \
    case OP:                                                                                                        \
        if constexpr (SAME<R, Y>)                                                                                   \
            apply<!SAME<R, T> || is_brief(#expression)>(one, a, b, y, [](T a, T b) -> R { return R(expression); }); \
        return;
        switch (op) {
            BINARY_FUNCTIONS
        }
    }
};

#define LAYOUT_PARAMETERS                                                                                      \
    int64 n, int64 packed, int axes, int linear, const __grid_constant__ Extent shape, const __grid_constant__ \
    Extent axis
#define LAYOUT {n, packed, axes, linear, shape, axis}

// Structs that a kernel indexes by a variable would be copied to the memory of each thread without __grid_constant__.
// `truth` says that the results are bool.
extern "C" __global__ void unary(int op, Bool truth, LAYOUT_PARAMETERS, const T* x,
                                 const __grid_constant__ Stride x_step, void* y, const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    const Array<const T> from(at, 1, x, x_step);
    if (truth && !BOOLEAN)
        map<PACK>(at, Array<Bool>(at, 0, (Bool*)y, y_step), from, Nothing(), Nothing(), UnaryFunction<Bool>{op});
    else
        map<PACK>(at, Array<T>(at, 0, (T*)y, y_step), from, Nothing(), Nothing(), UnaryFunction<T>{op});
}

extern "C" __global__ void binary(int op, Bool truth, LAYOUT_PARAMETERS, const T* a,
                                  const __grid_constant__ Stride a_step, const T* b,
                                  const __grid_constant__ Stride b_step, void* y,
                                  const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    const Array<const T> first(at, 1, a, a_step), second(at, 2, b, b_step);
    if (truth && !BOOLEAN)
        map<PACK>(at, Array<Bool>(at, 0, (Bool*)y, y_step), first, second, Nothing(), BinaryFunction<Bool>{op});
    else
        map<PACK>(at, Array<T>(at, 0, (T*)y, y_step), first, second, Nothing(), BinaryFunction<T>{op});
}

// y = c ? a : b
extern "C" __global__ void where(LAYOUT_PARAMETERS, const Bool* c,
                                 const __grid_constant__ Stride c_step, const T* a,
                                 const __grid_constant__ Stride a_step, const T* b,
                                 const __grid_constant__ Stride b_step, T* y, const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    map<PACK>(at, Array<T>(at, 0, y, y_step), Array<const Bool>(at, 1, c, c_step), Array<const T>(at, 2, a, a_step),
              Array<const T>(at, 3, b, b_step),
              [](bool one, const Bits* c, const Elements* a, const Elements* b, Elements* y) {
                  each<PACK>(one, [&](int k, int j) { y[k].v[j] = c[k].v[j] ? a[k].v[j] : b[k].v[j]; });
              });
}

#if FLOATING
// y = min(max(x, low), high); NaN stays NaN
extern "C" __global__ void clip(LAYOUT_PARAMETERS, double low, double high, const T* x,
                                const __grid_constant__ Stride x_step, T* y, const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    const T least = T(low), most = T(high);
    map<PACK>(at, Array<T>(at, 0, y, y_step), Array<const T>(at, 1, x, x_step), Nothing(), Nothing(),
              [&](bool one, const Elements* x, const Bits*, const Bits*, Elements* y) {
                  each<PACK>(one, [&](int k, int j) {
                      const T value = x[k].v[j] < least ? least : x[k].v[j];
                      y[k].v[j] = value > most ? most : value;
                  });
              });
}
#endif

// Floats outside the range of an integer dtype are clamped, and NaN becomes 0; integers wrap.
template <class R>
__device__ inline R convert(T x) {
#if FLOATING
    if constexpr (!Traits<R>::floating) {
        typedef typename Traits<R>::Wrapping Unsigned;
        const bool has_sign = R(-1) < 0;
        const R highest = R(Unsigned(~Unsigned(0)) >> has_sign);
        const T limit = T(uint64(1) << (sizeof(R) * 8 - has_sign));
        if (x != x) return R(0);
        return x >= limit ? highest : x < (has_sign ? -limit : T(0)) ? R(-highest - 1) : R(x);
    }
#endif
    return R(x);
}

template <class R, bool truth = false>
__device__ void copy_as(const Layout& at, const T* x, const Stride& x_step, void* y, const Stride& y_step) {
    constexpr int pack = PACK < 16 / sizeof(R) ? PACK : 16 / sizeof(R);
    map<pack>(at, Array<R>(at, 0, (R*)y, y_step), Array<const T>(at, 1, x, x_step), Nothing(), Nothing(),
              [](bool one, const Pack<pack, T>* x, const Pack<pack, Bool>*, const Pack<pack, Bool>*,
                 Pack<pack, R>* y) {
                  each<pack>(one, [&](int k, int j) {
                      if constexpr (truth)
                          y[k].v[j] = x[k].v[j] != 0;
                      else
                          y[k].v[j] = convert<R>(x[k].v[j]);
                  });
              });
}

// y = x, converted to the dtype of y
extern "C" __global__ void copy(int dtype, LAYOUT_PARAMETERS, const T* x,
                                const __grid_constant__ Stride x_step, void* y, const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    switch (dtype) {
        case BOOL: return copy_as<Bool, true>(at, x, x_step, y, y_step);
        case UINT8: return copy_as<Bool>(at, x, x_step, y, y_step);
        case INT32: return copy_as<int>(at, x, x_step, y, y_step);
        case INT64: return copy_as<int64>(at, x, x_step, y, y_step);
        case FLOAT32: return copy_as<float>(at, x, x_step, y, y_step);
        case FLOAT64: return copy_as<double>(at, x, x_step, y, y_step);
    }
}

// y = x, of one dtype, where neighbours in x lie along axis `row` and neighbours in y along axis `column`, numbers of
// axes of the strides. Tiles of 32 x 32 elements pass through shared memory; `shape` and `axis` describe the other
// axes.
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
extern "C" __global__ void fill(LAYOUT_PARAMETERS, double number, int64 integer, T* y,
                                const __grid_constant__ Stride y_step) {
    const Layout at = LAYOUT;
    const T value = FLOATING ? T(number) : T(integer);
    map<PACK>(at, Array<T>(at, 0, y, y_step), Nothing(), Nothing(), Nothing(),
              [&](bool one, const Bits*, const Bits*, const Bits*, Elements* y) {
                  each<PACK>(one, [&](int k, int j) { y[k].v[j] = value; });
              });
}
