// Which tokens a loss depends on, bit for bit: none after it, none of another document, none of another sample.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kLength = 12;
constexpr int64_t kBorder = 5;  // row at which the second document of sample 0 starts
using Losses = std::vector<double>;

// One microbatch of two samples; documents start at rows 0 and 5 of sample 0 and at rows 0, 1 and 9 of sample 1.
HostBatch two_samples() {
  HostBatch batch;
  const Philox random(17, "tokens");
  for (uint64_t row = 0; row < 2 * kLength; ++row) {
    batch.ids.push_back(static_cast<int32_t>(random.uniform(row) * 37));
    batch.targets.push_back(static_cast<int32_t>(random.uniform(100 + row) * 37));
    batch.document_starts.push_back(row == kBorder || row == kLength + 1 || row == kLength + 9 ? 1 : 0);
  }
  return batch;
}

HostBatch with_changed_token(HostBatch batch, int64_t row) {
  int32_t& id = batch.ids[static_cast<size_t>(row)];
  id = (id + 11) % 37;
  return batch;
}

class Model {
 public:
  explicit Model(const RunConfig& config, HostCommunicator& world) : rank_(config, world) {
    set_weights(rank_.trainer->engine().parameters());
  }
  // Of every row; empty on ranks that are not of the last stage.
  Losses losses(const HostBatch& batch) {
    Losses losses;
    const Totals totals;
    const Engine::LossVisitor visit = [&](int, const Tensor& tensor) {
      for (int64_t i = 0; i < tensor.count(); ++i) losses.push_back(element(tensor, i));
    };
    rank_.trainer->engine().evaluate(1, [&](int, HostBatch& into) { into = batch; }, totals.tensor(), visit);
    return losses;
  }
  // Rows whose losses change with the token of `row`.
  std::set<int64_t> reached_by(int64_t row) {
    const Losses before = losses(two_samples());
    const Losses after = losses(with_changed_token(two_samples(), row));
    std::set<int64_t> rows;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i] != after[i]) rows.insert(static_cast<int64_t>(i));
    }
    return rows;
  }

 private:
  RankTrainer rank_;
};

std::set<int64_t> rows_between(int64_t begin, int64_t end) {
  std::set<int64_t> rows;
  for (int64_t row = begin; row < end; ++row) rows.insert(row);
  return rows;
}

int64_t end_of_sample(int64_t row) { return (row / kLength + 1) * kLength; }

int64_t end_of_document(int64_t row) {
  const HostBatch batch = two_samples();
  int64_t end = row + 1;
  while (end < end_of_sample(row) && batch.document_starts[static_cast<size_t>(end)] == 0) ++end;
  return end;
}

// Whether every row in [row, end) changes, the token's own among them, and no other.
void expect_reach(Model& model, int64_t row, int64_t end) {
  const std::set<int64_t> reached = model.reached_by(row);
  EXPECT_EQ(reached, rows_between(row, end)) << "token " << row;
}

using ShiftAndPrecision = std::tuple<NamedShift, Precision>;
class CausalityTest : public ::testing::TestWithParam<ShiftAndPrecision> {
 protected:
  RunConfig config() const {
    const auto& [named, precision] = GetParam();
    return small_config(named.shift, precision);
  }
};

TEST_P(CausalityTest, ATokenReachesTheRowsBehindItInItsSample) {
  RunConfig config = this->config();
  config.data.document_reset = false;
  const auto world = make_single_world();
  Model model(config, *world);
  for (int64_t row = 0; row < 2 * kLength; ++row) expect_reach(model, row, end_of_sample(row));
}

TEST_P(CausalityTest, ATokenReachesTheRowsBehindItInItsDocument) {
  const auto world = make_single_world();
  Model model(config(), *world);
  for (int64_t row = 0; row < 2 * kLength; ++row) expect_reach(model, row, end_of_document(row));
}

INSTANTIATE_TEST_SUITE_P(All, CausalityTest,
                         ::testing::Combine(::testing::ValuesIn(all_shifts()),
                                            ::testing::Values(Precision::fp64, Precision::fp32)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name)
                               .append("_")
                               .append(to_string(std::get<1>(test.param)));
                         });

// Roundings of bfloat16 may hide a change, but nothing may change that the token cannot reach.
TEST(Causality, Bfloat16) {
  const auto world = make_single_world();
  Model model(small_config({.query = 1, .key = 3, .value = 2}, Precision::bf16), *world);
  for (int64_t row = 0; row < 2 * kLength; ++row) {
    const std::set<int64_t> reached = model.reached_by(row);
    EXPECT_TRUE(reached.contains(row)) << "token " << row;
    for (const int64_t changed : reached) EXPECT_TRUE(changed >= row && changed < end_of_document(row)) << changed;
  }
}

