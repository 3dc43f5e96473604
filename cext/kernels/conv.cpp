// Two-dimensional convolutions (cross-correlations) as products of matrices that are never stored whole: the patches of
// x are the right side of the forward product, where half registers of them are read from x, or panels are packed
// first, and the left side of the weights' gradient, where their elements are read from x one by one.
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

    Position(int64_t row, int64_t column) : row(row), column(column) {}
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

// put(row, sum of two registers) for each row of a[rows, depth] b, with b(k, v)
template <class T, class B, class Put>
MG_INLINE void multiply(int64_t rows, int64_t depth, const T* a, int64_t lda, B&& b, Put&& put) {
    in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
        const T* left = a + first * lda;
        Vector<T> sum[R][2] = {};
        accumulate<T, R, 2>(depth, [&](int r, int64_t k) MG_INLINED { return left[r * lda + k]; }, b, sum);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) put(first + r, sum[r]);
    });
}

// Half registers of positions side by side, which never leave a row of y: the last one of a row may overlap the one
// before it.
template <class T>
struct RowHalves {
    static constexpr int64_t SIZE = LANES<T> / 2;
    const Conv2d& at;
    const int64_t in_row, count;

    explicit RowHalves(const Conv2d& at) : at(at), in_row(ceil_divide(at.columns, SIZE)), count(at.rows * in_row) {}
    bool exact() const { return at.columns >= SIZE && at.columns % SIZE == 0; }
    // Whether computing the overlaps takes less time than packing the patches
    bool serve() const {
        return at.stride_w == 1 && at.columns >= SIZE && at.outputs * (in_row * SIZE - at.columns) <= 8 * at.columns;
    }
    Position position(int64_t h) const { return {h / in_row, minimum(h % in_row * SIZE, at.columns - SIZE)}; }
    void advance(Position& p) const {
        if (p.column + SIZE < at.columns)
            p.column = minimum(p.column + SIZE, at.columns - SIZE);
        else if (p.row + 1 < at.rows)
            p = {p.row + 1, 0};
        else  // the last register is repeated
            p.column = at.columns > 2 * SIZE ? at.columns - 2 * SIZE : 0;
    }
};

// Elements i, i + 1, ..., half a register
template <class T>
struct Half {
    typedef typename VectorOf<T, REGISTER / 2>::type Type;
    int64_t i;

    MG_INLINE Type load(const T* p) const {
        Type v;
        __builtin_memcpy(&v, p + i, sizeof v);
        return v;
    }
    MG_INLINE void store(T* p, Type v) const { __builtin_memcpy(p + i, &v, sizeof v); }
};

// A register whose halves lie at two places
template <class T>
MG_INLINE Vector<T> join(const T* low, const T* high) {
#if MG_TRANSPOSES
    const auto a = Half<T>{0}.load(low), b = Half<T>{0}.load(high);
    return [&]<int... l>(std::integer_sequence<int, l...>) MG_INLINED {
        return (Vector<T>)__builtin_shufflevector(a, b, l...);
    }(std::make_integer_sequence<int, LANES<T>>());
#else
    Vector<T> v;
    __builtin_memcpy(&v, low, REGISTER / 2);
    __builtin_memcpy(reinterpret_cast<char*>(&v) + REGISTER / 2, high, REGISTER / 2);
    return v;
#endif
}
// Writes the halves of a register to two places
template <class T>
MG_INLINE void split(Vector<T> v, T* low, T* high) {
    typename Half<T>::Type half[2];
    __builtin_memcpy(half, &v, REGISTER);
    Half<T>{0}.store(low, half[0]);
    Half<T>{0}.store(high, half[1]);
}

