// oneDNN computes in our team of threads: the functions of GNU OpenMP that it calls are defined here, before libgomp's.
// A pool of libgomp's own next to the team would leave two threads for every processor.
#include "kernels/matrix.h"
#include "kernels/thread_team.h"
#ifndef SHIFTRON_TEAM_FOR_ONEDNN
#include <omp.h>
#endif

namespace shiftron::fast {

#ifdef SHIFTRON_TEAM_FOR_ONEDNN
namespace {
thread_local int library_threads = 1;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
}

LibraryThreads::LibraryThreads(int threads) : before_(library_threads) {
  library_threads = threads;
}
LibraryThreads::~LibraryThreads() {
  library_threads = before_;
}
#else
LibraryThreads::LibraryThreads(int threads) : before_(omp_get_max_threads()) {
  omp_set_dynamic(0);
  omp_set_num_threads(threads);
}
LibraryThreads::~LibraryThreads() {
  omp_set_num_threads(before_);
}
#endif

}  // namespace shiftron::fast

#ifdef SHIFTRON_TEAM_FOR_ONEDNN
// https://gcc.gnu.org/onlinedocs/libgomp/ ("The libgomp ABI") and OpenMP 5.0, section 3.2.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned /*flags*/) {
  const int wanted = threads > 0 ? static_cast<int>(threads) : shiftron::fast::library_threads;
  shiftron::in_team(wanted, [&](int, int) { body(data); });
}
void GOMP_barrier() {
  shiftron::wait_for_team();
}
int omp_get_max_threads() {
  return shiftron::fast::library_threads;
}
int omp_get_num_threads() {
  return shiftron::place_in_team().threads;
}
int omp_get_thread_num() {
  return shiftron::place_in_team().thread;
}
int omp_in_parallel() {
  return shiftron::place_in_team().in_team ? 1 : 0;
}
// NOLINTEND(readability-identifier-naming)
}
#endif
