// Documents of text and JSONL files, one after another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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

// What each file is: .jsonl and .ndjson hold one JSON object a line, .txt is text, of other names a first line that is
// a JSON object says JSONL. Throws one Error(bad_input) that lists every file that cannot be read as either: missing,
// a pipe or device, compressed, a known binary format, or JSON of another form. Throws too where there is no file.
std::vector<InputFile> recognise_inputs(const std::vector<std::string>& paths);

bool has_kind(const std::vector<InputFile>& files, InputKind kind);

// Throws Error(bad_input) where `format` says something that no file of `files` is read by.
void check_format(const std::vector<InputFile>& files, const DocumentFormat& format);

uint64_t total_bytes(const std::vector<InputFile>& files);

// Reads `files` in order; each document goes to `take`, with the bytes of all files read so far. Blank lines of JSONL
// are skipped. Empty documents are given too. Throws Error(bad_input) with file and line: bad JSON, missing or wrong
// key.
void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(std::string_view text, uint64_t bytes_read)>& take);

// "\n", "\t", "\r", "\\", "\0" as typed on a command line → the characters.
std::string unescape(const std::string& text);

}  // namespace shiftron
