// Runs the threads of a grid as fibers, several blocks at a time.
//
// The blocks of a cluster or of a cooperative grid form a group; any other block is a group of its own. Groups start in a
// random order, and a few of them are resident at the same time. The scheduler runs the threads of one block in a random
// order, each until it has to wait: at a barrier for its block or its group, at a shuffle for the lanes in the mask. Then
// it goes on with the same block or with another one, and exchanges the shared memory. As it knows who waits for whom, it
// reports a barrier that some threads never reach as soon as no other thread can run.

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

enum State { READY, AT_BARRIER, AT_EXCHANGE, AT_TEAM, DONE };

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
    Fiber* fibers;              // one for each thread
    std::vector<int> turn;      // the order of the threads
    std::vector<char> shared;   // its shared memory while another block runs
    std::vector<char> dynamic;  // its dynamic shared memory, between fences
    bool fresh;                 // it has not run yet
    bool stuck;                 // its threads wait for other blocks
    bool finished;
    Block* group;  // the first block of its group
};

// Stacks begin at different places of a page, so that their tops do not compete for the same lines of the cache.
constexpr size_t STACK = (1 << 16) + 5 * 64;
constexpr int RESIDENT = 8;          // the most blocks at a time
constexpr int FIBERS = 512;          // the most of several groups, except that there are always two: the cache is small
constexpr int MOST_FIBERS = 2048;    // as many as there are stacks
constexpr unsigned STAY = 4;         // rounds of a block before another one runs, on average
constexpr unsigned ACCESSES = 1000;  // to memory before a thread is preempted, on average

std::vector<Fiber> fibers;
std::vector<Block> blocks;
Block* inside;   // the block whose shared memory is in place
Fiber* current;  // the thread that runs; null while the scheduler does
int threads;     // of a block
int group;       // blocks of a group
const Launch* launched;
void* scheduler;
Kernel kernel;
void* const* arguments;
uint64_t state;  // The generator's.
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

