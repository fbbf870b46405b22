// The table of the kinds.
#include "tokenizer/hugging_face/read_token_model.h"

#include "tokenizer/hugging_face/byte_pair_model.h"
#include "tokenizer/hugging_face/read_kind.h"
#include "tokenizer/hugging_face/unigram_model.h"

namespace shiftron {
namespace {

constexpr PartKind<std::unique_ptr<const TokenModel>, TokenModelOptions> kModels[] = {
    {"BPE", make_part<const TokenModel, BytePairModel>}, {"Unigram", make_part<const TokenModel, UnigramModel>}};

}  // namespace

std::unique_ptr<const TokenModel> read_token_model(const JsonPart& part, const TokenModelOptions& options) {
  // Old files do not state the type.
  std::string type = part["type"].text_or("");
  if (type.empty()) type = part["merges"].is_null() ? "Unigram" : "BPE";
  return read_kind(kModels, part, type, options);
}

}  // namespace shiftron
