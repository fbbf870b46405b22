// A model with a weight that is not finite: none of its results counts as a value.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "evaluate/benchmarks.h"
#include "evaluate/continue_ids.h"
#include "evaluate/dataset_fixture.h"
#include "evaluate/held_out.h"
#include "evaluate/saved_model.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

using ::testing::HasSubstr;

CheckpointModel spoilt_model(const Scratch& scratch) {
  return saved_model(scratch, model_config(), [](ParameterSet& set) {
    set_weights(set);
    for (const auto& parameter : set.parameters()) {
      if (parameter->spec.group == DecayGroup::matrix || parameter->spec.group == DecayGroup::shift) continue;
      set_element(parameter->weight, 0, std::numeric_limits<double>::quiet_NaN());
    }
  });
}

// A choice and a text, asked of two ranks.
TEST(NonFinite, AnswersOfTasksAreCountedAndNamed) {
  const Scratch scratch;
  const CheckpointModel model = spoilt_model(scratch);
  scratch.write("items.jsonl", R"({"q": "the key and", "o": ["the value", "over"], "r": 0})");
  const std::string files = R"("files": {"test": "items.jsonl"}, "context": "{q}",)";
  const std::string choice = scratch.write("choice.json", R"({"name": "choice", "kind": "multiple_choice", )" + files +
                                                              R"("choices": "o", "gold": "{r}", "metrics": ["acc"]})");
  const std::string made =
      scratch.write("made.json", R"({"name": "made", "kind": "generate", )" + files +
                                     R"("target": "{o.0}", "most_tokens": 5, "metrics": ["exact_match"]})");
  std::vector<ResultRow> rows;
  ::testing::internal::CaptureStderr();
  run_thread_ranks(2, [&](HostCommunicator& world) {
    const BenchmarkOutcome own =
        run_benchmarks(model, {.tasks = {choice, made}, .output = scratch / "report"}, "a test", world, {});
    if (world.rank() == 0) rows = own.rows;
  });
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(told, HasSubstr("3 of 3 answers are not finite"));
  EXPECT_THAT(told, HasSubstr("choice, item 0 (" + scratch.path() + "/items.jsonl"));
  ASSERT_EQ(rows.size(), 2);
  EXPECT_TRUE(std::isnan(rows[1].estimate.value)) << "no text was made";
}

// Of a sound model: a text without blanks is one word.
TEST(NonFinite, APerplexityThatNoNumberHoldsIsTold) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch, model_config());
  const std::string text = scratch.write("text.txt", std::string(5000, 'x'));
  ::testing::internal::CaptureStderr();
  const BenchmarkOutcome outcome = run_benchmarks(
      model, {.tasks = {"perplexity:" + text}, .output = scratch / "report"}, "a test", *make_single_world(), {});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("perplexity_text word_perplexity is too large for a floating-point number"));
  EXPECT_TRUE(std::isinf(outcome.rows.at(0).estimate.value));
}

TEST(NonFinite, NoTextIsMade) {
  const Scratch scratch;
  const CheckpointModel model = spoilt_model(scratch);
  run_thread_ranks(2, [&](HostCommunicator& world) {
    EXPECT_ERROR(continue_prompts(model, {{1, 2}}, vocabulary_of_ids(model, {}), {}, 1, world, {}, {}),
                 ExitCode::bad_input, world.rank() == 0 ? "are not finite" : "");
  });
}

TEST(NonFinite, AHeldOutLossIsRefused) {
  const Scratch scratch;
  const CheckpointModel model = spoilt_model(scratch);
  const std::string dataset = dataset_of(scratch, "sound", std::vector<std::string>(20, "the key and the value"));
  const auto world = make_single_world();
  EXPECT_ERROR(evaluate_held_out(model, {dataset}, *world, {}), ExitCode::bad_input,
               model.directory + " is not finite");
}

}  // namespace
}  // namespace shiftron::testing
