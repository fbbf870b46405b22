// Uses one decoder for all prompts.
#include "evaluate/continue_ids.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "data/documents.h"
#include "data/id_documents.h"
#include "data/json_line.h"
#include "run/saved_state.h"
#include "tokenizer/utf8.h"

namespace shiftron {

namespace {

// The token that ended documents in training, or the only one that ends a text of an imported model.
std::optional<int32_t> known_end_of_document(const CheckpointModel& model) {
  const SavedState state = saved_state(model.content.state_json, model.directory);
  const std::vector<int64_t>& ends = state.origin.end_tokens;
  if (state.end_of_document || ends.size() != 1) return state.end_of_document;
  return static_cast<int32_t>(ends.front());
}

}  // namespace

TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, std::optional<int32_t> end_of_document) {
  return vocabulary_of_ids(model, usable_tokenizer(model.content.tokenizer, model.directory).get(), end_of_document);
}

TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, const Tokenizer* tokenizer,
                                  std::optional<int32_t> end_of_document) {
  if (tokenizer != nullptr) {
    if (end_of_document) {
      throw_bad_input("--end-of-document ", *end_of_document, " is not needed, because the tokenizer of ",
                      model.directory, " defines it; omit it");
    }
    require_vocab(*tokenizer, model.config.model.vocab, tokenizer_path(model));
    return {tokenizer->vocab_size(), tokenizer->end_of_document(), model.content.tokenizer};
  }
  if (!end_of_document) end_of_document = known_end_of_document(model);
  if (!end_of_document) {
    throw_bad_input(model.directory,
                    " has no tokenizer to define what ends a document; give --end-of-document I, the "
                    "\"end_of_document\" in dataset.json of its training data");
  }
  const int64_t size = model.config.model.vocab;
  if (*end_of_document >= size) {
    throw_bad_input("--end-of-document ", *end_of_document, " is not in the vocabulary of ", model.directory,
                    "; ids are 0 to ", size - 1);
  }
  return {size, *end_of_document, {}};
}

namespace {

struct PromptLine {
  std::string text;
  std::string where;  // file and number
};

// The lines that are not blank, and whether they are JSON.
std::pair<std::vector<PromptLine>, bool> lines_of(const std::string& path) {
  const bool is_stdin = path == kStdin;
  const bool is_json = !is_stdin && kind_of_file(path) == InputKind::jsonl;
  const std::string name = is_stdin ? "stdin" : path;
  std::istringstream file(is_stdin ? std::string() : read_file(path));
  std::istream& stream = is_stdin ? std::cin : file;
  std::vector<PromptLine> lines;
  std::string line;
  for (int64_t number = 1; std::getline(stream, line); ++number) {
    if (number == 1) line.erase(0, byte_order_mark(line));
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    lines.push_back({line, name + ":" + std::to_string(number)});
  }
  if (lines.empty()) {
    throw_bad_input(name, " has no prompt; give one per line",
                    is_stdin ? ", or a file: launch/local gives its ranks no stdin" : "");
  }
  return {std::move(lines), is_json};
}

}  // namespace

std::vector<std::string> read_text_prompts(const std::string& path) {
  constexpr char kPrompt[] = "prompt";
  const auto [lines, is_json] = lines_of(path);
  std::vector<std::string> prompts;
  for (const auto& [text, where] : lines) {
    if (!is_json) {
      prompts.push_back(text);
      continue;
    }
    const JsonLine object(text, where);
    const auto prompt = object.find(kPrompt);
    if (!prompt || !prompt->starts_with('"')) {
      throw_bad_input(where, ": no text \"", kPrompt, "\"; each line of JSONL must be {\"", kPrompt, "\": \"...\"}");
    }
    uint64_t replaced = 0;
    prompts.push_back(object.text(kPrompt, replaced));
  }
  return prompts;
}

std::vector<std::vector<int32_t>> read_prompts(const std::string& path, const TokenVocabulary& vocabulary) {
  std::vector<std::vector<int32_t>> prompts;
  for (const auto& [text, where] : lines_of(path).first) {
    TokenDocument prompt = parse_ids(text, where);
    if (prompt.ids.empty()) throw_bad_input(where, ": no ids; give at least one id to continue");
    refuse_foreign_ids(prompt.ids, vocabulary, where);
    prompts.push_back(std::move(prompt.ids));
  }
  return prompts;
}

void continue_prompts(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                      const TokenVocabulary& vocabulary, const GenerateOptions& options, int64_t samples,
                      HostCommunicator& world, const HostShare& share,
                      const std::function<void(const Continuation&)>& take, const std::function<void(int32_t)>& show) {
  std::vector<std::vector<int32_t>> fed;
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    fed.push_back(with_document_start(prompt, model.config, vocabulary.end_of_document,
                                      vocabulary.tokenizer.settings.beginning_of_document));
    longest = std::max(longest, fed.back().size());
  }
  Decoder decoder(model, world, share, static_cast<int64_t>(longest) + options.tokens, options.chunk);
  report_non_finite_once(world, [&] {
    for (int64_t i = 0; i < std::ssize(fed) * samples; ++i) {
      const int64_t prompt = i / samples;
      decoder.restart();
      take(continue_tokens(decoder, fed[static_cast<size_t>(prompt)], options, vocabulary.size,
                           vocabulary.end_of_document, show, prompt, i % samples));
    }
  });
}

}  // namespace shiftron
