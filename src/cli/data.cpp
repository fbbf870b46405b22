// `shiftron data build | inspect | verify`.
#include <boost/program_options.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/command_options.h"
#include "core/check.h"
#include "data/build.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "data/verify.h"

namespace shiftron::cli {
namespace {

namespace po = boost::program_options;

int build(const std::vector<std::string>& arguments) {
  BuildOptions build;
  std::string separator;
  po::options_description options("options");
  options.add_options()("input", po::value(&build.inputs)->multitoken()->composing()->required()->value_name("FILE..."),
                        "text files, or JSONL by their ending (.jsonl, .ndjson)")(
      "tokenizer", po::value(&build.tokenizer)->required()->value_name("FILE"),
      "the model, as `tokenizer train` makes it")("output", po::value(&build.output)->required()->value_name("DIR"),
                                                  "new or empty directory")(
      "document-separator", po::value(&separator)->value_name("TEXT"),
      "ends a document of a text file; \\n \\t \\\\ are understood; without it a file is one document")(
      "text-key", po::value(&build.text_key)->default_value(build.text_key)->value_name("KEY"),
      "key of the text in JSONL lines")(
      "validation-fraction", po::value(&build.validation_fraction)->default_value(0, "0")->value_name("X"),
      "share of the documents, by their hash, that go to DIR/validation; the others go to DIR/train")(
      "shard-tokens", po::value(&build.shard_tokens)->default_value(build.shard_tokens)->value_name("N"),
      "tokens in a shard, about")("seed", po::value(&build.seed)->default_value(0)->value_name("N"),
                                  "of the order of the documents");
  po::variables_map values;
  if (!parse_options(arguments, "data build --input FILE... --tokenizer FILE --output DIR", options, values)) return 0;
  build.document_separator = unescape(separator);
  const BuildResult result = build_dataset(build);
  if (values["json"].as<bool>()) {
    nlohmann::ordered_json json = {{"datasets", nlohmann::ordered_json::array()},
                                   {"empty_documents", result.empty_documents}};
    for (const BuiltDataset& dataset : result.datasets) {
      json["datasets"].push_back({{"directory", dataset.directory},
                                  {"documents", dataset.documents},
                                  {"tokens", dataset.tokens},
                                  {"text_bytes", dataset.text_bytes},
                                  {"shards", dataset.shards},
                                  {"fingerprint", dataset.fingerprint}});
    }
    std::cout << json.dump(1) << "\n";
    return 0;
  }
  for (const BuiltDataset& dataset : result.datasets) {
    std::cout << dataset.directory << ": " << dataset.documents << " documents, " << dataset.tokens << " tokens, "
              << dataset.text_bytes << " bytes of text, " << dataset.shards << " shards, fingerprint "
              << dataset.fingerprint << "\n";
  }
  if (result.empty_documents > 0) std::cout << result.empty_documents << " empty documents left out\n";
  return 0;
}

// The one argument of `data inspect` and `data verify`; empty where help was printed.
std::string directory_argument(const std::vector<std::string>& arguments, const std::string& usage, bool& json) {
  std::string directory;
  po::options_description options("options");
  options.add_options()("directory", po::value(&directory)->required()->value_name("DIR"),
                        "the dataset; the name may stand alone");
  po::variables_map values;
  if (!parse_options(arguments, usage, options, values, "directory")) return "";
  json = values["json"].as<bool>();
  return directory;
}

int inspect(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const std::string directory = directory_argument(arguments, "data inspect DIR", as_json);
  if (directory.empty()) return 0;
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
  if (as_json) {
    std::cout << json.dump(1) << "\n";
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "shards") continue;
    std::cout << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
  }
  std::cout << "bytes per token: "
            << static_cast<double>(description.text_bytes) / static_cast<double>(description.tokens()) << "\n";
  for (const ShardRecord& shard : description.shards) {
    std::cout << shard.file << ": " << shard.tokens << " tokens, " << shard.documents << " documents, " << shard.bytes
              << " bytes\n";
  }
  return 0;
}

int verify(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const std::string directory = directory_argument(arguments, "data verify DIR", as_json);
  if (directory.empty()) return 0;
  const VerifyResult result = verify_dataset(directory);
  if (as_json) {
    const nlohmann::ordered_json json = {{"directory", directory},        {"valid", result.faults.empty()},
                                         {"shards", result.shards},       {"tokens", result.tokens},
                                         {"documents", result.documents}, {"faults", result.faults}};
    std::cout << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  } else {
    for (const std::string& fault : result.faults) std::cout << fault << "\n";
    if (result.faults.empty()) {
      std::cout << directory << ": whole; " << result.shards << " shards, " << result.documents << " documents, "
                << result.tokens << " tokens\n";
    }
  }
  return static_cast<int>(result.faults.empty() ? ExitCode::done : ExitCode::bad_input);
}

}  // namespace

std::vector<Command> data_commands() {
  return {{"data", "build", "tokenizes text into a dataset of shards", build},
          {"data", "inspect", "says what a dataset holds", inspect},
          {"data", "verify", "checks every hash, token and document border of a dataset", verify}};
}

}  // namespace shiftron::cli
