// What a DatasetWriter saves, so that a build of the same request can continue.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/buckets.h"

namespace shiftron {

struct SavedWriter {
  std::string note;
  uint64_t number = 0;  // of the last document
  std::string first;
  bool has_targets = false;
  std::vector<DocumentBuckets::Saved> parts;
  std::vector<uint64_t> hashes;  // bytes of the files of hashes
};

// Throws Error(bad_input).
[[noreturn]] void throw_damaged_save(const std::string& output);

std::string saved_text(const SavedWriter& saved);
// Throws Error(bad_input) if the text is damaged. `output` is for the message.
SavedWriter parse_saved(const std::string& text, const std::string& output);

}  // namespace shiftron
