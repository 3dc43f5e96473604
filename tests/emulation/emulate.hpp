// Runs CUDA kernels on the CPU: the text of a .cu file after this header is C++.
//
// Here is what the text of a kernel names: CUDA's keywords, indices, types and functions. scheduler.cpp runs the threads,
// in an order that a GPU might choose, so that a missing barrier or two blocks that use the same memory cause a wrong
// result. These are errors: a barrier that not all threads reach, a shuffle with a wrong mask, an address that is not
// aligned, a write outside an array, and the shared memory of another block of a cluster before that has begun or when
// it has ended. Shared memory is NaN when a block begins. What does not show is a missing __syncwarp beside a shuffle,
// which unlike on a GPU orders the accesses of its lanes to memory.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>

#include "scheduler.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static
#define __syncthreads() emulation::wait_for_block()
#define __syncwarp(...) emulation::shuffle(~0u, 0, emulation::lane())
#define __shfl_xor_sync(mask, value, distance) emulation::shuffle(mask, value, emulation::lane() ^ int(distance))
#define __shfl_down_sync(mask, value, distance) \
    emulation::shuffle(mask, value, emulation::lane() + (emulation::lane() + int(distance) < 32 ? int(distance) : 0))
#define __shfl_sync(mask, value, source) emulation::shuffle(mask, value, int(source) & 31)
#define __ldg(p) (*(p))

constexpr int warpSize = 32;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};

// CUDA's math functions: overloads for float and double
using std::acos, std::acosh, std::asin, std::asinh, std::atan, std::atan2, std::atanh, std::ceil, std::copysign,
    std::cos, std::cosh, std::erf, std::exp, std::exp2, std::expm1, std::fabs, std::floor, std::fma, std::fmax,
    std::fmin, std::fmod, std::hypot, std::log, std::log10, std::log1p, std::log2, std::nextafter, std::pow, std::rint,
    std::sin, std::sinh, std::sqrt, std::tan, std::tanh, std::trunc, std::isnan, std::isinf, std::isfinite;
inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline double sinpi(double x) { return double(std::sin(x * 3.141592653589793238462643383279502884L)); }
inline double cospi(double x) { return double(std::cos(x * 3.141592653589793238462643383279502884L)); }
inline float sinpi(float x) { return float(sinpi(double(x))); }
inline float cospi(float x) { return float(cospi(double(x))); }
inline double normcdf(double x) { return double(std::erfc(-x * 0.707106781186547524400844362104849039L) / 2); }
inline float normcdf(float x) { return float(normcdf(double(x))); }
template <class T>
inline T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
    return a < b ? b : a;
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }

namespace emulation {

template <class T>
inline T shuffle(unsigned mask, T value, int from) {
    exchange(mask, from, &value, sizeof value);
    return value;
}

// The elements that the lanes of each warp give to a product; as any static variable, they are in shared memory. A lane
// writes those of the next product while others read, and never those of the one after.
struct Given {
    unsigned turn;
    float a[2][4], b[2][2];
};
template <class>
static Given given[32][32];

}  // namespace emulation

// ---- clusters and grids: the functions of common.cuh ----------------------------------------------------------------

inline void* dynamic_shared() { return emulation::dynamic_shared(); }
inline void wait_for_cluster() { emulation::wait_for_cluster(); }

template <class V>
inline V& in_block(V& x, unsigned rank) {
    return *static_cast<V*>(emulation::in_block(&x, rank, sizeof x));
}

inline void wait_for_grid(int* arrived, int turn) {
    __syncthreads();
    emulation::wait_for_grid(arrived);
    if (threadIdx.x > 0) return;
    const int next = *arrived - turn * int(gridDim.x);  // blocks that have arrived at the next barrier
    if (next < 0 || next >= int(gridDim.x)) emulation::fail("a barrier for the grid whose counter did not begin with 0");
}

// ---- tensor cores: the functions of common.cuh ----------------------------------------------------------------------

