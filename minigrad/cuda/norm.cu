// Row normalization, forward and backward: LayerNorm, RMSNorm, GroupNorm and InstanceNorm on x[rows, width].
//
// A team of threads works on a row, and each element belongs to the same thread whatever the memory alignment, so the
// result of a row depends on no other row. Deviations are taken from a T near the mean and corrected afterwards, so a
// row keeps its digits even if a T cannot represent its mean. A team holds a row in registers between the passes;
// rows that are too long for that are read again. `centered` is false for RMSNorm, which does not subtract the mean.

#if FLOATING

// Elements of a row that a thread holds; half as many if it loads them one by one, which needs more registers for each.
const int HELD = 128 / sizeof(T);
const int HELD_BACKWARD = 64 / sizeof(T);  // elements of x, and as many of g and of the sums for gamma and beta
const int MOST_THREADS = 512;

// This thread's elements of its team's row, in packs of W
template <int W, int most, bool held>
struct Row {
    static const int N = W == 1 ? most / 2 : most / W;
    const T* from;
    int64 width;
    int lane, lanes;
    bool aligned;
    Pack<W> packs[held ? N : 1];

    __device__ Row(const T* from, int64 width, int lane, int lanes, bool aligned)
        : from(from), width(width), lane(lane), lanes(lanes), aligned(aligned) {
        if constexpr (held) {
UNROLLED(i, N) {
                const int e = (i * lanes + lane) * W;
                if (e < width) packs[i] = Pack<W>::load(from + e, aligned);
            }
        }
    }
    // f(e, pack, i) for this thread's packs, of which the i-th begins at element e
    template <class F>
    __device__ void each(F f) const {
        if constexpr (held) {
UNROLLED(i, N) {
                const int e = (i * lanes + lane) * W;
                if (e < width) f(e, packs[i], i);
            }
        } else {
            for (int64 e = lane * W; e < width; e += lanes * W) f(e, Pack<W>::load(from + e, aligned), 0);
        }
    }
    // total[count] = the sums over the row of what f(e, pack, i, part) adds to part
    template <int count, class F>
    __device__ void sum(double* total, F f) const {
        for (int k = 0; k < count; k++) total[k] = 0;
        if constexpr (held) {
            T part[count] = {};
            each([&](int64 e, const Pack<W>& pack, int i) { f(e, pack, i, part); });
            for (int k = 0; k < count; k++) total[k] = part[k];
        } else {
            add_up<count>(lane * W, width, lanes * W, total,
                          [&](int64 e, T* part) { f(e, Pack<W>::load(from + e, aligned), 0, part); });
        }
        team_sum<count>(lanes, total);
    }
};

// The part of gamma or beta that a thread needs: one per element of a row, or one per `inner` elements
template <int W, bool held, bool channels>
__device__ inline Pack<W> parameter(const T* p, int64 e, int64 inner, T missing) {
    Pack<W> y;
    if (!p) {
        for (int k = 0; k < W; k++) y.v[k] = missing;
    } else if constexpr (channels) {
        const unsigned n = inner;
        if (!held && (n != inner || unsigned(e) != e)) {
            for (int k = 0; k < W; k++) y.v[k] = p[(e + k) / inner];
        } else if (n % W == 0) {
            for (int k = 0; k < W; k++) y.v[k] = p[unsigned(e) / n];
        } else {
            for (int k = 0; k < W; k++) y.v[k] = p[unsigned(e + k) / n];
        }
    } else {
        y = Pack<W>::load(p + e, is_aligned(p));
    }
    return y;
}

// ---- forward ----------------------------------------------------------------------------------------------------------

#define NORM_PARAMETERS                                                                                              \
    int64 rows, int64 width, int64 groups, int64 inner, int lanes, const T* x, const T* gamma, const T* beta, double \
    eps, T* y, void* mean, void* rstd

