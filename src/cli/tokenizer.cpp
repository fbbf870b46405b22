// `shiftron tokenizer train | inspect | encode | decode | export`.
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/tokenizer_options.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/json_reason.h"
#include "core/log.h"
#include "core/system_error.h"
#include "data/tokenizer_training.h"
#include "interchange/hugging_face_tokenizer.h"
#include "interchange/unfinished_export.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/known_words.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron::cli {
namespace {

std::vector<CommandOption> options_of_tokenizer_train() {
  const TokenizerTraining training;
  CommandOption kind = text_option(
      "kind", "KIND", "bpe or unigram (SentencePiece), or byte-bpe, which writes a tokenizer.json", training.kind);
  kind.choices = {"bpe", "unigram", kByteLevelKind};
  CommandOption special =
      text_option("special-tokens", "TOKEN...",
                  "names of special tokens in addition to the one that ends documents; byte-bpe only");
  special.values = kUnlimited;
  special.takes_rest = true;
  return {input_files(),
          required(integer_option("vocab", "vocabulary size, including 256 bytes and the special tokens",
                                  between(1, kMostVocab))),
          required(text_option("output", "FILE", "tokenizer to write; an existing one is replaced")),
          kind,
          special,
          document_separator(),
          skip_bad(),
          text_option("text-key", "KEY", "JSON key of the text in JSONL lines", training.text_key),
          real_option("character-coverage",
                      "fraction of the text's characters that get a token of their own; the rest is encoded as bytes. "
                      "Not for byte-bpe",
                      between(kLeastCoverage, 1), "0.9995"),
          integer_option("sample-bytes",
                         "maximum size of the training text in bytes; of more text, an evenly spread sample of about "
                         "this size is used. For SentencePiece, text without spaces counts 16 times",
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
  const bool is_byte_level = training.kind == kByteLevelKind;
  if (is_byte_level && line.has("character-coverage")) {
    throw_bad_input("--character-coverage does not apply to --kind ", kByteLevelKind, ", which has all bytes; omit it");
  }
  if (line.has("special-tokens")) training.special_tokens = line.texts("special-tokens");
  training.threads = thread_count(0);
  training.warn = [](const std::string& warning) { print_to_stderr("tokenizer train: warning: " + warning); };
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
  std::string bytes = train_tokenizer(training, &text);
  const auto tokenizer = is_byte_level
                             ? make_tokenizer({kHuggingFaceFile, std::move(bytes)}, {.end_of_document = 0}, output)
                             : make_tokenizer({kSentencePieceFile, std::move(bytes)}, {}, output);
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

CommandOption tokenizer_file() {
  CommandOption file = required(text_option(
      "file", "FILE",
      "tokenizer.model (SentencePiece), tokenizer.json (Hugging Face) or a directory with one; --file can be omitted"));
  file.bare = true;
  return file;
}

std::vector<CommandOption> with_tokenizer(std::vector<CommandOption> more) {
  std::vector<CommandOption> all = {tokenizer_file()};
  all.insert(all.end(), more.begin(), more.end());
  for (CommandOption& option : tokenizer_options()) all.push_back(std::move(option));
  return all;
}

std::vector<CommandOption> inspect_options() {
  return with_tokenizer({integer_option("pieces", "list the first N tokens", between(0, kMostVocab), "0"),
                         text_option("text", "TEXT", "show how this text is split into tokens"), json_flag()});
}

constexpr size_t kMostSpecialTokens = 1000;

int inspect_tokenizer(const CommandLine& line) {
  const std::string file = line.text("file");
  const int64_t pieces = line.integer("pieces");
  const std::unique_ptr<const Tokenizer> loaded = load_tokenizer(file, tokenizer_choice(line));
  const Tokenizer& tokenizer = *loaded;
  nlohmann::ordered_json json = {{"file", file}};
  for (const auto& [key, value] : tokenizer.description()) json[key] = value;
  json["vocab_size"] = tokenizer.vocab_size();
  json["end_of_document"] = tokenizer.end_of_document();
  if (tokenizer.beginning_of_document() >= 0) json["beginning_of_document"] = tokenizer.beginning_of_document();
  json["hash"] = tokenizer.hash();
  const auto describe = [&](int32_t token) {
    return nlohmann::ordered_json{
        {"token", token}, {"piece", tokenizer.piece(token)}, {"bytes", tokenizer.bytes_of(token)}};
  };
  json["special_tokens"] = nlohmann::ordered_json::array();
  for (int32_t id = 0; id < tokenizer.vocab_size() && json["special_tokens"].size() < kMostSpecialTokens; ++id) {
    if (tokenizer.is_special(id) && !tokenizer.piece(id).empty()) json["special_tokens"].push_back(describe(id));
  }
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

std::vector<CommandOption> input_options(const std::string& what) {
  CommandOption input = text_option("input", "FILE...", what + "; without it, standard input");
  input.values = kUnlimited;
  input.takes_rest = true;
  return {input};
}

std::string standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

std::vector<CommandOption> encode_options() {
  auto more = input_options("text files (.txt) or JSONL files (.jsonl, .ndjson)");
  more.push_back(text_option("text", "TEXT", "the text itself, in place of files"));
  more.push_back(document_separator());
  more.push_back(text_option("text-key", "KEY", "JSON key of the text in JSONL lines", "text"));
  return with_tokenizer(std::move(more));
}

// A JSON list of ids on a line for each text.
int encode(const CommandLine& line) {
  ignore_write_signals();
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(line.text("file"), tokenizer_choice(line));
  KnownWords known;
  const auto write = [&](std::string_view text) {
    std::cout << nlohmann::json(tokenizer->encode(text, {}, &known)).dump() << "\n";
  };
  if (line.has("text")) {
    if (line.has("input")) throw_bad_input("--text and --input exclude each other; omit one");
    write(line.text("text"));
  } else if (!line.has("input")) {
    write(standard_input());
  } else {
    const std::vector<InputFile> inputs = recognise_inputs(line.texts("input"));
    const DocumentFormat format{unescape(line.text("document-separator")), line.text("text-key")};
    read_documents(inputs, format, [&](const TextDocument& document) { write(document.text); });
  }
  std::cout.flush();
  return 0;
}

std::vector<CommandOption> decode_options() {
  auto more = input_options("files with a JSON list of ids on each line, as `tokenizer encode` writes them");
  more.push_back(flag("json", "print each text as a JSON string; bytes that are not UTF-8 become U+FFFD"));
  return with_tokenizer(std::move(more));
}

std::vector<int32_t> ids_of(const std::string& text, const std::string& where) {
  try {
    const nlohmann::json list = nlohmann::json::parse(text);
    for (const nlohmann::json& id : list) {
      if (id.is_number_unsigned() && id.get<uint64_t>() <= INT32_MAX) continue;
      throw_bad_input(where, ": ", printable(id.dump()), " is not an id: a whole number from 0");
    }
    return list.get<std::vector<int32_t>>();
  } catch (const nlohmann::json::exception& error) {
    throw_bad_input(where, ": not a JSON list of ids: ", printable(json_reason(error)));
  }
}

int decode(const CommandLine& line) {
  ignore_write_signals();
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(line.text("file"), tokenizer_choice(line));
  const auto read = [&](std::istream& stream, const std::string& name) {
    std::string text;
    for (int64_t number = 1; std::getline(stream, text); ++number) {
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      const std::string decoded = tokenizer->decode(ids_of(text, name + ":" + std::to_string(number)));
      if (line.has("json")) {
        print_json(decoded, -1);
      } else {
        std::cout << decoded << "\n";
      }
    }
  };
  if (!line.has("input")) read(std::cin, "stdin");
  for (const std::string& path : line.has("input") ? line.texts("input") : std::vector<std::string>()) {
    std::istringstream file(read_file(path));
    read(file, path);
  }
  std::cout.flush();
  return 0;
}

std::vector<CommandOption> export_options() {
  return {tokenizer_file(),
          required(text_option("output", "DIR", "new directory for tokenizer.json and tokenizer_config.json"))};
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
      {"tokenizer", "encode", "turns texts into token ids", "FILE [--input FILE…]", encode_options(), false, encode,
       "shiftron tokenizer encode tokenizer.json --input text.jsonl > ids.txt"},
      {"tokenizer", "decode", "turns token ids into texts", "FILE [--input FILE…]", decode_options(), false, decode,
       "shiftron tokenizer decode tokenizer.json --input ids.txt"},
      {"tokenizer", "export", "writes a tokenizer for Hugging Face's libraries", "FILE --output DIR", export_options(),
       false, export_files, "shiftron tokenizer export tokenizer.model --output exported-tokenizer"}};
}

}  // namespace shiftron::cli
