// Optimizer steps: one pass over all parameters of a list, and the sum of the squares of their gradients.
//
// The tensors are passed by value, as many as fit in the parameters of a kernel. Their elements are split into chunks by
// the sizes alone, and a block takes one chunk at a time.

#if FLOATING

const int CHUNK = 1024, THREADS = 256;

// A thread's elements: up to four neighbours of one tensor
struct Place {
    int tensor;
    int64 first, count;
};

// f(place) for all elements of the tensors
template <class F>
__device__ void each_place(const Tensors& list, F f) {
    for (int64 chunk = blockIdx.x; chunk < list.chunk[list.count]; chunk += gridDim.x) {
        int low = 0, high = int(list.count);  // chunk[low] <= chunk < chunk[high]
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (list.chunk[middle] <= chunk ? low : high) = middle;
        }
        const int64 first = (chunk - list.chunk[low]) * CHUNK + 4 * threadIdx.x, count = list.size[low] - first;
        f({low, first, count < 4 ? count : 4});
    }
}

// Up to four elements of one of a tensor's arrays
__device__ inline void load(const Tensors& list, int array, const Place& at, Pack<4>& value) {
    const T* from = (const T*)list.array[array][at.tensor] + at.first;
    if (at.count == 4 && is_aligned(from)) {
        value = Pack<4>::load(from, true);
    } else {
        for (int k = 0; k < 4; k++) value.v[k] = k < at.count ? from[k] : T(0);
    }
}
__device__ inline void store(const Tensors& list, int array, const Place& at, const Pack<4>& value) {
    T* to = (T*)list.array[array][at.tensor] + at.first;
    if (at.count == 4 && is_aligned(to)) {
        value.store(to, true);
    } else {
        for (int k = 0; k < 4 && k < at.count; k++) to[k] = value.v[k];
    }
}

#define RULE __device__ inline

RULE T square_root(T v) { return sqrt(v); }

template <class R>
RULE bool any_negative(R v, R w) {
    return v < 0 || w < 0;
}

#include "update_rules.cuh"

enum { P, G, S1, S2, S3, ARRAYS };  // parameters, gradients, states

// rule(p, g, s1, s2, s3, whether there is an s3, numbers) on every element
template <class Rule>
__device__ void update(const Tensors& list, Rule rule) {
    each_place(list, [&](const Place& at) {
        Pack<4> value[ARRAYS] = {};
        if (at.count <= 0) return;
        for (int a = 0; a < ARRAYS; a++) {
            if (list.array[a][at.tensor]) load(list, a, at, value[a]);
        }
        const bool has_s3 = list.array[S3][at.tensor];
        for (int k = 0; k < 4; k++) {
            rule(value[P].v[k], value[G].v[k], value[S1].v[k], value[S2].v[k], value[S3].v[k], has_s3);
        }
        for (int a = 0; a < ARRAYS; a++) {
            if (a != G && list.array[a][at.tensor]) store(list, a, at, value[a]);
        }
    });
}

// The numbers of every rule; those that it does not have are 0.
#define NUMBERS_PARAMETERS T n0, T n1, T n2, T n3, T n4, T n5, T n6, T n7, T n8, T n9, T n10, T n11
#define STEP(rule)                                                    \
    const T n[] = {n0, n1, n2, n3, n4, n5, n6, n7, n8, n9, n10, n11}; \
    update(list, [&](T& p, T g, T& s1, T& s2, T& s3, bool has_s3) { rule(p, g, s1, s2, s3, has_s3, n); });

extern "C" __global__ void sgd(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::sgd) }
extern "C" __global__ void adam(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::adam) }
extern "C" __global__ void rmsprop(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::rmsprop) }
extern "C" __global__ void adagrad(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::adagrad) }
extern "C" __global__ void adadelta(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::adadelta) }
extern "C" __global__ void lion(Tensors list, NUMBERS_PARAMETERS) { STEP(rules::lion) }

// total[blocks] = sums of squares of all gradients; squares are in double, so that a gradient of 1e20 does not overflow
extern "C" __global__ void square_sums(Tensors list, double* total) {
    double sum = 0;
    each_place(list, [&](const Place& at) {
        Pack<4> g;
        if (at.count <= 0) return;
        load(list, G, at, g);
        for (int k = 0; k < 4; k++) sum += double(g.v[k]) * double(g.v[k]);
    });
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

// y[1] = the sum of x[n]
extern "C" __global__ void sum_of(int64 n, const double* x, double* y) {
    double sum = 0;
    for (int64 i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) y[0] = sum;
}

#endif
