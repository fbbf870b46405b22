// Scores of given tokens compared with decoding: alone, packed and padded, in many layouts, on live weights, and after
// kills.
#include "evaluate/token_scorer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <random>

#include "evaluate/generate.h"
#include "evaluate/passes.h"
#include "scratch.h"
#include "train/small_model.h"

namespace shiftron::testing {
namespace {

// Of many lengths; some share a row or its beginning.
std::vector<ScoreTokens> passes_of_many_lengths(int64_t vocab, int64_t count = 40, int64_t longest = 20) {
  const Philox random(7, "passes");
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.uniform(drawn++) * static_cast<double>(below));
  };
  const auto tokens = [&](int64_t length) {
    Tokens all;
    for (int64_t t = 0; t < length; ++t) all.push_back(static_cast<int32_t>(draw(vocab)));
    return all;
  };
  std::vector<ScoreTokens> passes;
  for (int64_t i = 0; i < count; ++i) {
    const Tokens context = tokens(1 + draw(longest - 5));
    passes.push_back(pass_of(context, tokens(1 + draw(5))));
    if (i % 3 == 0) passes.push_back(pass_of(context, tokens(1)));
    if (i % 4 == 0) passes.push_back(pass_of({context.begin(), context.begin() + (context.size() + 1) / 2}, tokens(2)));
  }
  return passes;
}

// Of each context four continuations, two with the same beginning; contexts are shorter and longer than any shift
// reads.
std::vector<ScoreTokens> sharing_passes(int64_t vocab, int64_t contexts = 9) {
  const Philox random(9, "contexts");
  uint64_t drawn = 0;
  const auto tokens = [&](int64_t length) {
    Tokens all;
    for (int64_t t = 0; t < length; ++t) {
      all.push_back(static_cast<int32_t>(random.uniform(drawn++) * static_cast<double>(vocab)));
    }
    return all;
  };
  std::vector<ScoreTokens> passes;
  for (int64_t i = 0; i < contexts; ++i) {
    const Tokens context = tokens(1 + i % 3 * 4 + i / 3);
    for (int64_t j = 0; j < 4; ++j) {
      Tokens continuation = tokens(2 + (i + j) % 5);
      if (j % 2 == 1) std::copy_n(passes.back().targets.begin(), 2, continuation.begin());
      passes.push_back(pass_of(context, continuation));
    }
  }
  return passes;
}

ScorePlanner planner_of(const std::vector<ScoreTokens>& passes) {
  ScorePlanner planner;
  for (const ScoreTokens& pass : passes) planner.add(pass);
  return planner;
}

// As decoding has it, each pass alone.
std::vector<PassScore> decoded(const RunConfig& config, const std::vector<ScoreTokens>& passes,
                               const std::function<void(ParameterSet&)>& fill = set_weights) {
  const auto world = make_single_world();
  Decoder decoder(config, fill, *world, {}, 64, 64);
  std::vector<PassScore> scores;
  for (const ScoreTokens& pass : passes) {
    decoder.restart();
    const auto logits = decoder.feed(pass.input);
    PassScore score{.log_likelihood = 0, .greedy = true};
    for (size_t j = 0; j < pass.targets.size(); ++j) {
      const std::vector<double>& row = logits[static_cast<size_t>(pass.first) + j];
      const auto best = std::ranges::max_element(row);
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit - *best);
      score.log_likelihood += row[static_cast<size_t>(pass.targets[j])] - *best - std::log(sum);
      score.greedy = score.greedy && best - row.begin() == pass.targets[j];
    }
    scores.push_back(score);
  }
  return scores;
}

std::vector<PassScore> scored(const RunConfig& config, int ranks, const ScorePlanner& planner,
                              const ScoringOptions& options = {},
                              const std::function<void(ParameterSet&)>& fill = set_weights) {
  std::vector<std::vector<PassScore>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    TokenScorer scorer(config, fill, "test", world, {});
    of_ranks[static_cast<size_t>(world.rank())] = scorer.score(planner, options);
  });
  for (const auto& scores : of_ranks) {
    EXPECT_EQ(scores.size(), of_ranks[0].size());
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(scores[i].log_likelihood, of_ranks[0][i].log_likelihood);
      EXPECT_EQ(scores[i].greedy, of_ranks[0][i].greedy);
    }
  }
  return of_ranks[0];
}

