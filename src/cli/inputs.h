// What commands that read texts share: the option --input, and how its files were read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "data/documents.h"

namespace shiftron::cli {

CommandOption input_files();
CommandOption document_separator();  // as DocumentFormat::separator, after unescape()
// A warning if a file is named twice, by the same or another name; otherwise empty.
std::string repeated_inputs(const std::vector<std::string>& paths);
// Throws Error(bad_input) if the file --output cannot be written, or is one of the inputs: this should fail before the
// work, not after it.
void refuse_as_output(const std::string& output, const std::vector<InputFile>& inputs);
// "3 files read as JSONL, 1 as text".
std::string inputs_text(const std::vector<InputFile>& inputs);
nlohmann::ordered_json inputs_json(const std::vector<InputFile>& inputs);

}  // namespace shiftron::cli
