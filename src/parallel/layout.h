// Rank arithmetic: rank <-> coordinates on the axes tp, cp, dp, pp, group members, even splits. No communication.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace shiftron {

enum class Axis { tp, cp, dp, pp };
constexpr std::array<const char*, 4> names_of(Axis) {
  return {"tp", "cp", "dp", "pp"};
}

// A rank's position on each axis, from 0.
struct Coordinates {
  int tp = 0, cp = 0, dp = 0, pp = 0;
  int& on(Axis axis);
  bool operator==(const Coordinates&) const = default;
};

// The axes, each once: neighbouring ranks differ on the first one.
using RankOrder = std::array<Axis, 4>;
inline constexpr RankOrder kUsualRankOrder = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
std::string text_of(const RankOrder& order);  // "tp,cp,dp,pp"

// Half-open interval of indices.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Sizes of the axes, and how ranks are numbered: the first axis of `order` is the fastest.
struct ParallelLayout {
  int tp = 1, cp = 1, dp = 1, pp = 1;
  RankOrder order = kUsualRankOrder;

  int ranks() const { return tp * cp * dp * pp; }
  int size(Axis axis) const;
  // Throws Error(crash) unless 0 <= rank < ranks().
  Coordinates coordinates(int rank) const;
  // Throws Error(crash) unless every coordinate is on its axis.
  int rank(const Coordinates& at) const;

  // Ranks that differ from `rank` on `axis` only, ascending, `rank` included.
  std::vector<int> group(int rank, Axis axis) const;
  // Ranks of `rank`'s tp group that hold the same KV heads: tp / kv_heads ranks if tp > kv_heads, else only `rank`.
  std::vector<int> kv_replica_group(int rank, int64_t kv_heads) const;
  // {first stage, last stage} at `rank`'s other coordinates; only `rank` on stages between them and if pp = 1.
  std::vector<int> tied_embedding_group(int rank) const;
  // All ranks, in the usual order of their coordinates whatever `order` is, so that sums in this order do not depend on
  // `order`.
  std::vector<int> ranks_in_usual_order() const;

  bool operator==(const ParallelLayout&) const = default;
};
// "tp 2 · pp 4 · dp 8", with cp and the order of ranks if these are not the usual ones.
std::string text_of(const ParallelLayout& layout);

// Part `index` of [0, extent): begins at floor(extent * index / parts). If extent < parts and extent divides parts,
// parts / extent neighbours hold the same one unit. Throws Error(crash) unless 0 <= index < parts and extent >= 0.
Range split_range(int64_t extent, int parts, int index);

// How many parts hold each unit under split_range: 1, or parts / extent in the case of replication.
int split_replicas(int64_t extent, int parts);

// Layers of each stage, in order: `counts` if given. Otherwise the longest stage is as short as possible, counting
// `head` layers for the head on the last stage, and longer stages come first. Throws Error(crash) unless every stage
// has a layer and the counts sum to `layers`.
std::vector<Range> stage_layers(int64_t layers, int pp, std::vector<int64_t> counts = {}, double head = 0);

}  // namespace shiftron
