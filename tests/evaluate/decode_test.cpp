// Decoding against the training path: in one piece, in chunks, token by token, on one rank and on two; and sampling.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <tuple>

#include "evaluate/generate.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

constexpr int64_t kLength = 24;
using LossRows = std::vector<std::vector<double>>;

std::vector<int32_t> prompt_of(int64_t vocab, int64_t length = kLength) {
  const Philox random(9, "prompt");
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < length; ++t) {
    ids.push_back(static_cast<int32_t>(random.uniform(static_cast<uint64_t>(t)) * static_cast<double>(vocab)));
  }
  return ids;
}

LossRows feed_in_chunks(Decoder& decoder, const std::vector<int32_t>& ids, int64_t chunk) {
  LossRows rows;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(chunk)) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(chunk));
    const auto from = [&](size_t at) { return ids.begin() + static_cast<int64_t>(at); };
    for (auto& row : decoder.feed({from(begin), from(end)})) rows.push_back(std::move(row));
  }
  return rows;
}

// Logits after every token of the prompt, from rank 0; every rank must have the same bits.
LossRows decode(const RunConfig& config, int ranks, int64_t chunk) {
  std::vector<LossRows> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Decoder decoder(config, set_weights, world, {}, kLength, chunk);
    of_ranks[static_cast<size_t>(world.rank())] = feed_in_chunks(decoder, prompt_of(config.model.vocab), chunk);
  });
  for (const LossRows& rows : of_ranks) EXPECT_EQ(rows, of_ranks[0]);
  return of_ranks[0];
}

// −ln p of every token of the vocabulary after every token of the prompt, as training computes losses: microbatch j
// has the prompt as its ids and token j as every target.
LossRows losses_of_training(RunConfig config, const std::vector<int32_t>& prompt,
                            const std::vector<size_t>& document_starts = {}) {
  config.train.global_batch = config.train.micro_batch = 1;
  config.train.sequence_length = kLength;
  const auto world = make_single_world();
  RankTrainer rank(config, *world);
  Engine& engine = rank.trainer->engine();
  set_weights(engine.parameters());
  const BatchReader read = [&](int index, HostBatch& batch) {
    batch.ids = prompt;
    std::ranges::fill(batch.targets, index);
    std::ranges::fill(batch.document_starts, uint8_t{0});
    for (const size_t row : document_starts) batch.document_starts[row] = 1;
  };
  LossRows losses(kLength, std::vector<double>(static_cast<size_t>(config.model.vocab)));
  const Totals totals;
  engine.evaluate(static_cast<int>(config.model.vocab), read, totals.tensor(), [&](int index, const Tensor& tensor) {
    for (int64_t t = 0; t < kLength; ++t) {
      losses[static_cast<size_t>(t)][static_cast<size_t>(index)] = element(tensor, t);
    }
  });
  return losses;
}

std::vector<double> losses_of_logits(const std::vector<double>& logits) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  std::vector<double> losses;
  for (const double logit : logits) losses.push_back(largest + std::log(sum) - logit);
  return losses;
}

void expect_near(const LossRows& rows, const LossRows& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(rows.size(), expected.size()) << what;
  for (size_t t = 0; t < rows.size(); ++t) {
    EXPECT_LE(relative_difference(rows[t], expected[t]), tolerance) << what << ", row " << t;
  }
}

using Case = std::tuple<NamedShift, int64_t, bool, Precision>;  // shift, KV heads, tied, precision
class DecodeTest : public ::testing::TestWithParam<Case> {
 protected:
  RunConfig config() const {
    const auto& [named, kv_heads, tied, precision] = GetParam();
    RunConfig config = small_config(named.shift, precision);
    config.model.kv_heads = kv_heads;
    config.model.tie_embeddings = tied;
    return config;
  }
  double tolerance() const { return std::get<Precision>(GetParam()) == Precision::fp64 ? 1e-12 : 1e-5; }
};

TEST_P(DecodeTest, WholePromptEqualsTraining) {
  LossRows losses;
  for (const auto& logits : decode(config(), 1, kLength)) losses.push_back(losses_of_logits(logits));
  const LossRows expected = losses_of_training(config(), prompt_of(config().model.vocab));
  expect_near(losses, expected, tolerance(), "training");
  EXPECT_GT(relative_difference(expected[3], expected[4]), 0.01) << "rows are too similar to compare";
}

