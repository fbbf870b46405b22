// `shiftron data build | inspect | verify`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "cli/built_datasets.h"
#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/tokenizer_options.h"
#include "cli/version.h"
#include "core/check.h"
#include "core/file_identity.h"
#include "core/foreign_text.h"
#include "core/log.h"
#include "data/build.h"
#include "data/dataset.h"
#include "data/document_samples.h"
#include "data/documents.h"
#include "data/verify.h"
#include "tokenizer/load_tokenizer.h"

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

CommandOption validation_files() {
  CommandOption option = text_option("validation-input", "FILE...",
                                     "as --input, for DIR/validation; what --input names goes to DIR/train");
  option.values = kUnlimited;
  option.takes_rest = true;
  return option;
}

std::vector<CommandOption> build_options() {
  const BuildOptions build;
  std::vector<CommandOption> options = {
      input_files(),
      validation_files(),
      text_option("tokenizer", "PATH",
                  "tokenizer.model, tokenizer.json, or a directory with one: also a dataset or a step, whose choices "
                  "about its tokenizer are taken over; optional with --ids"),
      document_separator(),
      skip_bad(),
      flag("deduplicate",
           "keep only the first of documents with the same content; all of --validation-input come first"),
      text_option("text-key", "KEY", "JSON key of the text in JSONL lines", build.text_key),
      text_option(
          "chat-template", "NAME",
          "the inputs are JSONL of {\"messages\": [{\"role\", \"content\"}…]}, and only what the assistant says is "
          "learned; chatml, llama2, llama3, or a file with one of these templates"),
      flag("ids",
           "the inputs are not text but JSONL of {\"ids\": [...]} or {\"ids\": [...], \"targets\": [... or null]}"),
      integer_option("vocab", "vocabulary size, for --ids without --tokenizer", between(2, INT32_MAX)),
      text_option("end-of-document", "TOKEN",
                  "token of the tokenizer that ends each document (default: as its files state); for --ids without "
                  "--tokenizer, its id"),
      beginning_of_document(),
      special_text(),
      integer_option("seed", "random seed of the document order", at_least(0), "0")};
  for (CommandOption& option : dataset_options()) options.push_back(std::move(option));
  options.push_back(json_flag());
  return options;
}

// Reads what the ids mean, from every combination of --ids, --tokenizer, --vocab and --end-of-document.
void read_vocabulary(const CommandLine& line, BuildOptions& build) {
  build.ids = line.has("ids");
  build.tokenizer = line.text("tokenizer");
  build.chat_template = line.text("chat-template");
  for (const char* of_text : {"text-key", "document-separator", "chat-template"}) {
    if (build.ids && line.has(of_text))
      throw_bad_input("--", of_text, " only applies to text, but --ids reads ids; omit it");
    if (line.has(of_text) && line.has("chat-template") && of_text != std::string("chat-template"))
      throw_bad_input("--", of_text, " does not apply to chats, which --chat-template reads; omit it");
  }
  if (line.has("vocab") && !build.ids)
    throw_bad_input("--vocab only applies with --ids; for text, the tokenizer defines it");
  if (line.has("vocab") && line.has("tokenizer"))
    throw_bad_input("--vocab is already defined by --tokenizer ", build.tokenizer, "; omit one of them");
  if (build.ids && !line.has("tokenizer") && !(line.has("vocab") && line.has("end-of-document")))
    throw_bad_input("--ids needs --vocab N and --end-of-document I, or --tokenizer PATH, which defines both");
  for (const char* of_text : {"beginning-of-document", "special-text"}) {
    if (line.has(of_text) && !line.has("tokenizer"))
      throw_bad_input("--", of_text, " only applies with --tokenizer; omit it");
  }
  if (build.ids && line.has("special-text"))
    throw_bad_input("--special-text only applies to text, but --ids reads ids; omit it");
  if (!build.ids && build.tokenizer.empty()) {
    throw_bad_input(
        "--tokenizer is missing; make one with `shiftron tokenizer train`, or give --ids if the inputs already are "
        "ids");
  }
  if (line.has("tokenizer")) {
    build.tokenizer_choice = tokenizer_choice(line);
    build.stored_tokenizer = stored_tokenizer_at(line);
    return;
  }
  build.vocabulary.size = line.integer("vocab");
  build.vocabulary.end_of_document = end_of_document_id(line);
}

