// The thread pool: two or more threads claim chunks of a range from one atomic counter.
//
// The caller claims chunks too and never waits for a worker that has not started; a worker spins for
// a few microseconds after its last chunk and then sleeps, so that other pools in the process (NumPy's
// BLAS) find the cores free. A second Python thread that calls while the pool is busy runs inline.
#pragma once

#include <cstdint>
#include <type_traits>

namespace mg {

int threads();                // the number of threads in use, the caller included
void set_threads(int count);  // 1 or more

// body(context, begin, end) over [0, n) in chunks of `grain` (the last one shorter). Chunk borders
// depend on n and grain alone, never on the number of threads.
void parallel_for(int64_t n, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end), void* context);

// The same for a callable: parallel(n, grain, [&](int64_t begin, int64_t end) { ... })
template <class Body>
inline void parallel(int64_t n, int64_t grain, Body&& body) {
    if (n <= grain) {
        if (n > 0) body(int64_t{0}, n);
        return;
    }
    using B = Body;
    parallel_for(
        n, grain,
        [](void* b, int64_t begin, int64_t end) { (*static_cast<std::remove_reference_t<B>*>(b))(begin, end); },
        (void*)&body);
}

}  // namespace mg
