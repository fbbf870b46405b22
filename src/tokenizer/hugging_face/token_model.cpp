// What all kinds share.
#include "tokenizer/hugging_face/token_model.h"

#include <array>
#include <cstdio>

namespace shiftron {
TokenModel::ByteIds TokenModel::fallback_byte_ids() const {
  ByteIds ids{};
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", static_cast<unsigned>(byte));
    const auto found = ids_.find(std::string_view(name.data()));
    ids[byte] = found == ids_.end() ? -1 : found->second;
  }
  return ids;
}

void TokenModel::add_piece(const std::string& piece, int64_t id, const JsonPart& part) {
  const auto at = static_cast<size_t>(id);
  if (at >= taken_.size()) taken_.resize(at + 1);
  if (taken_[at]) part.refuse("two pieces have the id ", id, "; one is \"", printable(piece), "\"");
  taken_[at] = true;
  ids_.insert_or_assign(piece, static_cast<int32_t>(id));
}

}  // namespace shiftron
