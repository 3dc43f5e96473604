// Gather and scatter along the middle axis of x[outer, n, inner].
//
// A separate kernel checks the indices: it replaces one that is out of range by a valid one, and records the fault in
// host memory, so the kernels after it never access memory outside an array. Elements with the same destination are
// added by one thread in the order of the indices, which are sorted for that; there are no atomic operations.

// ---- checks -------------------------------------------------------------------------------------------------------

// Records a fault in host memory: the number of the message, and an index out of range. Later kernels do not overwrite
// it. If several threads write at the same time, any of their values is correct.
__device__ inline void note(int64* found, int64 message, int64 value) {
    if (found[0] != 0) return;
    found[1] = value;
    found[0] = message;
}

// y = the index from 0 to n - 1; negative indices count from the end. n > 0
extern "C" __global__ void check_index(int64 count, int64 n, const int64* index, int64* y, uint64 found,
                                       int64 message) {
    FOR_EACH(i, count) {
        const int64 value = index[i];
        const bool valid = value >= -n && value < n;
        if (!valid) note((int64*)found, message, value);
        y[i] = !valid ? 0 : value < 0 ? value + n : value;
    }
}

const int THREADS = 256;

// y = labels from 0 to width - 1, or the label to ignore. totals[blocks]: the sum of the weights of the labels that are
// not ignored, or their number
extern "C" __global__ void check_labels(int64 count, int64 width, int64 ignore, const int64* labels, const void* weight,
                                        Bool wide, int64* y, double* totals, uint64 found, int64 message) {
    double total = 0;
    FOR_EACH(i, count) {
        const int64 t = labels[i];
        const bool counts = t != ignore, valid = !counts || (t >= 0 && t < width);
        if (!valid) note((int64*)found, message, t);
        y[i] = valid ? t : 0;
        if (counts && valid) total += !weight ? 1 : wide ? ((const double*)weight)[t] : ((const float*)weight)[t];
    }
    total = block_sum<THREADS>(total);
    if (totals && threadIdx.x == 0) totals[blockIdx.x] = total;
}

// y = 1 / the sum of the totals, or NaN if it is 0
extern "C" __global__ void invert_total(int64 count, const double* totals, Bool wide, void* y) {
    double total = 0;
    for (int64 i = threadIdx.x; i < count; i += blockDim.x) total += totals[i];
    total = block_sum<THREADS>(total);
    if (threadIdx.x > 0) return;
    const double inverse = total != 0 ? 1 / total : total / total;
    if (wide)
        *(double*)y = inverse;
    else
        *(float*)y = float(inverse);
}

// ---- copies of elements of any dtype ------------------------------------------------------------------------------

struct alignas(16) Sixteen {
    uint64 low, high;
};

#define BY_WORD(f, ...)                           \
    switch (word) {                               \
        case 1:                                   \
            return f<unsigned char>(__VA_ARGS__); \
        case 4:                                   \
            return f<unsigned>(__VA_ARGS__);      \
        case 8:                                   \
            return f<uint64>(__VA_ARGS__);        \
        default:                                  \
            return f<Sixteen>(__VA_ARGS__);       \
    }

// `lanes` neighbouring threads copy one row of x[outer, n, words].
template <class Word>
__device__ void take_rows(int64 outer, int64 n, int64 words, int64 m, int lanes, const void* x, const int64* index,
                          void* y) {
    const int64 together = blockDim.x / lanes;
    for (int64 row = blockIdx.x * together + threadIdx.x / lanes; row < outer * m; row += gridDim.x * together) {
        const Word* from = (const Word*)x + (row / m * n + index[row % m]) * words;
        Word* to = (Word*)y + row * words;
        for (int64 c = threadIdx.x % lanes; c < words; c += lanes) to[c] = from[c];
    }
}

