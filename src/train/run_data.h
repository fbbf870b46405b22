// RunData: what a run reads, opened and checked on every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "core/log.h"
#include "data/loader.h"
#include "parallel/control_plane.h"
#include "parallel/layout.h"

namespace shiftron {

class RunData {
 public:
  // Opens data.train and, if evaluations use it, data.validation. `around_read` is called around each read of a file.
  // Every rank of `world` calls it; if it fails on one rank, all of them throw. Throws Error(bad_input): data is
  // missing or damaged, has more tokens than the model, differs between ranks, or was built with different tokenizers.
  RunData(const RunConfig& config, const ParallelLayout& layout, ControlPlane& world, const AroundRead& around_read);

  Loader& train() { return *train_; }
  const Loader& train() const { return *train_; }
  // Null if no evaluation uses it.
  Loader* validation() { return validation_ ? &*validation_ : nullptr; }
  // Of data.validation, or what keep_validation_fingerprint() was given; "": neither exists.
  const std::string& validation_fingerprint() const { return validation_fingerprint_; }

  // `saved`: the fingerprint that a checkpoint has. It is kept if this start has no validation data. Returns whether
  // held-out losses before and after the checkpoint come from different data.
  bool keep_validation_fingerprint(const std::string& saved);

  // Warns of validation data that is not used, or is learned too. For rank 0.
  void warn_of_validation(Log& log) const;

 private:
  void check_vocabulary() const;

  const RunConfig& config_;
  std::optional<Loader> train_, validation_;
  std::string validation_fingerprint_;
};

}  // namespace shiftron
