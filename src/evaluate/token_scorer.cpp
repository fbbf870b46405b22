// The engine and plan of a scoring pass, the work of each rank, and the exchange of results.
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
#include "parallel/connect_groups.h"
#include "train/device.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

const BatchReader kNothing = [](int, HostBatch&) {};

struct ScoringPlan {
  MemoryPlan engine, head;
  std::map<std::string, TrafficCost> traffic;
};

// Plans a microbatch by a pass on meta; `beyond_engine` gets the memory in addition to the engine. `attending`: as in
// SampleShape.
ScoringPlan plan_scoring(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                         int64_t attending, Ledger& beyond_engine) {
  Ledger planned;
  Stream meta = planning_stream(config, threads, planned);
  const auto world = make_meta_world(rank, layout.ranks());
  Engine engine(config, make_groups(*world, layout, config.model.kv_heads, schedule_of(config)), meta, {}, false,
                std::nullopt, attending);
  engine.run_layers(1, kNothing, [](Run&, const TransformerStage&, const Tensor&) {});
  if (!engine.last()) return {engine.arena_peaks(), {}, planned.traffic()};
  const Ledger engine_alone = planned;
  const TrainSection& train = config.train;
  ProbeHead head(meta, config.model, engine.parameters().types(), layout.tp, train.micro_batch * train.sequence_length,
                 {});
  engine.run_layers(1, kNothing,
                    [&](Run& run, const TransformerStage& stage, const Tensor& x) { head.plan(run, stage, x); });
  add_planned_memory(meta, engine_alone, beyond_engine);
  return {engine.arena_peaks(), head.peaks(), planned.traffic()};
}

std::unique_ptr<ProbeHead> make_head(const RunConfig& config, Engine& engine, const MemoryPlan& plan) {
  if (!engine.last()) return nullptr;
  const TrainSection& train = config.train;
  return std::make_unique<ProbeHead>(engine.stream(), config.model, engine.parameters().types(),
                                     engine.groups().layout.tp, train.micro_batch * train.sequence_length, plan);
}

// For each answer the bits of its log-probability as 16 digits, and whether it is greedy.
std::string to_text(const std::vector<ProbeAnswer>& answers) {
  std::string text;
  for (const ProbeAnswer& answer : answers) {
    text += to_hex(std::bit_cast<uint64_t>(answer.log_probability)) + (answer.greedy ? '1' : '0');
  }
  return text;
}

// The inverse; false if it is not a text of `count` answers.
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

// The plan's batches of this rank, computed or read from the journal.
struct TokenScorer::Session {
  TokenScorer& scorer;
  const ScoringOptions& options;
  const ScorePlan plan;
  std::vector<int64_t> todo;                    // batches that this data-parallel rank computes
  int64_t most_to_do = 0;                       // the most on any data-parallel rank
  std::vector<std::vector<RowProbe>> probes{};  // of each batch in todo
  std::vector<std::vector<ProbeAnswer>> computed{};
  std::vector<ProbeAnswer> answers{};  // of all probes

  Session(TokenScorer& its_scorer, const ScoringOptions& its_options, ScorePlan its_plan)
      : scorer(its_scorer),
        options(its_options),
        plan(std::move(its_plan)),
        answers(static_cast<size_t>(plan.probes)) {}

  const PlannedRow& row_of(const PlacedRow& placed) const { return plan.rows[static_cast<size_t>(placed.row)]; }
  const std::vector<PlacedRow>& batch(int64_t number) const { return plan.batches[static_cast<size_t>(number)]; }

  // Hash of the model, the batch's rows and its probes.
  std::string key_of(int64_t number) const {
    HashStream hash;
    hash.update(scorer.identity_.data(), scorer.identity_.size());
    const TrainSection& train = scorer.config_.train;
    hash_numbers(hash,
                 {static_cast<int64_t>(train.precision), train.micro_batch, train.sequence_length, scorer.attending_});
    for (const PlacedRow& placed : batch(number)) {
      const PlannedRow& row = row_of(placed);
      hash_numbers(hash, {placed.begin, placed.shared, placed.shared_begin, static_cast<int64_t>(row.ids.size()),
                          static_cast<int64_t>(row.probes.size())});
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
      for (const auto& [position, target] : row_of(placed).probes) all.push_back({placed.place(position), target});
    }
    return all;
  }

