// Taps and scores of heads: models whose heads are known, and every form of the shift against plain loops in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "evaluate/head_scores.h"
#include "evaluate/head_taps.h"
#include "evaluate/heat_map.h"
#include "evaluate/saved_model.h"
#include "expect_error.h"
#include "model/plain_model.h"
#include "run/saved_state.h"

namespace shiftron::testing {
namespace {

// A saved step of `config` with the weights of `fill`, which `weights` gets too.
CheckpointModel step_of(const Scratch& scratch, const RunConfig& config, const std::function<void(ParameterSet&)>& fill,
                        Weights* weights = nullptr) {
  CheckpointModel model = saved_model(scratch, config, [&](ParameterSet& set) {
    fill(set);
    for (const auto& parameter : set.parameters()) {
      if (weights == nullptr) continue;
      Values& values = (*weights)[parameter->spec.name];
      std::vector<std::byte> room;
      const int64_t count = parameter->weight.count();
      const void* from = set.read(*parameter, ParameterState::master, 0, count, room);
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(set.types().accumulation == DType::float64 ? static_cast<const double*>(from)[i]
                                                                    : static_cast<const float*>(from)[i]);
      }
    }
  });
  model.content.tokenizer = {};
  SavedState state;
  state.configuration = config;
  model.content.state_json = to_json(state);
  return model;
}

// One layer whose head 0 matches tokens, by channels that the rotary embedding barely turns, and whose head 1 asks for
// nothing.
RunConfig one_layer(const ShiftConfig& shift) {
  RunConfig config = small_config(shift);
  config.model = {.layers = 1,
                  .hidden = 40,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 128,
                  .ffn = 8,
                  .vocab = 40,
                  .rope_base = 1e12,
                  .init_std = 0.02,
                  .shift = shift};
  config.train.sequence_length = 64;
  return config;
}
void set_matching_head(ParameterSet& set) {
  set.initialise(1);
  for (const auto& parameter : set.parameters()) {
    const std::string& name = parameter->spec.name;
    const Tensor& weight = parameter->weight;
    const bool query = name.ends_with("query.weight"), key = name.ends_with("key.weight");
    if (name.ends_with("norm.weight") || name.find("mlp") != name.npos) continue;
    for (int64_t i = 0; i < weight.count(); ++i) set_element(weight, i, 0);
    for (int64_t token = 0; token < 40; ++token) {
      const int64_t channel = 32 + token % 32 + token / 32 * 64;
      if (query || key) set_element(weight, channel * 40 + token, query ? 10 : 1);
      if (name == "embedding.weight") set_element(weight, token * 40 + token, 1);
    }
    if (name.ends_with("shift_key")) set_element(weight, 0, 1);    // head 0: the previous token's key
    if (name.ends_with("shift_value")) set_element(weight, 1, 1);  // and the current one's value
  }
}

TEST(HeadScores, Theorem2sHeadIsAnInductionHead) {
  const Scratch scratch;
  const HeadReport report = score_heads(step_of(scratch, one_layer({}), set_matching_head), {}, 1);
  EXPECT_EQ(report.tokens.periods, (std::vector<int64_t>{6, 12, 24, 31}));
  ASSERT_EQ(report.heads.size(), 2u);
  EXPECT_GT(report.heads[0].induction, 0.999);
  EXPECT_LT(report.heads[0].previous, 1e-3);
  EXPECT_LT(report.heads[0].current, 1e-3);
  double uniform = 0;  // 1 / (t + 1) of each row, least in the longest period
  for (int t = 31; t < 62; ++t) uniform += 1.0 / (t + 1) / 31;
  for (const double score : {report.heads[1].induction, report.heads[1].previous, report.heads[1].current}) {
    EXPECT_NEAR(score, uniform, 1e-12);
  }
  EXPECT_EQ(&best_head(report.heads, &HeadScore::induction), &report.heads[0]);
}

TEST(HeadScores, VanillaOneLayerHasNoInductionHead) {
  const Scratch scratch;
  const RunConfig config = one_layer({.query = 0, .key = 0, .value = 0});
  const CheckpointModel model = step_of(scratch, config, set_matching_head);
  const HeadReport report = score_heads(model, {}, 1);
  EXPECT_LE(best_head(report.heads, &HeadScore::induction).induction, 0.1);
  EXPECT_NEAR(report.heads[0].current, 0.5, 1e-3);  // the token itself, and its previous occurrence
  const TapReport taps = report_taps(model);
  EXPECT_TRUE(taps.pairs.empty());
  EXPECT_FALSE(taps.counts);
}

// By period: a mean over the rows of all sequences.
struct PlainScores {
  std::vector<std::vector<HeadScore>> of_periods;  // [periods][layers · heads]
  double first = 0, second = 0;
};
PlainScores plain_scores(const Weights& weights, const ModelConfig& config, const RepeatedTokens& tokens) {
  PlainScores found;
  found.of_periods.assign(tokens.periods.size(),
                          std::vector<HeadScore>(static_cast<size_t>(config.layers * config.heads)));
  const auto head_dim = static_cast<size_t>(config.head_dim);
  const size_t width = static_cast<size_t>(config.heads) * head_dim,
               kv_width = static_cast<size_t>(config.kv_heads) * head_dim;
  int counted = 0;
  for (size_t text = 0; text < tokens.texts.size(); ++text) {
    const std::vector<int> ids(tokens.texts[text].begin(), tokens.texts[text].end());
    const size_t period = ids.size() / 2;
    const Rows rows = make_rows({{static_cast<int>(ids.size())}});
    const size_t place =
        static_cast<size_t>(std::ranges::find(tokens.periods, static_cast<int64_t>(period)) - tokens.periods.begin());
    const double share = 1.0 / static_cast<double>(period) /
                         (static_cast<double>(tokens.texts.size()) / static_cast<double>(tokens.periods.size()));
    Values x;
    for (const int id : ids) {
      const auto row = weights.at("embedding.weight").begin() + id * config.hidden;
      x.insert(x.end(), row, row + config.hidden);
    }
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string prefix = "layers." + std::to_string(layer);
      const Values normed = plain_norm(x, weights.at(prefix + ".attention_norm.weight"), config.norm_epsilon);
      const Values q = plain_stream(weights, prefix + ".attention", "query", config, rows, normed);
      const Values k = plain_stream(weights, prefix + ".attention", "key", config, rows, normed);
      for (size_t head = 0; head < static_cast<size_t>(config.heads); ++head) {
        HeadScore& score = found.of_periods[place][static_cast<size_t>(layer * config.heads) + head];
        const size_t kv = head / static_cast<size_t>(config.heads / config.kv_heads);
        for (size_t t = period; t < 2 * period; ++t) {
          Values shares(t + 1);
          double total = 0;
          for (size_t s = 0; s <= t; ++s) {
            double product = 0;
            for (size_t i = 0; i < head_dim; ++i)
              product += q[t * width + head * head_dim + i] * k[s * kv_width + kv * head_dim + i];
            total += shares[s] = std::exp(product / std::sqrt(static_cast<double>(head_dim)));
          }
          score.induction += share * shares[t - period + 1] / total;
          score.previous += share * shares[t - 1] / total;
          score.current += share * shares[t] / total;
        }
      }
      x = plain_layer(weights, prefix, config, rows, x);
    }
    std::vector<int> targets(ids.begin() + 1, ids.end());
    targets.push_back(-1);
    const Values losses = plain_losses(plain_logits(weights, config, rows, ids), targets);
    for (size_t t = 0; t + 1 < period; ++t, ++counted) {
      found.first += losses[t];
      found.second += losses[t + period];
    }
  }
  found.first /= counted;
  found.second /= counted;
  return found;
}

