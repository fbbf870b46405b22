// Splits files into documents, a buffer at a time.
#include <algorithm>
#include <utility>

#include "core/check.h"
#include "data/bad_lines.h"
#include "data/byte_source.h"
#include "data/documents.h"
#include "data/json_line.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kLongestDocument = size_t{4} << 30;

// The parts of a file between `separator`s; the part after the last one only if it has bytes or there was no separator
// at all. An empty separator gives the whole file.
class Splitter {
 public:
  // `begin`: byte at which a part begins.
  Splitter(const InputFile& file, std::string separator, uint64_t begin)
      : path_(file.path),
        source_(file.path, file.packing, file.stream),
        separator_(std::move(separator)),
        before_(begin),
        any_(begin > 0),
        has_begun_(begin > 0) {
    if (begin > 0) source_.skip(begin);
  }

  // `part` is valid until the next call. False at the end.
  bool next(std::string_view& part) {
    while (true) {
      if (!separator_.empty()) {
        if (const size_t at = buffer_.find(separator_, searched_); at != std::string::npos) {
          part = std::string_view(buffer_).substr(start_, at - start_);
          start_ = searched_ = at + separator_.size();
          any_ = true;
          return true;
        }
      }
      if (is_at_end_) {
        part = std::string_view(buffer_).substr(start_);
        start_ = buffer_.size();
        return !std::exchange(is_done_, true) && (!part.empty() || !any_);
      }
      fill();
    }
  }

  uint64_t bytes_read() const { return source_.bytes_read(); }
  uint64_t end() const { return before_ + start_; }  // of the part: byte of the unpacked file

 private:
  void fill() {
    buffer_.erase(0, start_);
    before_ += start_;
    start_ = 0;
    searched_ = buffer_.size() < separator_.size() ? 0 : buffer_.size() - separator_.size() + 1;
    const size_t old_size = buffer_.size();
    buffer_.resize(old_size + kPiece);
    const size_t got = source_.read_some(buffer_.data() + old_size, kPiece);
    buffer_.resize(old_size + got);
    is_at_end_ = got == 0;
    if (!std::exchange(has_begun_, true)) {
      before_ = byte_order_mark(buffer_);
      buffer_.erase(0, before_);
    }
    if (buffer_.size() > kLongestDocument) {
      throw_bad_input(path_, ": a document of more than ", kLongestDocument,
                      " bytes; mark where documents end, with --document-separator");
    }
  }

  const std::string& path_;
  ByteSource source_;
  const std::string separator_;
  std::string buffer_;
  uint64_t before_;      // bytes of the unpacked file before the buffer
  size_t start_ = 0;     // of the part
  size_t searched_ = 0;  // no separator begins before it
  bool any_, has_begun_, is_at_end_ = false, is_done_ = false;
};

constexpr char kPrompt[] = "prompt", kCompletion[] = "completion";

// The text of a line and, if the line holds a prompt and a completion, the prompt's length.
std::pair<std::string, std::optional<size_t>> text_of_line(std::string_view line, const std::string& key,
                                                           const std::string& where, uint64_t& replaced) {
  const JsonLine object(line, where);
  const bool is_default = key == DocumentFormat{}.text_key;
  const bool has_text = object.has(key);
  const bool has_prompt = object.has(kPrompt), has_completion = object.has(kCompletion);
  if (has_text && is_default && has_prompt && has_completion) {
    throw_bad_input(where, ": has both \"", key, "\" and \"", kPrompt, "\" with \"", kCompletion,
                    "\"; keep one of them, with jq -c '{", key, "}' or jq -c '{", kPrompt, ", ", kCompletion, "}'");
  }
  if (has_text) return {object.text(key, replaced), std::nullopt};
  if (is_default && has_prompt != has_completion) {
    throw_bad_input(where, ": has \"", has_prompt ? kPrompt : kCompletion, "\" but not \"",
                    has_prompt ? kCompletion : kPrompt, "\"; give both, or name the text's key with --text-key");
  }
  if (is_default && has_prompt) {
    std::string prompt = object.text(kPrompt, replaced);
    const size_t size = prompt.size();
    return {std::move(prompt) + object.text(kCompletion, replaced), size};
  }
  throw_bad_input(where, ": no key \"", key, "\" (it has: ", object.keys(), "); name the text's key with --text-key");
}

