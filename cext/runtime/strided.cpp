#include "strided.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "pool.hpp"

namespace mg {
namespace {

constexpr int64_t GRAIN = 16384;  // elements: a few microseconds of the cheapest loop, well above a wake-up

constexpr int64_t SHORT = 4;  // elements: an innermost loop that is not worth its setup

// Loops over elements [begin, end) of the row-major order of s.
void run_range(Loop loop, const Strided& s, int64_t begin, int64_t end) {
    const int last = s.ndim - 1;
    int64_t index[MAX_NDIM] = {0};
    int64_t rest = begin;
    for (int d = last; d >= 0; --d) {
        index[d] = rest % s.extent[d];
        rest /= s.extent[d];
    }
    char* data[MAX_OPERANDS];
    int64_t inner[MAX_OPERANDS];
    for (int k = 0; k < s.operands; ++k) {
        data[k] = s.data[k];
        for (int d = 0; d <= last; ++d) data[k] += index[d] * s.step[k][d];
        inner[k] = s.step[k][last];
    }
    for (int64_t at = begin; at < end;) {
        const int64_t n = std::min(s.extent[last] - index[last], end - at);
        loop(n, data, inner);
        at += n;
        if (at >= end) return;
        // to the start of the next row
        for (int k = 0; k < s.operands; ++k) data[k] -= index[last] * inner[k];
        index[last] = 0;
        for (int d = last - 1; d >= 0; --d) {
            for (int k = 0; k < s.operands; ++k) data[k] += s.step[k][d];
            if (++index[d] < s.extent[d]) break;
            for (int k = 0; k < s.operands; ++k) data[k] -= s.extent[d] * s.step[k][d];
            index[d] = 0;
        }
    }
}

// In an operand that lies across the walk, like a transposed matrix, each step reaches another cache line, and a line
// is evicted before the walk returns to its second element. Such a walk uses tiles as high as a line is long, which
// read all of a line at once.
constexpr int64_t LINE = 64;  // bytes
constexpr int64_t TILE_COLUMNS = 128, LEAST = 8;
constexpr int64_t AHEAD = 16;  // columns

struct Tiles {
    int64_t extent[MAX_NDIM], count[MAX_NDIM];  // a tile's length along each axis, and the number of tiles
};

// Whether operand k lies across: far steps along the innermost axis, dense ones along axis d.
bool lies_across(const Strided& s, int k, int d) {
    return std::llabs(s.step[k][s.ndim - 1]) >= LINE && s.step[k][d] == s.size[k];
}

// Moves the axis along which an input that lies across is dense next to the innermost; false if there is none, or if it
// is too short.
bool set_across(Strided& s) {
    const int last = s.ndim - 1;
    for (int k = 0; k + 1 < s.operands; ++k) {
        for (int d = 0; d < last; ++d) {
            if (!lies_across(s, k, d) || std::min(s.extent[d], s.extent[last]) < LEAST) continue;
            std::swap(s.extent[d], s.extent[last - 1]);
            for (int i = 0; i < s.operands; ++i) std::swap(s.step[i][d], s.step[i][last - 1]);
            return true;
        }
    }
    return false;
}

// The last two axes cut into tiles.
Tiles cut(const Strided& s) {
    Tiles tiles;
    int64_t size = 1;
    for (int k = 0; k + 1 < s.operands; ++k) {
        if (lies_across(s, k, s.ndim - 2)) size = std::max(size, s.size[k]);
    }
    for (int d = 0; d < s.ndim; ++d) {
        tiles.extent[d] = d == s.ndim - 1 ? TILE_COLUMNS : d == s.ndim - 2 ? LINE / size : 1;
        tiles.count[d] = (s.extent[d] + tiles.extent[d] - 1) / tiles.extent[d];
    }
    return tiles;
}

// y[r, c] = x[r, c], dense in y along the rows, TILE_COLUMNS long, and in x along the columns, `step` bytes apart;
// four columns at a time, which compilers turn into wide stores. The hardware prefetcher does not predict such a walk;
// the last columns prefetch what lies beyond the array, where no pointer may point.
template <class Word>
void transpose(int64_t rows, int64_t columns, const char* x, int64_t step, char* y_) {
    Word* y = reinterpret_cast<Word*>(y_);
    const auto column = [=](int64_t c) { return reinterpret_cast<const Word*>(x + c * step); };
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
        for (int64_t i = 0; i < 4; ++i) {
            const auto ahead = reinterpret_cast<std::uintptr_t>(x) + std::uintptr_t((c + AHEAD + i) * step);
            __builtin_prefetch(reinterpret_cast<const void*>(ahead));
        }
        const Word *x0 = column(c), *x1 = column(c + 1), *x2 = column(c + 2), *x3 = column(c + 3);
        for (int64_t r = 0; r < rows; ++r) {
            const Word four[] = {x0[r], x1[r], x2[r], x3[r]};
            std::memcpy(y + r * TILE_COLUMNS + c, four, sizeof four);
        }
    }
    for (; c < columns; ++c) {
        for (int64_t r = 0; r < rows; ++r) y[r * TILE_COLUMNS + c] = column(c)[r];
    }
}

// Runs the loop over tile t; operands that lie across are read through a dense copy.
void run_tile(Loop loop, const Strided& s, const Tiles& tiles, int64_t t) {
    const int r = s.ndim - 2, c = s.ndim - 1;  // rows, columns
    char* data[MAX_OPERANDS];
    std::copy_n(s.data, s.operands, data);
    int64_t extent[MAX_NDIM] = {};
    for (int d = c; d >= 0; --d) {
        const int64_t first = t % tiles.count[d] * tiles.extent[d];
        t /= tiles.count[d];
        extent[d] = std::min(tiles.extent[d], s.extent[d] - first);
        for (int k = 0; k < s.operands; ++k) data[k] += first * s.step[k][d];
    }
    alignas(LINE) char copy[MAX_OPERANDS - 1][LINE * TILE_COLUMNS];
    int64_t row_step[MAX_OPERANDS], column_step[MAX_OPERANDS];
    for (int k = 0; k < s.operands; ++k) {
        row_step[k] = s.step[k][r];
        column_step[k] = s.step[k][c];
        if (k + 1 == s.operands || !lies_across(s, k, r)) continue;
        const int64_t size = s.size[k];
        const auto transposed = size == 1 ? transpose<uint8_t> : size == 4 ? transpose<uint32_t> : transpose<uint64_t>;
        transposed(extent[r], extent[c], data[k], column_step[k], copy[k]);
        data[k] = copy[k];
        row_step[k] = TILE_COLUMNS * size;
        column_step[k] = size;
    }
    for (int64_t row = 0; row < extent[r]; ++row) {
        loop(extent[c], data, column_step);
        for (int k = 0; k < s.operands; ++k) data[k] += row_step[k];
    }
}

}  // namespace

