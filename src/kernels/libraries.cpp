// In builds without CUDA the workspace alone, which a plan counts.
#include "kernels/libraries.h"

#include <nlohmann/json.hpp>

#include "core/has_cuda.h"
#include "core/json_reason.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

using Json = nlohmann::ordered_json;

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
  if (kept_ == nullptr) return {};
  const LibraryChoices choices = kept_->choices();
  return Json{{"products", Json::parse(to_json(choices.products))},
              {"attention", Json::parse(to_json(choices.attention))}}
      .dump(1);
}

void Libraries::adopt(const std::string& choices, const std::string& source) {
  if (kept_ == nullptr) return;
  Json read;
  try {
    read = Json::parse(choices);
  } catch (const Json::exception& error) {
    throw_bad_input(source, ": ", json_reason(error));
  }
  const auto part = [&](const char* name) { return read.is_object() ? read.value(name, Json()).dump() : "null"; };
  kept_->adopt({.products = product_choices_from(part("products"), source),
                .attention = attention_choices_from(part("attention"), source)});
}

std::vector<std::string> Libraries::refusals() const {
  return kept_ == nullptr ? std::vector<std::string>() : kept_->refusals();
}

}  // namespace shiftron
