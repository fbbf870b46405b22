// Which engine of cuDNN attention got for each shape on one device, to be kept and read back.
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

// All that a plan may depend on. bfloat16, rows = samples · length.
struct AttentionProblem {
  AttentionPass pass = AttentionPass::forward;
  int64_t samples = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool documents = true;       // false: each row sees its sample from the first row on
  bool deterministic = false;  // the same bits each time
  HeadStrides q{}, k{}, v{}, out{};
  HeadStrides d_out{}, d_q{}, d_k{}, d_v{};  // of the backward
  int64_t statistics = 0;                    // elements from one head of log_sum_exp to the next
  auto operator<=>(const AttentionProblem&) const = default;
  std::string text() const;  // for messages
};

struct AttentionChoice {
  int64_t engine = 0;                // its number, among those that know the graph
  std::map<int64_t, int64_t> knobs;  // what is set of it, by the library's number of the knob
  int64_t workspace = 0;             // bytes that it needs
  double seconds = 0;                // of one execution; 0 where it was not timed
  bool operator==(const AttentionChoice&) const = default;
  bool same_plan(const AttentionChoice& other) const { return engine == other.engine && knobs == other.knobs; }
};

using AttentionChoices = Choices<AttentionProblem, AttentionChoice>;

std::string to_json(const AttentionChoices& choices);
// The inverse; Error(bad_input) that begins with `source` where the text is something else.
AttentionChoices attention_choices_from(const std::string& json, const std::string& source);

}  // namespace shiftron
