// Names from the ends of paths.
#include "data/source_names.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/foreign_text.h"

namespace shiftron {
namespace {

std::vector<std::string> parts_of(const std::string& directory) {
  std::vector<std::string> parts;
  for (const auto& part : std::filesystem::path(directory).lexically_normal()) {
    if (!part.empty() && part != "/") parts.push_back(part.string());
  }
  return parts;
}

std::string last_parts(const std::vector<std::string>& parts, size_t count) {
  std::string name;
  for (size_t i = parts.size() - std::min(count, parts.size()); i < parts.size(); ++i) {
    name += (name.empty() ? "" : "/") + parts[i];
  }
  return name;
}

}  // namespace

std::vector<std::string> source_names(const std::vector<DataSource>& sources) {
  std::vector<std::vector<std::string>> paths;
  size_t longest = 1;
  for (const DataSource& source : sources) {
    paths.push_back(parts_of(source.directory));
    longest = std::max(longest, paths.back().size());
  }
  const size_t different = std::set(paths.begin(), paths.end()).size();
  std::vector<std::string> names;
  for (size_t count = 1; count <= longest; ++count) {
    names.clear();
    for (const std::vector<std::string>& path : paths) names.push_back(printable_line(last_parts(path, count)));
    if (std::set(names.begin(), names.end()).size() == different) break;
  }
  std::map<std::string, int> seen;
  for (std::string& name : names) {
    if (const int number = ++seen[name]; number > 1) name += ":" + std::to_string(number);
  }
  return names;
}

}  // namespace shiftron
