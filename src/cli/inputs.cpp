// Files of text and JSONL on a command line.
#include "cli/inputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/file.h"

namespace shiftron::cli {

CommandOption input_files() {
  CommandOption option = required(text_option(
      "input", "FILE...",
      "text files (.txt) or JSONL files (.jsonl, .ndjson); other files are JSONL if they begin with an object"));
  option.values = kUnlimited;
  option.takes_rest = true;
  return option;
}

CommandOption document_separator() {
  return text_option(
      "document-separator", "TEXT",
      "text that separates documents in a text file, with escapes \\n \\t \\\\; without it, a file is one document");
}

std::string repeated_inputs(const std::vector<std::string>& paths) {
  std::set<std::filesystem::path> known;
  std::string first;
  size_t repeated = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::filesystem::path file = std::filesystem::canonical(path, error);
    if (error || known.insert(file).second) continue;
    if (repeated++ == 0) first = path;
  }
  if (repeated == 0) return "";
  return fmt::format("{}{} given before, maybe by another name: documents of a file count as often as it is given",
                     first, repeated == 1 ? " was" : fmt::format(" and {} more of --input were", repeated - 1));
}

void refuse_as_output(const std::string& output, const std::vector<InputFile>& inputs) {
  std::error_code ignored;
  if (std::filesystem::is_directory(output, ignored))
    throw_bad_input("--output ", output, " is a directory; give a file in it");
  for (const InputFile& input : inputs) {
    if (!std::filesystem::equivalent(input.path, output, ignored)) continue;
    throw_bad_input("--output ", output, " is also an input and would be replaced; choose another file");
  }
  const std::string trial = output + ".trial-" + std::to_string(::getpid());
  try {
    FileDescriptor::create(trial);
  } catch (const Error& error) {
    throw_unwritable("--output", output, error);
  }
  std::filesystem::remove(trial, ignored);
}

std::string inputs_text(const std::vector<InputFile>& inputs) {
  std::string text;
  for (const InputKind kind : {InputKind::jsonl, InputKind::text}) {
    size_t files = 0;
    for (const InputFile& input : inputs) files += input.kind == kind;
    if (files == 0) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(files) + (files == 1 ? " file" : " files") + " read as " +
            (kind == InputKind::jsonl ? "JSONL" : "text");
  }
  return text;
}

nlohmann::ordered_json inputs_json(const std::vector<InputFile>& inputs) {
  auto list = nlohmann::ordered_json::array();
  for (const InputFile& input : inputs) {
    list.push_back({{"file", input.path}, {"kind", to_string(input.kind)}, {"bytes", input.bytes}});
  }
  return list;
}

}  // namespace shiftron::cli
