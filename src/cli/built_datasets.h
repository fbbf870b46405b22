// What the commands that make datasets share: options, and what they report about a dataset.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/command_line.h"
#include "data/dataset_writer.h"

namespace shiftron::cli {

// Options as members of DatasetOutput.
CommandOption validation_fraction();
CommandOption pack_length();
CommandOption shard_tokens();

// null if every target is counted, except those that train leaves out because of data.document_reset.
nlohmann::ordered_json counted_json(bool has_targets, int64_t counted);
// ", 12 targets counted".
std::string counted_text(bool has_targets, int64_t counted);
nlohmann::ordered_json to_json(const BuiltDataset& dataset);
std::string to_text(const BuiltDataset& dataset);  // a line

}  // namespace shiftron::cli
