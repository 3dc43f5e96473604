// Softmax and related operations on the rows of x[rows, width]. The maximum of each row is subtracted first.
//
// Some lanes of a warp work on a short row, a whole block on a long one. A thread keeps its part of the row in registers,
// so that memory is read once; only elements beyond the first HELD of each thread are read again, from the cache. Sums
// are in double, and bitwise equal in all threads of a row.

#if FLOATING

const int HELD = 8;

__device__ inline T larger(T a, T b) { return a > b ? a : b; }
__device__ inline double sum(double a, double b) { return a + b; }

// The threads that share this thread's row, and the rows they take.
struct Row {
    int lane, lanes;  // lanes: a power of two up to 32, or all threads of the block
    int64 width;

    __device__ Row(int lanes, int64 width) : lane(threadIdx.x % lanes), lanes(lanes), width(width) {}

    // f(r) for each row; all threads call it equally often, with r = rows if none is left
    template <class F>
    __device__ void each(int64 rows, F f) const {
        const int64 together = blockDim.x / lanes;
        for (int64 first = blockIdx.x * together; first < rows; first += gridDim.x * together) {
            const int64 r = first + threadIdx.x / lanes;
            f(r < rows ? r : rows);
        }
    }
    // f(c, u) for this thread's columns of a row of `end` columns, where u is the register's number or -1
    template <class F>
    __device__ void columns(int64 end, F f) const {
#pragma unroll
        for (int u = 0; u < HELD; u++) {
            const int64 c = lane + (int64)u * lanes;
            if (c < end) f(c, u);
        }
        for (int64 c = lane + (int64)HELD * lanes; c < end; c += lanes) f(c, -1);
    }
    // merge(a, b) over the values of all threads of a row, in each of them
    template <class S, class F>
    __device__ S merged(S s, F merge) const {
        const int distance = lanes < 32 ? lanes : 32;
        for (int d = distance / 2; d > 0; d /= 2) s = merge(s, __shfl_xor_sync(~0u, s, d));
        if (lanes <= 32) return s;
        __shared__ S parts[32];
        __syncthreads();  // the previous parts have been read
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = s;
        __syncthreads();
        s = parts[0];
        for (int w = 1; w < lanes / 32; w++) s = merge(s, parts[w]);
        return s;
    }
};

// A row of which a thread keeps HELD elements.
struct Held {
    const Row& row;
    const T* x;
    int64 end;
    T value[HELD];

    __device__ Held(const Row& row, const T* x, int64 end) : row(row), x(x), end(end) {
        row.columns(end, [&](int64 c, int u) {
            if (u >= 0) value[u] = x[c];
        });
    }
    __device__ T at(int64 c, int u) const { return u >= 0 ? value[u] : x[c]; }
    // f(c, x_c)
    template <class F>
    __device__ void each(F f) const {
        row.columns(end, [&](int64 c, int u) { f(c, at(c, u)); });
    }
    // the sum of f(c, x_c)
    template <class F>
    __device__ double total(F f) const {
        double s = 0;
        each([&](int64 c, T v) { s += f(c, v); });
        return row.merged(s, sum);
    }
    // The largest element, ignoring NaN, which the sum propagates.
    __device__ T largest() const {
        T top = -infinity<T>();
        each([&](int64, T v) { top = larger(v, top); });
        return row.merged(top, larger);
    }
    // Replaces the held x_c by exp(x_c - shift); returns the sum of all of them
    __device__ double exponentials(T shift) {
        double s = 0;
        row.columns(end, [&](int64 c, int u) {
            const T e = exp(at(c, u) - shift);
            if (u >= 0) value[u] = e;
            s += e;
        });
        return row.merged(s, sum);
    }
    // f(c, exp(x_c - shift)) after `exponentials`
    template <class F>
    __device__ void each_exponential(T shift, F f) const {
        row.columns(end, [&](int64 c, int u) { f(c, u >= 0 ? value[u] : exp(x[c] - shift)); });
    }
};

// log sum exp x = shift + log_, where shift is the largest element, or 0 if that is infinite and cannot be subtracted
struct LogSumExp {
    T shift, log_;

    __device__ LogSumExp(const Held& x) {
        const T top = x.largest();
        shift = top - top == 0 ? top : T(0);
        log_ = log(T(x.total([&](int64, T v) { return exp(v - shift); })));
    }
};

