// Calls of attention: the table of awkward ones, and some of cuDNN's.
#pragma once

#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {

inline std::vector<KernelCase> attention_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    if (call.name.starts_with("attention")) cases.push_back(call);
  }
  for (const AttentionCase& at :
       std::initializer_list<AttentionCase>{{"samples_of_documents", {3, 5, 1, 7, 8, 2, 6}, 8, 4, 2, 16},
                                            {"head_dim_256", {9}, 9, 2, 2, 256},
                                            {"head_dim_200", {5, 6}, 11, 2, 1, 200}}) {
    add_attention_cases(cases, at);
  }
  return cases;
}

}  // namespace shiftron::kernel_testing
