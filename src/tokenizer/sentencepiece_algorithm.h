// How a SentencePiece model changes and cuts text, by the bytes of its file.
#pragma once

#include <cstdint>
#include <string>

namespace shiftron {

enum class SentencePieceAlgorithm : uint64_t { unigram = 1, bpe = 2 };

// Of a model's bytes; unigram if they do not state it. Throws Error(bad_input), naming `name`, if they are not a model.
SentencePieceAlgorithm algorithm_of(const std::string& model_bytes, const std::string& name);

// Whether a table normalises characters: an automaton of offsets that the library follows without checking them. Throws
// Error(bad_input) if the bytes are not a message.
bool normalises_characters(const std::string& model_bytes, const std::string& name);

// A piece with spaces where it has the mark that stands for them.
std::string with_spaces(const std::string& piece);

}  // namespace shiftron
