// Engine and plan of a scoring pass, what every rank computes of it, and how all learn the result.
#include "evaluate/token_scorer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>

#include "core/event.h"
#include "core/hash.h"
#include "core/progress.h"
#include "parallel/agree.h"
#include "train/device.h"

namespace shiftron {
namespace {

const BatchReader kNothing = [](int, HostBatch&) {};

struct ScoringPlan {
  MemoryPlan engine, head;
};

// Of a microbatch, by a pass on meta.
ScoringPlan plan_scoring(const RunConfig& config, const ParallelLayout& layout, int rank, int threads) {
  Ledger planned;
  Stream meta = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, layout.ranks());
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false);
  const TrainSection& train = config.train;
  ProbeHead head(meta, config.model, engine.parameters().types(), layout.tp, train.micro_batch * train.sequence_length,
                 {});
  engine.run_layers(1, kNothing,
                    [&](Run& run, const TransformerStage& stage, const Tensor& x) { head.plan(run, stage, x); });
  return {engine.arena_peaks(), head.peaks()};
}

std::unique_ptr<ProbeHead> make_head(const RunConfig& config, Engine& engine, const MemoryPlan& plan) {
  if (!engine.last()) return nullptr;
  const TrainSection& train = config.train;
  return std::make_unique<ProbeHead>(engine.stream(), config.model, engine.parameters().types(),
                                     engine.groups().layout.tp, train.micro_batch * train.sequence_length, plan);
}

// Log-probabilities as their bits, 16 digits each, and which are greedy.
std::string to_text(const std::vector<ProbeAnswer>& answers) {
  std::string text;
  for (const ProbeAnswer& answer : answers) {
    text += to_hex(std::bit_cast<uint64_t>(answer.log_probability)) + (answer.greedy ? '1' : '0');
  }
  return text;
}

// The inverse; false where it is no such text of `count` answers.
bool from_text(const std::string& text, size_t count, std::vector<ProbeAnswer>& answers) {
  constexpr size_t kDigits = 16, kAnswer = kDigits + 1;
  if (text.size() != count * kAnswer) return false;
  for (size_t i = 0; i < count; ++i) {
    const std::string digits = text.substr(i * kAnswer, kDigits);
    if (digits.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
    answers.push_back({.log_probability = std::bit_cast<double>(std::stoull(digits, nullptr, 16)),
                       .greedy = text[i * kAnswer + kDigits] == '1'});
  }
  return true;
}

void hash_numbers(HashStream& hash, std::initializer_list<int64_t> numbers) {
  hash.update(numbers.begin(), numbers.size() * sizeof(int64_t));
}

}  // namespace

struct TokenScorer::Own {
  Ledger ledger;
  std::unique_ptr<Queue> queue;
  Stream stream;
  std::unique_ptr<Engine> engine;
};

// The plan's batches of this rank, computed or known.
struct TokenScorer::Session {
  TokenScorer& scorer;
  const ScoringOptions& options;
  const ScorePlan plan;
  std::vector<int64_t> todo;                    // batches of this data-parallel rank
  std::vector<std::vector<RowProbe>> probes{};  // of each of these
  std::vector<std::vector<ProbeAnswer>> computed{};
  std::vector<ProbeAnswer> answers{};  // of all probes

  Session(TokenScorer& its_scorer, const ScoringOptions& its_options, ScorePlan its_plan)
      : scorer(its_scorer),
        options(its_options),
        plan(std::move(its_plan)),
        answers(static_cast<size_t>(plan.probes)) {}

  const PlannedRow& row_of(const PlacedRow& placed) const { return plan.rows[static_cast<size_t>(placed.row)]; }
  const std::vector<PlacedRow>& batch(int64_t number) const { return plan.batches[static_cast<size_t>(number)]; }

  // Of what a batch reads and is asked, and of the model.
  std::string key_of(int64_t number) const {
    HashStream hash;
    hash.update(scorer.identity_.data(), scorer.identity_.size());
    const TrainSection& train = scorer.config_.train;
    hash_numbers(hash, {static_cast<int64_t>(train.precision), train.micro_batch, train.sequence_length});
    for (const PlacedRow& placed : batch(number)) {
      const PlannedRow& row = row_of(placed);
      hash_numbers(hash, {placed.begin, static_cast<int64_t>(row.ids.size()), static_cast<int64_t>(row.probes.size())});
      hash.update(row.ids.data(), row.ids.size() * sizeof(int32_t));
      for (const auto& [position, target] : row.probes) hash_numbers(hash, {position, target});
    }
    return to_hex(hash.digest_128());
  }

