// What `data build` and `data generate` report about a dataset that they made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/dataset_writer.h"

namespace shiftron::cli {

// null if every target is counted, except those that train leaves out because of data.document_reset.
nlohmann::ordered_json counted_json(bool has_targets, int64_t counted);
// ", 12 targets counted".
std::string counted_text(bool has_targets, int64_t counted);
nlohmann::ordered_json to_json(const BuiltDataset& dataset);
std::string to_text(const BuiltDataset& dataset);  // a line

}  // namespace shiftron::cli
