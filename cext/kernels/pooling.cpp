// Two-dimensional pooling: the largest element, or the mean, of windows that move over planes.
#include <utility>

#include "../runtime/pool.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t CHUNK = 1 << 14;  // elements worth handing to a thread

int64_t grain_of(int64_t elements) { return (CHUNK + elements - 1) / (elements < 1 ? 1 : elements); }

// Where the elements of a window along one axis are: begin, begin + step, ... below end
struct Span {
    int64_t begin, end;
};

Span span(int64_t start, int64_t length, int64_t dilation, int64_t size) {
    const int64_t skipped = start < 0 ? (-start + dilation - 1) / dilation : 0;
    const int64_t end = start + (length - 1) * dilation + 1;
    return {start + skipped * dilation, end < size ? end : size};
}

// The place of the largest element of window (r, q) of a plane; NaN counts as largest
template <class T>
int64_t largest(const Pool2d& at, const T* x, int64_t r, int64_t q) {
    const Span rows = span(r * at.stride_h - at.pad_h, at.kernel_h, at.dilation_h, at.height);
    const Span columns = span(q * at.stride_w - at.pad_w, at.kernel_w, at.dilation_w, at.width);
    int64_t found = rows.begin * at.width + columns.begin;
    T most = -__builtin_inf();
    for (int64_t i = rows.begin; i < rows.end; i += at.dilation_h) {
        for (int64_t j = columns.begin; j < columns.end; j += at.dilation_w) {
            const T v = x[i * at.width + j];
            if (v > most || v != v) {
                most = v;
                found = i * at.width + j;
            }
        }
    }
    return found;
}

// ---- windows of two by two, side by side, a register at a time ------------------------------------------------------

#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
constexpr bool PAIRS = true;

// The elements of a and b, one after the other, with even and with odd indices
template <class V, int... i>
MG_INLINE V alternate(V a, V b, int parity, std::integer_sequence<int, i...>) {
    return parity ? __builtin_shufflevector(a, b, (2 * i + 1)...) : __builtin_shufflevector(a, b, (2 * i)...);
}

// The inverse: one half of even[0], odd[0], even[1], ...
template <class V, int... i>
MG_INLINE V interleave(V even, V odd, bool second, std::integer_sequence<int, i...>) {
    constexpr int n = sizeof...(i);
    return second ? __builtin_shufflevector(even, odd, (i % 2 * n + i / 2 + n / 2)...)
                  : __builtin_shufflevector(even, odd, (i % 2 * n + i / 2)...);
}

// A register full of windows: v[0], v[1] above v[2], v[3], and where each but the first is larger than those before it
template <class T, int bytes>
struct Windows {
    using V = typename VectorOf<T, bytes>::type;
    static constexpr int LENGTH = bytes / sizeof(T);
    static constexpr std::make_integer_sequence<int, LENGTH> lanes{};
    V most;
    decltype(V{} < V{}) later[4];  // v[k] is larger than all before it

    MG_INLINE Windows(const T* above, const T* below) {
        V v[4];
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            V a, b;
            __builtin_memcpy(&a, i ? below : above, bytes);
            __builtin_memcpy(&b, (i ? below : above) + LENGTH, bytes);
            v[2 * i] = alternate(a, b, 0, lanes);
            v[2 * i + 1] = alternate(a, b, 1, lanes);
        }
        most = v[0];
#pragma GCC unroll 4
        for (int k = 1; k < 4; k++) {
            later[k] = (v[k] > most) | (v[k] != v[k]);
            most = later[k] ? v[k] : most;
        }
    }

    // g goes to the last of the four that was larger than those before it
    MG_INLINE void spread(V g, T* above, T* below) const {
        const V zero = {};
        V v[4];
        v[3] = later[3] ? g : zero, g = later[3] ? zero : g;
        v[2] = later[2] ? g : zero, g = later[2] ? zero : g;
        v[1] = later[1] ? g : zero, v[0] = later[1] ? zero : g;
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const V a = interleave(v[2 * i], v[2 * i + 1], false, lanes);
            const V b = interleave(v[2 * i], v[2 * i + 1], true, lanes);
            __builtin_memcpy(i ? below : above, &a, bytes);
            __builtin_memcpy((i ? below : above) + LENGTH, &b, bytes);
        }
    }
};

// Runs f(q, Windows) for as many columns as fill registers, or halves of one, and returns their number
template <class T, int bytes = REGISTER, class F>
MG_INLINE int64_t in_windows(int64_t q, int64_t columns, const T* above, const T* below, F&& f) {
    using W = Windows<T, bytes>;
    for (; q + W::LENGTH <= columns; q += W::LENGTH) f(q, W(above + 2 * q, below + 2 * q));
    if constexpr (bytes > 16) q = in_windows<T, bytes / 2>(q, columns, above, below, f);
    return q;
}
#else
constexpr bool PAIRS = false;
template <class T, class F>
MG_INLINE int64_t in_windows(int64_t q, int64_t, const T*, const T*, F&&) {
    return q;
}
#endif

