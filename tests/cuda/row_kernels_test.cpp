// CUDA's bodies of shift, RoPE and cross-entropy against the float64 specification, over the table of awkward calls and
// calls whose rows are read in packs.
#include <numeric>

#include "cuda/device_testing.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

// Logits of −∞ in rows that have others: whole packs of them, and all that the first threads of a block see.
void add_masked_statistics_case(std::vector<KernelCase>& cases, int64_t vocab) {
  constexpr int64_t kRows = 4;
  Builder b(label("cross_entropy_statistics_masked", {vocab}));
  Argument& logits = b.input("logits", {kRows, vocab}, Kind::activation, 3);
  for (int64_t j = 0; j < vocab; ++j) {
    const auto of_row = [&](int64_t row) -> double& { return logits.values[static_cast<size_t>(row * vocab + j)]; };
    if (j < vocab / 2) of_row(0) = -INFINITY;
    if (j != vocab - 1) of_row(1) = -INFINITY;
    if (j % 3 == 0) of_row(2) = -INFINITY;
    of_row(3) = -INFINITY;
  }
  b.integers("targets", {vocab - 1, vocab - 1, 1, -1});
  b.output("statistics", {kRows, kRowStatistics}, static_cast<double>(vocab), Kind::accumulation);
  b.call.run = [](Stream& s, const Tensors& a) { cross_entropy_statistics(s, a[0], a[1], 0, a[2]); };
  cases.push_back(b.call);
}

// Rows that may mix in carried ones where none are given.
void add_nothing_carried_cases(std::vector<KernelCase>& cases) {
  std::vector<KernelCase> both;
  add_shift_rope_cases(both, {"nothing_carried", {4}, 2, 16, 3});
  for (KernelCase& call : both) {
    for (Argument& argument : call.arguments) {
      if (argument.name == "shift_start") std::fill(argument.values.begin(), argument.values.end(), -3.0);
    }
    cases.push_back(call);
  }
}

std::vector<KernelCase> row_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    for (const char* name : {"shift_rope", "shift_taps", "rope_table", "cross_entropy"}) {
      if (call.name.starts_with(name)) cases.push_back(call);
    }
  }
  const std::vector<int64_t> growing = {1, 2, 3, 4, 5, 6, 7, 8, 9};  // begin at each place of a few rows
  for (const ShiftCase& shift :
       std::initializer_list<ShiftCase>{{"one_tap_in_packs", {65}, 2, 16, 1},
                                        {"halves_of_no_packs", {5}, 2, 24, 2},
                                        {"value_in_packs", {64, 3}, 2, 24, 2, false},
                                        {"identity_in_packs", {3}, 1, 8, 0, false},
                                        {"rotation_in_packs", {66}, 2, 32, 0},
                                        {"five_taps", {63, 9}, 2, 6, 5},
                                        {"nine_taps_in_packs", {3, 130, 2}, 2, 16, 9},
                                        {"documents_of_1_in_packs", std::vector<int64_t>(66, 1), 1, 16, 3},
                                        {"carried_in_packs", {2, 3}, 2, 16, 3, true, true},
                                        {"carried_value_in_packs", {1}, 2, 8, 6, false, true},
                                        {"carried_odd_heads", {2}, 3, 16, 2, true, true},
                                        {"rotation_of_odd_heads", {21}, 5, 32, 0},
                                        {"odd_heads_of_value", {1, 2, 3, 4, 5, 6, 7}, 7, 24, 2, false},
                                        {"many_heads", {3, 2}, 40, 128, 2},
                                        {"many_heads_of_value", {3}, 70, 128, 2, false},
                                        {"wide_heads", {3}, 2, 1040, 2},
                                        {"runs_of_few_rows", {7, 1, 9, 16, 4}, 16, 128, 2},
                                        {"value_in_runs_of_few_rows", {18, 15}, 16, 128, 2, false},
                                        {"growing_documents_one_tap", growing, 3, 64, 1},
                                        {"growing_documents_two_taps", growing, 3, 64, 2},
                                        {"growing_documents_three_taps", growing, 3, 64, 3},
                                        {"growing_documents_five_taps", growing, 3, 64, 5}}) {
    add_shift_rope_cases(cases, shift);
  }
  for (const ShiftStreamsCase& shift : std::initializer_list<ShiftStreamsCase>{
           {"layer_in_packs", {40, 1, 26}, 64, {{12, 0}, {4, 2}, {4, 2, false}}},
           {"layer_of_many_heads", {3, 38}, 128, {{40, 2, false}, {33, 0}, {70, 2}}},
           {"layer_of_more_taps", growing, 64, {{3, 2, false}, {2, 5}, {3, 0, false}}},
           {"layer_of_mixed_packs", {7, 12}, 24, {{2, 2, false}, {2, 1}}}}) {
    add_shift_streams_cases(cases, shift);
  }
  add_nothing_carried_cases(cases);
  for (const auto& [rows, vocab] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{3, 8}, {5, 2056}, {2, 24576}, {2, 49152}, {2, 59424}}) {
    add_cross_entropy_cases(cases, rows, vocab, 0);
    add_cross_entropy_cases(cases, rows, vocab, 100);
  }
  add_combine_case(cases, 2, 1031);
  Builder table("rope_table_long");  // angles that float32 does not hold
  table.output("table", {2, 20011, 4}, 1, Kind::accumulation);
  table.call.run = [](Stream& s, const Tensors& a) { rope_table(s, 10000, a[0]); };
  cases.push_back(table.call);
  add_masked_statistics_case(cases, 4099);
  add_masked_statistics_case(cases, 4096);
  return cases;
}

