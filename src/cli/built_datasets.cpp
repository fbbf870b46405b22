#include "cli/built_datasets.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace shiftron::cli {

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
