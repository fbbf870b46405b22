// config.json as other programs write it: untrusted, and keys that this model cannot compute are refused by name.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shiftron {

using ForeignConfig = nlohmann::ordered_json;  // an object

inline constexpr char kUnscaled[] = "scaling of RoPE is not supported, only rope_theta";  // a reason to refuse

// From a text. Throws Error(bad_input) that begins with `source`: no JSON, no object, nested deeper than kDeepestJson.
ForeignConfig parse_foreign_config(const std::string& text, const std::string& source);
// From a file of at most `limit` bytes. Also throws what read_file() throws.
ForeignConfig read_foreign_config(const std::string& path, uint64_t limit = 1'000'000);

// Whether the key is there; null counts as absent.
bool has_key(const ForeignConfig& config, const char* key);
// Throws Error(bad_input): "SOURCE: KEY is VALUE: REASON".
[[noreturn]] void refuse_key(const ForeignConfig& config, const std::string& source, const char* key,
                             const std::string& reason);

// Throws Error(bad_input) that names the first key of transformers, Megatron-LM or NeMo under which the model would
// compute another function than this one, even if its tensors are the same. Keys that have no effect there are
// accepted.
void refuse_other_models(const ForeignConfig& config, const std::string& source);

}  // namespace shiftron
