// A pass over benchmark tasks: items out of files, answers by the model on all ranks, values and report on rank 0.
#pragma once

#include <nlohmann/json.hpp>
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
  std::vector<std::string> tasks{};  // as names_of_tasks() gives them
  std::string data{};                // directory of their files
  std::string output{};              // directory of reports, and of a journal until they are written; "": neither
  TaskOptions task{};
  ScorerOptions scorer{};  // its journal and its names of requests are set here
};

struct BenchmarkOutcome {  // empty but on rank 0
  std::vector<ResultRow> rows{};
  std::string results_path{};
};

// Tasks with their items on rank 0, what they ask on all ranks.
class Benchmarks {
 public:
  // Every rank of `world` calls it. Throws Error(bad_input) for tasks and files that cannot be evaluated.
  Benchmarks(const BenchmarkOptions& options, ControlPlane& world);

  const std::vector<Request>& requests() const { return requests_; }
  // Where a request comes from, for messages; on rank 0.
  const std::string& origin_of(size_t request) const { return origins_.at(request); }
  // Forgets the texts of requests, whose tokens are known.
  void forget_texts();
  // On rank 0, of the answers to all requests. The report has the tasks from here on, until it is given back;
  // `pieces` as of aggregate().
  BenchmarkReport report(const std::vector<Answer>& answers, const Pieces& pieces = {});
  // On rank 0: which answers hold no finite number, or which values of the report are too large for one, and what to
  // do; empty where there is none.
  std::string warning_of(const std::vector<Answer>& answers, const BenchmarkReport& report) const;
  void take_back(BenchmarkReport report);
  // On rank 0: which requests lost their beginning, as the model reads max_length tokens at once; empty where none did.
  std::string warning_of(const RequestTokens& tokens, int64_t max_length) const;

 private:
  std::string non_finite(const std::vector<Answer>& answers) const;
  // "37 of 240 WHAT: where the first of these requests come from". `requests`: in their order, one at least.
  std::string told(const std::vector<size_t>& requests, const std::string& what) const;

  Selection selection_;
  std::vector<AnsweredTask> tasks_;
  std::vector<std::string> origins_;
  std::vector<Request> requests_;
};

// What a report says of a model, an evaluation of it, and its tokenizer. `began`: seconds since 1970.
ReportFacts facts_of(const CheckpointModel& model, const BenchmarkOptions& options, const Tokenizer& tokenizer,
                     const std::string& code_version, double began);

// Every rank of `world` calls it. A pass that was killed and is made again with the same options takes what was
// answered from the journal. Throws Error(bad_input) for tasks, files and items that cannot be evaluated.
BenchmarkOutcome run_benchmarks(const CheckpointModel& model, const BenchmarkOptions& options,
                                const std::string& code_version, HostCommunicator& world, const HostShare& share);

}  // namespace shiftron