//   mean = sum(x)/width,  rstd = 1/sqrt(sum((x - mean)^2)/width + eps),  y = (x - mean) rstd gamma + beta
// With any center c, and d = x - c:  mean = c + sum(d)/width,  variance = sum(d^2)/width - (sum(d)/width)^2,  without
// cancellation if c is near the mean: the first pass finds the mean from deviations from x[0], the second uses it as c.
template <int W, bool held, bool centered, bool channels>
__device__ void norm(NORM_PARAMETERS) {
    const int lane = threadIdx.x % lanes, teams = blockDim.x / lanes;
    const int64 m = channels ? width / inner : width;
    const double per_element = 1.0 / width;
    const bool aligned = is_aligned(x) && is_aligned(y);
    for (int64 first = blockIdx.x * (int64)teams; first < rows; first += gridDim.x * (int64)teams) {
        const int64 r = first + threadIdx.x / lanes;
        const bool here = r < rows;
        const Row<W, HELD, held> row(x + r * width, here ? width : 0, lane, lanes, aligned);
        T center = here && centered ? x[r * width] : T(0);
        double total[2], shift = 0, variance;
        if constexpr (centered) {
            row.template sum<1>(total, [&](int64, const Pack<W>& v, int, T* part) {
                for (int k = 0; k < W; k++) part[0] += v.v[k] - center;
            });
            center = T(center + total[0] * per_element);
            row.template sum<2>(total, [&](int64, const Pack<W>& v, int, T* part) {
                for (int k = 0; k < W; k++) {
                    const T d = v.v[k] - center;
                    part[0] += d;
                    part[1] += d * d;
                }
            });
            shift = total[0] * per_element;
            variance = total[1] * per_element - shift * shift;
            if (variance < 0) variance = 0;
            if (shift * shift == infinity<double>()) variance = shift * shift;  // it was inf - inf
        } else {
            row.template sum<1>(total, [&](int64, const Pack<W>& v, int, T* part) {
                for (int k = 0; k < W; k++) part[0] += v.v[k] * v.v[k];
            });
            variance = total[0] * per_element;
        }
        const T scale = 1 / sqrt(T(variance + eps)), offset = T(-shift * scale);
        if (here && lane == 0) {
            if (groups == 1 && inner == 1) {
                if (centered) ((T*)mean)[r] = T(center + shift);
                ((T*)rstd)[r] = scale;
            } else {
                ((double*)mean)[r] = center + shift;
                ((double*)rstd)[r] = 1 / sqrt(variance + eps);
            }
        }
        const int64 from = groups == 1 ? 0 : (r - quotient(r, groups) * groups) * m;  // its group's parameters
        const T *gain = gamma ? gamma + from : gamma, *rise = beta ? beta + from : beta;
        row.each([&](int64 e, const Pack<W>& v, int) {
            const Pack<W> by = parameter<W, held, channels>(gain, e, inner, 1);
            const Pack<W> plus = parameter<W, held, channels>(rise, e, inner, 0);
            Pack<W> out;
            for (int k = 0; k < W; k++) {
                const T hat = centered ? (v.v[k] - center) * scale + offset : v.v[k] * scale;
                out.v[k] = hat * by.v[k] + plus.v[k];
            }
            out.store(y + r * width + e, aligned);
        });
    }
}

// gamma and beta are [groups, width / inner]; row r belongs to group r % groups. Statistics are written in T if groups
// and inner are 1, otherwise in double. There are separate kernels for rows that are held, for held rows that are no
// multiple of 16 bytes, and for rows that are not held, and for parameters per element and per channel: each gets the
// registers it needs.
#define NORM(W, ...) norm<W, __VA_ARGS__>(rows, width, groups, inner, lanes, x, gamma, beta, eps, y, mean, rstd)
#define NORM_LONG(...)                  \
    if (width % WIDE == 0)              \
        NORM(WIDE, false, __VA_ARGS__); \
    else                                \
        NORM(1, false, __VA_ARGS__);

extern "C" __global__ void __launch_bounds__(256, 3) norm_held(NORM_PARAMETERS) { NORM(WIDE, true, true, false); }
extern "C" __global__ void __launch_bounds__(256, 2) norm_odd(NORM_PARAMETERS) { NORM(1, true, true, false); }
extern "C" __global__ void __launch_bounds__(512, 2) norm_long(NORM_PARAMETERS) { NORM_LONG(true, false) }
extern "C" __global__ void __launch_bounds__(256, 3) rms_held(NORM_PARAMETERS) { NORM(WIDE, true, false, false); }
extern "C" __global__ void __launch_bounds__(256, 2) rms_odd(NORM_PARAMETERS) { NORM(1, true, false, false); }
extern "C" __global__ void __launch_bounds__(512, 2) rms_long(NORM_PARAMETERS) { NORM_LONG(false, false) }
extern "C" __global__ void __launch_bounds__(256, 3) group_held(NORM_PARAMETERS) { NORM(WIDE, true, true, true); }
extern "C" __global__ void __launch_bounds__(256, 2) group_odd(NORM_PARAMETERS) { NORM(1, true, true, true); }
extern "C" __global__ void __launch_bounds__(512, 2) group_long(NORM_PARAMETERS) { NORM_LONG(true, true) }

