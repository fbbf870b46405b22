// Bytes as config.json. What is taken has sizes that a model can have, and written again is taken as the same.
#include "checkpoint/hugging_face_config.h"
#include "fuzz/input.h"

namespace shiftron::fuzz {

std::string read_input(std::string_view bytes) {
  return refusal_of([&] {
    HuggingFaceConfig config = parse_hugging_face_config(std::string(bytes), "config.json");
    ModelConfig& model = config.model;
    for (const int64_t size : {model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.ffn,
                               model.vocab, config.positions}) {
      require(size >= 1, "sizes are at least 1");
    }
    require(model.heads % model.kv_heads == 0 && model.head_dim % 2 == 0, "heads fit each other");
    require(model.rope_base > 0 && model.norm_epsilon > 0 && model.init_std > 0, "numbers are above 0");
    if (config.form == HuggingFaceForm::baichuan_m1) return;
    const std::string text = to_hugging_face_text(config);
    const HuggingFaceConfig again = parse_hugging_face_config(text, "again");
    require(to_hugging_face_text(again) == text, "what is written reads as the same");
    require(!generation_config_text(config).empty(), "generation_config.json");
  });
}

}  // namespace shiftron::fuzz
