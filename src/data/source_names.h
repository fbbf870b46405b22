// Names by which rows of metrics, reports and messages call the sources of a blend.
#pragma once

#include <string>
#include <vector>

#include "data/loader.h"

namespace shiftron {

// The last parts of each directory's path, as few as tell all of them apart: "val" alone, "books/val" next to
// "web/val". A directory that is given again gets ":2". Bytes that are not UTF-8, or steer a terminal, are escaped as
// \xNN.
std::vector<std::string> source_names(const std::vector<DataSource>& sources);

}  // namespace shiftron
