// What a run reports about its steps: metrics.jsonl, TensorBoard, the progress line. Rank 0 writes, the others do
// nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/ledger.h"
#include "core/log.h"
#include "run/run_files.h"
#include "run/step_result.h"
#include "run/tensorboard.h"

namespace shiftron {

class RunReport {
 public:
  RunReport() = default;  // writes nothing
  RunReport(RunReport&&) noexcept = default;
  RunReport& operator=(RunReport&&) noexcept = default;
  ~RunReport();  // tries once more to write what waits
  // Appends to the files of config.output.directory. Training starts with step `first_step`; what older files hold for
  // it and later steps no longer counts. `peak`: GEMM operations per second of all ranks, or NaN if it is not known;
  // then, and once a step exceeds it, no share of it is reported.
  RunReport(const RunConfig& config, int64_t first_step, double peak, Log& log,
            std::function<void(const std::string& line)> show_progress);

  // Reports one step: its result, and what this rank's memory is used for.
  void step(int64_t step, const StepResult& result, const std::vector<std::string>& group_names, const Ledger& ledger);
  void validation(int64_t step, const EvaluationResult& result);
  void tasks(int64_t step, const std::vector<StepValue>& values);
  // Call it before a step is saved: afterwards the rows of the steps before it are on the disk, and a configuration
  // that was moved away has been written again.
  void sync();

 private:
  void write(const nlohmann::ordered_json& line);
  const RunConfig* config_ = nullptr;
  Log* log_ = nullptr;
  int64_t first_step_ = 1;
  double peak_ = 0;  // NaN: not known, or a step has exceeded it
  std::function<void(const std::string& line)> show_progress_;
  JsonLines metrics_;
  bool lines_waiting_ = false, move_reported_ = false;
  TensorBoard tensorboard_;
};

// 75 -> "1:15", 3675 -> "1:01:15"
std::string duration_text(double seconds);

// 1234567 -> "1,234,567"
std::string thousands(int64_t value);

}  // namespace shiftron
