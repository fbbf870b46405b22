#include "kernels/thread_team.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/host.h"
#include "core/thread_without_signals.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shiftron {
namespace {

constexpr size_t kLeastStack = size_t{256} << 10;  // the library's machine code needs about 64 KiB

void pause_processor() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns once the word is no longer `old`. Regions follow each other within microseconds, and a virtual machine may
// take a hundred microseconds to wake a processor, so a thread polls first and sleeps only after twice that time. It
// yields while it polls: if threads outnumber processors, the thread that it waits for can run at once, not only when
// this thread's time slice has ended. It must not poll for milliseconds: Linux charges a thread for each yield, and may
// then let the threads of two jobs alternate by time slices after all (a step of two small jobs at once: 2.2 to 3.9
// times one alone with 5 ms, 1.9 to 3.2 times with 0.2 ms).
void wait_while(std::atomic<int>& word, int old) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLooks = 32, kYieldsPerClock = 64;  // 32 looks take about a microsecond
  constexpr std::chrono::microseconds kAwake{200};
  Clock::time_point asleep{};
  for (int yields = 0;; ++yields) {
    for (int look = 0; look < kLooks; ++look) {
      if (word.load(std::memory_order_acquire) != old) return;
      pause_processor();
    }
    if (yields % kYieldsPerClock == 0) {
      const Clock::time_point now = Clock::now();
      if (yields == 0) asleep = now + kAwake;
      if (now >= asleep) break;
    }
    sched_yield();
  }
  word.wait(old, std::memory_order_acquire);
}

thread_local TeamPlace here;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

size_t stack_of_thread() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return kLeastStack;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

// If OMP_PROC_BIND has bound the program's first thread, helpers would inherit its processor, so each takes its own
// place.
void take_place(int thread) {
  const int places = omp_get_num_places();
  if (places == 0) return;
  const int place = thread % places;
  std::vector<int> processors(static_cast<size_t>(omp_get_place_num_procs(place)));
  omp_get_place_proc_ids(place, processors.data());
  if (processors.empty()) return;
  const auto count = static_cast<size_t>(*std::max_element(processors.begin(), processors.end())) + 1;
  std::vector<cpu_set_t> mask((count + CPU_SETSIZE - 1) / CPU_SETSIZE);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), bytes, mask.data());
  sched_setaffinity(0, bytes, mask.data());
}

class Team {
 public:
  Team() = default;
  ~Team() {
    call_ = nullptr;
    begin_round();
    for (std::thread& helper : helpers_) helper.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void run(int threads, TeamBody call, const void* body) {
    while (static_cast<int>(helpers_.size()) + 1 < threads) add_helper();
    call_ = call;
    body_ = body;
    threads_ = threads;
    left_.store(static_cast<int>(helpers_.size()), std::memory_order_relaxed);
    begin_round();
    work(0);
    for (int left; (left = left_.load(std::memory_order_acquire)) > 0;) wait_while(left_, left);
  }

  void barrier() {
    const int round = barrier_round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < threads_) return wait_while(barrier_round_, round);
    arrived_.store(0, std::memory_order_relaxed);
    barrier_round_.fetch_add(1, std::memory_order_acq_rel);
    barrier_round_.notify_all();
  }

 private:
  void begin_round() {
    round_.fetch_add(1, std::memory_order_acq_rel);
    round_.notify_all();
  }

  void work(int thread) noexcept {
    const TeamPlace before = here;
    Team* const outer = current;
    here = {thread, threads_, true};
    current = this;
    call_(body_, thread, threads_);
    current = outer;
    here = before;
  }

  void add_helper() {
    const int thread = static_cast<int>(helpers_.size()) + 1;
    helpers_.push_back(thread_without_signals([this, thread, round = round_.load(std::memory_order_relaxed)]() mutable {
      take_place(thread);
      for (;;) {
        wait_while(round_, round);
        ++round;  // the next round starts only after this thread has finished this one
        if (call_ == nullptr) return;
        if (thread < threads_) work(thread);
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_all();
      }
    }));
  }

  static constexpr size_t kLine = 64;
  std::vector<std::thread> helpers_;
  TeamBody call_ = nullptr;  // of the current round; nullptr: helpers end
  const void* body_ = nullptr;
  int threads_ = 1;
  alignas(kLine) std::atomic<int> round_ = 0;  // counts runs; may wrap
  alignas(kLine) std::atomic<int> left_ = 0;   // helpers that have not finished the round
  alignas(kLine) std::atomic<int> arrived_ = 0;
  alignas(kLine) std::atomic<int> barrier_round_ = 0;

 public:
  static thread_local Team* current;  // the calling thread's current team
};

thread_local Team* Team::current = nullptr;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

}  // namespace

TeamPlace place_in_team() {
  return here;
}

void run_in_team(int threads, TeamBody call, const void* body) {
  if (threads > 1 && !here.in_team) {
    thread_local Team team;
    return team.run(threads, call, body);
  }
  const TeamPlace before = here;
  here = {0, 1, true};
  call(body, 0, 1);
  here = before;
}

void wait_for_team() {
  if (here.threads > 1) Team::current->barrier();
}

void start_threads(int threads) {
  std::atomic<size_t> stack = kLeastStack;
  in_team(threads, [&](int thread, int) {
    const size_t found = thread == 0 ? kLeastStack : stack_of_thread();
    for (size_t least = stack; found < least && !stack.compare_exchange_weak(least, found);) {
    }
  });
  if (stack < kLeastStack) {
    throw_bad_input("threads on ", host_name(), " have ", stack >> 10, " KiB of stack, but need at least ",
                    kLeastStack >> 10, "; raise the limit (ulimit -s ", kLeastStack >> 10, ")");
  }
}

}  // namespace shiftron
