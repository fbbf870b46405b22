// Manifest: text and back, tiling, merging of the ranks' parts.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "checkpoint/boxes.h"
#include "checkpoint/json_fields.h"
#include "core/check.h"

namespace shiftron {
namespace {

using nlohmann::json;

constexpr uint64_t kLargestSize = uint64_t{1} << 62;  // of any size: sums of two still fit
constexpr size_t kLongestName = 512;
constexpr size_t kLongestText = size_t{16} << 20;
const std::string kHashBegin = "{\"xxh3_128\":\"";
const std::string kHashEnd = "\",\n";
constexpr size_t kHashDigits = 32;
constexpr std::array kStoredTypes = {DType::float32, DType::float64, DType::bfloat16};

bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

json to_json(const Shape& shape) {
  json list = json::array();
  for (int dim = 0; dim < shape.dims(); ++dim) list.push_back(shape[dim]);
  return list;
}

std::string to_line(const json& value) {
  return value.dump();
}

// A list with one entry per line.
template <typename Entry, typename ToJson>
std::string lines(const std::vector<Entry>& entries, ToJson to_entry) {
  std::string text = "[";
  for (size_t i = 0; i < entries.size(); ++i) text += (i == 0 ? "\n" : ",\n") + to_line(to_entry(entries[i]));
  return text + "]";
}

Shape read_shape(const JsonFields& fields, const char* key, uint64_t least, int dims) {
  const json& list = fields.array(key);
  const int given = static_cast<int>(std::min<size_t>(list.size(), 1000));
  if (given < 1 || given > kMaxDims || (dims != 0 && given != dims)) {
    fields.fail(key, "has " + std::to_string(given) + " entries, must have " +
                         (dims == 0 ? "1 to " + std::to_string(kMaxDims) : std::to_string(dims)));
  }
  Shape shape;
  for (const json& value : list) shape.append(static_cast<int64_t>(fields.number_of(value, key, least, kLargestSize)));
  return shape;
}

// bytes = count · size; false if that exceeds kLargestSize.
bool checked_bytes(const Shape& shape, DType dtype, uint64_t& bytes) {
  bytes = static_cast<uint64_t>(size_of(dtype));
  for (int dim = 0; dim < shape.dims(); ++dim) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(shape[dim]), &bytes) || bytes > kLargestSize) return false;
  }
  return true;
}

std::string entry_name(const char* list, size_t index) {
  return list + ("[" + std::to_string(index) + "]");
}

ManifestTensor read_tensor(const json& value, const std::string& source, size_t index) {
  const JsonFields fields(value, source, entry_name("tensors", index), {"group", "name", "shape", "dtype"});
  ManifestTensor tensor;
  const auto group = from_string<TensorGroup>(fields.text("group", kLongestName));
  if (!group) fields.fail("group", "must be parameters, first_moment or second_moment");
  tensor.group = *group;
  tensor.name = fields.text("name", kLongestName);
  if (!is_plain_name(tensor.name)) fields.fail("name", "may hold only letters, digits, '.', '_' and '-'");
  tensor.shape = read_shape(fields, "shape", 1, 0);
  const std::string& dtype = fields.text("dtype", kLongestName);
  const auto known = std::ranges::find(kStoredTypes, dtype, [](DType type) { return std::string(name_of(type)); });
  if (known == kStoredTypes.end()) fields.fail("dtype", "is " + dtype + ", must be float32, float64 or bfloat16");
  tensor.dtype = *known;
  uint64_t bytes = 0;
  if (!checked_bytes(tensor.shape, tensor.dtype, bytes)) fields.fail("shape", "has too many elements");
  return tensor;
}

ManifestFile read_file_entry(const json& value, const std::string& source, size_t index) {
  const JsonFields fields(value, source, entry_name("files", index), {"name", "bytes", "xxh3_128"});
  ManifestFile file;
  file.name = fields.text("name", kLongestName);
  if (!is_plain_name(file.name)) fields.fail("name", "may hold only letters, digits, '.', '_' and '-'");
  file.bytes = fields.number("bytes", 0, kLargestSize);
  const std::string& digits = fields.text("xxh3_128", kHashDigits);
  if (digits.size() != kHashDigits || !parse_hex64(std::string_view(digits).substr(0, 16), file.hash.high) ||
      !parse_hex64(std::string_view(digits).substr(16), file.hash.low)) {
    fields.fail("xxh3_128", "must be 32 hexadecimal digits");
  }
  return file;
}

