// Uses one decoder for all prompts.
#include "evaluate/continue_ids.h"

#include <algorithm>

#include "core/check.h"
#include "data/documents.h"
#include "data/id_documents.h"

namespace shiftron {

TokenVocabulary vocabulary_of_ids(const CheckpointModel& model, std::optional<int32_t> end_of_document) {
  if (!model.content.tokenizer_model.empty()) {
    if (end_of_document) {
      throw_bad_input("--end-of-document ", *end_of_document, " is not needed, because the tokenizer of ",
                      model.directory, " defines it; omit it");
    }
    const Tokenizer tokenizer = tokenizer_of(model);
    return {tokenizer.vocab_size(), tokenizer.end_of_document(), tokenizer.model_bytes()};
  }
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
  return {size, *end_of_document, ""};
}

std::vector<std::vector<int32_t>> read_prompts(const std::string& path, const TokenVocabulary& vocabulary) {
  std::vector<std::vector<int32_t>> prompts;
  read_lines(recognise_inputs({path}), [&](const TextDocument& line) {
    TokenDocument prompt = parse_ids(line.text, line.place());
    if (prompt.ids.empty()) throw_bad_input(prompt.where, ": no ids; give at least one id to continue");
    refuse_foreign_ids(prompt.ids, vocabulary, prompt.where);
    prompts.push_back(std::move(prompt.ids));
  });
  if (prompts.empty()) throw_bad_input(path, " has no prompts; give a line {\"ids\": [...]} for each");
  return prompts;
}

void continue_prompts(const CheckpointModel& model, const std::vector<std::vector<int32_t>>& prompts,
                      const TokenVocabulary& vocabulary, const GenerateOptions& options, HostCommunicator& world,
                      const HostShare& share, const std::function<void(const Continuation&)>& take) {
  std::vector<std::vector<int32_t>> fed;
  size_t longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    fed.push_back(as_beginning_of_document(prompt, model.config, vocabulary.end_of_document));
    longest = std::max(longest, fed.back().size());
  }
  Decoder decoder(model, world, share, static_cast<int64_t>(longest) + options.tokens, options.chunk);
  report_non_finite_once(world, [&] {
    for (const std::vector<int32_t>& ids : fed) {
      decoder.restart();
      std::vector<int32_t> made =
          continue_tokens(decoder, ids, options, vocabulary.size, vocabulary.end_of_document, {});
      const bool ended = static_cast<int64_t>(made.size()) < options.tokens;
      take({std::move(made), ended});
    }
  });
}

}  // namespace shiftron
