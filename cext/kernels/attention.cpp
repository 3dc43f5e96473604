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

constexpr int64_t KEYS = Attention::KEYS;

template <class T>
void pack_panels(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, T* panels) {
    for (int64_t j = 0; j < n; j += PANEL<T>, panels += k * PANEL<T>)
        pack_panel<T>(k, n, b, row_step, column_step, j, panels);
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

    // s = scale s (+ mask), or -inf where that hides a key, for the query i and the keys [first, first + count)
    void score(int64_t i, int64_t first, int64_t count, T* __restrict s) const {
        const T factor = T(scale), hidden = -T(__builtin_inf());
        const int64_t at = mask_at(i, first), step = mask_step[3];
        if (bools) {
            const bool* m = static_cast<const bool*>(bools) + at;
#pragma omp simd
            for (int64_t c = 0; c < count; c++) s[c] = m[c * step] ? s[c] * factor : hidden;
        } else if (numbers) {
            const T* m = static_cast<const T*>(numbers) + at;
#pragma omp simd
            for (int64_t c = 0; c < count; c++) s[c] = m[c * step] == hidden ? hidden : s[c] * factor + m[c * step];
        } else {
#pragma omp simd
            for (int64_t c = 0; c < count; c++) s[c] *= factor;
        }
    }

    // factors[count] = 1 / (1 - dropout) for the weights that remain, 0 for the others. A row of weights begins with
    // a new block of random numbers.
    void survive(int64_t i, int64_t first, T* __restrict factors) const {
        uint32_t bits[KEYS];
        const uint64_t row = static_cast<uint64_t>(n * queries + i) * static_cast<uint64_t>((keys + 3) / 4);
        philox<KEYS / 4>(seed, offset + row + static_cast<uint64_t>(first / 4), 0, bits);
        const float threshold = float(dropout);
        const T factor = T(1 / (1 - dropout));
#pragma omp simd
        for (int64_t c = 0; c < KEYS; c++) factors[c] = unit(bits[c]) >= threshold ? factor : 0;
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

constexpr int64_t QUERIES = Attention::QUERIES;

template <class T>
void forward_block(const Head<T>& a, int64_t row, T* scratch, T* y, T* statistics, bool seen_only = false) {
    const int64_t rows = minimum(QUERIES, a.queries - row), end = a.seen(row + rows - 1, 0, a.keys);
    T* const right = scratch;  // the panels of kᵀ, then of v
    T* const s = scratch + Attention::panels(a.width, a.value_width);
    T top[QUERIES];
    double sum[QUERIES] = {};
    for (T& t : top) t = -T(__builtin_inf());
    if (end == 0 || seen_only) clear(rows * a.value_width, y);
    for (int64_t first = 0; first < end; first += KEYS) {
        const int64_t count = minimum(KEYS, end - first);
        pack_panels<T>(a.width, count, a.k + first * a.width, 1, a.width, right);
        multiply_panels<T>(rows, a.width, count, a.q + row * a.width, a.width, right, nullptr, false, s, KEYS);
        for (int64_t r = 0; r < rows; r++) {
            T* const p = s + r * KEYS;
            const int64_t seen = a.seen(row + r, first, count);
            a.score(row + r, first, seen, p);
            const T found = largest(seen, p), before = top[r];
            if (found > before) {
                top[r] = found;
                const T factor = before - before == 0 ? fraction(before - found) : 1;
                sum[r] *= factor;
                if (first > 0)
                    sweep<T, 2>(0, a.value_width, [&](auto at, int) MG_INLINED {
                        T* const out = y + r * a.value_width;
                        at.store(out, at.load(out) * factor);
                    });
            }
            const T shift = top[r] == -T(__builtin_inf()) ? 0 : top[r];  // so that NaN shows, and -inf gives 0
            sum[r] += sum_exp(seen, p, shift, p);
            for (int64_t c = seen; c < count; c++) p[c] = 0;
            if (a.dropout > 0) {
                T factors[KEYS];
                a.survive(row + r, first, factors);
#pragma omp simd
                for (int64_t c = 0; c < count; c++) p[c] *= factors[c];
            }
        }
        const T* const values = a.v + first * a.value_width;
        if (seen_only) {
            multiply_seen<T>(
                rows, count, a.value_width, [&](int64_t r, int64_t c) { return s[r * KEYS + c]; }, values, y,
                [&](int64_t r, int64_t c) { return a.sees(row + r, first + c); });
            continue;
        }
        pack_panels<T>(count, a.value_width, values, a.value_width, 1, right);
        multiply_panels<T>(rows, count, a.value_width, s, KEYS, right, nullptr, first > 0, y, a.value_width);
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

constexpr int64_t ROWS = Attention::QUERIES_BACKWARD;  // queries in a block

// The arrays of one item: panels of the factors on the right of products, and two blocks of weights
template <class T>
struct Workspace {
    T *kt, *k, *vt, *q, *g, *p, *dp;

    Workspace(const Attention& a, T* scratch) {
        const int64_t w = Attention::whole(a.width), v = Attention::whole(a.value_width);
        kt = scratch;
        k = kt + KEYS * w;
        vt = k + KEYS * w;
        q = vt + KEYS * v;
        g = q + ROWS * w;
        p = g + ROWS * v;
        dp = p + ROWS * KEYS;
    }
};

// Adds the contribution of a block of queries and a block of keys that was packed before. `more`: dk and dv already
// hold sums.
template <class T>
void backward_block(const Head<T>& a, const Workspace<T>& w, int64_t row, int64_t first, int64_t keys, const T* g,
                    const T* statistics, const T* delta, T* dq, T* dk, T* dv, bool seen_only) {
    const int64_t rows = minimum(ROWS, a.queries - row), count = a.seen(row + rows - 1, first, keys);
    const T* const q = a.q + row * a.width;
    multiply_panels<T>(rows, a.width, count, q, a.width, w.kt, nullptr, false, w.p, KEYS);
    if (dq || dk) multiply_panels<T>(rows, a.value_width, count, g, a.value_width, w.vt, nullptr, false, w.dp, KEYS);
    const T factor = T(a.scale);
    for (int64_t r = 0; r < rows; r++) {
        T *const p = w.p + r * KEYS, *const dp = w.dp + r * KEYS;
        const int64_t seen = a.seen(row + r, first, count);
        const T shift = statistics[2 * r], inverse = statistics[2 * r + 1], total = delta ? delta[r] : 0;
        a.score(row + r, first, seen, p);
        sweep<T, 2>(0, seen,
                    [&](auto at, int) MG_INLINED { at.store(p, exponential<T>(at.load(p) - shift) * inverse); });
        T factors[KEYS];
        if (a.dropout > 0) a.survive(row + r, first, factors);
        if (dq || dk) {
            if (a.dropout > 0) {
#pragma omp simd
                for (int64_t c = 0; c < seen; c++) dp[c] *= factors[c];
            }
#pragma omp simd
            for (int64_t c = 0; c < seen; c++) dp[c] = p[c] * (dp[c] - total) * factor;
        }
        if (a.dropout > 0) {
#pragma omp simd
            for (int64_t c = 0; c < seen; c++) p[c] *= factors[c];
        }
        for (int64_t c = seen; c < keys; c++) p[c] = dp[c] = 0;
    }
    if (seen_only) {
        const auto seen = [&](int64_t r, int64_t c) { return a.sees(row + r, first + c); };
        const auto turned = [&](int64_t c, int64_t r) { return seen(r, c); };
        const auto p = [&](int64_t c, int64_t r) { return w.p[r * KEYS + c]; };
        const auto ds = [&](int64_t r, int64_t c) { return w.dp[r * KEYS + c]; };
        if (dv) multiply_seen<T>(count, rows, a.value_width, p, g, dv, turned);
        if (dk) multiply_seen<T>(count, rows, a.width, [&](int64_t c, int64_t r) { return ds(r, c); }, q, dk, turned);
        if (dq) multiply_seen<T>(rows, count, a.width, ds, a.k + first * a.width, dq, seen);
        return;
    }
    if (dv) {
        pack_panels<T>(rows, a.value_width, g, a.value_width, 1, w.g);
        multiply_panels<T, true>(count, rows, a.value_width, w.p, KEYS, w.g, nullptr, true, dv, a.value_width);
    }
    if (dk) {
        pack_panels<T>(rows, a.width, q, a.width, 1, w.q);
        multiply_panels<T, true>(count, rows, a.width, w.dp, KEYS, w.q, nullptr, true, dk, a.width);
    }
    if (dq) multiply_panels<T>(rows, keys, a.width, w.dp, KEYS, w.k, nullptr, true, dq, a.width);
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
                sum[0] += at.load(g + r * a.value_width) * at.load(y + r * a.value_width);
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
                pack_panels<T>(a.width, count, any.k + first * a.width, 1, a.width, w.kt);
                if (dq) pack_panels<T>(count, a.width, any.k + first * a.width, a.width, 1, w.k);
                if (delta) pack_panels<T>(a.value_width, count, any.v + first * a.value_width, 1, a.value_width, w.vt);
                for (int64_t h = 0; h < a.group; h++) {
                    const Head<T> head(a, source * a.group + h);
                    for (int64_t row = a.causal ? first / ROWS * ROWS : 0; row < a.queries; row += ROWS) {
                        const int64_t at = head.n * a.queries + row;
                        backward_block<T>(head, w, row, first, count, g + at * a.value_width,
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
