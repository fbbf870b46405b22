// What a command that computes needs of its process: MPI, threads, agreement on the configuration, how it ends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "config/run_config.h"
#include "config/validate.h"
#include "core/host.h"
#include "parallel/host_communicator.h"
#include "parallel/same_settings.h"

namespace shiftron::cli {

// Throws one Error(bad_input) with every fault of the configuration and of the names of its tasks.
void require_valid(const RunConfig& config, int ranks, Use use);

// Throws Error(bad_input) unless all ranks are of one build and were given the same `command` with the same options. It
// is the first exchange of every command under MPI, before it reads or writes. If the line alone determines `config`,
// that is compared too: every key, and the faults found while reading it.
void require_same_start(ControlPlane& world, const std::string& command, const CommandLine& line,
                        const RunConfig* config = nullptr);

// Every key of the configuration as a value that a rank was given.
std::vector<RankSetting> given_keys(const RunConfig& config);

// `wanted` if it is > 0, otherwise one for each processor that this process may use; assumes that no other uses them.
int thread_count(int wanted);
// The same for rank `local_rank` of a host on which rank i may use `processors[i]`: a processor that several may use is
// divided among them, and so is `quota`, the processors' time of their control group (0: none). At least 1.
int thread_count(int wanted, const std::vector<std::vector<int>>& processors, int local_rank, int quota = 0);

// The share of this rank; `threads` > 0 as in thread_count().
HostShare share_of(const MpiSession& session, int threads);

// If the ranks of a host, rank i bound to `processors[i]`, leave some of its processors idle: a warning that says what
// to type; otherwise empty. mpirun without options binds one or two ranks to a core each, and the ranks of a second job
// to the same cores.
std::string binding_warning(const std::vector<std::vector<int>>& processors, size_t processors_of_host);
// The same for the ranks of this host if a launcher started them, they compute on its processors, and thread_count()
// chooses their number of threads. A process that no launcher started is bound by its user.
std::string binding_warning(const MpiSession& session, DeviceChoice device, int threads);
// Rank 0 writes it to stderr: "COMMAND: warning: …".
void warn_of_binding(const MpiSession& session, const std::string& command, DeviceChoice device, int threads);

// A reader that leaves (`| head`, a closed terminal) or a limit of file sizes (`ulimit -f`) then makes a write fail
// instead of ending the process. For commands whose work is worth more than what they print.
void ignore_write_signals();

// If a library's thread runs out of memory, its exception cannot be caught, and the process would abort. It then ends
// with the message and the exit code of a command that runs out of memory.
void handle_thread_memory_exhaustion();

}  // namespace shiftron::cli
