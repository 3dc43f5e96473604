// Recurrent layers: all steps of one layer in one call.
//
// The samples of a batch are independent, so a thread takes a block of them through the whole sequence, and no thread
// waits for another at any step. What a step computes for a sample depends on no other sample.
//
// A step computes  z = h W + b,  u = LN(z) or z,  a = u + x,  then gates and state, where x comes from the input. The
// norm is applied segment by segment: to z (NORM_STATE), or to z + x (NORM_SUM; then a = u). LN is RMSNorm if the cell
// is not centered: then the means below are 0.
#include "../runtime/pool.hpp"
#include "math.hpp"
#include "panels.hpp"
#include "rows.hpp"

namespace mg::MG_ISA {
namespace {

// The statistics that the forward pass keeps of a normalized row: xhat = (x - center) scale + offset
template <class T>
struct Kept {
    T center, scale, offset;

    MG_INLINE Vector<T> standard(Vector<T> x) const { return (x - center) * scale + offset; }
};

// The arrays of a Recurrence as rows: one sample at one step
template <class T>
struct Rows : Recurrence {
    int64_t columns = gates * hidden;
    const T *w = typed(Recurrence::w), *bias = typed(Recurrence::bias), *gamma = typed(Recurrence::gamma),
            *beta = typed(Recurrence::beta), *gamma_c = typed(Recurrence::gamma_c), *beta_c = typed(Recurrence::beta_c);
    T* scratch = typed(Recurrence::scratch);

    explicit Rows(const Recurrence& r) : Recurrence(r) {}

    template <class Array>
    T* row(Array* base, int64_t t, int64_t n, int64_t width) const {
        return base ? static_cast<T*>(const_cast<void*>(static_cast<const void*>(base))) + (t * batch + n) * width
                    : nullptr;
    }
    Kept<T>* kept(void* base, int64_t t, int64_t n, int64_t count) const {
        return base ? static_cast<Kept<T>*>(base) + (t * batch + n) * count : nullptr;
    }
    bool alive(int64_t t, int64_t n) const { return !lengths || t < lengths[n]; }
    bool ends_at(int64_t t, int64_t n) const { return t + 1 == (lengths ? lengths[n] : steps); }
};

// ---- gates --------------------------------------------------------------------------------------------------------

// y = 1/(1 + e^-y), or with a slope clip(slope y + 1/2, 0, 1)
template <class T>
MG_INLINE void gate(int64_t n, T slope, T* y) {
    if (slope == 0) {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) y[j] = sigmoid(y[j]);
    } else {
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            const T v = slope * y[j] + T(0.5), low = v < 0 ? 0 : v;
            y[j] = low > 1 ? 1 : low;
        }
    }
}

// The derivative of `gate` from its result
template <class T>
MG_INLINE T gate_slope(T slope, T y) {
    return slope == 0 ? y * (1 - y) : y > 0 && y < 1 ? slope : y != y ? y : 0;
}

template <class T>
MG_INLINE void hyperbolic(int64_t n, T* y) {
    for_each<T>(n, [=](int64_t j) MG_INLINED { y[j] = tanh(y[j]); });
}

// ---- one row, normalized ------------------------------------------------------------------------------------------

template <class T>
MG_INLINE Kept<T> kept(int64_t width, const T* x, double eps, bool centered) {
    const Standard<T> s =
        centered ? standardize<T, SHORT, true>(width, x, eps) : standardize<T, SHORT, false>(width, x, eps);
    return {s.center, s.scale, s.offset};
}

// y = xhat gamma + beta (+ more)
template <class T>
MG_INLINE void normalized(int64_t width, const T* x, const Kept<T>& s, const T* gamma, const T* beta,
                          std::type_identity_t<const T*> more, T* y) {
    for_affine(gamma, beta, [&](auto gamma, auto beta) MG_INLINED {
        sweep<T, 2>(0, width, [&](auto at, int) MG_INLINED {
            Vector<T> v = affine<T>(at, s.standard(at.load(x)), gamma, beta);
            if (more) v += at.load(more);
            at.store(y, v);
        });
    });
}

