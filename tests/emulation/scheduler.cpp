// Runs the threads of a grid as fibers, those of several blocks at a time.
//
// The blocks start in a random order, and a few of them are resident at the same time. The scheduler runs the threads of
// one of them in a random order, each until it has to wait: at a barrier for its block, at a shuffle for the lanes in
// the mask. Then it goes on with the same block or with another one, and exchanges the shared memory.

#include "scheduler.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

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

namespace {

enum State { READY, AT_BARRIER, AT_EXCHANGE, DONE };

struct Fiber {
    void* place = nullptr;  // the stack pointer while it waits
    dim3 thread;
    State state = READY;
    uintptr_t site = 0;  // where it waits
    // the exchange it waits for: the lanes that take part, and the one it reads; what it gives, and what it gets
    unsigned mask = 0;
    int from = 0;
    alignas(16) char given[16], taken[16];
};

struct Block {
    dim3 index;
    Fiber* fibers;             // one for each thread
    std::vector<int> turn;     // the order of the threads
    std::vector<char> shared;  // its shared memory while another block runs
    bool fresh;                // it has not run yet
};

// Stacks begin at different places of a page, so that their tops do not compete for the same lines of the cache.
constexpr size_t STACK = (1 << 16) + 5 * 64;
constexpr int RESIDENT = 8;          // the most blocks at a time
constexpr int FIBERS = 512;          // the most of several blocks, except that there are always two: the cache is small
constexpr unsigned STAY = 4;         // rounds of a block before another one runs, on average
constexpr unsigned ACCESSES = 1000;  // to memory before a thread is preempted, on average

std::vector<Fiber> fibers;
std::vector<Block> blocks;
Block* inside;   // the block whose shared memory is in place
Fiber* current;  // the thread that runs; null while the scheduler does
int threads;     // of a block
void* scheduler;
Kernel kernel;
void* const* arguments;
uint64_t state;  // of the random numbers
const char* failure;
char message[100];

unsigned random(unsigned n) {  // below n; xorshift64
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return unsigned((state >> 32) * n >> 32);
}

void stop() { mg_switch(&current->place, scheduler); }

void begin() {
    kernel.body(arguments);
    current->state = DONE;
    stop();
    std::abort();
}

void start(Fiber& fiber, char* stack) {
    auto* top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + STACK) & ~uintptr_t{63});
#if defined(__x86_64__)
    top -= SAVED + 2;  // so that `begin` finds the stack as after a call
#else
    top -= 20;
#endif
    std::memset(top, 0, SAVED * sizeof(void*));
    top[SAVED] = reinterpret_cast<void*>(begin);
    fiber.place = top;
    fiber.state = READY;
}

// Identifies the call of a function of this file by the return addresses on the stack: a barrier in a function that is
// called from two places is two barriers. In the first frame, that of `begin`, the pointer to the previous one is null.
inline __attribute__((always_inline)) uintptr_t call_site() {
    uintptr_t site = 0;
    for (auto frame = static_cast<uintptr_t*>(__builtin_frame_address(0)); frame[0];
         frame = reinterpret_cast<uintptr_t*>(frame[0]))
        site = 31 * site + frame[1];
    return site;
}

// ---- waiting --------------------------------------------------------------------------------------------------------

// Resumes the threads of a block that wait at a barrier if all do; returns whether that is so.
bool release_all(const Block& block) {
    for (int i = 0; i < threads; i++)
        if (block.fibers[i].state != AT_BARRIER) return false;
    for (int i = 0; i < threads; i++) {
        if (block.fibers[i].site != block.fibers[0].site) failure = "threads of a block wait at different barriers";
        block.fibers[i].state = READY;
    }
    return true;
}

// Exchanges the values of the lanes that wait for each other; returns whether there are such lanes.
bool release_lanes(const Block& block) {
    bool any = false;
    for (int first = 0; first < threads; first += 32) {
        Fiber* warp = block.fibers + first;
        const int lanes = std::min(32, threads - first);
        unsigned there = 0;
        for (int lane = 0; lane < lanes; lane++) there |= unsigned(warp[lane].state == AT_EXCHANGE) << lane;
        for (int lane = 0; lane < lanes; lane++) {
            if (!(there >> lane & 1)) continue;
            const unsigned group = warp[lane].mask & (~0u >> (32 - lanes));
            if (group & ~there) continue;
            for (int k = lane; k < lanes; k++) {
                if (!(group >> k & 1)) continue;
                if (warp[k].mask != warp[lane].mask || warp[k].site != warp[lane].site)
                    failure = "lanes of a warp wait at different shuffles, or with different masks";
                std::memcpy(warp[k].taken, warp[warp[k].from].given, sizeof warp[k].taken);
                warp[k].state = READY;
            }
            there &= ~group;
            any = true;
        }
    }
    return any;
}

}  // namespace

void wait_for_block() {
    current->site = call_site();
    current->state = AT_BARRIER;
    stop();
}

int lane() { return int(current - inside->fibers) % 32; }

