// What a command that computes needs of its process: MPI, threads, agreement on the configuration, the last word.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/host.h"
#include "parallel/given_alike.h"
#include "parallel/host_communicator.h"
#include "train/run_config.h"

namespace shiftron::cli {

// Throws one Error(bad_input) with every fault of the configuration and of the names of its tasks.
void require_sound(const RunConfig& config, int ranks, Use use);

// Throws Error(bad_input) unless all ranks are of one build and were given the same `command` with the same options.
// The first exchange of every command under MPI, before it reads or writes. `config`, where the line alone makes it, is
// compared too: every key, and the faults that reading it found.
void require_same_start(ControlPlane& world, const std::string& command, const CommandLine& line,
                        const RunConfig* config = nullptr);

// Every key of the configuration as one thing that a rank was given.
std::vector<GivenValue> given_keys(const RunConfig& config);

// One for each processor that this process may use, where no other does; `wanted` > 0 wins.
int thread_count(int wanted);
// The same of rank `local_rank` of a host where rank i may use `processors[i]`: one that several may use is divided
// among them, and so is the `quota` of processors' time of their control group (0: none). At least 1.
int thread_count(int wanted, const std::vector<std::vector<int>>& processors, int local_rank, int quota = 0);

// Of this rank; `threads` > 0 as in thread_count().
HostShare share_of(const MpiSession& session, int threads);

// Where the ranks of a host, rank i bound to `processors[i]`, leave some of its processors idle: that, and what to
// type; else empty. mpirun without options binds one rank or two to a core each, and the ranks of a second job to the
// same.
std::string binding_warning(const std::vector<std::vector<int>>& processors, size_t processors_of_host);
// Of the ranks of this host where a launcher started them, they compute on its processors, and their number of threads
// is left to thread_count(). A process that no launcher started is bound by its user.
std::string binding_warning(const MpiSession& session, DeviceChoice device, int threads);
// Writes it to stderr, of rank 0: "COMMAND: warning: …".
void warn_of_binding(const MpiSession& session, const std::string& command, DeviceChoice device, int threads);

// A reader that leaves (`| head`, a closed terminal) and a limit of file sizes (`ulimit -f`) are errors of a write and end
// nothing by themselves. For commands whose work is worth more than what they print.
void outlive_failing_writes();

// A library's thread that lacks memory, whose exception nobody can catch, ends the process with the message and the
// code of a command that lacks it, where it would abort.
void end_well_where_threads_lack_memory();

}  // namespace shiftron::cli
