// Two-dimensional convolutions (cross-correlations) and their gradients, as matrix products. One factor, the patches of
// x, is never stored: its elements are read from x as needed.
//
// A block computes a tile of rows (outputs) by columns (positions) and steps through the terms of these sums DEPTH at a
// time: both factors are loaded into registers while the previous ones are multiplied, then stored in shared memory.
// One thread sums an element of the result, term by term, whatever the tile, so its bits depend on no other sample.
// `windows.py` ensures that sizes are below 2^31; offsets in memory are 64 bits.

#if FLOATING

const int DEPTH = 16;

// The shape of a tile: each thread has M adjacent rows by N columns that are 32 apart.
template <int m, int n, int warps>
struct Tile {
    static const int M = m, N = n, THREADS = 32 * warps, ROWS = m * warps, COLUMNS = 32 * n;
    static const int LEFT = ROWS * DEPTH / THREADS, RIGHT = COLUMNS * DEPTH / THREADS;  // elements a thread reads
    // The padding of the rows of factors keeps neighbouring threads that write in different banks.
    static const int PAD_LEFT = WIDE, PAD_RIGHT = 2;
    static const int NEXT_ROW = 1;

    static __device__ int first_row(int t) { return t / 32 * M; }
    static __device__ int column(int t, int j) { return t % 32 + 32 * j; }
    // sum[M, N] += left[ROWS, DEPTH] right[DEPTH, COLUMNS]
    template <class L, class R>
    static __device__ void multiply(const L& left, const R& right, T (&sum)[M][N]) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
UNROLLED(k, DEPTH) {
            Pack<WIDE> u[M / WIDE];
            T v[N];
UNROLLED(i, M / WIDE) u[i] = left[k][warp * (M / WIDE) + i];
UNROLLED(j, N) v[j] = right[k][lane + 32 * j];
UNROLLED(i, M) {
UNROLLED(j, N) sum[i][j] += u[i / WIDE].v[i % WIDE] * v[j];
            }
        }
    }
};
typedef Tile<8, 4, 8> Wide;
typedef Tile<4, 2, 4> Narrow;
const int RESIDENT = sizeof(T) == 4 ? 2 : 1;  // wide tiles that a multiprocessor's registers hold

#if SINGLE
// The same tile on tensor cores, with factors in TF32: a warp has 16 rows by a part of the columns, and a thread the
// elements of them that `multiply_tf32` gives it.
template <class S>
struct Fast {
    static const int THREADS = S::THREADS, ROWS = S::ROWS, COLUMNS = S::COLUMNS, LEFT = S::LEFT, RIGHT = S::RIGHT;
    static const int PAD_LEFT = 8, PAD_RIGHT = 8;  // lanes read [t, g] from different banks
    static const int DOWN = ROWS / 16, WIDTH = COLUMNS * 32 * DOWN / THREADS;
    static const int M = 2, N = WIDTH / 4, NEXT_ROW = 8;

    static __device__ int first_row(int t) { return t / 32 % DOWN * 16 + t % 32 / 4; }
    static __device__ int column(int t, int j) { return t / 32 / DOWN * WIDTH + j / 2 * 8 + t % 4 * 2 + j % 2; }
    template <class L, class R>
    static __device__ void multiply(const L& left, const R& right, T (&sum)[M][N]) {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
        const T* const a = left[t][0].v + first_row(threadIdx.x);
        const T* const b = right[t] + threadIdx.x / 32 / DOWN * WIDTH + g;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 8) {
            const T* const u = a + k * (ROWS + PAD_LEFT);
            const Factor<false, 4> x({u[0], u[8], u[4 * (ROWS + PAD_LEFT)], u[4 * (ROWS + PAD_LEFT) + 8]});
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                const T* const v = b + k * (COLUMNS + PAD_RIGHT) + j * 4;
                T c[4] = {sum[0][j], sum[0][j + 1], sum[1][j], sum[1][j + 1]};
                multiply_add(x, Factor<false, 2>({v[0], v[4 * (COLUMNS + PAD_RIGHT)]}), c);
                sum[0][j] = c[0], sum[0][j + 1] = c[1], sum[1][j] = c[2], sum[1][j + 1] = c[3];
            }
        }
    }
};
#endif

struct Sizes {
    int batch, groups, channels, outputs;  // channels and outputs of a group
    int height, width, kernel_h, kernel_w, rows, columns;
    int stride_h, stride_w, top, left, dilation_h, dilation_w;

