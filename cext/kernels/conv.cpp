// Two-dimensional convolutions (cross-correlations) as products of matrices that are never stored whole: the
// patches of x are the right side of the forward product, in panels of a register's width of positions, and the left
// side of the weights' gradient, where their elements are read from x one by one.
#include "../runtime/pool.hpp"
#include "panels.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t DEPTH = 256;      // rows of a panel at a time, so that it stays in the cache
constexpr int64_t CHUNK = 1 << 17;  // multiply-adds worth handing to a thread

int64_t grain_of(int64_t work) { return ceil_divide(CHUNK, work < 1 ? 1 : work); }

// The offsets in a sample of x of the elements of the window at (0, 0)
void fill_offsets(const Conv2d& at, int64_t* offsets) {
    for (int64_t c = 0; c < at.channels; c++) {
        for (int64_t i = 0; i < at.kernel_h; i++) {
            for (int64_t j = 0; j < at.kernel_w; j++)
                *offsets++ = (c * at.height + i * at.dilation_h) * at.width + j * at.dilation_w;
        }
    }
}

// A position in y, and the offset of its window in x from the first window
struct Position {
    int64_t row, column;

    Position(const Conv2d& at, int64_t p) : row(p / at.columns), column(p - row * at.columns) {}
    void advance(const Conv2d& at, int64_t n) {
        for (column += n; column >= at.columns; column -= at.columns) row++;
    }
    int64_t place(const Conv2d& at) const { return row * at.stride_h * at.width + column * at.stride_w; }
};

// Some positions in a row of y, whose patches lie side by side in x
struct Segment {
    int64_t place, begin, length;  // in x, in the panel
};

template <class T>
struct Segments {
    Segment list[PANEL<T>];
    int count = 0;

    Segments(const Conv2d& at, Position first, int64_t positions) {
        for (int64_t q = 0; q < positions;) {
            const int64_t length = minimum(at.columns - first.column, positions - q);
            list[count++] = {first.place(at), q, length};
            first.advance(at, length);
            q += length;
        }
    }
};

// ---- forward --------------------------------------------------------------------------------------------------------

// panel[depth, PANEL] = the patches of a sample x at the positions of the segments; writes up to a register more
template <class T>
void pack_patches(const Segments<T>& segments, int64_t stride, int64_t depth, const int64_t* offsets, const T* x,
                  T* panel) {
    for (int64_t k = 0; k < depth; k++, panel += PANEL<T>) {
        for (int s = 0; s < segments.count; s++) {
            const Segment& segment = segments.list[s];
            const T* from = x + offsets[k] + segment.place;
            T* to = panel + segment.begin;
            if (stride == 1) {
                int64_t i = 0;
                for (; i + LANES<T> <= segment.length; i += LANES<T>) Whole<T>{0}.store(to + i, Whole<T>{i}.load(from));
                if (i < segment.length)  // the next segment overwrites the excess
                    Whole<T>{0}.store(to + i, Part<T>{i, int(segment.length - i)}.load(from));
            } else {
                for (int64_t i = 0; i < segment.length; i++) to[i] = from[i * stride];
            }
        }
    }
}

// y[rows, positions] = start + w[rows, depth] b with b(k, v) of the patches, start = y or the bias
template <class T, class B>
MG_INLINE void multiply_patches(int64_t rows, int64_t depth, const T* w, int64_t ldw, B&& b, const T* bias,
                                bool accumulated, int64_t positions, T* y, int64_t ldy) {
    in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
        const T* a = w + first * ldw;
        T* to = y + first * ldy;
        Vector<T> sum[R][2] = {};
        accumulate<T, R, 2>(depth, [&](int r, int64_t k) MG_INLINED { return a[r * ldw + k]; }, b, sum);
        each_register<T>(positions, [&](auto at, int v) MG_INLINED {
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                if (accumulated)
                    sum[r][v] += at.load(to + r * ldy);
                else if (bias)
                    sum[r][v] += bias[first + r];
                at.store(to + r * ldy, sum[r][v]);
            }
        });
    });
}

