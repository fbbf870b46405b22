// The order of samples: bijection, mixing, exact shares, fixed values.
#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "expect_error.h"

namespace shiftron {
namespace {

TEST(Permutation, IsABijectionForEverySize) {
  for (uint64_t size : {1, 2, 3, 5, 16, 17, 100, 255, 256, 257, 1000, 4096, 65536, 1000003}) {
    const Permutation permutation(size, 42 + size);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permutation(i);
      ASSERT_LT(image, size);
      ASSERT_FALSE(seen[image]) << size;
      seen[image] = true;
    }
  }
}

TEST(Permutation, LargeSizesStayInside) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 7);
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < 10000; ++i) seen.insert(permutation(size - 1 - i));
  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_LT(*seen.rbegin(), size);
}

// Rank correlation of index and image, and of neighbouring images; each has standard deviation 1 / sqrt(size).
TEST(Permutation, MixesIndexAndNeighbours) {
  for (const uint64_t key : {0, 1, 2, 99}) {
    const uint64_t size = 100003;
    const Permutation permutation(size, key);
    const double mean = (static_cast<double>(size) - 1) / 2;
    const double variance = (static_cast<double>(size) * static_cast<double>(size) - 1) / 12;
    double with_index = 0;
    double with_next = 0;
    double previous = static_cast<double>(permutation(size - 1));
    int small_steps = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const auto image = static_cast<double>(permutation(i));
      with_index += (static_cast<double>(i) - mean) * (image - mean);
      with_next += (previous - mean) * (image - mean);
      small_steps += std::abs(image - previous) < static_cast<double>(size) / 1000 ? 1 : 0;
      previous = image;
    }
    const double sigma = 1 / std::sqrt(static_cast<double>(size));
    EXPECT_LT(std::abs(with_index / (static_cast<double>(size) * variance)), 4 * sigma) << key;
    EXPECT_LT(std::abs(with_next / (static_cast<double>(size) * variance)), 4 * sigma) << key;
    EXPECT_NEAR(small_steps, 200, 60) << key;  // 2 / 1000 of the neighbours
  }
}

// A corpus sorted by origin: every batch of 256 holds each tenth of it in proportion. The chi-square sum over 390
// batches with 9 degrees of freedom each has mean 3510 and standard deviation 84.
TEST(Permutation, BatchesOfASortedCorpusAreMixed) {
  const uint64_t size = 100000;
  const Permutation permutation(size, 5);
  double chi = 0;
  for (uint64_t batch = 0; batch < 390; ++batch) {
    double counts[10] = {};
    for (uint64_t i = 0; i < 256; ++i) ++counts[permutation(batch * 256 + i) * 10 / size];
    for (const double count : counts) chi += (count - 25.6) * (count - 25.6) / 25.6;
  }
  EXPECT_NEAR(chi, 3510, 4 * 84);
}

TEST(Permutation, KeysGiveDifferentOrders) {
  const Permutation a(1000, 1);
  const Permutation b(1000, 2);
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) equal += a(i) == b(i) ? 1 : 0;
  EXPECT_LT(equal, 10);
}

// Published runs depend on these numbers: a change of the order must be a decision.
TEST(Permutation, ValuesAreFixed) {
  const Permutation permutation(1000000, 12345);
  EXPECT_EQ(permutation(0), 581710u);
  EXPECT_EQ(permutation(1), 729659u);
  EXPECT_EQ(permutation(999999), 759045u);
}

TEST(Blend, SharesAreExactInEveryBlock) {
  const std::vector<double> weights = {0.5, 0.3, 0.19999, 1e-5};
  const SampleOrder order({1000, 777, 5, 3}, weights, 3);
  const std::vector<int64_t> quotas = blend_quotas(weights);
  double sum = 0;
  for (const double weight : weights) sum += weight;
  for (int64_t block = 0; block < 3; ++block) {
    std::vector<int64_t> counts(4);
    for (int64_t i = 0; i < kBlendBlock; ++i) {
      ++counts[static_cast<size_t>(order.locate(block * kBlendBlock + i).source)];
    }
    for (size_t source = 0; source < 4; ++source) {
      EXPECT_EQ(counts[source], quotas[source]);
      EXPECT_LE(std::abs(static_cast<double>(counts[source]) - weights[source] / sum * kBlendBlock), 1) << source;
    }
  }
}

