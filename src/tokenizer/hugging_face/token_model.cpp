// What all kinds share.
#include "tokenizer/hugging_face/token_model.h"

#include <array>
#include <cstdio>

namespace shiftron {
bool TokenModel::read_fallback_bytes() {
  bool all = true;
  for (size_t byte = 0; byte < byte_ids_.size(); ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(byte));
    const auto found = ids_.find(std::string_view(name.data()));
    byte_ids_[byte] = found == ids_.end() ? -1 : found->second;
    all = all && found != ids_.end();
  }
  return all;
}

void TokenModel::add_piece(const std::string& piece, int64_t id, const JsonPart& part) {
  const auto at = static_cast<size_t>(id);
  if (at >= taken_.size()) taken_.resize(at + 1);
  if (taken_[at]) part.refuse("two pieces have the id ", id, "; one is \"", printable(piece), "\"");
  taken_[at] = true;
  ids_.insert_or_assign(piece, static_cast<int32_t>(id));
}

}  // namespace shiftron
