// Safetensors: header by a SAX parser of bounded memory, sizes checked against the file before anything is allocated.
#include "interchange/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/json_reason.h"
#include "interchange/half.h"
#include "kernels/element.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;
constexpr char kMetadata[] = "__metadata__";
constexpr uint64_t kLengthBytes = 8;           // before the header
constexpr uint64_t kMostMetadata = 1'000'000;  // bytes of all keys and values

static_assert(std::endian::native == std::endian::little,
              "the format's numbers are read and written in little-endian order");

bool multiply(uint64_t a, uint64_t b, uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

// {"NAME": {"dtype": T, "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {"KEY": "VALUE"}}; any other
// form is a fault. Needs memory only for what it keeps of the tensors.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  struct Found {
    SafetensorsTensor tensor;
    uint64_t begin = 0, end = 0;  // counted from the first byte after the header
  };
  std::vector<Found> tensors;
  std::map<std::string, std::string> metadata;
  std::string fault;             // the first one
  bool is_unknown_type = false;  // the fault is a type that this program does not know; newer files may have such types

  bool start_object(std::size_t) override {
    if (place_ == Place::start) return enter(Place::top);
    if (place_ == Place::top && name_ == kMetadata) return enter(Place::metadata);
    if (place_ != Place::top || !name_) return unexpected("an object");
    current_ = {};
    current_.tensor.name = *name_;
    has_type_ = has_shape_ = has_offsets_ = false;
    return enter(Place::tensor);
  }
  bool key(string_t& text) override {
    key_ = text;
    if (place_ == Place::metadata) {
      metadata_bytes_ += text.size();
      return (metadata_bytes_ <= kMostMetadata || refuse("__metadata__ is too long")) &&
             (metadata.count(text) == 0 || refuse("key " + shown_name(text) + " appears twice in __metadata__"));
    }
    if (place_ == Place::tensor) return true;
    if (text.size() > kLongestSafetensorsName)
      return refuse("the name " + shown_name(text) + " is longer than 512 bytes");
    if (text.empty()) return refuse("a tensor has no name");
    if (!names_.insert(text).second) return refuse("tensor " + shown_name(text) + " appears twice");
    name_ = text;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::metadata) return enter(Place::top);
    if (place_ == Place::top) return enter(Place::done);
    if (!has_type_ || !has_shape_ || !has_offsets_) {
      return refuse("tensor " + shown_name(*name_) + " needs dtype, shape and data_offsets");
    }
    tensors.push_back(std::move(current_));
    return enter(Place::top);
  }
  bool start_array(std::size_t) override {
    if (place_ != Place::tensor) return unexpected("a list");
    if (key_ == "shape") {
      if (std::exchange(has_shape_, true)) return twice();
      return enter(Place::shape);
    }
    if (key_ != "data_offsets") return unexpected("a list");
    if (std::exchange(has_offsets_, true)) return twice();
    offsets_ = 0;
    return enter(Place::offsets);
  }
  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2)
      return refuse("data_offsets of " + shown_name(*name_) + " must be two numbers");
    return enter(Place::tensor);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      std::vector<uint64_t>& shape = current_.tensor.shape;
      if (shape.size() == kMostSafetensorsDims) return refuse("tensor " + shown_name(*name_) + " has more than 8 dims");
      shape.push_back(value);
      return true;
    }
    if (place_ != Place::offsets) return unexpected("a number");
    if (offsets_ == 2) return refuse("data_offsets of " + shown_name(*name_) + " must be two numbers");
    (offsets_++ == 0 ? current_.begin : current_.end) = value;
    return true;
  }
  bool string(string_t& text) override {
    if (place_ == Place::metadata) {
      metadata_bytes_ += text.size();
      if (metadata_bytes_ > kMostMetadata) return refuse("__metadata__ is too long");
      metadata[key_] = text;
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("a string");
    if (std::exchange(has_type_, true)) return twice();
    const auto names = names_of(SafetensorsType{});
    const auto found = std::ranges::find_if(names, [&](const char* name) { return text == name; });
    if (found == names.end()) {
      is_unknown_type = true;
      return refuse("tensor " + shown_name(*name_) + " has the unknown dtype " + shown_name(text));
    }
    current_.tensor.type = static_cast<SafetensorsType>(found - names.begin());
    return true;
  }
  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected("the number " + shown_name(text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return refuse("its header is not valid JSON: " + json_reason(error));
  }

 private:
  enum class Place { start, top, metadata, tensor, shape, offsets, done };
  bool enter(Place place) {
    place_ = place;
    return true;
  }
  bool refuse(const std::string& text) {
    if (fault.empty()) fault = text;
    return false;
  }
  bool twice() { return refuse("key " + shown_name(key_) + " of tensor " + shown_name(*name_) + " appears twice"); }
  bool unexpected(const std::string& what) {
    std::string where = place_ == Place::start ? "" : " at " + shown_name(key_);
    if (place_ != Place::start && place_ != Place::metadata && name_ && key_ != *name_)
      where += " of " + shown_name(*name_);
    return refuse("its header holds " + what + where + ", which the format does not allow there");
  }

  Place place_ = Place::start;
  std::string key_;
  std::optional<std::string> name_;  // of the tensor being read
  std::set<std::string> names_;
  Found current_;
  bool has_type_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
  uint64_t metadata_bytes_ = 0;
};

// Empty if the tensor's sizes are consistent; changes nothing.
std::string size_fault(const HeaderReader::Found& found) {
  const SafetensorsTensor& tensor = found.tensor;
  uint64_t bytes = 1;  // elements come first, so that [2⁶², 0] is as empty here as in the reference implementation
  bool fits = true;
  for (const uint64_t extent : tensor.shape) fits = fits && multiply(bytes, extent, bytes);
  if (!fits || !multiply(bytes, size_of(tensor.type), bytes)) return "its shape " + tensor.shape_text() + " overflows";
  if (found.end < found.begin || found.end - found.begin != bytes) {
    return "data_offsets [" + std::to_string(found.begin) + ", " + std::to_string(found.end) + "] do not match the " +
           std::to_string(bytes) + " bytes of shape " + tensor.shape_text() + " of " + to_string(tensor.type);
  }
  return "";
}

template <typename Stored, typename To, typename Convert>
void read_as(const FileDescriptor& file, uint64_t offset, uint64_t count, To* to, Convert convert) {
  constexpr uint64_t kPiece = 1 << 16;  // elements
  std::vector<Stored> piece(static_cast<size_t>(std::min(count, kPiece)));
  for (uint64_t done = 0; done < count; done += kPiece) {
    const uint64_t now = std::min(kPiece, count - done);
    file.read_at(offset + done * sizeof(Stored), piece.data(), static_cast<size_t>(now * sizeof(Stored)));
    for (uint64_t i = 0; i < now; ++i) to[done + i] = static_cast<To>(convert(piece[i]));
  }
}

template <typename To>
void read_floats(const FileDescriptor& file, const SafetensorsTensor& tensor, uint64_t first, uint64_t count, To* to) {
  CHECK(first <= tensor.count() && count <= tensor.count() - first, "elements ", first, " to ", first + count, " of ",
        tensor.count());
  const uint64_t offset = tensor.begin + first * size_of(tensor.type);
  const auto same = [](auto value) { return value; };
  switch (tensor.type) {
    case SafetensorsType::F64:
      return read_as<double>(file, offset, count, to, same);
    case SafetensorsType::F32:
      return read_as<float>(file, offset, count, to, same);
    case SafetensorsType::F16:
      return read_as<uint16_t>(file, offset, count, to, half_to_float);
    case SafetensorsType::BF16:
      return read_as<bfloat16>(file, offset, count, to, [](bfloat16 value) { return to_accumulate(value); });
    default:
      require_weight_type(file.path(), tensor);
  }
}

std::string header_of(const std::vector<SafetensorsTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  uint64_t at = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    CHECK(!header.contains(tensor.name), "tensor ", tensor.name, " appears twice");
    header[tensor.name] = {
        {"dtype", to_string(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes()}}};
    at += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // elements begin at a multiple of 8 bytes
  return text;
}

}  // namespace

