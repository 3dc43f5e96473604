// Products with a matrix that is used many times: it is packed once into panels, then read in the order of use.
//
// A panel holds columns two registers wide, row after row; the last panel is padded with zeros. Every element of the
// product is a sum over k in ascending order, whatever block of rows it is computed in.
#pragma once

#include <utility>

#include "vector.hpp"

namespace mg::MG_ISA {

template <class T>
constexpr int64_t PANEL = 2 * LANES<T>;

// Rows of the product that are summed in registers at once: accumulators, two registers of B and one of A
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TILE_ROWS = 8;
#else
constexpr int TILE_ROWS = 6;
#endif

// Transposes a square of registers: element j of row i becomes element i of row j
#if defined(__has_builtin) && __has_builtin(__builtin_shufflevector)
#define MG_TRANSPOSES 1
template <class T, int s, int... l>
MG_INLINE void exchange(Vector<T>* row, std::integer_sequence<int, l...>) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES<T>; i++) {
        if (i & s) continue;
        const Vector<T> a = row[i], b = row[i + s];
        row[i] = __builtin_shufflevector(a, b, (l & s ? LANES<T> + l - s : l)...);
        row[i + s] = __builtin_shufflevector(a, b, (l & s ? LANES<T> + l : l + s)...);
    }
}
template <class T>
MG_INLINE void transpose(Vector<T>* row) {
    constexpr std::make_integer_sequence<int, LANES<T>> lanes;
    if constexpr (LANES<T> > 1) exchange<T, 1>(row, lanes);
    if constexpr (LANES<T> > 2) exchange<T, 2>(row, lanes);
    if constexpr (LANES<T> > 4) exchange<T, 4>(row, lanes);
    if constexpr (LANES<T> > 8) exchange<T, 8>(row, lanes);
}
// The sums of each register's lanes: halves of two registers are added in one, so that half as many remain
template <class T, int s, int... l>
MG_INLINE void add_halves(Vector<T>* x, std::integer_sequence<int, l...>) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES<T>; i += 2 * s)
        x[i] = __builtin_shufflevector(x[i], x[i + s], (l & s ? LANES<T> + l - s : l)...) +
               __builtin_shufflevector(x[i], x[i + s], (l & s ? LANES<T> + l : l + s)...);
}
template <class T>
MG_INLINE Vector<T> sums_of_lanes(Vector<T>* x) {
    constexpr std::make_integer_sequence<int, LANES<T>> lanes;
    if constexpr (LANES<T> > 1) add_halves<T, 1>(x, lanes);
    if constexpr (LANES<T> > 2) add_halves<T, 2>(x, lanes);
    if constexpr (LANES<T> > 4) add_halves<T, 4>(x, lanes);
    if constexpr (LANES<T> > 8) add_halves<T, 8>(x, lanes);
    return x[0];
}
#else
#define MG_TRANSPOSES 0
template <class T>
MG_INLINE void transpose(Vector<T>*) {}
template <class T>
MG_INLINE Vector<T> sums_of_lanes(const Vector<T>* x) {
    Vector<T> sums;
    for (int i = 0; i < LANES<T>; i++) sums[i] = fold<T>(x[i], [](auto a, auto b) MG_INLINED { return a + b; });
    return sums;
}
#endif

// Panels of factors that are rounded to bfloat16, and products with them (bfloat16.cpp); a panel takes no more memory.
// The functions below use them where `rounded` asks for it, which it does for float32 alone.
#define MG_ROUNDS (MG_TRANSPOSES && __AVX512F__)
void round_panel(int64_t k, int64_t n, const float* b, int64_t row_step, int64_t column_step, int64_t first,
                 float* panel);
void multiply_rounded(bool transposed, int64_t rows, int64_t k, int64_t n, const float* a, int64_t lda,
                      const float* panels, int64_t step, const float* bias, bool accumulated, float* c, int64_t ldc);

// For functions whose loops GCC compiles better by themselves than among those of a caller: it then keeps the addresses
// in registers, and attention (attn_bB of benchmarks/workloads.py) takes 4 % less time.
#define MG_ALONE __attribute__((noinline))

