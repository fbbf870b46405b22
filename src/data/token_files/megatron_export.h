// Writes a dataset as PREFIX.bin and PREFIX.idx of Megatron-LM.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/progress.h"
#include "data/token_files/element.h"

namespace shiftron {

struct MegatronExport {
  std::vector<std::string> files;  // .bin and .idx
  TokenElement element = TokenElement::u16;
  int64_t tokens = 0, documents = 0;
  int64_t sequences = 0;     // more than documents if one is longer than 2^31 − 1 tokens
  bool has_targets = false;  // the dataset has targets, which the format cannot hold
};

// The documents of `directory` in order, each with its end token, every block checked by its hash. element: of the
// tokens; by default as Megatron-LM chooses it for the vocabulary. Memory does not grow with the dataset. Files get
// their names when they are complete, the .idx last. Throws Error(bad_input): a damaged dataset, a file that exists, a
// type that is too small or that the format lacks.
MegatronExport export_megatron(const std::string& directory, const std::string& prefix,
                               std::optional<TokenElement> element = std::nullopt, const Progress::Output& output = {});

}  // namespace shiftron
