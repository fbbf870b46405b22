// Evaluation of a checkpoint on datasets, valid ones and such that give nothing to divide by.
#include "evaluate/held_out.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/file.h"
#include "data/dataset.h"
#include "evaluate/dataset_fixture.h"
#include "evaluate/saved_model.h"
#include "expect_error.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kWindow = 8;

// A saved step of a model with initial weights.
CheckpointModel initial_model(const Scratch& scratch) {
  RunConfig config = small_config({}, Precision::fp64);
  config.model.vocab = 330;
  config.train.sequence_length = kWindow;
  return saved_model(scratch, config, [](ParameterSet&) {});
}

TEST(HeldOut, MeansAreOfWhatIsCounted) {
  const Scratch scratch;
  const CheckpointModel model = initial_model(scratch);
  const std::vector<std::string> documents(5, "the key and the value");
  const std::string dataset = dataset_of(scratch, "sound", documents);
  const auto world = make_single_world();
  const HeldOutResult result = evaluate_held_out(model, {dataset}, *world, {}).all;
  EXPECT_NEAR(result.perplexity, std::exp(result.loss), 1e-9);
  EXPECT_GT(result.loss, std::log(330.0) / 2);
  EXPECT_NEAR(result.bits_per_byte,
              result.loss * static_cast<double>(result.targets) / (std::log(2.0) * static_cast<double>(result.bytes)),
              1e-9);
}

// tp divides the rows of a microbatch, of as many windows as that takes.
TEST(HeldOut, WindowsOfOddLengthInEveryLayout) {
  const Scratch scratch;
  CheckpointModel model = initial_model(scratch);
  model.config.train.sequence_length = 7;
  const std::string dataset = dataset_of(scratch, "odd", std::vector<std::string>(9, "the key and the value"));
  const auto single = make_single_world();
  const HeldOutResult expected = evaluate_held_out(model, {dataset}, *single, {}).all;
  model.config.parallel.tp = 2;
  for (const int64_t windows : {1, 3}) {
    model.config.train.micro_batch = windows;
    run_thread_ranks(4, [&](HostCommunicator& world) {
      const HeldOutResult result = evaluate_held_out(model, {dataset}, world, {}).all;
      EXPECT_NEAR(result.loss, expected.loss, 1e-12);
      EXPECT_EQ(result.targets, expected.targets);
    });
  }
}

// Each as if it were evaluated alone, also where a microbatch holds windows of both, and of the total nothing changes.
TEST(HeldOut, EveryDatasetIsAlsoReportedByItself) {
  const Scratch scratch;
  CheckpointModel model = initial_model(scratch);
  const std::vector<std::string> datasets = {
      dataset_of(scratch, "first", std::vector<std::string>(5, "the key and the value")),
      dataset_of(scratch, "second", std::vector<std::string>(4, "another text of other words"))};
  const auto single = make_single_world();
  const std::vector<HeldOutResult> alone = {evaluate_held_out(model, {datasets[0]}, *single, {}).all,
                                            evaluate_held_out(model, {datasets[1]}, *single, {}).all};
  EXPECT_TRUE(evaluate_held_out(model, {datasets[0]}, *single, {}).sources.empty());
  model.config.train.micro_batch = 3;
  ASSERT_NE(alone[0].windows % 3, 0);
  for (const int tp : {1, 2}) {
    model.config.parallel.tp = tp;
    run_thread_ranks(4, [&](HostCommunicator& world) {
      const HeldOutResults found = evaluate_held_out(model, datasets, world, {});
      ASSERT_EQ(found.sources.size(), 2u);
      double nats = 0;
      for (size_t i = 0; i < 2; ++i) {
        const HeldOutResult& source = found.sources[i];
        EXPECT_NEAR(source.loss, alone[i].loss, 1e-12);
        EXPECT_NEAR(source.bits_per_byte, alone[i].bits_per_byte, 1e-12);
        EXPECT_NEAR(source.perplexity, alone[i].perplexity, 1e-9);
        EXPECT_EQ(source.accuracy, alone[i].accuracy);
        EXPECT_EQ(source.targets, alone[i].targets);
        EXPECT_EQ(source.bytes, alone[i].bytes);
        EXPECT_EQ(source.windows, alone[i].windows);
        EXPECT_EQ(source.windows_of_dataset, alone[i].windows_of_dataset);
        EXPECT_EQ(source.dropped_tokens, alone[i].dropped_tokens);
        nats += source.loss * static_cast<double>(source.targets);
      }
      EXPECT_EQ(found.all.targets, alone[0].targets + alone[1].targets);
      EXPECT_EQ(found.all.bytes, alone[0].bytes + alone[1].bytes);
      EXPECT_EQ(found.all.windows, alone[0].windows + alone[1].windows);
      EXPECT_NEAR(found.all.loss, nats / static_cast<double>(found.all.targets), 1e-12);
    });
  }
  // Of one of them a window, of the other none.
  model.config.parallel.tp = 1;
  const HeldOutResults first = evaluate_held_out(model, datasets, *make_single_world(), {}, 1);
  EXPECT_EQ(first.sources[0].windows + first.sources[1].windows, 1);
  const HeldOutResult& empty = first.sources[first.sources[0].windows == 0 ? 0 : 1];
  EXPECT_TRUE(std::isnan(empty.loss) && std::isnan(empty.accuracy) && std::isnan(empty.bits_per_byte));
}

