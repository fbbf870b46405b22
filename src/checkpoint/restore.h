// Restoring: a step saved under any layout is read into the boxes of this one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/reader.h"
#include "core/log.h"
#include "parallel/control_plane.h"
#include "parallel/parameter.h"

namespace shiftron {

struct RestoreOptions {
  int threads = 1;  // that read and hash together
  // Called by every rank behind its reads: sends what each has written of divided masters' weights to the others. A
  // rank then reads that alone of them; else all.
  std::function<void()> gather{};
  StepReader::ReadVisitor at_read{};  // every read of a file
  // Rank 0 calls it for every step that cannot be used, newest first.
  std::function<void(int64_t step, const std::string& fault)> rejected{};
};

// Every rank of `world` calls it. Reads the newest step of `directory` that every rank can read without a fault, or
// exactly step `which`; faults are logged. Fills masters, and moments where the set has them. Nothing: the directory
// holds no step. Errors, alike on every rank: steps are there, none is valid (no_checkpoint, each with its fault); the
// step belongs to another model, or `which` is not there (bad_input).
// A step of parameters alone is taken where its trainer has applied no update: moments then start at zero, and
// parameters of another type are cast to this one (logged). A step with moments is read in its own type or refused: a
// run goes on bit by bit.
std::optional<CheckpointContent> load_checkpoint(const std::string& directory, std::optional<int64_t> which,
                                                 ParameterSet& set, ControlPlane& world, Log& log,
                                                 const RestoreOptions& options = {});

struct LoadOptions {
  bool with_moments = false;
  int threads = 1;                    // that read and hash together
  Log* log = nullptr;                 // is told of casts
  StepReader::ReadVisitor at_read{};  // every read of a file
};
// One rank alone, for evaluation under any layout. Throws Error(no_checkpoint) where something is damaged,
// Error(bad_input) where the step belongs to another model. Casts as load_checkpoint() does.
void load_parameters(const std::string& step_directory, ParameterSet& set, const LoadOptions& options = {});

// Whether training may begin from the parameters of a step alone, with moments of zero: where no update is behind them.
bool may_begin_without_moments(const std::string& state_json);

// Everything but the tensors. Throws Error(no_checkpoint).
CheckpointContent read_content(const std::string& step_directory);
CheckpointContent read_content(const std::string& step_directory, const Manifest& manifest);  // which was read

}  // namespace shiftron
