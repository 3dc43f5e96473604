// Reductions of the middle axis of x[outer, n, inner]: sums, extremes, moments, and running sums.
//
// A block of threads is groups x deep x wide: a tile has `wide` neighbouring columns, and each of the `deep` threads of
// a column takes every deep-th element; `groups` tiles fill the block. The states of the threads of a column are merged
// in pairs, in an order that depends on the shape alone. A long column is split into pieces, which `merge_pieces`
// merges.

const int THREADS = 256;
const int RUN = 8;  // elements that a thread loads before it takes the first of them

// ---- operations: a state, how it takes an element, how two are merged -------------------------------------------------

struct Sum {
    typedef Traits<T>::Wide State;
    typedef T Result;
    static __device__ State start() { return 0; }
    static __device__ void take(State& s, T x, int64) { s += State(x); }
    static __device__ void merge(State& s, const State& other) { s += other; }
    static __device__ Result result(const State& s) { return T(s); }
};

struct Product {
    typedef Traits<T>::Wrapping State;
    typedef T Result;
    static __device__ State start() { return 1; }
    static __device__ void take(State& s, T x, int64) { s *= State(x); }
    static __device__ void merge(State& s, const State& other) { s *= other; }
    static __device__ Result result(const State& s) { return T(s); }
};

// The largest or smallest element and the first index of it; NaN wins over all numbers. Index -1 means none yet.
template <bool largest, bool where>
struct Extreme {
    struct State {
        T value;
        int64 index;
    };
    static __device__ State start() { return {T(0), -1}; }
    static __device__ void take(State& s, T x, int64 i) { merge(s, {x, i}); }
    static __device__ void merge(State& s, const State& other) {
        if (other.index < 0) return;
        const bool nan = s.value != s.value, other_nan = other.value != other.value;
        const bool better = nan != other_nan ? other_nan : !nan && (largest ? other.value > s.value : other.value < s.value);
        const bool equal = nan ? other_nan : other.value == s.value;
        if (s.index < 0 || better || (equal && other.index < s.index)) s = other;
    }
};
template <bool largest>
struct Best : Extreme<largest, false> {
    typedef T Result;
    static __device__ Result result(const typename Extreme<largest, false>::State& s) { return s.value; }
};
template <bool largest>
struct Place : Extreme<largest, true> {
    typedef int64 Result;
    static __device__ Result result(const typename Extreme<largest, true>::State& s) { return s.index; }
};

template <bool all>
struct Truth {
    typedef Bool State;
    typedef Bool Result;
    static __device__ State start() { return all; }
    static __device__ void take(State& s, T x, int64) { s = all ? s & Bool(x != 0) : s | Bool(x != 0); }
    static __device__ void merge(State& s, const State& other) { s = all ? s & other : s | other; }
    static __device__ Result result(const State& s) { return s; }
};

// ---- tiles ------------------------------------------------------------------------------------------------------------

// The position of a thread in its block, and what the block works on next.
struct ReduceTile {
    int64 outer, n, inner, tiles, jobs;
    int wide, deep, groups, pieces, column, lane, group;

    __device__ ReduceTile(int64 outer, int64 n, int64 inner, int wide, int deep, int pieces)
        : outer(outer), n(n), inner(inner), wide(wide), deep(deep), pieces(pieces) {
        groups = blockDim.x / (wide * deep);
        column = threadIdx.x % wide;
        lane = threadIdx.x / wide % deep;
        group = threadIdx.x / (wide * deep);
        tiles = (inner + wide - 1) / wide;
        jobs = outer * tiles * pieces;
    }
    // f(o, c, begin, end, piece) for this thread's column c of row o, or c = -1 if it has none; all threads call it.
    template <class F>
    __device__ void each(F f) const {
        const int64 step = (n + pieces - 1) / pieces;
        for (int64 first = blockIdx.x * (int64)groups; first < jobs; first += gridDim.x * (int64)groups) {
            const int64 job = first + group, tile = quotient(job, pieces), piece = job - tile * pieces;
            const int64 o = quotient(tile, tiles), c = (tile - o * tiles) * wide + column, begin = piece * step;
            f(o, job < jobs && c < inner ? c : -1, begin, begin + step < n ? begin + step : n, piece);
        }
    }
    // f(x, j) for the elements j of column c of row o from begin to end that are this thread's
    template <class F>
    __device__ void take(const T* x, int64 o, int64 c, int64 begin, int64 end, F f) const {
        if (c < 0) return;
        const T* next = x + (o * n + begin + lane) * inner + c;
        const int64 step = deep * inner;
        int64 j = begin + lane;
        for (int64 left = quotient(end - j + deep - 1, deep); left > 0; left -= RUN) {
            T run[RUN];
#pragma unroll
            for (int k = 0; k < RUN; k++, next += step) run[k] = k < left ? *next : T(0);
#pragma unroll
            for (int k = 0; k < RUN; k++, j += deep) {
                if (k < left) f(run[k], j);
            }
        }
    }
    // The merged states of all threads of a column
    template <class Op>
    __device__ typename Op::State merged(const typename Op::State& mine) const {
        __shared__ typename Op::State states[THREADS];
        __syncthreads();
        states[threadIdx.x] = mine;
        for (int distance = deep / 2; distance > 0; distance /= 2) {
            __syncthreads();
            if (lane < distance) Op::merge(states[threadIdx.x], states[threadIdx.x + distance * wide]);
        }
        __syncthreads();
        return states[threadIdx.x - lane * wide];
    }
};

