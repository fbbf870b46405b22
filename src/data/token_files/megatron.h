// Megatron-LM's indexed datasets: PREFIX.bin with tokens and PREFIX.idx, which says where sequences and documents end.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/token_files/token_file.h"

namespace shiftron {

// The layout of an .idx, all little-endian: magic; u64 version, 1; u8 type of the tokens; u64 sequences n; u64 entries
// m of the document index; i32 lengths[n] in tokens; i64 pointers[n], bytes into the .bin; i64 documents[m], 0 and the
// number of sequences up to the end of each document. Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kMegatronHeader = 34;  // bytes
// The number by which an .idx names a type; 0 = none.
int megatron_code(TokenElement element);

// "PREFIX" of PREFIX, PREFIX.bin and PREFIX.idx.
std::string megatron_prefix(const std::string& path);
bool is_megatron(const std::string& path, std::string_view begin);
TokenFile open_megatron_tokens(const std::string& path, std::optional<TokenElement> element);

}  // namespace shiftron
