// Gathers the requested rows over tp, computes the head in blocks of the vocabulary, and the softmax over all shards on
// the host.
#include "evaluate/probe_head.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/event.h"
#include "core/trace_range.h"
#include "kernels/kernels.h"

namespace shiftron {
namespace {

enum Given { kRows, kNoTargets, kPlaces };
constexpr int64_t kStatistics = kRowStatistics, kMaxima = 2;

// Elements of one block in taken_.
constexpr int64_t record_size(int64_t rows, int64_t probes) {
  return rows * (kStatistics + kMaxima) + probes;
}

}  // namespace

ProbeHead::ProbeHead(Stream& stream, const ModelConfig& model, NumberTypes types, int tp, int64_t rows,
                     const MemoryPlan& plan)
    : stream_(stream),
      activation_(types.activation),
      accumulation_(types.accumulation),
      hidden_(model.hidden),
      tp_(tp),
      arena_(stream, "probes", plan, "scratch") {
  const LossTiles tiles = loss_tiles(stream, rows, (model.vocab + tp - 1) / tp, accumulation_);
  blocks_ = tiles.blocks;
  most_ = tiles.rows;
  const Shape given = {kPlaces + blocks_, most_}, taken = {tp * blocks_ * record_size(most_, most_)};
  const int64_t given_bytes = (given.count() * size_of(DType::int32) + kAlignment - 1) / kAlignment * kAlignment;
  pinned_ = staging_buffer(stream, given_bytes + taken.count() * size_of(accumulation_));
  given_ = pinned_.tensor(0, DType::int32, {given.count()});
  taken_ = pinned_.tensor(given_bytes, accumulation_, taken);
}

Range ProbeHead::block_of(Range vocabulary, int block) const {
  return split_range(vocabulary.size(), blocks_, block);
}

int64_t ProbeHead::arrange(const RowProbe* probes, int64_t count, Range vocabulary, int64_t first_row) {
  const bool planned = stream_.device == DeviceKind::meta;
  row_of_probe_.clear();
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < count; ++i) {
    if (rows.empty() || rows.back() != probes[i].row) rows.push_back(probes[i].row);
    row_of_probe_.push_back(static_cast<int64_t>(rows.size()) - 1);
  }
  const auto row_count = static_cast<int64_t>(rows.size());
  if (planned) return row_count;
  int32_t* const given = given_.host_data<int32_t>();
  for (int64_t i = 0; i < row_count; ++i) {
    given[kRows * count + i] = static_cast<int32_t>(rows[static_cast<size_t>(i)] - first_row);
    given[kNoTargets * count + i] = -1;
  }
  for (int block = 0; block < blocks_; ++block) {
    const Range range = block_of(vocabulary, block);
    CHECK(row_count * range.size() <= std::numeric_limits<int32_t>::max(), row_count, " rows of ", range.size(),
          " logits");
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = probes[i].target - vocabulary.begin - range.begin;
      const bool here = token >= 0 && token < range.size();
      given[(kPlaces + block) * count + i] =
          here ? static_cast<int32_t>(row_of_probe_[static_cast<size_t>(i)] * range.size() + token) : -1;
    }
  }
  return row_count;
}

