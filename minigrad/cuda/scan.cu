// Linear recurrences along the middle axis of [outer, n, inner]; `columns` is outer x inner.
//
// Two steps h -> A h + B compose to another one, in any grouping. A block has `wide` columns of `deep` threads. Each
// thread takes RUN steps in a row; the block composes its threads' steps and goes on to the next deep x RUN of them.
// Where that would leave most of a GPU idle, a column is split into pieces: the kernel first runs without results, to
// compose the steps of each piece in `totals`; linear_scan_pieces turns these into the state before each piece; and the
// kernel runs again. The grouping depends on the shape alone.

#if FLOATING

const int RUN = 4, THREADS = 512;  // backend.py has the same

template <class E>
struct StepOf {
    E factor, addend;
};
typedef StepOf<double> Step;

// The state after composed steps. A zero stays exact where the product of many factors has overflowed; an infinite
// factor of a single step was applied as it is.
__device__ inline double after(double factor, double state, double addend) {
    return state == 0 && factor == factor ? addend : factor * state + addend;
}

__device__ inline Step then(const Step& first, const Step& second) {
    return {after(second.factor, first.factor, 0), after(second.factor, first.addend, second.addend)};
}

// The steps of a column that a block takes, which an int can count: step i is number first + i, and its element is
// at + i * step.
struct Column {
    int count;
    int64 number, first, at, step;
};

// Columns in pieces, as numbers below columns * pieces: neighbours are of neighbouring columns.
struct Layout {
    int64 columns, n, inner, pieces;
    bool reverse;
    __device__ int each() const { return int((n + pieces - 1) / pieces); }
    __device__ Column operator()(int64 index) const {
        const int64 number = index % columns, first = index / columns * each();
        const int64 left = index < columns * pieces && first < n ? n - first : 0;
        return {int(left < each() ? left : each()), number, first,
                (number / inner * n + (reverse ? n - 1 - first : first)) * inner + number % inner,
                reverse ? -inner : inner};
    }
};

// h_i = factor_i h_{i-1} + addend_i for the steps of every column, where load(column, i, at) gives step first + i, and
// start(number) the first state, and `composed` says whether a step is composed of others; store(column, i, at, h)
// takes each state. If `totals` is not null, it gets the composed steps of each piece instead. `states` holds the state
// after each piece. Both are [pieces, columns].
template <bool composed, class Start, class Load, class Store>
__device__ inline void scan(const Layout& layout, int wide, int deep, double* totals, const double* states,
                            const Start& start, const Load& load, const Store& store) {
    const auto apply = [](double factor, double state, double addend) {
        return composed ? after(factor, state, addend) : factor * state + addend;
    };
    __shared__ Step steps[THREADS];
    const int lane = threadIdx.x / wide, self = threadIdx.x;
    const int64 all_columns = layout.columns * layout.pieces;
    const int each = layout.each();
    for (int64 base = blockIdx.x * (int64)wide; base < all_columns; base += gridDim.x * (int64)wide) {
        const int64 index = base + self % wide;
        const Column column = layout(index);
        double carry = index >= all_columns                ? 0.0
                       : states && index >= layout.columns ? states[index - layout.columns]
                                                           : start(column.number);
        Step total = {1, 0};
        for (int begin = 0; begin < each; begin += deep * RUN) {
            const int i = begin + lane * RUN;
            const int64 at = column.at + i * column.step;
            Step whole = {1, 0};
            decltype(load(column, i, at)) mine[RUN];
            for (int k = 0; k < RUN; k++)
                if (i + k < column.count)
                    mine[k] = load(column, i + k, at + k * column.step);
                else
                    mine[k] = {1, 0};
            for (int k = 0; k < RUN; k++)
                whole = {apply(mine[k].factor, whole.factor, 0), apply(mine[k].factor, whole.addend, mine[k].addend)};
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
            if (totals) {
                total = then(total, all);
            } else {
                for (int k = 0; k < RUN; k++) {
                    h = apply(mine[k].factor, h, mine[k].addend);
                    if (i + k < column.count) store(column, i + k, at + k * column.step, h);
                }
            }
            __syncthreads();
        }
        if (totals && index < all_columns && lane == 0)
            totals[2 * index] = total.factor, totals[2 * index + 1] = total.addend;
    }
}

extern "C" __global__ void __launch_bounds__(512)
    linear_scan_pieces(int64 columns, int64 pieces, int wide, int deep, const T* initial, const double* totals,
                       double* states) {
    scan<true>(
        Layout{columns, pieces, columns, 1, false}, wide, deep, nullptr, nullptr,
        [&](int64 number) { return initial ? double(initial[number]) : 0.0; },
        [&](const Column&, int, int64 at) { return Step{totals[2 * at], totals[2 * at + 1]}; },
        [&](const Column&, int, int64 at, double h) { states[at] = h; });
}

extern "C" __global__ void __launch_bounds__(512)
    linear_scan(int64 columns, int64 n, int64 inner, Bool reverse, int wide, int deep, int64 pieces, double* totals,
                const double* states, const T* a, const T* b, const T* initial, T* h) {
    scan<false>(
        Layout{columns, n, inner, pieces, bool(reverse)}, wide, deep, totals, states,
        [&](int64 number) { return initial ? double(initial[number]) : 0.0; },
        [&](const Column& column, int i, int64 at) {
            return StepOf<T>{column.first + i == 0 && !initial ? T(1) : a[at], b[at]};
        },
        [&](const Column&, int, int64 at, double state) { h[at] = T(state); });
}

// d_t = g_t + a_{t+1} d_{t+1}: a scan from the last step to the first, in which step t + 1 comes before step t
extern "C" __global__ void __launch_bounds__(512)
    linear_scan_backward(int64 columns, int64 n, int64 inner, Bool reverse, int wide, int deep, int64 pieces,
                         double* totals, const double* states, const T* a, const T* h, const T* initial, const T* g,
                         T* da, T* db, T* dinitial) {
    scan<false>(
        Layout{columns, n, inner, pieces, !reverse}, wide, deep, totals, states, [&](int64) { return 0.0; },
        [&](const Column& column, int i, int64 at) {
            return StepOf<T>{column.first + i == 0 ? T(1) : a[at - column.step], g[at]};
        },
        [&](const Column& column, int i, int64 at, double delta) {
            const bool last = column.first + i == n - 1;  // the scan's last step is the first step of the recurrence
            if (db) db[at] = T(delta);
            if (da) {
                const double before = !last     ? double(h[at + column.step])
                                      : initial ? double(initial[column.number])
                                                : 0.0;
                da[at] = last && !initial ? T(0) : T(delta * before);
            }
            if (dinitial && last) dinitial[column.number] = T(double(a[at]) * delta);
        });
}

#endif
