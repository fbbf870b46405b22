// Counting, JSON and the table of a self-test.
#include "evaluate/self_test_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

namespace shiftron {
namespace {

// The error relative to its bound; infinite if not finite.
double used(double error, double bound) {
  if (error == 0) return 0;
  const double share = error / bound;
  return std::isfinite(share) ? share : INFINITY;
}

nlohmann::ordered_json number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}
double number_from(const nlohmann::json& json) {
  return json.is_null() ? NAN : json.get<double>();
}

// One line for all ranks: calls are summed, the rest is from the worst rank.
std::vector<SelfCheck> over_ranks(const std::vector<SelfCheck>& checks) {
  std::vector<SelfCheck> lines;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> places;
  for (const SelfCheck& check : checks) {
    const auto [place, first] = places.emplace(std::tuple(check.section, check.name, check.type), lines.size());
    if (first) {
      lines.push_back(check);
      continue;
    }
    SelfCheck& line = lines[place->second];
    const int64_t calls = line.calls + check.calls, failed = line.failed + check.failed;
    const auto rank_of = [](const SelfCheck& of) { return std::pair(of.failed > 0, used(of.error, of.bound)); };
    if (rank_of(check) > rank_of(line)) line = check;
    line.calls = calls;
    line.failed = failed;
  }
  return lines;
}

}  // namespace

void SelfCheck::add(const std::string& call, double its_error, double its_bound) {
  calls += 1;
  const bool fails = !(its_error <= its_bound);
  if (fails) failed += 1;
  if (calls > 1 && used(its_error, its_bound) <= used(error, bound)) return;
  worst = call;
  error = its_error;
  bound = its_bound;
}

std::vector<SelfCheck> SelfTestReport::failures() const {
  std::vector<SelfCheck> failed;
  std::copy_if(checks.begin(), checks.end(), std::back_inserter(failed),
               [](const SelfCheck& check) { return !check.passed(); });
  return failed;
}

nlohmann::ordered_json to_json(const SelfTestReport& report) {
  nlohmann::ordered_json json = {{"device", report.device},
                                 {"host", report.host},
                                 {"libraries", report.libraries},
                                 {"size", report.size},
                                 {"ranks", report.ranks},
                                 {"seconds", report.seconds},
                                 {"passed", report.failures().empty()}};
  json["checks"] = json["rates"] = nlohmann::ordered_json::array();
  for (const SelfCheck& check : report.checks) {
    json["checks"].push_back({{"section", check.section},
                              {"name", check.name},
                              {"type", check.type},
                              {"worst", check.worst},
                              {"calls", check.calls},
                              {"failed", check.failed},
                              {"error", number(check.error)},
                              {"bound", number(check.bound)},
                              {"reason", check.reason},
                              {"rank", check.rank}});
  }
  for (const MeasuredRate& rate : report.rates) {
    json["rates"].push_back({{"name", rate.name},
                             {"problem", rate.problem},
                             {"rate", rate.rate},
                             {"unit", rate.unit},
                             {"reference", rate.reference > 0 ? number(rate.reference) : nullptr},
                             {"reference_of", rate.reference_of},
                             {"rank", rate.rank}});
  }
  return json;
}

SelfTestReport report_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  SelfTestReport report;
  for (const auto& check : json.at("checks")) {
    report.checks.push_back({.section = check.at("section"),
                             .name = check.at("name"),
                             .type = check.at("type"),
                             .worst = check.at("worst"),
                             .calls = check.at("calls"),
                             .failed = check.at("failed"),
                             .error = number_from(check.at("error")),
                             .bound = number_from(check.at("bound")),
                             .reason = check.at("reason"),
                             .rank = check.at("rank")});
  }
  for (const auto& rate : json.at("rates")) {
    report.rates.push_back({.name = rate.at("name"),
                            .problem = rate.at("problem"),
                            .unit = rate.at("unit"),
                            .rate = rate.at("rate"),
                            .reference = rate.at("reference").is_null() ? 0 : rate.at("reference").get<double>(),
                            .reference_of = rate.at("reference_of"),
                            .rank = rate.at("rank")});
  }
  return report;
}

std::string to_text(const SelfTestReport& report) {
  std::string text = fmt::format("{} on {}, {} rank{}; {}\n", report.device, report.host, report.ranks,
                                 report.ranks > 1 ? "s" : "", report.libraries);
  std::string section;
  std::vector<std::string> reasons;
  for (const SelfCheck& check : over_ranks(report.checks)) {
    if (check.section != section) {
      section = check.section;
      text += fmt::format("\n{:<30} {:<5} {:>6}  {:>9} {:>9}  {:<8} {}\n", section, "type", "calls", "error", "bound",
                          "verdict", "worst call");
    }
    const std::string verdict = check.passed() ? "ok" : fmt::format("{} FAILED", check.failed);
    text += fmt::format("{:<30} {:<5} {:>6}  {:>9.2e} {:>9.2e}  {:<8} {}{}\n", check.name, check.type, check.calls,
                        check.error, check.bound, verdict, check.worst,
                        report.ranks > 1 ? fmt::format(" (rank {})", check.rank) : "");
    if (std::find(reasons.begin(), reasons.end(), check.reason) == reasons.end()) reasons.push_back(check.reason);
  }
  text += "\nErrors are relative to the largest value. Bounds:\n";
  for (const std::string& reason : reasons) text += "  " + reason + "\n";
  if (!report.rates.empty()) text += fmt::format("\n{:<30} {:>10} {:<8} {}\n", "rates", "measured", "", "problem");
  for (const MeasuredRate& rate : report.rates) {
    const std::string reference_text =
        rate.reference > 0 ? fmt::format("; {:.0f} % of the reference, {:.4g} on {}", 100 * rate.rate / rate.reference,
                                         rate.reference, rate.reference_of)
                           : "";
    text += fmt::format("{:<30} {:>10.4g} {:<8} {}{}{}\n", rate.name, rate.rate, rate.unit, rate.problem,
                        reference_text, report.ranks > 1 ? fmt::format(" (rank {})", rate.rank) : "");
  }
  return text;
}

std::string verdict(const SelfTestReport& report) {
  const std::vector<SelfCheck> failures = report.failures();
  if (failures.empty()) return "";
  std::string text = fmt::format("the self-test failed: {} of {} checks\n", failures.size(), report.checks.size());
  for (const SelfCheck& check : failures) {
    text += fmt::format("  {}, {}{}{}, rank {}: {} of {} calls; error {:.2e}, bound {:.2e} at {}\n", check.section,
                        check.name, check.type.empty() ? "" : " in ", check.type, check.rank, check.failed, check.calls,
                        check.error, check.bound, check.worst);
  }
  return text +
         "next: do not train on this device with this build; run the same command with --json and report its output";
}

}  // namespace shiftron