void exchange(unsigned mask, int from, void* value, size_t size) {
    const int first = int(current - inside->fibers) - lane();
    if (!(mask >> lane() & 1)) fail("a lane takes part in a shuffle whose mask does not name it");
    if (!(mask >> from & 1) || first + from >= threads)
        fail("a lane reads by a shuffle from a lane that the mask does not name");
    std::memcpy(current->given, value, size);
    current->mask = mask;
    current->from = from;
    current->site = call_site();
    current->state = AT_EXCHANGE;
    stop();
    std::memcpy(value, current->taken, size);
}

void fail(const char* what, int number) {
    std::snprintf(message, sizeof message, what, number);
    failure = message;
    current->state = DONE;
    stop();
}

int patience;

void preempt() {
    patience = int(random(2 * ACCESSES));
    if (current) stop();  // in the state READY
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

namespace {

// Makes a block resident in place of one that is finished.
void admit(Block& block, unsigned number, const Launch& launch) {
    block.index = {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
    block.fresh = true;
    for (int i = 0; i < threads; i++) start(block.fibers[i], launch.stacks + size_t(block.fibers + i - fibers.data()) * STACK);
}

// Puts the shared memory of a block in place; it is NaN when a block begins.
void enter(Block& block) {
    const size_t size = size_t(kernel.shared_end - kernel.shared);
    blockIdx = block.index;
    if (inside != &block && inside) std::memcpy(inside->shared.data(), kernel.shared, size);
    if (block.fresh)
        std::memset(kernel.shared, 0xff, size);
    else if (inside != &block)
        std::memcpy(kernel.shared, block.shared.data(), size);
    block.fresh = false;
    inside = &block;
}

enum Outcome { WAITING, PREEMPTED, FINISHED };

// Runs each thread of a block until it waits, and resumes those whose wait is over.
Outcome run_round(Block& block) {
    enter(block);
    bool finished = true, preempted = false;
    for (int i = threads - 1; i > 0; i--) std::swap(block.turn[size_t(i)], block.turn[random(unsigned(i) + 1)]);
    for (const int i : block.turn) {
        Fiber& fiber = block.fibers[i];
        if (fiber.state == READY) {
            current = &fiber;
            threadIdx = fiber.thread;
            mg_switch(&scheduler, fiber.place);
            preempted |= fiber.state == READY;
        }
        finished &= fiber.state == DONE;
    }
    current = nullptr;
    if (finished || failure) return FINISHED;
    if (!release_all(block) && !release_lanes(block) && !preempted)
        failure = "threads wait at a barrier or a shuffle that the others never reach";
    return preempted ? PREEMPTED : WAITING;
}

void run_grid(const Launch& launch) {
    const unsigned total = gridDim.x * gridDim.y * gridDim.z;
    threads = int(blockDim.x * blockDim.y * blockDim.z);
    const size_t resident = std::min({size_t(total), size_t(RESIDENT), size_t(std::max(FIBERS / threads, 2))});
    if (fibers.size() < resident * size_t(threads)) fibers.resize(resident * size_t(threads));
    if (blocks.size() < resident) blocks.resize(resident);
    std::vector<unsigned> order(total);
    std::iota(order.begin(), order.end(), 0u);
    unsigned admitted = 0;
    const auto next = [&] {
        std::swap(order[admitted], order[admitted + random(total - admitted)]);
        return order[admitted++];
    };
    std::vector<Block*> live;
    for (size_t i = 0; i < resident; i++) {
        Block& block = blocks[i];
        block.fibers = fibers.data() + i * size_t(threads);
        block.turn.resize(size_t(threads));
        std::iota(block.turn.begin(), block.turn.end(), 0);
        block.shared.resize(size_t(kernel.shared_end - kernel.shared));
        for (int k = 0; k < threads; k++) {
            const unsigned t = unsigned(k);
            block.fibers[k].thread = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
        }
        admit(block, next(), launch);
        live.push_back(&block);
    }
    inside = nullptr;
    for (size_t k = 0; !live.empty() && !failure;) {
        const Outcome outcome = run_round(*live[k]);
        if (outcome == WAITING && random(STAY)) continue;
        if (outcome == FINISHED) {
            inside = nullptr;
            if (admitted < total)
                admit(*live[k], next(), launch);
            else
                live.erase(live.begin() + std::ptrdiff_t(k));
        }
        k = random(unsigned(live.size()));
    }
}

constexpr size_t FENCE = 128;

// Returns whether the bytes around an allocation are as they were, and restores them.
bool intact(const Allocation& memory) {
    static const std::vector<char> expected(FENCE, '\xa5');
    bool same = true;
    for (char* fence : {memory.address - FENCE, memory.address + memory.size}) {
        if (!std::memcmp(fence, expected.data(), FENCE)) continue;
        same = false;
        std::memcpy(fence, expected.data(), FENCE);
    }
    return same;
}

}  // namespace

const char* run(const Kernel& given, const Launch& launch, void* const* its_arguments) {
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    kernel = given;
    arguments = its_arguments;
    state = launch.seed | 1;
    failure = nullptr;
    run_grid(launch);
    for (size_t i = 0; i < launch.count; i++) {
        const Allocation& memory = launch.allocations[i];
        if (!memory.address || intact(memory) || failure) continue;
        std::snprintf(message, sizeof message, "wrote outside of an array of %zu bytes", memory.size);
        failure = message;
    }
    return failure;
}

}  // namespace emulation