// dx = rstd (h - mean(h) - xhat mean(h xhat)) with h = g gamma, and dgamma += g xhat, dbeta += g. dx may be g.
template <class T>
MG_INLINE void normalized_backward(int64_t width, const T* x, const Kept<T>& s, bool centered, const T* gamma,
                                   const T* g, T* dx, T* dgamma, T* dbeta) {
    double total[2] = {};
    sums<T, 2, 1>(width, total, [&](auto at, auto& sum) MG_INLINED {
        Vector<T> h = at.load(g);  // 0 beyond the end of the row
        if (gamma) h = h * at.load(gamma);
        sum[0] += h;
        sum[1] += h * s.standard(at.load(x));
    });
    const T h_mean = centered ? T(total[0] / double(width)) : T(0), h_slope = T(total[1] / double(width));
    sweep<T, 1>(0, width, [&](auto at, int) MG_INLINED {
        const Vector<T> xhat = s.standard(at.load(x)), v = at.load(g);
        if (dgamma) {
            at.store(dgamma, at.load(dgamma) + v * xhat);
            at.store(dbeta, at.load(dbeta) + v);
        }
        const Vector<T> h = affine<T>(at, v, gamma, nullptr);
        at.store(dx, (h - h_mean - xhat * h_slope) * s.scale);
    });
}

// ---- the sum before the gates -------------------------------------------------------------------------------------

// The number of columns in which x is added to u before the gates. In a GRU's candidate, u is multiplied by the reset
// gate first.
template <class T>
int64_t added_columns(const Rows<T>& r) {
    return r.cell == GRU ? 2 * r.hidden : r.columns;
}

// a = u + x for row (t, n); z may be a
template <class T>
MG_INLINE void add_input(const Rows<T>& r, int64_t t, int64_t n, T* z, T* a) {
    const int64_t added = added_columns(r);
    const T* x = r.row(r.x, t, n, r.columns);
    if (r.norm == NORM_SUM) {
#pragma omp simd
        for (int64_t j = 0; j < r.columns; j++) z[j] += x[j];
    }
    if (r.norm == NO_NORM) {
#pragma omp simd
        for (int64_t j = 0; j < added; j++) a[j] = z[j] + x[j];
        if (a != z) copy(r.columns - added, z + added, a + added);
        return;
    }
    Kept<T>* stats = r.kept(r.stats, t * r.keep, n, r.segments);
    for (int64_t s = 0, begin = 0; s < r.segments; begin = r.ends[s++]) {
        const int64_t width = r.ends[s] - begin;
        stats[s] = kept(width, z + begin, r.eps, r.centered);
        normalized(width, z + begin, stats[s], offset(r.gamma, begin), offset(r.beta, begin),
                   r.norm == NORM_STATE && begin < added ? x + begin : nullptr, a + begin);
    }
}

// dz from du, for row (t, n); both may be the same memory
template <class T>
MG_INLINE void through_norm(const Rows<T>& r, int64_t t, int64_t n, const T* du, T* dz, T* dgamma, T* dbeta) {
    const T* z = r.row(r.z, t, n, r.columns);
    const Kept<T>* stats = r.kept(r.stats, t, n, r.segments);
    for (int64_t s = 0, begin = 0; s < r.segments; begin = r.ends[s++])
        normalized_backward(r.ends[s] - begin, z + begin, stats[s], r.centered, offset(r.gamma, begin), du + begin,
                            dz + begin, offset(dgamma, begin), offset(dbeta, begin));
}

// ---- the cells: row (t, n) ----------------------------------------------------------------------------------------

// A thread's scratch: rows of the cell's width
template <class T>
struct Scratch {
    T *du, *m, *dh;         // [columns], [hidden], [hidden]
    T *dgamma, *dbeta;      // [columns], null if not wanted
    T *dgamma_c, *dbeta_c;  // [hidden], null if not wanted
};