// Whether all documents are prompts with completions, or none is.
class OneForm {
 public:
  explicit OneForm(const ReadPosition& begin) : first_(begin.first), has_prompt_(begin.has_prompt) {}

  void require(const TextDocument& document) {
    if (first_.empty()) {
      first_ = document.place();
      has_prompt_ = document.prompt.has_value();
    }
    if (has_prompt_ == document.prompt.has_value()) return;
    const auto form = [](bool has_prompt) { return has_prompt ? "a prompt and a completion" : "text"; };
    throw_bad_input(document.place(), ": holds ", form(!has_prompt_), ", but ", first_, " holds ", form(has_prompt_),
                    "; build a separate dataset from each, and name both in data.train");
  }

 private:
  std::string first_;
  bool has_prompt_;
};

// The parts of all files, as documents whose text is the part. `enough`: whether to stop after so many bytes. Returns
// whether it read everything.
bool read_parts(const std::vector<InputFile>& files, const std::string& separator, const ReadPosition& begin,
                const std::function<void(const InputFile&, const TextDocument&)>& take,
                const std::function<bool(uint64_t)>& enough) {
  uint64_t before = 0;  // bytes of the files before
  for (size_t i = 0; i < std::min(begin.file, files.size()); ++i) before += files[i].bytes;
  for (size_t i = begin.file; i < files.size(); ++i) {
    const InputFile& file = files[i];
    const bool is_jsonl = file.kind == InputKind::jsonl, continues = i == begin.file;
    Splitter splitter(file, is_jsonl ? "\n" : separator, continues ? begin.byte : 0);
    std::string_view part;
    for (int64_t number = continues ? begin.number : 1; splitter.next(part); ++number) {
      const uint64_t bytes = before + splitter.bytes_read();
      if (is_jsonl && is_blank(part)) continue;
      take(file, {.text = part,
                  .file = file.path,
                  .file_number = i,
                  .number = number,
                  .bytes_read = bytes,
                  .end = splitter.end()});
      if (enough(bytes)) return false;
    }
    before += splitter.bytes_read();
  }
  return true;
}

}  // namespace

void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take, BadLines& bad, const ReadPosition& begin) {
  OneForm form(begin);
  const auto read = [&](const InputFile& file, const TextDocument& part) {
    if (file.kind == InputKind::text) {
      if (bad.too_many()) return;
      form.require(part);
      take(part);
      return;
    }
    TextDocument document = part;
    std::pair<std::string, std::optional<size_t>> text;
    try {
      text = text_of_line(part.text, format.text_key, part.place(), document.replaced);
      document.text = text.first;
      document.prompt = text.second;
      form.require(document);
    } catch (const Error& error) {
      bad.add(error.what(), part.bytes_read);
      return;
    }
    if (!bad.too_many()) take(document);
  };
  bad.check(read_parts(files, format.separator, begin, read, [&](uint64_t bytes) { return bad.is_enough(bytes); }));
}

void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take) {
  BadLines none;
  read_documents(files, format, take, none);
}

bool read_lines(const std::vector<InputFile>& files, const std::function<void(const TextDocument&)>& take,
                const BadLines& bad, const ReadPosition& begin) {
  for (const InputFile& file : files) {
    if (file.kind != InputKind::jsonl) {
      throw_bad_input(
          file.path,
          " is not JSONL, but --ids reads lines of {\"ids\": [...]}, and --chat-template lines of {\"messages\": "
          "[...]}; rename such files to .jsonl");
    }
  }
  return read_parts(
      files, "", begin, [&](const InputFile&, const TextDocument& line) { take(line); },
      [&](uint64_t bytes) { return bad.is_enough(bytes); });
}

}  // namespace shiftron