template <class Op>
__device__ void reduce(const ReduceTile& tile, const T* x, void* y, void* partial) {
    typedef typename Op::State State;
    tile.each([&](int64 o, int64 c, int64 begin, int64 end, int64 piece) {
        State s = Op::start();
        tile.take(x, o, c, begin, end, [&](T value, int64 j) { Op::take(s, value, j); });
        s = tile.merged<Op>(s);
        if (c < 0 || tile.lane > 0) return;
        if (tile.pieces == 1)
            ((typename Op::Result*)y)[o * tile.inner + c] = Op::result(s);
        else
            ((State*)partial)[(o * tile.inner + c) * tile.pieces + piece] = s;
    });
}

template <class Op>
__device__ void merge_pieces(const ReduceTile& tile, const void* partial, void* y) {
    typedef typename Op::State State;
    tile.each([&](int64 o, int64 c, int64 begin, int64 end, int64) {
        State s = Op::start();
        if (c >= 0) {
            for (int64 p = begin + tile.lane; p < end; p += tile.deep) Op::merge(s, ((const State*)partial)[o * tile.n + p]);
        }
        s = tile.merged<Op>(s);
        if (c >= 0 && tile.lane == 0) ((typename Op::Result*)y)[o] = Op::result(s);
    });
}

// ---- kernels ----------------------------------------------------------------------------------------------------------

#if BOOLEAN
#define SUMS(f, ...)
#else
#define SUMS(f, ...)                           \
    case SUM: return f<Sum>(__VA_ARGS__);      \
    case PROD: return f<Product>(__VA_ARGS__);
#endif
#define OPERATIONS(f, ...)                                \
    switch (op) {                                         \
        SUMS(f, __VA_ARGS__)                              \
        case MAX: return f<Best<true>>(__VA_ARGS__);      \
        case MIN: return f<Best<false>>(__VA_ARGS__);     \
        case ANY: return f<Truth<false>>(__VA_ARGS__);    \
        case ALL: return f<Truth<true>>(__VA_ARGS__);     \
        case ARGMAX: return f<Place<true>>(__VA_ARGS__);  \
        case ARGMIN: return f<Place<false>>(__VA_ARGS__); \
    }

// y[outer, inner]; with more than one piece, the states partial[outer, inner, pieces] instead
extern "C" __global__ void __launch_bounds__(256, 4) reduce_tiles(int op, int64 outer, int64 n, int64 inner, int wide, int deep, int pieces,
                                        const T* x, void* y, void* partial) {
    const ReduceTile tile(outer, n, inner, wide, deep, pieces);
    OPERATIONS(reduce, tile, x, y, partial)
}

extern "C" __global__ void reduce_pieces(int op, int64 outputs, int pieces, int deep, const void* partial, void* y) {
    const ReduceTile tile(outputs, pieces, 1, 1, deep, 1);
    OPERATIONS(merge_pieces, tile, partial, y)
}

#if FLOATING
// mean[outer, inner] and the sum of squared deviations from it, in two passes
extern "C" __global__ void moments(int64 outer, int64 n, int64 inner, int wide, int deep, const T* x, T* mean, T* m2) {
    const ReduceTile tile(outer, n, inner, wide, deep, 1);
    tile.each([&](int64 o, int64 c, int64 begin, int64 end, int64) {
        double total = 0, square = 0;
        tile.take(x, o, c, begin, end, [&](T value, int64) { total += value; });
        const double center = tile.merged<Sum>(total) / n;
        tile.take(x, o, c, begin, end, [&](T value, int64) {
            const double d = value - center;
            square += d * d;
        });
        square = tile.merged<Sum>(square);
        if (c < 0 || tile.lane > 0) return;
        mean[o * inner + c] = T(center);
        m2[o * inner + c] = T(square);
    });
}
#endif

#if !BOOLEAN
// y[outer, n, inner]: running sums; a block takes a column, blockDim elements at a time
extern "C" __global__ void cumulative_sum(int64 outer, int64 n, int64 inner, const T* x, T* y) {
    typedef Sum::State State;
    __shared__ State sums[THREADS];
    const int t = threadIdx.x;
    for (int64 column = blockIdx.x; column < outer * inner; column += gridDim.x) {
        const int64 base = column / inner * n * inner + column % inner;
        State before = 0;
        for (int64 first = 0; first < n; first += blockDim.x) {
            const int64 i = first + t;
            State s = i < n ? State(x[base + i * inner]) : State(0);
            for (int distance = 1; distance < blockDim.x; distance *= 2) {
                __syncthreads();
                sums[t] = s;
                __syncthreads();
                if (t >= distance) s += sums[t - distance];
            }
            __syncthreads();
            sums[t] = s;
            __syncthreads();
            if (i < n) y[base + i * inner] = T(before + s);
            before += sums[blockDim.x - 1];
        }
    }
}
#endif
