// Keeps the requests and tokens of a run's tasks, and writes a report for each evaluated step.
#include "evaluate/step_benchmarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>

#include "checkpoint/steps.h"
#include "config/task_names.h"
#include "core/check.h"
#include "core/system_error.h"
#include "evaluate/benchmarks.h"
#include "parallel/agree.h"
#include "run/run_files.h"

namespace shiftron {
namespace {

BenchmarkOptions options_of(const RunConfig& config) {
  const EvaluationSection& evaluation = config.evaluation;
  BenchmarkOptions options{.tasks = split_task_names(evaluation.tasks), .data = evaluation.data};
  options.task = {.fewshot = evaluation.fewshot, .limit = evaluation.limit};
  if (evaluation.max_gen_toks > 0) options.task.most_tokens = evaluation.max_gen_toks;
  options.scorer.token_budget = config.train.micro_batch * config.train.sequence_length;
  options.scorer.beginning = evaluation.bos;
  options.scorer.boundary_fallback = evaluation.boundary_fallback;
  return options;
}

// Whether one of the configuration's tasks generates text.
bool generates(const RunConfig& config) {
  TaskRegistry registry;
  return std::ranges::any_of(
      registry.select(split_task_names(config.evaluation.tasks)).tasks,
      [&](const std::string& name) { return registry.definition(name).kind == TaskKind::generate; });
}

class StepBenchmarks : public StepEvaluation {
 public:
  StepBenchmarks(const RunConfig& config, const StoredTokenizer& tokenizer, const std::string& code_version,
                 HostCommunicator& world, const HostShare& share, Log& log)
      : config_(config),
        options_(options_of(config)),
        stored_tokenizer_(tokenizer),
        code_version_(code_version),
        world_(world),
        share_(share),
        log_(log),
        tokenizer_(tokenizer_for_vocab(config.model.vocab, tokenizer, "the run's tokenizer")),
        benchmarks_(options_, world) {
    if (leads()) options_.scorer.name_of = [this](size_t request) { return benchmarks_.origin_of(request); };
    ScorerOptions own = options_.scorer;
    own.progress = leads();
    run_on_all_ranks(
        world, [&] { tokens_ = tokens_of(benchmarks_.requests(), *tokenizer_, own, config.train.sequence_length); });
    if (leads()) {
      log.info(fmt::format("benchmarks {}: {} requests every {} steps", config.evaluation.tasks,
                           benchmarks_.requests().size(), config.evaluation.every));
      const std::string warning = benchmarks_.warning_of(tokens_, config.train.sequence_length);
      if (!warning.empty()) log.warning(warning);
    }
    benchmarks_.release_texts();
  }

  void plan(const ParallelLayout& layout, int rank, int threads, Ledger& planned) const override {
    Scorer::plan_live(config_, layout, rank, threads, !tokens_.prompts.empty(), planned);
  }

  void attach(Engine& engine) override {
    scorer_ = std::make_unique<Scorer>(config_, engine, stored_tokenizer_, "", world_, share_);
    if (!tokens_.prompts.empty()) scorer_->make_decoder();
  }

  std::optional<std::vector<StepValue>> evaluate(int64_t step, const EvaluationCallbacks& pace) override {
    const double began = seconds_since_1970();
    ScorerOptions scoring = options_.scorer;
    scoring.each_batch = pace.each_batch;
    scoring.keep_going = pace.keep_going;
    const std::vector<Answer> answers = scorer_->answer(benchmarks_.requests(), tokens_, scoring);
    if (answers.size() < benchmarks_.requests().size()) return std::nullopt;
    std::vector<StepValue> values;
    std::exception_ptr fault;
    if (leads()) {
      try {
        values = report(step, answers, began, [&] { wait_on(pace); });
      } catch (...) {
        fault = std::current_exception();
      }
      world_.broadcast_text("", 0);
    } else {
      while (!world_.broadcast_text("", 0).empty()) pace.each_batch();
    }
    run_on_all_ranks(world_, [&] {
      if (fault) std::rethrow_exception(fault);
    });
    return values;
  }

 private:
  bool leads() const { return world_.rank() == 0; }

  // On rank 0, while it computes the report: signals progress, also to the ranks that wait for it.
  void wait_on(const EvaluationCallbacks& pace) {
    pace.each_batch();
    world_.broadcast_text("more", 0);
  }

  std::vector<StepValue> report(int64_t step, const std::vector<Answer>& answers, double began,
                                const std::function<void()>& each_piece) {
    BenchmarkReport report = benchmarks_.report(answers, [&](int64_t, int64_t) { each_piece(); });
    if (const std::string warning = benchmarks_.warning_of(answers, report); !warning.empty()) {
      log_.warning(fmt::format("step {}: {}", step, warning));
    }
    std::vector<StepValue> values;
    for (const ResultRow& row : report.rows()) {
      values.push_back(
          {.task = row.name, .metric = row.metric, .value = row.estimate.value, .error = row.estimate.error});
    }
    const std::string& directory = config_.output.directory;
    CheckpointModel model;
    model.directory = checkpoints_of(directory) + "/" + step_name(step);
    model.config = config_;
    model.content.step = step;
    model.content.code_version = code_version_;
    try {
      report.write(evaluations_of(directory) + "/" + step_name(step),
                   facts_of(model, options_, *tokenizer_, code_version_, began));
    } catch (const std::exception& error) {  // a full disk does not end the run
      log_.warning(fmt::format("{}; the report of the benchmarks at step {} could not be written and is lost",
                               as_error(error).what(), step));
    }
    benchmarks_.take_back(std::move(report));
    return values;
  }

  const RunConfig& config_;
  BenchmarkOptions options_;
  StoredTokenizer stored_tokenizer_;
  std::string code_version_;
  HostCommunicator& world_;
  HostShare share_;
  Log& log_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Benchmarks benchmarks_;
  RequestTokens tokens_;
  std::unique_ptr<Scorer> scorer_;
};

}  // namespace

std::vector<std::string> find_task_faults(const RunConfig& config) {
  if (config.evaluation.tasks.empty()) return {};
  try {
    generates(config);
    return {};
  } catch (const Error& error) {
    return {std::string("evaluation.tasks: ") + error.what()};
  }
}

void require_task_items(const RunConfig& config) {
  if (!config.evaluation.tasks.empty()) Benchmarks(options_of(config), *make_single_world());
}

void plan_step_benchmarks(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                          Ledger& planned) {
  if (config.evaluation.tasks.empty()) return;
  Scorer::plan_live(config, layout, rank, threads, generates(config), planned);
}

std::unique_ptr<StepEvaluation> make_step_benchmarks(const RunConfig& config, const StoredTokenizer& tokenizer,
                                                     const std::string& code_version, HostCommunicator& world,
                                                     const HostShare& share, Log& log) {
  return std::make_unique<StepBenchmarks>(config, tokenizer, code_version, world, share, log);
}

}  // namespace shiftron
