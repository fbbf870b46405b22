// Reads the documents of text and JSONL files, one after another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"

namespace shiftron {

struct DocumentFormat {
  std::string separator;          // of text files; empty = the file is one document
  std::string text_key = "text";  // of JSONL lines
};

enum class InputKind { text, jsonl };
constexpr std::array<const char*, 2> names_of(InputKind) {
  return {"text", "jsonl"};
}

struct InputFile {
  std::string path;
  InputKind kind = InputKind::text;
  uint64_t bytes = 0;
};

// The kind of each file: .jsonl and .ndjson hold one JSON object a line, .txt is text; with other names, a first line
// that is a JSON object means JSONL. Throws one Error(bad_input) that lists every file that cannot be read as either:
// missing, a pipe or device, compressed, a known binary format, or JSON of another form. Also throws if there is no
// file.
std::vector<InputFile> recognise_inputs(const std::vector<std::string>& paths);

bool has_kind(const std::vector<InputFile>& files, InputKind kind);

// Throws Error(bad_input) if `format` has a setting that applies to no file of `files`.
void check_format(const std::vector<InputFile>& files, const DocumentFormat& format);

uint64_t total_bytes(const std::vector<InputFile>& files);

// A document as read from a file.
struct TextDocument {
  std::string_view text;
  std::optional<size_t> prompt{};  // bytes at the start that are a prompt, which is not learned; none: all is learned
  const std::string& file;
  int64_t number = 0;       // of its line in JSONL, of the document in a text file; from 1
  uint64_t bytes_read = 0;  // of all files so far

  std::string place() const { return file + ":" + std::to_string(number); }
};

// Reads `files` in order; each document goes to `take`. A line of JSONL has the format's text key, or "prompt" and
// "completion". Blank lines are skipped, empty documents are not. Throws Error(bad_input) with file and line: bad JSON,
// missing or wrong key, a line with text where others have prompts.
void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take);

// Passes on the lines of JSONL unchanged, without blank ones; `text` is the line. Throws Error(bad_input) for other
// files.
void read_lines(const std::vector<InputFile>& files, const std::function<void(const TextDocument&)>& take);

// "\n", "\t", "\r", "\\", "\0" as typed on a command line → the characters.
std::string unescape(const std::string& text);

}  // namespace shiftron