void expect_near(const std::vector<PassScore>& scores, const std::vector<PassScore>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(scores.size(), expected.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    EXPECT_NEAR(scores[i].log_likelihood, expected[i].log_likelihood, tolerance) << what << ", pass " << i;
    EXPECT_EQ(scores[i].greedy, expected[i].greedy) << what << ", pass " << i;
  }
}

// Sums of a few dozen terms, the rounding of each at most the type's; logits are of size 10.
double tolerance_of(Precision precision) {
  return precision == Precision::fp64 ? 1e-11 : 2e-4;
}

class TokenScorerTest : public ::testing::TestWithParam<std::tuple<NamedShift, Precision>> {
 protected:
  RunConfig config() const { return small_config(std::get<0>(GetParam()).shift, std::get<1>(GetParam())); }
  double tolerance() const { return tolerance_of(std::get<1>(GetParam())); }
};

// A row has the same scores alone, packed after others, with rows after it, and cut off from a longer one.
TEST_P(TokenScorerTest, AloneAndPackedEqualsDecoding) {
  const auto passes = passes_of_many_lengths(config().model.vocab);
  const auto expected = decoded(config(), passes);
  for (const int64_t budget : {1, 64, 4096}) {
    expect_near(scored(config(), 1, planner_of(passes), {.token_budget = budget}), expected, tolerance(),
                "budget " + std::to_string(budget));
  }
  for (size_t i = 0; i < passes.size(); i += 7) {
    expect_near(scored(config(), 1, planner_of({passes[i]})), {expected[i]}, tolerance(), "alone");
  }
}

// Passes that come later take the microbatches that suited the first ones.
TEST(TokenScorer, LaterPassesFitTheSamplesOfTheFirst) {
  const RunConfig config = small_config({.query = 0, .key = 1, .value = 1});
  const auto world = make_single_world();
  TokenScorer scorer(config, set_weights, "test", *world, {});
  std::vector<ScoreTokens> few;
  for (const int32_t ending : {1, 2}) few.push_back(pass_of({3, 4}, {ending, 0}));  // 4 tokens read, 6 of copies
  const std::vector<ScoreTokens> later = {pass_of({3, 1, 4, 1, 5, 9, 2}, {6, 5}), pass_of({3, 1, 4}, {1})};
  expect_near(scorer.score(planner_of(few)), decoded(config, few), tolerance_of(Precision::fp64), "first");
  ASSERT_EQ(scorer.longest(), 8);
  expect_near(scorer.score(planner_of(later)), decoded(config, later), tolerance_of(Precision::fp64), "later");
  const auto sharing = sharing_passes(config.model.vocab, 5);
  expect_near(scorer.score(planner_of(sharing)), decoded(config, sharing), tolerance_of(Precision::fp64), "sharing");
}

