// What both passes of attention share: scores of tiles of queries, masks, and products with weights.
#pragma once

#include "math.hpp"
#include "panels.hpp"
#include "philox.hpp"

namespace mg::MG_ISA {

// Scores are computed in tiles s[keys, TILE] with one column for each of TILE queries, so that the lanes of a register
// belong to different queries: a largest element or a sum over keys needs no step across lanes. Few queries, as where
// tokens are generated one by one, would leave most lanes empty: their scores are rows s[queries, KEYS], and keys and
// values are read where they lie.
constexpr int64_t KEYS = Attention::KEYS, QUERIES = Attention::QUERIES, TILE = Attention::TILE, FEW = Attention::FEW;

// Packs the columns of b[k, n] from `first` on, which begins a panel.
template <class T>
void pack_panels(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, T* panels, bool rounded,
                 int64_t first = 0) {
    for (int64_t j = first; j < n; j += PANEL<T>)
        pack_panel<T>(k, n, b, row_step, column_step, j, panels + j * k, rounded);
}

template <class T>
constexpr int64_t whole_registers(int64_t columns) {
    return ceil_divide(columns, LANES<T>) * LANES<T>;
}

// c[rows, n] (+)= a[rows, k] b with the rows [begin, begin + k) of b[packed, n]
template <class T, bool transposed>
void multiply_part(int64_t rows, int64_t begin, int64_t k, int64_t n, const T* a, int64_t lda, const T* panels,
                   int64_t packed, bool accumulated, T* c, int64_t ldc, bool rounded) {
    panels += begin * PANEL<T> / (rounded ? 2 : 1);  // two rounded rows take the room of one
    for (int64_t j = 0; j < n; j += PANEL<T>, panels += packed * PANEL<T>)
        multiply_panels<T, transposed>(rows, k, minimum(PANEL<T>, n - j), a, lda, panels, nullptr, accumulated, c + j,
                                       ldc, rounded);
}

// s[rows, KEYS] = factor x kᵀ of x[rows, size] and k[count, size]
template <class T>
MG_ALONE void score_rows(int64_t rows, int64_t count, int64_t size, const T* x, T factor, const T* k, T* s) {
    for (int64_t c = 0; c < count; c += LANES<T>, k += LANES<T> * size) {
        const int64_t last = minimum(LANES<T>, count - c) - 1;
        for (int64_t r = 0; r < rows; r++) {
            Vector<T> sum[LANES<T>] = {};
            const auto add = [&](auto row) MG_INLINED {
                sweep<T, 1>(0, size, [&](auto at, int) MG_INLINED {
                    const Vector<T> left = at.load(x + r * size);
#pragma GCC unroll 16
                    for (int i = 0; i < LANES<T>; i++) sum[i] += left * at.load(k + row(i) * size);
                });
            };
            if (last == LANES<T> - 1)
                add([](int64_t i) MG_INLINED { return i; });
            else
                add([&](int64_t i) MG_INLINED { return minimum(i, last); });
            Whole<T>{c}.store(s + r * KEYS, sums_of_lanes<T>(sum) * factor);
        }
    }
}

// to[rows, n] (+)= weights[rows, KEYS] b with the first k rows of b[packed, n], of which only columns that do not fill
// a panel are packed
template <class T>
void multiply_rows(int64_t rows, int64_t k, int64_t packed, int64_t n, const T* weights, const T* b, const T* panels,
                   bool accumulated, T* to) {
    for (int64_t j = 0; j < n; j += PANEL<T>) {
        const bool whole = n - j >= PANEL<T>;
        in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
            multiply_panel<T, R>(k, weights + first * KEYS, KEYS, whole ? b + j : panels + j * packed,
                                 whole ? n : PANEL<T>, n - j, nullptr, accumulated, to + first * n + j, n);
        });
    }
}

// f(c, m[c step]) for every key c < count; contiguous masks are vectorized.
template <class M, class F>
MG_INLINE void each_masked(int64_t count, const M* m, int64_t step, F f) {
    if (step == 1) {
#pragma omp simd
        for (int64_t c = 0; c < count; c++) f(c, m[c]);
    } else {
        for (int64_t c = 0; c < count; c++) f(c, m[c * step]);
    }
}

