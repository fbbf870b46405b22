// Benchmarks during a run: they change nothing in it, their values are those of its saved steps, and memory is as
// planned.
#include "evaluate/step_benchmarks.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/save.h"
#include "config/task_names.h"
#include "data/fixture.h"
#include "evaluate/benchmarks.h"
#include "evaluate/task_data.h"
#include "evaluate/tasks/benchmark_compare.h"
#include "expect_error.h"
#include "scratch.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 4;

struct StepLayout {
  int tp = 1, pp = 1, dp = 1, zero = 0;
  PipelineKind pipeline = PipelineKind::one_forward_one_backward;
  int ranks() const { return tp * pp * dp; }
  std::string name() const {
    return "tp " + std::to_string(tp) + " pp " + std::to_string(pp) + " dp " + std::to_string(dp) + " zero " +
           std::to_string(zero) + " " + to_string(pipeline);
  }
};

// A choice, a likelihood, a rolling text, and a text to be made.
std::string write_tasks(const Scratch& scratch) {
  scratch.write("items.jsonl",
                "{\"q\": \"the key and\", \"o\": [\"the value\", \"over\", \"a long document\"], \"r\": 1}\n"
                "{\"q\": \"a tensor\", \"o\": [\"under\", \"learns slowly\", \"stops\"], \"r\": 0}\n"
                "{\"q\": \"then the model reads\", \"o\": [\"a\", \"writes\", \"the head\"], \"r\": 2}\n");
  const std::string files = R"("files": {"test": "items.jsonl"},)";
  std::string names = scratch.write("choice.json", R"({"name": "choice", "kind": "multiple_choice", )" + files +
                                                       R"("context": "{q}", "choices": "o", "gold": "{r}",
                                                          "metrics": ["acc", "acc_norm"]})");
  names += "," + scratch.write("word.json", R"({"name": "word", "kind": "log_likelihood", )" + files +
                                                R"("context": "{q}", "target": " {o.1}", "metrics": ["acc"]})");
  scratch.write("text.txt", example_text(12));
  names += "," + scratch.write("text.json", R"({"name": "text", "kind": "rolling", "files": {"test": "text.txt"},
                                                "metrics": ["bits_per_byte"]})");
  return names + "," +
         scratch.write("made.json", R"({"name": "made", "kind": "generate", )" + files +
                                        R"("context": "{q}", "target": "{o.0}", "most_tokens": 5,
                                                         "until": ["\n"], "metrics": ["exact_match"]})");
}

RunConfig config_of(const Scratch& scratch, const StepLayout& layout, Precision precision) {
  RunConfig config = small_config({.query = 1, .key = 2, .value = 1}, precision);
  config.model.vocab = 330;
  config.model.layers = 4;
  config.train.sequence_length = 24;
  config.train.steps = kSteps;
  config.parallel = {.tp = layout.tp,
                     .pp = layout.pp,
                     .chunks = layout.pipeline == PipelineKind::interleaved ? 2 : 1,
                     .zero = layout.zero,
                     .pipeline = layout.pipeline};
  config.data.document_reset = false;  // in training, a row sees what stands before its document
  config.evaluation = {.every = 2, .tasks = write_tasks(scratch), .data = scratch.path()};
  config.output.directory = scratch / "run";
  return config;
}

const EvaluationCallbacks kGoesOn{.each_batch = [] {}, .keep_going = [] { return true; }};

template <ParameterState state>
std::vector<double> moments_of(const ParameterSet& set, const Parameter& parameter, Range range) {
  std::vector<std::byte> room;
  const void* values = set.read(parameter, state, range.begin, range.size(), room);
  if (set.types().accumulation == DType::float64) {
    return {static_cast<const double*>(values), static_cast<const double*>(values) + range.size()};
  }
  return {static_cast<const float*>(values), static_cast<const float*>(values) + range.size()};
}

// What the last step left of a run, moments read where a rank keeps them.
struct Left {
  TensorMap masters{}, first_moments{}, second_moments{};
  std::vector<double> losses{};
  bool operator==(const Left&) const = default;
};