// ---- backward ---------------------------------------------------------------------------------------------------------

// With h = g gamma, d = x - mean and xhat = d rstd, and means over the row,
//   dx = rstd (h - mean(h) - xhat mean(h xhat)),  dgamma += g xhat,  dbeta += g
// If the row is not centered, mean = 0 and mean(h) is left out. `shift` is the rounding error of the mean:
//   xhat = d scale + offset,  dx = (h - middle) scale + d slope + constant
// fma() makes each product h as exact as in the mean of h, so that a row of one element has no gradient.
struct Slopes {
    T scale, offset, slope, middle, constant;

    // from the means of h and of h d
    __device__ Slopes(double rstd, double shift, double h, double hd) {
        const double k = rstd * rstd * rstd * (hd - shift * h);
        scale = T(rstd), offset = T(-shift * rstd), slope = T(-k), middle = T(h);
        constant = T(shift * k - rstd * (h - middle));
    }
    // dx, given h - middle and d
    __device__ T operator()(T h, T d) const { return h * scale + (d * slope + constant); }
};

#define BACKWARD_PARAMETERS                                                                                          \
    int64 rows, int64 width, int lanes, const T* x, const T* gamma, const T* mean, const T* rstd, const T* g, T* dx, \
    T* partial

// partial[blocks, 2 or 1, width]: the sums of a block's rows for dgamma and, if centered, dbeta; null if not wanted
template <int W, bool held, bool centered>
__device__ void norm_backward(BACKWARD_PARAMETERS, T (*scratch)[MOST_THREADS + 1]) {
    typedef Row<W, HELD_BACKWARD, held> Part;
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes, teams = blockDim.x / lanes;
    const bool aligned = is_aligned(x) && is_aligned(g) && is_aligned(dx);
    T* mine = partial ? partial + blockIdx.x * width * (centered ? 2 : 1) : partial;
    const double per_element = 1.0 / width;
    T sums[Part::N * W] = {};  // for dgamma; the sums for dbeta are in shared memory, as the registers do not suffice
    if (held && centered) {
        for (int i = 0; i < Part::N * W; i++) scratch[i][threadIdx.x] = 0;
    }
    for (int64 first = blockIdx.x * (int64)teams; first < rows; first += gridDim.x * (int64)teams) {
        const int64 r = first + team;
        const bool here = r < rows;
        const Part row(x + r * width, here ? width : 0, lane, lanes, aligned);
        const Part of(g + r * width, here ? width : 0, lane, lanes, aligned);
        const T center = here && centered ? mean[r] : T(0), spread = here ? rstd[r] : T(0);
        const auto cotangent = [&](int64 e, int i) {
            return held ? of.packs[i] : Pack<W>::load(g + r * width + e, aligned);
        };
        double total[3] = {};
        row.template sum<centered ? 3 : 1>(total, [&](int64 e, const Pack<W>& v, int i, T* part) {
            const Pack<W> by = parameter<W, held, false>(gamma, e, 1, 1), c = cotangent(e, i);
            for (int k = 0; k < W; k++) {
                const T d = v.v[k] - center, h = fma(c.v[k], by.v[k], -T(0));
                part[0] += h * d;
                if (centered) {
                    part[1] += d;
                    part[2] += h;
                }
            }
        });
        const Slopes s(spread, total[1] * per_element, total[2] * per_element, total[0] * per_element);
        row.each([&](int64 e, const Pack<W>& v, int i) {
            const Pack<W> by = parameter<W, held, false>(gamma, e, 1, 1), c = cotangent(e, i);
            Pack<W> out, more[2] = {};  // a row that is not held is of the block's only team, which adds to its sums
            if (!held && mine && first != blockIdx.x) {
                for (int k = 0; k < (centered ? 2 : 1); k++) more[k] = Pack<W>::load(mine + k * width + e, true);
            }
            for (int k = 0; k < W; k++) {
                const T d = v.v[k] - center, share = c.v[k] * (d * s.scale + s.offset);
                out.v[k] = s(fma(c.v[k], by.v[k], -T(0)) - s.middle, d);
                if constexpr (held) {
                    sums[i * W + k] += share;
                    if (centered) scratch[i * W + k][threadIdx.x] += c.v[k];
                } else {
                    more[0].v[k] += share;
                    more[1].v[k] += c.v[k];
                }
            }
            if (!held && mine) {
                for (int k = 0; k < (centered ? 2 : 1); k++) more[k].store(mine + k * width + e, true);
            }
            if (dx) out.store(dx + r * width + e, aligned);
        });
    }
    if constexpr (held) {
        if (!mine) return;
        for (int which = centered; which >= 0; which--) {
            __syncthreads();
            if (which == 0) {
                for (int i = 0; i < Part::N * W; i++) scratch[i][threadIdx.x] = sums[i];
                __syncthreads();
            }
            for (int e = threadIdx.x; e < width; e += blockDim.x) {
                const T* part = scratch[e / W / lanes * W + e % W] + e / W % lanes;
                T sum = 0;
                for (int k = 0; k < teams; k++) sum += part[k * lanes];
                mine[which * width + e] = sum;
            }
        }
    }
}