ManifestBox read_box(const json& value, const std::string& source, size_t index, const Manifest& manifest) {
  const JsonFields fields(value, source, entry_name("boxes", index),
                          {"tensor", "offset", "extent", "file", "dataset", "byte_offset", "blocks"});
  if (manifest.tensors.empty() || manifest.files.empty())
    fields.fail("tensor", "refers to nothing: the manifest has no tensors or no files");
  ManifestBox box;
  box.tensor = static_cast<int>(fields.number("tensor", 0, manifest.tensors.size() - 1));
  box.file = static_cast<int>(fields.number("file", 0, manifest.files.size() - 1));
  const ManifestTensor& tensor = manifest.tensors[static_cast<size_t>(box.tensor)];
  const ManifestFile& file = manifest.files[static_cast<size_t>(box.file)];
  box.box = {.offset = read_shape(fields, "offset", 0, tensor.shape.dims()),
             .extent = read_shape(fields, "extent", 1, tensor.shape.dims())};
  for (int dim = 0; dim < tensor.shape.dims(); ++dim) {
    if (box.box.offset[dim] + box.box.extent[dim] > tensor.shape[dim]) {
      fields.fail("extent", "is " + box.box.extent.text() + " at " + box.box.text() + ", outside " + tensor.path() +
                                " " + tensor.shape.text());
    }
  }
  checked_bytes(box.box.extent, tensor.dtype, box.bytes);
  if (fields.text("dataset", 2 * kLongestName) != manifest.dataset(box)) {
    fields.fail("dataset", "must be " + manifest.dataset(box));
  }
  box.byte_offset = fields.number("byte_offset", 0, kLargestSize);
  if (box.byte_offset + box.bytes > file.bytes) {
    fields.fail("byte_offset", "is " + std::to_string(box.byte_offset) + ": " + tensor.path() +
                                   " ends after the end of " + file.name + ", which has " + std::to_string(file.bytes) +
                                   " bytes");
  }
  const json& blocks = fields.array("blocks");
  const uint64_t expected = (box.bytes - 1) / manifest.block_bytes + 1;
  if (blocks.size() != expected) {
    fields.fail("blocks", "has " + std::to_string(blocks.size()) + " entries, must have " + std::to_string(expected));
  }
  box.block_hashes.reserve(blocks.size());
  for (const json& block : blocks) box.block_hashes.push_back(fields.hex64_of(block, "blocks"));
  return box;
}

void check_no_shared_bytes(const Manifest& manifest, const std::string& source) {
  std::vector<const ManifestBox*> boxes;
  for (const ManifestBox& box : manifest.boxes) boxes.push_back(&box);
  std::sort(boxes.begin(), boxes.end(), [](const ManifestBox* a, const ManifestBox* b) {
    return std::pair(a->file, a->byte_offset) < std::pair(b->file, b->byte_offset);
  });
  for (size_t i = 1; i < boxes.size(); ++i) {
    const ManifestBox& before = *boxes[i - 1];
    if (before.file == boxes[i]->file && before.byte_offset + before.bytes > boxes[i]->byte_offset) {
      throw Error(source + ": boxes " + manifest.dataset(before) + " and " + manifest.dataset(*boxes[i]) +
                      " share bytes of " + manifest.files[static_cast<size_t>(before.file)].name,
                  ExitCode::no_checkpoint);
    }
  }
}

// The hash that the first line states, checked against the text after it.
std::string checked_hash(const std::string& text, const std::string& source) {
  const size_t begin = kHashBegin.size() + kHashDigits + kHashEnd.size();
  if (text.size() < begin || text.compare(0, kHashBegin.size(), kHashBegin) != 0 ||
      text.compare(kHashBegin.size() + kHashDigits, kHashEnd.size(), kHashEnd) != 0) {
    throw Error(source + ": does not begin with its hash; it is damaged or not a manifest", ExitCode::no_checkpoint);
  }
  const std::string stated = text.substr(kHashBegin.size(), kHashDigits);
  const std::string actual = to_hex(xxh3_128(std::string_view(text).substr(begin)));
  if (stated != actual) {
    throw Error(source + ": its hash is " + actual + ", but it states " + stated + "; it is damaged",
                ExitCode::no_checkpoint);
  }
  return stated;
}

}  // namespace

uint64_t Manifest::bytes() const {
  return std::accumulate(files.begin(), files.end(), uint64_t{0},
                         [](uint64_t sum, const ManifestFile& file) { return sum + file.bytes; });
}

std::string Manifest::dataset(const ManifestBox& box) const {
  const ManifestTensor& tensor = tensors[static_cast<size_t>(box.tensor)];
  return tensor.path() + (box.box.extent == tensor.shape ? "" : "@" + box.box.text());
}