std::string shown_name(const std::string& name) {
  return Json(name.size() <= 80 ? name : name.substr(0, 77) + "...")
      .dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string dtype_name(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::F64:
      return "float64";
    case SafetensorsType::F32:
      return "float32";
    case SafetensorsType::F16:
      return "float16";
    case SafetensorsType::BF16:
      return "bfloat16";
    default:
      CHECK(false, "weights of ", to_string(type));
  }
}

void require_weight_type(const std::string& path, const SafetensorsTensor& tensor) {
  const SafetensorsType known[] = {SafetensorsType::F64, SafetensorsType::F32, SafetensorsType::F16,
                                   SafetensorsType::BF16};
  if (std::ranges::find(known, tensor.type) != std::end(known)) return;
  throw_bad_input(path, ": tensor ", tensor.name, " has type ", to_string(tensor.type),
                  ", but weights must be F64, F32, F16 or BF16; convert it to one of these");
}

uint64_t size_of(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::F64:
    case SafetensorsType::I64:
    case SafetensorsType::U64:
      return 8;
    case SafetensorsType::F32:
    case SafetensorsType::I32:
    case SafetensorsType::U32:
      return 4;
    case SafetensorsType::F16:
    case SafetensorsType::BF16:
    case SafetensorsType::I16:
    case SafetensorsType::U16:
      return 2;
    default:
      return 1;
  }
}