// Four halves, from `next` on, of y[outputs, positions] of an image; if `whole`, two registers without a seam
template <class T, bool whole>
void multiply_halves(const RowHalves<T>& halves, Position& next, int64_t depth, const int64_t* offsets, const T* x,
                     const T* w, const T* bias, T* y) {
    const T* from[4];
    int64_t to[4];
    for (int h = 0; h < 4; h++, halves.advance(next)) {
        from[h] = x + next.place(halves.at);
        to[h] = next.row * halves.at.columns + next.column;
    }
    multiply(
        halves.at.outputs, depth, w, depth,
        [&](int64_t k, int v) MG_INLINED {
            if constexpr (whole) return Whole<T>{offsets[k]}.load(from[2 * v]);
            return join(from[2 * v] + offsets[k], from[2 * v + 1] + offsets[k]);
        },
        [&](int64_t o, Vector<T>(&sum)[2]) MG_INLINED {
            T* row = y + o * halves.at.positions();
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++) split(sum[v] + (bias ? bias[o] : 0), row + to[2 * v], row + to[2 * v + 1]);
        });
}

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

// offsets[depth] is scratch for the places of a window's elements.
MG_KERNEL(conv2d[FLOATS])
template <class T>
void conv2d(const Conv2d& at, const T* x, const T* w, const T* bias, T* y, int64_t* offsets) {
    const int64_t depth = at.depth(), positions = at.positions(), sample = at.channels * at.height * at.width;
    const RowHalves<T> halves(at);
    const bool packs = !halves.serve(), whole = at.columns % LANES<T> == 0;
    const int64_t tiles = packs ? ceil_divide(positions, PANEL<T>) : ceil_divide(halves.count, 4);
    fill_offsets(at, offsets);
    parallel(at.batch * at.groups * tiles, grain_of(PANEL<T> * at.outputs * depth), [&](int64_t begin, int64_t end) {
        alignas(REGISTER) T panel[DEPTH * PANEL<T> + LANES<T>];
        int64_t image = begin / tiles, tile = begin % tiles;
        const auto position = [&] { return packs ? Position(at, tile * PANEL<T>) : halves.position(4 * tile); };
        Position next = position();
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t group = at.groups == 1 ? 0 : image % at.groups;
            const T *from = x + image * sample, *weights = w + group * at.outputs * depth;
            const T* shift = offset(bias, group * at.outputs);
            T* to = y + image * at.outputs * positions;
            if (packs) {
                const int64_t first = tile * PANEL<T>;
                const Segments<T> segments(at, next, minimum(PANEL<T>, positions - first));
                for (int64_t k = 0; k == 0 || k < depth; k += DEPTH) {
                    const int64_t length = minimum(DEPTH, depth - k);
                    pack_patches(segments, at.stride_w, length, offsets + k, from, panel);
                    multiply(
                        at.outputs, length, weights + k, depth,
                        [&](int64_t p, int v) MG_INLINED { return Whole<T>{p * PANEL<T> + v * LANES<T>}.load(panel); },
                        [&](int64_t o, Vector<T>(&sum)[2]) MG_INLINED {
                            T* row = to + o * positions + first;
                            each_register<T>(positions - first, [&](auto part, int v) MG_INLINED {
                                part.store(row,
                                           sum[v] + (k > 0 ? part.load(row) : Vector<T>{} + (shift ? shift[o] : 0)));
                            });
                        });
                }
                next.advance(at, PANEL<T>);
            } else if (whole) {
                multiply_halves<T, true>(halves, next, depth, offsets, from, weights, shift, to);
            } else {
                multiply_halves<T, false>(halves, next, depth, offsets, from, weights, shift, to);
            }
            if (++tile == tiles) {
                image++;
                tile = 0;
                next = position();
            }
        }
    });
}

// ---- the gradient of x: its patches, which are products of weights and g, are added at their positions --------------

constexpr int64_t STRETCH = 256;  // positions at a time: whole rows of y, or a part of one
constexpr int64_t PATCHES = 32;   // elements of windows at a time

