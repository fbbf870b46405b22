// The roofline as text.
#include "train/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace shiftron {
namespace {

// One line per operation of a group; "" if none was timed.
std::string communication_table(const Ledger& ledger, double steps) {
  if (ledger.traffic_times().empty()) return "";
  std::string text = fmt::format("{:<26}{:>10}{:>11}{:>11}\n", "communication", "calls", "ms", "awaited");
  for (const auto& [name, time] : ledger.traffic_times()) {
    text += fmt::format("{:<26}{:>10.1f}{:>11.3f}{:>11.3f}\n", name, static_cast<double>(time.calls) / steps,
                        time.seconds / steps * 1e3, time.awaited / steps * 1e3);
  }
  return text;
}

}  // namespace

double credible_peak(const std::vector<double>& measured) {
  constexpr double kMostSpread = 0.1;
  const auto [least, most] = std::ranges::minmax(measured);
  return most > 0 && most - least <= kMostSpread * most ? most : std::nan("");
}

std::string profile_table(const Ledger& ledger, int64_t steps, double step_seconds, const MachineRates& rates) {
  const std::map<std::string, KernelSum> sums = ledger.sums();
  std::vector<std::pair<std::string, KernelSum>> rows(sums.begin(), sums.end());
  std::ranges::sort(rows, [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  double all = 0;
  for (const auto& [name, cost] : rows) all += cost.seconds;
  const auto count = static_cast<double>(steps);
  std::string text = fmt::format("{:<26}{:>10}{:>11}{:>8}{:>9}{:>10}{:>10}\n", "kernel", "calls", "ms", "share", "GB/s",
                                 "GFLOP/s", "of peak");
  for (const auto& [name, cost] : rows) {
    if (cost.seconds <= 0) continue;
    const double bytes = cost.bytes / cost.seconds;
    const double operations = cost.operations / cost.seconds;
    const double reached =
        std::max(rates.bytes > 0 ? bytes / rates.bytes : 0, rates.operations > 0 ? operations / rates.operations : 0);
    const std::string of_peak = std::isnan(rates.operations) ? "-" : fmt::format("{:.0f}%", reached * 100);
    text += fmt::format("{:<26}{:>10.1f}{:>11.3f}{:>7.1f}%{:>9.1f}{:>10.1f}{:>10}\n", name, cost.calls / count,
                        cost.seconds / count * 1e3, cost.seconds / all * 100, bytes / 1e9, operations / 1e9, of_peak);
  }
  text += fmt::format("{:<26}{:>10}{:>11.3f}\n{:<26}{:>10}{:>11.3f}\n", "all kernels", "", all / count * 1e3, "step",
                      "", step_seconds * 1e3);
  text += communication_table(ledger, count);
  const std::string products = std::isnan(rates.operations)
                                   ? "unknown in products, as other work ran during its measurement"
                                   : fmt::format("{:.0f} GFLOP/s in products", rates.operations / 1e9);
  text += fmt::format("peak: {}, {:.1f} GB/s copying; {} steps", products, rates.bytes / 1e9, steps);
  return text;
}

}  // namespace shiftron