// offsets[depth] is scratch for the places of a window's elements.
MG_KERNEL(conv2d[FLOATS])
template <class T>
void conv2d(const Conv2d& at, const T* x, const T* w, const T* bias, T* y, int64_t* offsets) {
    const int64_t depth = at.depth(), positions = at.positions(), panels = ceil_divide(positions, PANEL<T>);
    const int64_t sample = at.channels * at.height * at.width;
    const bool straight = at.stride_w == 1 && at.columns % LANES<T> == 0;  // registers are whole in x too
    fill_offsets(at, offsets);
    parallel(at.batch * at.groups * panels, grain_of(PANEL<T> * at.outputs * depth), [&](int64_t begin, int64_t end) {
        alignas(REGISTER) T panel[DEPTH * PANEL<T> + LANES<T>];
        int64_t image = begin / panels, first = begin % panels * PANEL<T>;
        Position position(at, first);
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t group = at.groups == 1 ? 0 : image % at.groups, count = minimum(PANEL<T>, positions - first);
            const T *from = x + image * sample, *weights = w + group * at.outputs * depth;
            const T* shift = offset(bias, group * at.outputs);
            T* to = y + image * at.outputs * positions + first;
            for (int64_t k = 0; k == 0 || k < depth; k += DEPTH) {
                const int64_t* places = offsets + k;
                const int64_t length = minimum(DEPTH, depth - k);
                const auto multiply = [&](auto b) MG_INLINED {
                    multiply_patches(at.outputs, length, weights + k, depth, b, shift, k > 0, count, to, positions);
                };
                if (straight) {
                    Position second = position;
                    second.advance(at, count > LANES<T> ? LANES<T> : 0);
                    const T* start[2] = {from + position.place(at), from + second.place(at)};
                    multiply([&](int64_t p, int v) MG_INLINED { return Whole<T>{places[p]}.load(start[v]); });
                } else {
                    pack_patches(Segments<T>(at, position, count), at.stride_w, length, places, from, panel);
                    multiply([&](int64_t p, int v)
                                 MG_INLINED { return Whole<T>{p * PANEL<T> + v * LANES<T>}.load(panel); });
                }
            }
            first += PANEL<T>;
            position.advance(at, PANEL<T>);
            if (first >= positions) {
                image++;
                first = 0;
                position = Position(at, 0);
            }
        }
    });
}

// ---- the gradient of x: its patches, which are products of weights and g, are added at their positions --------------

template <class T>
void add_segments(const Segments<T>& segments, int64_t stride, const T* values, T* dx) {
    for (int s = 0; s < segments.count; s++) {
        const Segment& segment = segments.list[s];
        const T* from = values + segment.begin;
        T* to = dx + segment.place;
        int64_t i = 0;
        if (stride == 1) {
            for (; i + LANES<T> <= segment.length; i += LANES<T>)
                Whole<T>{i}.store(to, Whole<T>{i}.load(to) + Whole<T>{i}.load(from));
        }
        for (; i < segment.length; i++) to[i * stride] += from[i];
    }
}

// turned[groups, kernel_h, kernel_w, channels, outputs] is scratch for the weights.
MG_KERNEL(conv2d_backward_data[FLOATS])
template <class T>
void conv2d_backward_data(const Conv2d& at, const T* g, const T* w, T* dx, T* turned) {
    const int64_t window = at.kernel_h * at.kernel_w, depth = at.depth(), positions = at.positions();
    const int64_t plane = at.height * at.width, images = at.batch * at.groups;
    const bool straight = at.stride_w == 1 && at.columns % LANES<T> == 0;
    // [groups, kernel_h, kernel_w, channels, outputs]: consecutive rows of a product go to different
    // channels
    for (int64_t group = 0; group < at.groups; group++) {
        const T* from = w + group * at.outputs * depth;
        T* to = turned + group * at.outputs * depth;
        for (int64_t o = 0; o < at.outputs; o++) {
            for (int64_t c = 0; c < at.channels; c++) {
                for (int64_t k = 0; k < window; k++) to[(k * at.channels + c) * at.outputs + o] = *from++;
            }
        }
    }
    // few images are split by channels too
    const int64_t parts =
        images >= 16 ? 1 : minimum(ceil_divide(16, images < 1 ? 1 : images), ceil_divide(at.channels, 6));
    parallel(images * parts, grain_of(positions * at.outputs * depth / parts), [&](int64_t begin, int64_t end) {
        alignas(REGISTER) T panel[DEPTH * PANEL<T>], patch[TILE_ROWS * PANEL<T>];
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t image = unit / parts, group = image % at.groups, part = unit % parts;
            const int64_t low = at.channels * part / parts, channels = at.channels * (part + 1) / parts - low;
            T* const to = dx + (image * at.channels + low) * plane;
            clear(channels * plane, to);
            Position position(at, 0);
            for (int64_t first = 0; first < positions; first += PANEL<T>, position.advance(at, PANEL<T>)) {
                const int64_t count = minimum(PANEL<T>, positions - first);
                const Segments<T> segments(at, position, count);
                Position second = position;
                second.advance(at, count > LANES<T> ? LANES<T> : 0);
                const int64_t places[2] = {position.place(at), second.place(at)};
                for (int64_t o = 0; o < at.outputs; o += DEPTH) {
                    const int64_t length = minimum(DEPTH, at.outputs - o);
                    const T* right = g + (image * at.outputs + o) * positions + first;
                    int64_t step = positions;
                    if (count < PANEL<T>) {
                        pack_panel(length, count, right, positions, 1, 0, panel);
                        right = panel, step = PANEL<T>;
                    }
                    for (int64_t k = 0; k < window; k++) {
                        const int64_t shift =
                            k / at.kernel_w * at.dilation_h * at.width + k % at.kernel_w * at.dilation_w;
                        const T* left = turned + ((group * window + k) * at.channels + low) * at.outputs + o;
                        in_parts(channels, [&]<int R>(int64_t c) MG_INLINED {
                            const T* a = left + c * at.outputs;
                            T* out = to + c * plane + shift;
                            Vector<T> sum[R][2] = {};
                            accumulate<T, R, 2>(
                                length, [&](int r, int64_t p) MG_INLINED { return a[r * at.outputs + p]; },
                                [&](int64_t p, int v)
                                    MG_INLINED { return Whole<T>{v * LANES<T>}.load(right + p * step); },
                                sum);
                            if (straight) {
                                T* const start[2] = {out + places[0], out + places[1]};
                                const bool both = count > LANES<T>;
#pragma GCC unroll 8
                                for (int r = 0; r < R; r++) {
                                    const Whole<T> row{r * plane};
                                    row.store(start[0], row.load(start[0]) + sum[r][0]);
                                    if (both) row.store(start[1], row.load(start[1]) + sum[r][1]);
                                }
                                return;
                            }
#pragma GCC unroll 8
                            for (int r = 0; r < R; r++) {
                                Whole<T>{0}.store(patch + r * PANEL<T>, sum[r][0]);
                                Whole<T>{LANES<T>}.store(patch + r * PANEL<T>, sum[r][1]);
                            }
                            for (int r = 0; r < R; r++)
                                add_segments(segments, at.stride_w, patch + r * PANEL<T>, out + r * plane);
                        });
                    }
                }
            }
        }
    });
}