  void keep(int64_t number, const std::vector<ProbeAnswer>& of_batch) {
    auto next = of_batch.begin();
    for (const PlacedRow& placed : batch(number)) {
      const PlannedRow& row = row_of(placed);
      const auto count = static_cast<int64_t>(row.probes.size());
      std::copy_n(next, count, answers.begin() + row.first_probe);
      next += count;
    }
  }

  std::vector<RowProbe> probes_of(int64_t number) const {
    std::vector<RowProbe> all;
    for (const PlacedRow& placed : batch(number)) {
      for (const auto& [position, target] : row_of(placed).probes) all.push_back({placed.begin + position, target});
    }
    return all;
  }

  // What the journal knows is kept, by every rank; the rest of this one's batches is to do.
  void look_up() {
    const int dp = scorer.engine_->groups().at.dp;
    for (size_t rank = 0; rank < plan.of_rank.size(); ++rank) {
      for (const int64_t number : plan.of_rank[rank]) {
        const std::string* known = options.journal != nullptr ? options.journal->find(key_of(number)) : nullptr;
        std::vector<ProbeAnswer> read;
        if (known != nullptr && from_text(*known, probes_of(number).size(), read)) {
          keep(number, read);
        } else if (static_cast<int>(rank) == dp) {
          todo.push_back(number);
          probes.push_back(probes_of(number));
        }
      }
    }
    computed.resize(todo.size());
  }

  void read(int index, HostBatch& host) const {
    // What no row fills are documents of one token each.
    std::ranges::fill(host.ids, 0);
    std::ranges::fill(host.targets, -1);
    std::ranges::fill(host.document_starts, uint8_t{1});
    for (const PlacedRow& placed : batch(todo[static_cast<size_t>(index)])) {
      const std::vector<int32_t>& ids = row_of(placed).ids;
      std::ranges::copy(ids, host.ids.begin() + placed.begin);
      std::fill_n(host.document_starts.begin() + placed.begin + 1, ids.size() - 1, uint8_t{0});
    }
  }

  // One rank of those that compute the same.
  bool records() const { return scorer.engine_->last() && scorer.engine_->groups().at.tp == 0; }

  void compute() {
    if (todo.empty()) return;
    std::optional<Progress> progress;
    if (options.progress && scorer.world_.rank() == 0) progress.emplace("score", todo.size(), "batches");
    const BatchReader reader = [&](int index, HostBatch& host) {
      if (options.each_batch) options.each_batch();
      read(index, host);
      if (progress) progress->update(static_cast<uint64_t>(index) + 1);
    };
    scorer.engine_->run_layers(static_cast<int>(todo.size()), reader,
                               [&](Run& run, const TransformerStage& stage, const Tensor& x) {
                                 const auto index = static_cast<size_t>(run.microbatch);
                                 computed[index] = scorer.head_->answer(run, stage, x, probes[index]);
                                 if (records() && options.journal != nullptr)
                                   options.journal->append(key_of(todo[index]), to_text(computed[index]));
                               });
    finish(scorer.engine_->stream());
  }

  // What each rank computed, to all.
  void exchange() {
    constexpr size_t kAnswer = sizeof(double) + 1;
    std::string own;
    const auto put = [&own](const void* data, size_t bytes) { own.append(static_cast<const char*>(data), bytes); };
    for (size_t i = 0; records() && i < todo.size(); ++i) {
      put(&todo[i], sizeof todo[i]);
      for (const ProbeAnswer& answer : computed[i]) {
        put(&answer.log_probability, sizeof(double));
        own += answer.greedy ? '1' : '0';
      }
    }
    std::string all;
    for (const std::string& part : scorer.world_.gather_text(own, 0)) all += part;
    all = scorer.world_.broadcast_text(all, 0);
    const char* at = all.data();
    while (at < all.data() + all.size()) {
      int64_t number = 0;
      std::memcpy(&number, at, sizeof number);
      at += sizeof number;
      std::vector<ProbeAnswer> of_batch(probes_of(number).size());
      for (ProbeAnswer& answer : of_batch) {
        std::memcpy(&answer.log_probability, at, sizeof(double));
        answer.greedy = at[sizeof(double)] == '1';
        at += kAnswer;
      }
      keep(number, of_batch);
    }
  }

