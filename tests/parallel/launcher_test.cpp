// What the environment says about other processes of the same job.
#include "parallel/launcher.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/check.h"

namespace shiftron {
namespace {

using Variables = std::map<std::string, std::string>;

// What launched_tasks() says where a launcher has set these, and no others.
LaunchedTasks launched_with(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS",
                           "SLURM_PROCID", "SLURM_NTASKS", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const LaunchedTasks launched = launched_tasks();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return launched;
}

TEST(LaunchedTasks, AreWhatTheLauncherOfThisProcessSays) {
  const struct {
    Variables variables;
    int count, rank;
    std::string source;
  } cases[] = {
      {{}, 1, 0, ""},
      {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}}, 4, 3, "OMPI_COMM_WORLD_SIZE=4"},
      {{{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}, 4, 2, "PMI_SIZE=4"},
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}}, 4, 1, "SLURM_STEP_NUM_TASKS=4"},
      {{{"MV2_COMM_WORLD_SIZE", "2"}}, 2, 0, "MV2_COMM_WORLD_SIZE=2"},
      {{{"JSM_NAMESPACE_SIZE", "6"}, {"JSM_NAMESPACE_RANK", "5"}}, 6, 5, "JSM_NAMESPACE_SIZE=6"},
      {{{"FLUX_JOB_SIZE", "3"}, {"FLUX_TASK_RANK", "0"}}, 3, 0, "FLUX_JOB_SIZE=3"},
      {{{"PMIX_RANK", "2"}}, 3, 2, "PMIX_RANK=2"},  // at least these
      // Another MPI's mpirun in a shell of one task.
      {{{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "4"}}, 4, 0, "PMI_SIZE=4"},
      // Open MPI's in a task of several, and in the daemons that it starts by srun.
      {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}},
       2,
       0,
       "OMPI_COMM_WORLD_SIZE=2"},
      {{{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMI_SIZE", "8"}, {"PMI_RANK", "7"}}, 1, 0, ""},
      // A shell of one task; of a batch script; of salloc; without a step; what is no number.
      {{{"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "4"}}, 1, 0, ""},
      {{{"SLURM_STEP_ID", "4294967291"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 1, 0, ""},
      {{{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 1, 0, ""},
      {{{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 1, 0, ""},
      {{{"PMI_SIZE", "many"}, {"PMI_RANK", ""}}, 1, 0, ""},
  };
  for (const auto& one : cases) {
    const LaunchedTasks launched = launched_with(one.variables);
    const std::string what = one.variables.empty() ? "nothing" : one.variables.begin()->first;
    EXPECT_EQ(launched.count, one.count) << what;
    EXPECT_EQ(launched.rank, one.rank) << what;
    EXPECT_EQ(launched.source, one.source) << what;
  }
}

TEST(AllTasks, FewerRanksThanProcessesAreRefusedAndTheFirstProcessReports) {
  EXPECT_NO_THROW(require_all_tasks({}, 1));
  EXPECT_NO_THROW(require_all_tasks({.count = 4, .rank = 3, .source = "PMI_SIZE=4"}, 4));
  EXPECT_NO_THROW(require_all_tasks({.count = 3, .rank = 2, .source = "PMIX_RANK=2"}, 4));
  for (const int rank : {0, 3}) {
    try {
      require_all_tasks({.count = 4, .rank = rank, .source = "PMI_SIZE=4"}, 1);
      FAIL() << "4 processes and 1 rank pass";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      const std::string text = error.what();
      EXPECT_EQ(text.find("4 processes (PMI_SIZE=4), but MPI sees only 1") != std::string::npos, rank == 0) << text;
      EXPECT_EQ(text.empty(), rank != 0) << text;
    }
  }
}

}  // namespace
}  // namespace shiftron
