// Softmax and related operations on the rows of x[rows, width]. The maximum of each row is subtracted first.
//
// Some lanes of a warp work on a short row, a whole block on a long one, and each element belongs to the same thread
// whatever the memory alignment, so the result of a row depends on no other row. A thread keeps its part of the row in
// registers, so that memory is read once; of a row that is too long for that, some or all elements are read again. Sums
// are in double, and bitwise equal in all threads of a row.

#if FLOATING

// Elements of a row that a thread of a forward kernel holds; half as many if it loads them one by one, which needs more
// registers for each.
const int HELD = 128 / sizeof(T);
const int AT_ONCE = 4;                      // packs that it loads at once from a row that is too long to be held
const int BLOCKS = sizeof(T) == 4 ? 3 : 2;  // blocks on a multiprocessor: as many as their registers allow
const int HELD_BACKWARD = 8;                // elements of a row that a thread of a backward kernel holds

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
UNROLLED(u, HELD_BACKWARD) {
            const int64 c = lane + (int64)u * lanes;
            if (c < end) f(c, u);
        }
        for (int64 c = lane + (int64)HELD_BACKWARD * lanes; c < end; c += lanes) f(c, -1);
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

// ---- forward ----------------------------------------------------------------------------------------------------------

// sum exp x = exp(shift) sum, where shift is top, the largest element, or 0 if that is infinite and cannot be
// subtracted
struct Exponentials {
    T top, shift;
    double sum;

    __device__ void shift_to(T largest) {
        if (largest > top && sum != 0) sum *= exp(double(top) - largest);
        top = largest;
        shift = top - top == 0 ? top : T(0);
    }
};

// This thread's elements of a row, in packs of W: all of them if the row is held, otherwise a group at a time. A group
// is a run of N packs for each lane of a warp. Less than a warp works on a row only if there is a lane for each pack,
// so the steps between packs can be constant, which saves registers.
template <int W, bool held>
struct Part {
    static const int N = held ? (W == 1 ? HELD / 2 : HELD / W) : (W == 1 ? 2 * AT_ONCE : AT_ONCE), STEP = 32 * W;
    const Row& row;
    const T* from;
    int64 end;
    bool aligned;
    int begin;  // the place of the first pack in a group
    Pack<W> packs[N];

    __device__ Part(const Row& row, const T* from, int64 end, bool aligned)
        : row(row), from(from), end(end), aligned(aligned), begin(row.lane / 32 * N * STEP + row.lane % 32 * W) {
        if (held) load(0);
    }
    // The choice between the loops, rather than within one, lets all loads start before one must have ended.
    __device__ void load(int64 first) {
        if (W == 1 || aligned) {
            each(first, [&](int64 e, Pack<W>& pack) { pack = Pack<W>::load(from + e, true); });
        } else {
            each(first, [&](int64 e, Pack<W>& pack) { pack = Pack<W>::load(from + e, false); });
        }
    }
    // f(e, pack) for the packs of a group, where e is the first element of a pack
    template <class F>
    __device__ void each(int64 first, F f) {
        const int64 e = first + begin, left = end - e;
UNROLLED(i, N) {
            if (i * STEP < left) f(e + i * STEP, packs[i]);
        }
    }
    // f(first) for each group, which is loaded unless it is held
    template <class F>
    __device__ void groups(F f) {
        if constexpr (held) {
            f(0);
        } else {
            for (int64 first = 0; first < end; first += N * W * row.lanes) {
                load(first);
                f(first);
            }
        }
    }
    // The sum of the exponentials, which replace held elements if `replace`. A row that is not held is read only once:
    // when a larger element appears, exp(old - new) corrects the sum so far. The largest element ignores NaN, which the
    // sum propagates.
    template <bool replace>
    __device__ Exponentials exponentials() {
        Exponentials x = {-infinity<T>(), 0, 0};
        groups([&](int64 first) {
            T top = x.top;
            each(first, [&](int64, Pack<W>& pack) {
                for (int k = 0; k < W; k++) top = larger(pack.v[k], top);
            });
            if (held) top = row.merged(top, larger);
            x.shift_to(top);
            each(first, [&](int64, Pack<W>& pack) {
                for (int k = 0; k < W; k++) {
                    const T e = exp(pack.v[k] - x.shift);
                    x.sum += e;
                    if (replace) pack.v[k] = e;
                }
            });
        });
        if (!held) x.shift_to(row.merged(x.top, larger));
        x.sum = row.merged(x.sum, sum);
        return x;
    }
    // to[e] = f(element e), or f of the number that has replaced it
    template <class F>
    __device__ void map(T* to, F f) {
        groups([&](int64 first) {
            each(first, [&](int64 e, Pack<W>& pack) {
                Pack<W> y;
                for (int k = 0; k < W; k++) y.v[k] = f(pack.v[k]);
                y.store(to + e, aligned);
            });
        });
    }
};

