// Linear recurrences along the middle axis of [outer, n, inner]. The steps of a column run one after another, some
// columns side by side: neighbours in memory if inner > 1, otherwise rows. And the sums over paths of a CTC loss: a
// thread takes a sample through all steps.
#include "../runtime/pool.hpp"
#include "math.hpp"
#include "vector.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 14;  // elements: a few microseconds of work
constexpr int64_t TILE = 64;        // columns whose states stay in registers and the first level of cache
constexpr int ROWS = 8;             // enough to hide the latency of a step

// `columns` neighbours, or as many rows of n elements side by side; consecutive steps are `step` elements apart.
struct Tile {
    int64_t columns, n, step;
};

template <class T, int rows>
MG_INLINE void scan(const Tile& t, const T* a, const T* b, const T* initial, T* h) {
    const int64_t columns = rows ? rows : t.columns, apart = rows ? t.n : 1;
    T state[TILE];
    for (int64_t c = 0; c < columns; c++) {
        state[c] = initial ? a[c * apart] * initial[c] + b[c * apart] : b[c * apart];
        h[c * apart] = state[c];
    }
    for (int64_t j = 1; j < t.n; j++) {
        a += t.step, b += t.step, h += t.step;
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) h[c * apart] = state[c] = a[c * apart] * state[c] + b[c * apart];
    }
}

// The pointers are to the last step.
template <class T, int rows>
MG_INLINE void scan_backward(const Tile& t, const T* a, const T* h, const T* initial, const T* g, T* da, T* db,
                             T* dinitial) {
    const int64_t columns = rows ? rows : t.columns, apart = rows ? t.n : 1;
    T carry[TILE], delta[TILE];  // carry: a_{t+1} d_{t+1}
    for (int64_t c = 0; c < columns; c++) carry[c] = 0;
    for (int64_t j = t.n - 1; j >= 0; j--) {
#pragma omp simd
        for (int64_t c = 0; c < columns; c++) {
            delta[c] = g[c * apart] + carry[c];
            carry[c] = a[c * apart] * delta[c];
        }
        g -= t.step, a -= t.step;
        if (db) {
#pragma omp simd
            for (int64_t c = 0; c < columns; c++) db[c * apart] = delta[c];
            db -= t.step;
        }
        if (!da) continue;
        h -= t.step;
        if (j > 0) {
#pragma omp simd
            for (int64_t c = 0; c < columns; c++) da[c * apart] = delta[c] * h[c * apart];
        } else {
            for (int64_t c = 0; c < columns; c++) da[c * apart] = initial ? delta[c] * initial[c] : 0;
        }
        da -= t.step;
    }
    if (dinitial)
        for (int64_t c = 0; c < columns; c++) dinitial[c] = carry[c];
}

// run<rows>(tile, the offset of its first step, the offset of its first column among all columns)
template <class Run>
void each_tile(int64_t outer, int64_t n, int64_t inner, bool reverse, Run run) {
    if (inner == 1) {
        const int64_t from = reverse ? n - 1 : 0, step = reverse ? -1 : 1;
        parallel(outer, ROWS * (1 + GRAIN / (1 + n * ROWS)), [=](int64_t begin, int64_t end) {
            for (; end - begin >= ROWS; begin += ROWS)
                run.template operator()<ROWS>(Tile{ROWS, n, step}, begin * n + from, begin);
            for (; begin < end; begin++) run.template operator()<1>(Tile{1, n, step}, begin * n + from, begin);
        });
        return;
    }
    const int64_t wide = minimum(inner, TILE), tiles = ceil_divide(inner, TILE);
    parallel_each(outer * tiles, 1 + GRAIN / (1 + n * wide), [=](int64_t job) {
        const int64_t o = job / tiles, first = job % tiles * TILE, left = inner - first;
        run.template operator()<0>(Tile{minimum(left, TILE), n, reverse ? -inner : inner},
                                   (o * n + (reverse ? n - 1 : 0)) * inner + first, o * inner + first);
    });
}

