// The thread pool: two or more threads claim chunks of a range, each starting with its own part of the range.
//
// The caller claims chunks too and never waits for a worker that has not started. After its last chunk a
// worker spins for a few microseconds, yields its core for a fifth of a millisecond, so that other pools in
// the process (NumPy's BLAS) find it free, and then sleeps. While other threads spin all the time it does not yield,
// and several workers take turns. Where other processes take the cores, or where cores are too far apart for small
// jobs, fewer threads are used for a while. A second Python thread that calls while the pool is busy, or a body that
// calls again, runs inline. Bodies do not throw.
#pragma once

#include <cstdint>
#include <type_traits>

namespace mg {

constexpr int MAX_THREADS = 1024;

int threads();                // the number of threads in use, the caller included
void set_threads(int count);  // 1 to MAX_THREADS

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

// body(i) for every i < n
template <class Body>
inline void parallel_each(int64_t n, int64_t grain, Body&& body) {
    parallel(n, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; i++) body(i);
    });
}

}  // namespace mg
