// Column normalization: BatchNorm, forward and backward, on the channels of x[outer, channels, inner].
//
// A block of threads is `deep` rows by `wide` neighbours. If `inner` is long, all neighbours belong to one channel and
// traverse its plane together; if it is short, each takes a column of the matrix x[outer, channels * inner], of which a
// channel has `inner`. The rows are split into pieces that depend on the shape alone. A block that has all of a channel
// computes everything; otherwise it writes its sums to partial[2, pieces, columns], in double, and a warp per channel
// merges them. Columns do not depend on each other.

#if FLOATING

const int THREADS = 256;

struct Pair {
    T x, g;
};

// The position of a thread, and the columns and rows that its block works on next.
struct ChannelTile {
    int64 outer, channels, inner, columns, tiles;
    int wide, deep, pieces, lane, row;
    bool planes;  // whether neighbours belong to one channel

    __device__ ChannelTile(int64 outer, int64 channels, int64 inner, int wide, int pieces, bool planes)
        : outer(outer), channels(channels), inner(inner), wide(wide), pieces(pieces), planes(planes) {
        deep = THREADS / wide;
        lane = threadIdx.x % wide;
        row = threadIdx.x / wide;
        columns = planes ? channels : channels * inner;
        tiles = planes ? channels : (columns + wide - 1) / wide;
    }
    // f(column, begin, end, piece) for the rows of this thread's column, or -1 if it has none; all threads call it
    template <class F>
    __device__ void each(F f) const {
        const int64 step = (outer + pieces - 1) / pieces;
        for (int64 job = blockIdx.x; job < tiles * pieces; job += gridDim.x) {
            const int64 piece = job % pieces, tile = job / pieces, begin = piece * step;
            const int64 column = planes ? tile : tile * wide + lane;
            f(column < columns ? column : -1, begin < outer ? begin : outer, begin + step < outer ? begin + step : outer,
              piece);
        }
    }
    __device__ int64 first(int64 column) const { return planes ? column * inner : column; }
    // f(i) for this thread's elements of a column, in the given rows
    template <class F>
    __device__ void elements(int64 column, int64 begin, int64 end, F f) const {
        if (column < 0) return;
        for (int64 r = begin + row; r < end; r += deep) {
            const int64 from = r * channels * inner + first(column);
            if (planes) {
#pragma unroll 4
                for (int64 i = lane; i < inner; i += wide) f(from + i);
            } else {
                f(from);
            }
        }
    }
    // total[2] = the sums over a column, in the given rows, of what add(load(i), part) adds to part; in all threads of the
    // column. Four elements, also of different rows, are loaded before the first is added, to hide the memory's latency.
    template <class Load, class Add>
    __device__ void sums(int64 column, int64 begin, int64 end, double* total, Load load, Add add) const {
        __shared__ double shared[2][THREADS];
        T part[2] = {};
        total[0] = total[1] = 0;
        const auto flush = [&] {
            for (int k = 0; k < 2; k++) {
                total[k] += part[k];
                part[k] = 0;
            }
        };
        const int64 start = planes ? lane : 0, width = planes ? inner : 1, from = column < 0 ? 0 : first(column);
        int64 r = column < 0 || start >= width ? end : begin + row, i = start;
        for (int count = 1; r < end; count++) {
            Pair v[4];
            int loaded = 0;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (r >= end) continue;
                v[k] = load(r * channels * inner + from + i);
                loaded++;
                i += wide;
                if (i >= width) {
                    i = start;
                    r += deep;
                }
            }
#pragma unroll
            for (int k = 0; k < 4; k++) {
                if (k < loaded) add(v[k], part);
            }
            if (count % 4 == 0) flush();
        }
        flush();
        __syncthreads();
        for (int k = 0; k < 2; k++) shared[k][threadIdx.x] = total[k];
        for (int distance = THREADS / 2; distance >= (planes ? 1 : wide); distance /= 2) {
            __syncthreads();
            if (threadIdx.x >= distance) continue;
            for (int k = 0; k < 2; k++) shared[k][threadIdx.x] += shared[k][threadIdx.x + distance];
        }
        __syncthreads();
        for (int k = 0; k < 2; k++) total[k] = shared[k][planes ? 0 : lane];
    }
    // f(i, count) for the sums of the pieces and columns of a channel: their index in partial, and their number of
    // elements; the lanes of a warp divide them among themselves
    template <class F>
    __device__ void parts(int64 channel, F f) const {
        const int64 repeat = planes ? 1 : inner, step = (outer + pieces - 1) / pieces;
        for (int64 i = threadIdx.x % 32; channel >= 0 && i < pieces * repeat; i += 32) {
            const int64 begin = i / repeat * step, end = begin + step < outer ? begin + step : outer;
            if (begin < end) f(i / repeat * columns + channel * repeat + i % repeat, count(begin, end));
        }
    }
    __device__ double count(int64 begin, int64 end) const { return double(end - begin) * (planes ? inner : 1); }
};

