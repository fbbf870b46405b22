#include "cli/thread_waiting.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace shiftron::cli {
namespace {

// Looks at a flag, each with a pause of 10 to 50 ns, before a thread sleeps: some 30 us. GOMP's own number is 300,000:
// milliseconds, as long as the system lets another program run, whose threads then wait for one that only spins. 0
// costs a sleep and a wake-up, 30 us and more, at the end of nearly every parallel loop, also where nothing else
// computes. benchmarks/two_jobs.py compares numbers.
constexpr const char* kLooksBeforeSleep = "1000";

// They use no threads of OpenMP, and a second start would cost more than they take.
constexpr std::array<std::string_view, 3> kWithoutTeams = {"data", "tokenizer", "status"};

bool has_teams(char** arguments) {
  if (arguments[0] == nullptr || arguments[1] == nullptr || arguments[1][0] == '-') return false;
  return std::find(kWithoutTeams.begin(), kWithoutTeams.end(), std::string_view(arguments[1])) == kWithoutTeams.end();
}

}  // namespace

void make_waiting_threads_sleep(char** arguments) {
  if (!has_teams(arguments)) return;
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (getauxval(AT_BASE) == 0) return;   // started as an argument of the dynamic linker, which would be started again
  std::array<char, PATH_MAX> path = {};  // by its name, which `ps` and `top` then show
  if (::readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) return;
  if (setenv("GOMP_SPINCOUNT", kLooksBeforeSleep, 0) == 0) ::execv(path.data(), arguments);
}

}  // namespace shiftron::cli
