// Chooses the format of a token file.
#include "data/token_files/format.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "core/shell_word.h"
#include "data/token_files/datatrove.h"
#include "data/token_files/llm_c.h"
#include "data/token_files/megatron.h"
#include "data/token_files/npy.h"
#include "data/token_files/raw_tokens.h"

namespace shiftron {
namespace {

constexpr size_t kLooked = 16;  // bytes of a file that may be a magic number

std::string beginning_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return "";  // a prefix, or what open() reports
  std::string begin(kLooked, '\0');
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  begin.resize(file.read_some(begin.data(), begin.size()));
  return begin;
}

const TokenFormat* recognised(const std::string& path, std::string_view begin) {
  const auto found =
      std::ranges::find_if(token_formats(), [&](const TokenFormat& format) { return format.recognises(path, begin); });
  return found == token_formats().end() ? nullptr : &*found;
}

constexpr char kRawAdvice[] =
    "if it holds nothing but tokens (nanoGPT's .bin, OLMo-core's .npy), give --format raw --dtype u16 (or u32)";

}  // namespace

const std::vector<TokenFormat>& token_formats() {
  static const std::vector<TokenFormat> formats = {
      {"megatron", "Megatron-LM's .bin and .idx", is_megatron, open_megatron_tokens},
      {"datatrove", "datatrove's and nanotron's .ds and .ds.index", is_datatrove, open_datatrove},
      {"llmc", "llm.c's .bin", is_llm_c, open_llm_c},
      {"npy", "NumPy's .npy", is_npy, open_npy},
      {"raw", "nothing but tokens", is_raw, open_raw},
  };
  return formats;
}

TokenFile open_token_file(const std::string& path, const std::string& format, std::optional<TokenElement> element) {
  const auto open = [&](const TokenFormat& found) {
    TokenFile file = found.open(path, element);
    file.format = found.name;
    return file;
  };
  if (!format.empty()) {
    const auto found = std::ranges::find(token_formats(), format, &TokenFormat::name);
    CHECK(found != token_formats().end(), "no format ", format);
    const TokenFormat* const marked = recognised("", beginning_of(path));  // by its content alone
    if (marked != nullptr && marked->name != format) {
      throw_bad_input(path, " begins with the mark of --format ", marked->name, " (", marked->what, "), not ", format,
                      "; omit --format");
    }
    return open(*found);
  }
  if (const TokenFormat* const found = recognised(path, beginning_of(path))) return open(*found);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    throw_bad_input(path, " does not exist, and neither do ", path, ".bin and ", path, ".idx");
  }
  if (std::filesystem::is_directory(path, error)) throw_bad_input(path, " is a directory; name the files in it");
  throw_bad_input(path, " has no mark of a known format; ", kRawAdvice,
                  "; Megatron-LM's .bin needs its .idx next to it, datatrove's .ds its .ds.index");
}

void refuse_tokens_as_text(const std::string& path, std::string_view begin) {
  const auto refuse = [&](const std::string& what, const std::string& options) {
    throw_bad_input(path, " holds ", what, ", not text; import it: shiftron data import ", options, shell_word(path),
                    " --vocab N --end-of-document I --output DIR");
  };
  if (const TokenFormat* const found = recognised(path, begin.substr(0, kLooked))) {
    refuse(std::string("tokens (") + found->what + ")", "");
  }
  const auto ends_with = [&](const char* ending) { return path.ends_with(ending); };
  const bool is_named = ends_with(".bin") || ends_with(".ds") || ends_with(".npy") || ends_with(".idx");
  if (is_named && begin.find('\0') != std::string_view::npos) {
    refuse("binary numbers", "--format raw --dtype u16 ");
  }
}

}  // namespace shiftron