MG_KERNEL(linear_scan[FLOATS])
template <class T>
void linear_scan(int64_t outer, int64_t n, int64_t inner, int32_t reverse, const T* a, const T* b, const T* initial,
                 T* h) {
    each_tile(outer, n, inner, reverse, [=]<int rows>(const Tile& t, int64_t at, int64_t first) {
        scan<T, rows>(t, a + at, b + at, offset(initial, first), h + at);
    });
}

MG_KERNEL(linear_scan_backward[FLOATS])
template <class T>
void linear_scan_backward(int64_t outer, int64_t n, int64_t inner, int32_t reverse, const T* a, const T* h,
                          const T* initial, const T* g, T* da, T* db, T* dinitial) {
    each_tile(outer, n, inner, reverse, [=]<int rows>(const Tile& t, int64_t at, int64_t first) {
        const int64_t last = at + (n - 1) * t.step;
        scan_backward<T, rows>(t, a + last, offset(h, last), offset(initial, first), g + last, offset(da, last),
                               offset(db, last), offset(dinitial, first));
    });
}

// ---- connectionist temporal classification, in logarithms of float64 -----------------------------------------------

constexpr double NONE = -__builtin_inf();

// ln(e^a + e^b + e^c), the probability of three ways together; NaN if one of them is
double together(double a, double b, double c) {
    const double two = b > a ? b : a, top = c > two ? c : two;
    return top > NONE ? top + log(exp(a - top) + exp(b - top) + exp(c - top)) : a + b + c;
}

// alpha[t + 1, n, s] = e[t, n, s] + the ways to s: from s, s - 1 and, with skip[n, s] = 0 instead of -inf, s - 2.
// Before the first step a path is at 0; it ends at last[n] or the state before.
MG_KERNEL(ctc)
void ctc(int64_t steps, int64_t batch, int64_t states, const double* e, const double* skip, const int64_t* lengths,
         const int64_t* last, double* alpha, double* loss) {
    const int64_t row = batch * states;
    parallel_each(batch, 1 + GRAIN / (1 + 16 * steps * states), [=](int64_t n) {
        double* a = alpha + n * states;
        const double *step = e + n * states, *third = skip + n * states;
        for (int64_t s = 0; s < states; s++) a[s] = s ? NONE : 0;
        for (int64_t t = 0; t < lengths[n]; t++, a += row, step += row)
            for (int64_t s = 0; s < states; s++)
                a[row + s] = step[s] + together(a[s], s > 0 ? a[s - 1] : NONE, s > 1 ? a[s - 2] + third[s] : NONE);
        loss[n] = 0 - together(a[last[n]], last[n] ? a[last[n] - 1] : NONE, NONE);
    });
}

// de = -g times the probability, given the target, that a path is at s in step t. beta is scratch: [batch, 2, states].
MG_KERNEL(ctc_backward)
void ctc_backward(int64_t steps, int64_t batch, int64_t states, const double* e, const double* skip,
                  const int64_t* lengths, const int64_t* last, const double* alpha, const double* loss, const double* g,
                  double* beta, double* de) {
    const int64_t row = batch * states;
    parallel_each(batch, 1 + GRAIN / (1 + 16 * steps * states), [=](int64_t n) {
        double *b = beta + 2 * n * states, *ahead = b + states;
        const double* third = skip + n * states;
        for (int64_t s = 0; s < states; s++) b[s] = s == last[n] || s == last[n] - 1 ? 0 : NONE;
        for (int64_t t = steps - 1; t >= 0; t--) {
            const int64_t at = t * row + n * states;
            const bool none = t >= lengths[n] || loss[n] == -NONE;
            for (int64_t s = 0; s < states; s++) {
                de[at + s] = none ? 0 : -g[n] * exp(alpha[at + row + s] + b[s] + loss[n]);
                ahead[s] = e[at + s] + b[s];
            }
            if (none) continue;
            for (int64_t s = 0; s < states; s++)
                b[s] = together(ahead[s], s + 1 < states ? ahead[s + 1] : NONE,
                                s + 2 < states ? ahead[s + 2] + third[s + 2] : NONE);
        }
    });
}

}  // namespace

void fill_scan(Kernels& k) { MG_PUT_SCAN }

}  // namespace mg::MG_ISA
