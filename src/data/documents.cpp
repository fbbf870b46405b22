// What a file holds, by its name and its first bytes.
#include "data/documents.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/shell_word.h"
#include "data/byte_source.h"
#include "data/json_line.h"
#include "data/token_files/format.h"
#include "tokenizer/utf8.h"

namespace shiftron {
namespace {

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
    {"PAR1", "a Parquet file",
     "pipe its texts: python3 -c 'import json, sys, pyarrow.parquet as p; [print(json.dumps(r)) for b in "
     "p.ParquetFile(sys.argv[1]).iter_batches(columns=[\"text\"]) for r in b.to_pylist()]' FILE | "
     "shiftron data build --input - …, with FILE = "},
    {"\x89HDF", "an HDF5 file", "give the text that it was made from, not "},
    {std::string_view("\xFF\xFE\0\0", 4), "UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8 "},
    {std::string_view("\0\0\xFE\xFF", 4), "UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8 "},
    {"\xFF\xFE", "UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 "},
    {"\xFE\xFF", "UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8 "},
};

constexpr size_t kLooked = size_t{1} << 20;  // bytes of a file that determine its kind

// Whether the first line that is not blank is a JSON object, or begins like one with a key if it may be broken; if it
// is longer than `begin`, its first bytes decide.
bool begins_with_object(std::string_view begin, bool is_whole, bool may_be_broken) {
  while (!begin.empty()) {
    const size_t end = begin.find('\n');
    const std::string_view line = begin.substr(0, end);
    if (!is_blank(line)) {
      const size_t brace = line.find_first_not_of(" \t\r");
      if (line[brace] != '{') return false;
      const size_t key = line.find_first_not_of(" \t", brace + 1);
      if (may_be_broken && key != std::string_view::npos && line[key] == '"') return true;
      if (end == std::string_view::npos && !is_whole) return line.find('"') != std::string_view::npos;
      try {
        static_cast<void>(JsonLine(line, ""));
        return true;
      } catch (const Error&) {
        return false;
      }
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

// `begin`: the first bytes, unpacked.
void refuse_foreign(const std::string& path, std::string_view begin, bool refuses_packed) {
  for (const Foreign& foreign : kForeign) {
    const std::string ending = foreign.ending;
    if (!begin.starts_with(foreign.begin) || (!ending.empty() && !refuses_packed) ||
        begin.substr(std::min(begin.size(), foreign.then_at), foreign.then.size()) != foreign.then) {
      continue;
    }
    throw_bad_input(path, " is ", foreign.name, "; ",
                    ending.empty() ? foreign.advice + shell_word(path)
                                   : "unpack it first: " + unpack_command(foreign.advice, ending, path));
  }
}

// `path` without a packing's ending decides together with `begin`, which is all of the content if `is_whole`.
InputKind kind_of(const std::string& path, std::string_view begin, bool is_whole) {
  refuse_tokens_as_text(path, begin);
  begin.remove_prefix(byte_order_mark(begin));
  const std::string name =
      packing_of_name(path) == Packing::none ? path : std::filesystem::path(path).replace_extension().string();
  const std::string ending = lower_ending(name);
  if (ending == ".jsonl" || ending == ".ndjson") return InputKind::jsonl;
  if (ending == ".txt") return InputKind::text;
  // A broken first line of JSONL must not make all of it one text; JSON of several lines gets advice of its own.
  const bool is_json = ending == ".json", is_object = begins_with_object(begin, is_whole, !is_json);
  if (is_json && !is_object) refuse_json(path, begin);
  return is_object ? InputKind::jsonl : InputKind::text;
}

// The first bytes of what is packed; `begin` is the start of a file, or all of it.
std::string unpacked_begin(const std::string& path, std::string_view begin, Packing packing) {
  const std::unique_ptr<Unpacker> unpacker = Unpacker::make(packing);
  std::string unpacked(kLooked, '\0');
  size_t done = 0;
  try {
    for (bool has_ended = false; done < kLooked && !begin.empty() && !has_ended;) {
      const Unpacker::Step step = unpacker->unpack(begin, unpacked.data() + done, kLooked - done);
      if (step.used == 0 && step.made == 0) break;
      begin.remove_prefix(step.used);
      done += step.made;
      has_ended = step.has_ended && done > 0;  // bgzip and pzstd write empty members
      if (step.has_ended) unpacker->restart();
    }
  } catch (const Error& error) {
    if (done == 0) throw_bad_input(path, " is damaged: ", error.what(), "; fetch it again");
  }  // what is damaged further on is reported with its position when it is read
  unpacked.resize(done);
  return unpacked;
}

std::string read_begin(FileDescriptor& file) {
  std::string begin(kLooked, '\0');
  begin.resize(file.read_some(begin.data(), begin.size()));
  return begin;
}

bool is_pipe(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (is_stdin(path) || std::filesystem::is_fifo(status) || std::filesystem::is_socket(status)) return true;
  if (std::filesystem::is_block_file(status) || std::filesystem::is_character_file(status)) {
    throw_bad_input(path, " is a device; name a file or a pipe");
  }
  return false;
}

InputFile recognise(const std::string& path) {
  InputFile input{.path = is_stdin(path) ? "stdin" : path};
  std::string begin;
  if (is_pipe(path)) {
    input.stream = std::make_shared<OpenedStream>(OpenedStream{FileDescriptor::open_stream(path), ""});
    input.stream->begin = begin = read_begin(input.stream->descriptor);
  } else {
    FileDescriptor file = FileDescriptor::open_for_reading(path);
    input.bytes = file.size();
    begin = read_begin(file);
  }
  bool is_whole = begin.size() < kLooked;
  input.packing = packing_of(begin);
  const Packing promised = packing_of_name(path);
  if (input.packing == Packing::none && promised != Packing::none && begins_packing(begin, promised)) {
    throw_bad_input(path, " has only ", begin.size(), " bytes, too few for a file packed by ", to_string(promised),
                    "; fetch it again");
  }
  if (input.packing != Packing::none) {
    begin = unpacked_begin(path, begin, input.packing);
    is_whole = false;
  }
  refuse_foreign(path, begin, input.packing != Packing::none);
  input.kind = kind_of(path, begin, is_whole);
  return input;
}

}  // namespace

InputKind kind_of_file(const std::string& path) {
  if (is_pipe(path)) throw_bad_input(path, " is a pipe; write its text to a file first");
  FileDescriptor file = FileDescriptor::open_for_reading(path);
  const std::string begin = read_begin(file);
  refuse_foreign(path, begin, true);
  return kind_of(path, begin, begin.size() < kLooked);
}

std::vector<InputFile> recognise_inputs(const std::vector<std::string>& paths) {
  if (paths.empty()) throw_bad_input("no input file; name at least one with --input");
  std::vector<InputFile> inputs;
  std::string faults;
  bool has_stdin = false;
  for (const std::string& path : paths) {
    try {
      if (is_stdin(path) && std::exchange(has_stdin, true)) throw_bad_input("stdin is named twice; name it once");
      inputs.push_back(recognise(path));
    } catch (const Error& error) {
      faults += (faults.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!faults.empty()) throw_bad_input(faults);
  return inputs;
}

std::string names_of_inputs(const std::vector<std::string>& paths) {
  constexpr size_t kMostNames = 20;
  std::string names;
  for (size_t i = 0; i < std::min(paths.size(), kMostNames); ++i) {
    if (i > 0) names += ' ';
    names += is_stdin(paths[i]) ? "stdin" : printable(std::filesystem::path(paths[i]).filename().string());
  }
  if (paths.size() > kMostNames) names += " and " + std::to_string(paths.size() - kMostNames) + " more";
  return names;
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
  for (const InputFile& file : files) {
    if (file.stream != nullptr) return 0;
    bytes += file.bytes;
  }
  return bytes;
}

uint64_t expected_text_bytes(const std::vector<InputFile>& files) {
  constexpr uint64_t kOfPipe = uint64_t{1} << 40, kOfPackedByte = 5;
  uint64_t bytes = 0;
  for (const InputFile& file : files) {
    bytes += file.stream != nullptr ? kOfPipe : file.bytes * (file.packing == Packing::none ? 1 : kOfPackedByte);
  }
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
