// Reads the header of llm.c.
#include "data/token_files/llm_c.h"

#include <array>
#include <cstring>

#include "core/check.h"
#include "core/file.h"

namespace shiftron {
namespace {

constexpr size_t kLlmCHeader = 256;  // numbers

struct LlmCKind {
  int32_t magic, version;
  TokenElement element;
};
constexpr LlmCKind kLlmCKinds[] = {{20240520, 1, TokenElement::u16},   // GPT-2
                                   {20240801, 7, TokenElement::u32}};  // Llama 3

const LlmCKind* llm_c_kind(std::string_view begin) {
  int32_t magic = 0;
  if (begin.size() < sizeof magic) return nullptr;
  std::memcpy(&magic, begin.data(), sizeof magic);
  for (const LlmCKind& kind : kLlmCKinds) {
    if (kind.magic == magic) return &kind;
  }
  return nullptr;
}

}  // namespace

bool is_llm_c(const std::string&, std::string_view begin) {
  return llm_c_kind(begin) != nullptr;
}

TokenFile open_llm_c(const std::string& path, std::optional<TokenElement> element) {
  refuse_element(path, "llmc", element);
  const FileDescriptor opened = FileDescriptor::open_for_reading(path);
  std::array<int32_t, kLlmCHeader> header{};
  if (opened.size() < sizeof header)
    throw_bad_input(path, " has only ", opened.size(), " bytes, less than llm.c's header");
  opened.read_at(0, header.data(), sizeof header);
  const LlmCKind* const kind = llm_c_kind({reinterpret_cast<const char*>(header.data()), sizeof header});
  if (kind == nullptr)
    throw_bad_input(path, " does not begin with a magic number of llm.c (", kLlmCKinds[0].magic, ", ",
                    kLlmCKinds[1].magic, ")");
  if (header[1] != kind->version) {
    throw_bad_input(path, " has version ", header[1], " of llm.c's format, but this program reads ", kind->version,
                    "; if its tokens are u16 or u32 after 1,024 bytes, cut these off and give --format raw --dtype");
  }
  const uint64_t bytes = opened.size() - sizeof header, width = size_of(kind->element);
  if (header[2] < 0 || bytes != static_cast<uint64_t>(header[2]) * width) {
    throw_bad_input(path, " holds ", bytes, " bytes of tokens, but its header says ", header[2], " tokens of ", width,
                    " bytes; copy it again, or make it again");
  }
  return {.path = path,
          .format = "",
          .element = kind->element,
          .offset = sizeof header,
          .tokens = static_cast<uint64_t>(header[2]),
          .files = {path}};
}

}  // namespace shiftron
