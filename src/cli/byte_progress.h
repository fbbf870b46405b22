// Progress of bytes that a command reads or writes, shown after two seconds.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "checkpoint/tensor_source.h"
#include "core/progress.h"

namespace shiftron::cli {

class ByteProgress {
 public:
  explicit ByteProgress(std::string label) : label_(std::move(label)) {}
  // The line begins with the first report.
  BytesRead callback() {
    return [this](uint64_t done, uint64_t total) {
      if (!progress_) progress_.emplace(label_, total, "bytes");
      progress_->update(done);
    };
  }
  void finish() { progress_.reset(); }

 private:
  const std::string label_;
  std::optional<Progress> progress_;
};

}  // namespace shiftron::cli
