// A pass over benchmark tasks: reads items from files, asks the model on all ranks, reports on rank 0.
#pragma once

#include <string>
#include <vector>

#include "core/host.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/scorer.h"
#include "evaluate/tasks/benchmark_report.h"
#include "evaluate/tasks/task.h"
#include "parallel/host_communicator.h"

namespace shiftron {

struct BenchmarkOptions {
  std::vector<std::string> tasks{};  // as split_task_names() returns them
  std::string data{};                // directory of their files
  std::string output{};              // directory for reports, and for a journal until they are written; "": neither
  TaskOptions task{};
  ScorerOptions scorer{};  // run_benchmarks() sets its journal and name_of
};

struct BenchmarkOutcome {  // filled on rank 0 only
  std::vector<ResultRow> rows{};
  std::string results_path{};
};

// Tasks and their items on rank 0; their requests on all ranks.
class Benchmarks {
 public:
  // Every rank of `world` calls it. Throws Error(bad_input) if tasks or files cannot be evaluated.
  Benchmarks(const BenchmarkOptions& options, ControlPlane& world);

  const std::vector<Request>& requests() const { return requests_; }
  // Where a request comes from, for messages; on rank 0.
  const std::string& origin_of(size_t request) const { return origins_.at(request); }
  // Frees the texts of requests, once their tokens are known.
  void release_texts();
  // On rank 0: the report on the answers to all requests. It owns the tasks until take_back(); `pieces` as in
  // aggregate().
  BenchmarkReport report(const std::vector<Answer>& answers, const Pieces& pieces = {});
  // On rank 0: a warning about answers that are not finite, or otherwise about values of the report that overflow, and
  // what to do; empty if there are none.
  std::string warning_of(const std::vector<Answer>& answers, const BenchmarkReport& report) const;
  void take_back(BenchmarkReport report);
  // On rank 0: a warning about requests whose first tokens were dropped, because the model reads max_length tokens at
  // once; empty if there are none.
  std::string warning_of(const RequestTokens& tokens, int64_t max_length) const;

 private:
  std::string non_finite(const std::vector<Answer>& answers) const;
  // "37 of 240 WHAT: where the first of these requests come from". `requests`: ascending, not empty.
  std::string list_of(const std::vector<size_t>& requests, const std::string& what) const;

  Selection selection_;
  std::vector<AnsweredTask> tasks_;
  std::vector<std::string> origins_;
  std::vector<Request> requests_;
};

// Facts for a report: the model, its evaluation and its tokenizer. `began`: seconds since 1970.
ReportFacts facts_of(const CheckpointModel& model, const BenchmarkOptions& options, const Tokenizer& tokenizer,
                     const std::string& code_version, double began);

// Every rank of `world` calls it. If a pass was killed, a new one with the same options reads the answers so far from
// the journal. Throws Error(bad_input) if tasks, files or items cannot be evaluated.
BenchmarkOutcome run_benchmarks(const CheckpointModel& model, const BenchmarkOptions& options,
                                const std::string& code_version, HostCommunicator& world, const HostShare& share);

}  // namespace shiftron
