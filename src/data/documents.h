// Documents of text and JSONL files, one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shiftron {

struct DocumentFormat {
  std::string separator;          // of text files; empty = the file is one document
  std::string text_key = "text";  // of JSONL lines
};

// Reads `files` in order; each document goes to `take`, with the bytes of all files read so far. Files that end in
// .jsonl or .ndjson hold one JSON object a line; blank lines are skipped. Empty documents are given too.
// Throws Error(bad_input) with file and line: missing file, bad JSON, missing or wrong key.
void read_documents(const std::vector<std::string>& files, const DocumentFormat& format,
                    const std::function<void(std::string_view text, uint64_t bytes_read)>& take);

// Whether the file's name says that it is JSONL.
bool is_jsonl(const std::string& path);

// Bytes of all files. Throws Error(bad_input) for a missing or empty list or a missing file.
uint64_t total_bytes(const std::vector<std::string>& files);

// "\n", "\t", "\r", "\\", "\0" as typed on a command line → the characters.
std::string unescape(const std::string& text);

}  // namespace shiftron
