// Checks a whole dataset: every hash, every token, every document boundary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/progress.h"

namespace shiftron {

struct VerifyResult {
  int64_t shards = 0;
  int64_t tokens = 0;
  int64_t documents = 0;
  std::vector<std::string> faults;  // each names file, place and what to do; empty = the dataset is intact
  std::vector<std::string> notes;   // what could not be checked, and why
};

// Reads everything once. Faults of shards are collected, not thrown; faults of dataset.json and a damaged
// tokenizer.model, without which nothing can be checked, throw Error(bad_input). `output` is where progress goes.
VerifyResult verify_dataset(const std::string& directory, const Progress::Output& output = {});

}  // namespace shiftron
