// Splits files into documents, a buffer at a time.
#include "data/documents.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/shell_word.h"
#include "data/json_line.h"
#include "data/token_files/format.h"
#include "data/utf8.h"

namespace shiftron {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr size_t kLongestDocument = size_t{4} << 30;

// Passes each part of the file between `separator`s to `take`; the part after the last one only if it has bytes or
// there was no separator at all. An empty separator gives the whole file.
class Splitter {
 public:
  using Take = std::function<void(std::string_view)>;
  Splitter(const std::string& path, std::string separator, uint64_t& bytes_read)
      : file_(FileDescriptor::open_for_reading(path)), separator_(std::move(separator)), bytes_read_(bytes_read) {}

  void run(const Take& take) {
    std::string buffer;
    size_t searched = 0;  // no separator begins before it
    bool any = false, at_begin = true;
    for (;;) {
      const size_t old_size = buffer.size();
      buffer.resize(old_size + kPiece);
      const size_t got = file_.read_some(buffer.data() + old_size, kPiece);
      buffer.resize(old_size + got);
      bytes_read_ += got;
      if (at_begin) buffer.erase(0, byte_order_mark(buffer));
      at_begin = false;
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
                        " bytes; mark where documents end, with --document-separator");
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

constexpr char kPrompt[] = "prompt", kCompletion[] = "completion";

std::string keys_of(const nlohmann::json& object) {
  std::string keys;
  for (const auto& item : object.items()) {
    keys += (keys.empty() ? "" : ", ") + item.key();
    if (keys.size() > 400) break;  // printable() shows no more
  }
  return printable(keys);
}

const std::string& string_at(const nlohmann::json& object, const std::string& key, const std::string& where) {
  const nlohmann::json& value = object.at(key);
  if (!value.is_string()) {
    throw_bad_input(where, ": the value of \"", key, "\" is a ", value.type_name(), ", not a string");
  }
  return value.get_ref<const std::string&>();
}

// The text of a line and, if the line holds a prompt and a completion, the prompt's length.
std::pair<std::string, std::optional<size_t>> text_of_line(std::string_view line, const std::string& key,
                                                           const std::string& where) {
  const nlohmann::json object = json_object(line, where);
  const bool is_default = key == DocumentFormat{}.text_key;
  const bool has_text = object.contains(key);
  const bool has_prompt = object.contains(kPrompt), has_completion = object.contains(kCompletion);
  if (has_text && is_default && has_prompt && has_completion) {
    throw_bad_input(where, ": has both \"", key, "\" and \"", kPrompt, "\" with \"", kCompletion,
                    "\"; keep one of them, with jq -c '{", key, "}' or jq -c '{", kPrompt, ", ", kCompletion, "}'");
  }
  if (has_text) return {string_at(object, key, where), std::nullopt};
  if (is_default && has_prompt != has_completion) {
    throw_bad_input(where, ": has \"", has_prompt ? kPrompt : kCompletion, "\" but not \"",
                    has_prompt ? kCompletion : kPrompt, "\"; give both, or name the text's key with --text-key");
  }
  if (is_default && has_prompt) {
    const std::string& prompt = string_at(object, kPrompt, where);
    return {prompt + string_at(object, kCompletion, where), prompt.size()};
  }
  throw_bad_input(where, ": no key \"", key, "\" (it has: ", keys_of(object), "); name the text's key with --text-key");
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string lower_ending(const std::string& path) {
  std::string ending = std::filesystem::path(path).extension();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending;
}

// Formats that are not text, by their first bytes, with advice.
struct Foreign {
  std::string_view begin;
  const char* name;
  const char* advice;          // for a packer its command
  const char* ending = "";     // of a packer's files
  size_t then_at = 0;          // position of `then` in the file
  std::string_view then = {};  // what must be there, if `begin` alone may begin a text
};
constexpr Foreign kForeign[] = {
    {"\x1F\x8B", "compressed by gzip", "gunzip -k", ".gz"},
    {"\x28\xB5\x2F\xFD", "compressed by zstd", "zstd -d", ".zst"},
    {std::string_view("\xFD"
                      "7zXZ\0",
                      6),
     "compressed by xz", "xz -dk", ".xz"},
    {"BZh", "compressed by bzip2", "bunzip2 -k", ".bz2", 4, "1AY&SY"},
    {"BZh", "compressed by bzip2", "bunzip2 -k", ".bz2", 4, "\x17\x72\x45\x38\x50\x90"},  // empty
    {"PK\x03\x04", "a zip archive", "unpack it first: unzip "},
    {"", "a tar archive", "unpack it first: tar -xf ", "", 257, std::string_view("ustar\0", 6)},
    {"", "a tar archive", "unpack it first: tar -xf ", "", 257, std::string_view("ustar  \0", 8)},  // GNU's
    {"PAR1", "a Parquet file", "write its texts as JSONL first: "},
    {"\x89HDF", "an HDF5 file", "give the text that it was made from, not "},
    {"\xFF\xFE", "UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 "},
    {"\xFE\xFF", "UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 "},
};

constexpr size_t kLooked = size_t{1} << 20;  // bytes of a file that determine its kind

// Whether the first line that is not blank is a JSON object; if it is longer than `begin`, its first bytes decide.
bool begins_with_object(std::string_view begin, bool is_whole) {
  while (!begin.empty()) {
    const size_t end = begin.find('\n');
    const std::string_view line = begin.substr(0, end);
    if (!is_blank(line)) {
      if (line[line.find_first_not_of(" \t\r")] != '{') return false;
      if (end == std::string_view::npos && !is_whole) return line.find('"') != std::string_view::npos;
      return nlohmann::json::accept(line);
    }
    if (end == std::string_view::npos) return false;
    begin.remove_prefix(end + 1);
  }
  return false;
}

// For JSON that is not JSONL.
[[noreturn]] void refuse_json(const std::string& path, std::string_view begin) {
  const size_t first = std::min(begin.find_first_not_of(" \t\r\n"), begin.size());
  const bool is_list = begin.substr(first).starts_with('[');
  if (!is_list && !begin.substr(first).starts_with('{')) {
    throw_bad_input(path, " does not hold JSON objects; rename it to .txt if it is text");
  }
  throw_bad_input(path, " is JSON, but not one object per line; convert it: jq -c ", is_list ? "'.[]' " : ". ",
                  shell_word(path), " > ", shell_word(std::filesystem::path(path).replace_extension(".jsonl")));
}

InputFile recognise(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status) &&
      !std::filesystem::is_regular_file(status)) {
    throw_bad_input(path, " is a pipe or a device; write its text to a file first");
  }
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  InputFile input{.path = path, .bytes = file.size()};
  std::string begin(kLooked, '\0');
  begin.resize(file.read_some(begin.data(), begin.size()));
  for (const Foreign& foreign : kForeign) {
    if (!begin.starts_with(foreign.begin) ||
        begin.compare(std::min(begin.size(), foreign.then_at), foreign.then.size(), foreign.then) != 0) {
      continue;
    }
    const std::string ending = foreign.ending;
    throw_bad_input(path, " is ", foreign.name, "; ",
                    ending.empty() ? foreign.advice + shell_word(path)
                                   : "unpack it first: " + unpack_command(foreign.advice, ending, path));
  }
  refuse_tokens_as_text(path, begin);
  begin.erase(0, byte_order_mark(begin));
  const std::string ending = lower_ending(path);
  if (ending == ".jsonl" || ending == ".ndjson") {
    input.kind = InputKind::jsonl;
  } else if (ending != ".txt") {
    const bool object = begins_with_object(begin, input.bytes < kLooked);
    if (ending == ".json" && !object) refuse_json(path, begin);
    input.kind = object ? InputKind::jsonl : InputKind::text;
  }
  return input;
}

}  // namespace

std::vector<InputFile> recognise_inputs(const std::vector<std::string>& paths) {
  if (paths.empty()) throw_bad_input("no input file; name at least one with --input");
  std::vector<InputFile> inputs;
  std::string faults;
  for (const std::string& path : paths) {
    try {
      inputs.push_back(recognise(path));
    } catch (const Error& error) {
      faults += (faults.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!faults.empty()) throw_bad_input(faults);
  return inputs;
}

bool has_kind(const std::vector<InputFile>& files, InputKind kind) {
  return std::ranges::find(files, kind, &InputFile::kind) != files.end();
}

void check_format(const std::vector<InputFile>& files, const DocumentFormat& format) {
  if (!format.separator.empty() && !has_kind(files, InputKind::text)) {
    throw_bad_input(
        "--document-separator is for text files, but every input is JSONL, one document per line; leave it out");
  }
  if (format.text_key != DocumentFormat{}.text_key && !has_kind(files, InputKind::jsonl)) {
    throw_bad_input("--text-key '", format.text_key,
                    "' is for JSONL files, but every input is text; leave it out, or rename JSONL files to .jsonl");
  }
}

uint64_t total_bytes(const std::vector<InputFile>& files) {
  uint64_t bytes = 0;
  for (const InputFile& file : files) bytes += file.bytes;
  return bytes;
}

namespace {

void lines_of(const InputFile& file, uint64_t& bytes_read, const std::function<void(const TextDocument&)>& take) {
  int64_t number = 0;
  Splitter(file.path, "\n", bytes_read).run([&](std::string_view line) {
    ++number;
    if (!is_blank(line)) take({.text = line, .file = file.path, .number = number, .bytes_read = bytes_read});
  });
}

// Whether all documents are prompts with completions, or none is.
class OneForm {
 public:
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
  bool has_prompt_ = false;
};

}  // namespace

void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take) {
  uint64_t bytes_read = 0;
  OneForm form;
  const auto give = [&](const TextDocument& document) {
    form.require(document);
    take(document);
  };
  for (const InputFile& file : files) {
    if (file.kind == InputKind::text) {
      int64_t number = 0;
      Splitter(file.path, format.separator, bytes_read).run([&](std::string_view text) {
        give({.text = text, .file = file.path, .number = ++number, .bytes_read = bytes_read});
      });
      continue;
    }
    lines_of(file, bytes_read, [&](const TextDocument& line) {
      const auto [text, prompt] = text_of_line(line.text, format.text_key, line.place());
      give({text, prompt, file.path, line.number, bytes_read});
    });
  }
}

void read_lines(const std::vector<InputFile>& files, const std::function<void(const TextDocument&)>& take) {
  for (const InputFile& file : files) {
    if (file.kind != InputKind::jsonl) {
      throw_bad_input(file.path,
                      " is not JSONL, but --ids reads lines of {\"ids\": [...]}; rename such files to .jsonl");
    }
  }
  uint64_t bytes_read = 0;
  for (const InputFile& file : files) lines_of(file, bytes_read, take);
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
