// A table in Markdown that reads well as plain text too.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace shiftron {

// The first row names the columns; all rows have as many cells, shown as markdown_cell(). `right`: columns whose cells
// stand to the right.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::set<size_t>& right);

}  // namespace shiftron