// Packs the panel from column `first` on of b[k, n], whose elements lie row_step and column_step apart
template <class T, int64_t width = PANEL<T>>
MG_ALONE void pack_panel(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, int64_t first,
                         T* panel, [[maybe_unused]] bool rounded = false) {
#if MG_ROUNDS
    if constexpr (sizeof(T) == 4 && width == PANEL<T>) {
        if (rounded) return round_panel(k, n, b, row_step, column_step, first, panel);
    }
#endif
    const int64_t columns = n - first < width ? n - first : width;
    b += first * column_step;
    int64_t rows = 0;  // rows copied in squares of registers
    if (MG_TRANSPOSES && row_step == 1) {
        rows = k / LANES<T> * LANES<T>;
        for (int64_t j = 0; j < width; j += LANES<T>) {
            for (int64_t p = 0; p < rows; p += LANES<T>) {
                Vector<T> square[LANES<T>];
#pragma GCC unroll 16
                for (int i = 0; i < LANES<T>; i++)
                    square[i] = j + i < columns ? Whole<T>{p}.load(b + (j + i) * column_step) : Vector<T>{};
                transpose<T>(square);
#pragma GCC unroll 16
                for (int i = 0; i < LANES<T>; i++) Whole<T>{j}.store(panel + (p + i) * width, square[i]);
            }
        }
    }
    for (int64_t p = rows; columns < width && p < k; p++) {
        for (int64_t j = columns; j < width; j++) panel[p * width + j] = 0;
    }
    if (column_step == 1) {
        for (int64_t p = rows; p < k; p++) {
            for (int64_t j = 0; j < columns; j++) panel[p * width + j] = b[p * row_step + j];
        }
        return;
    }
    for (int64_t j = 0; j < columns; j++) {  // read in memory order
        for (int64_t p = rows; p < k; p++) panel[p * width + j] = b[p * row_step + j * column_step];
    }
}

// sum[R, V registers] += a[R, k] b[k, V registers], whose elements are a(r, p) and b(p, v); a(r, p) may be a register
// too
template <class T, int R, int V, class A, class B>
MG_INLINE void accumulate(int64_t k, A&& a, B&& b, Vector<T> (&sum)[R][V]) {
    for (int64_t p = 0; p < k; p++) {
        Vector<T> right[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) right[v] = b(p, v);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const auto left = a(r, p);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) sum[r][v] += left * right[v];
        }
    }
}

// run<R>(first) for rows in parts of R <= TILE_ROWS, as equal as possible
template <class F>
MG_INLINE void in_parts(int64_t rows, F&& run) {
    const int64_t parts = ceil_divide(rows, TILE_ROWS), least = parts < 2 ? rows : rows / parts;
    int64_t longer = rows - least * parts;  // this many parts have one more row
    const auto choose = [&]<int... R>(int64_t height, int64_t first, std::integer_sequence<int, R...>) MG_INLINED {
        static_cast<void>(((height == TILE_ROWS - R && (run.template operator()<TILE_ROWS - R>(first), true)) || ...));
    };
    for (int64_t first = 0, height; first < rows; first += height) {
        height = least + (longer-- > 0);
        choose(height, first, std::make_integer_sequence<int, TILE_ROWS>());
    }
}

// f(at, v) for the registers v of a panel that hold its first `columns` columns
template <class T, class F>
MG_INLINE void each_register(int64_t columns, F&& f) {
    if (columns >= LANES<T>)
        f(Whole<T>{0}, 0);
    else
        f(Part<T>{0, int(columns)}, 0);
    if (columns >= PANEL<T>)
        f(Whole<T>{LANES<T>}, 1);
    else if (columns > LANES<T>)
        f(Part<T>{LANES<T>, int(columns - LANES<T>)}, 1);
}

// c[R, columns] = start + a[R, k] b, with b one panel, or as wide a part of a matrix, whose rows lie ldb apart, and
// start = c, the bias, or nothing; a may be stored transposed
template <class T, int R, bool transposed = false>
MG_ALONE void multiply_panel(int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, int64_t columns,
                             const T* bias, bool accumulated, T* c, int64_t ldc) {
    Vector<T> sum[R][2] = {};
    accumulate<T, R, 2>(
        k, [&](int r, int64_t p) MG_INLINED { return transposed ? a[p * lda + r] : a[r * lda + p]; },
        [&](int64_t p, int v) MG_INLINED { return Whole<T>{p * ldb + v * LANES<T>}.load(b); }, sum);
    each_register<T>(columns, [&](auto at, int j) MG_INLINED {
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            Vector<T> v = sum[r][j];
            if (bias) v += at.load(bias);
            if (accumulated) v += at.load(c + r * ldc);
            at.store(c + r * ldc, v);
        }
    });
}

// c[rows, n] = start + a[rows, k] b with the panels of b[k, n]
template <class T, bool transposed = false>
MG_ALONE void multiply_panels(int64_t rows, int64_t k, int64_t n, const T* a, int64_t lda, const T* panels,
                              const T* bias, bool accumulated, T* c, int64_t ldc,
                              [[maybe_unused]] bool rounded = false) {
#if MG_ROUNDS
    if constexpr (sizeof(T) == 4) {
        if (rounded)
            return multiply_rounded(transposed, rows, k, n, a, lda, panels, k * PANEL<T>, bias, accumulated, c, ldc);
    }
#endif
    for (int64_t j = 0; j < n; j += PANEL<T>, panels += k * PANEL<T>) {
        in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
            multiply_panel<T, R, transposed>(k, a + first * (transposed ? 1 : lda), lda, panels, PANEL<T>, n - j,
                                             bias ? bias + j : nullptr, accumulated, c + first * ldc + j, ldc);
        });
    }
}

}  // namespace mg::MG_ISA
