// Runs CUDA kernels on the CPU: the text of a .cu file after this header is C++.
//
// Blocks run one after the other. The threads of a block are fibers that run in a random order, each until it has to
// wait: at __syncthreads() for its block, at a shuffle for the lanes of its warp in the mask. A missing barrier then
// causes a wrong result, and one that not all threads reach causes an error. Shared memory is NaN when a block begins.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((used, section("mg_shared")))
#define __syncthreads() emulation::wait_for_block()
#define __syncwarp(...) emulation::exchange(~0u, 0, [](int lane) { return lane; })
#define __shfl_xor_sync(mask, value, distance) \
    emulation::exchange(mask, value, [&](int lane) { return lane ^ int(distance); })
#define __shfl_down_sync(mask, value, distance) \
    emulation::exchange(mask, value, [&](int lane) { return lane + int(distance) < 32 ? lane + int(distance) : lane; })
#define __shfl_sync(mask, value, source) emulation::exchange(mask, value, [&](int) { return int(source) & 31; })
#define __ldg(p) (*(p))

// A shared variable in every module, so that the section exists.
__shared__ char shared_memory_begins;
extern "C" char __start_mg_shared[], __stop_mg_shared[];

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;

struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct double2 {
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
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}

namespace emulation {

// ---- fibers ---------------------------------------------------------------------------------------------------------

// Saves the callee-saved registers, stores the stack pointer in *from, and continues where `to` was stored.
extern "C" void mg_switch(void** from, void* to);
#if defined(__x86_64__)
asm(R"(
.text
mg_switch:
    push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
    ret
)");
constexpr int SAVED = 6;  // words, followed by the return address
#elif defined(__aarch64__)
asm(R"(
.text
mg_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]; stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]; stp x29, x30, [sp, #80]; stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]; ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]; ldp x29, x30, [sp, #80]; ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
constexpr int SAVED = 11;  // x30 is the twelfth word
#else
#error "the emulation knows x86-64 and arm64"
#endif

enum State { READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct Fiber {
    void* place = nullptr;  // the stack pointer while it waits
    dim3 thread;
    State state = READY;
    // the exchange it waits for: the lanes that take part, and the one it reads; what it gives, and what it gets
    unsigned mask = 0;
    int from = 0;
    alignas(16) char given[16], taken[16];
};

// Stacks begin at different places of a page, so that their tops do not compete for the same lines of the cache.
constexpr size_t STACK = (1 << 16) + 5 * 64;
static std::vector<std::vector<char>> stacks;  // one for each fiber
static std::vector<Fiber> fibers;              // as many as in the largest block so far
static int current, threads;
static void* scheduler;
static void (*body)(void* const*);
static void* const* arguments;
static uint64_t order = 1;  // the state of the random order
static const char* failure;

inline void stop() { mg_switch(&fibers[size_t(current)].place, scheduler); }

inline void fail(const char* what) {
    if (!failure) failure = what;
    fibers[size_t(current)].state = DONE;
    stop();
}

static void begin() {
    body(arguments);
    fibers[size_t(current)].state = DONE;
    stop();
    std::abort();
}

inline unsigned random(unsigned n) {  // below n; xorshift64
    order ^= order << 13;
    order ^= order >> 7;
    order ^= order << 17;
    return unsigned((order >> 32) * n >> 32);
}

inline void start(int i) {
    const std::vector<char>& stack = stacks[size_t(i)];
    auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack.data() + STACK) & ~uintptr_t{63});
#if defined(__x86_64__)
    top -= SAVED + 2;  // so that `begin` finds the stack as after a call
#else
    top -= 20;
#endif
    std::memset(top, 0, SAVED * sizeof(void*));
    top[SAVED] = reinterpret_cast<void*>(begin);
    fibers[size_t(i)].place = top;
    fibers[size_t(i)].state = READY;
}

// ---- waiting --------------------------------------------------------------------------------------------------------

inline void wait_for_block() {
    fibers[size_t(current)].state = AT_BARRIER;
    stop();
}

// Returns the value of the lane `source(lane)`; all lanes of the mask write a value and read one.
template <class T, class Source>
inline T exchange(unsigned mask, T value, Source source) {
    Fiber& me = fibers[size_t(current)];
    const int lane = current % 32, first = current - lane, from = source(lane);
    if (!(mask >> lane & 1)) fail("a lane takes part in a shuffle whose mask does not name it");
    if (!(mask >> from & 1) || first + from >= threads)
        fail("a lane reads by a shuffle from a lane that the mask does not name");
    std::memcpy(me.given, &value, sizeof value);
    me.mask = mask;
    me.from = first + from;
    me.state = AT_EXCHANGE;
    stop();
    std::memcpy(&value, me.taken, sizeof value);
    return value;
}

