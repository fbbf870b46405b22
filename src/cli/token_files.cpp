// `shiftron data import | export`.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/built_datasets.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/tokenizer_options.h"
#include "core/check.h"
#include "core/log.h"
#include "data/token_files/format.h"
#include "data/token_files/import.h"
#include "data/token_files/megatron_export.h"

namespace shiftron::cli {
namespace {

std::vector<std::string> element_names() {
  const auto names = names_of(TokenElement{});
  return {names.begin(), names.end()};
}

CommandOption element_option(const std::string& help) {
  CommandOption option = text_option("dtype", fmt::format("{}", fmt::join(element_names(), "|")), help);
  option.choices = element_names();
  return option;
}

std::optional<TokenElement> element_of(const CommandLine& line) {
  if (!line.has("dtype")) return std::nullopt;
  return from_string<TokenElement>(line.text("dtype"));
}

// Every value up to the next option.
CommandOption files_option(const std::string& name, const std::string& help) {
  CommandOption option = text_option(name, "FILE...", help);
  option.values = kUnlimited;
  option.takes_rest = true;
  return option;
}

std::vector<CommandOption> token_import_options() {
  CommandOption inputs =
      required(files_option("input", "files of tokens; of Megatron-LM the .bin, the .idx or the prefix"));
  inputs.bare = true;
  CommandOption format = text_option("format", "FORMAT", "");
  format.help = "only needed where nothing marks it";
  for (const TokenFormat& one : token_formats()) {
    format.choices.emplace_back(one.name);
    format.help += std::string("; ") + one.name + ": " + one.what;
  }
  return {inputs,
          required(text_option("output", "DIR", "new or empty directory")),
          format,
          element_option("type of the numbers of --format raw"),
          integer_option("vocab", "vocabulary size; without --tokenizer", between(2, INT32_MAX)),
          text_option("end-of-document", "ID",
                      "id at which documents end; added to those that end without it; with --tokenizer the name of its "
                      "token (default: as its files state)"),
          text_option("tokenizer", "FILE", "tokenizer that made the tokens, if this program can use it"),
          beginning_of_document(),
          files_option("targets",
                       "a .npy of bool or uint8 for each input: 1 for tokens that are learned, 0 for the others"),
          integer_option("shuffle", "shuffle the documents, with this random seed; without it they keep their order",
                         at_least(0)),
          validation_fraction(),
          pack_length(),
          shard_tokens(),
          json_flag()};
}

void read_token_vocabulary(const CommandLine& line, TokenImport& import) {
  import.tokenizer = line.text("tokenizer");
  if (line.has("tokenizer")) {
    if (line.has("vocab")) {
      throw_bad_input("--vocab is already defined by --tokenizer ", import.tokenizer, "; omit one of them");
    }
    import.tokenizer_choice = tokenizer_choice(line);
    import.stored_tokenizer = stored_tokenizer_at(line);
    return;
  }
  if (line.has("beginning-of-document")) {
    throw_bad_input("--beginning-of-document only applies with --tokenizer; omit it");
  }
  if (!line.has("vocab") || !line.has("end-of-document")) {
    throw_bad_input("data import needs --vocab N and --end-of-document I, or --tokenizer FILE, which defines both");
  }
  import.vocabulary.size = line.integer("vocab");
  import.vocabulary.end_of_document = end_of_document_id(line);
}

// "2 files of megatron (u16), 1 of npy (i64)".
std::string files_text(const std::vector<TokenFile>& files) {
  std::map<std::string, int> kinds;
  for (const TokenFile& file : files) ++kinds[fmt::format("{} ({})", file.format, to_string(file.element))];
  std::string text;
  for (const auto& [kind, count] : kinds) {
    text += (text.empty() ? "" : ", ") +
            fmt::format("{} {}of {}", count, text.empty() ? count == 1 ? "file " : "files " : "", kind);
  }
  return text;
}

void report_token_import(const CommandLine& line, const TokenImportResult& result) {
  const DocumentCounts& counts = result.counts;
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()},
                                   {"was_there", result.was_there},
                                   {"empty_documents", counts.empty},
                                   {"split_documents", counts.split},
                                   {"added_ends", counts.open},
                                   {"inputs", nlohmann::ordered_json::array()}};
    for (const BuiltDataset& dataset : result.datasets) json["datasets"].push_back(to_json(dataset));
    for (const TokenFile& file : result.files) {
      json["inputs"].push_back(
          {{"file", file.path}, {"format", file.format}, {"dtype", to_string(file.element)}, {"tokens", file.tokens}});
    }
    print_json(json);
  } else {
    std::cout << files_text(result.files) << "\n";
    if (result.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
    for (const BuiltDataset& dataset : result.datasets) std::cout << to_text(dataset);
    if (counts.empty > 0) std::cout << counts.empty << " empty documents skipped\n";
    if (counts.open > 0) std::cout << "end-of-document token added to " << counts.open << " documents that lacked it\n";
    if (counts.split > 0) {
      std::cout << counts.split
                << " documents had the end-of-document token inside; each was split there, as training would see it\n";
    }
  }
  std::cout.flush();
}

