// Rank arithmetic: mixed-radix numbers whose digits are the axes, the fastest first.
#include "parallel/layout.h"

#include <algorithm>

#include "core/check.h"
#include "core/enum_names.h"

namespace shiftron {

int& Coordinates::on(Axis axis) {
  switch (axis) {
    case Axis::tp:
      return tp;
    case Axis::cp:
      return cp;
    case Axis::dp:
      return dp;
    case Axis::pp:
      return pp;
  }
  throw_crash("unknown axis ", static_cast<int>(axis));
}

std::string text_of(const RankOrder& order) {
  std::string text;
  for (const Axis axis : order) text += (text.empty() ? "" : ",") + to_string(axis);
  return text;
}

int ParallelLayout::size(Axis axis) const {
  return Coordinates{.tp = tp, .cp = cp, .dp = dp, .pp = pp}.on(axis);
}

Coordinates ParallelLayout::coordinates(int rank) const {
  CHECK(rank >= 0 && rank < ranks(), "rank ", rank, " of ", ranks());
  Coordinates at;
  for (const Axis axis : order) {
    at.on(axis) = rank % size(axis);
    rank /= size(axis);
  }
  return at;
}

int ParallelLayout::rank(const Coordinates& at) const {
  CHECK(at.tp >= 0 && at.tp < tp && at.cp >= 0 && at.cp < cp && at.dp >= 0 && at.dp < dp && at.pp >= 0 && at.pp < pp,
        "coordinates tp ", at.tp, ", cp ", at.cp, ", dp ", at.dp, ", pp ", at.pp);
  Coordinates digits = at;
  int rank = 0, stride = 1;
  for (const Axis axis : order) {
    rank += stride * digits.on(axis);
    stride *= size(axis);
  }
  return rank;
}

std::vector<int> ParallelLayout::group(int rank, Axis axis) const {
  Coordinates at = coordinates(rank);
  int& moving = at.on(axis);
  std::vector<int> members;
  for (moving = 0; moving < size(axis); ++moving) members.push_back(this->rank(at));
  return members;
}

std::vector<int> ParallelLayout::kv_replica_group(int rank, int64_t kv_heads) const {
  const Coordinates at = coordinates(rank);
  const int replicas = split_replicas(kv_heads, tp);
  std::vector<int> members;
  Coordinates other = at;
  other.tp = at.tp / replicas * replicas;
  for (int i = 0; i < replicas; ++i, ++other.tp) members.push_back(this->rank(other));
  return members;
}

std::vector<int> ParallelLayout::tied_embedding_group(int rank) const {
  Coordinates first = coordinates(rank), last = first;
  if (pp == 1 || (first.pp != 0 && first.pp != pp - 1)) return {rank};
  first.pp = 0;
  last.pp = pp - 1;
  return {this->rank(first), this->rank(last)};
}

std::vector<int> ParallelLayout::ranks_in_usual_order() const {
  ParallelLayout usual = *this;
  usual.order = kUsualRankOrder;
  std::vector<int> all;
  for (int place = 0; place < ranks(); ++place) all.push_back(rank(usual.coordinates(place)));
  return all;
}

std::string text_of(const ParallelLayout& layout) {
  const auto size = [](const char* axis, int ranks) { return axis + (" " + std::to_string(ranks)); };
  const std::string cp = layout.cp > 1 ? size(" · cp", layout.cp) : "";
  const std::string order = layout.order == kUsualRankOrder ? "" : " · ranks in order " + text_of(layout.order);
  return size("tp", layout.tp) + cp + size(" · pp", layout.pp) + size(" · dp", layout.dp) + order;
}

Range split_range(int64_t extent, int parts, int index) {
  CHECK(extent >= 0 && parts >= 1 && index >= 0 && index < parts, "extent ", extent, ", parts ", parts, ", index ",
        index);
  if (const int replicas = split_replicas(extent, parts); replicas > 1) return {index / replicas, index / replicas + 1};
  // floor(extent * i / parts) without the product of two large numbers.
  const auto begin = [&](int64_t i) { return extent / parts * i + extent % parts * i / parts; };
  return {begin(index), begin(index + 1)};
}

int split_replicas(int64_t extent, int parts) {
  CHECK(extent >= 0 && parts >= 1, "extent ", extent, ", parts ", parts);
  return extent > 0 && extent < parts && parts % extent == 0 ? static_cast<int>(parts / extent) : 1;
}

namespace {

// Sizes of `parts` stages, as even as possible: stage i takes the part that the floor rule gives to the i-th from the
// end, so longer ones come first.
std::vector<int64_t> even_counts(int64_t layers, int parts) {
  std::vector<int64_t> counts;
  for (int stage = 0; stage < parts; ++stage) counts.push_back(split_range(layers, parts, parts - 1 - stage).size());
  return counts;
}

// The last stage gives layers to the others while that makes the longest stage shorter.
std::vector<int64_t> balanced_counts(int64_t layers, int pp, double head) {
  const auto longest = [&](int64_t last) {
    const int64_t others = (layers - last + pp - 2) / (pp - 1);
    return std::max(static_cast<double>(others), static_cast<double>(last) + head);
  };
  std::vector<int64_t> counts = even_counts(layers, pp);
  if (pp == 1) return counts;
  int64_t last = counts.back();
  while (last > 1 && longest(last - 1) < longest(last)) --last;
  counts = even_counts(layers - last, pp - 1);
  counts.push_back(last);
  return counts;
}

}  // namespace

std::vector<Range> stage_layers(int64_t layers, int pp, std::vector<int64_t> counts, double head) {
  CHECK(pp >= 1 && layers >= pp, "layers ", layers, ", pp ", pp);
  CHECK(counts.empty() || counts.size() == static_cast<std::size_t>(pp), "stage_layers has ", counts.size(),
        " entries, pp ", pp);
  if (counts.empty()) counts = balanced_counts(layers, pp, head);
  std::vector<Range> stages;
  int64_t begin = 0;
  for (int stage = 0; stage < pp; ++stage) {
    const int64_t count = counts[static_cast<size_t>(stage)];
    CHECK(count >= 1, "stage ", stage, " has ", count, " layers");
    stages.push_back({begin, begin + count});
    begin += count;
  }
  CHECK(begin == layers, "stage_layers sum to ", begin, ", layers ", layers);
  return stages;
}

}  // namespace shiftron
