// What a run does and logs before its first step.
#pragma once

#include <string>

#include "config/run_config.h"
#include "core/ledger.h"
#include "core/stream.h"
#include "parallel/layout.h"
#include "train/profile.h"
#include "train/run_data.h"
#include "train/run_environment.h"
#include "train/trainer.h"

namespace shiftron {

// Locks the run's directory and opens its log and events. Every rank calls it. Throws Error(bad_input): it is in use,
// cannot be written, or is not the same directory on every rank.
void open_directory(const RunConfig& config, const RunEnvironment& environment);

// Which ranks run where: logged for the user, and the first line of every start in events.jsonl. Every rank calls it.
void write_start(const RunConfig& config, const RunEnvironment& environment, const ParallelLayout& layout);

// Uses the algorithms of `saved` (a checkpoint's; "": none), otherwise those of an earlier start of this run, otherwise
// times them now. Returns the choice. Every rank calls it.
std::string choose_run_algorithms(const RunConfig& config, const RunEnvironment& environment,
                                  const BatchReader& first_step, Trainer& trainer, const std::string& saved);

struct MeasuredRates {
  MachineRates own;       // of this rank
  double operations = 0;  // rank 0's: GEMM operations per second of all ranks together; NaN: not known
};
// Every rank calls it.
MeasuredRates measure_rates(const RunConfig& config, const RunEnvironment& environment, Trainer& trainer,
                            Stream& stream);

// Logs memory, peak and data. For rank 0.
void announce(const RunConfig& config, const Ledger& ledger, const Loader& data, double peak, Log& log);

}  // namespace shiftron
