// Names of the sources of a blend in metrics, reports and messages.
#pragma once

#include <string>
#include <vector>

#include "data/loader.h"

namespace shiftron {

// The last parts of each directory's path, as few as distinguish all of them: "val" alone, "books/val" next to
// "web/val". A repeated directory gets ":2". Bytes that are not UTF-8, or that control a terminal, are escaped as \xNN.
std::vector<std::string> source_names(const std::vector<DataSource>& sources);

}  // namespace shiftron
