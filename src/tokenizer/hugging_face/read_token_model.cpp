// The table of the kinds.
#include "tokenizer/hugging_face/read_token_model.h"

#include "tokenizer/hugging_face/byte_pair_model.h"
#include "tokenizer/hugging_face/unigram_model.h"

namespace shiftron {
namespace {

template <typename Kind>
std::unique_ptr<const TokenModel> make_token_model(const JsonPart& part, const TokenModelOptions& options) {
  return std::make_unique<Kind>(part, options);
}

struct TokenModelEntry {
  const char* type;
  std::unique_ptr<const TokenModel> (*read)(const JsonPart&, const TokenModelOptions&);
};
constexpr TokenModelEntry kModels[] = {{"BPE", make_token_model<BytePairModel>},
                                       {"Unigram", make_token_model<UnigramModel>}};

}  // namespace

std::unique_ptr<const TokenModel> read_token_model(const JsonPart& part, const TokenModelOptions& options) {
  // Old files do not state the type.
  std::string type = part["type"].text_or("");
  if (type.empty()) type = part["merges"].is_null() ? "Unigram" : "BPE";
  for (const TokenModelEntry& kind : kModels) {
    if (type == kind.type) return kind.read(part, options);
  }
  part.refuse("the type ", printable(type), " is not supported; these are: BPE, Unigram");
}

}  // namespace shiftron
