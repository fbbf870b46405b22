// SentencePiece models that do not keep every text, in the form of tokenizer.json.
#pragma once

#include <string>

namespace shiftron {

// Whether SentencePieceTokenizer must refuse a model that tokenizer.json can represent: one that puts a space in front
// of texts or folds spaces, as Llama 2's and SentencePiece's defaults do, or lacks tokens for some bytes. False for
// bytes that are not a model, and for models that normalise characters.
bool needs_conversion(const std::string& model_bytes, const std::string& name);

// tokenizer.json with the same ids. Its added tokens are the model's control, unknown and user-defined pieces. As in
// hugging_face_tokenizer(), runs of characters that a bpe model could join in several places, and equally good cuts of
// a unigram model, may get other ids. Throws Error(bad_input), naming the piece or the setting, for what it cannot
// represent: unused pieces, two with the same text, spaces at the end of words, and user-defined pieces in a model that
// puts a space in front.
std::string converted_sentencepiece(const std::string& model_bytes, const std::string& name);

}  // namespace shiftron
