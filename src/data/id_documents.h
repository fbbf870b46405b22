// Documents that are lists of ids: lines for `data build --ids`.
#pragma once

#include <string>
#include <string_view>

#include "data/dataset_writer.h"

namespace shiftron {

// {"ids": [1, 2, …]}, {"ids": […], "targets": [3, null, …]}: null is not counted. `where` is for messages. Throws
// Error(bad_input). Whether the numbers are within a vocabulary is checked by DatasetWriter::close().
TokenDocument parse_ids(std::string_view line, const std::string& where);

}  // namespace shiftron