// Blocks have up to 512 threads; the bounds let five blocks of 128 run on a multiprocessor. The scratch has an extra
// column, so that neighbours in a column are in different banks.
#define BACKWARD(...) norm_backward<__VA_ARGS__>(rows, width, lanes, x, gamma, mean, rstd, g, dx, partial, scratch)
#define BACKWARD_HELD(...)                                 \
    __shared__ T scratch[HELD_BACKWARD][MOST_THREADS + 1]; \
    BACKWARD(__VA_ARGS__);
#define BACKWARD_LONG(centered)                    \
    T(*const scratch)[MOST_THREADS + 1] = nullptr; \
    if (width % WIDE == 0)                         \
        BACKWARD(WIDE, false, centered);           \
    else                                           \
        BACKWARD(1, false, centered);

extern "C" __global__ void __launch_bounds__(640, 1) norm_held_backward(BACKWARD_PARAMETERS) { BACKWARD_HELD(WIDE, true, true) }
extern "C" __global__ void __launch_bounds__(640, 1) norm_odd_backward(BACKWARD_PARAMETERS) { BACKWARD_HELD(1, true, true) }
extern "C" __global__ void __launch_bounds__(512, 2) norm_long_backward(BACKWARD_PARAMETERS) { BACKWARD_LONG(true) }
extern "C" __global__ void __launch_bounds__(640, 1) rms_held_backward(BACKWARD_PARAMETERS) { BACKWARD_HELD(WIDE, true, false) }
extern "C" __global__ void __launch_bounds__(640, 1) rms_odd_backward(BACKWARD_PARAMETERS) { BACKWARD_HELD(1, true, false) }
extern "C" __global__ void __launch_bounds__(512, 2) rms_long_backward(BACKWARD_PARAMETERS) { BACKWARD_LONG(false) }