inline unsigned tf32(float x) {
    const auto bits = std::bit_cast<unsigned>(x);
    return std::isnan(x) ? 0x7fffffff : std::isinf(x) ? bits : (bits + 0x1000) & 0xffffe000;
}

// Products are exact, and their sum with c is cut off at 24 bits as by tensor cores, which do not round.
inline void multiply_tf32(const unsigned (&a)[4], const unsigned (&b)[2], float (&c)[4]) {
    emulation::Given* const warp = emulation::given<float>[threadIdx.x / 32];
    emulation::Given& mine = warp[emulation::lane()];
    const unsigned turn = mine.turn++ % 2;
    for (int k = 0; k < 4; k++) mine.a[turn][k] = __uint_as_float(a[k] & 0xffffe000);
    for (int k = 0; k < 2; k++) mine.b[turn][k] = __uint_as_float(b[k] & 0xffffe000);
    __syncwarp();
    const int g = emulation::lane() / 4, t = emulation::lane() % 4;
    for (int i = 0; i < 4; i++) {
        double sum = c[i];
        for (int k = 0; k < 8; k++)
            sum += double(warp[4 * g + k % 4].a[turn][k / 4 * 2 + i / 2]) * warp[4 * (2 * t + i % 2) + k % 4].b[turn][k / 4];
        c[i] = float(sum);
        if (std::fabs(double(c[i])) > std::fabs(sum)) c[i] = std::nextafter(c[i], 0.0f);
    }
}

namespace emulation {

// ---- accesses to memory ---------------------------------------------------------------------------------------------

// The compiler inserts calls of these functions before each access, as it would for ThreadSanitizer.
#define INSERTED extern "C" __attribute__((visibility("hidden"), no_sanitize("thread"))) void
#define ACCESS(name, ...) \
    INSERTED name(void*, ##__VA_ARGS__) { \
        if (--patience < 0) preempt(); \
    }
#define ACCESSES(name) ACCESS(name##1) ACCESS(name##2) ACCESS(name##4) ACCESS(name##8) ACCESS(name##16)
ACCESSES(__tsan_read)
ACCESSES(__tsan_write)
ACCESS(__tsan_read_range, size_t)
ACCESS(__tsan_write_range, size_t)
INSERTED __tsan_init() {}

// It calls this one, of UndefinedBehaviorSanitizer, if an address is not aligned.
struct Mismatch {
    const char* file;
    unsigned line, column;
    const void* type;
    unsigned char log_alignment, access;
};
INSERTED __ubsan_handle_type_mismatch_v1(const Mismatch* found, const void*) {
    fail("an address that is not a multiple of %d bytes", 1 << found->log_alignment);
}

// ---- the start of a kernel ------------------------------------------------------------------------------------------

// The linker's names for the section .bss, where all shared variables of a module are; GCC ignores the attribute `section`
// of those in templates. What else is there is one byte of the C library, a mark that the module has been unloaded.
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];

// The driver gets the address of each argument.
template <class... A>
inline void call(void (*kernel)(A...), void* const* next) {
    std::apply(kernel, std::tuple<A...>{*static_cast<const A*>(*next++)...});
}
template <class... A>
constexpr size_t count(void (*)(A...)) {
    return sizeof...(A);
}
template <class... A>
constexpr std::array<size_t, sizeof...(A)> sizes(void (*)(A...)) {
    return {sizeof(A)...};
}

}  // namespace emulation

// The emulation of CuPy appends this to the text of a module, once for every kernel: the C function that runs it, how many
// parameters it has, their sizes, and the most threads that a block may have.
#define EMULATED(name, bound)                                                                      \
    extern "C" const int most_##name = bound;                                                      \
    extern "C" size_t count_##name() { return emulation::count(&name); }                           \
    extern "C" const auto sizes_##name = emulation::sizes(&name);                                  \
    extern "C" const char* run_##name(const emulation::Launch& launch, void* const* arguments) {   \
        const auto body = [](void* const* a) { emulation::call(&name, a); };                       \
        return emulation::run({body, emulation::__bss_start, emulation::_end}, launch, arguments); \
    }
