// Variables of mpirun, of PMIx and of Slurm.
#include "parallel/launcher.h"

#include <cstdlib>
#include <cstring>

namespace shiftron {
namespace {

// Whether srun has started this process, or a shell before it (`srun --pty bash`), as the only task of a step.
bool is_alone_in_its_step() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && tasks != nullptr && std::strcmp(tasks, "1") == 0;
}

}  // namespace

bool is_on_one_host() {
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  const char* const here = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (ranks != nullptr) return here != nullptr && std::strcmp(ranks, here) == 0;
  return is_started_alone();
}

bool is_started_alone() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr) return false;
  return is_alone_in_its_step() || (std::getenv("PMIX_RANK") == nullptr && std::getenv("PMI_RANK") == nullptr);
}

}  // namespace shiftron