// Rows that are held and rows that are not have separate kernels, so that each gets the registers it needs.
#define FORWARD(function, held, ...)                                                        \
    width % WIDE == 0 ? function<WIDE, held>(__VA_ARGS__) : function<1, held>(__VA_ARGS__);

#define SOFTMAX_PARAMETERS int64 rows, int64 width, int lanes, Bool logarithm, const T* x, T* y
#define LOGSUMEXP_PARAMETERS int64 rows, int64 width, int lanes, const T* x, T* y
#define CROSS_ENTROPY_PARAMETERS                                                                                     \
    int64 rows, int64 width, int lanes, const T* z, const int64* labels, int64 ignore, const T* w, double smoothing, \
    T* loss, T* lse

// y = exp(x - max x) / sum exp(x - max x), or its logarithm, x - log sum exp x
template <int W, bool held>
__device__ void softmax_rows(SOFTMAX_PARAMETERS) {
    const Row row(lanes, width);
    const bool aligned = is_aligned(x) && is_aligned(y);
    row.each(rows, [&](int64 r) {
        Part<W, held> part(row, x + r * width, r < rows ? width : 0, aligned);
        if (logarithm) {
            const Exponentials all = part.template exponentials<false>();
            const T log_ = log(T(all.sum));
            part.map(y + r * width, [&](T v) { return v - all.shift - log_; });
        } else {
            const Exponentials all = part.template exponentials<held>();
            const T inverse = T(1 / all.sum) + (all.top - all.top);  // NaN if the largest element is infinite
            part.map(y + r * width, [&](T v) { return (held ? v : exp(v - all.shift)) * inverse; });
        }
    });
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) softmax_held(SOFTMAX_PARAMETERS) {
    FORWARD(softmax_rows, true, rows, width, lanes, logarithm, x, y)
}
extern "C" __global__ void __launch_bounds__(512, 1) softmax_long(SOFTMAX_PARAMETERS) {
    FORWARD(softmax_rows, false, rows, width, lanes, logarithm, x, y)
}

// y[rows] = log sum exp x
template <int W, bool held>
__device__ void logsumexp_rows(LOGSUMEXP_PARAMETERS) {
    const Row row(lanes, width);
    const bool aligned = is_aligned(x);
    row.each(rows, [&](int64 r) {
        Part<W, held> part(row, x + r * width, r < rows ? width : 0, aligned);
        const Exponentials all = part.template exponentials<false>();
        if (r < rows && row.lane == 0) y[r] = all.shift + log(T(all.sum));
    });
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) logsumexp_held(LOGSUMEXP_PARAMETERS) {
    FORWARD(logsumexp_rows, true, rows, width, lanes, x, y)
}
extern "C" __global__ void __launch_bounds__(512, 1) logsumexp_long(LOGSUMEXP_PARAMETERS) {
    FORWARD(logsumexp_rows, false, rows, width, lanes, x, y)
}

// loss = (1 - s) w_t (lse - z_t) + s/width sum_c w_c (lse - z_c); each label is a class or `ignore`
template <int W, bool held>
__device__ void cross_entropy_rows(CROSS_ENTROPY_PARAMETERS) {
    const Row row(lanes, width);
    const bool aligned = is_aligned(z);
    row.each(rows, [&](int64 r) {
        const int64 t = r < rows ? labels[r] : ignore;
        const T* const from = z + r * width;
        Part<W, held> part(row, from, r < rows ? width : 0, aligned);
        const Exponentials all = part.template exponentials<false>();
        const T shift = all.shift, log_ = log(T(all.sum));
        double total = 0;  // lse - z is computed as log_ - (z - shift), so that a large shift costs no digits of the loss
        if (smoothing != 0) {
            part.groups([&](int64 first) {
                part.each(first, [&](int64 e, Pack<W>& pack) {
                    for (int k = 0; k < W; k++) total += (log_ - (pack.v[k] - shift)) * (w ? w[e + k] : T(1));
                });
            });
            total = row.merged(total, sum);
        }
        if (r == rows || row.lane > 0) return;
        loss[r] = lse[r] = 0;
        if (t == ignore) return;
        lse[r] = shift + log_;
        loss[r] = T((1 - smoothing) * (w ? w[t] : T(1)) * (log_ - (from[t] - shift)) + smoothing / width * total);
    });
}

extern "C" __global__ void __launch_bounds__(256, BLOCKS) cross_entropy_held(CROSS_ENTROPY_PARAMETERS) {
    FORWARD(cross_entropy_rows, true, rows, width, lanes, z, labels, ignore, w, smoothing, loss, lse)
}
extern "C" __global__ void __launch_bounds__(512, 1) cross_entropy_long(CROSS_ENTROPY_PARAMETERS) {
    FORWARD(cross_entropy_rows, false, rows, width, lanes, z, labels, ignore, w, smoothing, loss, lse)
}

// ---- backward ---------------------------------------------------------------------------------------------------------

// A row of which a thread keeps HELD_BACKWARD elements.
struct Held {
    const Row& row;
    const T* x;
    int64 end;
    T value[HELD_BACKWARD];

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
