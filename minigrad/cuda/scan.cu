// Linear recurrences along the middle axis of [outer, n, inner]; `columns` is outer x inner.
//
// Two steps h -> A h + B compose to another one, in any grouping. A block has `wide` columns of `deep` threads, each of
// which takes RUN steps in a row; the block composes its threads' steps and goes on to the next deep x RUN of them.
// Where that would leave most of a GPU idle, a column is split into pieces: the kernel first runs without results, to
// compose the steps of each piece in `totals`; linear_scan_pieces turns these into the state before each piece; and the
// kernel runs again. The grouping depends on the shape alone.

#if FLOATING

const int RUN = 4, THREADS = 512;  // backend.py has the same

struct Step {
    double factor, addend;
};

// The state after a step. A zero stays exact where the product of many factors has overflowed.
__device__ inline double after(double factor, double state, double addend) {
    return state == 0 && factor == factor ? addend : factor * state + addend;
}

__device__ inline Step then(const Step& first, const Step& second) {
    return {after(second.factor, first.factor, 0), after(second.factor, first.addend, second.addend)};
}

// h_i = factor_i h_{i-1} + addend_i for the steps i of every column: load(column, i) gives a step, start(column) the
// first state; store(column, i, h) takes each state, and finish(column, step) all steps composed.
template <class Start, class Load, class Store, class Finish>
__device__ inline void scan(int64 columns, int64 n, int wide, int deep, const Start& start, const Load& load,
                            const Store& store, const Finish& finish) {
    __shared__ Step steps[THREADS];
    const int lane = threadIdx.x / wide, self = threadIdx.x;
    for (int64 base = blockIdx.x * (int64)wide; base < columns; base += gridDim.x * (int64)wide) {
        const int64 column = base + self % wide;
        const bool valid = column < columns;
        double carry = valid ? start(column) : 0.0;
        Step total = {1, 0};
        for (int64 first = 0; first < n; first += deep * RUN) {
            const int64 i = first + lane * RUN;
            Step mine[RUN], whole = {1, 0};
            for (int k = 0; k < RUN; k++) mine[k] = valid && i + k < n ? load(column, i + k) : Step{1, 0};
            for (int k = 0; k < RUN; k++) whole = then(whole, mine[k]);
            for (int distance = 1; distance < deep; distance *= 2) {
                steps[self] = whole;
                __syncthreads();
                if (lane >= distance) whole = then(steps[self - distance * wide], whole);
                __syncthreads();
            }
            steps[self] = whole;
            __syncthreads();
            double h = carry;
            if (lane > 0) {
                const Step before = steps[self - wide];
                h = after(before.factor, carry, before.addend);
            }
            const Step all = steps[(deep - 1) * wide + self % wide];
            carry = after(all.factor, carry, all.addend);
            total = then(total, all);
            for (int k = 0; k < RUN; k++) {
                h = after(mine[k].factor, h, mine[k].addend);
                if (valid && i + k < n) store(column, i + k, h);
            }
            __syncthreads();
        }
        if (valid && lane == 0) finish(column, total);
    }
}

// The same for columns in pieces of `each` steps; totals and states are [pieces, columns]. If totals is not null, it
// gets the composed steps of each piece, and nothing is stored.
template <class Start, class Load, class Store>
__device__ inline void scan(int64 columns, int64 n, int wide, int deep, int64 pieces, double* totals,
                            const double* states, const Start& start, const Load& load, const Store& store) {
    const int64 each = (n + pieces - 1) / pieces;
    scan(
        columns * pieces, each, wide, deep,
        [&](int64 piece) { return states && piece >= columns ? states[piece - columns] : start(piece % columns); },
        [&](int64 piece, int64 i) {
            const int64 t = piece / columns * each + i;
            return t < n ? load(piece % columns, t) : Step{1, 0};
        },
        [&](int64 piece, int64 i, double h) {
            const int64 t = piece / columns * each + i;
            if (!totals && t < n) store(piece % columns, t, h);
        },
        [&](int64 piece, const Step& total) {
            if (totals) totals[2 * piece] = total.factor, totals[2 * piece + 1] = total.addend;
        });
}

// states[piece, column]: the state after a piece, from the totals of the pieces and the first state
extern "C" __global__ void __launch_bounds__(512)
    linear_scan_pieces(int64 columns, int64 pieces, int wide, int deep, const T* initial, const double* totals,
                       double* states) {
    scan(
        columns, pieces, wide, deep, [&](int64 column) { return initial ? double(initial[column]) : 0.0; },
        [&](int64 column, int64 piece) {
            const double* total = totals + 2 * (piece * columns + column);
            return Step{total[0], total[1]};
        },
        [&](int64 column, int64 piece, double h) { states[piece * columns + column] = h; }, [](int64, const Step&) {});
}

// The offset of step t of a column
struct Place {
    int64 n, inner;
    bool reverse;
    __device__ int64 operator()(int64 column, int64 t) const {
        return (column / inner * n + (reverse ? n - 1 - t : t)) * inner + column % inner;
    }
};

extern "C" __global__ void __launch_bounds__(512)
    linear_scan(int64 columns, int64 n, int64 inner, Bool reverse, int wide, int deep, int64 pieces, double* totals,
                const double* states, const T* a, const T* b, const T* initial, T* h) {
    const Place place{n, inner, bool(reverse)};
    scan(
        columns, n, wide, deep, pieces, totals, states,
        [&](int64 column) { return initial ? double(initial[column]) : 0.0; },
        [&](int64 column, int64 t) {
            const int64 at = place(column, t);
            return Step{t == 0 && !initial ? 0.0 : double(a[at]), double(b[at])};
        },
        [&](int64 column, int64 t, double state) { h[place(column, t)] = T(state); });
}

// d_t = g_t + a_{t+1} d_{t+1}: a scan from the last step to the first
extern "C" __global__ void __launch_bounds__(512)
    linear_scan_backward(int64 columns, int64 n, int64 inner, Bool reverse, int wide, int deep, int64 pieces,
                         double* totals, const double* states, const T* a, const T* h, const T* initial, const T* g,
                         T* da, T* db, T* dinitial) {
    const Place place{n, inner, bool(reverse)};
    scan(
        columns, n, wide, deep, pieces, totals, states, [&](int64) { return 0.0; },
        [&](int64 column, int64 i) {
            const int64 t = n - 1 - i;
            return Step{i == 0 ? 0.0 : double(a[place(column, t + 1)]), double(g[place(column, t)])};
        },
        [&](int64 column, int64 i, double delta) {
            const int64 t = n - 1 - i, at = place(column, t);
            if (db) db[at] = T(delta);
            if (da) {
                const double before = t > 0 ? double(h[place(column, t - 1)]) : initial ? double(initial[column]) : 0.0;
                da[at] = t > 0 || initial ? T(delta * before) : T(0);
            }
            if (dinitial && t == 0) dinitial[column] = T(double(a[at]) * delta);
        });
}

#endif