class EveryShift : public ::testing::TestWithParam<NamedShift> {};

TEST_P(EveryShift, ScoresAreThoseOfPlainLoops) {
  for (const Precision precision : {Precision::fp64, Precision::fp32, Precision::bf16}) {
    SCOPED_TRACE(to_string(precision));
    const double tolerance = precision == Precision::fp64 ? 1e-11 : 1e-4;
    const Scratch scratch;
    RunConfig config = small_config(GetParam().shift, precision);
    config.train.sequence_length = 50;  // 31 twice does not fit
    Weights weights;
    const CheckpointModel model =
        step_of(scratch, config, set_weights, precision == Precision::bf16 ? nullptr : &weights);
    if (precision == Precision::bf16) {  // the same masters
      const Scratch other;
      step_of(other, small_config(GetParam().shift, Precision::fp32), set_weights, &weights);
    }
    const RepeatOptions options{.seed = 4, .sequences = 2};
    const HeadReport report = score_heads(model, options, 2);
    EXPECT_EQ(report.tokens.periods, (std::vector<int64_t>{6, 12, 24}));
    EXPECT_TRUE(report.is_finite());
    const PlainScores plain = plain_scores(weights, config.model, report.tokens);
    ASSERT_EQ(report.heads.size(), 8u);
    for (size_t head = 0; head < report.heads.size(); ++head) {
      const HeadScore& score = report.heads[head];
      EXPECT_EQ(score.layer * 4 + score.head, static_cast<int64_t>(head));
      EXPECT_EQ(score.kv_head, score.head / 2);
      const auto least = [&](double HeadScore::*of) {
        double value = 1;
        for (const auto& period : plain.of_periods) value = std::min(value, period[head].*of);
        return value;
      };
      EXPECT_NEAR(score.induction, least(&HeadScore::induction), tolerance);
      EXPECT_NEAR(score.previous, least(&HeadScore::previous), tolerance);
      EXPECT_NEAR(score.current, least(&HeadScore::current), tolerance);
      ASSERT_EQ(score.induction_of_periods.size(), 3u);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(score.induction_of_periods[i], plain.of_periods[i][head].induction, tolerance);
      }
    }
    EXPECT_NEAR(report.first_copy_loss, plain.first, 10 * tolerance);
    EXPECT_NEAR(report.second_copy_loss, plain.second, 10 * tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(HeadScores, EveryShift, ::testing::ValuesIn(all_shifts()),
                         [](const auto& item) { return std::string(item.param.name); });

// The definition in docs/inspect.md, draw by draw.
TEST(HeadScores, TokensAreTheDocumentedDraws) {
  const Scratch scratch;
  RunConfig config = small_config({});
  config.train.sequence_length = 200;
  CheckpointModel model = step_of(scratch, config, [](ParameterSet&) {});
  SavedState state;
  state.configuration = config;
  state.origin.from = "elsewhere";
  state.origin.end_tokens = {5};
  state.origin.begin_token = 7;
  model.content.state_json = to_json(state);
  const RepeatedTokens tokens = repeated_tokens(model, {.seed = 9, .sequences = 3, .first_token = 3, .last_token = 28});
  EXPECT_EQ(tokens.candidates, 24);  // 3 to 28 without 5 and 7
  EXPECT_EQ(tokens.periods, (std::vector<int64_t>{6, 12, 24}));
  ASSERT_EQ(tokens.texts.size(), 9u);
  const Philox random(9, "repeated tokens 12 1");
  std::vector<int32_t> expected;
  for (uint64_t i = 0; expected.size() < 12; ++i) {
    auto token = static_cast<int32_t>(3 + std::floor(random.uniform(i) * 24));
    if (token >= 5) ++token;
    if (token >= 7) ++token;
    if (std::ranges::count(expected, token) == 0) expected.push_back(token);
  }
  for (size_t t = 0; t < 12; ++t) expected.push_back(expected[t]);
  EXPECT_EQ(tokens.texts[4], expected);
  const RepeatOptions few{.first_token = 3, .last_token = 8}, beyond{.first_token = 3, .last_token = 37};
  EXPECT_ERROR(repeated_tokens(model, few), ExitCode::bad_input, "scores need 6 different tokens");
  EXPECT_ERROR(repeated_tokens(model, beyond), ExitCode::bad_input,
               "tokens 3 to 37 are not a range of the model's vocabulary, 0 to 36");
}

// Where step 0 is gone, the initial taps are drawn again from the seed.
TEST(HeadTaps, InitialValuesAreThoseOfTheSeed) {
  for (const NamedShift& named : all_shifts()) {
    if (named.shift.key == 0) continue;
    SCOPED_TRACE(named.name);
    for (const Precision precision : {Precision::fp64, Precision::fp32}) {
      const Scratch scratch;
      RunConfig config = small_config(named.shift, precision);
      config.train.seed = 12;
      const TapReport report = report_taps(step_of(scratch, config, [](ParameterSet& set) { set.initialise(12); }));
      EXPECT_EQ(report.initial_from, "seed 12");
      ASSERT_EQ(report.pairs.size(), 4u);
      for (size_t i = 0; i < report.pairs.size(); ++i) {
        EXPECT_EQ(report.pairs[i].key.taps, report.initial[i].key.taps);
        EXPECT_EQ(report.pairs[i].value.taps, report.initial[i].value.taps);
        EXPECT_EQ(report.pairs[i].key.taps.size(), static_cast<size_t>(named.shift.key + 1));
      }
      EXPECT_EQ(report.changed_quadrant, 0);
    }
  }
}

TEST(HeadTaps, StepZeroNextToTheStepSaysTheInitialValues) {
  const Scratch scratch, other;
  RunConfig config = small_config({});
  SavedState state;
  state.configuration = config;
  const CheckpointModel model = step_of(scratch, config, [](ParameterSet& set) { set.initialise(12); });
  const std::string first = saved_model(other, config, set_weights, 0, to_json(state)).directory;
  const std::string place = scratch / "checkpoints/step-00000000";
  std::filesystem::rename(first, place);
  const TapReport report = report_taps(model);
  EXPECT_EQ(report.initial_from, place);
  const std::vector<KvPair> expected = report_taps(step_of(other, config, set_weights)).pairs;
  ASSERT_EQ(report.initial.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(report.initial[i].key.taps, expected[i].key.taps);
    EXPECT_EQ(report.initial[i].value.taps, expected[i].value.taps);
    EXPECT_NE(report.initial[i].key.taps, report.pairs[i].key.taps);
  }
  std::filesystem::resize_file(place + "/manifest.json", 10);  // damaged: the seed says the same
  EXPECT_EQ(report_taps(model).initial_from, "seed 0");
}

TEST(HeadTaps, InitialValuesOfImportedWeightsAreUnknown) {
  const Scratch scratch;
  const RunConfig config = small_config({});
  CheckpointModel model = step_of(scratch, config, set_weights);
  SavedState state;
  state.configuration = config;
  state.origin.from = "elsewhere";
  model.content.state_json = to_json(state);
  const TapReport report = report_taps(model);
  EXPECT_EQ(report.pairs.size(), 4u);
  EXPECT_TRUE(report.counts);
  EXPECT_TRUE(report.initial.empty());
  EXPECT_FALSE(report.initial_counts || report.changed_quadrant);
}

TEST(HeadTaps, CountsFollowThePapersTable4) {
  const Scratch scratch;
  RunConfig config = small_config({});
  config.train.seed = 12;
  // Of layer 0 and 1, KV heads 0 and 1: (previous, current) of keys, then of values.
  const double keys[] = {0.2, 0.8, 0.5, 0.5, 0.9, -1, 3, 0.1}, values[] = {0.1, 0.4, 0.3, 0.2, -2, -1, 0.5, 0.5};
  const TapReport report = report_taps(step_of(scratch, config, [&](ParameterSet& set) {
    set.initialise(12);
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t i = 0; i < 4; ++i) {
        const std::string prefix = "layers." + std::to_string(layer) + ".attention.shift_";
        set_element(set.find(prefix + "key")->weight, i, keys[layer * 4 + i]);
        set_element(set.find(prefix + "value")->weight, i, values[layer * 4 + i]);
      }
    }
  }));
  // Keys: current, equal (counts as previous), previous, previous. Values: current, previous, current, equal.
  EXPECT_EQ(report.counts, (PairCounts{{{2, 1}, {0, 1}}}));
  EXPECT_EQ(report.pairs[0].key.taps, (std::vector<double>{0.8, 0.2}));
  EXPECT_EQ(report.pairs[2].value.sum(), -3);
  int64_t changed = 0;
  for (size_t i = 0; i < 4; ++i) {
    const auto quadrant = [](const KvPair& pair) {
      return std::pair(pair.key.taps[0] > pair.key.taps[1], pair.value.taps[0] > pair.value.taps[1]);
    };
    changed += quadrant(report.pairs[i]) != quadrant(report.initial[i]);
  }
  EXPECT_GT(changed, 0);
  EXPECT_EQ(report.changed_quadrant, changed);
}

TEST(HeatMap, TenthsInTextAndBoxesInSvg) {
  const HeatMap map{.title = "a < b",
                    .row_name = "layer",
                    .column_name = "head",
                    .rows = {"0", "10"},
                    .columns = {"0", "1", "2"},
                    .values = {{0, 0.35, 1}, {0.0999, std::nan(""), 0.96}}};
  EXPECT_EQ(heat_map_text(map), "a < b\n  layer  head: 0 to 2\n      0  ·39\n     10  ·?9\n");
  const std::string svg = heat_map_svg("run & step", {map});
  EXPECT_NE(svg.find("layer 10, head 2: 0.960"), std::string::npos);
  EXPECT_NE(svg.find("layer 10, head 1: not finite"), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("run &amp; step"), std::string::npos);
}

}  // namespace
}  // namespace shiftron::testing
