// Shared by the tests of data: a small text, a real tokenizer trained on it, datasets built from documents.
#pragma once

#include <string>
#include <vector>

#include "data/build.h"
#include "data/dataset.h"
#include "data/tokenizer_training.h"
#include "scratch.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"
#include "tokenizer/stored_tokenizer.h"

namespace shiftron {

// Sentences of a few hundred words, the same at every call.
inline std::string example_text(int sentences) {
  const std::vector<std::string> words = {"the",    "a",    "tensor", "token",   "shift",    "key",    "value",
                                          "runs",   "over", "under",  "window",  "gradient", "learns", "slowly",
                                          "and",    "then", "stops",  "model",   "head",     "layer",  "reads",
                                          "writes", "long", "short",  "document"};
  std::string text;
  uint32_t state = 12345;
  for (int i = 0; i < sentences; ++i) {
    for (int word = 0; word < 8; ++word) {
      state = state * 1664525u + 1013904223u;
      text += (word > 0 ? " " : "");
      text += words[(state >> 16) % words.size()];
    }
    text += ".\n";
  }
  return text;
}

// Of so many example sentences.
inline std::string trained_model(int sentences, int64_t vocab, const std::string& kind) {
  const Scratch scratch;
  TokenizerTraining training;
  training.files = {scratch.write("text.txt", example_text(sentences))};
  training.vocab = vocab;
  training.kind = kind;
  return train_tokenizer(training);
}

// One model for all tests of the process.
inline const std::string& example_model() {
  static const std::string model = trained_model(400, 330, "bpe");
  return model;
}

inline StoredTokenizer stored_example() {
  return {.file = {kSentencePieceFile, example_model()}};
}

// A further piece (field 1) of a model that ends there: its text (1), score (2) and type (3, a number of
// sentencepiece_model.proto). Texts of less than 100 bytes.
inline std::string piece_field(const std::string& text, int type, float score = -9) {
  std::string fields = "\x0A" + std::string(1, static_cast<char>(text.size())) + text + "\x15";
  fields.append(reinterpret_cast<const char*>(&score), sizeof(score));
  fields += "\x18" + std::string(1, static_cast<char>(type));
  return "\x0A" + std::string(1, static_cast<char>(fields.size())) + fields;
}
constexpr int kUserDefined = 4, kUnused = 5, kNormal = 1, kControl = 3;

inline std::string joined(const std::vector<std::string>& documents, const std::string& separator) {
  std::string text;
  for (const std::string& document : documents) text += document + separator;
  return text;
}

// Documents "document 0 …", of different lengths.
inline std::vector<std::string> example_documents(int count) {
  std::vector<std::string> documents;
  for (int i = 0; i < count; ++i) documents.push_back("document " + std::to_string(i) + "\n" + example_text(1 + i % 5));
  return documents;
}

// Options to build `documents` into scratch/name.
inline BuildOptions example_build(const Scratch& scratch, const std::vector<std::string>& documents,
                                  const std::string& name = "dataset") {
  BuildOptions options;
  options.inputs = {scratch.write(name + ".txt", joined(documents, "\x1E"))};
  options.document_separator = "\x1E";
  options.tokenizer = scratch.write("tokenizer.model", example_model());
  options.output = scratch / name;
  return options;
}

// All tokens of a dataset.
inline std::vector<int32_t> all_tokens(const std::string& directory) {
  Dataset dataset(directory);
  std::vector<int32_t> tokens(static_cast<size_t>(dataset.tokens()));
  dataset.read(0, dataset.tokens(), tokens.data(), true);
  return tokens;
}

// The texts of all documents, in the dataset's order.
inline std::vector<std::string> all_documents(const std::string& directory) {
  const std::unique_ptr<const Tokenizer> tokenizer = load_tokenizer(directory + "/tokenizer.model");
  std::vector<std::string> documents(1);
  for (const int32_t token : all_tokens(directory)) {
    if (token == tokenizer->end_of_document()) {
      documents.emplace_back();
    } else {
      documents.back() += tokenizer->text_of(token);
    }
  }
  documents.pop_back();
  return documents;
}

}  // namespace shiftron
