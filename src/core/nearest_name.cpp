// Edit distance with neighbour swaps, and the search for the nearest name.
#include "core/nearest_name.h"

#include <algorithm>
#include <cstddef>

namespace shiftron {

int edit_distance(const std::string& a, const std::string& b) {
  // rows[i][j]: edits between the first i characters of a and the first j of b.
  std::vector<std::vector<int>> rows(a.size() + 1, std::vector<int>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = static_cast<int>(i + j);
        continue;
      }
      const int replaced = rows[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      rows[i][j] = std::min({rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        rows[i][j] = std::min(rows[i][j], rows[i - 2][j - 2] + 1);
      }
    }
  }
  return rows[a.size()][b.size()];
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongest = 200;  // the time grows with the length
  if (name.size() > kLongest) return "";
  const bool dotted = name.find('.') != std::string::npos;
  int fewest = std::max(2, static_cast<int>(name.size()) / 3) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    int edits = edit_distance(name, candidate);
    const std::size_t dot = candidate.rfind('.');
    if (dot != std::string::npos) {
      // The right key in the wrong section is nearer than a similar key in the right one.
      const std::string last = candidate.substr(dot + 1);
      const std::size_t own_dot = name.rfind('.');
      if (!dotted) edits = std::min(edits, edit_distance(name, last));
      if (dotted && name.substr(own_dot + 1) == last) edits = std::min(edits, 1);
    }
    if (edits < fewest) {
      fewest = edits;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& candidates, const std::string& dashes) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : "; did you mean " + dashes + nearest + "?";
}

}  // namespace shiftron