  std::vector<PassScore> scores() const {
    std::vector<PassScore> all;
    for (const std::vector<int64_t>& numbers : plan.passes) {
      PassScore& score = all.emplace_back(PassScore{.log_likelihood = 0, .greedy = true});
      for (const int64_t number : numbers) {
        const ProbeAnswer& answer = answers[static_cast<size_t>(number)];
        score.log_likelihood += answer.log_probability;
        score.greedy = score.greedy && answer.greedy;
      }
    }
    return all;
  }
};

TokenScorer::TokenScorer(const RunConfig& config, std::function<void(ParameterSet&)> fill, std::string identity,
                         HostCommunicator& world, const HostShare& share)
    : config_(config), fill_(std::move(fill)), identity_(std::move(identity)), world_(world), share_(share) {}

TokenScorer::TokenScorer(const RunConfig& config, Engine& engine, std::string identity, HostCommunicator& world)
    : config_(config),
      identity_(std::move(identity)),
      world_(world),
      share_{.threads = engine.stream().cpu.threads},
      engine_(&engine) {
  const ScoringPlan plan = plan_scoring(config_, engine.groups().layout, world.rank(), share_.threads);
  head_ = make_head(config_, engine, plan.head);
}

TokenScorer::~TokenScorer() = default;

void TokenScorer::release() {
  if (own_ == nullptr) return;
  head_.reset();
  own_.reset();
  engine_ = nullptr;
}

int64_t TokenScorer::longest() const {
  return config_.train.sequence_length;
}

void TokenScorer::prepare(const ScorePlanner& passes, const ScoringOptions& options) {
  if (engine_ != nullptr && (fill_ == nullptr || passes.longest() <= longest())) return;
  const ParallelLayout layout = make_layout(config_.parallel, world_.size());
  // One sample, so that rows are packed as closely as can be; not so long that ranks or stages would have nothing to
  // do.
  const int64_t at_once = int64_t{layout.dp} * (layout.pp > 1 ? 2 * layout.pp : 1);
  const int64_t unit = std::lcm(int64_t{8}, int64_t{layout.tp});
  const int64_t wanted =
      std::max(passes.longest(), std::min(options.token_budget, (passes.tokens() + at_once - 1) / at_once));
  config_.train.micro_batch = 1;
  config_.train.sequence_length = (std::max<int64_t>(wanted, 1) + unit - 1) / unit * unit;
  config_.train.global_batch = layout.dp;
  release();
  const ScoringPlan plan = plan_scoring(config_, layout, world_.rank(), share_.threads);
  own_ = std::make_unique<Own>();
  own_->stream.ledger = &own_->ledger;
  own_->queue = start_device(config_, share_, world_, own_->stream);
  own_->engine = std::make_unique<Engine>(
      config_, make_groups(world_, layout, config_.model.kv_heads, schedule_of(config_), own_->stream.device),
      own_->stream, plan.engine, false);
  engine_ = own_->engine.get();
  all_agree(world_, [&] { fill_(engine_->parameters()); });
  head_ = make_head(config_, *engine_, plan.head);
}

std::vector<PassScore> TokenScorer::score(const ScorePlanner& passes, const ScoringOptions& options) {
  if (passes.passes() == 0) return {};
  prepare(passes, options);
  CHECK(passes.longest() <= longest(), "a row of ", passes.longest(), " tokens, samples are of ", longest());
  ModelConfig layers = config_.model;
  layers.vocab = 0;  // the head is asked at few rows
  const TrainSection& train = config_.train;
  Session session(*this, options,
                  passes.plan({.length = train.sequence_length,
                               .samples = train.micro_batch,
                               .ranks = engine_->groups().layout.dp,
                               .token_cost = model_flops(layers, 1, 0),
                               .pair_cost = model_flops(layers, 0, 1)}));
  session.look_up();
  session.compute();
  session.exchange();
  return session.scores();
}

}  // namespace shiftron
