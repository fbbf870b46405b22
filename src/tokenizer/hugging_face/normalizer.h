// "normalizer" of tokenizer.json: changes a text before it is cut.
#pragma once

#include <memory>
#include <string>

#include "tokenizer/hugging_face/json_part.h"

namespace shiftron {

// Read-only after construction; may be used from several threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Of valid UTF-8. continues: the text directly follows bytes that were set aside because they are not UTF-8, so
  // nothing may be put in front of it.
  virtual void apply(std::string& text, bool continues) const = 0;
};

// Null: none. Throws Error(bad_input) for a kind that is not supported. A further kind needs a class and a line in
// normalizer.cpp.
std::unique_ptr<const Normalizer> read_normalizer(const JsonPart& part);

}  // namespace shiftron