TEST_P(DecodeTest, ChunksAndRanksEqualTheWholePrompt) {
  const LossRows whole = decode(config(), 1, kLength);
  for (const int ranks : {1, 2}) {
    for (const int64_t chunk : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, kLength}) {
      expect_near(decode(config(), ranks, chunk), whole, tolerance(),
                  "tp " + std::to_string(ranks) + ", chunks of " + std::to_string(chunk));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, DecodeTest,
                         ::testing::Combine(::testing::ValuesIn(all_shifts()),
                                            ::testing::Values(int64_t{1}, int64_t{2}), ::testing::Bool(),
                                            ::testing::Values(Precision::fp64, Precision::fp32)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name)
                               .append("_kv")
                               .append(std::to_string(std::get<1>(test.param)))
                               .append(std::get<2>(test.param) ? "_tied_" : "_untied_")
                               .append(to_string(std::get<3>(test.param)));
                         });

// Chunks of one decoder may have any lengths, and a restarted one remembers nothing.
TEST(Decoder, MixedChunksAndRestart) {
  const RunConfig config = small_config({.query = 1, .key = 3, .value = 2});
  const auto ids = prompt_of(config.model.vocab);
  const LossRows whole = decode(config, 1, kLength);
  const auto world = make_single_world();
  Decoder decoder(config, set_weights, *world, {}, kLength, 12);
  for (int round = 0; round < 2; ++round) {
    LossRows rows;
    int64_t fed = 0;
    for (const int64_t chunk : {1, 12, 2, 1, 5, 3}) {
      for (auto& row : decoder.feed({ids.begin() + fed, ids.begin() + fed + chunk})) rows.push_back(std::move(row));
      fed += chunk;
    }
    expect_near(rows, whole, 1e-12, "round " + std::to_string(round));
    decoder.restart();
  }
}

std::vector<int32_t> continued(const GenerateOptions& options, int ranks, int64_t vocab = 37, int32_t end = -1) {
  const RunConfig config = small_config({});
  std::vector<std::vector<int32_t>> made(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    const auto prompt = prompt_of(vocab, 10);
    Decoder decoder(config, set_weights, world, {}, 10 + options.tokens, options.chunk);
    made[static_cast<size_t>(world.rank())] = continue_tokens(decoder, prompt, options, vocab, end).ids;
  });
  for (const auto& tokens : made) EXPECT_EQ(tokens, made[0]);
  return made[0];
}

// With shift.reset=always and documents that attention does not separate, a prompt is read as its rows are in training:
// after the end of a document nothing before it is mixed in.
TEST(Decoder, ShiftBeginsAnewBehindTheEndOfADocument) {
  constexpr int32_t kEnd = 5;
  RunConfig config = small_config({.query = 1, .key = 3, .value = 2, .reset = ShiftReset::always});
  config.data.document_reset = false;
  const auto world = make_single_world();
  int told_apart = 0;
  for (int trial = 0; trial < 8; ++trial) {
    std::vector<int32_t> ids = prompt_of(config.model.vocab);
    std::rotate(ids.begin(), ids.begin() + trial, ids.end());
    std::ranges::replace(ids, kEnd, kEnd + 1);
    std::vector<size_t> starts;
    for (const int64_t end : {int64_t{0}, int64_t{9}, kLength - 2}) {
      ids[static_cast<size_t>(end)] = kEnd;
      starts.push_back(static_cast<size_t>(end) + 1);
    }
    const auto likeliest = [&](const LossRows& losses) {
      return static_cast<int32_t>(std::ranges::min_element(losses.back()) - losses.back().begin());
    };
    const int32_t expected = likeliest(losses_of_training(config, ids, starts));
    told_apart += likeliest(losses_of_training(config, ids)) != expected;
    for (const int64_t chunk : {int64_t{1}, int64_t{4}, kLength}) {
      Decoder decoder(config, set_weights, *world, {}, kLength + 1, chunk);
      const GenerateOptions options{.tokens = 1, .chunk = chunk};
      const auto made = continue_tokens(decoder, ids, options, config.model.vocab, kEnd);
      EXPECT_EQ(made.ids, expected == kEnd ? std::vector<int32_t>() : std::vector<int32_t>{expected}) << chunk;
    }
  }
  EXPECT_GT(told_apart, 0);
  // A prompt that ends with a document leaves nothing to the next one.
  const std::vector<int32_t> next = {1, 2, 3, 4};
  Decoder used(config, set_weights, *world, {}, kLength, 1), fresh(config, set_weights, *world, {}, kLength, 1);
  continue_tokens(used, {7, kEnd}, {.tokens = 1, .chunk = 1}, config.model.vocab, kEnd);
  used.restart();
  EXPECT_EQ(feed_in_chunks(used, next, 1), feed_in_chunks(fresh, next, 1));
}