// h = f(a)
template <class T>
MG_INLINE void rnn(const Rows<T>& r, int64_t t, int64_t n) {
    T *z = r.row(r.z, t * r.keep, n, r.columns), *h = r.row(r.h, t + 1, n, r.hidden);
    add_input(r, t, n, z, h);
    if (r.cell == RNN_TANH) {
        hyperbolic(r.hidden, h);
    } else {
        for (int64_t j = 0; j < r.hidden; j++) h[j] = h[j] > 0 || h[j] != h[j] ? h[j] : 0;
    }
}

template <class T>
MG_INLINE void rnn_backward(const Rows<T>& r, int64_t t, int64_t n, const T* dh, T* carry, const Scratch<T>&) {
    const T* h = r.row(r.h, t + 1, n, r.hidden);
    T* dx = r.row(r.dx, t, n, r.columns);
    if (r.cell == RNN_TANH) {
#pragma omp simd
        for (int64_t j = 0; j < r.hidden; j++) dx[j] = dh[j] * (1 - h[j] * h[j]);
    } else {
        for (int64_t j = 0; j < r.hidden; j++) dx[j] = h[j] <= 0 ? 0 : dh[j];  // also for NaN, as relu
    }
    clear(r.hidden, carry);
}

// i, f, o = gate(a_i), gate(a_f), gate(a_o), g = tanh(a_g), c' = f c + i g, m = LN(c') or c', h = o tanh(m); carried is
// c', or m. The order in memory is i, f, g, o.
template <class T>
MG_INLINE void lstm(const Rows<T>& r, int64_t t, int64_t n, const Scratch<T>& scratch) {
    const int64_t H = r.hidden;
    T *z = r.row(r.z, t * r.keep, n, r.columns), *a = r.row(r.act, t * r.keep, n, r.columns);
    T* __restrict h = r.row(r.h, t + 1, n, H);
    const T* __restrict c = r.row(r.c, t, n, H);
    T* __restrict next = r.row(r.c, t + 1, n, H);
    add_input(r, t, n, z, a);
    gate(2 * H, T(r.slope), a);
    hyperbolic(H, a + 2 * H);
    gate(H, T(r.slope), a + 3 * H);
    const T* __restrict i = a, * __restrict f = a + H, * __restrict g = a + 2 * H, * __restrict o = a + 3 * H;
#pragma omp simd
    for (int64_t j = 0; j < H; j++) next[j] = f[j] * c[j] + i[j] * g[j];
    const T* m = next;
    if (r.norm_cell) {
        Kept<T>* stats = r.kept(r.stats_c, t * r.keep, n, 1);
        *stats = kept(H, next, r.eps_c, r.centered);
        normalized(H, next, *stats, r.gamma_c, r.beta_c, nullptr, scratch.m);
        if (r.raw_c) {  // the cell state is carried on normalized
            copy(H, next, r.row(r.raw_c, t * r.keep, n, H));
            copy(H, scratch.m, next);
        }
        m = scratch.m;
    }
    for_each<T>(H, [=](int64_t j) MG_INLINED { h[j] = o[j] * tanh(m[j]); });
}