// Resumes the fibers whose wait is over; returns false if there is none.
inline bool release() {
    const int n = threads;
    int waiting = 0;
    bool any = false;
    for (int i = 0; i < n; i++) waiting += fibers[size_t(i)].state == AT_BARRIER;
    if (waiting == n) {
        for (int i = 0; i < n; i++) fibers[size_t(i)].state = READY;
        return true;
    }
    for (int first = 0; first < n; first += 32) {
        unsigned there = 0, mask = 0;
        for (int lane = 0; lane < 32 && first + lane < n; lane++) {
            const Fiber& fiber = fibers[size_t(first + lane)];
            if (fiber.state != AT_EXCHANGE) continue;
            there |= 1u << lane;
            mask |= fiber.mask;
        }
        const unsigned exist = n - first >= 32 ? ~0u : (1u << (n - first)) - 1;
        if (!there || (mask & exist) != there) continue;
        for (int lane = 0; lane < 32; lane++) {
            if (!(there >> lane & 1)) continue;
            Fiber& fiber = fibers[size_t(first + lane)];
            std::memcpy(fiber.taken, fibers[size_t(fiber.from)].given, sizeof fiber.taken);
            fiber.state = READY;
        }
        any = true;
    }
    return any;
}

inline void run_block() {
    const int n = threads = int(blockDim.x * blockDim.y * blockDim.z);
    if (int(fibers.size()) < n) {
        fibers.resize(size_t(n));
        stacks.resize(size_t(n), std::vector<char>(STACK));
    }
    std::memset(__start_mg_shared, 0xff, size_t(__stop_mg_shared - __start_mg_shared));
    std::vector<int> turn(static_cast<size_t>(n));
    for (int i = 0; i < n; i++) {
        const unsigned k = unsigned(i);
        fibers[size_t(i)].thread = {k % blockDim.x, k / blockDim.x % blockDim.y, k / (blockDim.x * blockDim.y)};
        start(i);
        turn[size_t(i)] = i;
    }
    for (;;) {
        for (int i = n - 1; i > 0; i--) std::swap(turn[size_t(i)], turn[random(unsigned(i) + 1)]);
        bool finished = true;
        for (const int i : turn) {
            Fiber& fiber = fibers[size_t(i)];
            if (fiber.state == READY) {
                current = i;
                threadIdx = fiber.thread;
                mg_switch(&scheduler, fiber.place);
            }
            finished &= fiber.state == DONE;
        }
        if (finished || failure) return;
        if (!release()) {
            failure = "threads wait at a barrier or a shuffle that the others never reach";
            return;
        }
    }
}

// The driver gets the address of each argument.
template <class... A>
inline void call(void (*kernel)(A...), void* const* next) {
    std::apply(kernel, std::tuple<A...>{*static_cast<const A*>(*next++)...});
}
template <class... A>
constexpr size_t count(void (*)(A...)) {
    return sizeof...(A);
}

// An allocation, with FENCE bytes before and after it that no kernel may write; the address is null if it was freed.
struct Allocation {
    char* address;
    size_t size;
};
constexpr size_t FENCE = 128;

// Returns whether the bytes around an allocation are as they were, and restores them.
inline bool intact(const Allocation& memory) {
    static const std::vector<char> expected(FENCE, '\xa5');
    bool same = true;
    for (char* fence : {memory.address - FENCE, memory.address + memory.size}) {
        if (!std::memcmp(fence, expected.data(), FENCE)) continue;
        same = false;
        std::memcpy(fence, expected.data(), FENCE);
    }
    return same;
}

struct Launch {
    unsigned grid[3], block[3];
    uint64_t seed;
    const Allocation* allocations;
    size_t count;
};

// Runs the whole grid; returns null or an error message.
inline const char* run(void (*kernel)(void* const*), const Launch& launch, void* const* given) {
    static char message[100];
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    body = kernel;
    arguments = given;
    order = launch.seed | 1;
    failure = nullptr;
    for (unsigned z = 0; z < gridDim.z; z++)
        for (unsigned y = 0; y < gridDim.y; y++)
            for (unsigned x = 0; x < gridDim.x && !failure; x++) {
                blockIdx = {x, y, z};
                run_block();
            }
    for (size_t i = 0; i < launch.count; i++) {
        const Allocation& memory = launch.allocations[i];
        if (!memory.address || intact(memory) || failure) continue;
        std::snprintf(message, sizeof message, "wrote outside of an array of %zu bytes", memory.size);
        failure = message;
    }
    return failure;
}

}  // namespace emulation

// The emulation of CuPy appends this to the text of a module, once for every kernel: the C function that runs it, how many
// parameters it has, and the most threads that a block may have.
#define EMULATED(name, bound)                                                                        \
    extern "C" const int most_##name = bound;                                                        \
    extern "C" size_t count_##name() { return emulation::count(&name); }                             \
    extern "C" const char* run_##name(const emulation::Launch& launch, void* const* arguments) {     \
        return emulation::run([](void* const* a) { emulation::call(&name, a); }, launch, arguments); \
    }
