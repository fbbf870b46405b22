// In builds without CUDA there is only the workspace, which a plan counts.
#include "kernels/libraries.h"

#include <nlohmann/json.hpp>

#include "core/has_cuda.h"
#include "core/json_reason.h"
#include "kernels/foreign_choices.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const LibraryChoices& choices) {
  return Json{{"products", Json::parse(to_json(choices.products))},
              {"attention", Json::parse(to_json(choices.attention))}}
      .dump(1);
}

// Throws ForeignChoices if the text is not valid.
LibraryChoices choices_from(const std::string& text, const std::string& source) {
  try {
    const Json read = Json::parse(text);
    const auto part = [&](const char* name) { return read.is_object() ? read.value(name, Json()).dump() : "null"; };
    return {.products = product_choices_from(part("products"), source),
            .attention = attention_choices_from(part("attention"), source)};
  } catch (const Json::exception& error) {
    throw ForeignChoices(source + ": " + json_reason(error));
  } catch (const Error& error) {
    throw ForeignChoices(error.what());
  }
}

}  // namespace

Libraries::Libraries(Stream& stream)
    : workspace_(stream.device, library_workspace(stream), *stream.ledger, "workspace") {
  if constexpr (kHasCuda) {
    if (stream.device != DeviceKind::cuda) return;
    kept_ = cuda::keep_libraries(*stream.cuda, workspace_.tensor(0, DType::uint8, {workspace_.bytes()}));
  }
}

void Libraries::time_candidates(bool timed) {
  if (kept_ != nullptr) kept_->time_candidates(timed);
}

std::string Libraries::choices() const {
  return kept_ == nullptr ? std::string() : text_of(kept_->choices());
}

void Libraries::adopt(const std::string& choices, const std::string& source) {
  if (kept_ != nullptr) kept_->adopt(choices_from(choices, source));
}

std::vector<std::string> Libraries::refusals() const {
  return kept_ == nullptr ? std::vector<std::string>() : kept_->refusals();
}

std::vector<std::string> Libraries::untimed() const {
  return kept_ == nullptr ? std::vector<std::string>() : kept_->untimed();
}

std::string joined_choices(const std::vector<std::string>& texts) {
  if (texts.front().empty()) return {};
  LibraryChoices joined = choices_from(texts.front(), "the first choices");
  for (const std::string& text : texts) {
    const LibraryChoices other = choices_from(text, "other choices");
    joined.products.complete(other.products);
    joined.attention.complete(other.attention);
  }
  return text_of(joined);
}

}  // namespace shiftron