template <class T>
MG_INLINE void lstm_backward(const Rows<T>& r, int64_t t, int64_t n, const T* __restrict dh, T* carry,
                             const Scratch<T>& scratch) {
    const int64_t H = r.hidden;
    const T slope = T(r.slope);
    const T* a = r.row(r.act, t, n, r.columns);
    const T* __restrict i = a, * __restrict f = a + H, * __restrict g = a + 2 * H, * __restrict o = a + 3 * H;
    const T* __restrict c = r.row(r.c, t, n, H), *next = r.row(r.c, t + 1, n, H);
    const T* raw = r.raw_c ? r.row(r.raw_c, t, n, H) : next;
    const Kept<T>* stats = r.kept(r.stats_c, t, n, 1);
    T* dx = r.row(r.dx, t, n, r.columns);
    T* __restrict di = dx, * __restrict df = dx + H, * __restrict dg = dx + 2 * H, * __restrict d_o = dx + 3 * H;
    T* __restrict dc = r.row(r.dc, 0, n, H);
    T* __restrict dm = scratch.m;  // first m, then tanh(m), then its gradient

    if (r.norm_cell && !r.raw_c)
        normalized(H, raw, *stats, r.gamma_c, r.beta_c, nullptr, dm);
    else
        copy(H, next, dm);
    for_each<T>(H, [=](int64_t j) MG_INLINED {
        const T y = tanh(dm[j]);
        d_o[j] = dh[j] * y;
        dm[j] = dh[j] * o[j] * (1 - y * y);
    });
    if (r.norm_cell) {
        if (r.raw_c) {
#pragma omp simd
            for (int64_t j = 0; j < H; j++) dm[j] += dc[j];
            clear(H, static_cast<T*>(dc));
        }
        normalized_backward(H, raw, *stats, r.centered, r.gamma_c, static_cast<const T*>(dm), static_cast<T*>(dm),
                            scratch.dgamma_c, scratch.dbeta_c);
    }
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        const T d = dc[j] + dm[j];
        d_o[j] *= gate_slope(slope, o[j]);
        di[j] = d * g[j] * gate_slope(slope, i[j]);
        df[j] = d * c[j] * gate_slope(slope, f[j]);
        dg[j] = d * i[j] * (1 - g[j] * g[j]);
        dc[j] = d * f[j];
    }
    clear(H, carry);
}

// r, z = gate(a_r), gate(a_z), n = tanh(x_n + r u_n), h' = (1 - z) n + z h, or with swap z n + (1 - z) h. The order in
// memory is r, z, n.
template <class T>
MG_INLINE void gru(const Rows<T>& r, int64_t t, int64_t n) {
    const int64_t H = r.hidden;
    T *z = r.row(r.z, t * r.keep, n, r.columns), *a = r.row(r.act, t * r.keep, n, r.columns);
    const T* __restrict x = r.row(r.x, t, n, r.columns) + 2 * H;
    const T* __restrict h = r.row(r.h, t, n, H);
    T* __restrict next = r.row(r.h, t + 1, n, H);
    add_input(r, t, n, z, a);
    gate(2 * H, T(r.slope), a);
    const T* __restrict reset = a, * __restrict update = a + H;
    T* __restrict candidate = a + 2 * H;
    for_each<T>(H, [=, swap = r.swap](int64_t j) MG_INLINED {
        const T y = tanh(x[j] + reset[j] * candidate[j]), w = swap ? 1 - update[j] : update[j];
        candidate[j] = y;
        next[j] = y + w * (h[j] - y);
    });
}

template <class T>
MG_INLINE void gru_backward(const Rows<T>& r, int64_t t, int64_t n, const T* __restrict dh, T* __restrict carry,
                            const Scratch<T>& scratch) {
    const int64_t H = r.hidden;
    const T slope = T(r.slope), sign = r.swap ? -1 : 1;
    const T *a = r.row(r.act, t, n, r.columns), *z = r.row(r.z, t, n, r.columns) + 2 * H;
    const T* __restrict reset = a, * __restrict update = a + H, * __restrict candidate = a + 2 * H;
    const T* __restrict h = r.row(r.h, t, n, H);
    T *dx = r.row(r.dx, t, n, r.columns), *du = r.row(r.dz, t, n, r.columns);
    T* __restrict dr = dx, * __restrict dw = dx + H, * __restrict dn = dx + 2 * H, * __restrict dun = du + 2 * H;
    const T* __restrict u = z;
    if (r.norm != NO_NORM) {
        const int64_t s = r.segments - 1;
        normalized(H, z, r.kept(r.stats, t, n, r.segments)[s], offset(r.gamma, 2 * H), offset(r.beta, 2 * H), nullptr,
                   scratch.m);
        u = scratch.m;
    }
#pragma omp simd
    for (int64_t j = 0; j < H; j++) {
        const T w = r.swap ? 1 - update[j] : update[j], y = candidate[j];
        const T d = dh[j] * (1 - w) * (1 - y * y);
        carry[j] = dh[j] * w;
        dn[j] = d;
        dun[j] = d * reset[j];
        dr[j] = d * u[j] * gate_slope(slope, reset[j]);
        dw[j] = sign * dh[j] * (h[j] - y) * gate_slope(slope, update[j]);
    }
    copy(2 * H, dx, du);
}