void simplify(Strided& s) {
    const int out = s.operands - 1;
    int n = 0;
    for (int d = 0; d < s.ndim; ++d) {
        if (s.extent[d] == 1) continue;
        s.extent[n] = s.extent[d];
        for (int k = 0; k < s.operands; ++k) s.step[k][n] = s.step[k][d];
        ++n;
    }
    for (int i = 1; i < n; ++i) {  // insertion sort: largest output stride first
        for (int d = i; d > 0 && std::llabs(s.step[out][d]) > std::llabs(s.step[out][d - 1]); --d) {
            std::swap(s.extent[d], s.extent[d - 1]);
            for (int k = 0; k < s.operands; ++k) std::swap(s.step[k][d], s.step[k][d - 1]);
        }
    }
    int merged = 0;
    for (int d = 0; d < n; ++d) {
        bool joins = merged > 0;
        for (int k = 0; k < s.operands && joins; ++k) joins = s.step[k][merged - 1] == s.extent[d] * s.step[k][d];
        if (joins) {
            s.extent[merged - 1] *= s.extent[d];
            for (int k = 0; k < s.operands; ++k) s.step[k][merged - 1] = s.step[k][d];
            continue;
        }
        s.extent[merged] = s.extent[d];
        for (int k = 0; k < s.operands; ++k) s.step[k][merged] = s.step[k][d];
        ++merged;
    }
    if (merged == 0) {
        s.extent[0] = 1;
        for (int k = 0; k < s.operands; ++k) s.step[k][0] = 0;
        merged = 1;
    }
    s.ndim = merged;
    // A loop over three colors costs more in setup than in steps, so in this case the loop runs over adjacent pixels.
    const int last = merged - 1;
    if (last > 0 && s.extent[last] <= SHORT && s.extent[last - 1] >= 8 * SHORT) {
        std::swap(s.extent[last], s.extent[last - 1]);
        for (int k = 0; k < s.operands; ++k) std::swap(s.step[k][last], s.step[k][last - 1]);
    }
}

void run_filling(Loop loop, Strided s, uint64_t value) {
    s.data[0] = reinterpret_cast<char*>(&value);
    run(loop, s);
}

void run_limited(Loop loop, Strided s, uint64_t low, uint64_t high) {
    s.data[1] = reinterpret_cast<char*>(&low);
    s.data[2] = reinterpret_cast<char*>(&high);
    run(loop, s);
}

void run(Loop loop, Strided s) {
    if (s.count == 0) return;
    simplify(s);
    if (set_across(s)) {
        const Tiles tiles = cut(s);
        int64_t n = 1;
        for (int d = 0; d < s.ndim; ++d) n *= tiles.count[d];
        parallel_each(n, std::max<int64_t>(GRAIN * n / s.count, 1), [&](int64_t t) { run_tile(loop, s, tiles, t); });
        return;
    }
    parallel(s.count, GRAIN, [&](int64_t begin, int64_t end) { run_range(loop, s, begin, end); });
}

void run_flat(Loop loop, Flat f) {
    parallel(f.count, GRAIN, [&](int64_t begin, int64_t end) {
        char* data[MAX_OPERANDS];
        for (int k = 0; k < f.operands; ++k) data[k] = f.data[k] + begin * f.step[k];
        loop(end - begin, data, f.step);
    });
}

}  // namespace mg