void ProbeHead::ask(const Run& run, const TransformerStage& stage, const Tensor& x, const RowProbe* probes,
                    int64_t count, std::vector<ProbeAnswer>& answers) {
  arena_.release();
  Run here{.stream = stream_,
           .activations = arena_,
           .operands = arena_,
           .scratch = arena_,
           .groups = run.groups,
           .training = false,
           .gather_rows = false,
           .rows = count,
           .sequence_length = count,
           .documents = {},
           .loss_scale = 1,
           .microbatch = run.microbatch,
           .weight_gradients = run.weight_gradients};
  const Range vocabulary = stage.vocabulary();
  const int64_t first_row = run.groups.at.tp * run.local_rows();
  const int64_t rows = arrange(probes, count, vocabulary, first_row);
  const Tensor given = arena_.allocate(DType::int32, {(kPlaces + blocks_) * count});
  upload(stream_, given_.rows(0, given.count()), given);
  const auto given_part = [&](int part, int64_t length) { return given.rows(part * count, length); };
  // Rows of other ranks are zeros, so the sum gathers all rows.
  const Tensor asked = arena_.allocate(activation_, {rows, hidden_});
  embedding_forward(stream_, given_part(kRows, rows), x, 0, asked);
  run.groups.tp->all_reduce(stream_, InOut(asked), Reduction::sum).wait(stream_);
  const Tensor normed = stage.normed(here, asked);

  const int64_t record = record_size(rows, count);
  const Tensor own = arena_.allocate(accumulation_, {blocks_ * record});
  for (int block = 0; block < blocks_; ++block) {
    ArenaScope scope(arena_);
    const Range range = block_of(vocabulary, block);
    const int64_t first_token = vocabulary.begin + range.begin;
    const Tensor logits = stage.precise_logits(here, normed, range);
    const Tensor part = own.rows(block * record, record);
    cross_entropy_statistics(stream_, logits, given_part(kNoTargets, rows), first_token,
                             part.rows(0, rows * kStatistics).view({rows, kStatistics}));
    first_maximum(stream_, logits, first_token, part.rows(rows * kStatistics, rows * kMaxima).view({rows, kMaxima}));
    embedding_forward(stream_, given_part(kPlaces + block, count), logits.view({logits.count(), 1}), 0,
                      part.rows(rows * (kStatistics + kMaxima), count).view({count, 1}));
  }
  const Tensor all = arena_.allocate(accumulation_, {tp_ * own.count()});
  run.groups.tp->all_gather(stream_, own, all).wait(stream_);
  download(stream_, all, taken_.rows(0, all.count()));
  finish(stream_);
  if (stream_.device != DeviceKind::meta) combine(probes, count, rows, answers);
}

template <typename A>
ProbeAnswer ProbeHead::combine(const A* all, int64_t rows, int64_t probes, int64_t row, int64_t probe,
                               int32_t target) const {
  const int64_t record = record_size(rows, probes);
  const auto blocks = int64_t{tp_} * blocks_;
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0, logit = 0;
  A likeliest = 0;
  for (int64_t block = 0; block < blocks; ++block) {  // by ascending tokens: the first of equal maxima is kept
    const A* const maxima = all + block * record + rows * kStatistics + row * kMaxima;
    if (block == 0 || maxima[0] > maximum) {
      maximum = maxima[0];
      likeliest = maxima[1];
    }
    logit += all[block * record + rows * (kStatistics + kMaxima) + probe];
  }
  for (int64_t block = 0; block < blocks; ++block) {
    const A* const statistics = all + block * record + row * kStatistics;
    sum += static_cast<double>(statistics[1]) * std::exp(static_cast<double>(statistics[0]) - maximum);
  }
  const auto log_probability = static_cast<A>((logit - maximum) - std::log(sum));
  return {.log_probability = static_cast<double>(log_probability),
          .greedy = static_cast<int32_t>(likeliest) == target && !std::isnan(log_probability)};
}

void ProbeHead::combine(const RowProbe* probes, int64_t count, int64_t rows, std::vector<ProbeAnswer>& answers) const {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = row_of_probe_[static_cast<size_t>(i)];
    answers.push_back(accumulation_ == DType::float64
                          ? combine(taken_.host_data<double>(), rows, count, row, i, probes[i].target)
                          : combine(taken_.host_data<float>(), rows, count, row, i, probes[i].target));
  }
}

std::vector<ProbeAnswer> ProbeHead::answer(const Run& run, const TransformerStage& stage, const Tensor& x,
                                           const std::vector<RowProbe>& probes) {
  const TraceRange range("probes");
  const auto count = static_cast<int64_t>(probes.size());
  std::vector<ProbeAnswer> answers;
  for (int64_t begin = 0; begin < count; begin += most_) {
    ask(run, stage, x, probes.data() + begin, std::min(most_, count - begin), answers);
  }
  return answers;
}

void ProbeHead::plan(const Run& run, const TransformerStage& stage, const Tensor& x) {
  std::vector<RowProbe> probes;
  for (int64_t row = 0; row < most_; ++row) probes.push_back({row, 0});
  answer(run, stage, x, probes);
}

}  // namespace shiftron