// The same for rows of m channels with one gamma and one beta each, a block per row. Teams first compute the sums of g
// and of g d over each channel, which are also the row's part of dbeta and dgamma, partial[rows / groups, 2, groups *
// m]. When the block reads the row again for dx, it is still in the cache.
template <int W>
__device__ void channels_backward(int64 rows, int64 groups, int64 m, int64 inner, int lanes, const T* x, const T* gamma,
                                  const double* mean, const double* rstd, const T* g, T* dx, double* partial) {
    const int lane = threadIdx.x % lanes, team = threadIdx.x / lanes, teams = blockDim.x / lanes;
    const bool aligned = is_aligned(x) && is_aligned(g) && is_aligned(dx);
    for (int64 r = blockIdx.x; r < rows; r += gridDim.x) {
        const int64 width = m * inner;
        const T *row = x + r * width, *given = g + r * width, *gain = gamma ? gamma + r % groups * m : gamma;
        const T center = T(mean[r]);
        const double s = rstd[r], shift = mean[r] - center;
        double h[2] = {};  // the sums of h and of h d over the row
        for (int64 first = 0; first < m; first += teams) {
            const int64 c = first + team;
            double total[2] = {};
            if (c < m) {
                add_up<2>(c * inner + lane * W, (c + 1) * inner, lanes * W, total, [&](int64 e, T* part) {
                    const Pack<W> v = Pack<W>::load(row + e, aligned), w = Pack<W>::load(given + e, aligned);
                    for (int k = 0; k < W; k++) {
                        part[0] += w.v[k];
                        part[1] += w.v[k] * (v.v[k] - center);
                    }
                });
            }
            team_sum<2>(lanes, total);
            if (c >= m || lane > 0) continue;
            double* place = partial + (r / groups * 2 * groups + r % groups) * m + c;
            place[0] = s * (total[1] - shift * total[0]);
            place[groups * m] = total[0];
            for (int k = 0; k < 2; k++) h[k] += (gain ? gain[c] : T(1)) * total[k];
        }
        team_sum<2>(blockDim.x, h);
        if (!dx) continue;
        const Slopes slopes(s, shift, h[0] / width, h[1] / width);
        for (int64 c = team; c < m; c += teams) {
            const T by = gain ? gain[c] : T(1);
            for (int64 e = c * inner + lane * W; e < (c + 1) * inner; e += lanes * W) {
                const Pack<W> v = Pack<W>::load(row + e, aligned), w = Pack<W>::load(given + e, aligned);
                Pack<W> out;
                for (int i = 0; i < W; i++) {
                    // The products in the mean of h are exact if T is float, and else rounded.
                    const T h = SINGLE ? fma(w.v[i], by, -slopes.middle) : fma(w.v[i], by, -T(0)) - slopes.middle;
                    out.v[i] = slopes(h, v.v[i] - center);
                }
                out.store(dx + r * width + e, aligned);
            }
        }
    }
}

extern "C" __global__ void group_backward(int64 rows, int64 groups, int64 m, int64 inner, int lanes, const T* x,
                                          const T* gamma, const double* mean, const double* rstd, const T* g, T* dx,
                                          double* partial) {
    if (inner % WIDE == 0)
        channels_backward<WIDE>(rows, groups, m, inner, lanes, x, gamma, mean, rstd, g, dx, partial);
    else
        channels_backward<1>(rows, groups, m, inner, lanes, x, gamma, mean, rstd, g, dx, partial);
}

// ---- sums over rows ---------------------------------------------------------------------------------------------------

// dgamma and dbeta from partial[n, width], whose first `count` columns belong to dgamma. A block sums `wide` columns;
// each of the `deep` = blockDim / wide threads of a column takes every deep-th row.
template <class P>
__device__ void add_rows(int64 n, int64 width, int64 count, int wide, const P* partial, T* dgamma, T* dbeta) {
    __shared__ double sums[1024];
    const int deep = blockDim.x / wide, row = threadIdx.x / wide;
    for (int64 first = blockIdx.x * (int64)wide; first < width; first += gridDim.x * (int64)wide) {
        const int64 c = first + threadIdx.x % wide;
        double sum = 0;
        if (c < width) {
#pragma unroll 8
            for (int64 i = row; i < n; i += deep) sum += partial[i * width + c];
        }
        __syncthreads();
        sums[threadIdx.x] = sum;
        for (int distance = deep / 2; distance > 0; distance /= 2) {
            __syncthreads();
            if (row < distance) sums[threadIdx.x] += sums[threadIdx.x + distance * wide];
        }
        T* out = c < count ? dgamma : dbeta;
        if (row == 0 && c < width && out) out[c < count ? c : c - count] = T(sums[threadIdx.x]);
    }
}

extern "C" __global__ void __launch_bounds__(1024) add_partials(
    int64 n, int64 width, int64 count, int wide, const T* partial, T* dgamma, T* dbeta) {
    add_rows(n, width, count, wide, partial, dgamma, dbeta);
}

extern "C" __global__ void __launch_bounds__(1024) add_wide_partials(
    int64 n, int64 width, int64 count, int wide, const double* partial, T* dgamma, T* dbeta) {
    add_rows(n, width, count, wide, partial, dgamma, dbeta);
}

#endif
