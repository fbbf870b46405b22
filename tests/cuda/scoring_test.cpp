// Answers to what tasks ask, on a GPU or the emulator, compared with those of the CPU.
#include <bit>
#include <cmath>

#include "checkpoint/restore.h"
#include "cuda/device_training.h"
#include "evaluate/passes.h"
#include "evaluate/saved_model.h"
#include "evaluate/scorer.h"

namespace shiftron::testing {
namespace {

std::vector<Answer> answered(CheckpointModel model, DeviceChoice device, const std::vector<Request>& requests,
                             const ParallelSection& parallel = {}, int ranks = 1) {
  model.config.device.kind = device;
  model.config.parallel = parallel;
  std::vector<std::vector<Answer>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Scorer scorer(model, world, {.local_rank = world.rank()});
    of_ranks[static_cast<size_t>(world.rank())] = scorer.answer(requests, {.token_budget = 2 * kLength});
  });
  return of_ranks[0];
}

// Relative. Of float32: products of some dozen terms in another order, each rounded to 6e-8, through the layers and a
// softmax. Of bfloat16: what layers pass on is rounded to 2e-3.
constexpr double kFloat32 = 2e-6, kBfloat16 = 1e-2;

void expect_like(const std::vector<Answer>& found, const std::vector<Answer>& expected, double bound, bool exactly) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i].log_likelihood, expected[i].log_likelihood,
                bound * std::max(1.0, std::abs(expected[i].log_likelihood)))
        << "request " << i;
    if (!exactly) continue;
    EXPECT_EQ(found[i].greedy, expected[i].greedy) << "request " << i;
    EXPECT_EQ(found[i].text, expected[i].text) << "request " << i;
  }
}

// Every thread of the emulator costs time: few texts, and short ones.
std::vector<Request> requests_with_texts() {
  std::vector<Request> requests = example_requests();
  for (Request prompt : {example_prompts()[0], example_prompts()[3]}) {
    prompt.generation.most_tokens = 3;
    requests.push_back(prompt);
  }
  return requests;
}

TEST(CudaScoring, Float32AnswersAreThoseOfTheCpu) {
  for (const size_t shift : {0, 2, 4}) {
    const NamedShift named = all_shifts()[shift];
    SCOPED_TRACE(named.name);
    const Scratch scratch;
    RunConfig config = model_config(Precision::fp32);
    config.model.shift = named.shift;
    const CheckpointModel model = saved_model(scratch, config);
    const auto requests = shift == 2 ? requests_with_texts() : example_requests();
    expect_like(answered(model, DeviceChoice::cuda, requests), answered(model, DeviceChoice::cpu, requests), kFloat32,
                true);
  }
}

TEST(CudaScoring, Bfloat16AnswersAreThoseOfTheCpu) {
  const Scratch scratch;
  const CheckpointModel model = saved_model(scratch, model_config(Precision::bf16));
  const auto requests = example_requests();
  expect_like(answered(model, DeviceChoice::cuda, requests), answered(model, DeviceChoice::cpu, requests), kBfloat16,
              false);
}

TEST(CudaScoring, LayoutsAnswerAsOneRankOfTheCpu) {
  using enum PipelineKind;
  const Scratch scratch;
  RunConfig config = model_config(Precision::fp32);
  config.model.layers = 4;
  const CheckpointModel model = saved_model(scratch, config);
  const std::vector<std::pair<ParallelSection, int>> layouts = {
      {{.tp = 2}, 2}, {{.pp = 2}, 4}, {{.tp = 2, .pp = 2, .chunks = 2, .pipeline = interleaved}, 4}};
  for (const auto& [parallel, ranks] : layouts) {
    SCOPED_TRACE(::testing::Message() << "tp " << parallel.tp << " pp " << parallel.pp << ", " << ranks << " ranks");
    NEED_GPUS(ranks);
    const auto requests = parallel.pp == 1 ? requests_with_texts() : example_requests();
    expect_like(answered(model, DeviceChoice::cuda, requests, parallel, ranks),
                answered(model, DeviceChoice::cpu, requests), kFloat32, true);
  }
}