TEST(Blend, QuotasAddUp) {
  EXPECT_EQ(blend_quotas({1}), std::vector<int64_t>{kBlendBlock});
  EXPECT_EQ(blend_quotas({1, 1, 1}), (std::vector<int64_t>{21846, 21845, 21845}));
  EXPECT_EQ(blend_quotas({3, 1}), (std::vector<int64_t>{49152, 16384}));
}

TEST(Blend, BadWeightsAreRefused) {
  EXPECT_ERROR(blend_quotas({1, 0}), ExitCode::bad_input, "weight 0 of data source 2");
  EXPECT_ERROR(blend_quotas({1, -1}), ExitCode::bad_input, "weight -1");
  EXPECT_ERROR(blend_quotas({1, NAN}), ExitCode::bad_input, "weight nan");
  EXPECT_ERROR(blend_quotas({1.7e308, 1e308}), ExitCode::bad_input, "add up to infinity");
  EXPECT_EQ(blend_quotas({1e308, 5e307}), (std::vector<int64_t>{43691, 21845}));
  EXPECT_EQ(blend_quotas({1, 1e-9}), (std::vector<int64_t>{kBlendBlock, 0}));
}

TEST(SampleOrder, EveryEpochVisitsEveryWindowOnce) {
  const SampleOrder order({123}, {1}, 9);
  std::vector<std::vector<int64_t>> epochs(4);
  for (int64_t sample = 0; sample < 4 * 123; ++sample) {
    const SampleLocation location = order.locate(sample);
    EXPECT_EQ(location.epoch, sample / 123);
    epochs[static_cast<size_t>(location.epoch)].push_back(location.window);
  }
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < a; ++b) EXPECT_NE(epochs[a], epochs[b]);
  }
  for (std::vector<int64_t>& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t i = 0; i < 123; ++i) EXPECT_EQ(epoch[static_cast<size_t>(i)], i);
  }
}

TEST(SampleOrder, BlendedSourcesRunThroughTheirEpochsWithoutGaps) {
  const std::vector<int64_t> windows = {40000, 30011};
  const SampleOrder order(windows, {2, 1}, 1);
  std::map<std::pair<int64_t, int64_t>, std::map<int64_t, int>> seen;  // source and epoch → window → count
  for (int64_t i = 0; i < 3 * kBlendBlock; ++i) {
    const SampleLocation location = order.locate(i);
    ++seen[{location.source, location.epoch}][location.window];
  }
  for (const auto& [key, counts] : seen) {
    for (const auto& [window, count] : counts) ASSERT_EQ(count, 1) << window;
  }
  EXPECT_EQ(seen.at({0, 0}).size(), 40000u);
  EXPECT_EQ(seen.at({0, 1}).size(), 40000u);
  EXPECT_EQ(seen.at({1, 0}).size(), 30011u);
}

// Whatever the layout and wherever a run resumes: the same samples come from the same numbers.
TEST(SampleOrder, IsAFunctionOfTheSampleAlone) {
  const SampleOrder once({1000, 10}, {5, 1}, 77);
  const SampleOrder again({1000, 10}, {5, 1}, 77);
  const SampleOrder other({1000, 10}, {5, 1}, 78);
  int equal = 0;
  for (int64_t sample = 99999; sample >= 0; sample -= 7) {
    EXPECT_EQ(once.locate(sample), again.locate(sample));
    equal += once.locate(sample) == other.locate(sample) ? 1 : 0;
  }
  EXPECT_LT(equal, 500);
}

TEST(SampleOrder, BillionsOfSamplesDoNotWrap) {
  const SampleOrder order({int64_t{1} << 40}, {1}, 1);
  const SampleLocation location = order.locate((int64_t{1} << 52) + 5);
  EXPECT_EQ(location.epoch, 1 << 12);
  EXPECT_LT(location.window, int64_t{1} << 40);
}

}  // namespace
}  // namespace shiftron