const ManifestFile* Manifest::find_file(const std::string& name) const {
  for (const ManifestFile& file : files) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 31;

// Version 2 is version 1 with the key "tokenizer".
uint64_t version_of(const Manifest& manifest) {
  return is_of_first_versions(manifest.tokenizer_file, manifest.tokenizer_settings) ? 1 : 2;
}

json tokenizer_json(const Manifest& manifest) {
  const TokenizerSettings& settings = manifest.tokenizer_settings;
  const auto id = [](int32_t token) { return token < 0 ? json(nullptr) : json(token); };
  return {{"file", manifest.tokenizer_file},
          {"end_of_document", id(settings.end_of_document)},
          {"beginning_of_document", id(settings.beginning_of_document)},
          {"special_text", settings.special_text}};
}

void read_tokenizer(const json& object, const std::string& source, Manifest& manifest) {
  const JsonFields fields(object, source, "tokenizer",
                          {"file", "end_of_document", "beginning_of_document", "special_text"});
  const auto id = [&](const char* key) {
    return object[key].is_null() ? -1 : static_cast<int32_t>(fields.number(key, 0, kMostTokens - 1));
  };
  manifest.tokenizer_file = fields.text("file", kLongestName);
  if (manifest.find_file(manifest.tokenizer_file) == nullptr) fields.fail("file", "is not one of `files`");
  if (!object["special_text"].is_boolean()) fields.fail("special_text", "is not true or false");
  manifest.tokenizer_settings = {.end_of_document = id("end_of_document"),
                                 .beginning_of_document = id("beginning_of_document"),
                                 .special_text = object["special_text"].get<bool>()};
  if (version_of(manifest) == 1) fields.fail("file", "with these settings needs no version 2");
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  const ParallelLayout& writer = manifest.writer;
  std::string body;
  const auto add = [&](const char* key, const std::string& value) {
    body += (body.empty() ? "\"" : ",\n\"") + std::string(key) + "\":" + value;
  };
  add("format", to_line("shiftron-checkpoint"));
  const bool second = version_of(manifest) > 1;
  add("version", second ? "2" : "1");
  add("step", to_line(manifest.step));
  add("block_bytes", to_line(manifest.block_bytes));
  add("code_version", to_line(manifest.code_version));
  add("data_fingerprint", to_line(manifest.data_fingerprint));
  add("writer_layout", to_line({{"tp", writer.tp}, {"cp", writer.cp}, {"dp", writer.dp}, {"pp", writer.pp}}));
  const json state = parse_strict_json(manifest.state_json, "state");
  CHECK(state.is_object(), "the trainer's state is not a JSON object");
  add("state", to_line(state));
  add("configuration", to_line(manifest.configuration));
  if (second) add("tokenizer", to_line(tokenizer_json(manifest)));
  add("tensors", lines(manifest.tensors, [](const ManifestTensor& tensor) -> json {
        return {{"group", to_string(tensor.group)},
                {"name", tensor.name},
                {"shape", to_json(tensor.shape)},
                {"dtype", name_of(tensor.dtype)}};
      }));
  add("files", lines(manifest.files, [](const ManifestFile& file) -> json {
        return {{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", to_hex(file.hash)}};
      }));
  add("boxes", lines(manifest.boxes, [&](const ManifestBox& box) -> json {
        json blocks = json::array();
        for (const uint64_t hash : box.block_hashes) blocks.push_back(to_hex(hash));
        return {{"tensor", box.tensor},       {"offset", to_json(box.box.offset)}, {"extent", to_json(box.box.extent)},
                {"file", box.file},           {"dataset", manifest.dataset(box)},  {"byte_offset", box.byte_offset},
                {"blocks", std::move(blocks)}};
      }));
  body += "}\n";
  return kHashBegin + to_hex(xxh3_128(body)) + kHashEnd + body;
}

Manifest parse_manifest(const std::string& text, const std::string& source) {
  std::string hash = checked_hash(text, source);
  const json root = parse_strict_json(text, source);
  const bool second = root.is_object() && root.value("version", json()) == 2;
  const JsonFields fields =
      second ? JsonFields(root, source, "",
                          {"xxh3_128", "format", "version", "step", "block_bytes", "code_version", "data_fingerprint",
                           "writer_layout", "state", "configuration", "tokenizer", "tensors", "files", "boxes"})
             : JsonFields(root, source, "",
                          {"xxh3_128", "format", "version", "step", "block_bytes", "code_version", "data_fingerprint",
                           "writer_layout", "state", "configuration", "tensors", "files", "boxes"});
  if (fields.text("format", kLongestName) != "shiftron-checkpoint")
    fields.fail("format", "must be shiftron-checkpoint");
  fields.number("version", 1, 2);
  Manifest manifest;
  manifest.hash = std::move(hash);
  manifest.step = static_cast<int64_t>(fields.number("step", 0, uint64_t{1} << 50));
  manifest.block_bytes = fields.number("block_bytes", 512, uint64_t{1} << 30);
  manifest.code_version = fields.text("code_version", kLongestName);
  manifest.data_fingerprint = fields.text("data_fingerprint", kLongestText);
  const JsonFields layout(fields.object("writer_layout"), source, "writer_layout", {"tp", "cp", "dp", "pp"});
  const auto axis = [&](const char* key) { return static_cast<int>(layout.number(key, 1, 1 << 30)); };
  manifest.writer = {.tp = axis("tp"), .cp = axis("cp"), .dp = axis("dp"), .pp = axis("pp")};
  manifest.state_json = fields.object("state").dump();
  manifest.configuration = fields.text("configuration", kLongestText);

  std::set<std::string> seen;
  for (const json& value : fields.array("tensors")) {
    manifest.tensors.push_back(read_tensor(value, source, manifest.tensors.size()));
    if (!seen.insert(manifest.tensors.back().path()).second) {
      fields.fail("tensors", "holds " + manifest.tensors.back().path() + " twice");
    }
  }
  for (const json& value : fields.array("files")) {
    manifest.files.push_back(read_file_entry(value, source, manifest.files.size()));
    if (!seen.insert("/" + manifest.files.back().name).second) {
      fields.fail("files", "holds " + manifest.files.back().name + " twice");
    }
  }
  if (second) read_tokenizer(fields.object("tokenizer"), source, manifest);
  for (const json& value : fields.array("boxes")) {
    manifest.boxes.push_back(read_box(value, source, manifest.boxes.size(), manifest));
  }
  check_no_shared_bytes(manifest, source);
  return manifest;
}

void check_tiling(const Manifest& manifest, const std::string& source) {
  std::vector<std::vector<Box>> boxes(manifest.tensors.size());
  for (const ManifestBox& box : manifest.boxes) boxes[static_cast<size_t>(box.tensor)].push_back(box.box);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const std::string fault = tiling_fault(manifest.tensors[i].shape, boxes[i]);
    if (!fault.empty()) {
      throw Error(source + ": " + manifest.tensors[i].path() + ": " + fault, ExitCode::no_checkpoint);
    }
  }
}

void check_state(const Manifest& manifest, const std::string& source) {
  const json state = json::parse(manifest.state_json);
  for (const char* key : {"configuration", "trainer"}) {
    const auto found = state.find(key);
    if (found != state.end() && found->is_object()) continue;
    throw Error(source + ": state." + key + (found == state.end() ? " is missing" : " is not an object"),
                ExitCode::no_checkpoint);
  }
}

bool has_moments(const std::vector<ManifestTensor>& tensors) {
  return std::ranges::any_of(tensors,
                             [](const ManifestTensor& tensor) { return tensor.group != TensorGroup::parameters; });
}

Manifest merge(const std::vector<Manifest>& parts) {
  Manifest whole = parts.at(0);
  whole.tensors.clear();
  whole.files.clear();
  whole.boxes.clear();
  std::map<std::pair<TensorGroup, std::string>, ManifestTensor> tensors;
  for (const Manifest& part : parts) {
    for (const ManifestTensor& tensor : part.tensors) {
      const ManifestTensor& known = tensors.try_emplace({tensor.group, tensor.name}, tensor).first->second;
      CHECK(known == tensor, "ranks disagree about ", tensor.path(), ": ", known.shape.text(), " of ",
            name_of(known.dtype), " and ", tensor.shape.text(), " of ", name_of(tensor.dtype));
    }
  }
  std::map<std::string, int> index;
  for (auto& [key, tensor] : tensors) {
    index[tensor.path()] = static_cast<int>(whole.tensors.size());
    whole.tensors.push_back(tensor);
  }
  for (const Manifest& part : parts) {
    const int first_file = static_cast<int>(whole.files.size());
    whole.files.insert(whole.files.end(), part.files.begin(), part.files.end());
    for (ManifestBox box : part.boxes) {
      box.tensor = index.at(part.tensors[static_cast<size_t>(box.tensor)].path());
      box.file += first_file;
      whole.boxes.push_back(std::move(box));
    }
  }
  return whole;
}

}  // namespace shiftron
