// `shiftron tokenizer train | inspect | export`.
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/log.h"
#include "core/system_error.h"
#include "data/tokenizer_training.h"
#include "interchange/hugging_face_tokenizer.h"
#include "interchange/unfinished_export.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron::cli {
namespace {

std::vector<CommandOption> options_of_tokenizer_train() {
  const TokenizerTraining training;
  CommandOption kind = text_option("kind", "KIND", "bpe or unigram", training.kind);
  kind.choices = {"bpe", "unigram"};
  return {input_files(),
          required(integer_option("vocab", "vocabulary size, including 256 bytes, newline, end of document and unknown",
                                  between(1, kMostVocab))),
          required(text_option("output", "FILE", "tokenizer model to write; an existing one is replaced")),
          kind,
          document_separator(),
          skip_bad(),
          text_option("text-key", "KEY", "JSON key of the text in JSONL lines", training.text_key),
          real_option("character-coverage",
                      "fraction of the text's characters that get a token of their own; the rest is encoded as bytes",
                      between(kLeastCoverage, 1), "0.9995"),
          integer_option("sample-bytes",
                         "maximum size of the training text in bytes; of more text, an evenly spread sample of about "
                         "this size is used",
                         at_least(4096), std::to_string(training.sample_bytes)),
          flag("verbose", "print the log of the tokenizer's trainer"),
          json_flag()};
}

bool is_tokenizer(const std::string& path) {
  try {
    load_tokenizer(path);
    return true;
  } catch (const Error& error) {
    rethrow_system_error(error);
    return false;
  }
}

// Fails before the work instead of after it.
void check_output(const std::string& output, const std::vector<InputFile>& inputs) {
  refuse_as_output(output, inputs);
  std::error_code ignored;
  if (std::filesystem::file_size(output, ignored) > 0 && !ignored && !is_tokenizer(output)) {
    throw_bad_input("--output ", output,
                    " exists and is not a tokenizer model, so it is not replaced; choose another file");
  }
}

int train(const CommandLine& line) {
  TokenizerTraining training;
  training.files = paths_of_inputs(line, "input", "tokenizer train");
  training.skip_bad = static_cast<uint64_t>(line.integer("skip-bad"));
  training.vocab = line.integer("vocab");
  training.kind = line.text("kind");
  training.document_separator = unescape(line.text("document-separator"));
  training.text_key = line.text("text-key");
  training.character_coverage = line.real("character-coverage");
  training.sample_bytes = static_cast<uint64_t>(line.integer("sample-bytes"));
  const std::string output = line.text("output");
  const std::vector<InputFile> inputs = training.recognised = recognise_inputs(training.files);
  training.quiet = !line.has("verbose");
  check_output(output, inputs);
  ignore_write_signals();
  handle_thread_memory_exhaustion();
  TokenizerText text;
  const auto tokenizer = make_tokenizer({kSentencePieceFile, train_tokenizer(training, &text)}, {}, output);
  const ReadingReport report{text.foreign_bytes, text.replaced_surrogates, text.bad_lines, text.first_bad,
                             "the tokenizer does not learn from them"};
  write_file_durably(output, tokenizer->file().bytes);
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"file", output},
                                   {"vocab_size", tokenizer->vocab_size()},
                                   {"hash", tokenizer->hash()},
                                   {"inputs", inputs_json(inputs)}};
    add_to_json(report, json);
    print_json(json);
  } else {
    std::cout << inputs_text(inputs) << "\n" << to_text(report);
    std::cout << output << ": " << tokenizer->vocab_size() << " tokens, hash " << tokenizer->hash() << "\n";
  }
  return 0;
}

std::vector<CommandOption> inspect_options() {
  CommandOption file = required(text_option("file", "FILE", "tokenizer model; --file can be omitted"));
  file.bare = true;
  return {file, integer_option("pieces", "list the first N tokens", between(0, kMostVocab), "0"),
          text_option("text", "TEXT", "show how this text is split into tokens"), json_flag()};
}

int inspect_tokenizer(const CommandLine& line) {
  const std::string file = line.text("file");
  const int64_t pieces = line.integer("pieces");
  const std::unique_ptr<const Tokenizer> loaded = load_tokenizer(file);
  const Tokenizer& tokenizer = *loaded;
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
  if (line.has("text")) {
    json["text"] = nlohmann::ordered_json::array();
    for (const int32_t token : tokenizer.encode(line.text("text"))) json["text"].push_back(describe(token));
  }
  if (line.has("json")) {
    print_json(json);
    return 0;
  }
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_array()) {
      std::cout << key << ": " << (value.is_string() ? printable_value(value.get<std::string>()) : value.dump())
                << "\n";
      continue;
    }
    std::cout << key << ":\n";
    for (const auto& entry : value)
      std::cout << "  " << entry["token"] << " " << entry["piece"].dump(-1, ' ', false, kReplace) << "\n";
  }
  return 0;
}

std::vector<CommandOption> export_options() {
  CommandOption file = required(text_option("file", "FILE", "tokenizer model; --file can be omitted"));
  file.bare = true;
  return {file, required(text_option("output", "DIR", "new directory for tokenizer.json and tokenizer_config.json"))};
}

int export_files(const CommandLine& line) {
  ignore_write_signals();
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(line.text("file"));
  const auto files = hugging_face_tokenizer(*tokenizer);
  UnfinishedExport place(line.text("output"));
  for (const auto& [name, bytes] : files) write_file_durably(place.directory() + "/" + name, bytes);
  place.finish([&] {
    for (const auto& [name, bytes] : files) {
      std::cout << place.name() << "/" << name << ": " << bytes.size() << " bytes\n";
    }
    std::cout.flush();
  });
  return 0;
}

}  // namespace

std::vector<Command> tokenizer_commands() {
  return {
      {"tokenizer", "train", "makes a tokenizer from text", "--input FILE… --vocab N --output FILE",
       options_of_tokenizer_train(), false, train,
       "shiftron tokenizer train --input text/*.jsonl --vocab 4096 --output tokenizer.model"},
      {"tokenizer", "inspect", "shows a tokenizer's content and how it splits a text", "FILE", inspect_options(), false,
       inspect_tokenizer, "shiftron tokenizer inspect tokenizer.model --text 'Once upon a time'"},
      {"tokenizer", "export", "writes a tokenizer for Hugging Face's libraries", "FILE --output DIR", export_options(),
       false, export_files, "shiftron tokenizer export tokenizer.model --output exported-tokenizer"}};
}

}  // namespace shiftron::cli