  // Every rank reads known answers from the journal; this rank's other batches go to todo.
  void look_up() {
    const int dp = scorer.engine_->groups().at.dp;
    for (size_t rank = 0; rank < plan.of_rank.size(); ++rank) {
      int64_t unknown = 0;
      for (const int64_t number : plan.of_rank[rank]) {
        const std::string* known = options.journal != nullptr ? options.journal->find(key_of(number)) : nullptr;
        std::vector<ProbeAnswer> read;
        if (known != nullptr && from_text(*known, probes_of(number).size(), read)) {
          keep(number, read);
          continue;
        }
        ++unknown;
        if (static_cast<int>(rank) != dp) continue;
        todo.push_back(number);
        probes.push_back(probes_of(number));
      }
      most_to_do = std::max(most_to_do, unknown);
    }
    computed.resize(todo.size());
  }

  void read(int index, HostBatch& host) const {
    // Unused positions are documents of one token each.
    std::ranges::fill(host.ids, 0);
    std::ranges::fill(host.targets, -1);
    std::ranges::fill(host.document_starts, uint8_t{1});
    std::ranges::fill(host.copied_from, -1);
    std::ranges::fill(host.kept_from, -1);
    const bool shares = scorer.attending_ > 0;
    int64_t copies = 0;
    for (const PlacedRow& placed : batch(todo[static_cast<size_t>(index)])) {
      const std::vector<int32_t>& ids = row_of(placed).ids;
      const auto length = static_cast<int64_t>(ids.size());
      std::copy(ids.begin() + placed.shared, ids.end(), host.ids.begin() + placed.begin);
      const int64_t first = shares ? copies : placed.begin;
      std::fill_n(host.document_starts.begin() + first + 1, length - 1, uint8_t{0});
      if (!shares) continue;
      for (int64_t token = 0; token < length; ++token, ++copies) {
        const int64_t place = placed.place(token);
        host.copied_from[static_cast<size_t>(copies)] = static_cast<int32_t>(place);
        if (token >= placed.shared) host.kept_from[static_cast<size_t>(place)] = static_cast<int32_t>(copies);
      }
    }
  }

  // The answers to probes in any order.
  std::vector<ProbeAnswer> answer(Run& run, const TransformerStage& stage, const Tensor& x,
                                  const std::vector<RowProbe>& asked) const {
    std::vector<size_t> order(asked.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t probe) { return asked[probe].row; });
    std::vector<RowProbe> ascending;
    for (const size_t probe : order) ascending.push_back(asked[probe]);
    const std::vector<ProbeAnswer> in_order = scorer.head_->answer(run, stage, x, ascending);
    std::vector<ProbeAnswer> all(asked.size());
    for (size_t i = 0; i < order.size(); ++i) all[order[i]] = in_order[i];
    return all;
  }

  // How many batches to pass to one run_layers().
  int64_t at_once() const {
    const int64_t all = std::max<int64_t>(most_to_do, 1);
    if (!options.keep_going) return all;
    return std::min<int64_t>(all, microbatches_of_step(scorer.config_, scorer.engine_->groups().layout));
  }

  // One of the ranks that compute the same answers.
  bool records() const { return scorer.engine_->last() && scorer.engine_->groups().at.tp == 0; }

  // False if keep_going ended it.
  bool compute() {
    std::optional<Progress> progress;
    if (options.progress && scorer.world_.rank() == 0 && !todo.empty())
      progress.emplace("score", todo.size(), "batches");
    const auto all = static_cast<int64_t>(todo.size());
    for (int64_t begin = 0; begin < most_to_do; begin += at_once()) {
      if (options.keep_going && !options.keep_going()) return false;
      if (begin < all) compute(begin, std::min(all, begin + at_once()), progress);
    }
    return true;
  }

  void compute(int64_t begin, int64_t end, std::optional<Progress>& progress) {
    const BatchReader reader = [&](int index, HostBatch& host) {
      if (options.each_batch) options.each_batch();
      read(static_cast<int>(begin) + index, host);
      if (progress) progress->update(static_cast<uint64_t>(begin + index) + 1);
    };
    scorer.engine_->run_layers(static_cast<int>(end - begin), reader,
                               [&](Run& run, const TransformerStage& stage, const Tensor& x) {
                                 const auto index = static_cast<size_t>(begin + run.microbatch);
                                 computed[index] = answer(run, stage, x, probes[index]);
                                 if (records() && options.journal != nullptr)
                                   options.journal->append(key_of(todo[index]), to_text(computed[index]));
                               });
    finish(scorer.engine_->stream());
  }

  // Sends what each rank computed to all ranks.
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
    const std::string all = joined_texts(scorer.world_, own);
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
  Ledger ignored;
  const ScoringPlan plan = plan_scoring(config_, engine.groups().layout, world.rank(), share_.threads, 0, ignored);
  head_ = make_head(config_, engine, plan.head);
}

