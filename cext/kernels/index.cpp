// Gather and scatter along the middle axis of x[outer, n, inner]; indices are checked by the caller.
//
// Several scattered elements may go to one place, so their work is split over the outer and inner axes only: each place
// belongs to one thread, which adds in the order of the indices.
#include "../runtime/pool.hpp"
#include "isa.hpp"

namespace mg::MG_ISA {
namespace {

constexpr int64_t GRAIN = 1 << 15;  // elements: about ten microseconds of work

// body(o, j) for all o < outer, j < m, in parallel and any order
template <class Body>
void each_pair(int64_t outer, int64_t m, int64_t work, Body body) {
    parallel(outer * m, 1 + GRAIN / (1 + work), [&](int64_t begin, int64_t end) {
        int64_t o = begin / m, j = begin % m;
        for (int64_t i = begin; i < end; i++) {
            body(o, j);
            if (++j == m) o++, j = 0;
        }
    });
}

// body(o, first, columns) for slices of inner columns; one slice sees all indices
template <class Body>
void each_slice(int64_t outer, int64_t m, int64_t inner, Body body) {
    if (inner == 0) return;
    const int64_t slices = m * inner < 2 * GRAIN || inner < 32 ? 1 : minimum(8, inner / 16),
                  columns = ceil_divide(inner, slices);
    parallel_each(outer * slices, 1 + GRAIN / (1 + m * columns), [&](int64_t i) {
        const int64_t first = minimum(inner, i % slices * columns);
        body(i / slices, first, minimum(columns, inner - first));
    });
}

// Makes the length of a row in bytes a constant if a row is one element.
template <class Copy>
void with_constant_size(int64_t bytes, Copy copy) {
    switch (bytes) {
        case 0:
            return;
        case 1:
            return copy([](char* y, const char* x) { __builtin_memcpy(y, x, 1); });
        case 4:
            return copy([](char* y, const char* x) { __builtin_memcpy(y, x, 4); });
        case 8:
            return copy([](char* y, const char* x) { __builtin_memcpy(y, x, 8); });
        default:
            copy([bytes](char* y, const char* x) { __builtin_memcpy(y, x, static_cast<uint64_t>(bytes)); });
    }
}

MG_KERNEL(take)
void take(int64_t outer, int64_t n, int64_t inner, int64_t itemsize, const char* x, int64_t m, const int64_t* index,
          char* y) {
    const int64_t bytes = inner * itemsize;
    with_constant_size(bytes, [=](auto copy) {
        each_pair(outer, m, inner,
                  [=](int64_t o, int64_t j) { copy(y + (o * m + j) * bytes, x + (o * n + index[j]) * bytes); });
    });
}

MG_KERNEL(put)
void put(int64_t outer, int64_t n, int64_t inner, int64_t itemsize, char* x, int64_t m, const int64_t* index,
         const char* v) {
    each_slice(outer, m, inner, [=](int64_t o, int64_t first, int64_t columns) {
        char* to = x + (o * n * inner + first) * itemsize;
        const char* from = v + (o * m * inner + first) * itemsize;
        const int64_t bytes = inner * itemsize;
        with_constant_size(columns * itemsize, [=](auto copy) {
            for (int64_t j = 0; j < m; j++) copy(to + index[j] * bytes, from + j * bytes);
        });
    });
}

MG_KERNEL(add_at[FLOATS])
template <class T>
void add_at(int64_t outer, int64_t n, int64_t inner, T* x, int64_t m, const int64_t* index, const T* v) {
    each_slice(outer, m, inner, [=](int64_t o, int64_t first, int64_t columns) {
        for (int64_t j = 0; j < m; j++) {
            T* __restrict to = x + (o * n + index[j]) * inner + first;
            const T* __restrict from = v + (o * m + j) * inner + first;
            for (int64_t c = 0; c < columns; c++) to[c] += from[c];
        }
    });
}

// The positions of the elements of a mask x[n] that are true, in chunks of MASK_CHUNK elements: first how many each
// chunk has; then the positions, in chunk c from y[starts[c]] on
MG_KERNEL(count_true)
void count_true(int64_t n, const uint8_t* x, int64_t* counts) {
    parallel_each(ceil_divide(n, MASK_CHUNK), 1, [=](int64_t c) {
        uint32_t count = 0;
        for (int64_t i = c * MASK_CHUNK; i < minimum(n, (c + 1) * MASK_CHUNK); i++) count += x[i];
        counts[c] = count;
    });
}

MG_KERNEL(true_positions)
void true_positions(int64_t n, const uint8_t* x, const int64_t* starts, int64_t* y) {
    parallel(ceil_divide(n, MASK_CHUNK), 1, [=](int64_t begin, int64_t end) {
        constexpr int64_t RUN = 64;
        for (int64_t c = begin; c < end; c++) {
            int64_t* to = y + starts[c];
            for (int64_t first = c * MASK_CHUNK; first < minimum(n, (c + 1) * MASK_CHUNK); first += RUN) {
                int64_t found[RUN], count = 0;  // every position is written, and overwritten unless its element is true
                for (int64_t i = first; i < minimum(n, first + RUN); i++) {
                    found[count] = i;
                    count += x[i];
                }
                __builtin_memcpy(to, found, static_cast<uint64_t>(count) * sizeof(int64_t));
                to += count;
            }
        }
    });
}

MG_KERNEL(take_along[DTYPES])
template <class T>
void take_along(int64_t outer, int64_t n, int64_t inner, const T* x, int64_t m, const int64_t* index, T* y) {
    each_pair(outer, m, inner, [=](int64_t o, int64_t j) {
        const int64_t row = (o * m + j) * inner;
        for (int64_t c = 0; c < inner; c++) y[row + c] = x[(o * n + index[row + c]) * inner + c];
    });
}

MG_KERNEL(add_along[FLOATS])
template <class T>
void add_along(int64_t outer, int64_t n, int64_t inner, T* x, int64_t m, const int64_t* index, const T* v) {
    each_slice(outer, m, inner, [=](int64_t o, int64_t first, int64_t columns) {
        for (int64_t j = 0; j < m; j++) {
            const int64_t row = (o * m + j) * inner;
            for (int64_t c = first; c < first + columns; c++) x[(o * n + index[row + c]) * inner + c] += v[row + c];
        }
    });
}

}  // namespace

void fill_index(Kernels& k) {
    MG_PUT_INDEX
    put_kernel<take_along<uint8_t>>(k.take_along[BOOL]);
    k.take_along[UINT8] = k.take_along[BOOL];
    put_kernel<take_along<uint32_t>>(k.take_along[INT32]);
    put_kernel<take_along<uint64_t>>(k.take_along[INT64]);
    k.take_along[FLOAT32] = k.take_along[INT32];
    k.take_along[FLOAT64] = k.take_along[INT64];
}

}  // namespace mg::MG_ISA