class RowKernels : public ::testing::TestWithParam<KernelCase> {};

TEST_P(RowKernels, MatchSpecificationInFloat32) {
  expect_device_matches_specification(GetParam(), DType::float32);
}
TEST_P(RowKernels, MatchSpecificationInBfloat16) {
  expect_device_matches_specification(GetParam(), DType::bfloat16);
}
TEST_P(RowKernels, Repeat) {
  expect_device_repeats(GetParam());
}

TEST_P(RowKernels, RefuseFloat64) {
  expect_fault(" has no body for float64 in CUDA", [] {
    CudaDevice device;
    evaluate_on(device, GetParam(), DType::float64, 0);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RowKernels, ::testing::ValuesIn(row_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// Operand `moved` (−1: none) does not begin at a multiple of 16 bytes.
std::vector<std::vector<double>> evaluate_moved(const KernelCase& call, int moved) {
  CudaDevice device;
  std::vector<Owned> owned;
  owned.reserve(call.arguments.size());
  std::vector<std::unique_ptr<DeviceCopy>> copies;
  std::vector<Tensor> tensors;
  for (const Argument& argument : call.arguments) {
    const bool moves = static_cast<int>(tensors.size()) == moved;
    const DType dtype = type_of(argument.kind, DType::float32);
    owned.emplace_back(dtype, Shape{argument.shape.count() + 1});
    for (size_t i = 0; i < argument.values.size(); ++i) {
      put(owned.back(), static_cast<int64_t>(i) + (moves ? 1 : 0), argument.values[i]);
    }
    copies.push_back(std::make_unique<DeviceCopy>(owned.back(), device));
    tensors.emplace_back(copies.back()->tensor().slice(0, moves ? 1 : 0, argument.shape.count()).view(argument.shape));
  }
  call.run(device.stream, tensors);
  std::vector<std::vector<double>> results;
  for (size_t k = 0; k < tensors.size(); ++k) {
    if (!is_result(call.arguments[k])) continue;
    copies[k]->fetch();
    const std::vector<double> all = owned[k].values();
    const auto first = all.begin() + (static_cast<int>(k) == moved ? 1 : 0);
    results.emplace_back(first, first + tensors[k].count());
  }
  return results;
}

TEST(RowKernelsOnTheirOwn, OperandsBeginAnywhere) {
  std::vector<KernelCase> cases;
  add_shift_rope_cases(cases, {"moved", {3, 66}, 2, 16, 3});
  add_shift_rope_cases(cases, {"moved_carried", {3}, 2, 16, 3, true, true});
  add_shift_streams_cases(cases, {"moved_layer", {3, 66}, 16, {{3, 0}, {2, 2}, {2, 2, false}}});
  add_cross_entropy_cases(cases, 3, 64, 0);
  for (const KernelCase& call : cases) {
    const auto expected = evaluate_moved(call, -1);
    for (size_t k = 0; k < call.arguments.size(); ++k) {
      if (call.arguments[k].kind != Kind::activation && call.arguments[k].kind != Kind::accumulation) continue;
      const auto results = evaluate_moved(call, static_cast<int>(k));
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_LE(largest_error(results[i], expected[i]), 1e-5 * largest_magnitude(expected[i]))
            << call.name << ": " << call.arguments[k].name << " moved, result " << i;
      }
    }
  }
}

// Heads of one thread, where the last block of a row has fewer: a block that also had some of them would rotate them
// twice.
TEST(RowKernelsOnTheirOwn, RotationInPlaceTurnsEachHeadOnce) {
  constexpr int64_t kRows = 3, kHeadDim = 128;
  for (const auto& [dtype, heads] :
       std::initializer_list<std::pair<DType, int64_t>>{{DType::float32, 40}, {DType::bfloat16, 72}}) {
    CudaDevice device;
    const Shape shape = {kRows, heads, kHeadDim};
    const Owned in_place(dtype, shape, random_values("x", shape.count())), apart(dtype, shape);
    const Owned positions(DType::int32, {kRows}, {1, 2, 3}), table(DType::float32, {2, 4, kHeadDim / 2});
    const DeviceCopy x(in_place, device), y(apart, device), of_positions(positions, device), rope(table, device);
    rope_table(device.stream, 10000, rope.tensor());
    ShiftRope how;
    how.rope = rope.tensor();
    how.positions = of_positions.tensor();
    const auto compare = [&](const char* direction) {
      x.fetch();
      y.fetch();
      EXPECT_EQ(in_place.values(), apart.values()) << direction << ", " << name_of(dtype);
    };
    shift_rope_forward(device.stream, x.tensor(), how, y.tensor());
    shift_rope_forward(device.stream, x.tensor(), how, x.tensor());
    compare("forward");
    shift_rope_backward(device.stream, x.tensor(), x.tensor(), how, y.tensor(), {}, {});
    shift_rope_backward(device.stream, x.tensor(), x.tensor(), how, x.tensor(), {}, {});
    compare("backward");
  }
}

TEST(RowKernelsOnTheirOwn, LossesAreSummedInFloat64) {
  constexpr int64_t kCount = 4097;
  CudaDevice device;
  const Owned statistics(DType::float32, {1, kCount, kRowStatistics}), targets(DType::int32, {kCount});
  const Owned log_sum_exp(DType::float32, {kCount}), losses(DType::float32, {kCount}),
      correct(DType::float32, {kCount}), totals(DType::float64, {kLossTotals});
  const std::vector<double> maxima = random_values("maxima", kCount, 1, 5);
  for (int64_t row = 0; row < kCount; ++row) {
    put(statistics, kRowStatistics * row, maxima[static_cast<size_t>(row)]);
    put(statistics, kRowStatistics * row + 1, 3);
    put(statistics, kRowStatistics * row + 2, 0);
    put(statistics, kRowStatistics * row + 3, row % 3 == 0 ? 1 : 0);
    put(targets, row, 0);
  }
  put(totals, 0, 0x1p-20);
  put(totals, 1, 1);
  put(totals, 2, 0);
  const DeviceCopy of_statistics(statistics, device), of_targets(targets, device), of_sums(log_sum_exp, device),
      of_losses(losses, device), of_correct(correct, device), of_totals(totals, device);
  cross_entropy_combine(device.stream, of_statistics.tensor(), of_targets.tensor(), of_sums.tensor(),
                        of_losses.tensor(), of_correct.tensor());
  add_losses(device.stream, of_losses.tensor(), of_correct.tensor(), of_targets.tensor(), InOut(of_totals.tensor()));
  of_losses.fetch();
  of_totals.fetch();
  const std::vector<double> each = losses.values();
  EXPECT_NEAR(totals[0], std::accumulate(each.begin(), each.end(), 0x1p-20), 1e-9);
  EXPECT_EQ(totals[1], kCount + 1);
  EXPECT_EQ(totals[2], (kCount + 2) / 3);
}

// What is not finite is not hidden: a NaN or +∞ among the logits is in the sum of its row.
TEST(RowKernelsOnTheirOwn, StatisticsShowWhatIsNotFinite) {
  for (const int64_t vocab : {1031, 1032}) {
    for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
      for (const int64_t place : {int64_t{0}, vocab / 2, vocab - 1}) {
        CudaDevice device;
        std::vector<double> values = random_values("logits", vocab);
        values[static_cast<size_t>(place)] = bad;
        const Owned logits(DType::float32, {1, vocab}), targets(DType::int32, {1}),
            statistics(DType::float32, {1, kRowStatistics});
        put(targets, 0, -1);
        for (int64_t j = 0; j < vocab; ++j) put(logits, j, values[static_cast<size_t>(j)]);
        const DeviceCopy of_logits(logits, device), of_targets(targets, device), of_statistics(statistics, device);
        cross_entropy_statistics(device.stream, of_logits.tensor(), of_targets.tensor(), 0, of_statistics.tensor());
        of_statistics.fetch();
        EXPECT_TRUE(std::isnan(statistics[1])) << bad << " at " << place << " of " << vocab;
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::kernel_testing
