// The cuDNN engine chosen for attention of each shape on one device; can be stored and loaded.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/choices.h"

namespace shiftron {

// Elements from one row, and from one head, of a [rows, heads, head_dim] tensor to the next.
struct HeadStrides {
  int64_t row = 0, head = 0;
  auto operator<=>(const HeadStrides&) const = default;
};

enum class AttentionPass { forward, backward };

// Everything that a plan may depend on. bfloat16, rows = samples · length.
struct AttentionProblem {
  AttentionPass pass = AttentionPass::forward;
  int64_t samples = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool documents = true;       // false: each row sees its sample from its first row on
  bool deterministic = false;  // the result is bit-identical on every run
  HeadStrides q{}, k{}, v{}, out{};
  HeadStrides d_out{}, d_q{}, d_k{}, d_v{};  // of the backward
  int64_t statistics = 0;                    // elements from one head of log_sum_exp to the next
  auto operator<=>(const AttentionProblem&) const = default;
  std::string text() const;  // for messages
};

struct AttentionChoice {
  int64_t engine = 0;                // number of the engine, among those that support the graph
  std::map<int64_t, int64_t> knobs;  // values of its knobs, by the library's number of each knob
  int64_t workspace = 0;             // bytes that it needs
  double seconds = 0;                // of one execution; 0 if it was not timed
  bool operator==(const AttentionChoice&) const = default;
  bool same_plan(const AttentionChoice& other) const { return engine == other.engine && knobs == other.knobs; }
};

using AttentionChoices = Choices<AttentionProblem, AttentionChoice>;

std::string to_json(const AttentionChoices& choices);
// The inverse; Error(bad_input) that begins with `source` if the text is not valid.
AttentionChoices attention_choices_from(const std::string& json, const std::string& source);

}  // namespace shiftron
