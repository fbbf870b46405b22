// Writes and reads dataset.json.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/json_outline.h"
#include "data/dataset.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr char kFormat[] = "shiftron dataset";
constexpr int64_t kMostTokens = int64_t{1} << 50;
constexpr int64_t kNewestVersion = 3;

const nlohmann::json& member(const nlohmann::json& object, const char* key, const std::string& where) {
  if (!object.is_object()) throw_bad_input(where, ": must be an object, not a JSON ", object.type_name());
  const auto found = object.find(key);
  if (found == object.end()) throw_bad_input(where, ": no key \"", key, "\"");
  return *found;
}

int64_t number(const nlohmann::json& object, const char* key, int64_t least, int64_t most, const std::string& where) {
  const nlohmann::json& value = member(object, key, where);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) ||
      value.get<int64_t>() < least || value.get<int64_t>() > most) {
    throw_bad_input(where, ": \"", key, "\" is ", value.is_structured() ? value.type_name() : printable(value.dump()),
                    ", not a whole number from ", least, " to ", most);
  }
  return value.get<int64_t>();
}

std::string text(const nlohmann::json& object, const char* key, const std::string& where) {
  const nlohmann::json& value = member(object, key, where);
  if (!value.is_string()) throw_bad_input(where, ": \"", key, "\" is a ", value.type_name(), ", not a string");
  return value.get<std::string>();
}

bool is_plain_name(const std::string& name) {
  constexpr char kPlain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  return name.find_first_not_of(kPlain) == std::string::npos && !name.empty() && name != "." && name != ".." &&
         name.size() <= 255;
}

// A plain file name: nothing that leads out of the directory.
std::string file_name(const nlohmann::json& object, const char* key, const std::string& where) {
  const std::string name = text(object, key, where);
  if (!is_plain_name(name)) throw_bad_input(where, ": \"", printable(name), "\" is not a plain file name");
  return name;
}