// ---- the gradients of w and bias ------------------------------------------------------------------------------------

constexpr int64_t STRETCH = 256;  // positions whose g is transposed, to positions by outputs, at a time

// total[k, V registers] += patches[k, count] right[count, V registers]; one more total, of right alone, for the bias
template <class T, int V>
void add_products(int64_t begin, int64_t end, bool with_bias, int64_t depth, int64_t count, const T* x,
                  const int64_t* offsets, const int64_t* places, const T* right, T* total, int64_t step) {
    constexpr int64_t WIDTH = V * LANES<T>;
    const auto b = [&](int64_t p, int v) MG_INLINED { return Whole<T>{p * WIDTH + v * LANES<T>}.load(right); };
    const auto add = [&]<int R>(Vector<T>(&sum)[R][V], int64_t k) MG_INLINED {
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) {
                const Whole<T> at{(k + r) * step + v * LANES<T>};
                at.store(total, at.load(total) + sum[r][v]);
            }
        }
    };
    in_parts(end - begin, [&]<int R>(int64_t first) MG_INLINED {
        const T* row[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) row[r] = x + offsets[begin + first + r];
        Vector<T> sum[R][V] = {};
        accumulate<T, R, V>(count, [&](int r, int64_t p) MG_INLINED { return row[r][places[p]]; }, b, sum);
        add(sum, begin + first);
    });
    if (with_bias) {
        Vector<T> sum[1][V] = {};
        accumulate<T, 1, V>(count, [](int, int64_t) MG_INLINED { return T(1); }, b, sum);
        add(sum, depth);
    }
}

// The same for few outputs, where the positions fill registers: total[k, rows of g] += patches[k, count] g[rows, count]
template <class T>
void add_dots(int64_t begin, int64_t end, bool with_bias, int64_t depth, int64_t count, const T* x,
              const int64_t* offsets, const int64_t* places, int64_t rows, const T* g, int64_t ldg, T* total,
              int64_t step) {
    in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
        const auto sums_of = [&]<int V>(int64_t k, auto b) MG_INLINED {
            Vector<T> sum[R][V] = {};
            accumulate<T, R, V>(
                count / LANES<T>,
                [&](int r, int64_t p) MG_INLINED { return Whole<T>{(first + r) * ldg + p * LANES<T>}.load(g); }, b,
                sum);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) {
#pragma GCC unroll 8
                for (int r = 0; r < R; r++)
                    total[(k + v) * step + first + r] +=
                        fold<T>(sum[r][v], [](auto a, auto b) MG_INLINED { return a + b; });
            }
        };
        const auto patches = [&](int64_t k) MG_INLINED {
            return [=](int64_t p, int v) MG_INLINED { return Whole<T>{places[p * LANES<T>]}.load(x + offsets[k + v]); };
        };
        int64_t k = begin;
        for (; k + 2 <= end; k += 2) sums_of.template operator()<2>(k, patches(k));
        if (k < end) sums_of.template operator()<1>(k, patches(k));
        if (with_bias) sums_of.template operator()<1>(depth, [](int64_t, int) MG_INLINED { return Vector<T>{} + 1; });
    });
}