// to[y + i, length], whose elements lie `row` and `stride` apart, += from[i, y, length] for every i < n and y < height
template <class T>
MG_ALONE void add_rows(int64_t n, int64_t height, int64_t length, int64_t row, int64_t stride, const T* from, T* to) {
    if (stride > 1) {  // n is 1
        for (int64_t q = 0; q < length; q++) {
            for (int64_t y = 0; y < height; y++) to[y * row + q * stride] += from[y * length + q];
        }
        return;
    }
    const auto add = [&](auto at) MG_INLINED {
        for (int64_t y = 0; y < height + n - 1; y++) {
            auto sum = at.load(to + y * row);
            for (int64_t i = maximum(0, y - height + 1); i <= minimum(y, n - 1); i++)
                sum += at.load(from + i * STRETCH + (y - i) * length);
            at.store(to + y * row, sum);
        }
    };
    int64_t q = 0;
    for (; q + LANES<T> <= length; q += LANES<T>) add(Whole<T>{q});
    if (length - q == LANES<T> / 2)
        add(Half<T>{q});
    else if (q < length)
        add(Part<T>{q, int(length - q)});
}

// patches[rows, columns of a panel] = a[rows, outputs] g[outputs, columns]
template <class T>
void multiply_turned(int64_t rows, int64_t outputs, const T* a, const T* g, int64_t ldg, int64_t columns, T* patches) {
    const auto run = [&](auto low, auto high) MG_INLINED {
        multiply(
            rows, outputs, a, outputs,
            [&](int64_t o, int v) MG_INLINED { return v ? high.load(g + o * ldg) : low.load(g + o * ldg); },
            [&](int64_t row, Vector<T>(&sum)[2]) MG_INLINED {
                Whole<T>{0}.store(patches + row * STRETCH, sum[0]);
                Whole<T>{LANES<T>}.store(patches + row * STRETCH, sum[1]);
            });
    };
    if (columns >= PANEL<T>)
        run(Whole<T>{0}, Whole<T>{LANES<T>});
    else if (columns > LANES<T>)
        run(Whole<T>{0}, Part<T>{LANES<T>, int(columns - LANES<T>)});
    else
        run(Part<T>{0, int(columns)}, Part<T>{0, 0});
}

// The number of parts into which channels are split, so that few images give all threads work
int64_t parts_of(const Conv2d& at) {
    const int64_t images = at.batch * at.groups;
    return images >= 16 ? 1 : minimum(ceil_divide(16, images < 1 ? 1 : images), ceil_divide(at.channels, 6));
}

// turned[groups, parts, kernel_w, channels of the part, kernel_h, outputs] is scratch for the weights. In this order,
// patches that lie below each other are added together, and those side by side so much later that the sums in memory
// are complete by then.
MG_KERNEL(conv2d_backward_data[FLOATS])
template <class T>
void conv2d_backward_data(const Conv2d& at, const T* g, const T* w, T* dx, T* turned) {
    const int64_t window = at.kernel_h * at.kernel_w, depth = at.depth(), positions = at.positions();
    const int64_t plane = at.height * at.width, images = at.batch * at.groups, parts = parts_of(at);
    // Whether the rows of a window follow each other in x, each of them as long as a row of y or longer
    const bool sums = at.stride_h == 1 && at.dilation_h == 1 && at.stride_w == 1 && at.rows > 1;
    for (int64_t group = 0; group < at.groups; group++) {
        for (int64_t part = 0; part < parts; part++) {
            const int64_t low = at.channels * part / parts, high = at.channels * (part + 1) / parts;
            const T* from = w + group * at.outputs * depth;
            for (int64_t j = 0; j < at.kernel_w; j++) {
                for (int64_t k = low * at.kernel_h; k < high * at.kernel_h; k++) {
                    for (int64_t o = 0; o < at.outputs; o++) *turned++ = from[o * depth + k * at.kernel_w + j];
                }
            }
        }
    }
    turned -= at.groups * at.outputs * depth;
    const int64_t columns = minimum(at.columns, STRETCH), rows = columns < 1 ? 1 : STRETCH / columns;
    parallel(images * parts, grain_of(positions * at.outputs * depth / parts), [&](int64_t begin, int64_t end) {
        alignas(REGISTER) T patches[PATCHES * STRETCH];
        for (int64_t unit = begin; unit < end; unit++) {
            const int64_t image = unit / parts, group = image % at.groups, part = unit % parts;
            const int64_t low = at.channels * part / parts, channels = at.channels * (part + 1) / parts - low;
            const T* const left = turned + (group * at.channels + low) * window * at.outputs;
            T* const to = dx + (image * at.channels + low) * plane;
            clear(channels * plane, to);
            for (int64_t r = 0; r < at.rows; r += rows) {
                for (int64_t q = 0; q < at.columns; q += columns) {
                    const int64_t height = minimum(rows, at.rows - r), length = minimum(columns, at.columns - q);
                    const T* right = g + image * at.outputs * positions + r * at.columns + q;
                    for (int64_t k = 0; k < window * channels; k += PATCHES) {
                        const int64_t count = minimum(PATCHES, window * channels - k);
                        for (int64_t p = 0; p < height * length; p += PANEL<T>) {
                            multiply_turned(count, at.outputs, left + k * at.outputs, right + p, positions,
                                            height * length - p, patches + p);
                        }
                        for (int64_t row = 0, n; row < count; row += n) {
                            const int64_t i = (k + row) % at.kernel_h, c = (k + row) / at.kernel_h % channels;
                            const int64_t j = (k + row) / (at.kernel_h * channels);
                            n = sums ? minimum(at.kernel_h - i, count - row) : 1;
                            add_rows(n, height, length, at.stride_h * at.width, at.stride_w, patches + row * STRETCH,
                                     to + c * plane + (r * at.stride_h + i * at.dilation_h) * at.width +
                                         q * at.stride_w + j * at.dilation_w);
                        }
                    }
                }
            }
        }
    });
}