// A plain file name, or a relative path that ends in one: merging leaves shards of other file systems where they are.
std::string shard_path(const nlohmann::json& object, const char* key, const std::string& where) {
  constexpr size_t kLongest = 4096;
  const std::string path = text(object, key, where);
  const bool has_control = std::ranges::any_of(path, [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  const bool is_relative = !path.starts_with('/') && path.find("//") == std::string::npos;
  if (has_control || !is_relative || path.size() > kLongest ||
      !is_plain_name(path.substr(path.find_last_of('/') + 1))) {
    throw_bad_input(where, ": \"", printable(path), "\" is neither a plain file name nor a relative path to one");
  }
  return path;
}

ShardRecord parse_shard(const nlohmann::json& object, const ShardHeader& header, const std::string& where) {
  const Hdf5Type type = header.token_type();
  ShardRecord shard;
  shard.file = shard_path(object, "file", where);
  const std::string place = where + ", " + shard.file;
  shard.bytes = static_cast<uint64_t>(number(object, "bytes", 1, INT64_MAX, place));
  shard.tokens = number(object, "tokens", 1, kMostTokens, place);
  shard.documents = number(object, "documents", 1, shard.tokens, place);
  shard.tokens_offset = static_cast<uint64_t>(number(object, "tokens_offset", 1, INT64_MAX, place));
  shard.block_hash_offset = static_cast<uint64_t>(number(object, "block_hash_offset", 1, INT64_MAX, place));
  if (object.contains("block_hash_xxh3_128")) shard.block_hash_xxh3_128 = text(object, "block_hash_xxh3_128", place);
  shard.xxh3_128 = text(object, "xxh3_128", place);
  if (header.has_targets) {
    shard.counted_targets = number(object, "counted_targets", 0, shard.tokens, place);
    shard.targets_offset = static_cast<uint64_t>(number(object, "targets_offset", 1, INT64_MAX, place));
    shard.targets_block_hash_offset =
        static_cast<uint64_t>(number(object, "targets_block_hash_offset", 1, INT64_MAX, place));
    shard.targets_block_hash_xxh3_128 = text(object, "targets_block_hash_xxh3_128", place);
  }
  const auto within = [&](uint64_t offset, uint64_t length, const char* what) {
    if (offset > shard.bytes || length > shard.bytes - offset) {
      throw_bad_input(place, ": /", what, " (", length, " bytes from byte ", offset, ") is outside the file of ",
                      shard.bytes, " bytes");
    }
  };
  for (const ShardRow row : rows_of(header)) {
    const ShardRowPlace lies = place_of(shard, row);
    within(lies.offset, static_cast<uint64_t>(shard.tokens) * size_of(type), lies.name);
    within(lies.block_hash_offset, static_cast<uint64_t>(block_count(shard.tokens, type)) * 8, lies.hash_name);
  }
  return shard;
}

void require_version(const nlohmann::json& json, const std::string& path) {
  const int64_t version = number(json, "version", 1, INT64_MAX, path);
  if (version <= kNewestVersion) return;
  throw_bad_input(path, " has format version ", version, ", but this program reads versions 1 to ", kNewestVersion,
                  "; use a newer shiftron, or build the dataset again with this one");
}

// Reads what version 2 added. Version 1 always has a tokenizer and none of the rest.
void read_second_version(const nlohmann::json& json, ShardHeader& header, const std::string& path) {
  const bool second = number(json, "version", 1, kNewestVersion, path) > 1;
  if (!second || json.contains("tokenizer_hash")) {
    header.tokenizer_hash = text(json, "tokenizer_hash", path);
    if (header.tokenizer_hash.empty()) throw_bad_input(path, ": \"tokenizer_hash\" is empty; restore the dataset");
    header.tokenizer_hash = known_tokenizer_hash(header.tokenizer_hash);
  }
  if (!second) return;
  const nlohmann::json& targets = member(json, "targets", path);
  if (!targets.is_boolean()) throw_bad_input(path, ": \"targets\" is a ", targets.type_name(), ", not true or false");
  header.has_targets = targets.get<bool>();
  if (json.contains("pack")) header.pack = number(json, "pack", 2, kMostTokens, path);
  if (header.pack > 0 && !header.has_targets) throw_bad_input(path, ": \"pack\" without targets; restore the dataset");
}

// Reads what version 3 added: which kind of tokenizer, and what was chosen about it.
void read_third_version(const nlohmann::json& json, ShardHeader& header, const std::string& path) {
  if (number(json, "version", 1, kNewestVersion, path) < 3) return;
  if (header.tokenizer_hash.empty()) throw_bad_input(path, ": \"tokenizer_hash\" is missing; restore the dataset");
  header.tokenizer_file = file_name(json, "tokenizer_file", path);
  TokenizerSettings& settings = header.tokenizer_settings;
  settings.end_of_document = header.end_of_document;
  if (json.contains("beginning_of_document")) {
    settings.beginning_of_document =
        static_cast<int32_t>(number(json, "beginning_of_document", 0, header.vocab_size - 1, path));
    if (settings.beginning_of_document == header.end_of_document) {
      throw_bad_input(path, ": \"beginning_of_document\" is also \"end_of_document\"; build the dataset again");
    }
  }
  const nlohmann::json& special = member(json, "special_text", path);
  if (!special.is_boolean()) {
    throw_bad_input(path, ": \"special_text\" is a ", special.type_name(), ", not true or false");
  }
  settings.special_text = special.get<bool>();
}

nlohmann::ordered_json shard_json(const ShardRecord& shard, const ShardHeader& header) {
  nlohmann::ordered_json json = {{"file", shard.file},
                                 {"bytes", shard.bytes},
                                 {"tokens", shard.tokens},
                                 {"documents", shard.documents},
                                 {"tokens_offset", shard.tokens_offset},
                                 {"block_hash_offset", shard.block_hash_offset},
                                 {"xxh3_128", shard.xxh3_128}};
  if (!shard.block_hash_xxh3_128.empty()) json["block_hash_xxh3_128"] = shard.block_hash_xxh3_128;
  if (header.has_targets) {
    json.update({{"counted_targets", shard.counted_targets},
                 {"targets_offset", shard.targets_offset},
                 {"targets_block_hash_offset", shard.targets_block_hash_offset},
                 {"targets_block_hash_xxh3_128", shard.targets_block_hash_xxh3_128}});
  }
  return json;
}

}  // namespace

std::string shard_text(const ShardRecord& shard, const ShardHeader& header) {
  return shard_json(shard, header).dump();
}

ShardRecord parse_shard(const std::string& text, const ShardHeader& header, const std::string& path) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) throw_bad_input(path, " is damaged; give the command again to start over");
  return parse_shard(json, header, path);
}

int64_t DatasetDescription::tokens() const {
  int64_t sum = 0;
  for (const ShardRecord& shard : shards) sum += shard.tokens;
  return sum;
}

int64_t DatasetDescription::documents() const {
  int64_t sum = 0;
  for (const ShardRecord& shard : shards) sum += shard.documents;
  return sum;
}

int64_t DatasetDescription::counted_targets() const {
  int64_t sum = 0;
  for (const ShardRecord& shard : shards) sum += shard.counted_targets;
  return sum;
}

