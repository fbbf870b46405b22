// What commands that read texts share: the option --input, and how its files were read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "data/documents.h"

namespace shiftron::cli {

CommandOption input_files();
CommandOption skip_bad();            // how many broken lines may be left out
CommandOption document_separator();  // as DocumentFormat::separator, after unescape()
// The files that the words of option `name` mean, see input_paths(). Prints notes and a warning about files that are
// named twice, to stderr, after "COMMAND: ".
std::vector<std::string> paths_of_inputs(const CommandLine& line, const std::string& name, const std::string& command);
// A warning if a file is named twice, by the same or another name; otherwise empty.
std::string repeated_inputs(const std::vector<std::string>& paths);
// Throws Error(bad_input) if the file --output cannot be written, or is one of the inputs: this should fail before the
// work, not after it.
void refuse_as_output(const std::string& output, const std::vector<InputFile>& inputs);
// "3 files read as JSONL, 1 as text".
std::string inputs_text(const std::vector<InputFile>& inputs);
// What reading has changed or left out: as lines, one for each kind that occurred, and as members of `json`.
struct ReadingReport {
  uint64_t foreign_bytes = 0;        // NUL or invalid UTF-8
  uint64_t replaced_surrogates = 0;  // became U+FFFD
  uint64_t bad_lines = 0;            // left out
  std::vector<std::string> first_bad{};
  const char* foreign_use = "";  // what happens to foreign bytes
};
std::string to_text(const ReadingReport& report);
void add_to_json(const ReadingReport& report, nlohmann::ordered_json& json);
nlohmann::ordered_json inputs_json(const std::vector<InputFile>& inputs);

}  // namespace shiftron::cli
