// Affinity of this thread by system calls, of the process by OpenMP's places.
#include "kernels/processors.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

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

// 0: the calling thread.
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
  const std::vector<int> found = mask_of_thread(0).processors();  // the system removes those that are not available
  sched_setaffinity(0, before.bytes(), before.set());
  return found;
}

bool bind_process(const std::vector<int>& processors) {
  if (omp_get_num_places() > 0) return false;
  const std::vector<int> before = mask_of_thread(0).processors();
  Mask wanted;
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), wanted.bytes(), wanted.set());
  if (sched_setaffinity(0, wanted.bytes(), wanted.set()) != 0) return false;
  if (mask_of_thread(0).processors() != processors) {  // the system removes those that are not available
    Mask old;
    for (const int processor : before) CPU_SET_S(static_cast<size_t>(processor), old.bytes(), old.set());
    sched_setaffinity(0, old.bytes(), old.set());
    return false;
  }
  std::error_code ended;  // threads may end meanwhile
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ended)) {
    const auto thread = static_cast<pid_t>(std::strtol(task.path().filename().c_str(), nullptr, 10));
    if (mask_of_thread(thread).processors() == before) sched_setaffinity(thread, wanted.bytes(), wanted.set());
  }
  return true;
}

}  // namespace shiftron