std::string DatasetDescription::to_text() const {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  json["version"] = header.version();
  json["vocab_size"] = header.vocab_size;
  json["end_of_document"] = header.end_of_document;
  if (!header.tokenizer_hash.empty()) json["tokenizer_hash"] = header.tokenizer_hash;
  if (header.version() > 2) {
    json["tokenizer_file"] = header.tokenizer_file;
    const int32_t beginning = header.tokenizer_settings.beginning_of_document;
    if (beginning >= 0) json["beginning_of_document"] = beginning;
    json["special_text"] = header.tokenizer_settings.special_text;
  }
  if (header.version() > 1) json["targets"] = header.has_targets;
  if (header.pack > 0) json["pack"] = header.pack;
  json["token_type"] = to_string(header.token_type());
  json["block_bytes"] = kBlockBytes;
  json["source"] = header.source;
  json["tokens"] = tokens();
  json["documents"] = documents();
  json["text_bytes"] = text_bytes;
  if (header.has_targets) json["counted_targets"] = counted_targets();
  json["shards"] = nlohmann::ordered_json::array();
  for (const ShardRecord& shard : shards) json["shards"].push_back(shard_json(shard, header));
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

size_t most_described_shards(const ShardHeader& header) {
  constexpr int64_t kLongest = INT64_MAX;
  const std::string hash(32, '0');
  const ShardRecord longest{.file = shard_name(kMostShards),
                            .bytes = kLongest,
                            .tokens = kMostTokens,
                            .documents = kMostTokens,
                            .tokens_offset = kLongest,
                            .block_hash_offset = kLongest,
                            .block_hash_xxh3_128 = hash,
                            .xxh3_128 = hash,
                            .counted_targets = kMostTokens,
                            .targets_offset = kLongest,
                            .targets_block_hash_offset = kLongest,
                            .targets_block_hash_xxh3_128 = hash};
  constexpr uint64_t kSums = 48;  // bytes by which the sums over all shards may be longer
  const uint64_t one = DatasetDescription{header, kLongest, {longest}}.to_text().size() + kSums;
  const uint64_t each = DatasetDescription{header, kLongest, {longest, longest}}.to_text().size() + kSums - one;
  return std::min<size_t>(kMostShards, one > kLargestDescription ? 0 : (kLargestDescription - one) / each + 1);
}

DatasetDescription DatasetDescription::parse(const std::string& content, const std::string& path) {
  constexpr int kDeepest = 8;
  refuse_deep_json(content, kDeepest,
                   [&] { throw_bad_input(path, " is nested deeper than ", kDeepest, "; build the dataset again"); });
  const nlohmann::json json = nlohmann::json::parse(content, nullptr, false);
  if (json.is_discarded()) throw_bad_input(path, " is not JSON; restore it or build the dataset again");
  if (text(json, "format", path) != kFormat) throw_bad_input(path, " does not describe a shiftron dataset");
  require_version(json, path);
  number(json, "block_bytes", kBlockBytes, kBlockBytes, path);
  DatasetDescription result;
  result.header.vocab_size = number(json, "vocab_size", 1, INT32_MAX, path);
  result.header.end_of_document =
      static_cast<int32_t>(number(json, "end_of_document", 0, result.header.vocab_size - 1, path));
  read_second_version(json, result.header, path);
  read_third_version(json, result.header, path);
  result.header.source = text(json, "source", path);
  result.text_bytes = number(json, "text_bytes", 0, INT64_MAX, path);
  const Hdf5Type type = result.header.token_type();
  if (text(json, "token_type", path) != to_string(type)) {
    throw_bad_input(path, ": token_type is not ", to_string(type), " for a vocabulary of ", result.header.vocab_size,
                    result.header.has_targets ? " with targets" : "");
  }
  const nlohmann::json& shards = member(json, "shards", path);
  if (!shards.is_array() || shards.empty()) throw_bad_input(path, ": no shards");
  for (const nlohmann::json& shard : shards) result.shards.push_back(parse_shard(shard, result.header, path));
  if (result.shards.size() > kMostShards || result.tokens() > kMostTokens) {
    throw_bad_input(path, ": too many shards or tokens");
  }
  number(json, "tokens", result.tokens(), result.tokens(), path);
  number(json, "documents", result.documents(), result.documents(), path);
  if (result.header.has_targets) {
    number(json, "counted_targets", result.counted_targets(), result.counted_targets(), path);
  }
  return result;
}

}  // namespace shiftron
