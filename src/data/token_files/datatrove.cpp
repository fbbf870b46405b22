// Reads NAME.ds.index and NAME.ds.metadata.
#include "data/token_files/datatrove.h"

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "data/token_files/windowed_file.h"

namespace shiftron {
namespace {

constexpr std::string_view kDatatroveEndings[] = {".ds.index", ".ds.metadata", ".ds.loss", ".ds"};
constexpr char kDatatroveAdvice[] = "; copy the files again, or make them again";

// The path of the tokens; "" if the name is of another form.
std::string tokens_path(const std::string& path) {
  for (const std::string_view ending : kDatatroveEndings) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size()) + ".ds";
  }
  return "";
}

class DatatroveEnds : public DocumentEnds {
 public:
  DatatroveEnds(const std::string& path, uint64_t documents, uint64_t tokens)
      : index_(path, 0, documents, sizeof(uint64_t)), tokens_(tokens) {}

  std::optional<uint64_t> next() override {
    if (document_ == index_.count()) return std::nullopt;
    const auto end = index_.number<uint64_t>(document_);
    if (end < end_ || end > tokens_) {
      throw_bad_input(index_.path(), ": document ", document_, " ends at token ", end, ", but begins at ", end_, " of ",
                      tokens_, kDatatroveAdvice);
    }
    ++document_;
    return end_ = end;
  }

 private:
  WindowedFile index_;
  uint64_t tokens_;
  uint64_t document_ = 0, end_ = 0;
};

// "TOKENIZER|BYTES\n…": the bytes of a token; older versions wrote no "|BYTES", and u16.
std::optional<uint64_t> stated_bytes(const std::string& path) {
  if (!name_exists(path)) return std::nullopt;
  constexpr uint64_t kLongest = 1 << 20;
  const std::string text = read_file(path, kLongest);
  const std::string line = text.substr(0, text.find('\n'));
  const size_t bar = line.rfind('|');
  if (bar == std::string::npos) return std::nullopt;
  const std::string bytes = line.substr(bar + 1);
  if (bytes != "2" && bytes != "4") {
    throw_bad_input(path, ": a token has ", printable(bytes), " bytes; known are 2 and 4", kDatatroveAdvice);
  }
  return bytes == "2" ? 2 : 4;
}

}  // namespace

bool is_datatrove(const std::string& path, std::string_view) {
  const std::string tokens = tokens_path(path);
  return !tokens.empty() && name_exists(tokens) && name_exists(tokens + ".index");
}

TokenFile open_datatrove(const std::string& path, std::optional<TokenElement> element) {
  refuse_element(path, "datatrove", element);
  TokenFile file{.path = tokens_path(path), .format = ""};
  if (file.path.empty()) throw_bad_input(path, " is not named NAME.ds, as files of datatrove are");
  const std::string index = file.path + ".index", loss = file.path + ".loss";
  const uint64_t bytes = FileDescriptor::open_for_reading(file.path).size();
  const FileDescriptor ends = FileDescriptor::open_for_reading(index);
  file.files = {file.path, index};
  if (bytes == 0 && ends.size() == 0) return file;  // of a worker that had no document
  if (ends.size() == 0 || ends.size() % sizeof(uint64_t) != 0) {
    throw_bad_input(index, " has ", ends.size(), " bytes, not 8 for each document", kDatatroveAdvice);
  }
  uint64_t last;
  ends.read_at(ends.size() - sizeof last, &last, sizeof last);
  const std::optional<uint64_t> stated = stated_bytes(file.path + ".metadata");
  const uint64_t width = stated.value_or(last > 0 && bytes == 4 * last ? 4 : 2);
  if (bytes % width != 0 || bytes / width != last) {
    throw_bad_input(index, " says that there are ", last, " tokens, but ", file.path, " has ", bytes, " bytes",
                    stated ? " of " + std::to_string(width) + " each" : ", neither 2 nor 4 for each", kDatatroveAdvice);
  }
  file.element = width == 2 ? TokenElement::u16 : TokenElement::u32;
  file.tokens = last;
  file.ends = [index, documents = ends.size() / sizeof(uint64_t), tokens = last] {
    return std::make_unique<DatatroveEnds>(index, documents, tokens);
  };
  if (name_exists(loss)) {
    const uint64_t masks = FileDescriptor::open_for_reading(loss).size();
    if (masks != last) throw_bad_input(loss, " has ", masks, " bytes for ", last, " tokens", kDatatroveAdvice);
    file.mask = TokenMask{loss};
    file.files.push_back(loss);
  }
  return file;
}

}  // namespace shiftron
