// Files of text and JSONL on a command line.
#include "cli/inputs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/input_paths.h"
#include "core/check.h"
#include "core/file.h"
#include "core/file_identity.h"
#include "core/foreign_text.h"
#include "core/log.h"

namespace shiftron::cli {

CommandOption input_files() {
  CommandOption option =
      required(text_option("input", "FILE...",
                           "text (.txt) or JSONL (.jsonl, .ndjson; other files are JSONL if they begin with an "
                           "object), also packed by gzip, "
                           "zstd, xz or bzip2; folders, quoted patterns ('*.gz'), @LIST (a file of names), - (stdin)"));
  option.values = kUnlimited;
  option.takes_rest = true;
  return option;
}

CommandOption skip_bad() {
  return integer_option("skip-bad", "leave out and count up to N broken lines of JSONL; more end the command",
                        at_least(0), "0");
}

CommandOption document_separator() {
  return text_option(
      "document-separator", "TEXT",
      "text that separates documents in a text file, with escapes \\n \\t \\\\; without it, a file is one document");
}

std::vector<std::string> paths_of_inputs(const CommandLine& line, const std::string& name, const std::string& command) {
  InputPaths found = input_paths(line.texts(name));
  for (const std::string& note : found.notes) print_to_stderr(command + ": note: " + note);
  const std::string warning = repeated_inputs(found.paths);
  if (!warning.empty()) print_to_stderr(command + ": warning: " + warning);
  return std::move(found.paths);
}

std::string repeated_inputs(const std::vector<std::string>& paths) {
  std::set<FileIdentity> known;
  std::string first;
  size_t repeated = 0;
  for (const std::string& path : paths) {
    const auto identity = file_identity(path);
    if (!identity || known.insert(*identity).second) continue;
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
    if (input.stream != nullptr || !std::filesystem::equivalent(input.path, output, ignored)) continue;
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

std::string to_text(const ReadingReport& report) {
  std::string text;
  if (report.bad_lines > 0) {
    text += fmt::format("{} broken {} left out{}\n", report.bad_lines, report.bad_lines == 1 ? "line" : "lines",
                        report.first_bad.empty() ? "" : ":");
    for (const std::string& fault : report.first_bad) text += "  " + printable_line(fault) + "\n";
    if (!report.first_bad.empty() && report.bad_lines > report.first_bad.size()) {
      text += fmt::format("  and {} more\n", report.bad_lines - report.first_bad.size());
    }
  }
  if (report.foreign_bytes > 0) {
    text += fmt::format("{} bytes of the texts are NUL or not UTF-8; {}\n", report.foreign_bytes, report.foreign_use);
  }
  if (report.replaced_surrogates > 0) {
    text += fmt::format("{} surrogates without a partner became U+FFFD\n", report.replaced_surrogates);
  }
  return text;
}

void add_to_json(const ReadingReport& report, nlohmann::ordered_json& json) {
  json["foreign_bytes"] = report.foreign_bytes;
  json["replaced_surrogates"] = report.replaced_surrogates;
  json["bad_lines"] = report.bad_lines;
  json["first_bad"] = report.first_bad;
}

nlohmann::ordered_json inputs_json(const std::vector<InputFile>& inputs) {
  auto list = nlohmann::ordered_json::array();
  for (const InputFile& input : inputs) {
    list.push_back({{"file", input.path},
                    {"kind", to_string(input.kind)},
                    {"packing", to_string(input.packing)},
                    {"bytes", input.stream == nullptr ? nlohmann::ordered_json(input.bytes) : nullptr}});
  }
  return list;
}

}  // namespace shiftron::cli
