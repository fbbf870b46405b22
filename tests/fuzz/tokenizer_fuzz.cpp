// Bytes as a SentencePiece model, and the files for Hugging Face's libraries that are written from it. An accepted
// model preserves every text, unless it is converted.
#include <nlohmann/json.hpp>

#include "fuzz/input.h"
#include "interchange/hugging_face_tokenizer.h"
#include "tokenizer/hugging_face/hugging_face_tokenizer.h"
#include "tokenizer/load_tokenizer.h"
#include "tokenizer/sentencepiece_conversion.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace shiftron::fuzz {

std::string read_input(std::string_view bytes) {
  return refusal_of([&] {
    const std::string model(bytes), file = "tokenizer.model";
    if (needs_conversion(model, file)) {
      const auto converted =
          make_tokenizer({kHuggingFaceFile, converted_sentencepiece(model, file)}, {.end_of_document = 1}, file);
      const std::string decoded = converted->decode(converted->encode(" ab  \xE2\x96\x81</s><0x41>\n\xFF "));
      require(decoded.size() < 100, "decoding adds little");
      return;
    }
    const SentencePieceTokenizer tokenizer(model, file);
    const std::string text = "ab  \xE2\x96\x81</s><0x41>\n\xFF\xEF\xAC\x81" + std::string("\0", 1);
    require(tokenizer.decode(tokenizer.encode(text)) == text, "text survives");
    for (const auto& [name, content] : hugging_face_tokenizer(tokenizer)) {
      const auto json = nlohmann::json::parse(content);
      require(json.is_object(), name + " is an object");
    }
  });
}

}  // namespace shiftron::fuzz