uint64_t SafetensorsTensor::count() const {
  uint64_t count = 1;
  for (const uint64_t extent : shape) count *= extent;
  return count;
}

std::string SafetensorsTensor::shape_text() const {
  std::string text = "[";
  for (const uint64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(FileDescriptor::open_for_reading(path)) {
  HeaderReader reader;
  const auto refuse = [&](const std::string& fault) {
    throw_bad_input(path, ": ", fault,
                    reader.is_unknown_type ? "; this type is not supported, convert it to F32 or BF16"
                                           : "; it is not a complete safetensors file, download or write it again");
  };
  const uint64_t size = file_.size();
  if (size < kLengthBytes) refuse("it has " + std::to_string(size) + " bytes");
  uint64_t length = 0;
  file_.read_at(0, &length, kLengthBytes);
  if (length > kLargestSafetensorsHeader || length > size - kLengthBytes) {
    refuse("its header claims " + std::to_string(length) + " bytes, but the file has " + std::to_string(size));
  }
  std::string header(static_cast<size_t>(length), '\0');
  file_.read_at(kLengthBytes, header.data(), header.size());
  if (header.empty() || header[0] != '{') refuse("its header does not begin with {");
  if (header.find('\0') != header.npos) refuse("its header holds a zero byte");  // at which the parser would stop
  if (!nlohmann::json::sax_parse(header, &reader) || !reader.fault.empty()) refuse(reader.fault);

  std::ranges::sort(reader.tensors, {}, [](const auto& found) { return std::pair(found.begin, found.end); });
  uint64_t at = 0;  // offset in the elements
  for (HeaderReader::Found& found : reader.tensors) {
    const std::string name = "tensor " + shown_name(found.tensor.name) + ": ";
    if (const std::string fault = size_fault(found); !fault.empty()) refuse(name + fault);
    if (found.begin != at) {
      refuse(name + "begins at byte " + std::to_string(found.begin) + ", but the previous one ends at " +
             std::to_string(at));
    }
    at = found.end;
    found.tensor.begin = kLengthBytes + length + found.begin;
    tensors_.push_back(std::move(found.tensor));
  }
  if (at != size - kLengthBytes - length) {
    refuse("its tensors end at byte " + std::to_string(at) + " after the header, but the file ends at " +
           std::to_string(size - kLengthBytes - length));
  }
  metadata_ = std::move(reader.metadata);
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, float* to) const {
  read_floats(file_, tensor, first, count, to);
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, uint64_t first, uint64_t count, double* to) const {
  read_floats(file_, tensor, first, count, to);
}

void read_elements(const FileDescriptor& file, const SafetensorsTensor& tensor, uint64_t first, uint64_t count,
                   double* to) {
  read_floats(file, tensor, first, count, to);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(FileDescriptor::create(path)) {
  const std::string header = header_of(tensors, metadata);
  const uint64_t length = header.size();
  CHECK(length <= kLargestSafetensorsHeader, "a header of ", length, " bytes");
  file_.append(&length, kLengthBytes);
  file_.append(header.data(), header.size());
  for (const SafetensorsTensor& tensor : tensors) left_ += tensor.bytes();
}

void SafetensorsWriter::append(const void* data, uint64_t bytes) {
  CHECK(bytes <= left_, bytes, " bytes are appended, but ", left_, " are left");
  file_.append(data, static_cast<size_t>(bytes));
  left_ -= bytes;
}

void SafetensorsWriter::finish() {
  CHECK(left_ == 0, file_.path(), ": ", left_, " bytes were not appended");
  file_.sync();
  file_.close();
}

}  // namespace shiftron
