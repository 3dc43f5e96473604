// Two-dimensional pooling: the largest element, or the mean, of windows that move over planes; and the gradients: every
// element of x visits the windows that contain it and adds their gradients in order.

#if FLOATING

// Element i of planes[rows, columns]
struct Place {
    int64 plane, row, column;

    __device__ Place(int64 i, int64 rows, int64 columns) {
        const int64 line = quotient(i, columns);
        plane = quotient(line, rows);
        row = line - plane * rows;
        column = i - line * columns;
    }
};

// ---- the largest element --------------------------------------------------------------------------------------------

// Windows along one axis of x: the elements of window p are p stride - pad + k dilation, k < kernel, within the length.
struct Windows {
    int64 length, count, kernel, stride, pad, dilation;

    // The first element that lies in x, and the end of the window
    __device__ int64 begin(int64 p) const {
        const int64 start = p * stride - pad;
        return start < 0 ? start + (dilation - 1 - start) / dilation * dilation : start;
    }
    __device__ int64 end(int64 p) const {
        const int64 last = p * stride - pad + (kernel - 1) * dilation + 1;
        return last < length ? last : length;
    }
    // f(p) for the windows that contain an element, in order
    template <class F>
    __device__ void holding(int64 element, F f) const {
        const int64 earliest = element + pad - (kernel - 1) * dilation;  // no window that contains it begins before
        for (int64 p = earliest > 0 ? quotient(earliest + stride - 1, stride) : 0; p < count; p++) {
            const int64 distance = element + pad - p * stride;
            if (distance < 0) return;
            if (dilation == 1 || distance % dilation == 0) f(p);
        }
    }
};

#define POOL_PARAMETERS                                                                                       \
    int64 planes, int64 height, int64 width, int64 rows, int64 columns, int64 kernel_h, int64 kernel_w, int64 \
    stride_h, int64 stride_w, int64 pad_h, int64 pad_w, int64 dilation_h, int64 dilation_w

// NaN is larger than all numbers. Of equal elements the first one counts, but of several NaN the last one.
// y[planes, P, Q] and index[planes, P, Q], the positions in H x W; either may be null
extern "C" __global__ void max_pool2d(POOL_PARAMETERS, const T* x, T* y, int64* index) {
    const Windows v = {height, rows, kernel_h, stride_h, pad_h, dilation_h};
    const Windows h = {width, columns, kernel_w, stride_w, pad_w, dilation_w};
    FOR_EACH(i, planes * rows * columns) {
        const Place at(i, rows, columns);
        const T* from = x + at.plane * height * width;
        const int64 top = v.begin(at.row), bottom = v.end(at.row), left = h.begin(at.column), right = h.end(at.column);
        int64 found = top * width + left;
        T most = from[found];
        for (int64 r = top; r < bottom; r += dilation_h) {
            for (int64 c = left; c < right; c += dilation_w) {
                const T u = from[r * width + c];
                if (u > most || u != u) {
                    most = u;
                    found = r * width + c;
                }
            }
        }
        if (y) y[i] = most;
        if (index) index[i] = found;
    }
}

// dx = the sum of g over the windows whose largest element this is. The positions are not stored but searched for
// again, up to the first element that wins over this one.
extern "C" __global__ void max_pool2d_backward(POOL_PARAMETERS, const T* x,
                                               const T* g, T* dx) {
    const Windows v = {height, rows, kernel_h, stride_h, pad_h, dilation_h};
    const Windows h = {width, columns, kernel_w, stride_w, pad_w, dilation_w};
    FOR_EACH(i, planes * height * width) {
        const Place at(i, height, width);
        const T* from = x + at.plane * height * width;
        const T value = x[i];
        const bool nan = value != value;
        T sum = 0;
        v.holding(at.row, [&](int64 p) {
            h.holding(at.column, [&](int64 q) {
                const int64 top = v.begin(p), bottom = v.end(p), left = h.begin(q), right = h.end(q);
                for (int64 r = top; r < bottom; r += dilation_h) {
                    for (int64 c = left; c < right; c += dilation_w) {
                        const T u = from[r * width + c];
                        const bool before = r < at.row || (r == at.row && c < at.column);
                        const bool itself = r == at.row && c == at.column;
                        const bool wins = nan ? !before && u != u : u > value || u != u || (before && u == value);
                        if (!itself && wins) return;
                    }
                }
                sum += g[(at.plane * rows + p) * columns + q];
            });
        });
        dx[i] = sum;
    }
}

// ---- the mean -------------------------------------------------------------------------------------------------------

// y[planes, m, n] = sums of windows divided by the divisor or, if it is 0, by their own sizes: row window p has the
// rows from by_row[p, 0] up to by_row[p, 1] and counts as by_row[p, 2] rows. A team of `lanes` threads sums a window.
extern "C" __global__ void average_pool2d(int64 planes, int64 height, int64 width, int64 m, int64 n, int lanes,
                                          const T* x, const int64* by_row, const int64* by_column, double divisor,
                                          T* y) {
    const int64 windows = planes * m * n;
    const int lane = threadIdx.x % lanes, teams = blockDim.x / lanes;
    for (int64 first = blockIdx.x * (int64)teams; first < windows; first += gridDim.x * (int64)teams) {
        const int64 i = first + threadIdx.x / lanes;
        const Place at(i, m, n);
        const int64* r = by_row + 3 * at.row;
        const int64* c = by_column + 3 * at.column;
        double sum[1] = {0};
        if (i < windows) {
            const T* from = x + at.plane * height * width;
            const int64 across = c[1] - c[0];
            if (lanes == 1) {
                for (int64 k = r[0]; k < r[1]; k++) {
                    for (int64 j = c[0]; j < c[1]; j++) sum[0] += from[k * width + j];
                }
            } else if (across > 0) {
                for (int64 e = lane; e < (r[1] - r[0]) * across; e += lanes) {
                    const int64 k = quotient(e, across);
                    sum[0] += from[(r[0] + k) * width + c[0] + e - k * across];
                }
            }
        }
        team_sum<1>(lanes, sum);
        if (i < windows && lane == 0) y[i] = T(sum[0] / (divisor != 0 ? divisor : double(r[2] * c[2])));
    }
}

// The first window that ends after an element; windows are sorted by their begins and ends
__device__ inline int64 first_holding(int64 count, const int64* windows, int64 element) {
    int64 low = 0;
    while (low < count) {
        const int64 middle = (low + count) / 2;
        if (windows[3 * middle + 1] > element)
            count = middle;
        else
            low = middle + 1;
    }
    return low;
}

// dx = the sum of g / divisor over the windows that contain the element
extern "C" __global__ void average_pool2d_backward(int64 planes, int64 height, int64 width, int64 m, int64 n,
                                                   const T* g, const int64* by_row, const int64* by_column,
                                                   double divisor, T* dx) {
    FOR_EACH(i, planes * height * width) {
        const Place at(i, height, width);
        const int64 top = first_holding(m, by_row, at.row), left = first_holding(n, by_column, at.column);
        T sum = 0;
        for (int64 p = top; p < m && by_row[3 * p] <= at.row; p++) {
            for (int64 q = left; q < n && by_column[3 * q] <= at.column; q++) {
                const double size = divisor != 0 ? divisor : double(by_row[3 * p + 2] * by_column[3 * q + 2]);
                sum += T(g[(at.plane * m + p) * n + q] / size);
            }
        }
        dx[i] = sum;
    }
}

#endif
