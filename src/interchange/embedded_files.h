// Files that an exported model needs in addition to its tensors; cmake/embed.cmake puts their bytes into the binary.
#pragma once

#include <string_view>

namespace shiftron {

inline constexpr const char* kModelModule = "modeling_kv_shift_llama";  // as Python names the file

// src/interchange/modeling_kv_shift_llama.py: configuration and model for Hugging Face transformers, with KV shift.
std::string_view modeling_kv_shift_llama();

}  // namespace shiftron
