// The formulas of docs/parallelism.md, with its letters: bytes that a rank sends in a step, bytes of its training
// state, and bytes that a layer keeps per microbatch.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "train/trainer.h"

namespace shiftron::testing {

using enum PipelineKind;
using Bytes = std::map<std::string, int64_t>;

inline int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// One rank of a run.
struct Case {
  RunConfig config;
  ParallelLayout layout;
  int rank = 0;

  int stage() const { return layout.coordinates(rank).pp; }
  int replica() const { return layout.coordinates(rank).dp; }
  int chunks() const { return config.parallel.pipeline == zb_v ? 2 : config.parallel.chunks; }
  int pieces() const { return layout.pp * chunks(); }
  int piece(int chunk) const {
    return config.parallel.pipeline == zb_v && chunk == 1 ? pieces() - 1 - stage() : chunk * layout.pp + stage();
  }
  int stage_of(int piece) const {
    return config.parallel.pipeline == zb_v && piece >= layout.pp ? pieces() - 1 - piece : piece % layout.pp;
  }
  bool holds(int piece) const { return stage_of(piece) == stage(); }
  // L: of this rank, the model's last first.
  std::vector<int64_t> layers() const {
    std::vector<int64_t> found;
    int64_t end = 0;
    for (int piece = 0; piece < pieces(); ++piece) {
      const int64_t begin = end;
      end += config.parallel.stage_layers[static_cast<size_t>(piece)];
      for (int64_t layer = begin; holds(piece) && layer < end; ++layer) found.insert(found.begin(), layer);
    }
    return found;
  }
  int64_t m() const { return config.train.global_batch / (config.train.micro_batch * layout.dp); }
  int64_t R() const { return config.train.micro_batch * config.train.sequence_length; }
  int64_t h() const { return config.model.hidden; }
  int64_t H() const { return config.model.heads / layout.tp; }
  int64_t K() const { return std::max<int64_t>(config.model.kv_heads / layout.tp, 1); }
  int64_t V() const { return split_range(config.model.vocab, layout.tp, layout.coordinates(rank).tp).size(); }
  int64_t F() const { return config.model.ffn / layout.tp; }
  int64_t b() const { return size_of(number_types(config.train.precision).activation); }
  int64_t a() const { return size_of(number_types(config.train.precision).accumulation); }
  int64_t x() const { return R() / layout.tp * h() * b(); }  // the residual stream of a microbatch, this rank's rows
  bool full() const { return config.parallel.recompute.of_stage(0) == RecomputeKind::full; }
  bool zero() const { return config.parallel.zero == 1; }
  // NCCL's sums of more than two, without zero, go from the first dp rank to the others.
  bool sends_copies(const std::string& group) const {
    const int64_t ranks = group == "tp" ? layout.tp : group == "kv_replica" ? layout.tp / config.model.kv_heads : 2;
    return config.device.kind == DeviceChoice::cuda && !zero() && layout.dp > 1 && ranks > 2;
  }
  bool tied() const { return config.model.tie_embeddings && stage_of(pieces() - 1) != 0; }
};

// tp: 6 gathers and 4 scatters of each layer (full: 8 and 6), one of each for embedding and head, statistics of the
// loss.
inline int64_t tp_all_gather(const Case& c, int64_t blocks) {
  const int64_t layers = static_cast<int64_t>(c.layers().size()), first = c.holds(0), last = c.holds(c.pieces() - 1);
  return c.m() * (c.x() * ((c.full() ? 8 : 6) * layers + first + last) + last * 4 * blocks * c.R() * c.a());
}
inline int64_t tp_reduce_scatter(const Case& c) {
  const int64_t layers = static_cast<int64_t>(c.layers().size()), first = c.holds(0), last = c.holds(c.pieces() - 1);
  return c.m() * c.layout.tp * c.x() * ((c.full() ? 6 : 4) * layers + first + last);
}
// pp: x for each neighbouring piece on another stage: activations to the next one, gradients to the one before.
inline int64_t pp_send(const Case& c) {
  int64_t neighbours = 0;
  for (int chunk = 0; chunk < c.chunks(); ++chunk) {
    for (const int other : {c.piece(chunk) - 1, c.piece(chunk) + 1}) {
      neighbours += other >= 0 && other < c.pieces() && !c.holds(other);
    }
  }
  return c.m() * c.x() * neighbours;
}
// world: loss, targets, correct ones, stop, attended; a square for embedding, final norm, head; of each layer a square and 12 taps.
inline int64_t world_all_reduce(const Case& c) {
  return 8 * (5 + 3 + 13 * c.config.model.layers);
}

// Parameters side by side, and which group in addition to dp holds each.
struct Adjacent {
  bool precise = false;                                     // norms and taps: kept in `a` also where b is 2
  std::vector<std::pair<std::string, int64_t>> parameters;  // group or "", elements
  std::string group() const {
    for (const auto& [group, elements] : parameters) {
      if (!group.empty()) return group;
    }
    return "";
  }
};

// In the order in which backward completes them.
inline std::vector<Adjacent> parameters_of(const Case& c) {
  const std::string tp = c.layout.tp > 1 ? "tp" : "",
                    replica = c.layout.tp > c.config.model.kv_heads ? "kv_replica" : "";
  const ShiftConfig& shift = c.config.model.shift;
  const int64_t head_dim = c.config.model.head_dim;
  const bool last = c.holds(c.pieces() - 1);
  std::vector<Adjacent> found;
  const auto add = [&](bool precise, std::vector<std::pair<std::string, int64_t>> parameters) {
    if (parameters.front().second > 0) found.push_back({precise, std::move(parameters)});
  };
  const auto taps = [](int previous) { return previous > 0 ? previous + 1 : 0; };
  if (last && !c.config.model.tie_embeddings) add(false, {{"", c.V() * c.h()}});
  if (last) add(true, {{tp, c.h()}});
  for (size_t layer = 0; layer < c.layers().size(); ++layer) {
    add(true, {{tp, c.h()}});
    add(false,
        {{"", c.H() * head_dim * c.h()}, {replica, c.K() * head_dim * c.h()}, {replica, c.K() * head_dim * c.h()}});
    add(true, {{"", c.H() * taps(shift.query)}});
    add(true, {{replica, c.K() * taps(shift.key)}});
    add(true, {{replica, c.K() * taps(shift.value)}});
    add(false, {{"", c.h() * c.H() * head_dim}});
    add(true, {{tp, c.h()}});
    add(false, {{"", c.F() * c.h()}, {"", c.F() * c.h()}});
    add(false, {{"", c.h() * c.F()}});
  }
  if (c.holds(0) || (last && c.config.model.tie_embeddings)) add(false, {{c.tied() ? "tied" : "", c.V() * c.h()}});
  return found;
}

// What is exchanged at once over dp.
struct ExchangedTogether {
  bool precise = false;
  int64_t elements = 0;                            // filled up to a multiple of 64 · dp
  std::map<std::string, std::vector<Range>> held;  // by group: neighbours that it holds are summed as one
};

inline std::vector<ExchangedTogether> buckets_of(const Case& c) {
  struct Open {
    ExchangedTogether bucket;
    std::string newest = "none yet";
  };
  std::vector<ExchangedTogether> closed;
  std::map<std::pair<bool, std::string>, Open> open;
  for (const Adjacent& adjacent : parameters_of(c)) {
    auto& [bucket, newest] = open[{adjacent.precise, adjacent.group()}];
    bucket.precise = adjacent.precise;
    bucket.elements = round_up(bucket.elements, 64);
    for (const auto& [group, elements] : adjacent.parameters) {
      std::vector<Range>& held = bucket.held[group];
      if (group != newest) held.push_back({bucket.elements, 0});
      newest = group;
      bucket.elements += elements;
      held.back().end = bucket.elements;
    }
    if (bucket.elements < bucket_elements(c.config, c.layout)) continue;
    closed.push_back(bucket);
    open.erase({adjacent.precise, adjacent.group()});
  }
  for (const auto& [kind, left] : open) closed.push_back(left.bucket);
  for (ExchangedTogether& bucket : closed) bucket.elements = round_up(bucket.elements, 64 * int64_t{c.layout.dp});
  return closed;
}

// dp: a of each gradient; with zero 1 also this rank's part of the weights. After it, of what this rank updates:
// gradients that other groups hold too.
inline Bytes exchanged(const Case& c) {
  Bytes bytes;
  for (const ExchangedTogether& bucket : buckets_of(c)) {
    const int64_t part = bucket.elements / c.layout.dp;
    bytes[c.zero() ? "dp reduce_scatter" : "dp all_reduce"] += bucket.elements * c.a();
    if (c.zero()) bytes["dp all_gather"] += part * (bucket.precise ? c.a() : c.b());
    const Range mine = c.zero() ? Range{part * c.replica(), part * (c.replica() + 1)} : Range{0, bucket.elements};
    for (const auto& [group, ranges] : bucket.held) {
      for (const Range& range : ranges) {
        const int64_t elements = std::min(range.end, mine.end) - std::max(range.begin, mine.begin);
        if (group.empty() || elements <= 0) continue;
        bytes[group + " all_reduce"] += elements * c.a();
        if (c.sends_copies(group)) bytes["dp broadcast"] += c.replica() == 0 ? elements * c.a() : 0;
      }
    }
  }
  return bytes;
}

// Of parameters, gradients and moments: 16 a parameter with a = 4, of which zero 1 divides moments and lower halves.
// Each buffer ends on a multiple of 256: what is kept whole, upper halves, lower halves.
inline Bytes state(const Case& c) {
  int64_t gradients = 0, moments = 0;
  std::array<int64_t, 3> parameters{};
  for (const ExchangedTogether& bucket : buckets_of(c)) {
    const int64_t kept = c.zero() ? bucket.elements / c.layout.dp : bucket.elements;
    const bool halves = c.b() == 2 && !bucket.precise;
    parameters[0] += halves ? 0 : c.a() * bucket.elements;
    parameters[1] += halves ? 2 * bucket.elements : 0;
    parameters[2] += halves ? 2 * kept : 0;
    gradients += c.a() * bucket.elements;
    moments += c.a() * kept;
  }
  Bytes bytes = {{"gradients", round_up(gradients, 256)}, {"optimizer", 2 * round_up(moments, 256)}};
  for (const int64_t buffer : parameters) bytes["parameters"] += round_up(buffer, 256);
  return bytes;
}

// Every operation of groups of more than one rank.
inline Bytes traffic(const Case& c, int64_t blocks) {
  Bytes bytes = c.layout.dp > 1 ? exchanged(c) : Bytes();
  if (c.layout.dp == 1) {
    for (const auto& [name, count] : exchanged(c)) {
      if (!name.starts_with("dp ")) bytes[name] = count;
    }
  }
  if (c.layout.ranks() > 1) bytes["world all_reduce"] = world_all_reduce(c);
  if (c.layout.pp > 1) bytes["pp send"] = pp_send(c), bytes["pp recv"] = 0;
  if (c.layout.tp > 1) {
    bytes["tp all_gather"] = tp_all_gather(c, blocks);
    bytes["tp reduce_scatter"] = tp_reduce_scatter(c);
  }
  return bytes;
}

// What a layer keeps of a microbatch until its backward.
inline int64_t kept_by_layer(const Case& c) {
  const int64_t R = c.R(), head_dim = c.config.model.head_dim, a = c.a(), b = c.b();
  const int64_t rows = R / c.layout.tp, x = c.x();
  if (c.full()) return x;
  const bool selective = c.config.parallel.recompute.of_stage(0) == RecomputeKind::selective;
  const int64_t attention = R * (2 * c.H() + 2 * c.K()) * head_dim * b + R * c.H() * a;
  return 2 * x + 2 * rows * a + attention + (selective ? 0 : 2 * R * c.F() * b);
}

// What its weight gradients keep in addition if zb-h1 and zb-v delay them.
inline int64_t put_off_by_layer(const Case& c) {
  const int64_t R = c.R(), head_dim = c.config.model.head_dim, b = c.b();
  const int64_t usual = 4 * R * c.h() * b + R * (c.H() + 2 * c.K()) * head_dim * b + R * c.F() * b;
  if (c.full()) return usual + R * c.H() * head_dim * b + 2 * R * c.F() * b;
  return usual + (c.config.parallel.recompute.of_stage(0) == RecomputeKind::selective ? 2 * R * c.F() * b : 0);
}

}  // namespace shiftron::testing
