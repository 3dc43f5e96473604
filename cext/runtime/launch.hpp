// The one point where kernels start.
//
// A kernel gets plain pointers and sizes, all by value, so that a captured step can start it again without Python.
// Long kernels release the GIL; for short ones that would cost more than the kernel.
#pragma once

#include <cstring>
#include <type_traits>

#include "active_calls.hpp"
#include "kernel_list.hpp"
#include "types.hpp"

namespace mg {

constexpr int64_t WORTH_RELEASING = 1 << 16;  // elements touched: about ten microseconds of work

// Only the owner of adopted memory knows its extent, so every kernel is assumed to use it.
inline bool lies_in(const void* pointer, const Buffer& buffer) {
    if (buffer.size_class < 0) return buffer.device == 0;
    const auto address = reinterpret_cast<uintptr_t>(pointer), start = reinterpret_cast<uintptr_t>(buffer.data);
    return address >= start && address <= start + static_cast<uintptr_t>(buffer.bytes);
}

// Whether a word of an argument is an address in the buffer. A size that looks like one only delays its release.
template <class T>
bool points_into(const T& argument, const Buffer& buffer) {
    static_assert(std::is_trivially_copyable_v<T>);
    const void* word;
    for (size_t at = 0; at + sizeof word <= sizeof argument; at += sizeof word) {
        std::memcpy(&word, reinterpret_cast<const char*>(&argument) + at, sizeof word);
        if (lies_in(word, buffer)) return true;
    }
    return false;
}

inline bool points_into(const Tensors& list, const Buffer& buffer) {
    for (int64_t i = 0; i < list.count; i++) {
        if (lies_in(list.p[i], buffer) || lies_in(list.g[i], buffer)) return true;
        for (void* const* state : {list.s1, list.s2, list.s3})
            if (state && lies_in(state[i], buffer)) return true;
    }
    return false;
}

template <class Kernel, class... Arguments>
__attribute__((noinline, cold)) void capture(int64_t work, Kernel kernel, const Arguments&... arguments) {
    if (KernelList* list = kernel_list_here(*active)) list->add(work, kernel, arguments...);
}

template <class Kernel, class... Arguments>
__attribute__((always_inline)) inline auto launch(int64_t work, Kernel kernel, Arguments... arguments) {
    if (active->kernel_list) [[unlikely]]
        capture(work, kernel, arguments...);
    if (work < WORTH_RELEASING) return kernel(arguments...);

    const auto uses = [&](const Buffer& buffer) { return (points_into(arguments, buffer) || ...); };
    struct Guard : UnlockedKernel {
        const decltype(uses)& uses_buffer;
        PyThreadState* state;
        explicit Guard(const decltype(uses)& uses) : uses_buffer(uses) {
            next = active->first;
            points_into = [](const UnlockedKernel* self, const Buffer& buffer) {
                return static_cast<const Guard*>(self)->uses_buffer(buffer);
            };
            active->first = this;
            state = PyEval_SaveThread();
        }
        // When the process exits, CPython unwinds the stack of a daemon thread from here (by pthread_exit, before
        // 3.14), which a destructor that must not throw would turn into an abort.
        ~Guard() noexcept(false) {
            PyEval_RestoreThread(state);
            UnlockedKernel** link = &active->first;
            while (*link != this) link = &(*link)->next;
            *link = next;
            for (Buffer* buffer : owned) active->release(buffer);
        }
    } guard(uses);
    return kernel(arguments...);
}

}  // namespace mg