// Else a remainder of them is evaluated, or none.
TEST(HeldOut, MoreWindowsThanCanBeNumberedAreRefused) {
  const Scratch scratch;
  CheckpointModel model = initial_model(scratch);
  model.config.train.sequence_length = 2;
  const std::string dataset = dataset_of(scratch, "endless", std::vector<std::string>(5, "the key and the value"));
  DatasetDescription description = Dataset(dataset).description();
  description.shards[0].tokens = (int64_t{1} << 33) + 3;
  description.shards[0].bytes = uint64_t{1} << 40;
  std::ofstream(dataset + "/dataset.json") << description.to_text();
  const auto world = make_single_world();
  EXPECT_ERROR(
      evaluate_held_out(model, {dataset}, *world, {}), ExitCode::bad_input,
      "an evaluation of 4294967297 windows has 2147483649 batches; the maximum is 2147483647; raise train.micro_batch");
}

TEST(HeldOut, ATokenizerThatEndsDocumentsOtherwiseIsNamed) {
  const Scratch scratch;
  const CheckpointModel model = initial_model(scratch);
  const std::string dataset = dataset_of(scratch, "ends", std::vector<std::string>(5, "the key and the value"));
  const std::string path = dataset + "/dataset.json";
  std::string text = read_file(path);
  const std::string key = "\"end_of_document\":";
  const size_t at = text.find(key);
  ASSERT_NE(at, std::string::npos) << text;
  const size_t value = text.find_first_of("0123456789", at + key.size());
  text.replace(value, text.find_first_not_of("0123456789", value) - value, "7");
  std::ofstream(path) << text;
  const auto world = make_single_world();
  EXPECT_ERROR(evaluate_held_out(model, {dataset}, *world, {}), ExitCode::bad_input,
               "ends documents with token 7, but the checkpoint's tokenizer with");
}

// A step that was imported without a tokenizer is scored on tokens, by the dataset's.
TEST(HeldOut, AModelWithoutATokenizerTakesTheDatasets) {
  const Scratch scratch;
  CheckpointModel model = initial_model(scratch);
  const std::string dataset = dataset_of(scratch, "sound", std::vector<std::string>(5, "the key and the value"));
  const auto world = make_single_world();
  const HeldOutResult expected = evaluate_held_out(model, {dataset}, *world, {}).all;
  model.content.tokenizer = {};
  const HeldOutResult result = evaluate_held_out(model, {dataset}, *world, {}).all;
  EXPECT_EQ(result.loss, expected.loss);
  EXPECT_EQ(result.bits_per_byte, expected.bits_per_byte);
  model.config.model.vocab = 100;
  EXPECT_ERROR(evaluate_held_out(model, {dataset}, *world, {}), ExitCode::bad_input, "tokens, but the model of");
}

TEST(HeldOut, ADatasetWithoutTextIsRefused) {
  const Scratch scratch;
  const CheckpointModel model = initial_model(scratch);
  const std::string ends = dataset_of(scratch, "ends", std::vector<std::string>(2 * kWindow + 1));
  const std::string single = dataset_of(scratch, "single", std::vector<std::string>(kWindow + 1, "a"));
  for (const int ranks : {1, 2}) {
    run_thread_ranks(ranks, [&](HostCommunicator& world) {
      const bool tells = world.rank() == 0;
      EXPECT_ERROR(evaluate_held_out(model, {ends}, world, {}), ExitCode::bad_input,
                   tells ? ends + " contains nothing to predict: its 2 windows have no counted target" : "");
      EXPECT_ERROR(evaluate_held_out(model, {single}, world, {}), ExitCode::bad_input,
                   tells ? single + " contains no text to predict: the 8 counted targets of its 2 windows" : "");
    });
  }
}

}  // namespace
}  // namespace shiftron::testing
