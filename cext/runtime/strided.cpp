#include "strided.hpp"

#include <algorithm>
#include <cstdlib>

#include "pool.hpp"

namespace mg {
namespace {

constexpr int64_t GRAIN = 16384;  // elements: some microseconds of the cheapest loop, well above a wake-up

constexpr int64_t SHORT = 4;  // elements: an innermost loop that is not worth its beginning

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
    // A loop over three colours costs more in its beginnings than in its steps: over the pixels beside them then.
    const int last = merged - 1;
    if (last > 0 && s.extent[last] <= SHORT && s.extent[last - 1] >= 8 * SHORT) {
        std::swap(s.extent[last], s.extent[last - 1]);
        for (int k = 0; k < s.operands; ++k) std::swap(s.step[k][last], s.step[k][last - 1]);
    }
}

void run(Loop loop, Strided s) {
    if (s.count == 0) return;
    simplify(s);
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