// Whether x is true in any thread of the block
__device__ inline bool any(bool x) {
    __shared__ int found;
    __syncthreads();
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (x) found = 1;
    __syncthreads();
    return found;
}

// ---- results of the sums ----------------------------------------------------------------------------------------------

// y = (x - center) scale + offset, or dx = g scale + ((x - center) slope + offset): by[4, channels]
struct Coefficients {
    T center, scale, offset, slope;

    __device__ void write(T* by, int64 channels, int64 c) const {
        by[c] = center, by[channels + c] = scale, by[2 * channels + c] = offset, by[3 * channels + c] = slope;
    }
};

// The coefficients of a mean and rstd: the center is the mean rounded to T, and the offset includes the rounding error
__device__ inline Coefficients standard(double mean, double rstd, const T* gamma, const T* beta, int64 c) {
    const T center = T(mean);
    const double scale = gamma ? rstd * gamma[c] : rstd;
    return {center, T(scale), T((beta ? beta[c] : T(0)) - (mean - center) * scale), T(0)};
}

// The coefficients of the gradient, from the sums of g and of g (x - center). With xhat = (x - center - shift) rstd,
//   dgamma = sum of g xhat,  dbeta = sum of g,  dx = gamma rstd (g - mean(g) - xhat mean(g xhat))
// and dx = gamma rstd g if the statistics were `given`.
struct Derivative {
    double n;
    int64 channels;
    bool given;
    const T* gamma;
    const double* statistics;
    T *dgamma, *dbeta;

    __device__ T center(int64 c) const { return T(statistics[c]); }
    __device__ Coefficients operator()(int64 c, double sum, double product, bool write) const {
        const double rstd = statistics[channels + c], scale = gamma ? rstd * gamma[c] : rstd,
                     shift = statistics[c] - double(center(c)), gain = rstd * (product - shift * sum),
                     slope = -scale * rstd * gain / n;
        if (write && dgamma) dgamma[c] = T(gain);
        if (write && dbeta) dbeta[c] = T(sum);
        if (given) return {T(0), T(scale), T(0), T(0)};
        return {center(c), T(scale), T(-scale * sum / n - slope * shift), T(slope)};
    }
};

// Writes the mean and variance of a channel, and returns the coefficients of y
struct Result {
    int64 channels;
    const T *gamma, *beta;
    double eps;
    T *mean, *var;
    double* statistics;

    __device__ Coefficients operator()(int64 c, double center, double variance, bool write) const {
        const double rstd = 1 / sqrt(variance + eps);
        if (write) {
            mean[c] = T(center);
            var[c] = T(variance);
            statistics[c] = center;
            statistics[channels + c] = rstd;
        }
        return standard(center, rstd, gamma, beta, c);
    }
};

// ---- kernels ----------------------------------------------------------------------------------------------------------