bool is_paired(const Pool2d& at) {
    return PAIRS && at.kernel_h == 2 && at.kernel_w == 2 && at.stride_h == 2 && at.stride_w == 2 && at.pad_h == 0 &&
           at.pad_w == 0 && at.dilation_h == 1 && at.dilation_w == 1 && 2 * at.rows <= at.height &&
           2 * at.columns <= at.width;
}

// ---- the largest element --------------------------------------------------------------------------------------------

MG_KERNEL(max_pool2d[FLOATS])
template <class T>
void max_pool2d(const Pool2d& at, const T* x, T* y, int64_t* index) {
    const int64_t plane = at.height * at.width, windows = at.rows * at.columns;
    const bool paired = !index && is_paired(at);
    parallel_each(at.planes, grain_of(windows * at.kernel_h * at.kernel_w), [&](int64_t n) {
        const T* from = x + n * plane;
        for (int64_t r = 0; r < at.rows; r++) {
            T* to = offset(y, n * windows + r * at.columns);
            int64_t* place = offset(index, n * windows + r * at.columns);
            int64_t q = 0;
            if (paired) {
                const T* above = from + 2 * r * at.width;
                q = in_windows<T>(0, at.columns, above, above + at.width, [&](int64_t first, auto found) MG_INLINED {
                    __builtin_memcpy(to + first, &found.most, sizeof found.most);
                });
            }
            for (; q < at.columns; q++) {
                const int64_t found = largest(at, from, r, q);
                if (to) to[q] = from[found];
                if (place) place[q] = found;
            }
        }
    });
}

MG_KERNEL(max_pool2d_backward[FLOATS])
template <class T>
void max_pool2d_backward(const Pool2d& at, const T* x, const T* g, T* dx) {
    const int64_t plane = at.height * at.width, windows = at.rows * at.columns;
    const bool paired = is_paired(at), covered = paired && 2 * at.rows == at.height && 2 * at.columns == at.width;
    parallel_each(at.planes, grain_of(windows * at.kernel_h * at.kernel_w), [&](int64_t n) {
        const T* from = x + n * plane;
        const T* given = g + n * windows;
        T* to = dx + n * plane;
        if (!covered) clear(plane, to);
        for (int64_t r = 0; r < at.rows; r++, given += at.columns) {
            int64_t q = 0;
            if (paired) {
                const T* above = from + 2 * r * at.width;
                T* row = to + 2 * r * at.width;
                q = in_windows<T>(0, at.columns, above, above + at.width, [&](int64_t first, auto found) MG_INLINED {
                    __typeof__(found.most) v;
                    __builtin_memcpy(&v, given + first, sizeof v);
                    found.spread(v, row + 2 * first, row + at.width + 2 * first);
                });
                if (covered && q < at.columns) {
                    clear(2 * (at.columns - q), row + 2 * q);
                    clear(2 * (at.columns - q), row + at.width + 2 * q);
                }
            }
            for (; q < at.columns; q++) to[largest(at, from, r, q)] += given[q];
        }
    });
}

// ---- the mean -------------------------------------------------------------------------------------------------------

MG_KERNEL(average_pool2d[FLOATS])
template <class T>
void average_pool2d(int64_t planes, int64_t height, int64_t width, int64_t m, int64_t n, const T* x,
                    const int64_t* rows, const int64_t* columns, double divisor, T* y) {
    parallel_each(planes, grain_of(height * width + m * n), [&](int64_t plane) {
        const T* from = x + plane * height * width;
        T* to = y + plane * m * n;
        for (const int64_t* r = rows; r < rows + 3 * m; r += 3) {
            for (const int64_t* c = columns; c < columns + 3 * n; c += 3) {
                double sum = 0;
                for (int64_t i = r[0]; i < r[1]; i++) {
                    for (int64_t j = c[0]; j < c[1]; j++) sum += from[i * width + j];
                }
                *to++ = T(sum / (divisor != 0 ? divisor : double(r[2] * c[2])));
            }
        }
    });
}

MG_KERNEL(average_pool2d_backward[FLOATS])
template <class T>
void average_pool2d_backward(int64_t planes, int64_t height, int64_t width, int64_t m, int64_t n, const T* g,
                             const int64_t* rows, const int64_t* columns, double divisor, T* dx) {
    parallel_each(planes, grain_of(height * width + m * n), [&](int64_t plane) {
        const T* given = g + plane * m * n;
        T* to = dx + plane * height * width;
        clear(height * width, to);
        for (const int64_t* r = rows; r < rows + 3 * m; r += 3) {
            for (const int64_t* c = columns; c < columns + 3 * n; c += 3) {
                const T share = T(*given++ / (divisor != 0 ? divisor : double(r[2] * c[2])));
                for (int64_t i = r[0]; i < r[1]; i++) {
                    for (int64_t j = c[0]; j < c[1]; j++) to[i * width + j] += share;
                }
            }
        }
    });
}

}  // namespace

void fill_pooling(Kernels& k) { MG_PUT_POOLING }

}  // namespace mg::MG_ISA
