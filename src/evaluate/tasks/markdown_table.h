// A Markdown table that is also readable as plain text.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace shiftron {

// The first row names the columns; all rows have the same number of cells, which are escaped by markdown_cell().
// `right`: columns to align right.
std::string markdown_table(const std::vector<std::vector<std::string>>& rows, const std::set<size_t>& right);

}  // namespace shiftron