// Of equal indices, the last in the sorted order writes.
template <class Word>
__device__ void put_rows(int64 outer, int64 n, int64 words, int64 m, int lanes, void* x, const int64* index,
                         const int64* order, const void* v) {
    const int64 together = blockDim.x / lanes;
    for (int64 row = blockIdx.x * together + threadIdx.x / lanes; row < outer * m; row += gridDim.x * together) {
        const int64 o = row / m, k = row % m, j = order[k];
        if (k + 1 < m && index[order[k + 1]] == index[j]) continue;
        const Word* from = (const Word*)v + (o * m + j) * words;
        Word* to = (Word*)x + (o * n + index[j]) * words;
        for (int64 c = threadIdx.x % lanes; c < words; c += lanes) to[c] = from[c];
    }
}

template <class Word>
__device__ void take_each(int64 outer, int64 n, int64 inner, int64 m, const void* x, const int64* index, void* y) {
    FOR_EACH(e, outer * m * inner) {
        ((Word*)y)[e] = ((const Word*)x)[(e / (m * inner) * n + index[e]) * inner + e % inner];
    }
}

// y[outer, m, words] = x[outer, index[j], words]
extern "C" __global__ void take(int64 outer, int64 n, int64 words, int64 m, int word, int lanes, const void* x,
                                const int64* index, void* y) {
    BY_WORD(take_rows, outer, n, words, m, lanes, x, index, y)
}

// x[outer, index[j], words] = v[outer, j, words]; order[m] sorts the indices
extern "C" __global__ void put(int64 outer, int64 n, int64 words, int64 m, int word, int lanes, void* x,
                               const int64* index, const int64* order, const void* v) {
    BY_WORD(put_rows, outer, n, words, m, lanes, x, index, order, v)
}

// y[o, j, i] = x[o, index[o, j, i], i]
extern "C" __global__ void take_along(int64 outer, int64 n, int64 inner, int64 m, int word, const void* x,
                                      const int64* index, void* y) {
    BY_WORD(take_each, outer, n, inner, m, x, index, y)
}

// ---- sums ---------------------------------------------------------------------------------------------------------

#if FLOATING
// The indices: one list for all columns or, `along` an axis, one for each, [outer, m, inner]
struct Indices {
    const int64* index;
    int64 m, inner;
    bool along;
    __device__ int64 at(int64 o, int64 j, int64 i) const { return index[along ? (o * m + j) * inner + i : j]; }
};

// x[o, index, i] += v[o, j, i]; a thread adds a whole column
extern "C" __global__ void add_columns(int64 outer, int64 n, int64 inner, int64 m, Bool along, T* x, const int64* index,
                                       const T* v) {
    const Indices at = {index, m, inner, bool(along)};
    FOR_EACH(column, outer * inner) {
        const int64 o = column / inner, i = column % inner;
        for (int64 j = 0; j < m; j++) {
            x[(o * n + at.at(o, j, i)) * inner + i] += v[(o * m + j) * inner + i];
        }
    }
}

// The same with the order that sorts the indices, [m] or [outer, inner, m]: the thread of the first of equal indices
// adds for all of them
extern "C" __global__ void add_sorted(int64 outer, int64 n, int64 inner, int64 m, Bool along, T* x, const int64* index,
                                      const int64* order, const T* v) {
    const Indices at = {index, m, inner, bool(along)};
    FOR_EACH(e, outer * m * inner) {
        const int64 i = e % inner, k = e / inner % m, o = e / inner / m;
        const int64* sorted = order + (along ? (o * inner + i) * m : 0);
        const int64 place = at.at(o, sorted[k], i);
        if (k > 0 && at.at(o, sorted[k - 1], i) == place) continue;
        int64 last = k, beyond = m;  // the last equal index, found first so that the loads below need not wait
        while (beyond - last > 1) {
            const int64 middle = last + (beyond - last) / 2;
            (at.at(o, sorted[middle], i) == place ? last : beyond) = middle;
        }
        T total = x[(o * n + place) * inner + i];
#pragma unroll 8
        for (int64 l = k; l < beyond; l++) total += v[(o * m + sorted[l]) * inner + i];
        x[(o * n + place) * inner + i] = total;
    }
}
#endif
