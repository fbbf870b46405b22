// KvShift on one stream against plain loops: every form and number of taps, within documents and across them.
#include "model/kv_shift.h"

#include <numeric>

#include "model/module_cases.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kHeads = 2, kHeadDim = 4;

ModuleCase shift_case(ShiftForm form, int previous, bool rotate, bool crosses) {
  return {.rows = small_rows(crosses),
          .columns = kHeads * kHeadDim,
          .split_columns = true,
          .make = [=](Rank& rank) -> Module {
            auto shift = std::make_shared<KvShift>(rank.set, "attention", "key", kHeads, previous,
                                                   ShiftConfig{.form = form}, rotate, 0);
            rank.shifts = {shift.get()};
            EXPECT_EQ(shift->previous(), previous);
            EXPECT_EQ(shift->is_identity(), previous == 0 && !rotate);
            const Tensor rope = rank.rope(6);
            const auto heads = [](const Tensor& x) { return x.split_last(x.extent(1) / kHeadDim, kHeadDim); };
            const auto same_shape = [](Run& run, const Tensor& x) {
              return run.scratch.allocate(x.dtype(), x.shape());
            };
            return {[=](Run& run, const Tensor& x) {
                      const Tensor y = same_shape(run, x);
                      KvShift::forward(run, rope, {{*shift, heads(x), heads(y)}});
                      return y;
                    },
                    [=](Run& run, const Tensor& d_y, const Tensor& x) {
                      const Tensor d_x = same_shape(run, x);
                      KvShift::backward(run, rope, {{*shift, heads(d_y), heads(x), heads(d_x)}});
                      return d_x;
                    }};
          },
          .plain =
              [=](const Weights& weights, const Values& x) {
                const Rows rows = small_rows(crosses);
                const auto raw = weights.find("attention.shift_key");
                EXPECT_EQ(raw == weights.end(), previous == 0);
                const Values z = previous == 0 ? x : plain_shift(x, plain_taps(raw->second, form), kHeads, rows);
                return rotate ? plain_rotation(z, kHeadDim, small_model().rope_base, rows) : z;
              }};
}

TEST(KvShift, EqualsPlainLoops) {
  for (const ShiftForm form : {ShiftForm::free, ShiftForm::project, ShiftForm::clamp, ShiftForm::gate}) {
    for (int previous = 0; previous <= (form == ShiftForm::gate ? 1 : 3); ++previous) {
      for (const bool rotate : {false, true}) {
        for (const bool crosses : {false, true}) {
          SCOPED_TRACE(std::string(to_string(form)) + ", " + std::to_string(previous) + " previous" +
                       (rotate ? ", rotated" : "") + (crosses ? ", across documents" : ""));
          expect_plain(shift_case(form, previous, rotate, crosses));
        }
      }
    }
  }
}

// The clamp has taps on both sides of where it bends, or it would be the free form.
TEST(KvShift, TheCasesReachTheClamp) {
  const Values raw = evaluate(shift_case(ShiftForm::clamp, 3, false, false), 1).weights.at("attention.shift_key");
  EXPECT_LT(*std::ranges::min_element(raw), 0);
  EXPECT_GT(*std::ranges::max_element(raw), 1);
}

Values initial_taps(const ShiftConfig& config, int previous) {
  Ledger ledger;
  ParameterSet set({}, {}, {DType::float64, DType::float64});
  const KvShift shift(set, "attention", "key", 500, previous, config, true, 0);
  set.allocate(Stream{.ledger = &ledger}, false);
  set.initialise(1);
  return values_of(set.find("attention.shift_key")->weight);
}

// On this rank of `layout`, in float64.
Values taps_of_rank(const ParallelLayout& layout, int rank, const ShiftConfig& config, int previous) {
  Ledger ledger;
  ParameterSet set(layout, layout.coordinates(rank), {DType::float64, DType::float64});
  const KvShift shift(set, "attention", "key", 6, previous, config, true, 0);
  set.allocate(Stream{.ledger = &ledger}, false);
  set.initialise(1);
  return values_of(set.find("attention.shift_key")->weight);
}

// Each drawn tap is the draw of its place, whichever tap of the head is what is left to 1; on every rank.
TEST(KvShift, TheRemainderMovesNoDraw) {
  const Philox random(1, "initial attention.shift_key");
  for (size_t count = 2; count <= 4; ++count) {
    for (const ShiftRemainder remainder : {ShiftRemainder::oldest, ShiftRemainder::current}) {
      Values expected;
      for (size_t head = 0; head < 6; ++head) {
        Values taps;
        for (size_t j = 0; j < count; ++j) taps.push_back(random.uniform(head * count + j));
        double& rest = remainder == ShiftRemainder::oldest ? taps.front() : taps.back();
        rest += 1 - std::accumulate(taps.begin(), taps.end(), 0.0);
        expected.insert(expected.end(), taps.begin(), taps.end());
      }
      for (const int tp : {1, 2, 3}) {
        Values taps;
        for (int rank = 0; rank < tp; ++rank) {
          const Values part = taps_of_rank({.tp = tp}, rank, {.remainder = remainder}, static_cast<int>(count) - 1);
          taps.insert(taps.end(), part.begin(), part.end());
        }
        SCOPED_TRACE(std::to_string(count) + " taps, tp " + std::to_string(tp));
        expect_near(taps, expected, 1e-7, std::string(to_string(remainder)));
      }
    }
  }
}

// ARCHITECTURE.md: all taps but one ~ U(0, 1), that one is what is left to 1: the oldest, or the current token's.
TEST(KvShift, TapsBeginAsStated) {
  for (int previous = 1; previous <= 3; ++previous) {
    for (const ShiftRemainder remainder : {ShiftRemainder::oldest, ShiftRemainder::current}) {
      const Values taps = initial_taps({.remainder = remainder}, previous);
      const auto count = static_cast<size_t>(previous + 1);
      const size_t rest = remainder == ShiftRemainder::oldest ? 0 : count - 1;
      double mean = 0;
      for (size_t head = 0; head < 500; ++head) {
        double total = 0;
        for (size_t j = 0; j < count; ++j) {
          const double tap = taps[head * count + j];
          total += tap;
          if (j == rest) continue;
          EXPECT_TRUE(tap > 0 && tap < 1) << tap;
          mean += tap / (500.0 * previous);
        }
        EXPECT_NEAR(total, 1, 1e-6);
      }
      EXPECT_NEAR(mean, 0.5, 0.05);
    }
    const Values identity = initial_taps({.init = ShiftInit::identity}, previous);
    for (size_t i = 0; i < identity.size(); ++i) {
      EXPECT_EQ(identity[i], i % static_cast<size_t>(previous + 1) == static_cast<size_t>(previous) ? 1 : 0);
    }
  }
  double mean = 0;
  for (const double raw : initial_taps({.form = ShiftForm::gate}, 1)) mean += 1 / (1 + std::exp(-raw)) / 500;
  EXPECT_NEAR(mean, 0.5, 0.05);
}

}  // namespace
}  // namespace shiftron::testing
