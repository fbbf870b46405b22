// Reads only the keys of a file that attention depends on; a layout applies to the file whose name it begins with.
#include "shipped_attention.h"

#include <boost/program_options/parsers.hpp>
#include <filesystem>
#include <fstream>
#include <vector>

#include "core/check.h"

namespace shiftron {
namespace {

namespace fs = std::filesystem;
using Keys = std::map<std::string, std::string>;

Keys read_keys(const fs::path& file) {
  std::ifstream stream(file);
  CHECK(stream.is_open(), "cannot read ", file.string());
  const boost::program_options::options_description none;
  Keys keys;
  for (const auto& option : boost::program_options::parse_config_file(stream, none, true).options) {
    keys[option.string_key] = option.value.at(0);
  }
  return keys;
}

std::vector<fs::path> files_of(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".conf") files.push_back(entry.path());
  }
  return files;
}

// As in a model: q, k, v and their gradients side by side in rows of all three.
AttentionProblem forward_problem(int64_t samples, int64_t length, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const HeadStrides beside{(heads + 2 * kv_heads) * head_dim, head_dim};
  AttentionProblem made{.samples = samples, .length = length, .heads = heads, .kv_heads = kv_heads};
  made.head_dim = head_dim;
  made.q = made.k = made.v = beside;
  made.out = {heads * head_dim, head_dim};
  made.statistics = samples * length;
  return made;
}

}  // namespace

std::map<AttentionProblem, std::string> shipped_attention(const std::string& directory) {
  std::map<std::string, Keys> configurations;
  for (const fs::path& file : files_of(directory)) {
    const Keys keys = read_keys(file);
    if (keys.contains("model.heads")) configurations[file.stem().string()] = keys;  // others extend one of these
  }
  const std::map<std::string, Keys> models = configurations;
  for (const fs::path& file : files_of(fs::path(directory) / "layouts")) {
    const std::string name = file.stem().string();
    Keys keys = read_keys(file);
    keys.merge(Keys(models.at(name.substr(0, name.rfind('-')))));
    configurations[name] = keys;
  }
  std::map<AttentionProblem, std::string> shipped;
  for (const auto& [name, keys] : configurations) {
    const auto number = [&](const std::string& key) { return std::stoll(keys.at(key)); };
    const int64_t heads = number("model.heads");
    const int64_t kv_heads = keys.contains("model.kv_heads") ? number("model.kv_heads") : heads;
    for (const int64_t ranks : {1, 2, 4, 8}) {
      if (heads % ranks != 0 || (kv_heads % ranks != 0 && ranks % kv_heads != 0)) continue;
      std::string& asks =
          shipped[forward_problem(number("train.micro_batch"), number("train.sequence_length"), heads / ranks,
                                  std::max<int64_t>(1, kv_heads / ranks), number("model.hidden") / heads)];
      asks += (asks.empty() ? "" : ", ") + name + " tp " + std::to_string(ranks);
    }
  }
  return shipped;
}

}  // namespace shiftron
