// What all kinds share.
#include "tokenizer/tokenizer.h"

#include <utility>

#include "core/check.h"
#include "core/hash.h"

namespace shiftron {

Tokenizer::Tokenizer(TokenizerFile file, std::string name)
    : file_(std::move(file)), name_(std::move(name)), hash_(to_hex(xxh3_128(file_.bytes))) {}

const std::string& Tokenizer::text_of(int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw_bad_input("token ", id, " is not within the vocabulary of ", vocab_size());
  }
  return texts_[static_cast<size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  text_of(id);
  return is_special_[static_cast<size_t>(id)];
}

}  // namespace shiftron
