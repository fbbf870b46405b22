// GGUF's header, field by field (ggml's docs/gguf.md).
#include "interchange/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <type_traits>

#include "core/check.h"

namespace shiftron {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format's numbers are read and written in little-endian order");

constexpr char kMagic[] = {'G', 'G', 'U', 'F'};
constexpr uint32_t kVersion = 3;
constexpr uint64_t kMostEntries = 1 << 16, kMostTensors = 1 << 20;
enum Kind : uint32_t { kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9 };

template <typename T>
constexpr Kind kind_of() {
  if constexpr (std::is_same_v<T, uint32_t>) return kUint32;
  if constexpr (std::is_same_v<T, int32_t>) return kInt32;
  if constexpr (std::is_same_v<T, float>) return kFloat32;
  if constexpr (std::is_same_v<T, bool>) return kBool;
  if constexpr (std::is_same_v<T, std::string>) return kString;
}

uint32_t number_of(SafetensorsType type) {  // ggml_type
  CHECK(type == SafetensorsType::F32 || type == SafetensorsType::F16 || type == SafetensorsType::BF16, to_string(type));
  return type == SafetensorsType::F32 ? 0 : type == SafetensorsType::F16 ? 1 : 30;
}

uint64_t padded(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

class Header {
 public:
  template <typename T>
  void add(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      add(static_cast<uint64_t>(value.size()));
      bytes_ += value;
    } else if constexpr (std::is_same_v<T, bool>) {
      bytes_ += static_cast<char>(value);
    } else {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
  }
  void add_entry(const GgufEntry& entry) {
    add(entry.first);
    std::visit([&](const auto& value) { add_value(value); }, entry.second);
  }
  const std::string& pad() {
    bytes_.resize(padded(bytes_.size()), '\0');
    return bytes_;
  }

 private:
  template <typename T>
  void add_value(const T& value) {
    add(static_cast<uint32_t>(kind_of<T>()));
    add(value);
  }
  template <typename T>
  void add_value(const std::vector<T>& values) {
    add(static_cast<uint32_t>(kArray));
    add(static_cast<uint32_t>(kind_of<T>()));
    add(static_cast<uint64_t>(values.size()));
    for (const T& value : values) add(value);
  }
  std::string bytes_;
};

// Reads the header's bytes in order, through a small window.
class Cursor {
 public:
  explicit Cursor(const FileDescriptor& file) : file_(file), size_(file.size()) {}

  [[noreturn]] void refuse(const std::string& fault) const {
    throw_bad_input(file_.path(), ": ", fault, "; this program cannot read this GGUF file, write it again");
  }
  uint64_t at() const { return at_; }
  uint64_t left() const { return size_ - at_; }

  void read(void* to, uint64_t bytes) {
    if (bytes > left()) refuse("it ends within its header");
    if (at_ < begin_ || at_ + bytes > begin_ + window_.size()) {
      begin_ = at_;
      window_.resize(std::min(left(), std::max(bytes, kWindow)));
      file_.read_at(begin_, window_.data(), window_.size());
    }
    std::memcpy(to, window_.data() + (at_ - begin_), bytes);
    at_ += bytes;
  }
  template <typename T>
  T take() {
    if constexpr (std::is_same_v<T, std::string>) {
      const uint64_t length = take_count(1);
      std::string text(length, '\0');
      read(text.data(), length);
      return text;
    } else if constexpr (std::is_same_v<T, bool>) {
      const auto value = take<uint8_t>();
      if (value > 1) refuse("a boolean is " + std::to_string(value));
      return value == 1;
    } else {
      T value;
      read(&value, sizeof(T));
      return value;
    }
  }
  // The number of items of at least `bytes` bytes each, which must fit into the rest of the file.
  uint64_t take_count(uint64_t bytes) {
    const auto count = take<uint64_t>();
    if (count > left() / bytes) refuse("a length of " + std::to_string(count) + " goes beyond its end");
    return count;
  }

 private:
  static constexpr uint64_t kWindow = 1 << 16;
  const FileDescriptor& file_;
  uint64_t size_, at_ = 0, begin_ = 0;
  std::string window_;
};

template <typename T>
std::vector<T> take_array(Cursor& cursor) {
  std::vector<T> values(cursor.take_count(std::is_same_v<T, std::string> ? 8 : sizeof(T)));
  for (T& value : values) value = cursor.take<T>();
  return values;
}

GgufValue take_value(Cursor& cursor, const std::string& key) {
  auto kind = cursor.take<uint32_t>();
  const bool is_array = kind == kArray;
  if (is_array) kind = cursor.take<uint32_t>();
  if (is_array && kind == kInt32) return take_array<int32_t>(cursor);
  if (is_array && kind == kFloat32) return take_array<float>(cursor);
  if (is_array && kind == kString) return take_array<std::string>(cursor);
  if (!is_array && kind == kUint32) return cursor.take<uint32_t>();
  if (!is_array && kind == kFloat32) return cursor.take<float>();
  if (!is_array && kind == kBool) return cursor.take<bool>();
  if (!is_array && kind == kString) return cursor.take<std::string>();
  cursor.refuse("key " + shown_name(key) + " has the unsupported kind " + std::to_string(kind) +
                (is_array ? ", an array" : ""));
}

// `begin` is counted from the first tensor's elements.
SafetensorsTensor take_tensor(Cursor& cursor) {
  SafetensorsTensor tensor{.name = cursor.take<std::string>(), .shape = {}};
  const std::string name = "tensor " + shown_name(tensor.name) + ": ";
  if (tensor.name.empty() || tensor.name.size() > kLongestGgufName)
    cursor.refuse(name + "its name is empty or too long");
  const auto dims = cursor.take<uint32_t>();
  if (dims > kMostGgufDims) cursor.refuse(name + "it has " + std::to_string(dims) + " dims");
  for (uint32_t dim = 0; dim < dims; ++dim) tensor.shape.push_back(cursor.take<uint64_t>());
  std::ranges::reverse(tensor.shape);
  const auto number = cursor.take<uint32_t>();
  const SafetensorsType types[] = {SafetensorsType::F32, SafetensorsType::F16, SafetensorsType::BF16};
  const auto* type = std::ranges::find_if(types, [&](SafetensorsType known) { return number_of(known) == number; });
  if (type == std::end(types)) {
    cursor.refuse(name + "it has type " + std::to_string(number) + ", but only F32, F16 and BF16 are supported");
  }
  tensor.type = *type;
  tensor.begin = cursor.take<uint64_t>();
  uint64_t bytes = size_of(tensor.type);
  for (const uint64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) cursor.refuse(name + tensor.shape_text() + " overflows");
  }
  return tensor;
}

}  // namespace

