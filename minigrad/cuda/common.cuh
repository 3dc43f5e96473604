// The beginning of every module. T is the dtype of a module. `launch.py` appends the enumerations of dtypes and
// operations, which the CPU kernels use too.
typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned char Bool;  // a byte, 0 or 1
typedef ELEMENT T;

// for (int64 i : this thread's elements of n in all): any grid covers any n
#define FOR_EACH(i, n)                                                                                           \
    for (int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x, step_ = (int64)gridDim.x * blockDim.x; i < (n); \
         i += step_)

// for (int k : 0, 1, ..., n - 1), unrolled
#define UNROLLED(k, n) _Pragma("unroll") for (int k = 0; k < (n); k++)

template <class T>
struct Traits {  // integers are added and multiplied as unsigned, whose overflow is defined
    typedef T Wrapping;
    typedef double Wide;
    static const bool floating = true;
};
template <>
struct Traits<int> {
    typedef unsigned Wrapping;
    typedef unsigned Wide;
    static const bool floating = false;
};
template <>
struct Traits<int64> {
    typedef uint64 Wrapping;
    typedef uint64 Wide;
    static const bool floating = false;
};
template <>
struct Traits<Bool> {
    typedef Bool Wrapping;
    typedef Bool Wide;
    static const bool floating = false;
};

template <class R>
__device__ inline R infinity() {
    return R(1) / R(0);
}

// Lengths, or strides in bytes, of an array with at most eight axes; missing axes come first, with length 1.
struct Extent {
    int64 n[8];
};
struct Stride {
    int64 n[8];
};

// Lists of tensors, and the chunks that each of them is split into: chunk[i] is the first one of tensor i.
struct Tensors {
    int64 count;
    void* array[5][64];
    int64 size[64], chunk[65];
};

// The byte offset of the element with row-major index i
__device__ inline int64 offset(int64 i, const Extent& shape, const Stride& step) {
    int64 at = 0;
    for (int d = 7; i > 0; d--) {
        at += i % shape.n[d] * step.n[d];
        i /= shape.n[d];
    }
    return at;
}

// a / b of nonnegative numbers; small ones avoid the slow 64-bit division
__device__ inline int64 quotient(int64 a, int64 b) {
    return (a | b) >> 32 ? a / b : int64(unsigned(a) / unsigned(b));
}

// ---- blocks that work together ----------------------------------------------------------------------------------------

#ifdef __CUDACC_RTC__  // tests/emulation/emulate.hpp has these functions in C++
// The dynamic shared memory of a block, at a multiple of 16 bytes
__device__ inline void* dynamic_shared() {
    extern __shared__ double2 memory[];
    return memory;
}

// Waits for all threads of a cluster, which then see what the others have written. There are no clusters before Hopper.
__device__ inline void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}

// x in the dynamic shared memory of another block of the cluster, between barriers after its begin and before its end
template <class V>
__device__ inline V& in_block(V& x, unsigned rank) {
    V* there = &x;
#if __CUDA_ARCH__ >= 900
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&x), "r"(rank));
#endif
    return *there;
}

// Waits for all threads of a cooperative grid, which then see what the others have written. `arrived` counts blocks: it
// is 0 before the first `turn`, which is 1.
__device__ inline void wait_for_grid(int* arrived, int turn) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        unsigned count;
        do {
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(count) : "l"(arrived) : "memory");
        } while (int(count - unsigned(turn) * gridDim.x) < 0);  // the count may wrap around
    }
    __syncthreads();
}
#endif

// ---- sums over threads and rows ---------------------------------------------------------------------------------------

// A team is a run of `lanes` threads, a power of two, that works on one row. sum[count] becomes its sum over the team,
// bitwise equal in all of its threads. Teams larger than a warp use shared memory, so all threads of a block must call
// it.
template <int count>
__device__ void team_sum(int lanes, double* sum) {
    for (int distance = (lanes < 32 ? lanes : 32) / 2; distance > 0; distance /= 2) {
        for (int k = 0; k < count; k++) sum[k] += __shfl_xor_sync(~0u, sum[k], distance);
    }
    if (lanes <= 32) return;
    __shared__ double of_warps[count][32];
    const int warp = threadIdx.x / 32, warps = lanes / 32, first = warp / warps * warps;
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        for (int k = 0; k < count; k++) of_warps[k][warp] = sum[k];
    }
    __syncthreads();
    for (int k = 0; k < count; k++) {
        sum[k] = 0;
        for (int w = first; w < first + warps; w++) sum[k] += of_warps[k][w];
    }
}

// The sum over the threads of a block, valid in its first thread
template <int threads>
__device__ double block_sum(double s) {
    __shared__ double sums[threads];
    __syncthreads();
    sums[threadIdx.x] = s;
    for (int distance = threads / 2; distance > 0; distance /= 2) {
        __syncthreads();
        if (threadIdx.x < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];
    }
    return sums[0];
}

