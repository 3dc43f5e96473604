// What differs between Linux, macOS and Windows: how threads start, sleep and choose cores, libraries, aligned memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <malloc.h>
#include <windows.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mg {

// ---- threads --------------------------------------------------------------------------------------------------------

// Sleeps until somebody calls wake(), unless the word has changed; it may also return without a reason.
template <class T>
void wait_for_change(std::atomic<T>& word, T old) {
#if defined(__linux__)
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
#elif defined(_WIN32)
    WaitOnAddress(&word, &old, sizeof old, INFINITE);
#else
    word.wait(old);
#endif
}

// Wakes at least `count` of those that sleep on the word.
template <class T>
void wake(std::atomic<T>& word, [[maybe_unused]] int count) {
#if defined(__linux__)
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
#elif defined(_WIN32)
    count == 1 ? WakeByAddressSingle(&word) : WakeByAddressAll(&word);
#else
    word.notify_all();
#endif
}

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

#ifdef _WIN32

inline void yield_core() { SwitchToThread(); }

// Starts work(argument) in a thread that nobody joins; false if the system refuses one.
template <void (*work)(intptr_t)>
bool start_thread(intptr_t argument) {
    const auto run = [](void* number) -> DWORD { return work(reinterpret_cast<intptr_t>(number)), 0; };
    const HANDLE thread = CreateThread(nullptr, 0, run, reinterpret_cast<void*>(argument), 0, nullptr);
    return thread && CloseHandle(thread);
}

inline void after_fork(void (*)()) {}  // Windows has no fork

#else

inline void yield_core() { sched_yield(); }

// Starts work(argument) in a thread that nobody joins; false if the system refuses one. It receives no signals, which
// are left to the caller's threads.
template <void (*work)(intptr_t)>
bool start_thread(intptr_t argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const auto run = [](void* number) -> void* { return work(reinterpret_cast<intptr_t>(number)), nullptr; };
    pthread_t thread;
    const bool done = pthread_create(&thread, nullptr, run, reinterpret_cast<void*>(argument)) == 0;
    if (done) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return done;
}

// Calls reset() in every child of a fork.
inline void after_fork(void (*reset)()) { pthread_atfork(nullptr, nullptr, reset); }

#endif

// The core that the calling thread runs on, or -1 where threads are left to the system.
inline int current_core() {
#ifdef __linux__
    return sched_getcpu();
#else
    return -1;
#endif
}

// How many cores the process may use
inline int count_cores() {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
    return std::max(1, int(std::thread::hardware_concurrency()));
}

// Excludes a core from those of the calling thread, unless another program such as taskset has set the cores of the
// thread or of the process since.
inline void avoid_core([[maybe_unused]] int core) {
#ifdef __linux__
    static thread_local cpu_set_t given, chosen;  // the cores that the thread may use, and the ones it has chosen
    cpu_set_t now, others;                        // the thread's cores; the first thread's, which are the process's
    if (sched_getaffinity(0, sizeof now, &now) != 0 || sched_getaffinity(getpid(), sizeof others, &others) != 0) return;
    if (!CPU_EQUAL(&now, &chosen)) given = now;
    CPU_AND(&others, &others, &given);
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0) chosen = others;
#endif
}

struct Usage {           // what the process has used so far
    double seconds = 0;  // processor time on all cores
    int64_t left = 0;    // how often a thread had to leave its core
};

// Sets it, where the system says so
inline void read_usage([[maybe_unused]] Usage& usage) {
#ifndef _WIN32
    rusage found;
    if (getrusage(RUSAGE_SELF, &found) != 0) return;
    const auto seconds = [](const timeval& time) { return double(time.tv_sec) + 1e-6 * double(time.tv_usec); };
    usage = {seconds(found.ru_utime) + seconds(found.ru_stime), found.ru_nivcsw};
#endif
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// A block whose size is a multiple of its alignment, or null. Its first `huge` bytes should cause few page faults.
inline void* allocate_aligned(size_t alignment, size_t bytes, [[maybe_unused]] size_t huge = 0) {
#ifdef _WIN32
    return _aligned_malloc(bytes, alignment);
#else
    void* memory = std::aligned_alloc(alignment, bytes);
#ifdef MADV_HUGEPAGE
    if (memory && huge) madvise(memory, huge, MADV_HUGEPAGE);
#endif
    return memory;
#endif
}

// Lets the system take whole pages back, which lose what they hold and stay usable.
inline void discard_pages(void* start, size_t bytes) {
#if defined(__linux__)
    madvise(start, bytes, MADV_DONTNEED);
#elif defined(_WIN32)
    VirtualAlloc(start, bytes, MEM_RESET, PAGE_READWRITE);
#else
    madvise(start, bytes, MADV_FREE);
#endif
}

inline void free_aligned(void* memory) {
#ifdef _WIN32
    _aligned_free(memory);
#else
    std::free(memory);
#endif
}

// ---- libraries ------------------------------------------------------------------------------------------------------

#ifdef _WIN32

// Opens a library by its path, in UTF-8; null if that fails.
inline void* open_library(const char* path) {
    wchar_t wide[1024];
    if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 1024)) return nullptr;
    return LoadLibraryExW(wide, nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);  // what it needs is beside it
}

// Why open_library(path) failed
inline std::string library_error(const char* path) {
    return std::string(path) + ": error " + std::to_string(GetLastError()) + " of Windows";
}

inline void* find_symbol(void* library, const char* name) {
    return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

// Sets an environment variable, or removes it if the value is null.
inline void set_variable(const char* name, const char* value) { _putenv_s(name, value ? value : ""); }

#else

// Opens a library by its path; null if that fails.
inline void* open_library(const char* path) { return dlopen(path, RTLD_LOCAL | RTLD_NOW); }

// Why open_library(path) failed
inline std::string library_error(const char*) { return dlerror(); }

inline void* find_symbol(void* library, const char* name) { return dlsym(library, name); }

// Sets an environment variable, or removes it if the value is null.
inline void set_variable(const char* name, const char* value) { value ? setenv(name, value, 1) : unsetenv(name); }

#endif

}  // namespace mg
