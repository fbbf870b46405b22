// Which files hold text or JSONL, and their documents, one after another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "data/unpacker.h"

namespace shiftron {

class BadLines;
struct OpenedStream;

struct DocumentFormat {
  std::string separator;          // of text files; empty = the file is one document
  std::string text_key = "text";  // of JSONL lines
};

enum class InputKind { text, jsonl };
constexpr std::array<const char*, 2> names_of(InputKind) {
  return {"text", "jsonl"};
}

struct InputFile {
  std::string path;  // as given; "-" = stdin
  InputKind kind = InputKind::text;
  uint64_t bytes = 0;  // of the file; 0 for a pipe
  Packing packing = Packing::none;
  std::shared_ptr<OpenedStream> stream{};  // of a pipe, which can be read once
};

// The kind of each file or pipe: .jsonl and .ndjson hold one JSON object a line, .txt is text; with other names, a
// first line that is a JSON object means JSONL. Of what is packed by gzip, zstd, xz or bzip2, the content and the name
// without its last ending count. Throws one Error(bad_input) that lists every file that cannot be read as either:
// missing, a device, a known binary format, or JSON of another form. Also throws if there is no file.
std::vector<InputFile> recognise_inputs(const std::vector<std::string>& paths);

// The same for one file that its reader cannot unpack: refuses pipes and packed files too, and says how to unpack them.
InputKind kind_of_file(const std::string& path);

// The names of the first files without their folders, and the number of the others: for a dataset's description and
// messages.
std::string names_of_inputs(const std::vector<std::string>& paths);

bool has_kind(const std::vector<InputFile>& files, InputKind kind);

// Throws Error(bad_input) if `format` has a setting that applies to no file of `files`.
void check_format(const std::vector<InputFile>& files, const DocumentFormat& format);

// Bytes to read; 0 if there is a pipe, whose end is unknown.
uint64_t total_bytes(const std::vector<InputFile>& files);
// Bytes of the documents, approximately: a packed file counts several times. For a pipe many.
uint64_t expected_text_bytes(const std::vector<InputFile>& files);

// A document as read from a file.
struct TextDocument {
  std::string_view text;
  std::optional<size_t> prompt{};  // bytes at the start that are a prompt, which is not learned; none: all is learned
  const std::string& file;
  size_t file_number = 0;   // of `files`
  int64_t number = 0;       // of its line in JSONL, of the document in a text file; from 1
  uint64_t bytes_read = 0;  // of all files so far
  uint64_t end = 0;         // byte of the unpacked file at which the next part begins
  uint64_t replaced = 0;    // surrogates without a partner, which became U+FFFD

  std::string place() const { return file + ":" + std::to_string(number); }
};

// Where reading continues: at a part of a file, all before which has been read.
struct ReadPosition {
  size_t file = 0;          // of `files`; their number at the end
  uint64_t byte = 0;        // of the unpacked file
  int64_t number = 1;       // of the part, as in TextDocument
  std::string first = {};   // place() of the first document; empty if none was read
  bool has_prompt = false;  // whether the first document has one
};

// Reads `files` in order, from `begin` on; each document goes to `take`. A line of JSONL has the format's text key, or
// "prompt" and "completion". Blank lines are skipped, empty documents are not. Broken lines (bad JSON, missing or wrong
// key, text where the first line has a prompt) go to `bad`; if these are too many, the rest of the input is only
// checked, and an Error(bad_input) names the first ones. Throws Error(bad_input) for damaged files.
void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take, BadLines& bad,
                    const ReadPosition& begin = {});
// No line may be broken.
void read_documents(const std::vector<InputFile>& files, const DocumentFormat& format,
                    const std::function<void(const TextDocument&)>& take);

// Passes on the lines of JSONL unchanged, without blank ones; `text` is the line. Ends early if `bad`, to which its
// caller adds, has too many, and enough more have been read; returns whether all were. Throws Error(bad_input) for
// other files.
bool read_lines(const std::vector<InputFile>& files, const std::function<void(const TextDocument&)>& take,
                const BadLines& bad, const ReadPosition& begin = {});

// "\n", "\t", "\r", "\\", "\0" as typed on a command line → the characters.
std::string unescape(const std::string& text);

}  // namespace shiftron