GgufWriter::GgufWriter(const std::string& path, const std::vector<GgufEntry>& entries,
                       const std::vector<SafetensorsTensor>& tensors)
    : file_(FileDescriptor::create(path)) {
  Header header;
  for (const char letter : kMagic) header.add(letter);
  header.add(kVersion);
  header.add(static_cast<uint64_t>(tensors.size()));
  header.add(static_cast<uint64_t>(entries.size()));
  std::set<std::string> names;
  for (const GgufEntry& entry : entries) {
    CHECK(names.insert(entry.first).second, "key ", entry.first, " appears twice");
    header.add_entry(entry);
  }
  uint64_t at = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    CHECK(names.insert("tensor " + tensor.name).second, "tensor ", tensor.name, " appears twice");
    CHECK(tensor.name.size() <= kLongestGgufName && tensor.shape.size() <= kMostGgufDims, tensor.name);
    header.add(tensor.name);
    header.add(static_cast<uint32_t>(tensor.shape.size()));
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) header.add(*extent);
    header.add(number_of(tensor.type));
    header.add(at);
    at += padded(tensor.bytes());
    bytes_.push_back(tensor.bytes());
  }
  const std::string& bytes = header.pad();
  file_.append(bytes.data(), bytes.size());
  if (!bytes_.empty()) left_ = bytes_[0];
}

void GgufWriter::append(const void* data, uint64_t bytes) {
  CHECK(tensor_ < bytes_.size() && bytes <= left_, bytes, " bytes are appended, but ", left_, " are left");
  file_.append(data, static_cast<size_t>(bytes));
  left_ -= bytes;
  if (left_ == 0) next_tensor();
}

void GgufWriter::next_tensor() {
  constexpr char kZeros[kGgufAlignment] = {};
  file_.append(kZeros, padded(bytes_[tensor_]) - bytes_[tensor_]);
  ++tensor_;
  left_ = tensor_ < bytes_.size() ? bytes_[tensor_] : 0;
}

void GgufWriter::finish() {
  CHECK(tensor_ == bytes_.size(), file_.path(), ": ", bytes_.size() - tensor_, " tensors were not appended");
  file_.sync();
  file_.close();
}

GgufFile::GgufFile(const std::string& path) : file_(FileDescriptor::open_for_reading(path)) {
  Cursor cursor(file_);
  char magic[sizeof(kMagic)];
  cursor.read(magic, sizeof(magic));
  if (std::memcmp(magic, kMagic, sizeof(magic)) != 0) cursor.refuse("it does not begin with GGUF");
  const auto version = cursor.take<uint32_t>();
  if (version != kVersion) cursor.refuse("it has version " + std::to_string(version) + ", but only 3 is supported");
  const auto tensors = cursor.take<uint64_t>(), entries = cursor.take<uint64_t>();
  if (tensors > kMostTensors || entries > kMostEntries) {
    cursor.refuse("its header says " + std::to_string(tensors) + " tensors and " + std::to_string(entries) + " keys");
  }
  for (uint64_t i = 0; i < entries; ++i) {
    const auto key = cursor.take<std::string>();
    if (!entries_.emplace(key, take_value(cursor, key)).second)
      cursor.refuse("key " + shown_name(key) + " appears twice");
  }
  if (entries_.contains("general.alignment")) cursor.refuse("it sets general.alignment, which is not supported");
  std::set<std::string> names;
  for (uint64_t i = 0; i < tensors; ++i) {
    tensors_.push_back(take_tensor(cursor));
    if (!names.insert(tensors_.back().name).second) {
      cursor.refuse("tensor " + shown_name(tensors_.back().name) + " appears twice");
    }
  }
  std::ranges::sort(tensors_, {}, &SafetensorsTensor::begin);
  const uint64_t first = padded(cursor.at()), size = file_.size();
  uint64_t at = 0;  // offset in the elements
  for (SafetensorsTensor& tensor : tensors_) {
    if (tensor.begin != at) {
      cursor.refuse("tensor " + shown_name(tensor.name) + " begins at byte " + std::to_string(tensor.begin) +
                    " of the elements, but the previous one ends at " + std::to_string(at));
    }
    if (first > size || at > size - first || tensor.bytes() > size - first - at) {
      cursor.refuse("tensor " + shown_name(tensor.name) + " " + tensor.shape_text() + " goes beyond its end");
    }
    at += padded(tensor.bytes());
    tensor.begin += first;
  }
}

}  // namespace shiftron