void report_build(const CommandLine& line, const BuildResult& result) {
  const ReadingReport report{result.foreign_bytes, result.replaced_surrogates, result.bad_lines, result.first_bad,
                             "each is kept as a token of its own"};
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()},
                                   {"was_there", result.was_there},
                                   {"empty_documents", result.empty_documents},
                                   {"duplicates", result.duplicates},
                                   {"unlearned_chats", result.unlearned_chats}};
    add_to_json(report, json);
    json["inputs"] = inputs_json(result.inputs);
    for (const BuiltDataset& dataset : result.datasets) json["datasets"].push_back(to_json(dataset));
    return print_json(json);
  }
  std::cout << inputs_text(result.inputs) << "\n";
  if (result.was_there) std::cout << "already finished by an earlier run of this command, which was then killed:\n";
  for (const BuiltDataset& dataset : result.datasets) std::cout << to_text(dataset);
  if (result.empty_documents > 0) std::cout << result.empty_documents << " empty documents skipped\n";
  if (result.unlearned_chats > 0) {
    std::cout << result.unlearned_chats << " chats have no message of the assistant, so nothing of them is learned\n";
  }
  if (result.duplicates > 0) std::cout << result.duplicates << " documents equal to an earlier one left out\n";
  std::cout << to_text(report);
}

// A folder may hold both parts. A text that is learned says nothing when it is held out.
void hold_out(BuildOptions& build) {
  std::set<std::optional<FileIdentity>> validation;
  for (const std::string& path : build.validation_inputs) validation.insert(file_identity(path));
  const size_t removed = std::erase_if(build.inputs, [&](const std::string& path) {
    const auto identity = file_identity(path);
    return identity && validation.contains(identity);
  });
  if (removed == 0) return;
  print_to_stderr("data build: note: " + std::to_string(removed) + (removed == 1 ? " file" : " files") +
                  " of --input also named by --validation-input: only in DIR/validation");
}