// Logits are sums of float32 in every precision: rounded to bfloat16 they would often be equal, and the lowest
// number would be the likeliest.
TEST(Decoder, LogitsAreNotRoundedToBrainFloats) {
  RunConfig config = small_config({}, Precision::bf16);
  for (const bool tied : {false, true}) {
    config.model.tie_embeddings = tied;
    const LossRows whole = decode(config, 1, kLength);
    RunConfig exact_config = small_config({}, Precision::fp64);
    exact_config.model.tie_embeddings = tied;
    const LossRows exact = decode(exact_config, 1, kLength);
    // Rounding an activation to bfloat16 moves it by at most 2^-9 of its length. There are about 12 roundings in a
    // layer, and 2 more before the head.
    const double tolerance = static_cast<double>(12 * config.model.layers + 2) * 0x1p-9;
    for (const int ranks : {1, 2}) {
      std::vector<LossRows> last(static_cast<size_t>(ranks));
      run_thread_ranks(ranks, [&](HostCommunicator& world) {
        Decoder decoder(config, set_weights, world, {}, kLength, kLength);
        last[static_cast<size_t>(world.rank())] = {decoder.feed_last(prompt_of(config.model.vocab))};
      });
      for (const LossRows& rows : {last.front(), last.back(), LossRows{whole.back()}}) {
        int rounded = 0;
        for (const double logit : rows[0])
          rounded += (std::bit_cast<uint32_t>(static_cast<float>(logit)) & 0xffff) == 0 ? 1 : 0;
        EXPECT_LT(rounded, 4) << "of " << rows[0].size() << ", " << ranks << " ranks";
        EXPECT_LE(relative_difference(rows[0], exact.back()), tolerance) << ranks << " ranks";
      }
    }
  }
}

// A trainer's own weights decode like loaded ones, after a change and wherever stages hold them.
TEST(Decoder, ReadsLiveWeightsAsTheyAre) {
  const std::vector<ParallelSection> layouts = {{},
                                                {.tp = 2},
                                                {.pp = 2},
                                                {.tp = 2, .pp = 2, .chunks = 2, .pipeline = PipelineKind::interleaved},
                                                {.pp = 2, .pipeline = PipelineKind::zb_v},
                                                {.pp = 4}};
  for (const NamedShift& shift : all_shifts()) {
    for (const ParallelSection& layout : layouts) {
      SCOPED_TRACE(std::string(shift.name) + " tp " + std::to_string(layout.tp) + " pp " + std::to_string(layout.pp) +
                   " " + to_string(layout.pipeline));
      RunConfig config = small_config(shift.shift);
      config.model.layers = 4;
      config.parallel = layout;
      run_thread_ranks(2 * layout.tp * layout.pp, [&](HostCommunicator& world) {
        RankTrainer rank(config, world);
        const auto group_of = [&](Axis axis) { return world.split(rank.layout.group(world.rank(), axis), "decoding"); };
        const auto stages = layout.pp > 1 ? group_of(Axis::pp) : nullptr;
        Decoder live(config, rank.trainer->engine(), stages.get(), config.train.sequence_length, 4);
        live.weights_changed();
        set_weights(rank.trainer->engine().parameters());
        live.weights_changed();
        const auto group = group_of(Axis::tp);
        Decoder loaded(config, set_weights, *group, {}, config.train.sequence_length, 4);
        for (const auto& ids : std::vector<std::vector<int32_t>>{{1, 2, 3, 4}, {5}, {6, 7, 8}}) {
          EXPECT_EQ(live.feed(ids), loaded.feed(ids));
        }
        live.restart();
        loaded.restart();
        EXPECT_EQ(live.feed_last({3, 2}), loaded.feed_last({3, 2}));
      });
    }
  }
}

TEST(Generate, GreedyIsTheSameInEveryWayOfFeeding) {
  const auto made = continued({.tokens = 30}, 1);
  ASSERT_EQ(made.size(), 30u);
  for (const int ranks : {1, 2}) {
    for (const int64_t chunk : {1, 3, 256}) {
      EXPECT_EQ(continued({.tokens = 30, .sampling = {.seed = static_cast<uint64_t>(chunk)}, .chunk = chunk}, ranks),
                made)
          << ranks << " ranks, chunks of " << chunk;
    }
  }
}

TEST(Generate, GreedyTakesTheLowestOfEqualLogits) {
  run_thread_ranks(2, [](HostCommunicator& world) {
    Decoder decoder(small_config({}), set_equal_logits, world, {}, 8, 4);
    EXPECT_EQ(continue_tokens(decoder, {5, 6}, {.tokens = 3}, 37, -1).ids, (std::vector<int32_t>{0, 0, 0}));
  });
}

TEST(Generate, ASeedIsReproducibleAndEqualOnTwoRanks) {
  const GenerateOptions options{.tokens = 30, .sampling = {.temperature = 0.8, .seed = 4}};
  const auto made = continued(options, 1);
  EXPECT_EQ(continued(options, 1), made);
  EXPECT_EQ(continued(options, 2), made);
  EXPECT_NE(continued({.tokens = 30, .sampling = {.temperature = 0.8, .seed = 5}}, 1), made);
  EXPECT_NE(continued({.tokens = 30}, 1), made);
}

