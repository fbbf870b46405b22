// Saving: every rank writes its boxes, rank 0 commits them with a manifest; a step is saved completely or not at all.
#pragma once

#include <functional>
#include <string>

#include "checkpoint/content.h"
#include "checkpoint/step_files.h"
#include "checkpoint/steps.h"
#include "core/log.h"
#include "parallel/control_plane.h"
#include "parallel/parameter.h"

namespace shiftron {

// The same on every rank.
struct SaveResult {
  bool saved = false;
  std::string reason;     // why not
  std::string directory;  // of the step
  uint64_t bytes = 0;     // of all its files
  double seconds = 0;
};

struct SaveOptions {
  uint64_t block_bytes = uint64_t{4} << 20;  // bytes that are hashed together
  int threads = 1;                           // as WriteOptions::threads
  // Rank 0 calls it directly before the step gets its final name; what it throws fails the save.
  std::function<void()> before_commit{};
  // Every rank calls it after the commit, before steps are removed.
  std::function<void()> committed{};
  // Called with the name of every point of the protocol that this rank passes, in order; what it throws fails the save.
  std::function<void(const std::string& point)> at_point{};
};

// Every rank of `world` calls it with its part of the same model. Makes `directory` (RUN/checkpoints) if it is missing,
// writes step-S.tmp, reads it back and verifies it, commits, then applies `keep`. The read-back may come from the
// system's memory: it finds faults on the way there, and fsync those of the disk. If the disk has no room in addition
// to the steps of `keep`, steps older than the newest are removed first, with a warning. A save that fails (disk full,
// write error, step S exists and is valid) is reported in the result, the same on every rank, and leaves the newest
// step as it was; lost peers throw. Content is taken from rank 0. On meta nothing is written.
SaveResult save_checkpoint(const std::string& directory, const CheckpointContent& content, const ParameterSet& set,
                           ControlPlane& world, const Retention& keep, Log& log, const SaveOptions& options = {});

// What a rank with that part of the model writes, in the order of its file. Works on meta too.
std::vector<BoxOfTensor> boxes_to_write(const ParameterSet& set);

}  // namespace shiftron