int build(const CommandLine& line) {
  BuildOptions build;
  build.inputs = paths_of_inputs(line, "input", "data build");
  if (line.has("validation-input")) {
    if (line.has("validation-fraction")) {
      throw_bad_input("--validation-input and --validation-fraction both choose the validation part; give one of them");
    }
    build.validation_inputs = paths_of_inputs(line, "validation-input", "data build");
    hold_out(build);
  }
  build.skip_bad = static_cast<uint64_t>(line.integer("skip-bad"));
  build.deduplicate = line.has("deduplicate");
  read_vocabulary(line, build);
  read_dataset_options(line, build);
  build.document_separator = unescape(line.text("document-separator"));
  build.text_key = line.text("text-key");
  build.seed = static_cast<uint64_t>(line.integer("seed"));
  build.program = commit_text();
  ignore_write_signals();
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

// null if no token begins documents.
nlohmann::ordered_json beginning_of(const ShardHeader& header) {
  const int32_t token = header.tokenizer_settings.beginning_of_document;
  return token < 0 ? nullptr : nlohmann::ordered_json(token);
}

// null without a tokenizer. End tokens count as tokens.
nlohmann::ordered_json bytes_per_token(const DatasetDescription& description) {
  if (description.header.tokenizer_hash.empty() || description.tokens() == 0) return nullptr;
  return static_cast<double>(description.text_bytes) / static_cast<double>(description.tokens());
}

std::vector<CommandOption> inspect_options() {
  std::vector<CommandOption> options = directory_options();
  options.push_back(flag("lengths", "count documents by their length; reads 8 bytes for each document"));
  options.push_back(
      integer_option("samples", "show the beginnings of N documents, at equal distances", between(0, 1000), "0"));
  return options;
}

nlohmann::ordered_json lengths_json(const DocumentLengths& lengths) {
  auto counts = nlohmann::ordered_json::array();
  for (size_t i = 0; i < lengths.counts.size(); ++i) {
    if (lengths.counts[i] == 0) continue;
    counts.push_back({{"from", int64_t{1} << i}, {"to", (int64_t{2} << i) - 1}, {"documents", lengths.counts[i]}});
  }
  return {{"shortest", lengths.shortest}, {"longest", lengths.longest}, {"counts", counts}};
}

void print_lengths(const DocumentLengths& lengths) {
  constexpr double kWidth = 40;  // of the longest bar
  std::cout << "length of documents in tokens, with the end token: " << lengths.shortest << " to " << lengths.longest
            << "\n";
  const int64_t most = *std::ranges::max_element(lengths.counts);
  for (size_t i = 0; i < lengths.counts.size(); ++i) {
    const int64_t count = lengths.counts[i];
    if (count == 0) continue;
    const double bar = std::ceil(kWidth * static_cast<double>(count) / static_cast<double>(most));
    std::cout << fmt::format("  {:>10} to {:<10} {:>12} {}\n", int64_t{1} << i, (int64_t{2} << i) - 1, count,
                             std::string(static_cast<size_t>(bar), '#'));
  }
}

// Without a tokenizer, the ids.
nlohmann::ordered_json samples_json(Dataset& dataset, int64_t count) {
  constexpr int64_t kMostTokens = 128;
  auto list = nlohmann::ordered_json::array();
  if (count == 0) return list;
  std::unique_ptr<const Tokenizer> tokenizer;
  if (dataset.tokenizer().is_there()) tokenizer = make_tokenizer(dataset.tokenizer(), dataset.directory());
  for (const DocumentSample& sample : sample_documents(dataset, count, kMostTokens)) {
    list.push_back({{"document", sample.number}, {"tokens", sample.length}});
    list.back()["is_whole"] = sample.length - 1 <= std::ssize(sample.tokens);
    if (tokenizer) {
      list.back()["text"] = tokenizer->decode(sample.tokens);
    } else {
      list.back()["ids"] = sample.tokens;
    }
  }
  return list;
}

void print_samples(const nlohmann::ordered_json& samples) {
  for (const auto& sample : samples) {
    std::cout << "document " << sample["document"] << ", " << sample["tokens"] << " tokens: "
              << (sample.contains("text") ? printable_line(sample["text"].get<std::string>()) : sample["ids"].dump())
              << (sample["is_whole"].get<bool>() ? "" : " …") << "\n";
  }
}

int inspect_data(const CommandLine& line) {
  const std::string directory = line.text("directory");
  Dataset dataset(directory);
  const DatasetDescription& description = dataset.description();
  nlohmann::ordered_json json = {
      {"directory", directory},
      {"fingerprint", dataset.fingerprint()},
      {"documents", description.documents()},
      {"tokens", description.tokens()},
      {"text_bytes", description.text_bytes},
      {"bytes_per_token", bytes_per_token(description)},
      {"vocab_size", description.header.vocab_size},
      {"end_of_document", description.header.end_of_document},
      {"tokenizer_hash", tokenizer_hash(description.header)},
      {"beginning_of_document", beginning_of(description.header)},
      {"special_text", description.header.tokenizer_settings.special_text},
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
  std::optional<DocumentLengths> lengths;
  if (line.has("lengths")) lengths = document_lengths(dataset);
  const nlohmann::ordered_json samples = samples_json(dataset, line.integer("samples"));
  if (line.has("json")) {
    if (lengths) json["lengths"] = lengths_json(*lengths);
    if (line.has("samples")) json["samples"] = samples;
    print_json(json);
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "shards" || key == "bytes_per_token" || value.is_null()) continue;
    std::cout << key << ": " << (value.is_string() ? printable_value(value.get<std::string>()) : value.dump()) << "\n";
  }
  if (!json["bytes_per_token"].is_null()) {
    std::cout << "bytes per token: " << json["bytes_per_token"].get<double>() << "\n";
  }
  for (const ShardRecord& shard : description.shards) {
    std::cout << printable_line(shard.file) << ": " << shard.tokens << " tokens, " << shard.documents << " documents, "
              << shard.bytes << " bytes\n";
  }
  if (lengths) print_lengths(*lengths);
  print_samples(samples);
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
          {"data", "inspect", "shows a dataset's content", "DIR", inspect_options(), false, inspect_data,
           "shiftron data inspect data/train --lengths --samples 3"},
          {"data", "verify", "checks every hash, token and document boundary of a dataset", "DIR", directory_options(),
           false, verify_data, "shiftron data verify data/train"}};
}

}  // namespace shiftron::cli