// Resumes the threads of a group if all wait at a barrier for it; returns whether that is so. Fails if none of them can
// run.
bool release_group(Block* first) {
    bool all = true, any = false;
    for (Block* block = first; block < first + group; block++) {
        for (int i = 0; i < threads; i++) {
            all = all && block->fibers[i].state == AT_TEAM;
            any = any || block->fibers[i].state == AT_TEAM;
        }
    }
    if (all) {
        for (Block* block = first; block < first + group; block++) {
            for (int i = 0; i < threads; i++) {
                if (block->fibers[i].site != first->fibers[0].site)
                    failure = "threads of a cluster or a grid wait at different barriers";
                block->fibers[i].state = READY;
            }
            block->stuck = false;
        }
        return true;
    }
    for (Block* block = first; block < first + group; block++) any = any && (block->stuck || block->finished);
    if (any) failure = "threads wait at a barrier of a cluster or a grid that others never reach";
    return false;
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

void wait_for_cluster() {
    if (!launched->cluster) fail("a barrier for a cluster in a launch without clusters");
    current->site = call_site();
    current->state = AT_TEAM;
    stop();
}

void wait_for_grid(int* arrived) {
    if (!launched->cooperative) fail("a barrier for the grid in a launch that is not cooperative");
    if (current == inside->fibers) ++*arrived;
    current->site = call_site();
    current->state = AT_TEAM;
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

constexpr size_t FENCE = 128;  // bytes around memory that no kernel may write

void* dynamic_shared() { return inside->dynamic.data() + FENCE; }

void* in_block(const void* p, unsigned rank, size_t size) {
    const size_t offset = size_t(static_cast<const char*>(p) - static_cast<char*>(dynamic_shared()));
    if (rank >= launched->cluster) fail("shared memory of block %d of a cluster, which has fewer", int(rank));
    if (offset + size > launched->shared || offset > launched->shared)
        fail("an address outside the dynamic shared memory of a block of the cluster");
    Block& other = inside->group[rank];
    if (other.finished) fail("shared memory of block %d of a cluster, which has ended", int(rank));
    if (other.fresh) fail("shared memory of block %d of a cluster, which may not have begun", int(rank));
    return other.dynamic.data() + FENCE + offset;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

namespace {

// Makes a block resident in place of one that is finished.
void admit(Block& block, unsigned number, const Launch& launch) {
    block.index = {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
    block.fresh = true;
    block.stuck = block.finished = false;
    block.dynamic.assign(launch.shared + 2 * FENCE, char(0xff));
    for (char* fence : {block.dynamic.data(), block.dynamic.data() + FENCE + launch.shared})
        std::memset(fence, 0xa5, FENCE);
    for (int i = 0; i < threads; i++)
        start(block.fibers[i], launch.stacks + size_t(block.fibers + i - fibers.data()) * STACK);
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

// Whether the bytes around memory are as they were
bool fenced(const char* memory, size_t size) {
    static const std::vector<char> expected(FENCE, '\xa5');
    return !std::memcmp(memory - FENCE, expected.data(), FENCE) && !std::memcmp(memory + size, expected.data(), FENCE);
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
    if (failure) return FINISHED;
    if (finished) {
        block.finished = true;
        if (!fenced(block.dynamic.data() + FENCE, block.dynamic.size() - 2 * FENCE))
            failure = "wrote outside the dynamic shared memory";
        release_group(block.group);
        return FINISHED;
    }
    if (release_all(block) || release_lanes(block) || preempted) return preempted ? PREEMPTED : WAITING;
    for (int i = 0; i < threads; i++) block.stuck |= block.fibers[i].state == AT_TEAM;
    if (!block.stuck) failure = "threads wait at a barrier or a shuffle that the others never reach";
    if (block.stuck) release_group(block.group);
    return WAITING;
}

void run_grid(const Launch& launch) {
    const unsigned total = gridDim.x * gridDim.y * gridDim.z;
    threads = int(blockDim.x * blockDim.y * blockDim.z);
    group = launch.cooperative ? int(total) : std::max(int(launch.cluster), 1);
    const int groups = int(total) / group, fit = MOST_FIBERS / (group * threads);
    const int some = std::min({groups, std::max(RESIDENT / group, 2), std::max(FIBERS / (group * threads), 2), fit});
    const size_t resident = size_t(some * group);
    if (!some) {
        failure = "more threads of a cluster or a cooperative grid than can run at the same time";
        return;
    }
    if (fibers.size() < resident * size_t(threads)) fibers.resize(resident * size_t(threads));
    if (blocks.size() < resident) blocks.resize(resident);
    std::vector<unsigned> order(static_cast<size_t>(groups));
    std::iota(order.begin(), order.end(), 0u);
    unsigned admitted = 0;
    std::vector<Block*> live;
    const auto admit_group = [&](Block* first) {
        std::swap(order[admitted], order[admitted + random(unsigned(groups) - admitted)]);
        for (int i = 0; i < group; i++) {
            admit(first[i], order[admitted] * unsigned(group) + unsigned(i), launch);
            live.push_back(first + i);
        }
        admitted++;
    };
    for (size_t i = 0; i < resident; i++) {
        Block& block = blocks[i];
        block.fibers = fibers.data() + i * size_t(threads);
        block.group = &blocks[i / size_t(group) * size_t(group)];
        block.turn.resize(size_t(threads));
        std::iota(block.turn.begin(), block.turn.end(), 0);
        block.shared.resize(size_t(kernel.shared_end - kernel.shared));
        for (int k = 0; k < threads; k++) {
            const unsigned t = unsigned(k);
            block.fibers[k].thread = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
        }
    }
    for (int i = 0; i < some; i++) admit_group(&blocks[size_t(i * group)]);
    inside = nullptr;
    for (size_t k = 0; !live.empty() && !failure;) {
        Block& block = *live[k];
        const Outcome outcome = run_round(block);
        if (outcome == WAITING && !block.stuck && random(STAY)) continue;
        if (outcome == FINISHED) {
            inside = nullptr;
            live.erase(live.begin() + std::ptrdiff_t(k));
            const auto ended = [](const Block& one) { return one.finished; };
            if (admitted < unsigned(groups) && std::all_of(block.group, block.group + group, ended)) admit_group(block.group);
        }
        if (!live.empty() && !failure) {
            do k = random(unsigned(live.size()));
            while (live[k]->stuck);
        }
    }
}

// Returns whether the bytes around an allocation are as they were, and restores them.
bool intact(const Allocation& memory) {
    if (fenced(memory.address, memory.size)) return true;
    for (char* fence : {memory.address - FENCE, memory.address + memory.size}) std::memset(fence, 0xa5, FENCE);
    return false;
}

}  // namespace

const char* run(const Kernel& given, const Launch& launch, void* const* its_arguments) {
    gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    blockDim = {launch.block[0], launch.block[1], launch.block[2]};
    kernel = given;
    launched = &launch;
    arguments = its_arguments;
    state = launch.seed | 1;
    failure = nullptr;
    run_grid(launch);
    for (size_t i = 0; i < launch.count; i++) {
        const Allocation& memory = launch.allocations[i];
        if (!memory.address || intact(memory) || failure) continue;
        std::snprintf(message, sizeof message, "wrote outside an array of %zu bytes", memory.size);
        failure = message;
    }
    return failure;
}

}  // namespace emulation