// Moments: with any center c, and d = x - c,
//   mean = c + sum(d)/n,  m2 = sum(d^2) - sum(d)^2/n
// c is the mean of the first four elements. If it is so far off that the difference would cancel, a second pass uses the
// mean from the first one as its center.
extern "C" __global__ void batch_norm(int64 outer, int64 channels, int64 inner, int wide, int pieces, Bool planes,
                                      const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean, T* var,
                                      double* statistics, double* partial) {
    const ChannelTile tile(outer, channels, inner, wide, pieces, planes);
    const Result result = {channels, gamma, beta, eps, mean, var, statistics};
    tile.each([&](int64 c, int64 begin, int64 end, int64 piece) {
        const double n = tile.count(begin, end);
        T center = 0;
        if (c >= 0 && n > 0) {
            const int64 first = begin * channels * inner + tile.first(c), step = n < 4 ? 0 : planes ? 1 : channels * inner;
            for (int k = 0; k < 4; k++) center += x[first + k * step] * T(0.25);
        }
        double total[2], middle = center, m2 = 0;
        for (bool again = false;; again = true) {
            tile.sums(
                c, begin, end, total, [&](int64 i) { return Pair{x[i], T(0)}; },
                [&](const Pair& at, T* part) {
                    const T d = at.x - center;
                    part[0] += d;
                    part[1] += d * d;
                });
            const double shift = n > 0 ? total[0] / n : 0;
            m2 = total[1] - shift * total[0];
            const bool settled = shift * total[0] <= 4 * m2 || !(n > 0);
            if (m2 < 0) m2 = 0;
            if (shift * total[0] == infinity<double>()) m2 = shift * total[0];  // it was inf - inf
            middle = center + shift;
            if (again || !any(!settled)) break;
            if (!settled) center = T(middle);
        }
        const bool one = tile.row == 0 && (tile.lane == 0 || !planes);
        if (c < 0) return;
        if (partial) {
            if (!one) return;
            partial[piece * tile.columns + c] = middle;
            partial[(pieces + piece) * tile.columns + c] = m2;
        } else {
            const Coefficients by = result(c, middle, m2 / n, one);
            tile.elements(c, begin, end, [&](int64 i) { y[i] = (x[i] - by.center) * by.scale + by.offset; });
        }
    });
}

// The moments of a channel from those of its pieces and columns, one warp per channel (Chan, Golub and LeVeque 1979):
//   mean = sum of n_p mean_p / n,  m2 = sum of m2_p + n_p (mean_p - mean)^2
extern "C" __global__ void batch_norm_merge(int64 outer, int64 channels, int64 inner, int wide, int pieces, Bool planes,
                                            const T* gamma, const T* beta, double eps, T* mean, T* var,
                                            double* statistics, const double* partial, T* by) {
    const ChannelTile tile(outer, channels, inner, wide, pieces, planes);
    const Result result = {channels, gamma, beta, eps, mean, var, statistics};
    const int64 repeat = planes ? 1 : inner;
    const double n = double(outer) * inner;
    for (int64 first = blockIdx.x * (int64)(THREADS / 32); first < channels; first += gridDim.x * (int64)(THREADS / 32)) {
        const int64 c = first + threadIdx.x / 32;
        const bool here = c < channels;
        const double start = here ? partial[c * repeat] : 0;
        double middle = 0, m2 = 0;
        tile.parts(here ? c : -1, [&](int64 i, double count) { middle += count / n * (partial[i] - start); });
        team_sum<1>(32, &middle);
        middle += start;
        tile.parts(here ? c : -1, [&](int64 i, double count) {
            const double d = partial[i] - middle;
            m2 += partial[pieces * tile.columns + i] + count * (d * d);
        });
        team_sum<1>(32, &m2);
        if (here && threadIdx.x % 32 == 0) result(c, middle, m2 / n, true).write(by, channels, c);
    }
}

// The same if mean and var are given
extern "C" __global__ void batch_norm_given(int64 channels, const T* gamma, const T* beta, double eps, const T* mean,
                                            const T* var, double* statistics, T* by) {
    FOR_EACH(c, channels) {
        const double rstd = 1 / sqrt(var[c] + eps);
        statistics[c] = mean[c];
        statistics[channels + c] = rstd;
        standard(mean[c], rstd, gamma, beta, c).write(by, channels, c);
    }
}

