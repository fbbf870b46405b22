// Restoring: reads a step that was saved under any layout into the boxes of this one.
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
  // Called by every rank after its reads: sends what each has written of the weights of divided masters to the others.
  // A rank then reads only its own part of them, otherwise all.
  std::function<void()> gather{};
  StepReader::ReadVisitor at_read{};  // every read of a file
  // Rank 0 calls it for every step that cannot be used, newest first.
  std::function<void(int64_t step, const std::string& fault)> rejected{};
};

// Every rank of `world` calls it. Reads the newest step of `directory` that every rank can read without a fault, or
// exactly step `which`; faults are logged. Fills masters, and moments if the set has them. Returns nothing if the
// directory holds no step. Errors, the same on every rank: steps exist but none is valid (no_checkpoint, with the fault
// of each); the step belongs to another model, or `which` does not exist (bad_input).
// A step of parameters alone is accepted if its trainer has applied no update: moments then start at zero, and
// parameters of another type are cast to this one (logged). A step with moments is read in its own type or refused, so
// that a run resumes bit for bit.
std::optional<CheckpointContent> load_checkpoint(const std::string& directory, std::optional<int64_t> which,
                                                 ParameterSet& set, ControlPlane& world, Log& log,
                                                 const RestoreOptions& options = {});

struct LoadOptions {
  bool with_moments = false;
  int threads = 1;                    // that read and hash together
  Log* log = nullptr;                 // receives a line about casts
  StepReader::ReadVisitor at_read{};  // every read of a file
};
// Called by one rank alone, for evaluation under any layout. Throws Error(no_checkpoint) if something is damaged,
// Error(bad_input) if the step belongs to another model. Casts like load_checkpoint().
void load_parameters(const std::string& step_directory, ParameterSet& set, const LoadOptions& options = {});

// Whether training may begin from a step's parameters alone, with moments of zero: only if no update was applied.
bool can_start_without_moments(const std::string& state_json);

// Everything but the tensors. Throws Error(no_checkpoint).
CheckpointContent read_content(const std::string& step_directory);
CheckpointContent read_content(const std::string& step_directory, const Manifest& manifest);  // already read

}  // namespace shiftron
