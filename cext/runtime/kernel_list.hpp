// The list of the kernels that a captured step starts, from which a replay starts them again without Python.
//
// `launch` adds each kernel of the CPU, and device.hpp each kernel of a GPU, with its arguments by value. The GIL
// protects everything here except `run`. engine/recording.pyx captures and replays steps.
#pragma once

#include <Python.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "active_calls.hpp"

namespace mg {

struct KernelList {
    struct Start {
        void (*run)(const void* closure);
        const void* closure;  // the kernel and its arguments
    };
    struct About {
        PyObject* op;  // the operation's record or name; null if it has none
        int64_t work;  // elements touched; on a GPU, the threads of a kernel
        int device;    // 0: CPU, 1 + i: cuda:i
        bool backward;
    };

    std::thread::id thread = std::this_thread::get_id();
    bool paused = false;
    std::vector<Start> starts;
    std::vector<About> about;            // one for each start
    std::vector<uintptr_t> addresses;    // every word of an argument, sizes included
    std::map<int, const void*> streams;  // by device
    std::set<int> with_products;         // devices on which cuBLAS computes

    KernelList() = default;
    KernelList(const KernelList&) = delete;
    ~KernelList() {
        for (const About& one : about) Py_XDECREF(one.op);
    }

    template <class Kernel, class... Arguments>
    void add(int64_t work, Kernel kernel, const Arguments&... arguments) {
        using Closure = std::tuple<Kernel, Arguments...>;
        static_assert(std::is_trivially_destructible_v<Closure>);
        const auto run = [](const void* closure) {
            std::apply([](const Kernel& k, const Arguments&... a) { k(a...); }, *static_cast<const Closure*>(closure));
        };
        append(0, work, run, new (allocate(sizeof(Closure))) Closure{kernel, arguments...});
        (note(arguments), ...);
    }

    void append(int device, int64_t work, void (*run)(const void* closure), const void* closure) {
        const Call* call = current_call(*active);
        starts.push_back({run, closure});
        about.push_back({call ? call->op : nullptr, work, device, call && call->backward});
        Py_XINCREF(about.back().op);
    }

    void sort_addresses() {
        std::sort(addresses.begin(), addresses.end());
        addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    }

    void run(size_t begin, size_t end) const {
        for (size_t i = begin; i < end; i++) starts[i].run(starts[i].closure);
    }

    // The stream of a GPU on which the step does all its work: the one given first.
    const void* keep_stream(int device, const void* stream) {
        return streams.try_emplace(device, stream).first->second;
    }

    // Memory for a closure.
    void* allocate(size_t bytes) {
        bytes = (bytes + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
        if (used + bytes > PIECE) {
            pieces.push_back(std::make_unique<char[]>(std::max(bytes, PIECE)));
            used = 0;
        }
        used += bytes;
        return pieces.back().get() + used - bytes;
    }

    // Notes the addresses in an argument.
    template <class T>
    void note(const T& argument) {
        static_assert(std::is_trivially_copyable_v<T>);
        uintptr_t word;
        for (size_t at = 0; at + sizeof word <= sizeof argument; at += sizeof word) {
            std::memcpy(&word, reinterpret_cast<const char*>(&argument) + at, sizeof word);
            if (word > 4096) addresses.push_back(word);
        }
    }

  private:
    static constexpr size_t PIECE = 1 << 16;
    std::vector<std::unique_ptr<char[]>> pieces;
    size_t used = PIECE;
};

inline bool belongs_here(const KernelList& list) { return list.thread == std::this_thread::get_id(); }

// The list to which the kernels of this thread are added, or null.
inline KernelList* kernel_list_here(const ActiveCalls& calls) {
    KernelList* list = calls.kernel_list;
    return list && !list->paused && belongs_here(*list) ? list : nullptr;
}

}  // namespace mg
