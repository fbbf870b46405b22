// The kinds of post-processors, and their table.
#include "tokenizer/hugging_face/post_processor.h"

#include "tokenizer/hugging_face/read_kind.h"
#include "tokenizer/tokenizer.h"

namespace shiftron {
namespace {

int32_t token_id(const JsonPart& part) {
  return static_cast<int32_t>(part.integer(0, kMostVocab - 1));
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": …}], "special_tokens": {"<s>": {"ids": [1]}}}
AroundText read_template(const JsonPart& part) {
  AroundText around;
  bool is_after = false;
  for (const JsonPart& one : part["single"].list()) {
    if (!one["Sequence"].is_null()) {
      is_after = true;
      continue;
    }
    const std::string name = one["SpecialToken"]["id"].text();
    auto& place = is_after ? around.end : around.beginning;
    const auto ids = part["special_tokens"][name.c_str()]["ids"].list();
    if (place || ids.size() != 1) one.refuse("several tokens at one end of a text are not supported");
    place = token_id(ids[0]);
  }
  return around;
}

// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
AroundText read_pair(const JsonPart& part) {
  const auto second = [&](const char* key) {
    const auto values = part[key].list();
    if (values.size() != 2) part[key].refuse("is not a token with its id");
    return token_id(values[1]);
  };
  return {second("cls"), second("sep")};
}

AroundText read_nothing(const JsonPart&) {
  return {};
}

AroundText read_sequence(const JsonPart& part) {
  AroundText around;
  for (const JsonPart& one : part["processors"].list()) {
    const AroundText more = read_post_processor(one);
    if ((around.beginning && more.beginning) || (around.end && more.end)) {
      one.refuse("several tokens at one end of a text are not supported");
    }
    if (more.beginning) around.beginning = more.beginning;
    if (more.end) around.end = more.end;
  }
  return around;
}

constexpr PartKind<AroundText> kPostProcessors[] = {
    {"BertProcessing", read_pair}, {"ByteLevel", read_nothing},           {"RobertaProcessing", read_pair},
    {"Sequence", read_sequence},   {"TemplateProcessing", read_template},
};

}  // namespace

AroundText read_post_processor(const JsonPart& part) {
  return part.is_null() ? AroundText{} : read_kind(kPostProcessors, part);
}

}  // namespace shiftron