    __device__ Sizes(const Extent& x, const Extent& w, const Extent& y, const Extent& at)
        : batch(x.n[4]), groups(w.n[5] ? x.n[5] / w.n[5] : 1), channels(w.n[5]), outputs(w.n[4] / groups),
          height(x.n[6]), width(x.n[7]), kernel_h(w.n[6]), kernel_w(w.n[7]), rows(y.n[6]), columns(y.n[7]),
          stride_h(at.n[2]), stride_w(at.n[3]), top(at.n[4]), left(at.n[5]), dilation_h(at.n[6]), dilation_w(at.n[7]) {}
};

// A position in a box of n0 x n1 x n2 that advances by a fixed number of elements without divisions
struct Counter {
    int n0, n1, n2, d0, d1, d2, by0, by1, by2;

    __device__ Counter(int64 start, int step, int size0, int size1, int size2) {
        const bool none = !size1 || !size2;
        n0 = none ? 0 : size0, n1 = none ? 1 : size1, n2 = none ? 1 : size2;
        const int64 over = quotient(start, n2), most = quotient(over, n1);
        d0 = most, d1 = over - most * n1, d2 = start - over * n2;
        by2 = step % n2, by1 = step / n2 % n1, by0 = step / n2 / n1;
    }
    __device__ bool inside() const { return d0 < n0; }
    __device__ void advance() {
        d2 += by2;
        d1 += by1;
        if (d2 >= n2) d2 -= n2, d1++;
        d0 += by0;
        if (d1 >= n1) d1 -= n1, d0++;
    }
};

// sum[M, N] += left[ROWS, depth] right[depth, COLUMNS]. read(a, b) loads this thread's part of the next DEPTH terms:
// the i-th element of a is row t / DEPTH + i THREADS / DEPTH, term t % DEPTH. The same holds for b if terms are
// contiguous (`together`) in memory; otherwise its i-th element is column t % COLUMNS, term t / COLUMNS + i THREADS /
// COLUMNS.
template <class S, bool together, class F>
__device__ void multiply(int64 steps, F read, T (&sum)[S::M][S::N]) {
    __shared__ Pack<WIDE> left[DEPTH][(S::ROWS + S::PAD_LEFT) / WIDE];
    __shared__ T right[DEPTH][S::COLUMNS + S::PAD_RIGHT];
    const int t = threadIdx.x;
    T a[S::LEFT], b[S::RIGHT];
    if (steps > 0) read(a, b);
    for (int64 step = 0; step < steps; step++) {
        __syncthreads();
UNROLLED(i, S::LEFT) {
            const int row = t / DEPTH + i * (S::THREADS / DEPTH);
            left[t % DEPTH][row / WIDE].v[row % WIDE] = a[i];
        }
UNROLLED(i, S::RIGHT) {
            if (together)
                right[t % DEPTH][t / DEPTH + i * (S::THREADS / DEPTH)] = b[i];
            else
                right[t / S::COLUMNS + i * (S::THREADS / S::COLUMNS)][t % S::COLUMNS] = b[i];
        }
        __syncthreads();
        if (step + 1 < steps) read(a, b);
        S::multiply(left, right, sum);
    }
}

// ---- the result, and the gradient of x ------------------------------------------------------------------------------

// One axis: the elements of the result, and which taps of the window apply to which elements of the source. Element
// u of the result has the index first + u apart, tap t has the index tap + t tap_step, and together they read the
// element start + u move + t delta of the source.
struct Axis {
    int first, apart, count, start, move, tap, taps, tap_step, delta;

    // y at p depends on x at p stride - before + i dilation.
    __device__ static Axis forward(int count, int kernel, int stride, int before, int dilation) {
        return {0, 1, count, -before, stride, 0, kernel, 1, dilation};
    }
    // dx at h depends on g at p = (h + before - i dilation) / stride if that is an integer; elements with the same
    // remainder of h + before modulo the stride have the same taps.
    __device__ static Axis backward(int remainder, int length, int kernel, int stride, int before, int dilation) {
        int divisor = stride, rest = dilation;  // becomes the greatest common divisor
        while (rest) {
            const int next = divisor % rest;
            divisor = rest;
            rest = next;
        }
        Axis axis;
        axis.first = (remainder - before % stride + stride) % stride;
        axis.apart = stride;
        axis.count = axis.first < length ? (length - axis.first - 1) / stride + 1 : 0;
        axis.tap_step = stride / divisor;
        for (axis.tap = 0; axis.tap < axis.tap_step; axis.tap++) {
            if (((int64)axis.tap * dilation - remainder) % stride == 0) break;
        }
        axis.taps = axis.tap < axis.tap_step && axis.tap < kernel ? (kernel - 1 - axis.tap) / axis.tap_step + 1 : 0;
        axis.start = int((axis.first + (int64)before - (int64)axis.tap * dilation) / stride);
        axis.move = 1;
        axis.delta = -(dilation / divisor);
        return axis;
    }
};

