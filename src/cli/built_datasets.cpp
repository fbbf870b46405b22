#include "cli/built_datasets.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace shiftron::cli {

CommandOption validation_fraction() {
  return real_option(
      "validation-fraction",
      "fraction of the documents, chosen by their hash, that goes to DIR/validation; the others go to DIR/train",
      {.low = 0, .high = 1, .high_open = true}, "0");
}

CommandOption pack_length() {
  return integer_option("pack",
                        "window length in tokens; no document crosses a window, and end tokens that are not learned "
                        "fill it up; 0 = no packing",
                        between(0, INT32_MAX), "0");
}

CommandOption shard_tokens() {
  return integer_option("shard-tokens", "approximate number of tokens per shard", at_least(1),
                        std::to_string(DatasetOutput{}.shard_tokens));
}

nlohmann::ordered_json counted_json(bool has_targets, int64_t counted) {
  return has_targets ? nlohmann::ordered_json(counted) : nullptr;
}

std::string counted_text(bool has_targets, int64_t counted) {
  return has_targets ? ", " + std::to_string(counted) + " counted targets" : "";
}

nlohmann::ordered_json to_json(const BuiltDataset& dataset) {
  return {{"directory", dataset.directory},
          {"documents", dataset.documents},
          {"tokens", dataset.tokens},
          {"text_bytes", dataset.text_bytes},
          {"counted_targets", counted_json(dataset.has_targets, dataset.counted_targets)},
          {"shards", dataset.shards},
          {"fingerprint", dataset.fingerprint}};
}

std::string to_text(const BuiltDataset& dataset) {
  return fmt::format("{}: {} documents, {} tokens{}, {}{} shards, fingerprint {}\n", dataset.directory,
                     dataset.documents, dataset.tokens, counted_text(dataset.has_targets, dataset.counted_targets),
                     dataset.text_bytes > 0 ? fmt::format("{} bytes of text, ", dataset.text_bytes) : "",
                     dataset.shards, dataset.fingerprint);
}

}  // namespace shiftron::cli