// Token i is where draw i falls among the sums of the probabilities before it.
TEST(Generate, EachTokenTakesItsOwnDraw) {
  const auto made = continued({.tokens = 30, .sampling = {.temperature = 0.8, .seed = 4}}, 1);
  const auto world = make_single_world();
  Decoder decoder(small_config({}), set_weights, *world, {}, 40, 10);
  std::vector<double> logits = decoder.feed(prompt_of(37, 10)).back();
  const Philox random(4, "generate");
  for (size_t i = 0; i < made.size(); ++i) {
    for (double& logit : logits) logit /= 0.8;
    const auto losses = losses_of_logits(logits);
    double below = 0;
    for (int32_t token = 0; token < made[i]; ++token) below += std::exp(-losses[static_cast<size_t>(token)]);
    EXPECT_GT(random.uniform(i), below - 1e-12) << "token " << i;
    EXPECT_LE(random.uniform(i), below + std::exp(-losses[static_cast<size_t>(made[i])]) + 1e-12) << "token " << i;
    logits = decoder.feed({made[i]}).back();
  }
}

TEST(Generate, EndsBeforeTheEndTokenAndMakesNoUnknownToken) {
  const auto made = continued({.tokens = 30, .sampling = {.temperature = 1, .seed = 4}}, 1);
  const int32_t end = made[8];
  const auto before = std::vector<int32_t>(made.begin(), std::ranges::find(made, end));
  EXPECT_EQ(continued({.tokens = 30, .sampling = {.temperature = 1, .seed = 4}}, 1, 37, end), before);
  for (const double temperature : {0.0, 5.0}) {
    for (const int32_t token : continued({.tokens = 60, .sampling = {.temperature = temperature, .seed = 4}}, 1, 6)) {
      EXPECT_LT(token, 6);
    }
  }
}

// Σ ln p under the model, whatever the rules of sampling: of the tokens after the prompt, without the one that ends.
TEST(Generate, LogProbabilityIsThatOfTheModel) {
  const auto world = make_single_world();
  const std::vector<int32_t> prompt = prompt_of(37, 10);
  Decoder decoder(small_config({}), set_weights, *world, {}, 40, 10);
  for (const SamplingRules& rules : {SamplingRules{}, SamplingRules{.temperature = 2, .top_k = 9, .top_p = 0.9}}) {
    decoder.restart();
    const GenerateOptions options{.tokens = 12, .sampling = rules, .scores = true};
    const Continuation made = continue_tokens(decoder, prompt, options, 30, -1);  // 7 tokens of the model are unknown
    decoder.restart();
    std::vector<double> logits = decoder.feed(prompt).back();
    double expected = 0;
    for (const int32_t token : made.ids) {
      expected -= losses_of_logits(logits)[static_cast<size_t>(token)];
      logits = decoder.feed({token}).back();
    }
    EXPECT_NEAR(made.log_probability, expected, 1e-11);
    decoder.restart();
    const Continuation ended = continue_tokens(decoder, prompt, options, 30, made.ids[0]);
    EXPECT_TRUE(ended.ended && ended.ids.empty() && ended.log_probability == 0);
  }
}

// Frequencies over seeds against softmax(logits / temperature), within four standard deviations.
TEST(Generate, SamplesFollowTheDistribution) {
  constexpr int kSeeds = 4000;
  constexpr double kTemperature = 1.5;
  const RunConfig config = small_config({});
  const auto world = make_single_world();
  Decoder decoder(config, set_weights, *world, {}, 8, 4);
  std::vector<double> logits = decoder.feed({1, 2, 3, 4}).back();
  for (double& logit : logits) logit /= kTemperature;
  const auto losses = losses_of_logits(logits);
  std::vector<int> drawn(logits.size());
  for (int seed = 0; seed < kSeeds; ++seed) {
    decoder.restart();
    const GenerateOptions options{.tokens = 1,
                                  .sampling = {.temperature = kTemperature, .seed = static_cast<uint64_t>(seed)}};
    ++drawn[static_cast<size_t>(continue_tokens(decoder, {1, 2, 3, 4}, options, 37, -1).ids.at(0))];
  }
  for (size_t token = 0; token < drawn.size(); ++token) {
    const double share = std::exp(-losses[token]);
    EXPECT_NEAR(drawn[token], share * kSeeds, 4 * std::sqrt(share * (1 - share) * kSeeds) + 1) << "token " << token;
  }
}

}  // namespace
}  // namespace shiftron::testing
