// Logits of an exported model by plain loops in fp64. Used only to check exports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shiftron {

// Returns [ids][vocab]; the ids are one document that starts at position 0. `path` is a Hugging Face directory, whose
// config.json and safetensors are read, or a GGUF file. Implements Llama, KVShiftLlama and LlamaCanon independently: it
// shares no names, row orders or formulas with the code that writes exports. `layer_done` is called after each layer
// and after the head. Memory: a few megabytes plus ids · (sizes of a layer).
std::vector<std::vector<double>> plain_logits(const std::string& path, const std::vector<int32_t>& ids,
                                              const std::function<void()>& layer_done = {});

}  // namespace shiftron
