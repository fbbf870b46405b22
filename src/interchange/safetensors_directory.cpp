// Models in several safetensors files: which tensor goes where, the index, and reading it.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/json_fields.h"
#include "core/check.h"
#include "core/file.h"
#include "interchange/safetensors.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse_directory_without_safetensors(const std::string& directory) {
  refuse_lost_link(directory);
  if (!std::filesystem::is_directory(directory)) throw_bad_input(directory, " is not a directory; check the path");
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string suffix = entry.path().extension();
    if (suffix != ".bin" && suffix != ".pt" && suffix != ".pth" && suffix != ".ckpt" && suffix != ".pkl") continue;
    throw_bad_input(directory, " holds ", entry.path().filename().string(),
                    " but no safetensors. Pickled files can run code, so they are never read; if you trust them, "
                    "convert them in Python: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)");
  }
  throw_bad_input(directory, " holds neither model.safetensors nor model.safetensors.index.json; check the path");
}

// Reads an index: tensor → file.
std::map<std::string, std::string> read_index(const std::string& path) {
  constexpr uint64_t kLongest = 16'000'000;  // bytes: more than a hundred thousand tensors
  nlohmann::json json;
  try {
    json = parse_strict_json(read_file(path, kLongest), path);
  } catch (const Error& error) {
    throw_bad_input(error.what());
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    throw_bad_input(path, ": weight_map is missing");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain = !name.empty() && name[0] != '.' && std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
             c == '-';
    });
    if (!plain || !name.ends_with(".safetensors")) {
      throw_bad_input(path, ": tensor ", shown_name(tensor), " should be in ", shown_name(name),
                      ", which is not the name of a safetensors file next to it");
    }
    files[tensor] = name;
  }
  return files;
}

}  // namespace

std::vector<std::vector<SafetensorsTensor>> safetensors_shards(const std::vector<SafetensorsTensor>& tensors,
                                                               uint64_t limit) {
  std::vector<std::vector<SafetensorsTensor>> shards(1);
  uint64_t bytes = 0;  // of the last shard
  for (const SafetensorsTensor& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.bytes() > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  return shards;
}

std::string safetensors_shard_name(size_t index, size_t shards) {
  if (shards == 1) return "model.safetensors";
  const auto digits = [](size_t number) {
    const std::string text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  return "model-" + digits(index + 1) + "-of-" + digits(shards) + ".safetensors";
}

std::string safetensors_index(const std::vector<std::vector<SafetensorsTensor>>& shards) {
  uint64_t bytes = 0;
  Json files = Json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const SafetensorsTensor& tensor : shards[i]) {
      bytes += tensor.bytes();
      files[tensor.name] = safetensors_shard_name(i, shards.size());
    }
  }
  return Json{{"metadata", {{"total_size", bytes}}}, {"weight_map", files}}.dump(2) + "\n";
}

SafetensorsDirectory::SafetensorsDirectory(const std::string& directory) : directory_(directory) {
  const std::string single = directory + "/model.safetensors", index = single + ".index.json";
  const bool is_single = name_exists(single), is_divided = name_exists(index);
  if (!is_single && !is_divided) refuse_directory_without_safetensors(directory);
  if (is_single && is_divided) {
    throw_bad_input(directory, " holds model.safetensors and model.safetensors.index.json; remove the wrong one");
  }
  std::map<std::string, std::string> stated;  // tensor → file
  std::set<std::string> names = {"model.safetensors"};
  if (is_divided) {
    stated = read_index(index);
    names.clear();
    for (const auto& [tensor, file] : stated) names.insert(file);
  }
  for (const std::string& name : names) {
    files_.push_back(std::make_unique<SafetensorsFile>(directory + "/" + name));
    for (const SafetensorsTensor& tensor : files_.back()->tensors()) {
      const auto [entry, fresh] = tensors_.emplace(tensor.name, Entry{files_.back().get(), &tensor});
      if (!fresh) {
        throw_bad_input(files_.back()->path(), ": tensor ", tensor.name, " is also in ", entry->second.file->path());
      }
      const auto place = stated.find(tensor.name);
      if (is_divided && (place == stated.end() || place->second != name)) {
        throw_bad_input(index, ": tensor ", tensor.name, " is in ", name, ", but the index ",
                        place == stated.end() ? "does not list it" : "says " + place->second);
      }
    }
  }
  for (const auto& [tensor, file] : stated) {
    if (tensors_.count(tensor) == 0) throw_bad_input(index, ": tensor ", shown_name(tensor), " is not in ", file);
  }
}

const SafetensorsDirectory::Entry* SafetensorsDirectory::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace shiftron
