// Compares every kernel with its reference implementation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/system_error.h"
#include "evaluate/self_test_parts.h"
#include "kernels/all_cases.h"

namespace shiftron {

using namespace kernel_testing;

namespace {

constexpr const char* kKernelsReason =
    "kernels: 2 · max(own, u + (8 + √n) ε), own = error of the reference implementation in the same type, u = one "
    "rounding of the result, ε = unit roundoff of the sums' type, n = terms of the largest sum; compared with plain "
    "loops in float64";

// Shapes as in training: packed rows, several blocks per grid, heads that libraries support.
void add_training_cases(std::vector<KernelCase>& cases) {
  constexpr int64_t kRows = 384, kHidden = 512;
  add_matmul_cases(cases, kRows, kHidden, 320);
  add_elementwise_cases(cases, kRows, kHidden);
  add_embedding_cases(cases, kRows, 1500, kHidden);
  add_rms_norm_cases(cases, 2 * kRows, kHidden);
  add_swiglu_cases(cases, kRows, 1376);
  add_shift_streams_cases(cases, {"training", {200, 1, 183}, 64, {{8, 0}, {4, 2}, {4, 2, false}}});
  add_attention_cases(cases, {"training", {100, 92, 192}, 192, 8, 2, 64});
  add_attention_cases(cases, {"training_head_dim_128", {256}, 256, 4, 4, 128});
  add_cross_entropy_cases(cases, 48, 36'000, 0);
  for (const bool halves : {false, true}) add_adamw_case(cases, 100'000, halves, false);
  add_split_master_cases(cases, 100'000);
}

// Checks one case in one type; `under_way` names the current call.
void check_case(Stream& stream, const KernelCase& of, DType dtype, const std::vector<int64_t>& paddings,
                SelfCheck& check, std::string& under_way) {
  for (const int64_t padding : paddings) {
    under_way = of.name + (padding > 0 ? fmt::format(", {} elements between rows", padding) : "");
    const Outcome outcome = evaluate_in(stream, of, dtype, dtype, padding);
    for (const Comparison& found : compare(of, dtype, padding, outcome)) {
      const double scale = found.magnitude > 0 ? found.magnitude : 1;
      check.add(fmt::format("{}: {}", under_way, found.argument), found.error / scale, found.bound / scale);
    }
  }
}

}  // namespace

std::vector<KernelCase> self_test_cases(SelfTestSize size) {
  std::vector<KernelCase> cases = all_cases();
  if (size == SelfTestSize::full) add_training_cases(cases);
  return cases;
}

void check_kernels(Stream& stream, const std::vector<KernelCase>& cases, const std::vector<int64_t>& paddings,
                   const std::function<void(size_t calls)>& notify, SelfTestReport& report) {
  std::map<std::pair<std::string, DType>, SelfCheck> checks;
  std::vector<SelfCheck> thrown;
  bool works = true;
  Stream narrow = stream;
  narrow.cpu.threads = std::min(stream.cpu.threads, kThreads);  // the cases have scratch for so many threads
  for (size_t i = 0; i < cases.size() && works; ++i) {
    const std::string kernel = evaluate(cases[i], {.device = DeviceKind::meta}).cost.begin()->first;
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      const SelfCheck none{.section = "kernels", .name = kernel, .type = name_of(dtype), .reason = kKernelsReason};
      std::string under_way;
      try {
        check_case(narrow, cases[i], dtype, paddings, checks.try_emplace({kernel, dtype}, none).first->second,
                   under_way);
      } catch (const std::exception& exception) {
        std::string failure = under_way + ": " + as_error(exception).what();
        works = device_fault(stream).empty();
        if (!works) failure += fmt::format("; the {} cases after it were not run", cases.size() - i - 1);
        thrown.emplace_back(none).add(failure, NAN, 0);
        if (!works) break;
      }
    }
    if (notify) notify(i + 1);
  }
  for (const auto& [key, check] : checks) {
    if (check.calls > 0) report.checks.push_back(check);
  }
  report.checks.insert(report.checks.end(), thrown.begin(), thrown.end());
}

}  // namespace shiftron