void keep(const ParameterSet& set, Left& left, std::mutex& mutex) {
  collect(set, masters_of, left.masters, mutex);
  collect(set, moments_of<ParameterState::first_moment>, left.first_moments, mutex);
  collect(set, moments_of<ParameterState::second_moment>, left.second_moments, mutex);
}

using Asked = std::map<int64_t, std::vector<StepValue>>;  // by step

// Trains to the last step; `asked`: asks benchmarks on the way; `saves` the last step.
Left trained(const RunConfig& config, int ranks, Asked* asked = nullptr, bool saves = false) {
  Left left;
  std::mutex mutex;
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    RankTrainer rank(config, world);
    Log log(world.rank());
    std::unique_ptr<StepEvaluation> tasks;
    if (asked != nullptr) {
      tasks = make_step_benchmarks(config, stored_example(), "test", world, {}, log);
      tasks->attach(rank.trainer->engine());
    }
    const SampleReader samples = random_samples(config.train.sequence_length, config.model.vocab);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const double loss = rank.step(step, samples).loss;
      if (world.rank() == 0) left.losses.push_back(loss);
      if (asked == nullptr || step % config.evaluation.every != 0) continue;
      const auto values = tasks->evaluate(step, kGoesOn);
      ASSERT_TRUE(values);
      EXPECT_EQ(values->empty(), world.rank() != 0);
      if (world.rank() == 0) (*asked)[step] = *values;
      if (!saves || step != kSteps) continue;
      CheckpointContent content;
      content.step = step;
      content.state_json = R"({"configuration":{},"trainer":{}})";
      content.tokenizer = stored_example();
      const SaveResult saved = save_checkpoint(config.output.directory + "/checkpoints", content,
                                               rank.trainer->engine().parameters(), world, {.keep = 9}, log);
      EXPECT_TRUE(saved.saved) << saved.reason;
    }
    rank.trainer->engine().parameters().await_weights(rank.stream);
    keep(rank.trainer->engine().parameters(), left, mutex);
  });
  return left;
}

std::vector<StepLayout> step_layouts() {
  return {{},
          {.tp = 2},
          {.pp = 2},
          {.dp = 2},
          {.dp = 2, .zero = 1},
          {.tp = 2, .dp = 2, .zero = 1},
          {.pp = 2, .dp = 2, .zero = 1, .pipeline = PipelineKind::zb_v},
          {.pp = 2, .pipeline = PipelineKind::interleaved},
          {.tp = 2, .pp = 2}};
}

TEST(StepBenchmarks, LeaveARunAsItIs) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const StepLayout& layout : step_layouts()) {
      SCOPED_TRACE(layout.name() + " " + to_string(precision));
      const Scratch scratch;
      const RunConfig config = config_of(scratch, layout, precision);
      Asked asked;
      const Left with = trained(config, layout.ranks(), &asked), without = trained(config, layout.ranks());
      EXPECT_EQ(with.losses, without.losses);
      EXPECT_TRUE(with == without);
      EXPECT_EQ(asked.size(), 2u);
      ASSERT_EQ(asked[2][3].task, "text");
      EXPECT_NE(asked[2][3].value, asked[4][3].value);  // weights have moved
      fs::remove_all(config.output.directory);
    }
  }
}