// What rows share is computed once, and each scores as it does alone.
TEST_P(TokenScorerTest, SharedBeginningsChangeNothing) {
  const auto passes = sharing_passes(config().model.vocab);
  const auto decoding = decoded(config(), passes);
  std::vector<PassScore> alone;
  for (const ScoreTokens& pass : passes) alone.push_back(scored(config(), 1, planner_of({pass}))[0]);
  const double relative = std::get<1>(GetParam()) == Precision::fp64 ? 1e-12 : 2e-6;
  for (const int64_t budget : {1, 40, 4096}) {
    ASSERT_GT(planner_of(passes).tightest_sample(budget, 8, 1).attending, 0);
    const auto sharing = scored(config(), 1, planner_of(passes), {.token_budget = budget});
    expect_near(sharing, decoding, tolerance(), "budget " + std::to_string(budget));
    for (size_t i = 0; i < passes.size(); ++i) {
      EXPECT_NEAR(sharing[i].log_likelihood, alone[i].log_likelihood, relative * -alone[i].log_likelihood)
          << "budget " << budget << ", pass " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenScorerTest,
                         ::testing::Combine(::testing::ValuesIn(all_shifts()),
                                            ::testing::Values(Precision::fp64, Precision::fp32)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) + "_" + to_string(std::get<1>(test.param));
                         });

// Layers in bfloat16, head and softmax in float32: the same alone and packed, and close to decoding, whose logits
// are rounded.
TEST(TokenScorer, BrainFloatsAloneAndPacked) {
  const RunConfig config = small_config({.query = 0, .key = 1, .value = 1}, Precision::bf16);
  const auto passes = passes_of_many_lengths(config.model.vocab);
  const auto packed = scored(config, 1, planner_of(passes)), expected = decoded(config, passes);
  for (size_t i = 0; i < passes.size(); ++i) {
    const double alone = scored(config, 1, planner_of({passes[i]}))[0].log_likelihood;
    EXPECT_NEAR(packed[i].log_likelihood, alone, 0.06 * static_cast<double>(passes[i].targets.size())) << i;
    EXPECT_NEAR(packed[i].log_likelihood, expected[i].log_likelihood,
                0.06 * static_cast<double>(passes[i].targets.size()))
        << i;
  }
  const double score = packed[0].log_likelihood;
  EXPECT_NE(score, std::round(score * 64) / 64) << "logits were rounded";
  RunConfig split = config;
  split.parallel.tp = 2;
  const auto of_two = scored(split, 2, planner_of(passes));
  for (size_t i = 0; i < passes.size(); ++i) {
    EXPECT_NEAR(of_two[i].log_likelihood, packed[i].log_likelihood,
                0.06 * static_cast<double>(passes[i].targets.size()))
        << i;
  }
}

// More probes than the head takes at a time, at one row; they are all there is.
TEST(TokenScorer, TheProbabilitiesOfAllTokensAddUp) {
  const RunConfig config = small_config({.query = 0, .key = 1, .value = 1});
  std::vector<ScoreTokens> passes;
  for (int32_t token = 0; token < config.model.vocab; ++token) passes.push_back(pass_of({3, 1, 4, 1, 5}, {token}));
  const auto scores = scored(config, 1, planner_of(passes));
  double sum = 0;
  for (const PassScore& score : scores) sum += std::exp(score.log_likelihood);
  EXPECT_NEAR(sum, 1, 1e-12);
  const auto likeliest = std::ranges::max_element(scores, {}, &PassScore::log_likelihood);
  EXPECT_EQ(std::ranges::count(scores, true, &PassScore::greedy), 1);
  EXPECT_TRUE(likeliest->greedy);
  expect_near(scores, decoded(config, passes), tolerance_of(Precision::fp64), "all tokens");
}

// As in training and in greedy generation, in a vocabulary of several blocks, on one rank and on two.
TEST(TokenScorer, OfEqualLogitsTheLowestTokenIsGreedy) {
  for (const int64_t vocab : {37, 8'005}) {
    RunConfig config = small_config({});
    config.model.vocab = vocab;
    std::vector<ScoreTokens> passes;
    for (const int64_t token : {int64_t{0}, int64_t{1}, vocab / 2, vocab - 1}) {
      passes.push_back(pass_of({3, 1, 4}, {static_cast<int32_t>(token)}));
    }
    for (const int tp : {1, 2}) {
      config.parallel.tp = tp;
      const auto scores = scored(config, tp, planner_of(passes), {}, set_equal_logits);
      for (size_t i = 0; i < scores.size(); ++i) {
        EXPECT_NEAR(scores[i].log_likelihood, -std::log(static_cast<double>(vocab)), 1e-12);
        EXPECT_EQ(scores[i].greedy, i == 0) << "pass " << i << ", vocabulary " << vocab << ", tp " << tp;
      }
    }
  }
}

// A vocabulary in several blocks, on each of two ranks.
TEST(TokenScorer, LargeVocabularies) {
  RunConfig config = small_config({.query = 0, .key = 1, .value = 1});
  config.model.vocab = 8'005;
  const auto passes = passes_of_many_lengths(config.model.vocab, 80);
  const auto expected = decoded(config, passes);
  for (const int tp : {1, 2}) {
    RunConfig split = config;
    split.parallel.tp = tp;
    expect_near(scored(split, tp, planner_of(passes)), expected, tolerance_of(Precision::fp64),
                "tp " + std::to_string(tp));
  }
}

// All weights of the head are equal: every token is as likely, and the first one counts as the likeliest.
TEST(TokenScorer, TiesGoToTheLowestNumber) {
  RunConfig config = small_config({.query = 0, .key = 1, .value = 1});
  const auto fill = [](ParameterSet& set) {
    set_weights(set);
    if (Parameter* head = set.find("head.weight")) {
      for (int64_t i = 0; i < head->weight.count(); ++i) set_element(head->weight, i, 0.25);
    }
  };
  std::vector<ScoreTokens> passes;
  for (const int32_t token : {0, 1, 18, 19, 36}) passes.push_back(pass_of({3, 1, 4}, {token}));
  for (const int tp : {1, 2, 4}) {
    config.parallel.tp = tp;
    const auto scores = scored(config, tp, planner_of(passes), {}, fill);
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_NEAR(scores[i].log_likelihood, -std::log(37.0), 1e-12);
      EXPECT_EQ(scores[i].greedy, i == 0) << "tp " << tp << ", token " << passes[i].targets[0];
    }
  }
}

struct ScoringLayout {
  int tp = 1, pp = 1, dp = 1;
  PipelineKind pipeline = PipelineKind::one_forward_one_backward;
};

TEST(TokenScorer, EqualInEveryLayout) {
  using enum PipelineKind;
  const std::vector<ScoringLayout> layouts = {{.dp = 2},
                                              {.dp = 3},
                                              {.tp = 2},
                                              {.tp = 4},
                                              {.pp = 2},
                                              {.pp = 4},
                                              {.tp = 2, .pp = 2},
                                              {.tp = 2, .dp = 2},
                                              {.pp = 2, .dp = 2},
                                              {.tp = 2, .pp = 2, .dp = 2},
                                              {.tp = 4, .pp = 2},
                                              {.pp = 3, .dp = 2},
                                              {.tp = 2, .pp = 4},
                                              {.pp = 2, .pipeline = gpipe},
                                              {.pp = 2, .pipeline = interleaved},
                                              {.pp = 2, .pipeline = zb_h1},
                                              {.tp = 2, .pp = 2, .pipeline = zb_v}};
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    for (const bool tied : {false, true}) {
      RunConfig config = small_config({.query = 1, .key = 3, .value = 2}, precision);
      config.model.layers = 4;
      config.model.tie_embeddings = tied;
      auto passes = passes_of_many_lengths(config.model.vocab);
      const auto sharing = sharing_passes(config.model.vocab);
      const size_t apart = passes.size();
      passes.insert(passes.end(), sharing.begin(), sharing.end());
      const auto expected = decoded(config, passes);
      for (const auto& [tp, pp, dp, pipeline] : layouts) {
        config.parallel.tp = tp;
        config.parallel.pp = pp;
        config.parallel.pipeline = pipeline;
        config.parallel.chunks = pipeline == interleaved ? 2 : 1;
        const std::string what = "tp " + std::to_string(tp) + ", pp " + std::to_string(pp) + ", dp " +
                                 std::to_string(dp) + ", " + to_string(pipeline);
        const auto middle = static_cast<std::ptrdiff_t>(apart);
        expect_near(
            scored(config, tp * pp * dp, planner_of({passes.begin(), passes.begin() + middle}), {.token_budget = 64}),
            {expected.begin(), expected.begin() + middle}, tolerance_of(precision), what);
        expect_near(scored(config, tp * pp * dp, planner_of(sharing), {.token_budget = 64}),
                    {expected.begin() + middle, expected.end()}, tolerance_of(precision), what + ", sharing");
      }
    }
  }
}

}  // namespace
}  // namespace shiftron::testing
