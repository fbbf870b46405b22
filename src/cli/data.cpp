// `shiftron data build | inspect | verify`.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/built_datasets.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "core/check.h"
#include "core/foreign_text.h"
#include "core/log.h"
#include "data/build.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/verify.h"

namespace shiftron::cli {
namespace {

// Options of every command that makes a dataset; see read_dataset_options().
std::vector<CommandOption> dataset_options() {
  return {required(text_option("output", "DIR", "new or empty directory")), validation_fraction(), pack_length(),
          shard_tokens(),
          integer_option("threads", "threads that tokenize; 0 = all processors that this process may use",
                         between(0, 4096), "0")};
}

void read_dataset_options(const CommandLine& line, DatasetOutput& options) {
  options.output = line.text("output");
  options.validation_fraction = line.real("validation-fraction");
  options.pack = line.integer("pack");
  options.shard_tokens = line.integer("shard-tokens");
  options.threads = thread_count(static_cast<int>(line.integer("threads")));
}

std::vector<CommandOption> build_options() {
  const BuildOptions build;
  std::vector<CommandOption> options = {
      input_files(),
      text_option("tokenizer", "FILE", "tokenizer model from `tokenizer train`; optional with --ids"),
      document_separator(),
      text_option("text-key", "KEY", "JSON key of the text in JSONL lines", build.text_key),
      flag("ids",
           "the inputs are not text but JSONL of {\"ids\": [...]} or {\"ids\": [...], \"targets\": [... or null]}"),
      integer_option("vocab", "vocabulary size, for --ids without --tokenizer", between(2, INT32_MAX)),
      integer_option("end-of-document", "id appended to each document, for --ids without --tokenizer",
                     between(0, INT32_MAX)),
      integer_option("seed", "random seed of the document order", at_least(0), "0")};
  for (CommandOption& option : dataset_options()) options.push_back(std::move(option));
  options.push_back(json_flag());
  return options;
}

// Reads what the ids mean, from every combination of --ids, --tokenizer, --vocab and --end-of-document.
void read_vocabulary(const CommandLine& line, BuildOptions& build) {
  build.ids = line.has("ids");
  build.tokenizer = line.text("tokenizer");
  for (const char* of_text : {"text-key", "document-separator"}) {
    if (build.ids && line.has(of_text))
      throw_bad_input("--", of_text, " only applies to text, but --ids reads ids; omit it");
  }
  for (const char* of_ids : {"vocab", "end-of-document"}) {
    if (line.has(of_ids) && !build.ids)
      throw_bad_input("--", of_ids, " only applies with --ids; for text, the tokenizer defines it");
    if (line.has(of_ids) && line.has("tokenizer")) {
      throw_bad_input("--", of_ids, " is already defined by --tokenizer ", build.tokenizer, "; omit one of them");
    }
    if (!line.has(of_ids) && build.ids && !line.has("tokenizer")) {
      throw_bad_input("--ids needs --vocab N and --end-of-document I, or --tokenizer FILE, which defines both");
    }
  }
  if (!build.ids && build.tokenizer.empty()) {
    throw_bad_input(
        "--tokenizer is missing; make one with `shiftron tokenizer train`, or give --ids if the inputs already are "
        "ids");
  }
  build.vocabulary = {line.integer("vocab"), static_cast<int32_t>(line.integer("end-of-document")), ""};
}

void report_build(const CommandLine& line, const BuildResult& result) {
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()},
                                   {"was_there", result.was_there},
                                   {"empty_documents", result.empty_documents},
                                   {"foreign_bytes", result.foreign_bytes},
                                   {"inputs", inputs_json(result.inputs)}};
    for (const BuiltDataset& dataset : result.datasets) json["datasets"].push_back(to_json(dataset));
    return print_json(json);
  }
  std::cout << inputs_text(result.inputs) << "\n";
  if (result.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
  for (const BuiltDataset& dataset : result.datasets) std::cout << to_text(dataset);
  if (result.empty_documents > 0) std::cout << result.empty_documents << " empty documents skipped\n";
  if (result.foreign_bytes > 0) {
    std::cout << result.foreign_bytes
              << " bytes of the texts are NUL or not UTF-8; each is kept as a token of its own\n";
  }
}

