// Which windows an evaluation reads that has fewer sequences than there are windows.
#include "train/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "data/fixture.h"
#include "expect_error.h"

namespace shiftron {
namespace {

std::vector<int64_t> evaluated(const std::vector<int64_t>& windows, int64_t count) {
  std::vector<int64_t> read;
  for (int64_t index = 0; index < count; ++index) read.push_back(evaluated_window(windows, count, index));
  return read;
}

TEST(EvaluatedWindows, OfOneSourceTheFirst) {
  EXPECT_EQ(evaluated({7}, 3), (std::vector<int64_t>{0, 1, 2}));
}

TEST(EvaluatedWindows, EachSourceGivesItsShare) {
  EXPECT_EQ(evaluated({10, 10}, 4), (std::vector<int64_t>{0, 1, 10, 11}));
  EXPECT_EQ(evaluated({12, 3, 6}, 7), (std::vector<int64_t>{0, 1, 2, 3, 12, 15, 16}));
  EXPECT_EQ(evaluated({1, 1, 1}, 1), (std::vector<int64_t>{1}));
}

TEST(EvaluatedWindows, AllOnceWhereAllAreWanted) {
  for (const std::vector<int64_t>& windows : {std::vector<int64_t>{5}, {1, 9}, {3, 1, 4, 1, 5}}) {
    const int64_t all = std::reduce(windows.begin(), windows.end());
    std::vector<int64_t> in_order(static_cast<size_t>(all));
    std::iota(in_order.begin(), in_order.end(), 0);
    EXPECT_EQ(evaluated(windows, all), in_order);
  }
}

// Of any sources: as many as asked, none twice, of a source at most what it has.
TEST(EvaluatedWindows, NoneTwice) {
  const std::vector<int64_t> windows = {1, 2, 17, 1, 40};
  for (int64_t count = 1; count <= 61; ++count) {
    const std::vector<int64_t> read = evaluated(windows, count);
    for (size_t i = 1; i < read.size(); ++i) EXPECT_LT(read[i - 1], read[i]) << count;
    EXPECT_LT(read.back(), 61) << count;
  }
}

TEST(EvaluatedWindows, OfSourcesWhoseProductExceedsAnInteger) {
  const int64_t many = int64_t{1} << 40;
  EXPECT_EQ(evaluated_window({many, many}, many, many / 2 - 1), many / 2 - 1);
  EXPECT_EQ(evaluated_window({many, many}, many, many / 2), many);
}

TEST(EvaluationBatches, AreAsManyAsCanBeNumbered) {
  EXPECT_EQ(evaluation_batch_count(7, 3), 3);
  EXPECT_EQ(evaluation_batch_count(int64_t{1} << 40, int64_t{1} << 20), 1 << 20);
  EXPECT_EQ(evaluation_batch_count((int64_t{1} << 31) - 1, 1), std::numeric_limits<int>::max());
  EXPECT_ERROR(evaluation_batch_count(int64_t{1} << 31, 1), ExitCode::bad_input,
               "2147483648 batches; the maximum is 2147483647; raise train.micro_batch");
}

// All ranks together read them, and count no other row.
TEST(EvaluatedWindows, AreWhatRanksRead) {
  const Scratch scratch;
  for (const char* name : {"first", "second"}) build_dataset(example_build(scratch, example_documents(20), name));
  RunConfig config;
  config.train.micro_batch = 2;
  config.train.sequence_length = 16;
  config.evaluation.sequences = 7;
  const std::vector<DataSource> sources = {{.directory = scratch / "first"}, {.directory = scratch / "second"}};
  Loader loader = open_loader(config, sources, false);
  const auto each = static_cast<size_t>(config.train.sequence_length);
  const auto window = [&](int64_t number) {
    std::vector<int32_t> ids(each), targets(each);
    std::vector<uint8_t> starts(each);
    loader.read(number, 1, ids.data(), targets.data(), starts.data());
    ids.insert(ids.end(), targets.begin(), targets.end());
    return ids;
  };
  std::multiset<std::vector<int32_t>> expected, read;
  for (const int64_t number : evaluated(loader.windows_of_sources(), config.evaluation.sequences)) {
    expected.insert(window(number));
  }
  const ParallelLayout layout{.tp = 1, .cp = 1, .dp = 3, .pp = 1};
  for (int dp = 0; dp < layout.dp; ++dp) {
    const BatchReader reader = evaluation_batches(config, layout, dp, loader);
    for (int index = 0; index < evaluation_microbatches(config, layout, loader); ++index) {
      HostBatch batch;
      batch.ids.resize(2 * each);
      batch.targets.resize(2 * each);
      batch.document_starts.resize(2 * each);
      reader(index, batch);
      for (size_t row = 0; row < 2; ++row) {
        const auto ids = batch.ids.begin() + static_cast<int64_t>(row * each);
        const auto targets = batch.targets.begin() + static_cast<int64_t>(row * each);
        if (std::all_of(targets, targets + config.train.sequence_length, [](int32_t target) { return target < 0; })) {
          continue;
        }
        std::vector<int32_t> sequence(ids, ids + config.train.sequence_length);
        sequence.insert(sequence.end(), targets, targets + config.train.sequence_length);
        read.insert(sequence);
      }
    }
  }
  EXPECT_EQ(read, expected);
}

}  // namespace
}  // namespace shiftron