// Rows are packed otherwise: sums of float64 in another order.
TEST(StepBenchmarks, AnswerAsTheSavedStepDoes) {
  constexpr double kTolerance = 1e-11;
  for (const StepLayout& layout : step_layouts()) {
    SCOPED_TRACE(layout.name());
    const Scratch scratch;
    const RunConfig config = config_of(scratch, layout, Precision::fp64);
    Asked asked;
    trained(config, layout.ranks(), &asked, true);
    const std::string directory = config.output.directory + "/checkpoints/" + step_name(kSteps);
    CheckpointModel model;
    model.directory = directory;
    model.config = config;
    model.content.tokenizer = stored_example();
    const BenchmarkOptions options{.tasks = split_task_names(config.evaluation.tasks),
                                   .data = config.evaluation.data,
                                   .output = scratch / "report"};
    std::vector<ResultRow> rows;
    run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
      const BenchmarkOutcome outcome = run_benchmarks(model, options, "test", world, {});
      if (world.rank() == 0) rows = outcome.rows;
    });
    ASSERT_EQ(rows.size(), asked[kSteps].size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const StepValue& value = asked[kSteps][i];
      EXPECT_EQ(value.task, rows[i].name);
      EXPECT_EQ(value.metric, rows[i].metric);
      EXPECT_NEAR(value.value, rows[i].estimate.value, kTolerance * rows[i].estimate.value)
          << value.task << value.metric;
      ASSERT_EQ(value.error.has_value(), rows[i].estimate.error.has_value());
      EXPECT_NEAR(value.error.value_or(1), rows[i].estimate.error.value_or(1), kTolerance * value.error.value_or(1));
    }
    std::vector<Evaluation> evaluations = {
        open_evaluation(config.output.directory + "/evaluations/" + step_name(kSteps)),
        open_evaluation(options.output)};
    name_evaluations(evaluations);
    const Comparison comparison = compare_evaluations(evaluations)[0];
    EXPECT_THAT(comparison.faults, ::testing::IsEmpty());
    EXPECT_EQ(comparison.differences.size(), rows.size());
    for (const PairedDifference& one : comparison.differences) EXPECT_NEAR(one.gain, 0, 1e-9) << one.task;
    EXPECT_EQ(evaluations[0].results["model_name"], evaluations[1].results["model_name"]);
  }
}

// A pass that is to end does so on all ranks, leaves nothing, and the next one answers as ever.
TEST(StepBenchmarks, EndWhereTheRunIsToStop) {
  for (const StepLayout& layout : {StepLayout{}, StepLayout{.dp = 2}, StepLayout{.pp = 2}}) {
    SCOPED_TRACE(layout.name());
    const Scratch scratch;
    const RunConfig config = config_of(scratch, layout, Precision::fp32);
    run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
      RankTrainer rank(config, world);
      Log log(world.rank());
      const auto tasks = make_step_benchmarks(config, stored_example(), "test", world, {}, log);
      tasks->attach(rank.trainer->engine());
      int all = 0, batches = 0;
      const auto whole =
          tasks->evaluate(1, {.each_batch = [&] { ++batches; }, .keep_going = [&] { return ++all > 0; }});
      ASSERT_TRUE(whole);
      EXPECT_GE(all, 2);
      EXPECT_GE(batches, 2);
      if (world.rank() == 0) fs::remove_all(config.output.directory);
      world.barrier();
      for (int last = 0; last < all; ++last) {
        int asked = 0;
        EXPECT_FALSE(tasks->evaluate(1, {.each_batch = [] {}, .keep_going = [&] { return asked++ < last; }}));
        EXPECT_EQ(asked, last + 1);
      }
      EXPECT_FALSE(fs::exists(config.output.directory));
      world.barrier();
      const auto again = tasks->evaluate(1, kGoesOn);
      ASSERT_TRUE(again);
      ASSERT_EQ(again->size(), whole->size());
      for (size_t i = 0; i < whole->size(); ++i) EXPECT_EQ((*again)[i].value, (*whole)[i].value);
    });
  }
}