// The head n = (sample, head) of the queries, and the parts of the arrays that it reads.
template <class T>
struct Head : Attention {
    int64_t n;
    const T *q, *k, *v;

    Head(const Attention& a, int64_t n)
        : Attention(a),
          n(n),
          q(static_cast<const T*>(a.q) + n * queries * width),
          k(static_cast<const T*>(a.k) + n / group * rows * width),
          v(static_cast<const T*>(a.v) + n / group * rows * value_width) {}

    // How many of the keys [first, first + count) the query i sees
    int64_t seen(int64_t i, int64_t first, int64_t count) const {
        return causal ? maximum(0, minimum(count, i + 1 - first)) : count;
    }

    // Whether any query may not see all keys
    bool hides() const { return causal || bools || numbers; }

    int64_t mask_at(int64_t i, int64_t j) const {
        return n / heads * mask_step[0] + n % heads * mask_step[1] + i * mask_step[2] + j * mask_step[3];
    }

    bool sees(int64_t i, int64_t j) const {
        if (causal && j > i) return false;
        if (bools) return static_cast<const bool*>(bools)[mask_at(i, j)];
        return !numbers || static_cast<const T*>(numbers)[mask_at(i, j)] != -T(__builtin_inf());
    }

    // Whether a tile of so many queries is computed in rows
    bool few(int64_t rows) const { return rows <= FEW && !rounded; }

    // Prepares x[rows, size] of a tile of queries, times a factor, for `score`: transposed, in panels
    void pack_turned(int64_t rows, int64_t size, const T* x, T factor, T* __restrict packed) const {
        pack_panels<T>(size, rows, x, 1, size, packed, false);
#pragma omp simd
        for (int64_t i = 0; i < size * ceil_divide(rows, PANEL<T>) * PANEL<T>; i++) packed[i] *= factor;
        if (rounded) pack_panel<T>(size, TILE, packed, TILE, 1, 0, packed, true);  // in place
    }

    // s[count, TILE] = k xᵀ of k[count, size] and x packed
    void score(int64_t rows, int64_t count, int64_t size, const T* k, const T* packed, T* s) const {
        multiply_panels<T>(count, size, whole_registers<T>(rows), k, size, packed, nullptr, false, s, TILE, rounded);
    }

    // to[count] = what the mask adds to the scores of the query i and the keys from `first` on: -inf where it hides one
    void read_mask(int64_t i, int64_t first, int64_t count, T* __restrict to) const {
        const T hidden = -T(__builtin_inf());
        const int64_t at = mask_at(i, first), step = mask_step[3];
        if (bools)
            each_masked(count, static_cast<const bool*>(bools) + at, step, [&](int64_t c, bool seen) MG_INLINED {
                to[c] = bits<T>((Word<T>(seen) - 1) & bits<Word<T>>(hidden));
            });
        else
            each_masked(count, static_cast<const T*>(numbers) + at, step,
                        [&](int64_t c, T m) MG_INLINED { to[c] = m; });
    }
    static void add_mask(int64_t count, const T* __restrict mask, T* __restrict s) {
        const T hidden = -T(__builtin_inf());
#pragma omp simd
        for (int64_t i = 0; i < count; i++) s[i] = mask[i] == hidden ? hidden : s[i] + mask[i];
    }

    // to[KEYS] = 1 / (1 - dropout) for the weights of the query i that remain, 0 for the others, from the key `first`
    // on. A row of weights begins with a new block of random numbers.
    void survive(int64_t i, int64_t first, T* __restrict to) const {
        uint32_t bits[KEYS];
        const uint64_t block = static_cast<uint64_t>(n * queries + i) * static_cast<uint64_t>((keys + 3) / 4);
        philox<KEYS / 4>(seed, offset + block + static_cast<uint64_t>(first / 4), 0, bits);
        const float threshold = float(dropout);
        const T factor = T(1 / (1 - dropout));
#pragma omp simd
        for (int64_t c = 0; c < KEYS; c++) to[c] = unit(bits[c]) >= threshold ? factor : 0;
    }