int import_data(const CommandLine& line) {
  TokenImport import;
  import.inputs = line.texts("input");
  import.format = line.text("format");
  import.element = element_of(line);
  if (line.has("targets")) import.masks = line.texts("targets");
  read_token_vocabulary(line, import);
  import.output = line.text("output");
  import.shuffle = line.has("shuffle");
  import.seed = static_cast<uint64_t>(line.integer("shuffle"));
  import.validation_fraction = line.real("validation-fraction");
  import.pack = line.integer("pack");
  import.shard_tokens = line.integer("shard-tokens");
  ignore_write_signals();
  if (const std::string warning = repeated_inputs(import.inputs); !warning.empty()) {
    print_to_stderr("data import: warning: " + warning);
  }
  import_tokens(import, {}, [&](const TokenImportResult& result) { report_token_import(line, result); });
  return 0;
}

std::vector<CommandOption> token_export_options() {
  CommandOption format = required(text_option("format", "megatron", "Megatron-LM's .bin and .idx"));
  format.choices = {"megatron"};
  return {
      directories("the dataset"), format, required(text_option("output", "PREFIX", "writes PREFIX.bin and PREFIX.idx")),
      element_option("type of the tokens; by default Megatron-LM's own choice: u16 below 65,500 tokens, otherwise i32"),
      json_flag()};
}

int export_data(const CommandLine& line) {
  ignore_write_signals();
  const std::string directory = line.text("directory");
  const MegatronExport made = export_megatron(directory, line.text("output"), element_of(line));
  if (line.has("json")) {
    print_json({{"files", made.files},
                {"dtype", to_string(made.element)},
                {"tokens", made.tokens},
                {"documents", made.documents},
                {"sequences", made.sequences},
                {"left_out_targets", made.has_targets}});
    return 0;
  }
  std::cout << fmt::format("{}: {} documents, {} tokens of {}\n", fmt::join(made.files, ", "), made.documents,
                           made.tokens, to_string(made.element));
  if (made.has_targets) std::cout << "note: the format has no targets, so those of " << directory << " are left out\n";
  return 0;
}

}  // namespace

std::vector<Command> token_file_commands() {
  return {
      {"data", "import", "makes a dataset from token files of other programs",
       "FILE... --vocab N --end-of-document I --output DIR", token_import_options(), false, import_data,
       "shiftron data import gpt_text_document.bin --vocab 50257 --end-of-document 50256 --output data"},
      {"data", "export", "writes a dataset as token files of another program", "DIR --format megatron --output PREFIX",
       token_export_options(), false, export_data, "shiftron data export data --format megatron --output tokens"}};
}

}  // namespace shiftron::cli
