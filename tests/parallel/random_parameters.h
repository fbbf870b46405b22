// Random sets of parameters as models declare them: empty, of one element and of many; alone and side by side; whole on
// each tp rank, split evenly or not, shared by tp ranks, tied; precise or not.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "parallel/parameter.h"

namespace shiftron::testing {

struct RandomCase {
  ParallelLayout layout;
  int64_t kv_heads = 1;
  NumberTypes types{DType::float64, DType::float64};
  Division division{};
  uint64_t seed = 0;

  std::string text() const {
    return "tp " + std::to_string(layout.tp) + " dp " + std::to_string(layout.dp) + " pp " + std::to_string(layout.pp) +
           " kv_heads " + std::to_string(kv_heads) + " " + name_of(types.activation) +
           (division.divided ? " divided" : "") + ", buckets of " + std::to_string(division.bucket_elements) +
           ", seed " + std::to_string(seed);
  }
};

struct Declared {
  ParameterSpec spec;
  bool adjacent = false;
};

inline RandomCase random_case(uint64_t seed, int most_tp, int most_dp, int most_pp) {
  std::mt19937_64 random(seed);
  const auto draw = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  const auto size = [&](int most) { return 1 + static_cast<int>(draw(most)); };
  RandomCase c{.layout = {.tp = size(most_tp), .dp = size(most_dp), .pp = size(most_pp)}, .seed = seed};
  std::vector<int64_t> heads = {2 * c.layout.tp};
  for (int64_t i = 1; i <= c.layout.tp; ++i) {
    if (c.layout.tp % i == 0) heads.push_back(i);
  }
  c.kv_heads = heads[static_cast<size_t>(draw(static_cast<int64_t>(heads.size())))];
  const NumberTypes types[] = {
      {DType::float64, DType::float64}, {DType::float32, DType::float32}, {DType::bfloat16, DType::float32}};
  c.types = types[draw(3)];
  const int64_t elements[] = {0, 1, 100, int64_t{1} << 40};
  c.division = {.divided = draw(3) > 0, .bucket_elements = elements[draw(4)]};
  return c;
}

// What a stage declares; the same on all of its ranks.
inline std::vector<Declared> random_parameters(const RandomCase& c, int stage) {
  std::mt19937_64 random(c.seed + 1);
  const auto draw = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  const int64_t tp = c.layout.tp;
  const auto many = [&] { return draw(4) == 0 ? draw(2) : tp + draw(40); };
  const auto uneven = [&] {  // not what several tp ranks would share
    const int64_t extent = many();
    return extent > 0 && extent < tp && tp % extent == 0 ? 0 : extent;
  };
  std::vector<std::vector<Declared>> stages(static_cast<size_t>(c.layout.pp));
  const auto add = [&](int64_t of, ParameterSpec spec, bool adjacent = false) {
    spec.name += "." + std::to_string(spec.layer);
    stages[static_cast<size_t>(of)].push_back({std::move(spec), adjacent});
  };
  const bool tied = draw(2) == 0;
  const int64_t hidden = 1 + draw(9), last = c.layout.pp - 1;
  const ParameterSpec table{.name = "table",
                            .shape = {uneven(), hidden},
                            .split_dim = 0,
                            .initial = init_normal(1),
                            .tied = tied,
                            .part = Part::embedding};
  add(0, table);
  if (tied && last > 0) add(last, table);
  for (int layer = 0; layer < 2 * c.layout.pp; ++layer) {
    const int of = layer / 2;
    add(of, {.name = "norm", .shape = {many()}, .initial = init_normal(1), .keep_precise = true, .layer = layer});
    add(of, {.name = "query",
             .shape = {tp * (1 + draw(3)), hidden},
             .split_dim = 0,
             .initial = init_normal(1),
             .layer = layer});
    add(of, {.name = "key", .shape = {c.kv_heads, hidden}, .split_dim = 0, .initial = init_normal(1), .layer = layer},
        true);
    add(of, {.name = "value", .shape = {c.kv_heads, hidden}, .split_dim = 0, .initial = init_normal(1), .layer = layer},
        true);
    add(of, {.name = "taps",
             .shape = {c.kv_heads, 2},
             .split_dim = 0,
             .initial = init_normal(1),
             .keep_precise = true,
             .layer = layer});
    add(of, {.name = "down", .shape = {many(), uneven()}, .split_dim = 1, .initial = init_normal(1), .layer = layer});
    add(of, {.name = "bias", .shape = {many()}, .initial = init_normal(1), .layer = layer}, draw(2) == 0 && tp == 1);
  }
  add(last,
      {.name = "final", .shape = {hidden}, .initial = init_normal(1), .keep_precise = true, .part = Part::final_norm});
  if (!tied)
    add(last,
        {.name = "head", .shape = {uneven(), hidden}, .split_dim = 0, .initial = init_normal(1), .part = Part::head});
  return stages[static_cast<size_t>(stage)];
}

inline void declare_random(ParameterSet& set, const RandomCase& c) {
  for (const Declared& one : random_parameters(c, set.at().pp)) set.declare(one.spec, one.adjacent);
}

}  // namespace shiftron::testing