// ---- the gradients of w and bias ------------------------------------------------------------------------------------

constexpr int64_t DOTS = 1024;  // positions at a time where they fill registers

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

// The same for few outputs, where positions fill registers: total[k, rows of g] += patches[k, count] g[rows, count], in
// registers. Each one of the patches is read as two halves, at places[2 count].
template <class T>
void add_dots(int64_t begin, int64_t end, bool with_bias, int64_t depth, int64_t count, const T* x,
              const int64_t* offsets, const int64_t* places, int64_t rows, const T* g, int64_t ldg, T* total,
              int64_t step) {
    in_parts(rows, [&]<int R>(int64_t first) MG_INLINED {
        const auto sums_of = [&]<int V>(int64_t k, auto b) MG_INLINED {
            Vector<T> sum[R][V] = {};
            accumulate<T, R, V>(
                count, [&](int r, int64_t p) MG_INLINED { return Whole<T>{(first + r) * ldg + p * LANES<T>}.load(g); },
                b, sum);
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) {
#pragma GCC unroll 8
                for (int r = 0; r < R; r++)
                    total[(k + v) * step + first + r] +=
                        fold<T>(sum[r][v], [](auto a, auto b) MG_INLINED { return a + b; });
            }
        };
        const auto patches = [&](int64_t k) MG_INLINED {
            return [=](int64_t p, int v) MG_INLINED {
                const T* from = x + offsets[k + v];
                return join(from + places[2 * p], from + places[2 * p + 1]);
            };
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
    const RowHalves<T> halves(at);
    const bool dots = at.outputs <= LANES<T> / 2 && at.stride_w == 1 && halves.exact() && halves.count % 2 == 0 &&
                      2 * at.columns <= DOTS;
    // Stretches of whole rows of y, or of parts of one: their offsets in x differ only by the start.
    const int64_t columns = dots ? at.columns : minimum(at.columns, STRETCH), apart = dots ? halves.SIZE : 1;
    const int64_t rows = dots ? DOTS / columns / 2 * 2 : STRETCH / (columns < 1 ? 1 : columns);
    fill_offsets(at, offsets);
    int64_t places[DOTS];
    for (int64_t p = 0; p < minimum(rows, at.rows) * columns; p += apart)
        places[p / apart] = p / columns * at.stride_h * at.width + p % columns * at.stride_w;
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
                            add_dots(low, high, with_bias, depth, count / LANES<T>, from, offsets, places, at.outputs,
                                     turn, positions, total, step);
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