// forward:   y[n, o, p, q] = bias[o] + sum over c, i, j of w[o, c, i, j] x[n, c, p stride - top + i dilation, ...]
// backward: dx[n, c, h, v] = sum over o and the taps i, j of its remainder of w[o, c, i, j] g[n, o, p, q]
// Both multiply weights with elements of a source.
template <class S, bool backward>
__device__ void correlate(const Sizes& at, const T* source, const T* w, const T* bias, T* out) {
    const int channels = backward ? at.outputs : at.channels, outputs = backward ? at.channels : at.outputs;
    const int height = backward ? at.rows : at.height, width = backward ? at.columns : at.width;
    const int rows = backward ? at.height : at.rows, columns = backward ? at.width : at.columns;
    const int classes_h = backward ? at.stride_h : 1, classes_w = backward ? at.stride_w : 1;
    const int64 window = (int64)at.kernel_h * at.kernel_w;
    const int64 plane = (int64)height * width, out_plane = (int64)rows * columns;
    const int64 row_step = backward ? window : at.channels * window;
    const int64 channel_step = backward ? at.channels * window : window;
    const int64 tall = (outputs + S::ROWS - 1) / S::ROWS;
    const int64 most = at.batch * (((int64)rows + classes_h - 1) / classes_h) * ((columns + classes_w - 1) / classes_w);
    const int64 wide = (most + S::COLUMNS - 1) / S::COLUMNS;
    const int64 jobs = tall * wide * at.groups * classes_h * classes_w;
    const int t = threadIdx.x;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 above = quotient(job, tall), beside = quotient(above, wide), kind = quotient(beside, at.groups);
        const int64 first_row = (job - above * tall) * S::ROWS, first_column = (above - beside * wide) * S::COLUMNS;
        const int group = int(beside - kind * at.groups);
        const int kind_h = int(kind / classes_w), kind_w = int(kind % classes_w);
        const Axis v = backward ? Axis::backward(kind_h, rows, at.kernel_h, at.stride_h, at.top, at.dilation_h)
                                : Axis::forward(rows, at.kernel_h, at.stride_h, at.top, at.dilation_h);
        const Axis h = backward ? Axis::backward(kind_w, columns, at.kernel_w, at.stride_w, at.left, at.dilation_w)
                                : Axis::forward(columns, at.kernel_w, at.stride_w, at.left, at.dilation_w);
        const int64 places = (int64)at.batch * v.count * h.count;
        if (first_column >= places) continue;  // the same for all threads
        const T* weights = w + (int64)group * at.outputs * at.channels * window + v.tap * at.kernel_w + h.tap;

        const int64 mine = first_column + t % S::COLUMNS;
        const Counter place(mine, 0, at.batch, v.count, h.count);
        const T* from = source + ((int64)place.d0 * at.groups + group) * channels * plane;
        const int start_h = v.start + place.d1 * v.move, start_w = h.start + place.d2 * h.move;
        const bool there = mine < places;
        Counter left(t % DEPTH, DEPTH, channels, v.taps, h.taps);
        Counter right(t / S::COLUMNS, S::THREADS / S::COLUMNS, channels, v.taps, h.taps);
        const auto read = [&](T* a, T* b) {
            const T* p = weights + left.d0 * channel_step + left.d1 * v.tap_step * at.kernel_w + left.d2 * h.tap_step;
UNROLLED(i, S::LEFT) {
                const int64 row = first_row + t / DEPTH + i * (S::THREADS / DEPTH);
                a[i] = left.inside() && row < outputs ? p[row * row_step] : T(0);
            }
            left.advance();
UNROLLED(i, S::RIGHT) {
                const int y = start_h + right.d1 * v.delta, x = start_w + right.d2 * h.delta;
                const bool in =
                    there && right.inside() && unsigned(y) < unsigned(height) && unsigned(x) < unsigned(width);
                b[i] = in ? from[right.d0 * plane + (int64)y * width + x] : T(0);
                right.advance();
            }
        };
        T sum[S::M][S::N] = {};
        multiply<S, false>(((int64)channels * v.taps * h.taps + DEPTH - 1) / DEPTH, read, sum);

        const int64 row = first_row + S::first_row(t);
UNROLLED(j, S::N) {
            const int64 column = first_column + S::column(t, j);
            if (column >= places) continue;
            const Counter to(column, 0, at.batch, v.count, h.count);
            T* result = out + (((int64)to.d0 * at.groups + group) * outputs + row) * out_plane +
                        (v.first + (int64)to.d1 * v.apart) * columns + h.first + to.d2 * h.apart;
UNROLLED(i, S::M) {
                if (row + i * S::NEXT_ROW >= outputs) continue;
                result[i * S::NEXT_ROW * out_plane] =
                    bias ? sum[i][j] + bias[(int64)group * outputs + row + i * S::NEXT_ROW] : sum[i][j];
            }
        }
    }
}

