// The perplexity of a user's file as a task, and the names of such tasks.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>

#include "config/task_names.h"
#include "core/foreign_text.h"
#include "core/hash.h"
#include "evaluate/tasks/task_definition.h"

namespace shiftron {
namespace {

// Made of the file's name without its ending, or of the last `parts` parts of its path.
std::string perplexity_name(const std::string& path, size_t parts) {
  std::string name = std::filesystem::path(path).stem();
  if (parts > 0) {
    std::vector<std::string> all;
    for (const std::filesystem::path& part : std::filesystem::path(path).lexically_normal()) all.push_back(part);
    name.clear();
    for (size_t i = all.size() - std::min(parts, all.size()); i < all.size(); ++i) {
      name += (name.empty() ? "" : "_") + all[i];
    }
  }
  const auto is_odd = [](unsigned char c) { return c < 0x80 && !std::isalnum(c) && c != '-' && c != '.'; };
  std::replace_if(name.begin(), name.end(), is_odd, '_');
  for (size_t i = 0; i < name.size();) {  // JSON must be UTF-8
    const size_t length = utf8_length(std::string_view(name).substr(i));
    if (length == 0) name[i] = '_';
    i += std::max<size_t>(length, 1);
  }
  return "perplexity_" + name;
}

}  // namespace

std::map<std::string, std::string> perplexity_names(const std::vector<std::string>& names) {
  constexpr size_t kMostParts = 64;
  std::map<std::string, std::string> called;
  const auto path_of = [](const std::string& name) { return name.substr(std::string(kPerplexityPrefix).size()); };
  for (const std::string& name : names) {
    if (name.starts_with(kPerplexityPrefix)) called[name] = perplexity_name(path_of(name), 0);
  }
  for (size_t parts = 1; parts <= kMostParts; ++parts) {
    std::map<std::string, int> users;
    for (const auto& [name, task] : called) ++users[task];
    for (auto& [name, task] : called) {
      if (users[task] == 1) continue;
      task = perplexity_name(path_of(name), parts) + (parts == kMostParts ? "_" + to_hex(xxh3_64(name)) : "");
    }
  }
  return called;
}

TaskDefinition perplexity_of_file(const std::string& path, const std::string& name) {
  return {.name = name,
          .own = true,
          .help = "the text of " + path,
          .kind = TaskKind::rolling,
          .files = {{"test", path}},
          .target = "{text}",
          .metrics = {kWordPerplexity, kBytePerplexity, kBitsPerByte}};
}

}  // namespace shiftron
