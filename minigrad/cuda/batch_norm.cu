// Column normalization: BatchNorm, forward and backward, on the channels of x[outer, channels, inner].
//
// A block of threads is `deep` rows by `wide` neighbours. If `inner` is long, all neighbours belong to one channel and
// traverse its plane together; if it is short, each takes a column of the matrix x[outer, channels * inner], of which a
// channel has `inner`. The rows are split into pieces that depend on the shape alone. A block that has all of a channel
// computes everything; otherwise it writes its sums to partial[2, pieces, columns], in double, and a warp per channel
// merges them. Columns do not depend on each other, nor on how many of them a thread reads at once.

#if FLOATING

const int THREADS = 256;

// The position of a thread, and the columns and rows that its block works on next. A thread reads W columns at once; W
// = 1 if neighbours belong to one channel.
template <int W>
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
        tiles = planes ? channels : (columns + wide * W - 1) / (wide * W);
    }
    // f(column, begin, end, piece) for the rows of this thread's first column, or -1 if it has none; all threads call
    // it
    template <class F>
    __device__ void each(F f) const {
        const int64 step = (outer + pieces - 1) / pieces;
        for (int64 job = blockIdx.x; job < tiles * pieces; job += gridDim.x) {
            const int64 piece = quotient(job, tiles), tile = job - piece * tiles, begin = piece * step;
            const int64 column = planes ? tile : (tile * wide + lane) * W;
            f(column < columns ? column : -1, begin < outer ? begin : outer, begin + step < outer ? begin + step : outer,
              piece);
        }
    }
    __device__ int64 first(int64 column) const { return planes ? column * inner : column; }
    __device__ int64 channel(int64 column) const { return planes ? column : quotient(column, inner); }
    // f(places, count) for this thread's packs of a column, in the given rows: the indices of their first elements,
    // several at a time so that they are loaded together; the last ones may be fewer, and the others are the first
    // again
    template <int several, class F>
    __device__ void places(int64 column, int64 begin, int64 end, F f) const {
        const int64 start = planes ? lane : 0, width = planes ? inner : 1, down = deep * channels * inner;
        int64 r = column < 0 || start >= width ? end : begin + row, i = start;
        int64 place = r * channels * inner + (column < 0 ? 0 : first(column)) + i;
        while (r < end) {
            int64 found[several];
            int count = 0;
UNROLLED(k, several) {
                found[k] = r < end ? place : found[0];
                if (r >= end) continue;
                count++;
                i += wide;
                place += wide;
                if (i >= width) {
                    place += down - i + start;
                    i = start;
                    r += deep;
                }
            }
            f(found, count);
        }
    }
    // total[2][W] = the sums over W columns, in the given rows, of what add(load(i), part) adds to part[2][W]; in all
    // threads of the columns
    template <int several, class Load, class Add>
    __device__ void sums(int64 column, int64 begin, int64 end, double (&total)[2][W], Load load, Add add) const {
        __shared__ double shared[2][W][THREADS];
        T part[2][W] = {};
        const auto flush = [&] {
            both([&](int k, int j) {
                shared[k][j][threadIdx.x] += part[k][j];
                part[k][j] = 0;
            });
        };
        __syncthreads();
        both([&](int k, int j) { shared[k][j][threadIdx.x] = 0; });
        int turn = 1;
        places<several>(column, begin, end, [&](const int64 (&found)[several], int count) {
            decltype(load(0)) v[several];
UNROLLED(k, several) v[k] = load(found[k]);
UNROLLED(k, several) {
                if (k < count) add(v[k], part);
            }
            if (turn++ % (16 / several) == 0) flush();
        });
        flush();
        for (int distance = THREADS / 2; distance >= (planes ? 1 : wide); distance /= 2) {
            __syncthreads();
            if (threadIdx.x >= distance) continue;
            both([&](int k, int j) { shared[k][j][threadIdx.x] += shared[k][j][threadIdx.x + distance]; });
        }
        __syncthreads();
        both([&](int k, int j) { total[k][j] = shared[k][j][planes ? 0 : lane]; });
    }
    // f(k, j) for both sums over each of W columns
    template <class F>
    static __device__ void both(F f) {
UNROLLED(k, 2) {
UNROLLED(j, W) f(k, j);
        }
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

    __device__ T standard(T x) const { return (x - center) * scale + offset; }
    __device__ T derivative(T x, T g) const { return g * scale + ((x - center) * slope + offset); }
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

#define TILE_PARAMETERS int64 outer, int64 channels, int64 inner, int wide, int pieces, Bool planes
#define TILE ChannelTile<1>(outer, channels, inner, wide, pieces, planes)

// Moments: with any center c, and d = x - c,
//   mean = c + sum(d)/n,  m2 = sum(d^2) - sum(d)^2/n
// c is the mean of the first four elements. If it is so far off that the difference would cancel, a second pass uses
// the mean from the first one as its center.
template <int W>
__device__ void moments(const ChannelTile<W>& tile, const Result& result, const T* x, T* y, double* partial) {
    const bool aligned = is_aligned(x);
    const auto load = [&](int64 i) { return Pack<W>::load(x + i, aligned); };
    tile.each([&](int64 c, int64 begin, int64 end, int64 piece) {
        const double n = tile.count(begin, end);
        T center[W] = {};
        if (c >= 0 && n > 0) {
            const int64 row = tile.channels * tile.inner, step = n < 4 ? 0 : tile.planes ? 1 : row;
            for (int k = 0; k < 4; k++) {
                const Pack<W> v = load(begin * row + tile.first(c) + k * step);
                for (int j = 0; j < W; j++) center[j] += v.v[j] * T(0.25);
            }
        }
        double total[2][W], middle[W], m2[W];
        for (bool again = false;; again = true) {
            tile.template sums<4>(c, begin, end, total, load, [&](const Pack<W>& v, T (*part)[W]) {
                for (int j = 0; j < W; j++) {
                    const T d = v.v[j] - center[j];
                    part[0][j] += d;
                    part[1][j] += d * d;
                }
            });
            bool settled = true;
UNROLLED(j, W) {
                const double shift = n > 0 ? total[0][j] / n : 0, square = shift * total[0][j];
                m2[j] = total[1][j] - square;
                middle[j] = center[j] + shift;
                if (!(square <= 4 * m2[j] || !(n > 0))) {
                    settled = false;
                    if (!again) center[j] = T(middle[j]);
                }
                if (m2[j] < 0) m2[j] = 0;
                if (square == infinity<double>()) m2[j] = square;  // it was inf - inf
            }
            if (again || !any(!settled)) break;
        }
        const bool one = tile.row == 0 && (tile.lane == 0 || !tile.planes);
        if (c < 0) return;
        if (partial) {
UNROLLED(j, W) {
                if (!one) continue;
                partial[piece * tile.columns + c + j] = middle[j];
                partial[(tile.pieces + piece) * tile.columns + c + j] = m2[j];
            }
        } else if constexpr (W == 1) {
            const Coefficients by = result(tile.channel(c), middle[0], m2[0] / n, one);
            tile.template places<4>(c, begin, end, [&](const int64 (&found)[4], int count) {
                T v[4];
UNROLLED(k, 4) v[k] = x[found[k]];
UNROLLED(k, 4) {
                    if (k < count) y[found[k]] = by.standard(v[k]);
                }
            });
        }
    });
}

extern "C" __global__ void batch_norm(TILE_PARAMETERS,
                                      const T* x, const T* gamma, const T* beta, double eps, T* y, T* mean, T* var,
                                      double* statistics, double* partial) {
    const ChannelTile<1> tile = TILE;
    moments(tile, Result{channels, gamma, beta, eps, mean, var, statistics}, x, y, partial);
}

// The same for packs of columns, of which no block has all
extern "C" __global__ void __launch_bounds__(256, 3) batch_norm_packs(int64 outer, int64 channels, int64 inner, int wide, int pieces,
                                            const T* x, double* partial) {
    moments(ChannelTile<WIDE>(outer, channels, inner, wide, pieces, false), Result(), x, nullptr, partial);
}

// The moments of a channel, merged over its pieces and columns by one warp (Chan, Golub and LeVeque 1979):
//   mean = sum of n_p mean_p / n,  m2 = sum of m2_p + n_p (mean_p - mean)^2
extern "C" __global__ void batch_norm_merge(TILE_PARAMETERS,
                                            const T* gamma, const T* beta, double eps, T* mean, T* var,
                                            double* statistics, const double* partial, T* by) {
    const ChannelTile<1> tile = TILE;
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

template <int W>
struct Both {
    Pack<W> x, g;
};

// The sums of g and of g (x - center); if a block has all of a channel, also dx unless it is null
template <int W>
__device__ void derivatives(const ChannelTile<W>& tile, const Derivative& derivative, const T* x, const T* g, T* dx,
                            double* partial) {
    const bool aligned = is_aligned(x) && is_aligned(g), given = derivative.given;
    const auto load = [&](int64 i) { return Both<W>{Pack<W>::load(x + i, aligned), Pack<W>::load(g + i, aligned)}; };
    tile.each([&](int64 c, int64 begin, int64 end, int64 piece) {
        T center[W];
        for (int j = 0; j < W; j++) center[j] = c < 0 ? T(0) : derivative.center(tile.channel(c + j));
        double total[2][W] = {};
        if (!given || derivative.dgamma || derivative.dbeta) {
            tile.template sums<W == 1 ? 4 : 2>(c, begin, end, total, load, [&](const Both<W>& at, T (*part)[W]) {
                for (int j = 0; j < W; j++) {
                    part[0][j] += at.g.v[j];
                    part[1][j] += at.g.v[j] * (at.x.v[j] - center[j]);
                }
            });
        }
        const bool one = tile.row == 0 && (tile.lane == 0 || !tile.planes);
        if (c < 0) return;
        if (partial) {
            tile.both([&](int k, int j) {
                if (one) partial[(k * tile.pieces + piece) * tile.columns + c + j] = total[k][j];
            });
        } else if constexpr (W == 1) {
            const Coefficients by = derivative(tile.channel(c), total[0][0], total[1][0], one);
            if (!dx) return;
            tile.template places<4>(c, begin, end, [&](const int64 (&found)[4], int count) {
                Both<W> v[4];
UNROLLED(k, 4) v[k] = load(found[k]);
UNROLLED(k, 4) {
                    const T x = v[k].x.v[0], g = v[k].g.v[0];
                    if (k < count) dx[found[k]] = given ? g * by.scale : by.derivative(x, g);
                }
            });
        }
    });
}

extern "C" __global__ void batch_norm_backward(TILE_PARAMETERS, Bool given, const T* x, const T* gamma,
                                               const double* statistics, const T* g, T* dx, T* dgamma, T* dbeta,
                                               double* partial) {
    const ChannelTile<1> tile = TILE;
    const Derivative derivative = {double(outer) * inner, channels, bool(given), gamma, statistics, dgamma, dbeta};
    derivatives(tile, derivative, x, g, dx, partial);
}

// The same for packs of columns, of which no block has all
extern "C" __global__ void __launch_bounds__(256, 3) batch_norm_packs_backward(int64 outer, int64 channels, int64 inner, int wide, int pieces,
                                                     const T* x, const double* statistics, const T* g,
                                                     double* partial) {
    const ChannelTile<WIDE> tile(outer, channels, inner, wide, pieces, false);
    derivatives(tile, Derivative{0, channels, false, nullptr, statistics, nullptr, nullptr}, x, g, nullptr, partial);
}

extern "C" __global__ void batch_norm_merge_sums(TILE_PARAMETERS, Bool given, const T* gamma, const double* statistics,
                                                 T* dgamma, T* dbeta, const double* partial, T* by) {
    const ChannelTile<1> tile = TILE;
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

// y = f(x, g) with the coefficients of each channel. A thread works on four rows of W neighbours: of one channel, or,
// if inner = 1, of W channels. It begins at the end, which has just been read for the sums and may still be in the
// cache.
template <int W, class F>
__device__ void apply(int64 outer, int64 channels, int64 inner, const T* x, const T* g, const T* by, T* y, F f) {
    const bool aligned = is_aligned(x) && is_aligned(g) && is_aligned(y);
    const int64 width = channels * inner / W, n = (outer + 3) / 4 * width;
    FOR_EACH(i, n) {
        const int64 rows = quotient(n - 1 - i, width), column = (n - 1 - i - rows * width) * W;
        const int64 c = inner == 1 ? column : quotient(column, inner), first = rows * 4 * channels * inner + column;
        const int count = outer - rows * 4 < 4 ? int(outer - rows * 4) : 4;
        Pack<W> v[4], w[4], of[4];
UNROLLED(k, 4) {
            const int64 place = first + (k < count ? k * channels * inner : 0);
            v[k] = Pack<W>::load(x + place, aligned);
            w[k] = g ? Pack<W>::load(g + place, aligned) : v[k];
        }
UNROLLED(k, 4) {
            if (inner == 1)
                of[k] = Pack<W>::load(by + k * channels + c, true);
            else
                for (int j = 0; j < W; j++) of[k].v[j] = by[k * channels + c];
        }
UNROLLED(k, 4) {
            if (k >= count) break;
            for (int j = 0; j < W; j++)
                v[k].v[j] = f(v[k].v[j], w[k].v[j], Coefficients{of[0].v[j], of[1].v[j], of[2].v[j], of[3].v[j]});
            v[k].store(y + first + k * channels * inner, aligned);
        }
    }
}

template <class F>
__device__ void apply(int64 outer, int64 channels, int64 inner, const T* x, const T* g, const T* by, T* y, F f) {
    if (inner % WIDE == 0 || (inner == 1 && channels % WIDE == 0))
        apply<WIDE>(outer, channels, inner, x, g, by, y, f);
    else
        apply<1>(outer, channels, inner, x, g, by, y, f);
}

extern "C" __global__ void batch_norm_apply(int64 outer, int64 channels, int64 inner, const T* x, const T* by, T* y) {
    apply(outer, channels, inner, x, 0, by, y, [](T x, T, const Coefficients& a) { return a.standard(x); });
}

extern "C" __global__ void __launch_bounds__(256, 3) batch_norm_apply_backward(int64 outer, int64 channels, int64 inner, Bool given, const T* x,
                                                     const T* g, const T* by, T* dx) {
    if (given)
        apply(outer, channels, inner, g, 0, by, dx, [](T g, T, const Coefficients& a) { return g * a.scale; });
    else
        apply(outer, channels, inner, x, g, by, dx, [](T x, T g, const Coefficients& a) { return a.derivative(x, g); });
}

#endif
