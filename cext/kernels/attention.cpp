// Attention without its matrix of weights: blocks of queries meet blocks of keys.
//
//   s = scale q kᵀ (+ mask),  p = softmax s,  y = p v
//
// A query keeps the largest s so far and the sum of e^(s - largest); where a block of keys raises the largest, what has
// been summed is rescaled (M. Milakov, N. Gimelshein 2018, "Online normalizer calculation for softmax"). The backward
// pass computes p again, from s and its largest and their sum (T. Dao et al. 2022, "FlashAttention"). Each row of the
// result is computed by one thread, in an order that depends on no other row.
//
// Hidden keys must not affect a query, but a weight 0 times NaN or infinity is NaN. Where something is hidden
// and a result is not finite, `multiply_seen` computes that block again, over the pairs that see each other.
#include "../runtime/pool.hpp"
#include "exponentials.hpp"
#include "panels.hpp"
#include "philox.hpp"

namespace mg::MG_ISA {
namespace {

// Scores are computed in tiles s[keys, TILE] with one column for each of TILE queries, so that the lanes of a register
// belong to different queries: a largest element or a sum over keys needs no step across lanes.
constexpr int64_t KEYS = Attention::KEYS, QUERIES = Attention::QUERIES, TILE = Attention::TILE;

template <class T>
void pack_panels(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, T* panels, bool rounded) {
    for (int64_t j = 0; j < n; j += PANEL<T>, panels += k * PANEL<T>)
        pack_panel<T>(k, n, b, row_step, column_step, j, panels, rounded);
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

// f(c, u) for every key c < count, where u = c % 4 is the accumulator to use
template <class F>
MG_INLINE void each_key(int64_t count, F f) {
    int64_t c = 0;
    for (; c + 4 <= count; c += 4) {
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) f(c + u, u);
    }
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) {
        if (c + u < count) f(c + u, u);
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
          k(static_cast<const T*>(a.k) + n / group * keys * width),
          v(static_cast<const T*>(a.v) + n / group * keys * value_width) {}

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

    // Prepares x[rows, size] of a tile of queries, times a factor, for `score`: transposed in panels, if there are
    // enough
    void pack_turned(int64_t rows, int64_t size, const T* __restrict x, T factor, T* __restrict packed) const {
        const bool few = rows <= FEW;
        if (!few) pack_panels<T>(size, rows, x, 1, size, packed, false);
        const int64_t count = size * (few ? rows : ceil_divide(rows, PANEL<T>) * PANEL<T>);
#pragma omp simd
        for (int64_t i = 0; i < count; i++) packed[i] = (few ? x[i] : packed[i]) * factor;
        if (rounded && !few) pack_panel<T>(size, TILE, packed, TILE, 1, 0, packed, true);  // in place
    }

    // s[count, TILE] = k xᵀ of k[count, size] and x packed; for few queries, a product of as many rows, transposed
    void score(int64_t rows, int64_t count, int64_t size, const T* k, const T* packed, T* s, T* scratch) const {
        if (rows > FEW) {
            multiply_panels<T>(count, size, whole_registers<T>(rows), k, size, packed, nullptr, false, s, TILE,
                               rounded);
            return;
        }
        T* const turned = scratch + FEW * KEYS;
        pack_panels<T>(size, count, k, 1, size, turned, rounded);
        multiply_panels<T>(rows, size, count, packed, size, turned, nullptr, false, scratch, KEYS, rounded);
        for (int64_t c = 0; c < count; c++) {
            for (int64_t j = 0; j < rows; j += LANES<T>) Whole<T>{j}.store(s + c * TILE, Vector<T>{});
            for (int64_t r = 0; r < rows; r++) s[c * TILE + r] = scratch[r * KEYS + c];
        }
    }

    // values[count, TILE] = the transpose of the rows that f(r, row[KEYS]) writes after it
    template <class F>
    void turn(int64_t rows, int64_t count, F f, T* values) const {
        T* const by_row = values + KEYS * TILE;
        for (int64_t r = 0; r < rows; r++) f(r, by_row + r * KEYS);
        pack_panel<T, TILE>(count, rows, by_row, 1, KEYS, 0, values);
    }

    // Adds the mask to the scores s[count, TILE] of the queries [row, row + rows) and the keys from `first` on, or puts
    // -inf where it hides a key. `values` is scratch.
    void hide(int64_t row, int64_t rows, int64_t first, int64_t count, T* __restrict s, T* __restrict values) const {
        const T hidden = -T(__builtin_inf());
        if (bools || numbers) {
            turn(
                rows, count,
                [&](int64_t r, T* to) {
                    const int64_t at = mask_at(row + r, first), step = mask_step[3];
                    if (bools)
                        each_masked(count, static_cast<const bool*>(bools) + at, step,
                                    [&](int64_t c, bool seen)
                                        MG_INLINED { to[c] = bits<T>((Word<T>(seen) - 1) & bits<Word<T>>(hidden)); });
                    else
                        each_masked(count, static_cast<const T*>(numbers) + at, step,
                                    [&](int64_t c, T m) MG_INLINED { to[c] = m; });
                },
                values);
#pragma omp simd
            for (int64_t i = 0; i < count * TILE; i++) s[i] = values[i] == hidden ? hidden : s[i] + values[i];
        }
        for (int64_t c = maximum(0, row + 1 - first); causal && c < count; c++) {
            for (int64_t r = 0; r < minimum(TILE, first + c - row); r++) s[c * TILE + r] = hidden;
        }
    }

    // to[rows, n] (+)= weightsᵀ b, for a tile weights[count, TILE] and the panels of b[packed, n]. Most weights that
    // causal attention hides, which are 0, are left out.
    void multiply_weights(int64_t row, int64_t rows, int64_t first, int64_t count, int64_t n, const T* weights,
                          const T* panels, int64_t packed, bool accumulated, T* to) const {
        const int64_t step = seen(row, first, count) < count ? TILE_ROWS : rows;
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

    // factors[count, TILE] = 1 / (1 - dropout) for the weights that remain, 0 for the others. A row of weights begins
    // with a new block of random numbers.
    void survive(int64_t row, int64_t rows, int64_t first, int64_t count, T* factors) const {
        turn(
            rows, count,
            [&](int64_t r, T* __restrict to) {
                uint32_t bits[KEYS];
                const uint64_t block =
                    static_cast<uint64_t>(n * queries + row + r) * static_cast<uint64_t>((keys + 3) / 4);
                philox<KEYS / 4>(seed, offset + block + static_cast<uint64_t>(first / 4), 0, bits);
                const float threshold = float(dropout);
                const T factor = T(1 / (1 - dropout));
#pragma omp simd
                for (int64_t c = 0; c < KEYS; c++) to[c] = unit(bits[c]) >= threshold ? factor : 0;
            },
            factors);
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

// f(slot, item) for each item; a slot, which has a scratch buffer, takes several items one after the other.
template <class F>
void each_item(int64_t items, int64_t slots, F f) {
    parallel_each(slots, 1, [&](int64_t slot) {
        for (int64_t item = slot; item < items; item += slots) f(slot, item);
    });
}

// ---- forward ------------------------------------------------------------------------------------------------------

// Replaces the scores s[keys, TILE] of the queries from `row` on by e^(s - top), where top[TILE] has been raised to the
// largest of them, and adds these to sum[TILE]. For the new top, sums so far are multiplied by factors[TILE].
template <class T>
void exponentiate(const Head<T>& a, int64_t row, int64_t columns, int64_t first, int64_t keys, T* s, T* top,
                  double* sum, T* factors) {
    constexpr T hidden = -T(__builtin_inf());
    for (int64_t j = 0; j < columns; j += LANES<T>) {
        const Whole<T> at{j};
        const int64_t count = a.seen(row + j + LANES<T> - 1, first, keys);
        const Vector<T> before = at.load(top);
        Vector<T> found[4] = {before, before, before, before}, total[4] = {};
        each_key(count, [&](int64_t c, int u) MG_INLINED {
            const Vector<T> v = at.load(s + c * TILE);
            found[u] = v > found[u] ? v : found[u];  // not a NaN, which shows in the sum
        });
        for (int u = 1; u < 4; u++) found[0] = found[u] > found[0] ? found[u] : found[0];
        at.store(top, found[0]);
        const Vector<T> factor =
            ((found[0] > before) & (before > hidden)) ? exponential<T>(before - found[0]) : Vector<T>{} + 1;
        const Vector<T> shift = found[0] == hidden ? Vector<T>{} : found[0];  // so that NaN shows, and -inf gives 0
        each_key(count, [&](int64_t c, int u) MG_INLINED {
            const Vector<T> e = exponential<T>(at.load(s + c * TILE) - shift);
            at.store(s + c * TILE, e);
            total[u] += e;
        });
        for (int64_t c = count; c < keys; c++) at.store(s + c * TILE, Vector<T>{});
        const Vector<T> all = (total[0] + total[1]) + (total[2] + total[3]);
        at.store(factors, factor);
        for (int i = 0; i < LANES<T>; i++) sum[j + i] = sum[j + i] * factors[j + i] + all[i];
    }
}

template <class T>
void forward_block(const Head<T>& a, int64_t row, T* scratch, T* y, T* statistics, bool seen_only = false) {
    const int64_t rows = minimum(QUERIES, a.queries - row), end = a.seen(row + rows - 1, 0, a.keys);
    T* const queries = scratch;                    // panels of qᵀ
    T* const right = queries + QUERIES * a.width;  // panels of v
    T* const s = right + KEYS * Attention::whole(a.value_width);
    T *const values = s + KEYS * TILE, *const more = values + a.masked_scratch();
    T top[QUERIES], factors[TILE];
    double sum[QUERIES] = {};
    for (T& t : top) t = -T(__builtin_inf());
    if (end == 0 || seen_only) clear(rows * a.value_width, y);
    for (int64_t i = 0; i < rows; i += TILE)
        a.pack_turned(minimum(TILE, rows - i), a.width, a.q + (row + i) * a.width, T(a.scale), queries + i * a.width);
    for (int64_t first = 0; first < end; first += KEYS) {
        const T* const v = a.v + first * a.value_width;
        if (!seen_only)
            pack_panels<T>(minimum(KEYS, end - first), a.value_width, v, a.value_width, 1, right, a.rounded);
        for (int64_t i = 0; i < rows; i += TILE) {
            const int64_t height = minimum(TILE, rows - i), columns = whole_registers<T>(height);
            const int64_t count = a.seen(row + i + height - 1, first, minimum(KEYS, end - first));
            if (count == 0) continue;
            T* const out = y + i * a.value_width;
            a.score(height, count, a.width, a.k + first * a.width, queries + i * a.width, s, more);
            if (a.hides()) a.hide(row + i, height, first, count, s, values);
            exponentiate<T>(a, row + i, columns, first, count, s, top + i, sum + i, factors);
            for (int64_t r = 0; first > 0 && r < height; r++) {
                if (factors[r] == 1) continue;
                sweep<T, 2>(0, a.value_width, [&](auto at, int) MG_INLINED {
                    at.store(out + r * a.value_width, at.load(out + r * a.value_width) * factors[r]);
                });
            }
            if (a.dropout > 0) {
                a.survive(row + i, height, first, count, values);
#pragma omp simd
                for (int64_t c = 0; c < count * TILE; c++) s[c] *= values[c];
            }
            if (seen_only) {
                multiply_seen<T>(
                    height, count, a.value_width, [&](int64_t r, int64_t c) { return s[c * TILE + r]; }, v, out,
                    [&](int64_t r, int64_t c) { return a.sees(row + i + r, first + c); });
                continue;
            }
            a.multiply_weights(row + i, height, first, count, a.value_width, s, right, minimum(KEYS, end - first),
                               first > 0, out);
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        // A query that sees no key has the result 0, and with these statistics all its weights are 0 again.
        const T inverse = sum[r] == 0 ? 0 : T(1 / sum[r]);
        statistics[2 * r] = top[r] == -T(__builtin_inf()) ? 0 : top[r];
        statistics[2 * r + 1] = inverse;
        sweep<T, 2>(0, a.value_width, [&](auto at, int) MG_INLINED {
            T* const out = y + r * a.value_width;
            at.store(out, at.load(out) * inverse);
        });
    }
    if (a.hides() && !seen_only && !is_finite(rows * a.value_width, y))
        forward_block(a, row, scratch, y, statistics, true);
}

MG_KERNEL(attention[FLOATS])
template <class T>
void attention(const Attention& a) {
    const int64_t blocks = (a.queries + QUERIES - 1) / QUERIES;
    each_item(a.batch * a.heads * blocks, a.slots, [&](int64_t slot, int64_t item) {
        const Head<T> head(a, item / blocks);
        const int64_t row = item % blocks * QUERIES, at = head.n * a.queries + row;
        forward_block<T>(head, row, static_cast<T*>(a.scratch) + slot * attention_scratch(a, false),
                         static_cast<T*>(a.y) + at * a.value_width, static_cast<T*>(a.statistics) + 2 * at);
    });
}

// ---- backward -----------------------------------------------------------------------------------------------------
//
//   dv = pᵀ g,  ds = p (g vᵀ - delta) with delta = the sum of g y over each row,  dq = scale ds k,  dk = scale dsᵀ q
//
// An item is a part of the keys of a head, and all queries that see them. The contributions of the parts to dq are kept
// in separate arrays, then added up in order.

// The arrays of one item: panels of the factors on the right of products, two tiles of weights, and scratch
template <class T>
struct Workspace {
    T *k, *qt, *gt, *q, *g, *p, *dp, *values, *more;

    Workspace(const Attention& a, T* scratch) {
        const int64_t w = Attention::whole(a.width), v = Attention::whole(a.value_width);
        k = scratch;
        qt = k + KEYS * w;
        gt = qt + TILE * w;
        q = gt + TILE * v;
        g = q + TILE * w;
        p = g + TILE * v;
        dp = p + KEYS * TILE;
        values = dp + KEYS * TILE;
        more = values + a.masked_scratch();
    }
};

// Adds the contribution of a tile of queries and a block of keys.
template <class T>
void backward_tile(const Head<T>& a, const Workspace<T>& w, int64_t row, int64_t first, int64_t keys, const T* g,
                   const T* statistics, const T* delta, T* dq, T* dk, T* dv, bool seen_only) {
    const int64_t rows = minimum(TILE, a.queries - row), count = a.seen(row + rows - 1, first, keys);
    const int64_t columns = whole_registers<T>(rows);
    const T *const q = a.q + row * a.width, *const k = a.k + first * a.width, *const v = a.v + first * a.value_width;
    a.pack_turned(rows, a.width, q, T(a.scale), w.qt);
    a.score(rows, count, a.width, k, w.qt, w.p, w.more);
    if (a.hides()) a.hide(row, rows, first, count, w.p, w.values);
    if (dq || dk) {
        a.pack_turned(rows, a.value_width, g, 1, w.gt);
        a.score(rows, count, a.value_width, v, w.gt, w.dp, w.more);
    }
    const bool dropped = a.dropout > 0;
    if (dropped) a.survive(row, rows, first, count, w.values);
    T shift[TILE] = {}, inverse[TILE] = {}, total[TILE] = {};
    for (int64_t r = 0; r < rows; r++) {
        shift[r] = statistics[2 * r], inverse[r] = statistics[2 * r + 1];
        if (delta) total[r] = delta[r];
    }
    const T factor = T(a.scale);
    for (int64_t j = 0; j < columns; j += LANES<T>) {
        const Whole<T> at{j};
        const Vector<T> top = at.load(shift), share = at.load(inverse), less = at.load(total);
        const int64_t some = a.seen(row + j + LANES<T> - 1, first, count);
        for (int64_t c = some; c < count; c++)
            at.store(w.p + c * TILE, Vector<T>{}), at.store(w.dp + c * TILE, Vector<T>{});
        for (int64_t c = 0; c < some; c++) {
            T *const p = w.p + c * TILE, *const dp = w.dp + c * TILE;
            const Vector<T> weight = exponential<T>(at.load(p) - top) * share;
            const Vector<T> kept = dropped ? at.load(w.values + c * TILE) : Vector<T>{} + 1;
            at.store(p, weight * kept);
            if (delta) at.store(dp, weight * (at.load(dp) * kept - less) * factor);
        }
    }
    if (seen_only) {
        const auto seen = [&](int64_t r, int64_t c) { return a.sees(row + r, first + c); };
        const auto turned = [&](int64_t c, int64_t r) { return seen(r, c); };
        const auto p = [&](int64_t c, int64_t r) { return w.p[c * TILE + r]; };
        const auto ds = [&](int64_t c, int64_t r) { return w.dp[c * TILE + r]; };
        if (dv) multiply_seen<T>(count, rows, a.value_width, p, g, dv, turned);
        if (dk) multiply_seen<T>(count, rows, a.width, ds, q, dk, turned);
        if (dq) multiply_seen<T>(rows, count, a.width, [&](int64_t r, int64_t c) { return ds(c, r); }, k, dq, seen);
        return;
    }
    if (dv) {
        pack_panels<T>(rows, a.value_width, g, a.value_width, 1, w.g, a.rounded);
        a.multiply_turned(row, rows, first, count, a.value_width, w.p, w.g, dv);
    }
    if (dk) {
        pack_panels<T>(rows, a.width, q, a.width, 1, w.q, a.rounded);
        a.multiply_turned(row, rows, first, count, a.width, w.dp, w.q, dk);
    }
    if (dq) a.multiply_weights(row, rows, first, count, a.width, w.dp, w.k, keys, true, dq);
}

MG_KERNEL(attention_backward[FLOATS])
template <class T>
void attention_backward(const Attention& a) {
    const int64_t heads = a.batch * a.heads, all = heads * a.queries, size = all * a.width;
    T *const dq = static_cast<T*>(a.dq), *const partial = static_cast<T*>(a.partial);
    T* const delta = a.dq || a.dk ? static_cast<T*>(a.delta) : nullptr;
    const T *const g = static_cast<const T*>(a.g), *const y = static_cast<const T*>(a.y);
    if (delta) {
        parallel_each(all, 1 + (1 << 13) / (1 + a.value_width), [&](int64_t r) {
            double total = 0;
            sums<T, 1, 2>(a.value_width, &total, [&](auto at, auto& sum) MG_INLINED {
                Vector<T> v = at.load(g + r * a.value_width);
                if constexpr (sizeof(T) == 4) {  // as in g vᵀ, so that both cancel where a weight is 1
                    const auto bits = (Vector<uint32_t>)v;
                    if (a.rounded) v = (Vector<T>)((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
                }
                sum[0] += v * at.load(y + r * a.value_width);
            });
            delta[r] = T(total);
        });
    }
    const int64_t length = attention_part(a);
    each_item(heads / a.group * a.parts, a.slots, [&](int64_t slot, int64_t item) {
        const int64_t source = item / a.parts, part = item % a.parts, size_of_dq = a.group * a.queries * a.width;
        const int64_t begin = minimum(a.keys, part * length), end = minimum(a.keys, begin + length);
        const int64_t at_key = source * a.keys + begin;
        const Workspace<T> w(a, static_cast<T*>(a.scratch) + slot * attention_scratch(a, true));
        T* const sums = !dq ? nullptr : (a.parts == 1 ? dq : partial + part * size) + source * size_of_dq;
        T* const dk = a.dk ? static_cast<T*>(a.dk) + at_key * a.width : nullptr;
        T* const dv = a.dv ? static_cast<T*>(a.dv) + at_key * a.value_width : nullptr;
        const Head<T> any(a, source * a.group);
        const auto run = [&](bool seen_only) {
            if (sums) clear(size_of_dq, sums);
            if (dk) clear((end - begin) * a.width, dk);
            if (dv) clear((end - begin) * a.value_width, dv);
            for (int64_t first = begin; first < end; first += KEYS) {
                const int64_t count = minimum(KEYS, a.keys - first);
                if (dq) pack_panels<T>(count, a.width, any.k + first * a.width, a.width, 1, w.k, a.rounded);
                for (int64_t h = 0; h < a.group; h++) {
                    const Head<T> head(a, source * a.group + h);
                    for (int64_t row = a.causal ? first / TILE * TILE : 0; row < a.queries; row += TILE) {
                        const int64_t at = head.n * a.queries + row;
                        backward_tile<T>(head, w, row, first, count, g + at * a.value_width,
                                         static_cast<const T*>(a.statistics) + 2 * at, delta ? delta + at : nullptr,
                                         sums ? sums + (h * a.queries + row) * a.width : nullptr,
                                         dk ? dk + (first - begin) * a.width : nullptr,
                                         dv ? dv + (first - begin) * a.value_width : nullptr, seen_only);
                    }
                }
            }
        };
        run(false);
        if (any.hides() &&
            !((!sums || is_finite(size_of_dq, sums)) && (!dk || is_finite((end - begin) * a.width, dk)) &&
              (!dv || is_finite((end - begin) * a.value_width, dv))))
            run(true);
    });
    if (dq && a.parts > 1) {
        parallel_each(size, 1 << 13, [&](int64_t i) {
            T total = partial[i];
            for (int64_t part = 1; part < a.parts; part++) total += partial[part * size + i];
            dq[i] = total;
        });
    }
}

}  // namespace

void fill_attention(Kernels& k) { MG_PUT_ATTENTION }

}  // namespace mg::MG_ISA