    // values[count, TILE] = the transpose of the rows[KEYS] that f(r, row) writes after it
    template <class F>
    static void turn(int64_t rows, int64_t count, T* values, F f) {
        T* const by_row = values + KEYS * TILE;
        for (int64_t r = 0; r < rows; r++) f(r, by_row + r * KEYS);
        pack_panel<T, TILE>(count, rows, by_row, 1, KEYS, 0, values);
    }

    // Adds the mask to the scores s[count, TILE] of the queries [row, row + rows) and the keys from `first` on, or puts
    // -inf where it hides a key. `values` is scratch.
    void hide(int64_t row, int64_t rows, int64_t first, int64_t count, T* s, T* values) const {
        if (bools || numbers) {
            turn(rows, count, values, [&](int64_t r, T* to) { read_mask(row + r, first, count, to); });
            add_mask(count * TILE, values, s);
        }
        for (int64_t c = maximum(0, row + 1 - first); causal && c < count; c++) {
            for (int64_t r = 0; r < minimum(TILE, first + c - row); r++) s[c * TILE + r] = -T(__builtin_inf());
        }
    }

    // factors[count, TILE] = those of `survive`
    void survive_turned(int64_t row, int64_t rows, int64_t first, int64_t count, T* factors) const {
        turn(rows, count, factors, [&](int64_t r, T* to) { survive(row + r, first, to); });
    }

    // to[rows, n] (+)= weightsᵀ b, for a tile weights[count, TILE] and the panels of b[packed, n]. Most weights that
    // causal attention hides, which are 0, are left out; 16 rows are rounded at once.
    void multiply_weights(int64_t row, int64_t rows, int64_t first, int64_t count, int64_t n, const T* weights,
                          const T* panels, int64_t packed, bool accumulated, T* to) const {
        const int64_t step = seen(row, first, count) == count ? rows : rounded ? 16 : TILE_ROWS;
        for (int64_t r = 0; r < rows; r += step) {
            const int64_t height = minimum(step, rows - r), k = seen(row + r + height - 1, first, count);
            multiply_part<T, true>(height, 0, k, n, weights + r, TILE, panels, packed, accumulated, to + r * n, n,
                                   rounded);
        }
    }

    // to[count, n] += weights b, for b[rows, n], likewise
    void multiply_turned(int64_t row, int64_t rows, int64_t first, int64_t count, int64_t n, const T* weights,
                         const T* panels, T* to) const {
        for (int64_t c = 0, height; c < count; c += height) {
            const int64_t begin = causal ? maximum(0, first + c - row) : 0;  // the first query that sees the key c
            height = minimum(count - c, !causal ? count : first + c < row ? row - first : TILE_ROWS);
            multiply_part<T, false>(height, begin, rows - begin, n, weights + c * TILE + begin, TILE, panels, rows,
                                    true, to + c * n, n, rounded);
        }
    }
};

template <class T>
bool is_finite(int64_t n, const T* x) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * 0;
    return sum == 0;
}

// to[rows, n] += the sums of left(r, c) right[c, n] over the c < count of which seen(r, c), as multiply_panels adds
template <class T, class L, class S>
void multiply_seen(int64_t rows, int64_t count, int64_t n, L left, const T* right, T* to, S seen) {
    for (int64_t at = 0; at < rows * n; at += minimum(PANEL<T>, n - at % n)) {
        const int64_t r = at / n, first = at % n, columns = minimum(PANEL<T>, n - first);
        T sum[PANEL<T>] = {};
        for (int64_t c = 0; c < count; c++) {
            if (!seen(r, c)) continue;
            const T factor = left(r, c);
            for (int64_t j = 0; j < columns; j++) sum[j] += factor * right[c * n + first + j];
        }
        for (int64_t j = 0; j < columns; j++) to[at + j] += sum[j];
    }
}

}  // namespace mg::MG_ISA
