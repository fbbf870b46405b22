// Reads PREFIX.idx.
#include "data/token_files/megatron.h"

#include <array>
#include <cstring>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "data/token_files/windowed_file.h"

namespace shiftron {
namespace {

constexpr std::array<TokenElement, 8> kTypes = {TokenElement::u8,  TokenElement::i8,  TokenElement::i16,
                                                TokenElement::i32, TokenElement::i64, TokenElement::f64,
                                                TokenElement::f32, TokenElement::u16};  // codes 1 to 8
constexpr char kMegatronAdvice[] = "; copy both files again, or make them again";

struct MegatronHeader {
  std::string index;  // path
  TokenElement element = TokenElement::u16;
  uint64_t sequences = 0, documents = 0;  // entries of the document index
  uint64_t lengths() const { return kMegatronHeader; }
  uint64_t pointers() const { return lengths() + sequences * sizeof(int32_t); }
  uint64_t document_index() const { return pointers() + sequences * sizeof(int64_t); }
  uint64_t end() const { return document_index() + documents * sizeof(int64_t); }
};

bool has_magic(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::string begin(kMegatronMagic.size(), '\0');
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  begin.resize(file.read_some(begin.data(), begin.size()));
  return begin == kMegatronMagic;
}

MegatronHeader read_megatron_header(const std::string& index) {
  const FileDescriptor file = FileDescriptor::open_for_reading(index);
  const uint64_t bytes = file.size();
  std::string head(kMegatronHeader, '\0');
  if (bytes < head.size()) throw_bad_input(index, " has only ", bytes, " bytes, less than a header", kMegatronAdvice);
  file.read_at(0, head.data(), head.size());
  if (!head.starts_with(kMegatronMagic))
    throw_bad_input(index, " is no index of Megatron-LM; it does not begin with MMIDIDX");
  const auto number = [&](size_t at) {
    uint64_t value;
    std::memcpy(&value, head.data() + at, sizeof value);
    return value;
  };
  if (number(9) != 1) throw_bad_input(index, " has version ", number(9), ", but this program reads version 1");
  const auto code = static_cast<uint8_t>(head[17]);
  if (code < 1 || code > kTypes.size())
    throw_bad_input(index, " names the type of tokens ", int{code}, "; known are 1 to 8");
  MegatronHeader header{index, kTypes[code - 1u], number(18), number(26)};
  if (header.sequences > bytes || header.documents > bytes || header.documents < 1 || header.end() > bytes) {
    throw_bad_input(index, " has ", bytes, " bytes, which do not hold ", header.sequences, " sequences and ",
                    header.documents, " entries of the document index", kMegatronAdvice);
  }
  if (header.end() + header.sequences == bytes && header.sequences > 0) {
    throw_bad_input(index, " is the index of multimodal data, which has a mode for each sequence; only text is read");
  }
  if (header.end() != bytes) throw_bad_input(index, " has ", bytes - header.end(), " bytes too many", kMegatronAdvice);
  return header;
}

// A copy that was cut off is refused before anything is read.
void require_last_sequence(const MegatronHeader& header, const std::string& tokens, uint64_t bytes) {
  uint64_t end = 0;
  if (header.sequences > 0) {
    const FileDescriptor file = FileDescriptor::open_for_reading(header.index);
    int32_t length;
    int64_t pointer;
    file.read_at(header.pointers() - sizeof length, &length, sizeof length);
    file.read_at(header.document_index() - sizeof pointer, &pointer, sizeof pointer);
    end = static_cast<uint64_t>(pointer) + static_cast<uint64_t>(length) * size_of(header.element);
  }
  if (end == bytes) return;
  throw_bad_input(tokens, " has ", bytes, " bytes, but the last sequence of ", header.index, " ends at byte ", end,
                  kMegatronAdvice);
}

// A document is one sequence or several, which must lie one after the other in the .bin.
class MegatronEnds : public DocumentEnds {
 public:
  MegatronEnds(const MegatronHeader& header, uint64_t tokens)
      : header_(header),
        tokens_(tokens),
        lengths_(header.index, header.lengths(), header.sequences, sizeof(int32_t)),
        pointers_(header.index, header.pointers(), header.sequences, sizeof(int64_t)),
        documents_(header.index, header.document_index(), header.documents, sizeof(int64_t)) {
    if (documents_.number<int64_t>(0) != 0) fault("its document index does not begin with 0");
  }

  std::optional<uint64_t> next() override {
    if (++document_ == header_.documents) {
      if (sequence_ != header_.sequences) {
        fault("its documents hold ", sequence_, " of ", header_.sequences, " sequences");
      }
      return std::nullopt;
    }
    const auto end = documents_.number<int64_t>(document_);
    if (end < static_cast<int64_t>(sequence_) || end > static_cast<int64_t>(header_.sequences)) {
      fault("document ", document_ - 1, " ends with sequence ", end, " of ", header_.sequences);
    }
    for (; sequence_ < static_cast<uint64_t>(end); ++sequence_) {
      const auto pointer = pointers_.number<int64_t>(sequence_);
      if (pointer != static_cast<int64_t>(end_ * size_of(header_.element))) {
        fault("sequence ", sequence_, " begins at byte ", pointer, " of the .bin, but the sequence before it ends at ",
              end_ * size_of(header_.element), "; sequences must lie one after the other");
      }
      const auto length = lengths_.number<int32_t>(sequence_);
      if (length < 0 || static_cast<uint64_t>(length) > tokens_ - end_) {
        fault("sequence ", sequence_, " has ", length, " tokens, but the .bin has only ", tokens_ - end_, " more");
      }
      end_ += static_cast<uint64_t>(length);
    }
    return end_;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void fault(const Parts&... parts) const {
    throw_bad_input(header_.index, ": ", parts..., kMegatronAdvice);
  }

  MegatronHeader header_;
  uint64_t tokens_;  // in the .bin
  WindowedFile lengths_, pointers_, documents_;
  uint64_t document_ = 0;  // entry of the document index that was read last
  uint64_t sequence_ = 0, end_ = 0;
};

}  // namespace

int megatron_code(TokenElement element) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (kTypes[i] == element) return static_cast<int>(i) + 1;
  }
  return 0;
}

std::string megatron_prefix(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".idx") ? path.substr(0, path.size() - 4) : path;
}

bool is_megatron(const std::string& path, std::string_view begin) {
  if (begin.starts_with(kMegatronMagic)) return true;
  return (begin.empty() || path.ends_with(".bin")) && has_magic(megatron_prefix(path) + ".idx");
}

TokenFile open_megatron_tokens(const std::string& path, std::optional<TokenElement> element) {
  refuse_element(path, "megatron", element);
  const std::string prefix = megatron_prefix(path);
  const MegatronHeader header = read_megatron_header(prefix + ".idx");
  TokenFile file{.path = prefix + ".bin", .format = "", .element = header.element};
  const uint64_t bytes = FileDescriptor::open_for_reading(file.path).size();
  if (bytes % size_of(header.element) != 0) {
    throw_bad_input(file.path, " has ", bytes, " bytes, not a multiple of the ", size_of(header.element), " that a ",
                    to_string(header.element), " takes", kMegatronAdvice);
  }
  file.tokens = bytes / size_of(header.element);
  require_last_sequence(header, file.path, bytes);
  file.ends = [header, tokens = file.tokens] { return std::make_unique<MegatronEnds>(header, tokens); };
  file.files = {header.index, file.path};
  return file;
}

}  // namespace shiftron
