// Bytes as config.json, alone and with the files of a small model. An accepted one has sizes that a model can have, and
// is accepted as the same after it is written again; with the files it has their sizes.
#include <nlohmann/json.hpp>

#include "fuzz/input.h"
#include "interchange/hugging_face_config.h"
#include "interchange/hugging_face_names.h"
#include "interchange/hugging_face_source.h"
#include "scratch.h"

namespace shiftron::fuzz {
namespace {

// model.safetensors of the sizes that most of the corpus states, without taps; all zero.
std::string write_model(const Scratch& directory) {
  const ModelConfig model{.layers = 2,
                          .hidden = 24,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 6,
                          .ffn = 36,
                          .vocab = 101,
                          .shift = {.query = 0, .key = 0, .value = 0}};
  std::vector<SafetensorsTensor> tensors;
  uint64_t bytes = 0;
  for (const HuggingFaceName& name : hugging_face_names(model)) {
    tensors.push_back({.name = name.theirs, .type = SafetensorsType::BF16, .shape = name.foreign_shape});
    bytes += tensors.back().bytes();
  }
  SafetensorsWriter writer(directory / "model.safetensors", tensors, {});
  const std::string zeros(bytes, '\0');
  writer.append(zeros.data(), zeros.size());
  writer.finish();
  return directory.path();
}

void read_beside_files(std::string_view bytes) {
  static const Scratch directory;
  static const std::string path = write_model(directory);
  directory.write("config.json", std::string(bytes));
  refusal_of([&] {
    const HuggingFaceSource source(path);
    require(source.model().heads * source.model().head_dim == 24 && source.model().hidden == 24,
            "sizes are the files'");
  });
}

}  // namespace

std::string read_input(std::string_view bytes) {
  return refusal_of([&] {
    HuggingFaceConfig config =
        parse_hugging_face_config(parse_foreign_config(std::string(bytes), "config.json"), "config.json");
    ModelConfig& model = config.model;
    for (const int64_t size : {model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim, model.ffn,
                               model.vocab, config.positions}) {
      require(size >= 1, "sizes are at least 1");
    }
    require(model.heads % model.kv_heads == 0 && model.head_dim % 2 == 0, "heads fit each other");
    require(model.rope_base > 0 && model.norm_epsilon > 0 && model.init_std > 0, "numbers are above 0");
    read_beside_files(bytes);
    if (config.form == HuggingFaceForm::baichuan_m1) return;
    const std::string text = to_hugging_face_text(config);
    const HuggingFaceConfig again = parse_hugging_face_config(parse_foreign_config(text, "again"), "again");
    require(to_hugging_face_text(again) == text, "what is written reads as the same");
    require(!generation_config_text(config).empty(), "generation_config.json");
  });
}

}  // namespace shiftron::fuzz
