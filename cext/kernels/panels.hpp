// Products with a matrix that is used many times: packed once into panels, then read in the order of its use.
//
// A panel holds two registers' width of columns, row after row, the last one filled up with zeros. Every element of the
// product is a sum over k in rising order, whatever block of rows it is computed in.
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

// Rows and columns of a square of registers exchanged: element j of row i becomes element i of row j
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
#else
#define MG_TRANSPOSES 0
template <class T>
MG_INLINE void transpose(Vector<T>*) {}
#endif

// One panel, from column `first` on, of b[k, n], whose elements lie row_step and column_step apart
template <class T>
void pack_panel(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, int64_t first, T* panel) {
    const int64_t columns = n - first < PANEL<T> ? n - first : PANEL<T>;
    b += first * column_step;
    for (int64_t p = 0; columns < PANEL<T> && p < k; p++) {
        for (int64_t j = columns; j < PANEL<T>; j++) panel[p * PANEL<T> + j] = 0;
    }
    if (column_step == 1) {
        for (int64_t p = 0; p < k; p++) {
            for (int64_t j = 0; j < columns; j++) panel[p * PANEL<T> + j] = b[p * row_step + j];
        }
        return;
    }
    int64_t rows = 0, full = 0;  // what has been copied in squares of registers
    if (MG_TRANSPOSES && row_step == 1) {
        rows = k / LANES<T> * LANES<T>, full = columns / LANES<T> * LANES<T>;
        for (int64_t j = 0; j < full; j += LANES<T>) {
            for (int64_t p = 0; p < rows; p += LANES<T>) {
                Vector<T> square[LANES<T>];
#pragma GCC unroll 16
                for (int i = 0; i < LANES<T>; i++) square[i] = Whole<T>{p}.load(b + (j + i) * column_step);
                transpose<T>(square);
#pragma GCC unroll 16
                for (int i = 0; i < LANES<T>; i++) Whole<T>{j}.store(panel + (p + i) * PANEL<T>, square[i]);
            }
        }
    }
    for (int64_t j = 0; j < columns; j++) {  // the rest, read in the order of memory
        for (int64_t p = j < full ? rows : 0; p < k; p++) panel[p * PANEL<T> + j] = b[p * row_step + j * column_step];
    }
}

// c[R, columns] = start + a[R, k] b, with b one panel and start = c, the bias, or nothing
template <class T, int R>
MG_INLINE void multiply_panel(int64_t k, const T* a, int64_t lda, const T* b, int64_t columns, const T* bias,
                              bool accumulate, T* c, int64_t ldc) {
    Vector<T> sum[R][2] = {};
    for (int64_t p = 0; p < k; p++, b += PANEL<T>) {
        const Vector<T> b0 = Whole<T>{0}.load(b), b1 = Whole<T>{LANES<T>}.load(b);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            sum[r][0] += a[r * lda + p] * b0;
            sum[r][1] += a[r * lda + p] * b1;
        }
    }
    const auto write = [&](auto at, int j) MG_INLINED {
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            Vector<T> v = sum[r][j];
            if (bias) v += at.load(bias);
            if (accumulate) v += at.load(c + r * ldc);
            at.store(c + r * ldc, v);
        }
    };
    if (columns >= PANEL<T>) {
        write(Whole<T>{0}, 0);
        write(Whole<T>{LANES<T>}, 1);
    } else {
        if (columns >= LANES<T>)
            write(Whole<T>{0}, 0);
        else
            write(Part<T>{0, int(columns)}, 0);
        if (columns > LANES<T>) write(Part<T>{LANES<T>, int(columns - LANES<T>)}, 1);
    }
}

// c[rows, n] = start + a[rows, k] b with the panels of b[k, n]
template <class T>
void multiply_panels(int64_t rows, int64_t k, int64_t n, const T* a, int64_t lda, const T* panels, const T* bias,
                     bool accumulate, T* c, int64_t ldc) {
    const int64_t parts = (rows + TILE_ROWS - 1) / TILE_ROWS;
    for (int64_t j = 0; j < n; j += PANEL<T>, panels += k * PANEL<T>) {
        for (int64_t part = 0; part < parts; part++) {  // of equal height
            const int64_t first = rows * part / parts, height = rows * (part + 1) / parts - first;
            const auto run = [&]<int R>() MG_INLINED {
                multiply_panel<T, R>(k, a + first * lda, lda, panels, n - j, bias ? bias + j : nullptr, accumulate,
                                     c + first * ldc + j, ldc);
            };
            switch (height) {
                case 1:
                    run.template operator()<1>();
                    break;
                case 2:
                    run.template operator()<2>();
                    break;
                case 3:
                    run.template operator()<3>();
                    break;
                case 4:
                    run.template operator()<4>();
                    break;
                case 5:
                    run.template operator()<5>();
                    break;
                case 6:
                    run.template operator()<6>();
                    break;
                case 7:
                    run.template operator()<7>();
                    break;
                case 8:
                    run.template operator()<8>();
                    break;
            }
        }
    }
}

}  // namespace mg::MG_ISA
