// The active calls of operations, and the kernels that run without the GIL.
//
// An operation reads the shape of a tensor once for its result and again for its kernels. In between, other threads may
// run: while a kernel runs without the GIL, while a backend runs Python, or, before Python 3.12, while the garbage
// collector calls a finalizer. Two rules keep tensors that other threads change safe meanwhile:
// - An operation sees one shape throughout, and so does a backward pass with its hooks. Each registers a Call before it
//   runs, and code that is about to change the shape of a tensor first waits until the calls of other threads have
//   ended. While it waits, new calls are delayed, so the wait is short.
// - A running kernel owns the memory its arguments point to: if a tensor releases some of it meanwhile, as an in-place
//   `x += 1` does without waiting for other threads, `give_up` hands it to the kernel.
// The GIL protects everything here except the waits themselves. The profiler looks up in the list of calls which
// operation a kernel belongs to.
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
struct UnlockedKernel {
    UnlockedKernel* next;
    bool (*points_into)(const UnlockedKernel* kernel, const Buffer& buffer);
    std::vector<Buffer*> owned;  // one reference to each
};

struct Call;
struct KernelList;

struct ActiveCalls {
    Call* last = nullptr;               // the calls of all threads, linked, the newest first
    UnlockedKernel* first = nullptr;    // the kernels, linked
    std::atomic<int> waiting{0};        // threads that wait for calls to end
    std::atomic<uint32_t> events{0};    // calls that ended while a thread waited, and waits that ended
    std::mutex mutex;                   // protects `changed`
    std::condition_variable changed;    // signals that `events` has increased
    KernelList* kernel_list = nullptr;  // the kernels of the step that is being captured; one step at a time
    void (*release)(Buffer*) = nullptr;
};

// The state belongs to the module `calls`. The modules that exchange memory and launch kernels are separate libraries
// with variables of their own, which they point to that state.
inline ActiveCalls own_calls;
inline ActiveCalls* active = &own_calls;
inline void point_to(ActiveCalls* state) { active = state; }

// When the process exits, the kernels of daemon threads run on, but these threads never get the GIL again.
inline bool finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing();
#else
    return _Py_IsFinalizing();
#endif
}

struct Begun {
    ActiveCalls* calls;
    PyObject* op;
};

// A call of an operation. It lies on the stack of its thread, or in an object, and ends with its scope.
struct Call {
    ActiveCalls* list = nullptr;  // null if it has not begun
    PyObject* op;                 // the operation's record or name, borrowed; None or null: no kernels belong to it
    Call* outer;                  // the one that began before it, in any thread
    std::thread::id thread;
    uint64_t number;  // for the profiler, which numbers the calls whose kernels it sees; 0: none so far
    bool covers;      // only for the profiler: kernels of the operations that it makes belong to this call
    bool backward;

    Call() {}
    Call(const Call&) = delete;
    Call& operator=(const Begun& begun);  // begins
    ~Call() { end(); }
    void cover(const Begun& begun, bool in_backward);  // begins, or goes on with another operation
    void end();

  private:
    void link(ActiveCalls* in);
};

inline Begun begin(ActiveCalls* calls, PyObject* op) { return {calls, op}; }

inline void notify(ActiveCalls& calls) {
    {
        std::lock_guard lock(calls.mutex);
        calls.events++;
    }
    calls.changed.notify_all();
}

// Waits, without the GIL, for the next event, but not for long: signals are handled in between.
inline void wait_for_event(ActiveCalls& calls) {
    const uint32_t seen = calls.events;
    PyThreadState* state = PyEval_SaveThread();
    {
        std::unique_lock lock(calls.mutex);
        calls.changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return calls.events != seen; });
    }
    PyEval_RestoreThread(state);
}

inline bool computing(const ActiveCalls& calls, bool here) {
    const auto thread = std::this_thread::get_id();
    for (const Call* call = calls.last; call; call = call->outer)
        if (!call->covers && (call->thread == thread) == here) return true;
    return false;
}

// Lets the threads that wait for the end of all calls go first, unless this thread is inside a call already. After a
// second it continues anyway, as one of these calls may be waiting for this thread.
inline void let_pass(ActiveCalls& calls) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (calls.waiting && !finalizing() && !computing(calls, true) && std::chrono::steady_clock::now() < deadline)
        wait_for_event(calls);
}

inline void Call::link(ActiveCalls* in) {
    list = in;
    outer = in->last;
    thread = std::this_thread::get_id();
    number = 0;
    in->last = this;
}

inline Call& Call::operator=(const Begun& begun) {
    if (begun.calls->waiting) [[unlikely]]
        let_pass(*begun.calls);
    op = begun.op;
    covers = backward = false;
    link(begun.calls);
    return *this;
}

inline void Call::cover(const Begun& begun, bool in_backward) {
    if (!list) link(begun.calls);
    op = begun.op;
    number = 0;
    covers = true;
    backward = in_backward;
}

inline void Call::end() {
    if (!list) return;
    if (list->last == this) {
        list->last = outer;
    } else {
        // Another thread's call began later. When the process exits, the stacks of other threads may be gone.
        if (finalizing()) return;
        Call** link = &list->last;
        while (*link && *link != this) link = &(*link)->outer;
        if (*link) *link = outer;
    }
    if (list->waiting) [[unlikely]]
        notify(*list);
    list = nullptr;
}

// The call to which a kernel of this thread belongs: the outermost covering call, or without one the innermost call.
inline Call* current_call(const ActiveCalls& calls) {
    const auto thread = std::this_thread::get_id();
    Call* found = nullptr;
    for (Call* call = calls.last; call; call = call->outer)
        if (call->op && call->op != Py_None && call->thread == thread && (!found || call->covers)) found = call;
    return found;
}

// Drops a tensor's reference to memory that it exchanges for other memory.
inline void give_up(Buffer* buffer) {
    if (active->first && finalizing()) return;  // the stacks that hold the kernels may be gone: the memory stays
    for (UnlockedKernel* kernel = active->first; kernel; kernel = kernel->next)
        if (kernel->points_into(kernel, *buffer)) {
            kernel->owned.push_back(buffer);
            buffer->references++;
        }
    active->release(buffer);
}

// In the child of a fork, only the calls of the thread that forked continue.
inline void forget_other_threads() {
    const auto thread = std::this_thread::get_id();
    for (Call** link = &active->last; *link;)
        if ((*link)->thread == thread)
            link = &(*link)->outer;
        else
            *link = (*link)->outer;
    active->first = nullptr;
    active->waiting = 0;
    new (&active->mutex) std::mutex;
    new (&active->changed) std::condition_variable;
}

}  // namespace mg
