// On a late device, scores and decoded logits of live weights have the same bits as when run at once, while a step is
// still running.
#include "evaluate/generate.h"
#include "evaluate/token_scorer.h"
#include "late/late_training.h"

namespace shiftron::testing {
namespace {

// What `body` returns for a run's rank, whose streams `machine` delays: that of the last rank to end.
template <typename Result>
Result of_late_ranks(const LateCase& c, const RunConfig& config, Machine* machine,
                     const std::function<Result(RankTrainer& rank, HostCommunicator& world)>& body) {
  Result result;
  std::mutex mutex;
  run_thread_ranks(c.ranks(), [&](HostCommunicator& world) {
    const auto queue =
        machine != nullptr ? machine->make_queue("compute of rank " + std::to_string(world.rank())) : nullptr;
    RankTrainer rank(config, world, {.queue = queue.get()});
    const Result own = body(rank, world);
    const std::lock_guard lock(mutex);
    result = own;
  });
  return result;
}

std::vector<PassScore> score_late(const LateCase& c, const RunConfig& config, Machine* machine) {
  ScorePlanner passes;
  const Philox random(5, "passes");
  for (uint64_t i = 0; i < 24; ++i) {
    const auto draw = [&](uint64_t index) { return random.uniform(i * 100 + index); };
    const auto length = 1 + static_cast<int64_t>(draw(99) * static_cast<double>(config.train.sequence_length));
    ScoreTokens pass;
    for (int64_t t = 0; t < length; ++t) {
      pass.input.push_back(
          static_cast<int32_t>(draw(static_cast<uint64_t>(t)) * static_cast<double>(config.model.vocab)));
    }
    pass.first = length / 2;
    pass.targets.assign(pass.input.begin() + pass.first, pass.input.end());
    passes.add(pass);
  }
  return of_late_ranks<std::vector<PassScore>>(c, config, machine, [&](RankTrainer& rank, HostCommunicator& world) {
    const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
    TokenScorer scorer(config, rank.trainer->engine(), "late", world);
    std::vector<PassScore> own;
    for (int64_t step = 1; step <= 2; ++step) {
      rank.trainer->step(step, rank.reader(step, read), false);
      own = scorer.score(passes);
      (void)rank.trainer->result(step);
    }
    return own;
  });
}

std::vector<std::vector<double>> decode_late(const LateCase& c, const RunConfig& config, Machine* machine) {
  using Logits = std::vector<std::vector<double>>;
  return of_late_ranks<Logits>(c, config, machine, [&](RankTrainer& rank, HostCommunicator& world) {
    const SampleReader read = random_samples(config.train.sequence_length, config.model.vocab);
    const ParallelLayout& layout = rank.trainer->engine().groups().layout;
    const auto stages = layout.pp > 1 ? world.split(layout.group(world.rank(), Axis::pp), "stages") : nullptr;
    Decoder decoder(config, rank.trainer->engine(), stages.get(), config.train.sequence_length, 3);
    Logits own;
    for (int64_t step = 1; step <= 2; ++step) {
      rank.trainer->step(step, rank.reader(step, read), false);
      decoder.weights_changed();
      decoder.restart();
      for (const std::vector<int32_t>& ids : {std::vector<int32_t>{1, 2, 3}, {4}, {5, 6}}) {
        own.push_back(decoder.feed_last(ids));
      }
      (void)rank.trainer->result(step);
    }
    return own;
  });
}

class LateScoring : public ::testing::TestWithParam<Order> {};

TEST_P(LateScoring, HasTheSameBits) {
  for (const LateCase& c : {LateCase{.name = "alone"}, LateCase{.name = "tp 2 pp 2", .tp = 2, .pp = 2},
                            LateCase{.name = "zero pp 2 dp 2", .pp = 2, .dp = 2, .zero = 1, .bucket_elements = 200}}) {
    const auto at_once = score_late(c, c.config(), nullptr);
    Machine machine({.order = GetParam(), .seed = 1});
    const auto late = score_late(c, c.config(), &machine);
    ASSERT_EQ(late.size(), at_once.size());
    for (size_t i = 0; i < late.size(); ++i) {
      EXPECT_EQ(late[i].log_likelihood, at_once[i].log_likelihood) << c.name << ", pass " << i;
      EXPECT_EQ(late[i].greedy, at_once[i].greedy) << c.name << ", pass " << i;
    }
  }
}

TEST_P(LateScoring, DecodesTheSameBits) {
  for (const LateCase& c : {LateCase{.name = "alone"}, LateCase{.name = "tp 2 pp 2", .tp = 2, .pp = 2},
                            LateCase{.name = "zero pp 2 dp 2", .pp = 2, .dp = 2, .zero = 1, .bucket_elements = 200}}) {
    const auto at_once = decode_late(c, c.config(), nullptr);
    Machine machine({.order = GetParam(), .seed = 1});
    EXPECT_EQ(decode_late(c, c.config(), &machine), at_once) << c.name;
    EXPECT_NE(at_once[0], at_once[3]) << c.name;  // weights have moved
  }
}

INSTANTIATE_TEST_SUITE_P(All, LateScoring, ::testing::ValuesIn(kOrders),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace shiftron::testing