// ---- all steps ----------------------------------------------------------------------------------------------------

constexpr int64_t FLUSH = 64;  // rows summed in T before they are added in double

template <class T>
T* scratch_of(const Rows<T>& r, int64_t block) {
    return r.scratch + r.panels + block * r.columns * 2 + block * r.hidden * 4;
}

template <class T>
void pack_panels(int64_t k, int64_t n, const T* b, int64_t row_step, int64_t column_step, T* panels, bool rounded) {
    parallel_each(ceil_divide(n, PANEL<T>), 1 + GRAIN / (k * PANEL<T>), [=](int64_t i) {
        pack_panel(k, n, b, row_step, column_step, i * PANEL<T>, panels + i * k * PANEL<T>, rounded);
    });
}

// c[rows, n] = start + a[rows, k] b, bit for bit as multiply_panels computes it, for a b that is used in one step only:
// every panel is packed into the same memory and used while it is in the nearest cache.
template <class T>
void multiply_once(int64_t rows, int64_t k, int64_t n, const T* a, const T* b, int64_t row_step, int64_t column_step,
                   const T* bias, bool accumulate, T* c, T* panels, bool rounded) {
    parallel(ceil_divide(n, PANEL<T>), 1 + GRAIN / (k * PANEL<T> * rows), [=](int64_t first, int64_t last) {
        T* panel = panels + first * k * PANEL<T>;
        for (int64_t j = first * PANEL<T>; j < last * PANEL<T> && j < n; j += PANEL<T>) {
            pack_panel(k, n, b, row_step, column_step, j, panel, rounded);
            multiply_panels(rows, k, minimum(n - j, PANEL<T>), a, k, panel, offset(bias, j), accumulate, c + j, n,
                            rounded);
        }
    });
}

// W[columns, hidden]: h W^T needs panels of its transpose, and dz W panels of W itself
MG_KERNEL(recurrent[FLOATS])
template <class T>
void recurrent(const Recurrence& recurrence) {
    const Rows<T> r(recurrence);
    const int64_t H = r.hidden, columns = r.columns;
    T* panels = r.scratch;
    const bool once = r.steps == 1 && r.batch > 0;
    if (once)
        multiply_once(r.batch, H, columns, r.row(r.h, 0, 0, H), r.w, 1, H, r.bias, false, r.row(r.z, 0, 0, columns),
                      panels, r.rounded);
    else
        pack_panels(H, columns, r.w, 1, H, panels, r.rounded);
    parallel_each(ceil_divide(r.batch, r.block), 1, [&](int64_t b) {
        const int64_t begin = b * r.block, end = minimum(begin + r.block, r.batch);
        Scratch<T> scratch{};
        scratch.m = scratch_of(r, b);
        for (int64_t t = 0; t < r.steps; t++) {
            if (!once)
                multiply_panels(end - begin, H, columns, r.row(r.h, t, begin, H), H, panels, r.bias, false,
                                r.row(r.z, t * r.keep, begin, columns), columns, r.rounded);
            for (int64_t n = begin; n < end; n++) {
                T *h = r.row(r.h, t + 1, n, H), *c = r.row(r.c, t + 1, n, H);
                if (!r.alive(t, n)) {
                    clear(H, h);
                    if (c) clear(H, c);
                    continue;
                }
                if (r.cell == LSTM)
                    lstm(r, t, n, scratch);
                else if (r.cell == GRU)
                    gru(r, t, n);
                else
                    rnn(r, t, n);
                if (r.ends_at(t, n)) {
                    copy(H, h, r.row(r.h_last, 0, n, H));
                    if (c) copy(H, c, r.row(r.c_last, 0, n, H));
                }
            }
        }
    });
}

// total += sum, and sum = 0
template <class T>
MG_INLINE void flush(int64_t n, T* sum, double* total) {
    for (int64_t j = 0; j < n; j++) {
        total[j] += double(sum[j]);
        sum[j] = 0;
    }
}