int build(const CommandLine& line) {
  BuildOptions build;
  build.inputs = line.texts("input");
  read_vocabulary(line, build);
  read_dataset_options(line, build);
  build.document_separator = unescape(line.text("document-separator"));
  build.text_key = line.text("text-key");
  build.seed = static_cast<uint64_t>(line.integer("seed"));
  ignore_write_signals();
  if (const std::string warning = repeated_inputs(build.inputs); !warning.empty()) {
    print_to_stderr("data build: warning: " + warning);
  }
  build_dataset(build, {}, [&](const BuildResult& result) {
    report_build(line, result);
    std::cout.flush();
  });
  return 0;
}

std::vector<CommandOption> directory_options() {
  return {directories("the dataset"), json_flag()};
}

// null if there is no tokenizer.
nlohmann::ordered_json tokenizer_hash(const ShardHeader& header) {
  return header.tokenizer_hash.empty() ? nullptr : nlohmann::ordered_json(header.tokenizer_hash);
}

int inspect_data(const CommandLine& line) {
  const std::string directory = line.text("directory");
  const Dataset dataset(directory);
  const DatasetDescription& description = dataset.description();
  nlohmann::ordered_json json = {
      {"directory", directory},
      {"fingerprint", dataset.fingerprint()},
      {"documents", description.documents()},
      {"tokens", description.tokens()},
      {"text_bytes", description.text_bytes},
      {"vocab_size", description.header.vocab_size},
      {"end_of_document", description.header.end_of_document},
      {"tokenizer_hash", tokenizer_hash(description.header)},
      {"targets", description.header.has_targets},
      {"counted_targets", counted_json(description.header.has_targets, description.counted_targets())},
      {"pack", description.header.pack},
      {"token_type", to_string(description.header.token_type())},
      {"source", description.header.source},
      {"shards", nlohmann::ordered_json::array()}};
  for (const ShardRecord& shard : description.shards) {
    json["shards"].push_back({{"file", shard.file},
                              {"bytes", shard.bytes},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents},
                              {"xxh3_128", shard.xxh3_128}});
  }
  if (line.has("json")) {
    print_json(json);
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "shards" || value.is_null()) continue;
    std::cout << key << ": " << (value.is_string() ? printable_value(value.get<std::string>()) : value.dump()) << "\n";
  }
  if (!description.header.tokenizer_hash.empty()) {
    std::cout << "bytes per token: "
              << static_cast<double>(description.text_bytes) / static_cast<double>(description.tokens()) << "\n";
  }
  for (const ShardRecord& shard : description.shards) {
    std::cout << printable_line(shard.file) << ": " << shard.tokens << " tokens, " << shard.documents << " documents, "
              << shard.bytes << " bytes\n";
  }
  return 0;
}

int verify_data(const CommandLine& line) {
  const std::string directory = line.text("directory");
  const VerifyResult result = verify_dataset(directory);
  if (line.has("json")) {
    print_json({{"directory", directory},
                {"valid", result.faults.empty()},
                {"shards", result.shards},
                {"tokens", result.tokens},
                {"documents", result.documents},
                {"faults", result.faults},
                {"notes", result.notes}});
  } else {
    for (const std::string& note : result.notes) std::cout << "note: " << printable_value(note) << "\n";
    for (const std::string& fault : result.faults) std::cout << printable_value(fault) << "\n";
    if (result.faults.empty()) {
      std::cout << directory << ": no fault; " << result.shards << " shards, " << result.documents << " documents, "
                << result.tokens << " tokens\n";
    }
  }
  return static_cast<int>(result.faults.empty() ? ExitCode::done : ExitCode::bad_input);
}

}  // namespace

std::vector<Command> data_commands() {
  return {{"data", "build", "makes a dataset from text or token ids", "--input FILE… --tokenizer FILE --output DIR",
           build_options(), false, build,
           "shiftron data build --input text/*.jsonl --tokenizer tokenizer.model --output data"},
          {"data", "inspect", "shows a dataset's content", "DIR", directory_options(), false, inspect_data,
           "shiftron data inspect data/train"},
          {"data", "verify", "checks every hash, token and document boundary of a dataset", "DIR", directory_options(),
           false, verify_data, "shiftron data verify data/train"}};
}

}  // namespace shiftron::cli
