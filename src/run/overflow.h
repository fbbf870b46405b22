// Signs of an overflow that RMS norms hide: if a row's sum of squares is infinite, the norm divides by infinity and
// returns 0. Then no value is non-finite, but nothing is learned.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "model/config.h"
#include "run/step_result.h"

namespace shiftron {

// Whether a mean loss is that of equal logits for every target: ln(vocab), within float32's rounding.
bool are_logits_equal(double loss, int64_t vocab);
extern const char* const kLogitsAreEqual;  // the message for that case, with what to do

// Warning for a step that counted targets although the gradient of the model, or of a group, is exactly 0: which, and
// what to do. "" for other steps. `group_names`: of result.group_norms.
std::string zero_gradient_warning(int64_t step, const StepResult& result, const std::vector<std::string>& group_names,
                                  const ModelConfig& model);

// Bounds the activations of a model by the sizes of its weights.
class WeightSizes {
 public:
  // Adds `rows` rows of the tensor, in its type. Every row must be added once.
  void add(const ManifestTensor& tensor, const void* values, int64_t rows);
  // Upper bound of the Euclidean norm of the residual stream's rows.
  double longest_activation(const ModelConfig& model) const;

 private:
  struct Size {
    double squares = 0;      // sum, of all elements
    double largest_row = 0;  // sum of squares of a row along dim 0
    double largest = 0;      // absolute value
  };
  const Size& of(const std::string& name) const;
  std::map<std::string, Size> sizes_;  // by the tensor's name
};

// "" if float32 can hold the squares of activations; otherwise what happens, and `advice`.
std::string overflow_warning(double longest_activation, const std::string& advice);

}  // namespace shiftron
