// `shiftron data build | inspect | verify`.
#include <iostream>
#include <nlohmann/json.hpp>

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

std::vector<CommandOption> build_options() {
  const BuildOptions build;
  return {input_files(),
          required(text_option("tokenizer", "FILE", "the model, as `tokenizer train` makes it")),
          required(text_option("output", "DIR", "new or empty directory")),
          document_separator(),
          text_option("text-key", "KEY", "key of the text in JSONL lines", build.text_key),
          real_option("validation-fraction",
                      "share of the documents, by their hash, that go to DIR/validation; the others go to DIR/train",
                      {.low = 0, .high = 1, .high_open = true}, "0"),
          whole_option("shard-tokens", "tokens in a shard, about", at_least(1), std::to_string(build.shard_tokens)),
          whole_option("seed", "of the order of the documents", at_least(0), "0"),
          whole_option("threads", "that tokenize, 0 = processors that this process may use", between(0, 4096), "0"),
          json_flag()};
}

void tell_build(const CommandLine& line, const BuildResult& result) {
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()},
                                   {"was_there", result.was_there},
                                   {"empty_documents", result.empty_documents},
                                   {"foreign_bytes", result.foreign_bytes},
                                   {"inputs", inputs_json(result.inputs)}};
    for (const BuiltDataset& dataset : result.datasets) {
      json["datasets"].push_back({{"directory", dataset.directory},
                                  {"documents", dataset.documents},
                                  {"tokens", dataset.tokens},
                                  {"text_bytes", dataset.text_bytes},
                                  {"shards", dataset.shards},
                                  {"fingerprint", dataset.fingerprint}});
    }
    return print_json(json);
  }
  std::cout << inputs_text(result.inputs) << "\n";
  if (result.was_there) std::cout << "an earlier build of these files, which was killed, had finished:\n";
  for (const BuiltDataset& dataset : result.datasets) {
    std::cout << dataset.directory << ": " << dataset.documents << " documents, " << dataset.tokens << " tokens, "
              << dataset.text_bytes << " bytes of text, " << dataset.shards << " shards, fingerprint "
              << dataset.fingerprint << "\n";
  }
  if (result.empty_documents > 0) std::cout << result.empty_documents << " empty documents left out\n";
  if (result.foreign_bytes > 0) {
    std::cout << result.foreign_bytes
              << " bytes of the texts are NUL or no UTF-8; they are kept, each as a token of its own\n";
  }
}

int build(const CommandLine& line) {
  BuildOptions build;
  build.inputs = line.texts("input");
  build.tokenizer = line.text("tokenizer");
  build.output = line.text("output");
  build.document_separator = unescape(line.text("document-separator"));
  build.text_key = line.text("text-key");
  build.validation_fraction = line.real("validation-fraction");
  build.shard_tokens = line.integer("shard-tokens");
  build.seed = static_cast<uint64_t>(line.integer("seed"));
  build.threads = thread_count(static_cast<int>(line.integer("threads")));
  outlive_failing_writes();
  if (const std::string warning = repeated_inputs(build.inputs); !warning.empty()) {
    tell("data build: warning: " + warning);
  }
  build_dataset(build, {}, [&](const BuildResult& result) {
    tell_build(line, result);
    std::cout.flush();
  });
  return 0;
}

std::vector<CommandOption> directory_options() {
  return {directories("the dataset"), json_flag()};
}

int inspect_data(const CommandLine& line) {
  const std::string directory = line.text("directory");
  const Dataset dataset(directory);
  const DatasetDescription& description = dataset.description();
  nlohmann::ordered_json json = {{"directory", directory},
                                 {"fingerprint", dataset.fingerprint()},
                                 {"documents", description.documents()},
                                 {"tokens", description.tokens()},
                                 {"text_bytes", description.text_bytes},
                                 {"vocab_size", description.header.vocab_size},
                                 {"end_of_document", description.header.end_of_document},
                                 {"tokenizer_hash", description.header.tokenizer_hash},
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
    if (key == "shards") continue;
    std::cout << key << ": " << (value.is_string() ? printable_value(value.get<std::string>()) : value.dump()) << "\n";
  }
  std::cout << "bytes per token: "
            << static_cast<double>(description.text_bytes) / static_cast<double>(description.tokens()) << "\n";
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
                {"faults", result.faults}});
  } else {
    for (const std::string& fault : result.faults) std::cout << printable_value(fault) << "\n";
    if (result.faults.empty()) {
      std::cout << directory << ": whole; " << result.shards << " shards, " << result.documents << " documents, "
                << result.tokens << " tokens\n";
    }
  }
  return static_cast<int>(result.faults.empty() ? ExitCode::done : ExitCode::bad_input);
}

}  // namespace

std::vector<Command> data_commands() {
  return {{"data", "build", "tokenizes text into a dataset of shards", "--input FILE… --tokenizer FILE --output DIR",
           build_options(), false, build},
          {"data", "inspect", "says what a dataset holds", "DIR", directory_options(), false, inspect_data},
          {"data", "verify", "checks every hash, token and document border of a dataset", "DIR", directory_options(),
           false, verify_data}};
}

}  // namespace shiftron::cli
