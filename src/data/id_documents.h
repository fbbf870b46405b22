// Documents that are lists of ids: lines of `data build --ids`.
#pragma once

#include <string>
#include <string_view>

#include "data/dataset_writer.h"

namespace shiftron {

// {"ids": [1, 2, …]}, {"ids": […], "targets": [3, null, …]}: null is not counted. `where` stands in messages. Whether
// the numbers are within a vocabulary, and as many targets as ids, is for DatasetWriter::close() to say. Throws
// Error(bad_input).
TokenDocument parse_ids(std::string_view line, const std::string& where);

}  // namespace shiftron
