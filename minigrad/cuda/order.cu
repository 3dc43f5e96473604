// The stable order of the elements of x[outer, n, inner] along the middle axis: order[outer * inner, n].
//
// Runs of TILE elements are sorted in shared memory by a bitonic network, made stable by comparing the elements'
// indices as well. Then pairs of runs are merged: an element moves on by the number of elements of the other run that
// come before it. NaN counts as the largest number.

const int TILE = 1024;

// Whether x comes before y, whatever their positions
__device__ inline bool before(T x, T y, bool descending) {
    const T a = descending ? y : x, b = descending ? x : y;
    return a < b || (a == a && b != b);
}

// The elements of x, by column
struct Keys {
    const T* x;
    int64 n, inner;
    __device__ T at(int64 column, int64 i) const { return x[(column / inner * n + i) * inner + column % inner]; }
};

extern "C" __global__ void sort_tiles(int64 columns, int64 n, int64 inner, Bool descending, const T* x, int64* order) {
    __shared__ T key[TILE];
    __shared__ int place[TILE];
    const Keys from = {x, n, inner};
    const int64 tiles = (n + TILE - 1) / TILE;
    for (int64 job = blockIdx.x; job < columns * tiles; job += gridDim.x) {
        const int64 column = job / tiles, first = job % tiles * TILE;
        const int count = n - first < TILE ? int(n - first) : TILE;
        int padded = 2;
        while (padded < count) padded *= 2;
        __syncthreads();
        for (int i = threadIdx.x; i < padded; i += blockDim.x) {
            place[i] = i;
            if (i < count) key[i] = from.at(column, first + i);
        }
        // Indices from `count` on come last, whatever their keys.
        const auto swapped = [&](int a, int b) {
            if (place[a] >= count || place[b] >= count) return place[a] > place[b];
            return before(key[b], key[a], descending) || (!before(key[a], key[b], descending) && place[a] > place[b]);
        };
        for (int size = 2; size <= padded; size *= 2) {
            for (int distance = size / 2; distance > 0; distance /= 2) {
                __syncthreads();
                for (int pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
                    const int a = pair / distance * 2 * distance + pair % distance, b = a + distance;
                    if (swapped(a, b) == ((a & size) == 0)) {
                        const T k = key[a];
                        const int p = place[a];
                        key[a] = key[b], place[a] = place[b];
                        key[b] = k, place[b] = p;
                    }
                }
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < count; i += blockDim.x) order[column * n + first + i] = first + place[i];
    }
}

// Merges runs of `length` into runs of twice that length.
extern "C" __global__ void merge_runs(int64 columns, int64 n, int64 inner, Bool descending, int64 length, const T* x,
                                      const int64* order, int64* merged) {
    const Keys from = {x, n, inner};
    FOR_EACH(e, columns * n) {
        const int64 column = e / n, i = e % n, run = i / length * length, own = order[e];
        const bool left = run / length % 2 == 0;
        const int64 other = left ? run + length : run - length;
        const int64 last = other + length < n ? other + length : n;
        const T key = from.at(column, own);
        // Of equal elements, the ones in the left run come first.
        int64 low = other, high = last > other ? last : other;
        while (low < high) {
            const int64 middle = low + (high - low) / 2;
            const T theirs = from.at(column, order[column * n + middle]);
            if (left ? before(theirs, key, descending) : !before(key, theirs, descending))
                low = middle + 1;
            else
                high = middle;
        }
        merged[column * n + (left ? run : other) + (i - run) + (low - other)] = own;
    }
}
