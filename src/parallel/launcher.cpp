// Variables of mpirun, of PMIx and of Slurm.
#include "parallel/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "parallel/agree.h"

namespace shiftron {
namespace {

// Whether srun started this process, or the shell that started it (`srun --pty bash`), as the only task of a step.
bool is_only_task_of_step() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && tasks != nullptr && std::strcmp(tasks, "1") == 0;
}

bool speaks_pmi() {
  return std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr;
}

// A whole number from the environment.
std::optional<int64_t> stated(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int64_t value = 0;
  const char* const end = text + std::strlen(text);
  const auto [after, error] = std::from_chars(text, end, value);
  if (error != std::errc() || after != end || text == end) return std::nullopt;
  return value;
}

// Shells of batch scripts and of salloc also have steps, numbered from 2^32 - 16 on.
bool is_in_a_step() {
  constexpr int64_t kReserved = (int64_t{1} << 32) - 16;
  const std::optional<int64_t> step = stated("SLURM_STEP_ID");
  return step && *step < kReserved;
}

// A launcher's variables: the number of its processes, and the rank of this one.
struct TaskVariables {
  const char* count;
  const char* rank;
};

void take(const TaskVariables& variables, LaunchedTasks& launched) {
  constexpr int64_t kMost = 1 << 30;
  const int64_t rank = std::clamp<int64_t>(stated(variables.rank).value_or(0), 0, kMost);
  const int64_t count = std::clamp<int64_t>(stated(variables.count).value_or(0), 0, kMost);
  if (std::max(count, rank + 1) <= launched.count) return;
  const char* const source = count > rank ? variables.count : variables.rank;
  launched = {.count = static_cast<int>(std::max(count, rank + 1)),
              .rank = static_cast<int>(rank),
              .source = std::string(source) + "=" + std::getenv(source)};
}

}  // namespace

LaunchedTasks launched_tasks() {
  LaunchedTasks launched;
  constexpr TaskVariables kOwn = {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"};
  if (stated(kOwn.count)) {
    take(kOwn, launched);
    return launched;
  }
  if (is_in_a_step()) take({"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}, launched);
  for (const TaskVariables& variables : {TaskVariables{"PMI_SIZE", "PMI_RANK"},
                                         {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                         {"JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"},
                                         {"FLUX_JOB_SIZE", "FLUX_TASK_RANK"},
                                         {"", "PMIX_RANK"}}) {  // PMIx states no count
    take(variables, launched);
  }
  return launched;
}

void require_all_tasks(const LaunchedTasks& launched, int ranks) {
  if (launched.count <= ranks) return;
  if (launched.rank != 0) end_without_report(ExitCode::bad_input);
  throw_bad_input("the launcher started ", launched.count, " processes (", launched.source, "), but MPI sees only ",
                  ranks,
                  ": the launcher does not support this program's MPI, and each process would do all the work alone; "
                  "start them with the launcher of the MPI that the program was built with, or with srun --mpi=pmix; "
                  "for a single process: mpirun -n 1");
}

bool is_on_one_host() {
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (ranks != nullptr) return here != nullptr && std::strcmp(ranks, here) == 0;
  return is_started_without_launcher();
}

bool is_started_without_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return false;
  return is_only_task_of_step() || !speaks_pmi();
}

}  // namespace shiftron
