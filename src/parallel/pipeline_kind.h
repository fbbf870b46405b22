// The pipeline schedules that a user can name.
#pragma once

#include <array>

namespace shiftron {

enum class PipelineKind { one_forward_one_backward, gpipe, interleaved, zb_h1, zb_v };

constexpr std::array<const char*, 5> names_of(PipelineKind) {
  return {"1f1b", "gpipe", "interleaved", "zb-h1", "zb-v"};
}

}  // namespace shiftron