// Logits that live weights decode after a step, whose messages used the same channels.
std::vector<std::vector<double>> decoded_live(RunConfig config, DeviceChoice device, const ParallelSection& parallel,
                                              int ranks) {
  config.device.kind = device;
  config.parallel = parallel;
  std::vector<std::vector<std::vector<double>>> of_ranks(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](HostCommunicator& world) {
    Ledger ledger;
    DeviceRank rank(config, world, ledger);
    const auto stages = parallel.pp > 1 ? world.split(rank.layout.group(world.rank(), Axis::pp), "stages") : nullptr;
    Decoder decoder(config, rank.trainer->engine(), stages.get(), config.train.sequence_length, 3);
    rank.step(1);
    rank.parameters().initialise(5);
    decoder.weights_changed();
    auto& logits = of_ranks[static_cast<size_t>(world.rank())];
    for (const auto& ids : std::vector<std::vector<int32_t>>{{1, 2, 3}, {4}, {5, 6}}) {
      logits.push_back(decoder.feed_last(ids));
    }
  });
  for (const auto& logits : of_ranks) EXPECT_EQ(logits, of_ranks[0]);
  return of_ranks[0];
}

TEST(CudaScoring, LiveWeightsDecodeAsOnTheCpu) {
  using enum PipelineKind;
  RunConfig config = model_config(Precision::fp32);
  config.model.layers = 4;
  config.train.global_batch = 4;
  const auto expected = decoded_live(config, DeviceChoice::cpu, {}, 1);
  // Logits move as the log-probabilities do that they make, which are about −ln of the vocabulary.
  const double bound = kFloat32 * std::log(static_cast<double>(config.model.vocab));
  const std::vector<std::pair<ParallelSection, int>> layouts = {
      {{}, 1}, {{.tp = 2, .pp = 2}, 4}, {{.pp = 2, .chunks = 2, .pipeline = interleaved}, 2}};
  for (const auto& [parallel, ranks] : layouts) {
    SCOPED_TRACE(::testing::Message() << "tp " << parallel.tp << " pp " << parallel.pp << ", " << ranks << " ranks");
    NEED_GPUS(ranks);
    const auto found = decoded_live(config, DeviceChoice::cuda, parallel, ranks);
    for (size_t feed = 0; feed < expected.size(); ++feed) {
      for (size_t i = 0; i < expected[feed].size(); ++i) {
        ASSERT_NEAR(found[feed][i], expected[feed][i], bound) << i;
      }
    }
  }
}

// A GPU's products of bfloat16 leave logits unrounded too, of heads that ranks divide as well.
TEST(CudaScoring, Bfloat16LogitsAreNotRounded) {
  RunConfig config = model_config(Precision::bf16);
  config.train.global_batch = 4;
  const auto expected = decoded_live(config, DeviceChoice::cpu, {}, 1);
  // What layers pass on, and partial sums over tp, are rounded on both sides.
  const double bound = 2 * kBfloat16 * std::log(static_cast<double>(config.model.vocab));
  for (const int tp : {1, 2}) {
    NEED_GPUS(tp);
    const auto found = decoded_live(config, DeviceChoice::cuda, {.tp = tp}, tp);
    for (size_t feed = 0; feed < expected.size(); ++feed) {
      int rounded = 0;
      for (size_t i = 0; i < expected[feed].size(); ++i) {
        ASSERT_NEAR(found[feed][i], expected[feed][i], bound) << "tp " << tp << ", " << i;
        rounded += (std::bit_cast<uint32_t>(static_cast<float>(found[feed][i])) & 0xffff) == 0 ? 1 : 0;
      }
      EXPECT_LT(rounded, 4) << "of " << expected[feed].size();
    }
  }
}

// A head of zeros: every token is as likely, and the first one is the likeliest.
TEST(CudaScoring, TiesGoToTheLowestNumber) {
  const Scratch scratch;
  CheckpointModel model = saved_model(scratch, model_config(Precision::fp32), [](ParameterSet& set) {
    set_weights(set);
    const Parameter* const head = set.find("head.weight");
    for (int64_t i = 0; i < head->weight.count(); ++i) set_element(head->weight, i, 0);
  });
  model.config.device.kind = DeviceChoice::cuda;
  const std::vector<int32_t> targets = {0, 1, 164, 165, 329};
  ScorePlanner planner;
  for (const int32_t token : targets) planner.add(pass_of({3, 1, 4}, {token}));
  for (const int tp : {1, 2}) {
    model.config.parallel.tp = tp;
    NEED_GPUS(tp);
    run_thread_ranks(tp, [&](HostCommunicator& world) {
      const auto fill = [&](ParameterSet& set) { load_parameters(model.directory, set, {}); };
      TokenScorer scorer(model.config, fill, "a test", world, {.local_rank = world.rank()});
      const std::vector<PassScore> scores = scorer.score(planner);
      for (size_t i = 0; i < targets.size(); ++i) {
        EXPECT_NEAR(scores[i].log_likelihood, -std::log(330.0), 1e-6);
        EXPECT_EQ(scores[i].greedy, targets[i] == 0) << "tp " << tp << ", token " << targets[i];
      }
    });
  }
}

}  // namespace
}  // namespace shiftron::testing
