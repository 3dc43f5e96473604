// The kernels that run without the GIL, and the memory that they own.
//
// While a kernel runs without the GIL, another thread may replace the memory of a tensor that the kernel is
// reading: a recorded `x += 1` and `x.set_(y)` do. Two rules keep that safe:
// - A running kernel owns the memory its arguments point to: `give_up` hands it whatever a tensor lets go of meanwhile.
// - An operation of several kernels sees one shape throughout: code that is about to change the shape of a tensor calls
//   `wait_for_kernels` first, and until that returns no other kernel releases the GIL. `wait_for_operations` of
//   backend.pyx waits also for operations that run Python between their kernels, as on a GPU or under a profile.
// All of this is used under the GIL, except for the wait itself.
#pragma once

#include <Python.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "buffer.hpp"

namespace mg {

// A kernel that runs without the GIL. It lies on the stack of its thread.
struct Unlocked {
    Unlocked* next;
    bool (*points_into)(const Unlocked* kernel, const Buffer& buffer);
    std::vector<Buffer*> owned;  // one reference to each
};

struct Running {
    Unlocked* first = nullptr;
    int waiting = 0;                 // threads in wait_for_kernels
    std::atomic<uint32_t> ended{0};  // how many kernels have ended
    void (*release)(Buffer*) = nullptr;
};

// The state belongs to the module `array`. The module that launches kernels is another library, with a variable of its
// own that it points there; no other module uses what follows.
inline Running own_running;
inline Running* running = &own_running;
inline void point_to(Running* state) { running = state; }

// When the process exits, the kernels of daemon threads run on, but these threads never get the GIL again.
inline bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

// Drops a tensor's reference to memory that it exchanges for other memory.
inline void give_up(Buffer* buffer) {
    if (running->first && finalizing()) return;  // the stacks that hold the kernels may be gone: the memory stays
    for (Unlocked* kernel = running->first; kernel; kernel = kernel->next)
        if (kernel->points_into(kernel, *buffer)) {
            kernel->owned.push_back(buffer);
            buffer->references++;
        }
    running->release(buffer);
}

// Waits for the kernels of other threads. A kernel waits for nothing, so this terminates.
inline void wait_for_kernels() {
    running->waiting++;
    while (running->first && !finalizing()) {
        const uint32_t seen = running->ended;
        PyThreadState* state = PyEval_SaveThread();
        running->ended.wait(seen);
        PyEval_RestoreThread(state);
    }
    running->waiting--;
}

// In the child of a fork, no kernel of another thread is running.
inline void forget_kernels() {
    running->first = nullptr;
    running->waiting = 0;
}

}  // namespace mg
