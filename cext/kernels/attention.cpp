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
#include "attention.hpp"

#include "../runtime/pool.hpp"
#include "exponentials.hpp"

namespace mg::MG_ISA {
namespace {

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

// The same for the scores s[KEYS] of one query, which sees `count` of the keys
template <class T>
void exponentiate_row(int64_t count, int64_t keys, T* s, T& top, double& sum, T& factor) {
    const T before = top, found = largest(count, s);
    factor = 1;
    if (found > before) {
        top = found;
        if (before - before == 0) factor = fraction(before - found);
    }
    sum = sum * factor + sum_exp(count, s, top == -T(__builtin_inf()) ? 0 : top, s);
    clear(keys - count, s + count);
}

template <class T>
void forward_block(const Head<T>& a, int64_t row, T* scratch, T* y, T* statistics, bool seen_only = false) {
    const int64_t rows = minimum(QUERIES, a.queries - row), end = a.seen(row + rows - 1, 0, a.keys);
    T* const queries = scratch;                    // panels of qᵀ
    T* const right = queries + QUERIES * a.width;  // panels of v
    T* const s = right + KEYS * Attention::whole(a.value_width);
    T* const values = s + KEYS * TILE;
    T top[QUERIES], factors[TILE];
    double sum[QUERIES] = {};
    for (T& t : top) t = -T(__builtin_inf());
    if (end == 0 || seen_only) clear(rows * a.value_width, y);
    for (int64_t i = 0; i < rows && !a.few(rows - i); i += TILE)
        a.pack_turned(minimum(TILE, rows - i), a.width, a.q + (row + i) * a.width, T(a.scale), queries + i * a.width);
    for (int64_t first = 0; first < end; first += KEYS) {
        const T* const v = a.v + first * a.value_width;
        const int64_t packed = minimum(KEYS, end - first);
        if (!seen_only)
            pack_panels<T>(packed, a.value_width, v, a.value_width, 1, right, a.rounded,
                           a.few(rows) ? a.value_width / PANEL<T> * PANEL<T> : 0);
        for (int64_t i = 0; i < rows; i += TILE) {
            const int64_t height = minimum(TILE, rows - i), columns = whole_registers<T>(height);
            const int64_t count = a.seen(row + i + height - 1, first, packed);
            const bool few = a.few(height);
            if (count == 0) continue;
            T* const out = y + i * a.value_width;
            if (few) {
                score_rows<T>(height, count, a.width, a.q + (row + i) * a.width, T(a.scale), a.k + first * a.width, s);
                for (int64_t r = 0; r < height; r++) {
                    T* const weights = s + r * KEYS;
                    if (a.bools || a.numbers) {
                        a.read_mask(row + i + r, first, count, values);
                        a.add_mask(count, values, weights);
                    }
                    exponentiate_row<T>(a.seen(row + i + r, first, count), count, weights, top[i + r], sum[i + r],
                                        factors[r]);
                    if (a.dropout == 0) continue;
                    a.survive(row + i + r, first, values);
#pragma omp simd
                    for (int64_t c = 0; c < count; c++) weights[c] *= values[c];
                }
            } else {
                a.score(height, count, a.width, a.k + first * a.width, queries + i * a.width, s);
                if (a.hides()) a.hide(row + i, height, first, count, s, values);
                exponentiate<T>(a, row + i, columns, first, count, s, top + i, sum + i, factors);
                if (a.dropout > 0) {
                    a.survive_turned(row + i, height, first, count, values);
#pragma omp simd
                    for (int64_t c = 0; c < count * TILE; c++) s[c] *= values[c];
                }
            }
            for (int64_t r = 0; first > 0 && r < height; r++) {
                if (factors[r] == 1) continue;
                sweep<T, 2>(0, a.value_width, [&](auto at, int) MG_INLINED {
                    at.store(out + r * a.value_width, at.load(out + r * a.value_width) * factors[r]);
                });
            }
            if (seen_only)
                multiply_seen<T>(
                    height, count, a.value_width,
                    [&](int64_t r, int64_t c) { return s[few ? r * KEYS + c : c * TILE + r]; }, v, out,
                    [&](int64_t r, int64_t c) { return a.sees(row + i + r, first + c); });
            else if (few)
                multiply_rows<T>(height, count, packed, a.value_width, s, v, right, first > 0, out);
            else
                a.multiply_weights(row + i, height, first, count, a.value_width, s, right, packed, first > 0, out);
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
    T *k, *qt, *gt, *q, *g, *p, *dp, *values;

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
    }
};

// For weights of the same query or the same key, whose factors of dropout are `kept`, if any: p = the weights from the
// scores p, and dp = ds from g vᵀ in dp, if `dp` is given
template <class T, class At>
MG_INLINE void weigh(At at, Vector<T> top, Vector<T> share, Vector<T> less, T factor, const T* kept, T* p, T* dp) {
    const Vector<T> weight = exponential<T>(at.load(p) - top) * share;
    const Vector<T> some = kept ? at.load(kept) : Vector<T>{} + 1;
    at.store(p, weight * some);
    if (dp) at.store(dp, weight * (at.load(dp) * some - less) * factor);
}

// Adds the contribution of a tile of queries and a block of keys.
template <class T>
void backward_tile(const Head<T>& a, const Workspace<T>& w, int64_t row, int64_t first, int64_t keys, const T* g,
                   const T* statistics, const T* delta, T* dq, T* dk, T* dv, bool seen_only) {
    const int64_t rows = minimum(TILE, a.queries - row), count = a.seen(row + rows - 1, first, keys);
    const T *const q = a.q + row * a.width, *const k = a.k + first * a.width, *const v = a.v + first * a.value_width;
    const T factor = T(a.scale);
    T* const dp = dq || dk ? w.dp : nullptr;
    const T* const kept = a.dropout > 0 ? w.values : nullptr;
    const bool few = a.few(rows);
    if (few) {
        score_rows<T>(rows, count, a.width, q, factor, k, w.p);
        if (dp) score_rows<T>(rows, count, a.value_width, g, T(1), v, dp);
        for (int64_t r = 0; r < rows; r++) {
            T *const weights = w.p + r * KEYS, *const ds = offset(dp, r * KEYS);
            const int64_t some = a.seen(row + r, first, count);
            if (a.bools || a.numbers) {
                a.read_mask(row + r, first, some, w.values);
                a.add_mask(some, w.values, weights);
            }
            if (kept) a.survive(row + r, first, w.values);
            const Vector<T> none{}, top = none + statistics[2 * r], share = none + statistics[2 * r + 1];
            const Vector<T> less = delta ? none + delta[r] : none;
            sweep<T, 2>(0, some,
                        [&](auto at, int) MG_INLINED { weigh<T>(at, top, share, less, factor, kept, weights, ds); });
            clear(count - some, weights + some);
            if (ds) clear(count - some, ds + some);
        }
    } else {
        a.pack_turned(rows, a.width, q, factor, w.qt);
        a.score(rows, count, a.width, k, w.qt, w.p);
        if (a.hides()) a.hide(row, rows, first, count, w.p, w.values);
        if (dp) {
            a.pack_turned(rows, a.value_width, g, 1, w.gt);
            a.score(rows, count, a.value_width, v, w.gt, dp);
        }
        if (kept) a.survive_turned(row, rows, first, count, w.values);
        T shift[TILE] = {}, inverse[TILE] = {}, total[TILE] = {};
        for (int64_t r = 0; r < rows; r++) {
            shift[r] = statistics[2 * r], inverse[r] = statistics[2 * r + 1];
            if (delta) total[r] = delta[r];
        }
        for (int64_t j = 0; j < whole_registers<T>(rows); j += LANES<T>) {
            const Whole<T> at{j};
            const Vector<T> top = at.load(shift), share = at.load(inverse), less = at.load(total);
            const int64_t some = a.seen(row + j + LANES<T> - 1, first, count);
            for (int64_t c = some; c < count; c++)
                at.store(w.p + c * TILE, Vector<T>{}), at.store(w.dp + c * TILE, Vector<T>{});
            for (int64_t c = 0; c < some; c++)
                weigh<T>(at, top, share, less, factor, offset(kept, c * TILE), w.p + c * TILE, offset(dp, c * TILE));
        }
    }
    if (seen_only) {
        const auto seen = [&](int64_t r, int64_t c) { return a.sees(row + r, first + c); };
        const auto turned = [&](int64_t c, int64_t r) { return seen(r, c); };
        const auto at = [&](int64_t c, int64_t r) { return few ? r * KEYS + c : c * TILE + r; };
        const auto p = [&](int64_t c, int64_t r) { return w.p[at(c, r)]; };
        const auto ds = [&](int64_t c, int64_t r) { return w.dp[at(c, r)]; };
        if (dv) multiply_seen<T>(count, rows, a.value_width, p, g, dv, turned);
        if (dk) multiply_seen<T>(count, rows, a.width, ds, q, dk, turned);
        if (dq) multiply_seen<T>(rows, count, a.width, [&](int64_t r, int64_t c) { return ds(c, r); }, k, dq, seen);
        return;
    }
    // to[count, n] += the weights of each key, over the queries, times x[rows, n]
    const auto sum_queries = [&](int64_t n, const T* weights, const T* x, T* panels, T* to) {
        pack_panels<T>(rows, n, x, n, 1, panels, a.rounded);
        if (few)
            multiply_part<T, true>(count, 0, rows, n, weights, KEYS, panels, rows, true, to, n, false);
        else
            a.multiply_turned(row, rows, first, count, n, weights, panels, to);
    };
    if (dv) sum_queries(a.value_width, w.p, g, w.g, dv);
    if (dk) sum_queries(a.width, dp, q, w.q, dk);
    if (dq && few)
        multiply_rows<T>(rows, count, keys, a.width, dp, k, w.k, true, dq);
    else if (dq)
        a.multiply_weights(row, rows, first, count, a.width, dp, w.k, keys, true, dq);
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
                if (dq)
                    pack_panels<T>(count, a.width, any.k + first * a.width, a.width, 1, w.k, a.rounded,
                                   any.few(a.queries) ? a.width / PANEL<T> * PANEL<T> : 0);
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