TEST(Causality, UnderTensorAndPipelineParallelism) {
  RunConfig config = small_config({.query = 1, .key = 3, .value = 2});
  config.parallel.tp = config.parallel.pp = 2;
  run_thread_ranks(4, [&](HostCommunicator& world) {
    Model model(config, world);
    for (int64_t row = 0; row < 2 * kLength; ++row) {
      const std::set<int64_t> reached = model.reached_by(row);
      if (world.rank() >= 2) {
        EXPECT_EQ(reached, rows_between(row, end_of_document(row))) << "token " << row;
      }
    }
  });
}

// A document after another one has the same losses as at the start of a sample.
TEST(Documents, WhatStandsBeforeOneMakesNoDifference) {
  for (const NamedShift& named : all_shifts()) {
    const auto world = make_single_world();
    Model model(small_config(named.shift), *world);
    const HostBatch behind = two_samples();
    HostBatch alone = behind;
    for (int64_t row = kBorder; row < kLength; ++row) {
      alone.ids[static_cast<size_t>(row - kBorder)] = behind.ids[static_cast<size_t>(row)];
      alone.targets[static_cast<size_t>(row - kBorder)] = behind.targets[static_cast<size_t>(row)];
    }
    alone.document_starts[kBorder] = 0;
    const Losses expected = model.losses(alone), measured = model.losses(behind);
    for (int64_t row = kBorder; row < kLength; ++row) {
      const double ratio = measured[static_cast<size_t>(row)] / expected[static_cast<size_t>(row - kBorder)];
      EXPECT_NEAR(ratio, 1, 1e-12) << named.name << ", row " << row;
    }
  }
}

// One layer, 3 previous keys and 2 previous values, attention cut at the border: what the shift alone lets through.
TEST(Documents, WithoutResetTheShiftCrossesAsFarAsItsTapsReach) {
  ShiftConfig shift{.query = 1, .key = 3, .value = 2, .reset = ShiftReset::never};
  RunConfig config = small_config(shift);
  config.model.layers = 1;
  const auto world = make_single_world();
  Model model(config, *world);
  const auto behind_border = [&](int64_t row) {
    std::set<int64_t> rows = model.reached_by(row);
    EXPECT_TRUE(std::ranges::includes(rows, rows_between(row, kBorder))) << "token " << row;
    std::erase_if(rows, [](int64_t reached) { return reached < kBorder; });
    return rows;
  };
  EXPECT_EQ(behind_border(4), rows_between(kBorder, kLength));
  EXPECT_EQ(behind_border(3), rows_between(kBorder, kLength));
  // The key of the border's row mixes in row 2, but its own query sees no other key: its weight is 1 whatever it is.
  EXPECT_EQ(behind_border(2), rows_between(kBorder + 1, kLength));
  EXPECT_EQ(behind_border(1), rows_between(0, 0));
  EXPECT_EQ(behind_border(0), rows_between(0, 0));
}

TEST(Documents, WithoutDocumentResetAttentionCrossesThoughTheShiftDoesNot) {
  RunConfig config = small_config({.query = 1, .key = 3, .value = 2, .reset = ShiftReset::always});
  config.model.layers = 1;
  config.data.document_reset = false;
  const auto world = make_single_world();
  Model model(config, *world);
  for (int64_t row = 0; row < 2 * kLength; ++row) expect_reach(model, row, end_of_sample(row));
}

struct Borders {
  std::vector<int32_t> attention, shift, positions;
};

Borders borders_of(bool document_reset, ShiftReset shift_reset) {
  const std::vector<uint8_t> starts = {0, 0, 1, 0, /**/ 1, 1, 0, 0};  // two samples of four rows
  Borders borders{std::vector<int32_t>(8), std::vector<int32_t>(8), std::vector<int32_t>(8)};
  find_documents(starts, 4, document_reset, shift_reset, borders.attention.data(), borders.shift.data(),
                 borders.positions.data());
  return borders;
}

TEST(FindDocuments, EveryCombinationByHand) {
  const std::vector<int32_t> documents = {0, 0, 2, 2, 4, 5, 5, 5}, samples = {0, 0, 0, 0, 4, 4, 4, 4};
  for (const ShiftReset reset : {ShiftReset::automatic, ShiftReset::always, ShiftReset::never}) {
    const Borders cut = borders_of(true, reset);
    EXPECT_EQ(cut.attention, documents);
    EXPECT_EQ(cut.positions, (std::vector<int32_t>{0, 1, 0, 1, 0, 0, 1, 2}));
    EXPECT_EQ(cut.shift, reset == ShiftReset::never ? samples : documents);
    const Borders whole = borders_of(false, reset);
    EXPECT_EQ(whole.attention, samples);
    EXPECT_EQ(whole.positions, (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
    EXPECT_EQ(whole.shift, reset == ShiftReset::always ? documents : samples);
  }
}

}  // namespace
}  // namespace shiftron::testing
