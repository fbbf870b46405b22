// Columns are as wide as their widest cell, in characters.
#include "evaluate/tasks/markdown_table.h"

#include <algorithm>

#include "core/foreign_text.h"
#include "evaluate/tasks/python_text.h"

namespace shiftron {

std::string markdown_table(const std::vector<std::vector<std::string>>& foreign, const std::set<size_t>& right) {
  std::vector<std::vector<std::string>> rows = foreign;
  for (auto& row : rows) {
    for (std::string& cell : row) cell = markdown_cell(cell);
  }
  std::vector<size_t> widths(rows[0].size());
  const auto width = [](const std::string& text) { return static_cast<size_t>(python::length(text)); };
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string text;
  for (size_t at = 0; at < rows.size(); ++at) {
    text += "|";
    for (size_t i = 0; i < rows[at].size(); ++i) {
      const std::string space(widths[i] - width(rows[at][i]), ' ');
      text += " " + (right.contains(i) ? space + rows[at][i] : rows[at][i] + space) + " |";
    }
    text += "\n";
    if (at > 0) continue;
    text += "|";
    for (size_t i = 0; i < widths.size(); ++i) {
      text += std::string(widths[i] + 1, '-') + (right.contains(i) ? ":" : "-") + "|";
    }
    text += "\n";
  }
  return text;
}

}  // namespace shiftron
