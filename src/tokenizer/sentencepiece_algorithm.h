// How a SentencePiece model cuts text.
#pragma once

#include <cstdint>
#include <string>

namespace shiftron {

enum class SentencePieceAlgorithm : uint64_t { unigram = 1, bpe = 2 };

// Of a model's bytes; unigram if they do not state it. Throws Error(bad_input), naming `name`, if they are not a model.
SentencePieceAlgorithm algorithm_of(const std::string& model_bytes, const std::string& name);

}  // namespace shiftron
