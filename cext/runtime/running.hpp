// What is running: the calls of operations, and the kernels that run without the GIL.
//
// An operation reads the shape of a tensor once for its result and again for its kernels. In between, other threads may
// run: while a kernel runs without the GIL, while a backend runs Python, or, before Python 3.12, while the garbage
// collector calls a finalizer. Two rules keep tensors that other threads change safe meanwhile:
// - An operation sees one shape throughout, and so does a backward pass with its hooks. Each registers a Call before it
//   runs, and code that is about to change the shape of a tensor first waits until the calls of other threads have
//   ended. While it waits, new calls are delayed, so the wait is short.
// - A running kernel owns the memory its arguments point to: `give_up` hands it any memory that a tensor releases in
//   the meantime, as a recorded `x += 1` does without waiting for other threads.
// All of this is used under the GIL, except for the waits themselves. The profiler finds the operation that a kernel
// belongs to in the list of calls.
#pragma once

#include <Python.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "buffer.hpp"

namespace mg {

// A kernel that runs without the GIL. It lies on the stack of its thread.
struct Unlocked {
    Unlocked* next;
    bool (*points_into)(const Unlocked* kernel, const Buffer& buffer);
    std::vector<Buffer*> owned;  // one reference to each
};

struct Call;
struct RecordedKernels;

struct Running {
    Call* last = nullptr;                  // the calls of all threads, linked, the newest first
    Unlocked* first = nullptr;             // the kernels
    std::atomic<int> waiting{0};           // threads that wait for calls to end
    std::atomic<uint32_t> events{0};       // calls that ended while a thread waited, and waits that ended
    std::mutex mutex;                      // of `changed`
    std::condition_variable changed;       // `events` was increased
    RecordedKernels* recording = nullptr;  // of a step; one at a time
    void (*release)(Buffer*) = nullptr;
};

// The state belongs to the module `calls`. The modules that exchange memory and launch kernels are other libraries,
// with their own variables, which they point at that state.
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

struct Begun {
    Running* running;
    PyObject* op;
};

// A call of an operation. It lies on the stack of its thread, or in an object, and ends with its scope.
struct Call {
    Running* running = nullptr;  // null if it has not begun
    PyObject* op;                // the operation's record or name, borrowed; None or null: no kernels belong to it
    Call* outer;                 // the one that began before it, in any thread
    std::thread::id thread;
    uint64_t number;  // for the profiler, which numbers the calls whose kernels it sees; 0: none so far
    bool covers;      // only for the profiler: the kernels of the operations inside it belong to this call
    bool backward;

    Call() {}
    Call(const Call&) = delete;
    Call& operator=(const Begun& begun);  // begins
    ~Call() { end(); }
    void cover(const Begun& begun, bool in_backward);  // begins, or goes on with another operation
    void end();

  private:
    void link(Running* in);
};

inline Begun begin(Running* running, PyObject* op) { return {running, op}; }

inline void notify(Running& running) {
    {
        std::lock_guard lock(running.mutex);
        running.events++;
    }
    running.changed.notify_all();
}

// Waits, without the GIL, for the next event, but not for long: signals are handled in between.
inline void wait_for_event(Running& running) {
    const uint32_t seen = running.events;
    PyThreadState* state = PyEval_SaveThread();
    {
        std::unique_lock lock(running.mutex);
        running.changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return running.events != seen; });
    }
    PyEval_RestoreThread(state);
}

inline bool computing(const Running& running, bool here) {
    const auto thread = std::this_thread::get_id();
    for (const Call* call = running.last; call; call = call->outer)
        if (!call->covers && (call->thread == thread) == here) return true;
    return false;
}

// Lets the threads that wait for the end of all calls go first, unless this thread is inside a call already. After a
// second it continues anyway, as one of these calls may be waiting for this thread.
inline void let_pass(Running& running) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (running.waiting && !finalizing() && !computing(running, true) && std::chrono::steady_clock::now() < deadline)
        wait_for_event(running);
}

inline void Call::link(Running* in) {
    running = in;
    outer = in->last;
    thread = std::this_thread::get_id();
    number = 0;
    in->last = this;
}

inline Call& Call::operator=(const Begun& begun) {
    if (begun.running->waiting) [[unlikely]]
        let_pass(*begun.running);
    op = begun.op;
    covers = backward = false;
    link(begun.running);
    return *this;
}

inline void Call::cover(const Begun& begun, bool in_backward) {
    if (!running) link(begun.running);
    op = begun.op;
    number = 0;
    covers = true;
    backward = in_backward;
}

inline void Call::end() {
    if (!running) return;
    if (running->last == this) {
        running->last = outer;
    } else {
        // Another thread's call began later. When the process exits, the stacks of other threads may be gone.
        if (finalizing()) return;
        Call** link = &running->last;
        while (*link && *link != this) link = &(*link)->outer;
        if (*link) *link = outer;
    }
    if (running->waiting) [[unlikely]]
        notify(*running);
    running = nullptr;
}

// The call that a kernel of this thread belongs to: the outermost that covers what runs inside it, else the innermost.
inline Call* current_call(const Running& running) {
    const auto thread = std::this_thread::get_id();
    Call* found = nullptr;
    for (Call* call = running.last; call; call = call->outer)
        if (call->op && call->op != Py_None && call->thread == thread && (!found || call->covers)) found = call;
    return found;
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

// In the child of a fork, only the calls of the thread that forked continue.
inline void forget_other_threads() {
    const auto thread = std::this_thread::get_id();
    for (Call** link = &running->last; *link;)
        if ((*link)->thread == thread)
            link = &(*link)->outer;
        else
            *link = (*link)->outer;
    running->first = nullptr;
    running->waiting = 0;
    new (&running->mutex) std::mutex;
    new (&running->changed) std::condition_variable;
}

}  // namespace mg