// partial[conv2d_partial(at)] is scratch for sums over blocks of samples. dw and dbias may each be null.
MG_KERNEL(conv2d_backward_weight[FLOATS])
template <class T>
void conv2d_backward_weight(const Conv2d& at, const T* x, const T* g, T* dw, T* dbias, int64_t* offsets, T* partial) {
    const int64_t depth = at.depth(), positions = at.positions(), sample = at.channels * at.height * at.width;
    const int64_t blocks = conv2d_blocks(at), step = ceil_divide(at.outputs, LANES<T>) * LANES<T>;
    const int64_t units = blocks * at.groups, stride = (depth + 1) * step;
    const int64_t parts =
        units >= 16 || !dw ? 1 : minimum(ceil_divide(16, units < 1 ? 1 : units), ceil_divide(depth, 48));
    const bool dots = at.outputs <= LANES<T> && at.stride_w == 1 && at.columns % LANES<T> == 0;
    fill_offsets(at, offsets);
    // Stretches of whole rows of y, or of parts of one: their offsets in x differ only by the start.
    const int64_t rows = at.columns < STRETCH ? STRETCH / (at.columns < 1 ? 1 : at.columns) : 1;
    const int64_t columns = minimum(at.columns, STRETCH);
    int64_t places[STRETCH];
    for (int64_t p = 0; p < minimum(rows, at.rows) * columns; p++)
        places[p] = p / columns * at.stride_h * at.width + p % columns * at.stride_w;
    const int64_t work = ceil_divide(at.batch, blocks < 1 ? 1 : blocks) * positions * at.outputs * depth / parts;
    parallel(units * parts, grain_of(work), [&](int64_t begin, int64_t end) {
        alignas(REGISTER) T right[STRETCH * PANEL<T>];
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t part = unit % parts, group = unit / parts % at.groups, block = unit / parts / at.groups;
            const int64_t low = dw ? depth * part / parts : 0, high = dw ? depth * (part + 1) / parts : 0;
            const bool with_bias = part == 0 && dbias;
            T* const total = partial + unit / parts * stride;
            clear((high - low) * step, total + low * step);
            if (with_bias) clear(step, total + depth * step);
            for (int64_t n = at.batch * block / blocks; n < at.batch * (block + 1) / blocks; n++) {
                const int64_t image = n * at.groups + group;
                for (int64_t r = 0; r < at.rows; r += rows) {
                    for (int64_t q = 0; q < at.columns; q += columns) {
                        const int64_t count = columns < at.columns ? minimum(columns, at.columns - q)
                                                                   : minimum(rows, at.rows - r) * columns;
                        const T* from = x + image * sample + r * at.stride_h * at.width + q * at.stride_w;
                        const T* turn = g + image * at.outputs * positions + r * at.columns + q;
                        if (dots) {
                            add_dots(low, high, with_bias, depth, count, from, offsets, places, at.outputs, turn,
                                     positions, total, step);
                            continue;
                        }
                        for (int64_t o = 0; o < at.outputs; o += PANEL<T>) {
                            if (at.outputs - o > LANES<T>) {
                                pack_panel(count, at.outputs, turn, 1, positions, o, right);
                                add_products<T, 2>(low, high, with_bias, depth, count, from, offsets, places, right,
                                                   total + o, step);
                            } else {
                                pack_panel<T, LANES<T>>(count, at.outputs, turn, 1, positions, o, right);
                                add_products<T, 1>(low, high, with_bias, depth, count, from, offsets, places, right,
                                                   total + o, step);
                            }
                        }
                    }
                }
            }
        }
    });
    const int64_t first = dw ? 0 : depth, last = dbias ? depth + 1 : depth;  // the rows of totals that are wanted
    parallel_each(at.groups * (last - first), ceil_divide(CHUNK / 16, blocks * step + 1), [&](int64_t unit) {
        const int64_t group = unit / (last - first), k = first + unit % (last - first);
        T* to = k == depth ? dbias + group * at.outputs : dw + group * at.outputs * depth + k;
        const int64_t apart = k == depth ? 1 : depth;
        for (int64_t o = 0; o < at.outputs; o += LANES<T>) {
            Vector<T> sum = {};
            for (int64_t block = 0; block < blocks; block++)
                sum += Whole<T>{o}.load(partial + (block * at.groups + group) * stride + k * step);
            for (int64_t i = 0; i < LANES<T> && o + i < at.outputs; i++) to[(o + i) * apart] = sum[i];
        }
    });
}

}  // namespace

void fill_conv(Kernels& k) { MG_PUT_CONV }

}  // namespace mg::MG_ISA
