// The thread pool: one job at a time, its chunks claimed from one atomic counter per place.
//
// The caller and every worker have a place, 0 for the caller, and begin with the span of neighboring chunks that
// belongs to it, the same one in every job: what was written in one operation is read in the next from the same cache.
// Then they help with the spans of the others.
//
// A worker may touch the job only between joining and leaving it, and it can join only while the gate
// is open. The caller closes the gate once all chunks are claimed and then waits for the workers inside:
// a worker that wakes too late finds the gate closed, and nobody waits for it.
//
// All state is static and trivially destructible and the workers are detached, so that a process may
// exit at any time. After a fork the child has no workers and starts its own when it needs them.
#include "pool.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>

#include "platform.hpp"

namespace mg {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<uint32_t>;

// An idle worker watches for the next operation of a training step for this long before it sleeps: waking
// a sleeper can cost tens of microseconds. After SPIN it yields its core to any thread that wants it, such as another
// library's worker. If it does not get the core back within TAKEN, another thread uses it, and the worker goes to
// sleep: a thread that is woken gets a free core or usually runs first, unlike one that waits for its turn.
//
// A thread that spins without yielding, as idle workers of OpenBLAS do for tens of milliseconds, takes the core of
// one that yields for HELD or longer. For CROWDED after that, no thread of the pool yields: a thread that waits keeps
// its core for SPIN_CROWDED and then sleeps. Each new detection can cost a whole tick of Linux, 4 ms or more.
//
// Linux shares the core fairly between the two threads, although one of them only spins: a woken worker that has used
// more than its share does not get to run. So while it is crowded, there are SHIFTS workers for each place, which queue
// for the jobs. Linux wakes the one that has slept the longest, which has little to make up for; if even that one does
// not get to run, it still counts as asleep, and the next job wakes another.
//
// A second thread can also cost more than it gains. Every LOOK jobs, the caller looks for two reasons:
// - Other processes take the cores. If threads had to leave their cores often, and the process got few cores for its
//   threads, a job is divided among no more threads than that: on a machine full of processes, each computes alone.
// - The cores share no cache, and what one has written is far from the other; the cores of a virtual machine may move
//   from one moment to the next. If an eighth of the workers that watch for a job see it later than FAR_AWAY (almost
//   none do where cores are near), and jobs are small, none is divided: mlp256_b8 then takes up to 1.4 times as long
//   with two threads as with one, and otherwise 0.7 times; gpt_b1 takes 0.65 times in both cases. So if fewer jobs per
//   second were done in that pause than before it, all threads are kept for as long as the longest pause.
// After a pause all threads are tried again; while that shows the same, the pause doubles.
constexpr auto SPIN = std::chrono::microseconds(5), YIELD = std::chrono::microseconds(200);
constexpr auto TAKEN = std::chrono::microseconds(3);
constexpr auto SPIN_CROWDED = std::chrono::microseconds(30);
constexpr auto HELD = std::chrono::microseconds(500);
constexpr auto CROWDED = std::chrono::milliseconds(500);
constexpr int LOOK = 32;
constexpr double SHORTEST_LOOK = 0.01, LEAVES_PER_SECOND = 100, GOT = 0.75;  // seconds; a part of the threads
constexpr auto FAR_AWAY = std::chrono::nanoseconds(350);
constexpr double SMALL_JOB = 66e-6;  // seconds from one job to the next
constexpr auto PAUSE = std::chrono::milliseconds(50), LONGEST_PAUSE = std::chrono::milliseconds(1600);
#ifdef __linux__
constexpr int SHIFTS = 4;
#else
constexpr int SHIFTS = 1;  // no queue: all are woken
#endif

struct alignas(64) Span {
    std::atomic<int64_t> next{0};  // the first element that nobody has claimed
    int64_t end = 0;
};
constexpr int SPANS = 64;  // if there are more places, they share spans

constexpr uint32_t OPEN = 1u << 31, CALLER_SLEEPS = 1u << 30, INSIDE = CALLER_SLEEPS - 1;

struct alignas(64) Job {
    Word gate{0};               // OPEN | CALLER_SLEEPS | number of workers inside
    std::atomic<int> core{-1};  // the caller's
    int places = 0, spans = 0;  // places in addition to the caller's; spans of chunks
    int64_t grain = 0;
    Clock::time_point posted{};  // if it is to be measured how late the workers see it
    void (*body)(void*, int64_t, int64_t) = nullptr;
    void* context = nullptr;
    Span span[SPANS];
} job;

struct alignas(64) Signal {
    Word jobs{0};  // counts the jobs; idle workers watch it
    std::atomic<int> sleeping{0};
} signals;

alignas(64) std::atomic<bool> busy{false};  // a caller owns the pool
std::atomic<int> limit{0};                  // threads in use; 0: not yet known

std::atomic<int> started{0};     // workers
std::atomic<int> in_use{0};      // workers numbered from here on stay out
std::atomic<int> most{INT_MAX};  // how many the system allowed when it refused one; retried after set_threads

std::atomic<Clock::time_point> crowded_until{};  // by a thread that spins

struct Pause {  // in which not all threads are used; set by the owner of the pool
    std::atomic<Clock::time_point> until{};
    Clock::duration length{};

