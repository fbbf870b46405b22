// Suggestions for misspelt names: the known name with the fewest edits.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

// Number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(const std::string& a, const std::string& b);

// The candidate nearest to `name`, or "" if none is within a third of its length (at least 2 edits). A name without a
// dot is also compared with the last part of dotted candidates ("hiden" finds "model.hidden").
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

// The end of a message about an unknown name: "; did you mean NAME?", or "". `dashes` goes before the name.
std::string suggestion(const std::string& name, const std::vector<std::string>& candidates,
                       const std::string& dashes = "");

}  // namespace shiftron