// The sums of g and of g (x - center); if a block has all of a channel, also dx unless it is null
extern "C" __global__ void batch_norm_backward(int64 outer, int64 channels, int64 inner, int wide, int pieces,
                                               Bool planes, Bool given, const T* x, const T* gamma,
                                               const double* statistics, const T* g, T* dx, T* dgamma, T* dbeta,
                                               double* partial) {
    const ChannelTile tile(outer, channels, inner, wide, pieces, planes);
    const Derivative derivative = {double(outer) * inner, channels, bool(given), gamma, statistics, dgamma, dbeta};
    tile.each([&](int64 c, int64 begin, int64 end, int64 piece) {
        const T center = c < 0 ? T(0) : derivative.center(planes ? c : c / inner);
        double total[2] = {};
        if (!given || dgamma || dbeta) {
            tile.sums(
                c, begin, end, total, [&](int64 i) { return Pair{x[i], g[i]}; },
                [&](const Pair& at, T* part) {
                    part[0] += at.g;
                    part[1] += at.g * (at.x - center);
                });
        }
        const bool one = tile.row == 0 && (tile.lane == 0 || !planes);
        if (c < 0) return;
        if (partial) {
            for (int k = 0; one && k < 2; k++) partial[(k * pieces + piece) * tile.columns + c] = total[k];
            return;
        }
        const Coefficients by = derivative(c, total[0], total[1], one);
        if (!dx) return;
        tile.elements(c, begin, end, [&](int64 i) {
            dx[i] = given ? g[i] * by.scale : g[i] * by.scale + ((x[i] - by.center) * by.slope + by.offset);
        });
    });
}

extern "C" __global__ void batch_norm_merge_sums(int64 outer, int64 channels, int64 inner, int wide, int pieces,
                                                 Bool planes, Bool given, const T* gamma, const double* statistics,
                                                 T* dgamma, T* dbeta, const double* partial, T* by) {
    const ChannelTile tile(outer, channels, inner, wide, pieces, planes);
    const Derivative derivative = {double(outer) * inner, channels, bool(given), gamma, statistics, dgamma, dbeta};
    for (int64 first = blockIdx.x * (int64)(THREADS / 32); first < channels; first += gridDim.x * (int64)(THREADS / 32)) {
        const int64 c = first + threadIdx.x / 32;
        double total[2] = {};
        tile.parts(c < channels ? c : -1, [&](int64 i, double) {
            for (int k = 0; k < 2; k++) total[k] += partial[k * pieces * tile.columns + i];
        });
        team_sum<2>(32, total);
        if (c < channels && threadIdx.x % 32 == 0) derivative(c, total[0], total[1], true).write(by, channels, c);
    }
}

// ---- maps -------------------------------------------------------------------------------------------------------------

// y = f(x, g) with the coefficients of each channel, W neighbours at a time: of one channel, or, if inner = 1, of W
// channels
template <int W, class F>
__device__ void apply(int64 n, int64 channels, int64 inner, const T* x, const T* g, const T* by, T* y, F f) {
    const bool aligned = is_aligned(x) && is_aligned(g) && is_aligned(y), small = n < (int64(1) << 31);
    FOR_EACH(p, n / W) {
        const int64 i = p * W;
        // a 64-bit division takes many times as long as a 32-bit one
        const int64 c = small ? unsigned(i) / unsigned(inner) % unsigned(channels) : i / inner % channels;
        const Pack<W> v = Pack<W>::load(x + i, aligned), w = g ? Pack<W>::load(g + i, aligned) : v;
        Pack<W> out;
        for (int k = 0; k < W; k++) {
            const T* of = by + (inner == 1 ? c + k : c);
            out.v[k] = f(v.v[k], w.v[k], Coefficients{of[0], of[channels], of[2 * channels], of[3 * channels]});
        }
        out.store(y + i, aligned);
    }
}

template <class F>
__device__ void apply(int64 n, int64 channels, int64 inner, const T* x, const T* g, const T* by, T* y, F f) {
    if (inner % WIDE == 0 || (inner == 1 && channels % WIDE == 0))
        apply<WIDE>(n, channels, inner, x, g, by, y, f);
    else
        apply<1>(n, channels, inner, x, g, by, y, f);
}

extern "C" __global__ void batch_norm_apply(int64 n, int64 channels, int64 inner, const T* x, const T* by, T* y) {
    apply(n, channels, inner, x, 0, by, y,
          [](T x, T, const Coefficients& a) { return (x - a.center) * a.scale + a.offset; });
}

extern "C" __global__ void batch_norm_apply_backward(int64 n, int64 channels, int64 inner, Bool given, const T* x,
                                                     const T* g, const T* by, T* dx) {
    if (given)
        apply(n, channels, inner, g, 0, by, dx, [](T g, T, const Coefficients& a) { return g * a.scale; });
    else
        apply(n, channels, inner, x, g, by, dx, [](T x, T g, const Coefficients& a) {
            return g * a.scale + ((x - a.center) * a.slope + a.offset);
        });
}

#endif
