// The results of a self-test: checks with their bounds, and rates next to reference rates; as JSON and as text.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shiftron {

// Calls of one kind, compared with the expected results. The worst call is kept.
struct SelfCheck {
  std::string section{};  // "kernels", "training", "communicators"
  std::string name{};     // of the operation
  std::string type{};     // of activations
  std::string worst{};    // the call with the largest error relative to its bound, and which result
  int64_t calls = 0;
  int64_t failed = 0;  // of these
  double error = 0;    // of the worst call, relative to the largest value
  double bound = 0;
  std::string reason{};  // of the bound
  int rank = 0;
  bool passed() const { return failed == 0; }
  // Counts one more comparison.
  void add(const std::string& call, double its_error, double its_bound);
};

struct MeasuredRate {
  std::string name{}, problem{}, unit{};
  double rate = 0;
  double reference = 0;  // 0: unknown
  std::string reference_of{};
  int rank = 0;
};

struct SelfTestReport {
  std::string device{}, host{}, libraries{}, size{};
  int ranks = 1;
  double seconds = 0;
  std::vector<SelfCheck> checks{};
  std::vector<MeasuredRate> rates{};

  std::vector<SelfCheck> failures() const;
};

nlohmann::ordered_json to_json(const SelfTestReport& report);
// Checks and rates only, which is what ranks send.
SelfTestReport report_from_json(const std::string& json);
std::string to_text(const SelfTestReport& report);  // a table
// Which checks failed, and what to do; empty if all passed.
std::string verdict(const SelfTestReport& report);

}  // namespace shiftron
