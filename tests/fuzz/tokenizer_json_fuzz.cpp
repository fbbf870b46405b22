// Bytes as a tokenizer.json. An accepted one gives only ids of its vocabulary, with and without known words the same,
// and decodes them.
#include "fuzz/input.h"
#include "tokenizer/hugging_face/load_hugging_face.h"
#include "tokenizer/known_words.h"

namespace shiftron::fuzz {

std::string read_input(std::string_view bytes) {
  return refusal_of([&] {
    for (const bool special : {false, true}) {
      const auto tokenizer = make_hugging_face(std::string(bytes), {.end_of_document = 0, .special_text = special},
                                               "tokenizer.json", "choose another one");
      KnownWords known;
      for (const std::string text :
           {"ab  ab \xE2\x96\x81</s>a<0x41>\n\n1234's\xFF\xEF\xAC\x81",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "\xF0\x9F\x98\x80\xC3\xA9 \xF0\x90\xB5\x90"}) {
        const std::vector<int32_t> ids = tokenizer->encode(text);
        require(tokenizer->encode(text, {}, &known) == ids, "known words change no ids");
        for (const int32_t id : ids) {
          require(id >= 0 && id < tokenizer->vocab_size(), "ids are in the vocabulary");
        }
        tokenizer->decode(ids);
      }
    }
  });
}

}  // namespace shiftron::fuzz
