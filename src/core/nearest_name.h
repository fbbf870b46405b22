// Suggestions for misspelt names: the known name with the fewest edits.
#pragma once

#include <string>
#include <vector>

namespace shiftron {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
int edit_distance(const std::string& a, const std::string& b);

// The candidate nearest to `name`, or "" where none is within a third of its length (at least 2 edits).
// A name without a dot is also held against the last part of dotted candidates ("hiden" finds "model.hidden").
std::string nearest_name(const std::string& name, const std::vector<std::string>& candidates);

// ", nearest is NAME", or "": what a message about an unknown name ends with.
std::string suggestion(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace shiftron
