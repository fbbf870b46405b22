// Saving: every rank writes its boxes, rank 0 commits them with a manifest; what was saved is never half there.
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
  uint64_t block_bytes = uint64_t{4} << 20;  // hashed together
  int threads = 1;                           // as WriteOptions::threads
  // Rank 0 calls it directly before the step gets its name; what it throws fails the save.
  std::function<void()> before_commit{};
  // Every rank calls it behind the commit, before steps are removed.
  std::function<void()> committed{};
  // Called with the name of every point of the protocol that this rank passes, in order; what it throws fails the save.
  std::function<void(const std::string& point)> at_point{};
};

// Every rank of `world` calls it with its part of the same model. Makes `directory` (RUN/checkpoints) where it is
// missing, writes step-S.tmp, verifies what reads back (out of the system's memory, where it is still there: it tells
// faults on the way there, fsync those of the disk), commits, then applies `keep`. Where the disk has no room
// beside the steps of `keep`, older ones than the newest go first, with a warning. A save that cannot be made (disk
// full, write error, step S there and valid) is told in the result, alike on every rank, and leaves the newest step as
// it was; lost peers throw. Content is taken from rank 0. On meta nothing is written.
SaveResult save_checkpoint(const std::string& directory, const CheckpointContent& content, const ParameterSet& set,
                           ControlPlane& world, const Retention& keep, Log& log, const SaveOptions& options = {});

// What a rank with that part of the model writes, in the order of its file. On meta too.
std::vector<BoxOfTensor> boxes_to_write(const ParameterSet& set);

}  // namespace shiftron
