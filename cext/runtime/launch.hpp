// The one point where kernels start.
//
// A kernel gets plain pointers and sizes, all by value, so that a started kernel could be noted down and started again
// with no Python around it. Long ones release the GIL; for short ones that would cost more than the kernel.
#pragma once

#include <Python.h>

#include <cstdint>

namespace mg {

constexpr int64_t WORTH_RELEASING = 1 << 16;  // elements touched: about ten microseconds of work

template <class Kernel, class... Arguments>
inline auto launch(int64_t work, Kernel kernel, Arguments... arguments) {
    struct Unlocked {
        PyThreadState* state;
        explicit Unlocked(bool long_running) : state(long_running ? PyEval_SaveThread() : nullptr) {}
        ~Unlocked() {
            if (state) PyEval_RestoreThread(state);
        }
    } unlocked(work >= WORTH_RELEASING);
    return kernel(arguments...);
}

}  // namespace mg
