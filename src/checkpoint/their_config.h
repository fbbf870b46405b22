// config.json as other programs leave it: read without trust, and what this model cannot compute is refused by name.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace shiftron {

using TheirConfig = nlohmann::ordered_json;  // an object

inline constexpr char kUnscaled[] = "this model rotates by rope_theta alone, without scaling";  // a reason to refuse

// Of the text. Throws Error(bad_input) that begins with `source`: no JSON, no object, nested deeper than kDeepestJson.
TheirConfig parse_their_config(const std::string& text, const std::string& source);
// Of a file, of at most `limit` bytes. Throws what read_file() throws, too.
TheirConfig read_their_config(const std::string& path, uint64_t limit = 1'000'000);

// Whether the key is there; one that is null is as one that is absent.
bool has_key(const TheirConfig& config, const char* key);
// Throws Error(bad_input): "SOURCE: KEY is VALUE: REASON".
[[noreturn]] void refuse_key(const TheirConfig& config, const std::string& source, const char* key,
                             const std::string& reason);

// Throws Error(bad_input) that names the first key under which another function would be computed than this model's,
// be it transformers', Megatron-LM's or NeMo's: their tensors may be the same. What has no effect there is taken.
void refuse_other_models(const TheirConfig& config, const std::string& source);

}  // namespace shiftron