// y = exp(x - max x) / sum exp(x - max x), or its logarithm, x - log sum exp x
extern "C" __global__ void __launch_bounds__(512) softmax(
    int64 rows, int64 width, int lanes, Bool logarithm, const T* x, T* y) {
    const Row row(lanes, width);
    row.each(rows, [&](int64 r) {
        Held at(row, x + r * width, r < rows ? width : 0);
        T* const to = y + r * width;
        if (logarithm) {
            const LogSumExp lse(at);
            at.each([&](int64 c, T v) { to[c] = v - lse.shift - lse.log_; });
        } else {
            const T top = at.largest(), inverse = T(1 / at.exponentials(top));
            at.each_exponential(top, [&](int64 c, T e) { to[c] = e * inverse; });
        }
    });
}

// dx = y (g - sum(g y)) or, for the logarithm, dx = g - exp(y) sum(g)
extern "C" __global__ void __launch_bounds__(512) softmax_backward(
    int64 rows, int64 width, int lanes, Bool logarithm, const T* y, const T* g, T* dx) {
    const Row row(lanes, width);
    row.each(rows, [&](int64 r) {
        const int64 end = r < rows ? width : 0;
        const Held y_(row, y + r * width, end), g_(row, g + r * width, end);
        double s = 0;
        row.columns(end, [&](int64 c, int u) { s += logarithm ? g_.at(c, u) : g_.at(c, u) * y_.at(c, u); });
        const T total = T(row.merged(s, sum));
        T* const to = dx + r * width;
        row.columns(end, [&](int64 c, int u) {
            const T a = y_.at(c, u), b = g_.at(c, u);
            to[c] = logarithm ? b - exp(a) * total : a * (b - total);
        });
    });
}

// y[rows] = log sum exp x
extern "C" __global__ void __launch_bounds__(512) logsumexp(int64 rows, int64 width, int lanes, const T* x, T* y) {
    const Row row(lanes, width);
    row.each(rows, [&](int64 r) {
        const LogSumExp lse(Held(row, x + r * width, r < rows ? width : 0));
        if (r < rows && row.lane == 0) y[r] = lse.shift + lse.log_;
    });
}

// loss = (1 - s) w_t (lse - z_t) + s/width sum_c w_c (lse - z_c); each label is a class or `ignore`
extern "C" __global__ void __launch_bounds__(512) cross_entropy(
    int64 rows, int64 width, int lanes, const T* z, const int64* labels, int64 ignore, const T* w, double smoothing,
    T* loss, T* lse) {
    const Row row(lanes, width);
    row.each(rows, [&](int64 r) {
        const int64 t = r < rows ? labels[r] : ignore;
        const T* const from = z + r * width;
        const Held at(row, from, r < rows ? width : 0);
        const LogSumExp parts(at);
        const T shift = parts.shift, log_ = parts.log_;
        double total = 0;  // lse - z is computed as log_ - (z - shift), so that a large shift costs no digits of the loss
        if (smoothing != 0) total = at.total([&](int64 c, T v) { return (log_ - (v - shift)) * (w ? w[c] : T(1)); });
        if (r == rows || row.lane > 0) return;
        loss[r] = lse[r] = 0;
        if (t == ignore) return;
        lse[r] = shift + log_;
        loss[r] = T((1 - smoothing) * (w ? w[t] : T(1)) * (log_ - (from[t] - shift)) + smoothing / width * total);
    });
}

// dz = g (softmax(z) ((1 - s) w_t + s/width sum_k w_k) - (1 - s) w_t [c = t] - s/width w_c)
extern "C" __global__ void __launch_bounds__(512) cross_entropy_backward(
    int64 rows, int64 width, int lanes, const T* z, const int64* labels, int64 ignore, const T* w, double smoothing,
    const T* lse, const T* g, int64 g_stride, T* dz) {
    const Row row(lanes, width);
    const double even = smoothing / width;
    row.each(rows, [&](int64 r) {
        const int64 t = r < rows ? labels[r] : ignore;
        Held at(row, z + r * width, r < rows ? width : 0);
        T* const to = dz + r * width;
        double all = width;
        if (w && even != 0) all = at.total([&](int64 c, T) { return w[c]; });
        // lse is rounded; dividing by the sum, which would be 1 without rounding, restores the digits
        const T shift = r < rows ? lse[r] : T(0);
        const double sum_ = at.exponentials(shift), g_ = r < rows ? g[r * g_stride] : T(0);
        if (t == ignore) {
            at.each([&](int64 c, T) { to[c] = 0; });
            return;
        }
        const double label = (1 - smoothing) * (w ? w[t] : T(1));
        const T scale = T(g_ * (label + even * all) / sum_), rest = T(g_ * even), of_label = T(g_ * label);
        at.each_exponential(shift, [&](int64 c, T e) {
            T v = e * scale;
            if (even != 0) v -= w ? w[c] * rest : rest;
            to[c] = c == t ? v - of_label : v;
        });
    });
}

#endif