#define CONV2D_PARAMETERS                                                                                  \
    Extent x_shape, Extent w_shape, Extent y_shape, Extent at, const T* x, const T* w, const T* bias, T* y
#define BACKWARD_DATA_PARAMETERS                                                             \
    Extent x_shape, Extent w_shape, Extent y_shape, Extent at, const T* g, const T* w, T* dx
#define SIZES Sizes(x_shape, w_shape, y_shape, at)

extern "C" __global__ void __launch_bounds__(256, RESIDENT) conv2d_wide(CONV2D_PARAMETERS) {
    correlate<Wide, false>(SIZES, x, w, bias, y);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_narrow(CONV2D_PARAMETERS) {
    correlate<Narrow, false>(SIZES, x, w, bias, y);
}
#if SINGLE
extern "C" __global__ void __launch_bounds__(256, 2) conv2d_wide_tf32(CONV2D_PARAMETERS) {
    correlate<Fast<Wide>, false>(SIZES, x, w, bias, y);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_narrow_tf32(CONV2D_PARAMETERS) {
    correlate<Fast<Narrow>, false>(SIZES, x, w, bias, y);
}
#endif

extern "C" __global__ void __launch_bounds__(256, RESIDENT) conv2d_backward_data_wide(BACKWARD_DATA_PARAMETERS) {
    correlate<Wide, true>(SIZES, g, w, nullptr, dx);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_backward_data_narrow(BACKWARD_DATA_PARAMETERS) {
    correlate<Narrow, true>(SIZES, g, w, nullptr, dx);
}
#if SINGLE
extern "C" __global__ void __launch_bounds__(256, 2) conv2d_backward_data_wide_tf32(BACKWARD_DATA_PARAMETERS) {
    correlate<Fast<Wide>, true>(SIZES, g, w, nullptr, dx);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_backward_data_narrow_tf32(BACKWARD_DATA_PARAMETERS) {
    correlate<Fast<Narrow>, true>(SIZES, g, w, nullptr, dx);
}
#endif

// ---- the gradients of w and bias ------------------------------------------------------------------------------------

// dw[o, c, i, j] = sum over n, p, q of g[n, o, p, q] x[n, c, p stride - top + i dilation, ...]
// dbias[o] = sum over n, p, q of g[n, o, p, q]
// The positions n, p, q are split into `pieces`, whose sums are the rows of partial[pieces, size of dw + size of
// dbias]. dbias is computed like dw for an extra channel whose elements are 1.
template <class S>
__device__ void correlate_weight(const Sizes& at, int64 pieces, Bool with_bias, const T* x, const T* g, T* partial) {
    struct Column {
        int64 place;  // offset of the channel, or BIAS, or NONE
        int row, column;
    };
    const int64 BIAS = -1, NONE = -2;
    __shared__ Column table[S::COLUMNS];
    const int64 window = (int64)at.kernel_h * at.kernel_w, depth = at.channels * window;
    const int64 plane = (int64)at.height * at.width;
    const int64 positions = (int64)at.rows * at.columns, total = at.batch * positions;
    const int64 weights = (int64)at.groups * at.outputs * depth;
    const int64 size = weights + (with_bias ? (int64)at.groups * at.outputs : 0);
    const int64 length = ((total + pieces - 1) / pieces + DEPTH - 1) / DEPTH * DEPTH;
    const int64 tall = (at.outputs + S::ROWS - 1) / S::ROWS, wide = (depth + with_bias + S::COLUMNS - 1) / S::COLUMNS;
    const int64 jobs = tall * wide * at.groups * pieces;
    const int t = threadIdx.x;
    for (int64 job = blockIdx.x; job < jobs; job += gridDim.x) {
        const int64 above = quotient(job, tall), beside = quotient(above, wide), piece = quotient(beside, at.groups);
        const int64 first_row = (job - above * tall) * S::ROWS, first_column = (above - beside * wide) * S::COLUMNS;
        const int group = int(beside - piece * at.groups);
        const int64 begin = piece * length, end = begin + length < total ? begin + length : total;
        // All threads read the previous table before a barrier in `multiply`.
        for (int c = t; c < S::COLUMNS; c += S::THREADS) {
            const int64 k = first_column + c;
            const Counter tap(k, 0, at.channels, at.kernel_h, at.kernel_w);
            table[c].place = k < depth ? tap.d0 * plane : k == depth && with_bias ? BIAS : NONE;
            table[c].row = tap.d1 * at.dilation_h - at.top;
            table[c].column = tap.d2 * at.dilation_w - at.left;
        }
        __syncthreads();
        Counter at_position(begin + t % DEPTH, DEPTH, at.batch, at.rows, at.columns);
        int64 position = begin + t % DEPTH;
        const auto read = [&](T* a, T* b) {
            const bool there = position < end;
            const int64 image = (int64)at_position.d0 * at.groups + group;
            const int64 place = (int64)at_position.d1 * at.columns + at_position.d2;
            const T* given = g + image * at.outputs * positions + place;
            const T* from = x + image * at.channels * plane;
            const int start_h = at_position.d1 * at.stride_h, start_w = at_position.d2 * at.stride_w;
UNROLLED(i, S::LEFT) {
                const int64 row = first_row + t / DEPTH + i * (S::THREADS / DEPTH);
                a[i] = there && row < at.outputs ? given[row * positions] : T(0);
            }
UNROLLED(i, S::RIGHT) {
                const Column c = table[t / DEPTH + i * (S::THREADS / DEPTH)];
                const int y = start_h + c.row, v = start_w + c.column;
                const bool in =
                    there && c.place >= 0 && unsigned(y) < unsigned(at.height) && unsigned(v) < unsigned(at.width);
                b[i] = in ? from[c.place + (int64)y * at.width + v] : T(there && c.place == BIAS);
            }
            at_position.advance();
            position += DEPTH;
        };
        T sum[S::M][S::N] = {};
        multiply<S, true>(begin < end ? (end - begin + DEPTH - 1) / DEPTH : 0, read, sum);

        T* const to = partial + piece * size;
        const int64 row = first_row + S::first_row(t);
UNROLLED(i, S::M) {
            const int down = i * S::NEXT_ROW;
            const int64 output = (int64)group * at.outputs + row + down;
            if (row + down >= at.outputs) continue;
UNROLLED(j, S::N) {
                const int64 k = first_column + S::column(t, j);
                if (k < depth)
                    to[output * depth + k] = sum[i][j];
                else if (k == depth && with_bias)
                    to[weights + output] = sum[i][j];
            }
        }
    }
}

#define BACKWARD_WEIGHT_PARAMETERS                                                                                   \
    Extent x_shape, Extent w_shape, Extent y_shape, Extent at, int64 pieces, Bool with_bias, const T* x, const T* g, \
    T* partial

extern "C" __global__ void __launch_bounds__(256, RESIDENT) conv2d_backward_weight_wide(BACKWARD_WEIGHT_PARAMETERS) {
    correlate_weight<Wide>(SIZES, pieces, with_bias, x, g, partial);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_backward_weight_narrow(BACKWARD_WEIGHT_PARAMETERS) {
    correlate_weight<Narrow>(SIZES, pieces, with_bias, x, g, partial);
}
#if SINGLE
extern "C" __global__ void __launch_bounds__(256, 2) conv2d_backward_weight_wide_tf32(BACKWARD_WEIGHT_PARAMETERS) {
    correlate_weight<Fast<Wide>>(SIZES, pieces, with_bias, x, g, partial);
}
extern "C" __global__ void __launch_bounds__(128) conv2d_backward_weight_narrow_tf32(BACKWARD_WEIGHT_PARAMETERS) {
    correlate_weight<Fast<Narrow>>(SIZES, pieces, with_bias, x, g, partial);
}
#endif

#endif