MG_KERNEL(recurrent_backward[FLOATS])
template <class T>
void recurrent_backward(const Recurrence& recurrence) {
    const Rows<T> r(recurrence);
    const int64_t H = r.hidden, columns = r.columns, blocks = ceil_divide(r.batch, r.block);
    T* panels = r.scratch;
    const bool once = r.steps == 1 && r.batch > 0;
    if (!once) pack_panels(columns, H, r.w, H, 1, panels, r.rounded);
    double* totals =
        static_cast<double*>(r.totals);  // [blocks, 2 (columns + hidden)]: dgamma, dbeta, dgamma_c, dbeta_c
    const int64_t affine = 2 * (columns + H);
    parallel_each(blocks, 1, [&](int64_t b) {
        const int64_t begin = b * r.block, end = minimum(begin + r.block, r.batch);
        T* rows = scratch_of(r, b);
        Scratch<T> scratch{};
        scratch.m = rows;
        scratch.dh = rows + H;
        T* sums = rows + 2 * H;
        double* total = totals ? totals + b * affine : nullptr;
        if (totals) {
            clear(affine, sums);
            clear(affine, total);
            scratch.dgamma = r.norm != NO_NORM ? sums : nullptr;
            scratch.dbeta = r.norm != NO_NORM ? sums + columns : nullptr;
            scratch.dgamma_c = r.norm_cell ? sums + 2 * columns : nullptr;
            scratch.dbeta_c = r.norm_cell ? sums + 2 * columns + H : nullptr;
        }
        int64_t summed = 0;
        for (int64_t t = r.steps - 1; t >= 0; t--) {
            for (int64_t n = begin; n < end; n++) {
                T *dx = r.row(r.dx, t, n, columns), *dz = r.row(r.dz, t, n, columns);
                if (!r.alive(t, n)) {
                    clear(columns, dx);
                    if (dz != dx) clear(columns, dz);
                    continue;
                }
                const T* gy = r.row(r.gy, t, n, H);
                T *carry = r.row(r.dh, 0, n, H), *dh = scratch.dh;
#pragma omp simd
                for (int64_t j = 0; j < H; j++) dh[j] = carry[j] + (gy ? gy[j] : T(0));
                if (r.cell == LSTM)
                    lstm_backward(r, t, n, dh, carry, scratch);
                else if (r.cell == GRU)
                    gru_backward(r, t, n, dh, carry, scratch);
                else
                    rnn_backward(r, t, n, dh, carry, scratch);
                if (r.norm != NO_NORM)
                    through_norm(r, t, n, r.cell == GRU ? dz : dx, dz, scratch.dgamma, scratch.dbeta);
            }
            // samples that have ended have dz = 0
            if (!once)
                multiply_panels<T>(end - begin, columns, H, r.row(r.dz, t, begin, columns), columns, panels, nullptr,
                                   true, r.row(r.dh, 0, begin, H), H, r.rounded);
            summed += end - begin;
            if (totals && (summed >= FLUSH || t == 0)) {
                flush(affine, sums, total);
                summed = 0;
            }
        }
    });
    if (once)
        multiply_once<T>(r.batch, columns, H, r.row(r.dz, 0, 0, columns), r.w, H, 1, nullptr, true,
                         r.row(r.dh, 0, 0, H), panels, r.rounded);
    if (!totals) return;
    const auto add_up = [&](void* out, int64_t n, int64_t place) {
        for (int64_t j = 0; out && j < n; j++) {
            double sum = 0;
            for (int64_t b = 0; b < blocks; b++) sum += totals[b * affine + place + j];
            static_cast<T*>(out)[j] = T(sum);
        }
    };
    add_up(r.dgamma, columns, 0);
    add_up(r.dbeta, columns, columns);
    add_up(r.dgamma_c, H, 2 * columns);
    add_up(r.dbeta_c, H, 2 * columns + H);
}

}  // namespace

void fill_recurrent(Kernels& k) { MG_PUT_RECURRENT }

}  // namespace mg::MG_ISA
