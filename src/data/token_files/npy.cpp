// Reads the header of a .npy.
#include "data/token_files/npy.h"

#include <charconv>
#include <cstring>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"

namespace shiftron {
namespace {

constexpr std::string_view kNpyMagic{"\x93NUMPY", 6};
constexpr char kNpyAdvice[] = "; save it again with numpy.save()";

struct NpyHeader {
  std::string type;  // "<u2"
  uint64_t count = 0;
  uint64_t offset = 0;  // bytes before the array
};

// The text after "'key': " up to `end`.
std::string value_of(const std::string& header, const std::string& key, char end, const std::string& path) {
  const std::string name = "'" + key + "': ";
  const size_t at = header.find(name);
  const size_t last = at == std::string::npos ? at : header.find(end, at + name.size());
  if (last == std::string::npos) throw_bad_input(path, ": no ", key, " in the header of the .npy", kNpyAdvice);
  return header.substr(at + name.size(), last - at - name.size());
}

NpyHeader read_npy_header(const std::string& path) {
  const FileDescriptor file = FileDescriptor::open_for_reading(path);
  const uint64_t bytes = file.size();
  std::string head(static_cast<size_t>(std::min<uint64_t>(bytes, 12)), '\0');
  file.read_at(0, head.data(), head.size());
  if (!head.starts_with(kNpyMagic) || head.size() < 12) {
    throw_bad_input(path,
                    " is no .npy, because it does not begin with NumPy's mark; if it holds nothing but tokens, as "
                    "OLMo-core's files do, give --format raw --dtype u16 (or u32)");
  }
  // Version 1 gives the header's length in 2 bytes, versions 2 and 3 in 4.
  const int version = head[6];
  if (version < 1 || version > 3)
    throw_bad_input(path, " has version ", version, " of .npy; known are 1 to 3", kNpyAdvice);
  const size_t digits = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, head.data() + 8, digits);
  NpyHeader result;
  result.offset = 8 + digits + length;
  constexpr uint32_t kLongest = 1 << 16;
  if (length > kLongest || result.offset > bytes)
    throw_bad_input(path, ": its header of ", length, " bytes is cut off", kNpyAdvice);
  std::string text(length, '\0');
  file.read_at(8 + digits, text.data(), text.size());
  result.type = value_of(text, "descr", ',', path);
  if (result.type.size() >= 2) result.type = result.type.substr(1, result.type.size() - 2);
  const std::string shape = value_of(text, "shape", ')', path);
  const char* const end = shape.data() + shape.size();
  const auto [rest, error] = std::from_chars(shape.data() + (shape.starts_with('(') ? 1 : 0), end, result.count);
  if (error != std::errc() || std::string_view(rest, end) != ",") {
    throw_bad_input(path, " holds an array of shape ", printable(shape),
                    "), but tokens and masks have one dimension; save it again: numpy.save(FILE, array.reshape(-1))");
  }
  return result;
}

void require_size(const std::string& path, const NpyHeader& header, uint64_t width) {
  const uint64_t bytes = FileDescriptor::open_for_reading(path).size() - header.offset;
  if (bytes / width == header.count && bytes % width == 0) return;
  throw_bad_input(path, " holds ", bytes, " bytes, not the ", header.count, " numbers of ", width,
                  " bytes that its header states; copy it again");
}

}  // namespace

bool is_npy(const std::string&, std::string_view begin) {
  return begin.starts_with(kNpyMagic);
}

TokenFile open_npy(const std::string& path, std::optional<TokenElement> element) {
  refuse_element(path, "npy", element);
  const NpyHeader header = read_npy_header(path);
  const std::string& type = header.type;  // "|u1", "<i8": order, kind, bytes
  std::optional<TokenElement> found;
  if (type.size() == 3 && (type[0] == '<' || type[0] == '|') && (type[1] == 'u' || type[1] == 'i')) {
    const char digit = type[2];
    found = from_string<TokenElement>(type[1] + (digit == '1' ? std::string("8") : std::to_string((digit - '0') * 8)));
  }
  if (!found) {
    throw_bad_input(path, " holds numbers of type '", printable(type),
                    "', not little-endian whole numbers; save it again: numpy.save(FILE, array.astype('<u4'))");
  }
  require_size(path, header, size_of(*found));
  return {
      .path = path, .format = "", .element = *found, .offset = header.offset, .tokens = header.count, .files = {path}};
}

TokenMask open_mask(const std::string& path, uint64_t tokens) {
  const NpyHeader header = read_npy_header(path);
  if (header.type != "|b1" && header.type != "|u1" && header.type != "|i1") {
    throw_bad_input(path, " holds '", printable(header.type), "', but a mask is an array of bool or uint8");
  }
  if (header.count != tokens) {
    throw_bad_input(path, " is a mask of ", header.count, " tokens, but its file of tokens has ", tokens,
                    "; give one number for each token");
  }
  require_size(path, header, 1);
  return {path, header.offset};
}

}  // namespace shiftron
