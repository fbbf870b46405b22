// Cuts files into documents, a buffer at a time.
#include "data/documents.h"

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"

namespace shiftron {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kLongestDocument = size_t{4} << 30;

// Gives each part of the file between `separator`s to `take`; the part behind the last one only where it has bytes or
// there was no separator at all. An empty separator gives the whole file.
class Splitter {
 public:
  using Take = std::function<void(std::string_view)>;
  Splitter(const std::string& path, std::string separator, uint64_t& bytes_read)
      : file_(FileDescriptor::open_for_reading(path)), separator_(std::move(separator)), bytes_read_(bytes_read) {}

  void run(const Take& take) {
    std::string buffer;
    size_t searched = 0;  // no separator begins before
    bool any = false;
    for (;;) {
      const size_t old_size = buffer.size();
      buffer.resize(old_size + kPiece);
      const size_t got = file_.read_some(buffer.data() + old_size, kPiece);
      buffer.resize(old_size + got);
      bytes_read_ += got;
      size_t start = 0;
      if (!separator_.empty()) {
        for (size_t at; (at = buffer.find(separator_, searched)) != std::string::npos;) {
          take(std::string_view(buffer).substr(start, at - start));
          start = searched = at + separator_.size();
          any = true;
        }
        buffer.erase(0, start);
        searched = buffer.size() < separator_.size() ? 0 : buffer.size() - separator_.size() + 1;
      }
      if (buffer.size() > kLongestDocument) {
        throw_bad_input(file_.path(), ": a document of more than ", kLongestDocument,
                        " bytes; say where documents end with --document-separator");
      }
      if (got == 0) break;
    }
    if (!buffer.empty() || !any) take(buffer);
  }

 private:
  FileDescriptor file_;
  std::string separator_;
  uint64_t& bytes_read_;
};

std::string text_of_line(std::string_view line, const std::string& key, const std::string& where) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    const std::string reason = error.what();  // "[json.exception...] parse error at ...": without the bracket
    const size_t bracket = reason.find("] ");
    throw_bad_input(where, ": not JSON: ", bracket == std::string::npos ? reason : reason.substr(bracket + 2));
  }
  if (!object.is_object()) throw_bad_input(where, ": a JSON ", object.type_name(), ", not an object");
  const auto value = object.find(key);
  if (value == object.end()) {
    std::string keys;
    for (const auto& item : object.items()) keys += (keys.empty() ? "" : ", ") + item.key();
    throw_bad_input(where, ": no key \"", key, "\" (it has: ", keys, "); name the text's key with --text-key");
  }
  if (!value->is_string()) {
    throw_bad_input(where, ": the value of \"", key, "\" is a ", value->type_name(), ", not a string");
  }
  return value->get<std::string>();
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

bool is_jsonl(const std::string& path) {
  return ends_with(path, ".jsonl") || ends_with(path, ".ndjson");
}

void read_documents(const std::vector<std::string>& files, const DocumentFormat& format,
                    const std::function<void(std::string_view, uint64_t)>& take) {
  uint64_t bytes_read = 0;
  for (const std::string& path : files) {
    if (!is_jsonl(path)) {
      Splitter(path, format.separator, bytes_read).run([&](std::string_view text) { take(text, bytes_read); });
      continue;
    }
    int64_t number = 0;
    Splitter(path, "\n", bytes_read).run([&](std::string_view line) {
      ++number;
      if (!is_blank(line)) take(text_of_line(line, format.text_key, path + ":" + std::to_string(number)), bytes_read);
    });
  }
}

uint64_t total_bytes(const std::vector<std::string>& files) {
  if (files.empty()) throw_bad_input("no input file; name at least one with --input");
  uint64_t bytes = 0;
  for (const std::string& path : files) bytes += FileDescriptor::open_for_reading(path).size();
  return bytes;
}

std::string unescape(const std::string& text) {
  constexpr std::string_view kLetters = "ntr0\\";
  constexpr std::string_view kMeant{"\n\t\r\0\\", 5};
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t letter = text[i] == '\\' && i + 1 < text.size() ? kLetters.find(text[i + 1]) : std::string_view::npos;
    if (letter == std::string_view::npos) {
      result += text[i];
    } else {
      result += kMeant[letter];
      ++i;
    }
  }
  return result;
}

}  // namespace shiftron