    bool lasts() const {
        const auto end = until.load(std::memory_order_relaxed);
        return end != Clock::time_point{} && Clock::now() < end;
    }
    void begin(Clock::time_point now) {
        const bool again = now < until.load(std::memory_order_relaxed) + 2 * PAUSE;
        length = again ? std::min<Clock::duration>(2 * length, LONGEST_PAUSE) : PAUSE;
        until.store(now + length, std::memory_order_relaxed);
    }
} others, distance;                         // for these two reasons
std::atomic<int> share{1};                  // the threads in use while `others` lasts
std::atomic<int> alone{0};                  // jobs in the last pause for `distance`
std::atomic<int> measured{0}, too_late{0};  // workers that watched for a job, and those that saw it later than FAR_AWAY

struct Look : Usage {  // when the owner of the pool looked last
    int jobs = 0;      // since then
    Clock::time_point time{};
    double rate = 0;           // jobs per second before the last pause for `distance`
    Clock::time_point keep{};  // all threads until then
} last;

// Waits until done() is true; false if it is time to sleep.
template <class Done>
bool spin(Done done) {
    const auto start = Clock::now();
    const bool crowded = start < crowded_until.load(std::memory_order_relaxed);
    auto now = start, before = start;
    for (; now < start + (crowded ? SPIN_CROWDED : SPIN); now = Clock::now())
        for (int i = 0; i < 16; i++) {
            if (done()) return true;
            pause();
        }
    if (crowded) return false;
    do {
        if (done()) return true;
        yield_core();
        before = now;
        now = Clock::now();
    } while (now < start + YIELD && now < before + TAKEN);
    if (now >= before + HELD) crowded_until.store(now + CROWDED, std::memory_order_relaxed);
    return done();
}

// A worker that wakes on its caller's core has displaced the caller and is of no use there. If every other core is
// busy, even with a thread that only spins, Linux wakes it there again and again. So it excludes that core.
void leave_core_of_caller() {
    const int core = current_core();
    if (core >= 0 && core == job.core.load(std::memory_order_relaxed) &&
        job.gate.load(std::memory_order_relaxed) & OPEN)
        avoid_core(core);
}

void run_chunks(int place) {
    const int64_t grain = job.grain;
    for (int i = 0; i < job.spans; i++) {
        Span& span = job.span[(place + i) % job.spans];
        for (;;) {
            const int64_t begin = span.next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= span.end) break;
            job.body(job.context, begin, std::min(begin + grain, span.end));
        }
    }
}

bool join() {
    uint32_t gate = job.gate.load(std::memory_order_relaxed);
    while (gate & OPEN)
        if (job.gate.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire, std::memory_order_relaxed))
            return true;
    return false;
}

void leave() {
    if (job.gate.fetch_sub(1, std::memory_order_release) == (CALLER_SLEEPS | 1)) wake(job.gate, 1);
}

// Sleeps until the word changes. The count of sleepers and the words are sequentially consistent: either
// the thread that changes a word sees the sleeper, or the sleeper sees the change.
template <class T>
void sleep_while(std::atomic<T>& word, T old) {
    signals.sleeping.fetch_add(1);
    while (word.load() == old) wait_for_change(word, old);
    signals.sleeping.fetch_sub(1);
}

// The loop of a worker, numbered from 0
void work(intptr_t number) {
    uint32_t seen = signals.jobs.load();
    sleep_while(signals.jobs, seen);
    for (Clock::time_point began{};;) {  // to watch
        seen = signals.jobs.load(std::memory_order_acquire);
        leave_core_of_caller();
        if (join()) {
            if (job.posted > began && job.posted < began + SPIN) {  // it watched without yielding
                too_late.fetch_add(Clock::now() > job.posted + FAR_AWAY, std::memory_order_relaxed);
                measured.fetch_add(1, std::memory_order_relaxed);
            }
            run_chunks(1 + int(number % job.places));
            leave();
        }
        for (int count = in_use.load(); number >= count; count = in_use.load()) sleep_while(in_use, count);
        began = Clock::now();
        if (!spin([&] { return signals.jobs.load(std::memory_order_acquire) != seen; }))
            sleep_while(signals.jobs, seen);
    }
}

