// Checks the loss, the gradient norm and the weights for signs of the same fault.
#include "run/overflow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/element.h"
#include "kernels/kernels.h"

namespace shiftron {

const char* const kLogitsAreEqual =
    "the loss is ln(model.vocab), as if all logits were equal: the model predicts nothing, probably because its "
    "activations overflow in float32 and RMSNorm divides them by infinity; start a new run from an earlier step with a "
    "lower optimizer.learning_rate, or check the imported weights";

bool are_logits_equal(double loss, int64_t vocab) {
  const double equal = std::log(static_cast<double>(vocab));
  return vocab > 1 && std::abs(loss - equal) <= 1e-6 * equal;
}

std::string zero_gradient_warning(int64_t step, const StepResult& result, const std::vector<std::string>& group_names,
                                  const ModelConfig& model) {
  if (result.skipped || result.counted == 0) return "";
  std::string groups;
  for (size_t i = 0; i < group_names.size(); ++i) {
    const bool has_no_weights = group_names[i] == "head" && model.tie_embeddings;
    if (result.group_norms[i] != 0 || has_no_weights) continue;
    groups += (groups.empty() ? "" : ", ") + group_names[i];
  }
  if (groups.empty()) return "";
  std::string text = fmt::format(
      "step {}: the gradient of {} is exactly 0 although {} targets were counted, so these parameters do not learn",
      step, result.gradient_norm == 0 ? "all parameters" : groups, result.counted);
  if (are_logits_equal(result.loss, model.vocab)) text += std::string("; ") + kLogitsAreEqual;
  return text;
}

void WeightSizes::add(const ManifestTensor& tensor, const void* values, int64_t rows) {
  Size& size = sizes_[tensor.name];
  const int64_t width = rows > 0 ? tensor.shape.count() / tensor.shape[0] : 0;
  for_type(tensor.dtype, [&](auto element) {
    const auto* value = static_cast<const decltype(element)*>(values);
    for (int64_t row = 0; row < rows; ++row, value += width) {
      double squares = 0, largest = 0;
      for (int64_t i = 0; i < width; ++i) {
        const auto wide = static_cast<double>(to_accumulate(value[i]));
        squares += wide * wide;
        largest = std::max(largest, std::abs(wide));
      }
      size.squares += squares;
      size.largest_row = std::max(size.largest_row, squares);
      size.largest = std::max(size.largest, largest);
    }
  });
}

const WeightSizes::Size& WeightSizes::of(const std::string& name) const {
  static const Size kNone;
  const auto found = sizes_.find(name);
  return found == sizes_.end() ? kNone : found->second;
}

// |norm(x) w| ≤ √hidden max|w|, |W x| ≤ |W| |x| with Frobenius' norm, |W x|_i ≤ |row i| |x|, |silu(g)| ≤ |g|; attention
// averages values of each head, after the shift has added up to `taps` of them.
double WeightSizes::longest_activation(const ModelConfig& model) const {
  double longest = std::sqrt(of("embedding.weight").largest_row);
  const double root = std::sqrt(static_cast<double>(model.hidden));
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".";
    const auto frobenius = [&](const char* weight) { return std::sqrt(of(name + weight).squares); };
    const double attention_input = root * of(name + "attention_norm.weight").largest;
    const double taps = std::max(1.0, 2 * std::sqrt(of(name + "attention.shift_value").largest_row));
    const double values =
        frobenius("attention.value.weight") * attention_input * taps * std::sqrt(static_cast<double>(model.heads));
    longest += frobenius("attention.out.weight") * values;
    const double mlp_input = root * of(name + "mlp_norm.weight").largest;
    const double gate = std::sqrt(of(name + "mlp.gate.weight").largest_row) * mlp_input;
    longest += frobenius("mlp.down.weight") * gate * frobenius("mlp.up.weight") * mlp_input;
  }
  return longest;
}

std::string overflow_warning(double longest_activation, const std::string& advice) {
  if (longest_activation <= kLargestNorm) return "";
  return fmt::format(
      "the weights are so large that activations may reach {:.1e}; above {:.1e} their squares overflow in float32, "
      "RMSNorm returns 0, and the model neither predicts nor learns; {}",
      longest_activation, kLargestNorm, advice);
}

}  // namespace shiftron
