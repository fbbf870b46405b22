// `shiftron tokenizer train | inspect`.
#include "data/tokenizer.h"

#include <boost/program_options.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/command_options.h"
#include "core/check.h"
#include "core/file.h"

namespace shiftron::cli {
namespace {

namespace po = boost::program_options;

int train(const std::vector<std::string>& arguments) {
  TokenizerTraining training;
  std::string output;
  bool verbose = false;
  po::options_description options("options");
  options.add_options()("input",
                        po::value(&training.files)->multitoken()->composing()->required()->value_name("FILE..."),
                        "text files, or JSONL by their ending (.jsonl, .ndjson)")(
      "vocab", po::value(&training.vocab)->required()->value_name("N"),
      "tokens in all, with 256 bytes, newline, end of document and unknown")(
      "output", po::value(&output)->required()->value_name("FILE"), "the model to write; an older one is replaced")(
      "kind", po::value(&training.kind)->default_value(training.kind)->value_name("KIND"), "bpe or unigram")(
      "text-key", po::value(&training.text_key)->default_value(training.text_key)->value_name("KEY"),
      "key of the text in JSONL lines")(
      "character-coverage",
      po::value(&training.character_coverage)->default_value(training.character_coverage, "0.9995")->value_name("X"),
      "share of the text's characters that get a token of their own; the others are written as bytes")(
      "sample-bytes", po::value(&training.sample_bytes)->default_value(training.sample_bytes)->value_name("N"),
      "of larger inputs an evenly spread part of about this size is used")("verbose", po::bool_switch(&verbose),
                                                                           "with the trainer's own log");
  po::variables_map values;
  if (!parse_options(arguments, "tokenizer train --input FILE... --vocab N --output FILE", options, values)) return 0;
  training.quiet = !verbose;
  free_disk_space(parent_directory(output));  // a missing folder shows before the work, not behind it
  const Tokenizer tokenizer(Tokenizer::train(training), output);
  write_file_durably(output, tokenizer.model_bytes());
  if (values["json"].as<bool>()) {
    const nlohmann::ordered_json json = {
        {"file", output}, {"vocab_size", tokenizer.vocab_size()}, {"hash", tokenizer.hash()}};
    std::cout << json.dump(1) << "\n";
  } else {
    std::cout << output << ": " << tokenizer.vocab_size() << " tokens, hash " << tokenizer.hash() << "\n";
  }
  return 0;
}

int inspect(const std::vector<std::string>& arguments) {
  std::string file;
  std::string text;
  int64_t pieces = 0;
  po::options_description options("options");
  options.add_options()("file", po::value(&file)->required()->value_name("FILE"),
                        "the model; the name may stand alone")(
      "pieces", po::value(&pieces)->default_value(0)->value_name("N"), "list the first N tokens")(
      "text", po::value(&text)->value_name("TEXT"), "show how this text is cut into tokens");
  po::variables_map values;
  if (!parse_options(arguments, "tokenizer inspect FILE", options, values, "file")) return 0;
  const Tokenizer tokenizer = Tokenizer::load(file);
  nlohmann::ordered_json json = {{"file", file},
                                 {"vocab_size", tokenizer.vocab_size()},
                                 {"end_of_document", tokenizer.end_of_document()},
                                 {"hash", tokenizer.hash()}};
  const auto describe = [&](int32_t token) {
    return nlohmann::ordered_json{
        {"token", token}, {"piece", tokenizer.piece(token)}, {"bytes", tokenizer.bytes_of(token)}};
  };
  if (pieces > 0) json["pieces"] = nlohmann::ordered_json::array();
  for (int64_t i = 0; i < std::min(pieces, tokenizer.vocab_size()); ++i) {
    json["pieces"].push_back(describe(static_cast<int32_t>(i)));
  }
  if (values.count("text") > 0) {
    json["text"] = nlohmann::ordered_json::array();
    for (const int32_t token : tokenizer.encode(text)) json["text"].push_back(describe(token));
  }
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  if (values["json"].as<bool>()) {
    std::cout << json.dump(1, ' ', false, kReplace) << "\n";
    return 0;
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_array()) {
      std::cout << key << ": " << (value.is_string() ? value.get<std::string>() : value.dump()) << "\n";
      continue;
    }
    std::cout << key << ":\n";
    for (const auto& entry : value)
      std::cout << "  " << entry["token"] << " " << entry["piece"].dump(-1, ' ', false, kReplace) << "\n";
  }
  return 0;
}

}  // namespace

std::vector<Command> tokenizer_commands() {
  return {{"tokenizer", "train", "makes a tokenizer from text", train},
          {"tokenizer", "inspect", "says what a tokenizer holds, and how it cuts a text", inspect}};
}

}  // namespace shiftron::cli