void look() {
    Usage usage = last;  // as before, where the system does not say
    const auto now = Clock::now();
    const double passed = std::chrono::duration<double>(now - last.time).count();
    if (passed < SHORTEST_LOOK) return;
    read_usage(usage);
    const double got = (usage.seconds - last.seconds) / passed;
    if (double(usage.left - last.left) > LEAVES_PER_SECOND * passed && got < GOT * threads() &&
        last.time > others.until.load(std::memory_order_relaxed)) {  // not what happened during a pause
        share.store(std::max(1, int(got + 0.5)), std::memory_order_relaxed);
        others.begin(now);
    }
    const int count = measured.exchange(0, std::memory_order_relaxed);
    const int late = too_late.exchange(0, std::memory_order_relaxed);
    if (last.time <= distance.until.load(std::memory_order_relaxed)) {
        if (alone.exchange(0, std::memory_order_relaxed) <
            last.rate * std::chrono::duration<double>(distance.length).count())
            last.keep = now + LONGEST_PAUSE;
    } else if (late > 2 && 8 * late > count && passed < SMALL_JOB * last.jobs && now > last.keep) {
        last.rate = last.jobs / passed;
        distance.begin(now);
    }
    static_cast<Usage&>(last) = usage;
    last.jobs = 0;
    last.time = now;
}

int workers_for(int places) {
    const auto until = crowded_until.load(std::memory_order_relaxed);
    const bool crowded = until != Clock::time_point{} && Clock::now() < until;
    const int64_t queue = crowded ? std::min<int64_t>(int64_t{places} * SHIFTS, SPANS) : 0;
    return int(std::min<int64_t>(most.load(std::memory_order_relaxed), std::max<int64_t>(places, queue)));
}

void start_workers(int count) {
    for (int number = started; number < count; number++) {
        if (!start_thread<work>(number)) {
            most = number;
            break;
        }
        started = number + 1;
    }
    // A new thread shares our core until the system balances the load, tens of milliseconds later. It begins
    // by sleeping, and one that wakes gets an idle core: give each a chance to fall asleep.
    for (int i = 0; i < 100 && signals.sleeping.load() < started; i++) yield_core();
}

void reset_after_fork() {
    job.gate = 0;
    signals.sleeping = 0;
    started = in_use = 0;
    most = INT_MAX;
    crowded_until = others.until = distance.until = Clock::time_point{};
    busy = false;
}

int default_threads() {
    for (const char* name : {"MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS"})
        if (const char* value = std::getenv(name))
            if (const long count = std::strtol(value, nullptr, 10); count > 0)
                return int(std::min<long>(count, MAX_THREADS));
    return count_cores();
}

}  // namespace

int threads() {
    int count = limit.load(std::memory_order_relaxed);
    if (count == 0) {
        const int wanted = default_threads();
        if (limit.compare_exchange_strong(count, wanted)) {
            after_fork(reset_after_fork);
            count = wanted;
        }
    }
    return count;
}

void set_threads(int count) {
    threads();  // registers the fork handler
    limit = std::max(1, count);
    most = INT_MAX;
    others.until = distance.until = Clock::time_point{};
}

void parallel_for(int64_t n, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end), void* context) {
    const int64_t chunks = (n + grain - 1) / grain;
    int places = threads() - 1;
    if (others.lasts()) places = std::min(places, share.load(std::memory_order_relaxed) - 1);
    if (places > 0 && chunks > 1 && distance.lasts()) {
        alone.fetch_add(1, std::memory_order_relaxed);
        places = 0;
    }
    const int wanted = int(std::min<int64_t>(places, chunks - 1));
    if (wanted < 1 || busy.exchange(true, std::memory_order_acquire)) {
        for (int64_t begin = 0; begin < n; begin += grain) body(context, begin, std::min(begin + grain, n));
        return;
    }
    if (++last.jobs >= LOOK) look();
    if (const int count = workers_for(places); count != in_use.load(std::memory_order_relaxed)) {
        in_use = count;
        if (started < count) start_workers(count);
        wake(in_use, INT_MAX);
    }
    job.core.store(current_core(), std::memory_order_relaxed);
    job.places = places;
    job.spans = std::min(wanted + 1, SPANS);
    for (int i = 0; i < job.spans; i++) {
        job.span[i].next.store(chunks * i / job.spans * grain, std::memory_order_relaxed);
        job.span[i].end = std::min(chunks * (i + 1) / job.spans * grain, n);
    }
    job.grain = grain;
    job.body = body;
    job.context = context;
    job.posted = last.jobs % 4 == 0 ? Clock::now() : Clock::time_point{};
    job.gate.store(OPEN, std::memory_order_release);
    signals.jobs.fetch_add(1);
    const int awake = started - signals.sleeping.load();
    if (awake < wanted) wake(signals.jobs, wanted - awake);

    run_chunks(0);

    const auto empty = [] { return (job.gate.load(std::memory_order_acquire) & INSIDE) == 0; };
    job.gate.fetch_and(~OPEN, std::memory_order_relaxed);
    if (!empty() && !spin(empty)) {
        for (uint32_t gate = job.gate.fetch_or(CALLER_SLEEPS) | CALLER_SLEEPS; gate & INSIDE; gate = job.gate.load())
            wait_for_change(job.gate, gate);
        (void)job.gate.load(std::memory_order_acquire);
    }
    busy.store(false, std::memory_order_release);
}

}  // namespace mg
