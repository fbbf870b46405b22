// Affinity of this thread by the system's calls, of the process by OpenMP's places.
#include "kernels/processors.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/check.h"
#include "core/host.h"

namespace shiftron {
namespace {

constexpr int kMostProcessors = 1 << 16;

class Mask {
 public:
  Mask() : words_(kMostProcessors / CPU_SETSIZE) {}
  cpu_set_t* set() { return words_.data(); }
  size_t bytes() const { return words_.size() * sizeof(cpu_set_t); }
  std::vector<int> processors() const {
    std::vector<int> found;
    for (int i = 0; i < kMostProcessors; ++i) {
      if (CPU_ISSET_S(i, bytes(), words_.data())) found.push_back(i);
    }
    return found;
  }

 private:
  std::vector<cpu_set_t> words_;
};

constexpr size_t kLeastStack = size_t{256} << 10;  // the library's machine code takes some 64 KiB

size_t stack_of_thread() {
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return kLeastStack;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return bytes;
}

// While one lives, OpenMP starts threads. What it cannot start it says itself, and calls exit(1).
struct Starting {
  Starting() {
    static const bool registered = std::atexit(&Starting::at_exit) == 0;
    static_cast<void>(registered);
    ++now;
  }
  ~Starting() { --now; }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;
  static void at_exit() {
    constexpr std::string_view kMessage =
        "\nshiftron: no threads for OpenMP, as it says above: raise the limit of threads or of memory (ulimit -u, "
        "ulimit -v, the job's limits), unset OMP_STACKSIZE, GOMP_STACKSIZE and GOMP_CPU_AFFINITY, or set "
        "device.threads=1\n";
    if (now == 0) return;
    if (::write(STDERR_FILENO, kMessage.data(), kMessage.size()) < 0) ::_exit(static_cast<int>(ExitCode::crash));
    ::_exit(static_cast<int>(ExitCode::bad_input));
  }
  static inline std::atomic<int> now = 0;
};

// 0: the calling one.
Mask mask_of_thread(pid_t thread) {
  Mask mask;
  if (sched_getaffinity(thread, mask.bytes(), mask.set()) != 0) CPU_SET_S(0, mask.bytes(), mask.set());
  return mask;
}

}  // namespace

std::vector<int> processors_of_process() {
  std::vector<int> found;
  for (int place = 0; place < omp_get_num_places(); ++place) {  // none unless threads are to be bound
    std::vector<int> here(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, here.data());
    found.insert(found.end(), here.begin(), here.end());
  }
  if (found.empty()) return mask_of_thread(0).processors();
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<int> processors_of_host() {
  Mask before = mask_of_thread(0);
  Mask all;
  for (int i = 0; i < kMostProcessors; ++i) CPU_SET_S(i, all.bytes(), all.set());
  if (sched_setaffinity(0, all.bytes(), all.set()) != 0) return before.processors();
  const std::vector<int> found = mask_of_thread(0).processors();  // the system takes those away that are not to be had
  sched_setaffinity(0, before.bytes(), before.set());
  return found;
}

bool bind_process(const std::vector<int>& processors) {
  if (omp_get_num_places() > 0) return false;
  const std::vector<int> before = mask_of_thread(0).processors();
  Mask wanted;
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), wanted.bytes(), wanted.set());
  if (sched_setaffinity(0, wanted.bytes(), wanted.set()) != 0) return false;
  if (mask_of_thread(0).processors() != processors) {  // the system takes those away that are not to be had
    Mask old;
    for (const int processor : before) CPU_SET_S(static_cast<size_t>(processor), old.bytes(), old.set());
    sched_setaffinity(0, old.bytes(), old.set());
    return false;
  }
  std::error_code ended;  // threads may, meanwhile
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    const auto thread = static_cast<pid_t>(std::strtol(task.path().filename().c_str(), nullptr, 10));
    if (mask_of_thread(thread).processors() == before) sched_setaffinity(thread, wanted.bytes(), wanted.set());
  }
  return true;
}

void start_threads(int threads) {
  if (threads <= 1) return;
  if (const int most = most_threads(); most < threads) {
    throw_bad_input("device.threads=", threads, ", and OpenMP gives this process ", most, " on ", host_name(),
                    ": unset OMP_THREAD_LIMIT and OMP_MAX_ACTIVE_LEVELS, or set device.threads=", most);
  }
  omp_set_dynamic(0);  // or a busy machine would get fewer, now and then
  size_t stack = kLeastStack;
  {
    const Starting starting;
#pragma omp parallel num_threads(threads) reduction(min : stack)
    if (omp_get_thread_num() > 0) stack = stack_of_thread();
  }
  if (stack < kLeastStack) {
    throw_bad_input("OMP_STACKSIZE, GOMP_STACKSIZE or ulimit -s leaves threads ", stack >> 10, " KiB of stack on ",
                    host_name(), "; unset it, or give at least ", kLeastStack >> 10, "k");
  }
}

int most_threads() {
  return omp_get_max_active_levels() < 1 ? 1 : omp_get_thread_limit();
}

}  // namespace shiftron
