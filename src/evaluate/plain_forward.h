// Logits of an exported model by plain loops in fp64: what an export is checked with, and of no other use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace shiftron {

// [ids][vocab]; the ids are one document from position 0. `path` is a directory of Hugging Face's, of which config.json
// and safetensors are read, or a GGUF file. Knows Llama, KVShiftLlama and LlamaCanon by themselves: it shares no name,
// no order of rows and no formula with the code that writes exports. `layer_done` is called behind each layer and
// behind the head. Memory: a few megabytes and ids · (sizes of a layer).
std::vector<std::vector<double>> plain_logits(const std::string& path, const std::vector<int32_t>& ids,
                                              const std::function<void()>& layer_done = {});

}  // namespace shiftron
