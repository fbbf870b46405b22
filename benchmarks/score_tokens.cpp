// Tokens per second of scoring, compared with the forward pass for held-out loss of the same model.
//   score_tokens --config FILE [--KEY VALUE]… [--budget N] [--rounds N] [--json]
// Random weights and random rows in the shapes of tasks: MMLU with five examples (one row for four letters, rows of
// a subject of similar length), HellaSwag (short rows, a sixth of whose tokens is scored), LAMBADA (one word). Rounds
// of both take turns; medians are printed. Only tokens of rows count, not the padding of microbatches.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "core/philox.h"
#include "evaluate/token_scorer.h"
#include "program.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct TaskShape {
  const char* name;
  int64_t documents, shortest, longest;  // tokens of a context
  int64_t continuation;                  // tokens
  int choices;
};

ScorePlanner make_passes(const TaskShape& shape, int64_t vocab) {
  const Philox random(1, shape.name);
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.uniform(drawn++) * static_cast<double>(below));
  };
  ScorePlanner planner;
  const int64_t least = std::max<int64_t>(shape.shortest, 1);
  for (int64_t i = 0; i < shape.documents; ++i) {
    std::vector<int32_t> context;
    const int64_t length = least + draw(std::max<int64_t>(shape.longest - least, 0) + 1);
    for (int64_t t = 0; t < length; ++t) context.push_back(static_cast<int32_t>(draw(vocab)));
    for (int choice = 0; choice < shape.choices; ++choice) {
      ScoreTokens pass{.input = context, .first = length - 1, .targets = {}};
      for (int64_t t = 0; t < shape.continuation; ++t) pass.targets.push_back(static_cast<int32_t>(draw(vocab)));
      pass.input.insert(pass.input.end(), pass.targets.begin(), pass.targets.end() - 1);
      planner.add(pass);
    }
  }
  return planner;
}

// One rank's held-out pass, without its files.
class HeldOut {
 public:
  HeldOut(const RunConfig& config, int threads) : config_(config), world_(make_single_world()) {
    const ParallelLayout layout;
    MemoryPlan plan;
    {
      Ledger planned;
      Stream meta{.device = DeviceKind::meta, .ledger = &planned, .cpu = {.threads = threads}};
      const auto world = make_meta_world(0, 1);
      Engine engine(config, make_groups(*world, layout, config.model.kv_heads), meta, {}, false);
      engine.evaluate(
          1, [](int, HostBatch&) {}, Tensor(nullptr, DType::float64, {kLossTotals}, DeviceKind::meta));
      plan = engine.arena_peaks();
    }
    stream_.ledger = &ledger_;
    stream_.cpu.threads = threads;
    engine_ =
        std::make_unique<Engine>(config, make_groups(*world_, layout, config.model.kv_heads), stream_, plan, false);
    engine_->parameters().initialise(1);
    sums_ = Buffer(DeviceKind::cpu, kLossTotals * size_of(DType::float64), ledger_, "sums");
  }
  double tokens_per_second(int microbatches) {
    const Philox random(2, "held out");
    const BatchReader read = [&](int index, HostBatch& batch) {
      for (size_t t = 0; t < batch.ids.size(); ++t) {
        batch.ids[t] = static_cast<int32_t>(random.uniform(static_cast<uint64_t>(index) * batch.ids.size() + t) *
                                            static_cast<double>(config_.model.vocab));
        batch.targets[t] = batch.ids[t];
        batch.document_starts[t] = 0;
      }
    };
    const auto start = Clock::now();
    engine_->evaluate(microbatches, read, sums_.tensor(0, DType::float64, {kLossTotals}));
    return static_cast<double>(microbatches * config_.train.micro_batch * config_.train.sequence_length) /
           seconds_since(start);
  }

 private:
  RunConfig config_;
  std::unique_ptr<HostCommunicator> world_;
  Ledger ledger_;
  Stream stream_;
  std::unique_ptr<Engine> engine_;
  Buffer sums_;
};

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed = cli::parse_config(
      arguments, {cli::integer_option("budget", "tokens of a microbatch", at_least(1), "2048"),
                  cli::integer_option("rounds", "of the measurement", at_least(1), "5"), cli::json_flag()});
  if (parsed.help) {
    std::cout << "score_tokens --config FILE [--KEY VALUE]… [--budget N] [--rounds N] [--json]\n";
    return 0;
  }
  RunConfig config = parsed.config;
  validate(config, 1, Use::dry_run);
  resolve(config);
  const int threads = cli::thread_count(config.device.threads);
  const auto world = make_single_world();
  TokenScorer scorer(config, [](ParameterSet& set) { set.initialise(1); }, "benchmark", *world, {.threads = threads});
  HeldOut held_out(config, threads);
  const ScoringOptions options{.token_budget = parsed.integer("budget")};
  const int64_t longest = config.train.sequence_length;
  for (const TaskShape& shape : {TaskShape{"mmlu_5_shot", 64, longest / 2, longest - 1, 1, 4},
                                 TaskShape{"hellaswag", 80, longest / 12, longest / 4, 1 + longest / 20, 4},
                                 TaskShape{"lambada", 300, longest / 8, longest / 4, 2, 1}}) {
    const ScorePlanner passes = make_passes(shape, config.model.vocab);
    scorer.score(passes, options);
    held_out.tokens_per_second(2);
    std::vector<double> rates, references, shares;
    for (int64_t round = 0; round < parsed.integer("rounds"); ++round) {
      references.push_back(held_out.tokens_per_second(4));
      const auto start = Clock::now();
      scorer.score(passes, options);
      rates.push_back(static_cast<double>(passes.tokens()) / seconds_since(start));
      shares.push_back(rates.back() / references.back());
    }
    const auto [least, most] = std::ranges::minmax(shares);
    const json result = {{"task", shape.name},
                         {"precision", to_string(config.train.precision)},
                         {"threads", threads},
                         {"budget", options.token_budget},
                         {"rows_tokens", passes.tokens()},
                         {"passes", passes.passes()},
                         {"tokens_per_second", median(rates)},
                         {"held_out_tokens_per_second", median(references)},
                         {"share", median(shares)},
                         {"share_range", {least, most}}};
    if (parsed.has("json")) {
      std::cout << result.dump() << std::endl;
      continue;
    }
    std::cout << fmt::format(
                     "{}, {}, {} threads, microbatches of {}: {:.0f} tokens/s, held-out loss {:.0f}: {:.2f} times "
                     "({:.2f} to {:.2f})",
                     shape.name, to_string(config.train.precision), threads, options.token_budget, median(rates),
                     median(references), median(shares), least, most)
              << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("score_tokens", shiftron::run, argc, argv);
}