// A perplexity's error takes long: meanwhile each rank hears of it, so that no deadline passes.
TEST(StepBenchmarks, TellEveryRankThatAReportIsUnderWay) {
  const Scratch scratch;
  RunConfig config = config_of(scratch, {.dp = 2}, Precision::fp32);
  const auto signs_of = [&](const std::string& metric) {
    config.evaluation.tasks = scratch.write(
        "word.json", R"({"name": "word", "kind": "log_likelihood", "files": {"test": "items.jsonl"}, "context": "{q}",
                         "target": " {o.1}", "metrics": [")" +
                         metric + "\"]}");
    std::vector<int> signs(2);
    run_thread_ranks(2, [&](HostCommunicator& world) {
      RankTrainer rank(config, world);
      Log log(world.rank());
      const auto tasks = make_step_benchmarks(config, stored_example(), "test", world, {}, log);
      tasks->attach(rank.trainer->engine());
      int& own = signs[static_cast<size_t>(world.rank())];
      EXPECT_TRUE(tasks->evaluate(1, {.each_batch = [&] { ++own; }, .keep_going = [] { return true; }}));
    });
    return signs;
  };
  const std::vector<int> plain = signs_of("acc"), with_error = signs_of("perplexity");
  for (size_t rank = 0; rank < 2; ++rank) EXPECT_GT(with_error[rank], plain[rank]) << "rank " << rank;
}

// What the plan says is taken before the first pass, and nothing later.
TEST(StepBenchmarks, TakeTheMemoryThatIsPlanned) {
  for (const StepLayout& layout : step_layouts()) {
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      SCOPED_TRACE(layout.name() + " " + to_string(precision));
      const Scratch scratch;
      RunConfig config = config_of(scratch, layout, precision);
      config.parallel.recompute = RecomputeKind::full;  // training needs least
      run_thread_ranks(layout.ranks(), [&](HostCommunicator& world) {
        Ledger planned;
        plan_memory(config, make_layout(config.parallel, world.size()), world.rank(), 1, planned);
        const int64_t training = planned.memory_total();
        plan_step_benchmarks(config, make_layout(config.parallel, world.size()), world.rank(), 1, planned);
        RankTrainer rank(config, world);
        Log log(world.rank());
        const auto tasks = make_step_benchmarks(config, stored_example(), "test", world, {.threads = 1}, log);
        tasks->attach(rank.trainer->engine());
        const auto expect_planned = [&](const char* when) {
          std::map<std::string, int64_t> taken = rank.ledger.memory(), expected = planned.memory();
          EXPECT_LE(taken["communication"], expected["communication"]) << when;  // taken when it is first needed
          taken.erase("communication");
          expected.erase("communication");
          EXPECT_EQ(taken, expected) << when << ", rank " << world.rank();
        };
        expect_planned("before");
        EXPECT_GT(planned.memory_total(), training);
        tasks->evaluate(1, kGoesOn);
        rank.step(1, random_samples(config.train.sequence_length, config.model.vocab));
        expect_planned("behind");
      });
    }
  }
}

TEST(StepBenchmarks, RefuseWhatCannotBeAsked) {
  const Scratch scratch;
  RunConfig config = config_of(scratch, {}, Precision::fp32);
  EXPECT_THAT(find_task_faults(config), ::testing::IsEmpty());
  config.evaluation.tasks = "hellaswg, winogrande";
  EXPECT_THAT(find_task_faults(config),
              ::testing::ElementsAre(::testing::AllOf(::testing::HasSubstr("evaluation.tasks: no such task"),
                                                      ::testing::HasSubstr("hellaswag"))));
  const auto world = make_single_world();
  Log log(0);
  config.evaluation.tasks = "hellaswag";
  EXPECT_ERROR(make_step_benchmarks(config, stored_example(), "test", *world, {}, log), ExitCode::bad_input,
               scratch.path() + "/hellaswag");
  // It makes more tokens than a run of 24 reads at once.
  config.evaluation.tasks = "hendrycks_math_algebra";
  config.evaluation.data = kTaskData + "/hub";
  EXPECT_ERROR(make_step_benchmarks(config, stored_example(), "test", *world, {}, log), ExitCode::bad_input,
               "hendrycks_math_algebra, item 0");
  // As with a dataset whose dataset.json says fewer tokens than its tokenizer has.
  config.model.vocab = 329;
  EXPECT_ERROR(make_step_benchmarks(config, stored_example(), "test", *world, {}, log), ExitCode::bad_input,
               "the run's tokenizer has 330 tokens, but the model has only 329");
}

}  // namespace
}  // namespace shiftron::testing