// total[count] += what f(e, part) adds to part[count], for e = begin, begin + step, ... below end; a few terms are
// summed in T, then these sums in double. I is the type of e.
template <class I>
struct Index {
    typedef I Type;
};
template <int count, class I = int64, class F>
__device__ inline void add_up(typename Index<I>::Type begin, typename Index<I>::Type end, typename Index<I>::Type step,
                              double* total, F f) {
    while (begin < end) {
        T part[count] = {};
        for (int i = 0; i < 16 && begin < end; i++, begin += step) f(begin, part);
        for (int k = 0; k < count; k++) total[k] += part[k];
    }
}

// W neighbours of type R, which one instruction reads or writes if they are aligned
template <int W, class R = T>
struct alignas(W * sizeof(R) < 16 ? W * sizeof(R) : 16) Pack {
    R v[W];

    static __device__ Pack load(const R* p, bool aligned) {
        if (aligned) return *(const Pack*)p;
        Pack x;
        for (int k = 0; k < W; k++) x.v[k] = p[k];
        return x;
    }
    __device__ void store(R* p, bool aligned) const {
        if (aligned) {
            *(Pack*)p = *this;
        } else {
            for (int k = 0; k < W; k++) p[k] = v[k];
        }
    }
};
enum { WIDE = 16 / sizeof(T) };  // the most neighbours at once

__device__ inline bool is_aligned(const void* p) { return (uint64)p % 16 == 0; }  // or null

// ---- tensor cores -----------------------------------------------------------------------------------------------------

#if SINGLE
#ifdef __CUDACC_RTC__  // tests/emulation/emulate.hpp has these two functions in C++
// x rounded to TF32: 10 bits of fraction, ties away from zero
__device__ inline unsigned tf32(float x) {
    unsigned bits = 0;
#if __CUDA_ARCH__ >= 800  // kernels that call these functions are not launched on older GPUs
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
    return bits;
}

// c[16, 8] += a[16, 8] b[8, 8], by the lanes of a warp. With g = lane / 4 and t = lane % 4, a lane has
// a[g, t], a[g + 8, t], a[g, t + 4], a[g + 8, t + 4]; b[t, g], b[t + 4, g];
// and c[g, 2 t], c[g, 2 t + 1], c[g + 8, 2 t], c[g + 8, 2 t + 1].
__device__ inline void multiply_tf32(const unsigned (&a)[4], const unsigned (&b)[2], float (&c)[4]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
#endif

// A lane's elements of a factor, in TF32 or, in full precision, as big + small, up to 2^-21 of them.
template <bool full, int count>
struct Factor {
    unsigned big[count], small[count];

    __device__ explicit Factor(const float (&x)[count]) {
UNROLLED(k, count) {
            if (!full) {
                big[k] = tf32(x[k]);
                continue;
            }
            // This takes half as many instructions as two calls of tf32. If x is NaN, `small` remains NaN.
            big[k] = (__float_as_uint(x[k]) + 0x1000) & 0xffffe000;
            small[k] = __float_as_uint(x[k] - __uint_as_float(big[k])) & 0xffffe000;
        }
    }
};
// c += a b. The product of the small parts is left out: it is below the rounding errors of float32. Tensor cores
// truncate sums instead of rounding them, so in full precision longer sums are added up outside them: Ootomo and
// Yokota, 2022, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
// performance".
template <bool full>
__device__ inline void multiply_add(const Factor<full, 4>& a, const Factor<full, 2>& b, float (&c)[4]) {
    if (!full) return multiply_tf32(a.big, b.big, c);
    float sum[4] = {};
    multiply_tf32(a.small, b.big, sum);
    multiply_tf32(a.big, b.small, sum);
    multiply_tf32(a.big, b.big, sum);
UNROLLED(k, 4) c[k] += sum[k];
}
#endif

// ---- random bits ------------------------------------------------------------------------------------------------------

// A block of the generator, Philox 4x32-10, as in cext/kernels/philox.hpp
struct Words {
    unsigned word[4];
};

__device__ inline Words philox(uint64 seed, uint64 block, unsigned stream) {
    unsigned a = unsigned(block), b = unsigned(block >> 32), c = stream, d = 0;
    unsigned key0 = unsigned(seed), key1 = unsigned(seed >> 32);
    for (int round = 0; round < 10; round++, key0 += 0x9E3779B9u, key1 += 0xBB67AE85u) {
        const unsigned p_high = __umulhi(0xD2511F53u, a), p_low = 0xD2511F53u * a;
        const unsigned q_high = __umulhi(0xCD9E8D57u, c), q_low = 0xCD9E8D57u * c;
        a = q_high ^ b ^ key0;
        b = q_low;
        c = p_high ^ d ^ key1;
        d = p_low;
    }
    return {{a, b, c, d}};
}

// k/2^24 from 32 bits, k/2^53 from 64: equally spaced floats in [0, 1)
__device__ inline float unit(unsigned bits) { return float(int(bits >> 8)) * 0x1p-24f; }
__device__ inline double unit(uint64 bits) { return double(int64(bits >> 11)) * 0x1p-53; }
