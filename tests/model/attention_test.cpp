// Attention against plain loops: forms of the shift, shared KV heads, KV heads shared by ranks, documents, decoding.
#include "model/attention.h"

#include "model/module_cases.h"

namespace shiftron::testing {
namespace {

ModuleCase attention_case(const ModelConfig& config, const Rows& rows) {
  return {.config = config,
          .rows = rows,
          .make = [](Rank& rank) -> Module {
            auto attention = std::make_shared<Attention>(rank.set, "attention", rank.config, 0);
            rank.own(attention->shifts());
            auto saved = std::make_shared<Attention::Saved>();
            const Tensor rope = rank.rope(6);
            return {[=](Run& run, const Tensor& x) {
                      return sum_residual(run, attention->forward(run, x, x, rope, *saved, like(run.scratch, x)));
                    },
                    [=](Run& run, const Tensor& d_y, const Tensor& x) {
                      return with_residual(run, d_y, attention->backward(run, d_y, x, rope, *saved));
                    }};
          },
          .plain = [=](const Weights& weights,
                       const Values& x) { return sum(x, plain_attention(weights, "attention", config, rows, x)); }};
}

TEST(Attention, EqualsPlainLoops) {
  for (const ShiftConfig& shift : small_shifts()) {
    for (const int64_t kv_heads : {1, 2, 4}) {
      SCOPED_TRACE(text_of(shift) + ", " + std::to_string(kv_heads) + " KV heads");
      expect_plain(attention_case(small_model(shift, kv_heads), small_rows()));
    }
  }
}

TEST(Attention, EqualsPlainLoopsWhereTheShiftCrossesDocuments) {
  expect_plain(attention_case(small_model({.query = 2, .key = 2, .value = 1}), small_rows(true)));
}

// The rows of one document, fed in chunks of these lengths.
Values decoded(const ModelConfig& config, int tp, const std::vector<int>& chunks, const Values& x) {
  Values y;
  std::mutex mutex;
  run_thread_ranks(tp, [&](HostCommunicator& world) {
    Rank rank(world, {.tp = tp}, config);
    Attention attention(rank.set, "attention", config, 0);
    rank.own(attention.shifts());
    rank.allocate();
    const Tensor rope = rank.rope(10);
    Arena states(rank.stream, "states", {{"states", 1 << 14}}, "cache");
    AttentionCache cache = attention.make_cache(states, DType::float64, 10);
    for (const bool again : {false, true}) {  // a cache of length 0 has forgotten what it carried
      cache.length = 0;
      Values own;
      for (const int chunk : chunks) {
        const auto fed = static_cast<int>(cache.length);
        Attention::Saved unused;
        Run run = rank.begin(following_rows(fed, chunk), true);
        const auto first = x.begin() + fed * config.hidden;
        const Tensor rows = rank.place(Values(first, first + chunk * config.hidden), {chunk, config.hidden});
        const Values added = values_of(
            sum_residual(run, attention.forward(run, rows, rows, rope, unused, like(run.scratch, rows), &cache)));
        own.insert(own.end(), added.begin(), added.end());
        EXPECT_EQ(cache.length, fed + chunk);
      }
      const std::lock_guard lock(mutex);
      if (y.empty()) y = own;
      EXPECT_EQ(own, y) << (again ? "after a restart" : "on another rank");
    }
  });
  return y;
}

TEST(Attention, DecodesWhatForwardMakes) {
  const Rows rows = make_rows({{10}});
  for (const ShiftConfig& shift : small_shifts()) {
    for (const int64_t kv_heads : {1, 2}) {
      const ModelConfig config = small_model(shift, kv_heads);
      const ModuleCase c = attention_case(config, rows);
      const Values x = c.input("x");
      const Weights weights = evaluate({.config = config, .rows = small_rows(), .make = c.make}, 1).weights;
      const Values whole = c.plain(weights, x);
      for (const std::vector<int>& chunks : {std::vector<int>{10}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {3, 1, 4, 2}}) {
        for (const int tp : {1, 2}) {
          expect_near(decoded(config, tp, chunks, x), whole, 1e-12,
                      text_of(shift) + ", first " + std::to_string(chunks[0]) + " rows, tp " + std::to_string(tp));
        }
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