TokenScorer::~TokenScorer() = default;

void TokenScorer::plan_live(const RunConfig& config, const ParallelLayout& layout, int rank, int threads,
                            Ledger& planned) {
  plan_scoring(config, layout, rank, threads, 0, planned);
}

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
  // One sample per microbatch, so that rows are packed as tightly as possible; short enough that every rank and stage
  // has work.
  const int64_t at_once = int64_t{layout.dp} * (layout.pp > 1 ? 2 * layout.pp : 1);
  const int64_t unit = std::lcm(int64_t{8}, int64_t{layout.tp});
  const int64_t most = std::min(options.token_budget, (passes.tokens() + at_once - 1) / at_once);
  config_.train.micro_batch = 1;
  const SampleShape sample = passes.tightest_sample(most, unit, layout.dp);
  config_.train.sequence_length = sample.length;
  attending_ = sample.attending;
  config_.train.global_batch = layout.dp;
  release();
  Ledger ignored;
  const ScoringPlan plan = plan_scoring(config_, layout, world_.rank(), share_.threads, attending_, ignored);
  own_ = std::make_unique<Own>();
  own_->stream.ledger = &own_->ledger;
  own_->queue = start_device(config_, share_, world_, own_->stream).queue;
  Groups groups = make_groups(world_, layout, config_.model.kv_heads, schedule_of(config_), own_->stream.device);
  connect_groups(world_, groups, plan.traffic, own_->stream);
  own_->engine =
      std::make_unique<Engine>(config_, std::move(groups), own_->stream, plan.engine, false, std::nullopt, attending_);
  engine_ = own_->engine.get();
  run_on_all_ranks(world_, [&] { fill_(engine_->parameters()); });
  head_ = make_head(config_, *engine_, plan.head);
}

std::vector<PassScore> TokenScorer::score(const ScorePlanner& passes, const ScoringOptions& options) {
  if (passes.passes() == 0) return {};
  prepare(passes, options);
  CHECK(passes.longest() <= longest(), "a row of ", passes.longest(), " tokens, samples are of ", longest());
  ModelConfig layers = config_.model;
  layers.vocab = 0;  // the head runs at few rows
  const TrainSection& train = config_.train;
  Session session(*this, options,
                  passes.plan({.sample = {.length = train.sequence_length, .attending = attending_},
                               .samples = train.micro_batch,
                               .ranks = engine_->groups().layout.dp,
                               .token_cost = model_flops(layers, 1, 0),
                               .pair_cost = model_flops(layers, 0, 1)}));
  session.look_up();
  if (!session.compute()) return {};
  session.exchange();
  return session.scores();
}

}  // namespace shiftron
