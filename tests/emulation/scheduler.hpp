// The interface between a compiled module and the scheduler, which is part of the driver's library.
#pragma once

#include <cstddef>
#include <cstdint>

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;  // the running thread's

namespace emulation {

struct Kernel {
    void (*body)(void* const* arguments);
    char *shared, *shared_end;  // the shared memory of its module
};

// An allocation, with FENCE bytes before and after it that no kernel may write; the address is null if it was freed.
struct Allocation {
    char* address;
    size_t size;
};

struct Launch {
    unsigned grid[3], block[3];
    unsigned cluster;      // blocks of a cluster, along x; 0 without clusters
    unsigned cooperative;  // whether all blocks run at the same time
    size_t shared;         // bytes of dynamic shared memory of a block
    uint64_t seed;
    const Allocation* allocations;
    size_t count;
    char* stacks;  // for the threads
};

// Runs the whole grid; returns null or an error message.
const char* run(const Kernel& kernel, const Launch& launch, void* const* arguments);

// Threads call these functions:

// Waits until all threads of the block wait at the same call.
void wait_for_block();

// Wait until all threads of the cluster, or of a cooperative grid, wait at the same call.
// The first thread of each block counts it in `arrived`, at once: nothing runs between reading and writing.
void wait_for_cluster();
void wait_for_grid(int* arrived);

// The dynamic shared memory of the block, and what p points to there, `size` bytes, in another block of the cluster
void* dynamic_shared();
void* in_block(const void* p, unsigned rank, size_t size);

// Waits until the lanes of the mask wait at the same call. All of them give a value and get that of the lane `from`.
void exchange(unsigned mask, int from, void* value, size_t size);

int lane();

// Ends the thread and the launch with an error message, in which %d is replaced by the number.
void fail(const char* what, int number = 0);

// Lets other threads run; called before an access to memory when `patience`, the number of accesses until then, is used up.
void preempt();
extern int patience;

}  // namespace emulation
