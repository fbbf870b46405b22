// Rank arithmetic and splits: hand-made cases, and properties over many layouts.
#include "parallel/layout.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/check.h"

namespace shiftron {
namespace {

using ::testing::ElementsAre;

std::vector<ParallelLayout> layouts() {
  std::vector<ParallelLayout> all;
  for (int tp : {1, 2, 3, 8}) {
    for (int cp : {1, 2}) {
      for (int dp : {1, 2, 5}) {
        for (int pp : {1, 2, 3, 4}) all.push_back({tp, cp, dp, pp});
      }
    }
  }
  return all;
}

constexpr Axis kAxes[] = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};

std::vector<RankOrder> orders() {
  std::vector<RankOrder> all;
  RankOrder order = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
  do {
    all.push_back(order);
  } while (std::next_permutation(order.begin(), order.end()));
  return all;
}

// Every layout of layouts() up to 80 ranks in every order.
std::vector<ParallelLayout> ordered_layouts() {
  std::vector<ParallelLayout> all;
  for (ParallelLayout layout : layouts()) {
    for (const RankOrder& order : orders()) {
      layout.order = order;
      if (layout.ranks() <= 80) all.push_back(layout);
    }
  }
  return all;
}

TEST(Layout, TpIsFastestAndPpSlowest) {
  const ParallelLayout layout{.tp = 2, .cp = 3, .dp = 4, .pp = 5};
  EXPECT_EQ(layout.ranks(), 120);
  EXPECT_EQ(layout.coordinates(1), (Coordinates{.tp = 1}));
  EXPECT_EQ(layout.coordinates(2), (Coordinates{.cp = 1}));
  EXPECT_EQ(layout.coordinates(6), (Coordinates{.dp = 1}));
  EXPECT_EQ(layout.coordinates(24), (Coordinates{.pp = 1}));
  EXPECT_EQ(layout.coordinates(119), (Coordinates{.tp = 1, .cp = 2, .dp = 3, .pp = 4}));
}

TEST(Layout, OrderByHand) {
  const ParallelLayout layout{.tp = 2, .cp = 3, .dp = 4, .pp = 5, .order = {Axis::pp, Axis::tp, Axis::dp, Axis::cp}};
  EXPECT_EQ(layout.coordinates(1), (Coordinates{.pp = 1}));
  EXPECT_EQ(layout.coordinates(5), (Coordinates{.tp = 1}));
  EXPECT_EQ(layout.coordinates(10), (Coordinates{.dp = 1}));
  EXPECT_EQ(layout.coordinates(40), (Coordinates{.cp = 1}));
  EXPECT_THAT(layout.group(58, Axis::tp), ElementsAre(53, 58));
  EXPECT_THAT(layout.group(58, Axis::dp), ElementsAre(48, 58, 68, 78));
  EXPECT_THAT(layout.tied_embedding_group(54), ElementsAre(50, 54));
  EXPECT_EQ(text_of(layout), "tp 2 · cp 3 · pp 5 · dp 4 · ranks in order pp,tp,dp,cp");
  EXPECT_EQ(text_of(ParallelLayout{.tp = 2, .pp = 3}), "tp 2 · pp 3 · dp 1");
}

TEST(Layout, RankAndCoordinatesAreInverseInEveryOrder) {
  EXPECT_EQ(orders().size(), 24u);
  for (const ParallelLayout& layout : ordered_layouts()) {
    std::vector<int> ranks = layout.ranks_in_usual_order();
    for (int rank = 0; rank < layout.ranks(); ++rank) EXPECT_EQ(layout.rank(layout.coordinates(rank)), rank);
    ParallelLayout usual = layout;
    usual.order = kUsualRankOrder;
    for (int place = 0; place < layout.ranks(); ++place) {
      EXPECT_EQ(layout.coordinates(ranks[static_cast<size_t>(place)]), usual.coordinates(place));
    }
    std::ranges::sort(ranks);
    EXPECT_EQ(std::ranges::unique(ranks).size(), 0u);
    EXPECT_EQ(layout.coordinates(0), Coordinates{});
  }
}

// Neighbouring ranks differ on the first axis of the order that has more than one.
TEST(Layout, OrderSaysWhichRanksAreNeighbours) {
  for (const ParallelLayout& layout : ordered_layouts()) {
    const auto fastest = std::ranges::find_if(layout.order, [&](Axis axis) { return layout.size(axis) > 1; });
    if (fastest == layout.order.end()) continue;
    Coordinates next;
    next.on(*fastest) = 1;
    EXPECT_EQ(layout.coordinates(1), next) << text_of(layout);
  }
}

TEST(Layout, MembersOfAGroupDifferOnItsAxisAloneAndAscendAlongIt) {
  for (const ParallelLayout& layout : ordered_layouts()) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      for (const Axis axis : kAxes) {
        const std::vector<int> members = layout.group(rank, axis);
        ASSERT_EQ(static_cast<int>(members.size()), layout.size(axis));
        EXPECT_TRUE(std::ranges::is_sorted(members));
        Coordinates expected = layout.coordinates(rank);
        for (expected.on(axis) = 0; expected.on(axis) < layout.size(axis); ++expected.on(axis)) {
          EXPECT_EQ(layout.coordinates(members[static_cast<size_t>(expected.on(axis))]), expected) << text_of(layout);
        }
      }
    }
  }
}

TEST(Layout, GroupsOfAnAxisPartitionTheRanks) {
  for (const ParallelLayout& layout : layouts()) {
    for (const Axis axis : kAxes) {
      std::set<std::vector<int>> groups;
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const std::vector<int> members = layout.group(rank, axis);
        EXPECT_EQ(static_cast<int>(members.size()), layout.size(axis));
        EXPECT_THAT(members, ::testing::Contains(rank));
        EXPECT_TRUE(std::is_sorted(members.begin(), members.end()));
        for (const int member : members) EXPECT_EQ(layout.group(member, axis), members);
        groups.insert(members);
      }
      EXPECT_EQ(static_cast<int>(groups.size()) * layout.size(axis), layout.ranks());
    }
  }
}

TEST(Layout, GroupsByHand) {
  const ParallelLayout layout{.tp = 2, .cp = 1, .dp = 2, .pp = 3};
  EXPECT_THAT(layout.group(5, Axis::tp), ElementsAre(4, 5));
  EXPECT_THAT(layout.group(5, Axis::cp), ElementsAre(5));
  EXPECT_THAT(layout.group(5, Axis::dp), ElementsAre(5, 7));
  EXPECT_THAT(layout.group(5, Axis::pp), ElementsAre(1, 5, 9));
}

TEST(Layout, KvReplicasAreNeighboursInTheTpGroup) {
  const ParallelLayout layout{.tp = 8, .cp = 1, .dp = 2, .pp = 1};
  EXPECT_THAT(layout.kv_replica_group(0, 4), ElementsAre(0, 1));
  EXPECT_THAT(layout.kv_replica_group(13, 4), ElementsAre(12, 13));
  EXPECT_THAT(layout.kv_replica_group(13, 2), ElementsAre(12, 13, 14, 15));
  EXPECT_THAT(layout.kv_replica_group(13, 8), ElementsAre(13));
  EXPECT_THAT(layout.kv_replica_group(13, 16), ElementsAre(13));
}

TEST(Layout, KvReplicasHoldTheSameHeads) {
  for (const ParallelLayout& layout : layouts()) {
    for (const int64_t kv_heads : {1, 2, 3, 4, 8, 24}) {
      if (kv_heads % layout.tp != 0 && layout.tp % kv_heads != 0) continue;
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        std::vector<int> same;
        const Range own = split_range(kv_heads, layout.tp, layout.coordinates(rank).tp);
        for (const int other : layout.group(rank, Axis::tp)) {
          if (split_range(kv_heads, layout.tp, layout.coordinates(other).tp) == own) same.push_back(other);
        }
        EXPECT_EQ(layout.kv_replica_group(rank, kv_heads), same);
      }
    }
  }
}

TEST(Layout, TiedEmbeddingJoinsFirstAndLastStage) {
  const ParallelLayout layout{.tp = 2, .cp = 1, .dp = 1, .pp = 3};
  EXPECT_THAT(layout.tied_embedding_group(1), ElementsAre(1, 5));
  EXPECT_THAT(layout.tied_embedding_group(5), ElementsAre(1, 5));
  EXPECT_THAT(layout.tied_embedding_group(3), ElementsAre(3));
  EXPECT_THAT((ParallelLayout{.tp = 2}.tied_embedding_group(1)), ElementsAre(1));
}

TEST(Layout, RefusesRanksAndCoordinatesOutside) {
  const ParallelLayout layout{.tp = 2, .cp = 1, .dp = 2, .pp = 1};
  EXPECT_THROW(layout.coordinates(-1), Error);
  EXPECT_THROW(layout.coordinates(4), Error);
  EXPECT_THROW(layout.rank({.tp = 2}), Error);
  EXPECT_THROW(layout.rank({.cp = 1}), Error);
  EXPECT_THROW(layout.rank({.dp = -1}), Error);
  EXPECT_THROW(layout.rank({.pp = 1}), Error);
}

TEST(SplitRange, ByHand) {
  EXPECT_EQ(split_range(10, 4, 0), (Range{0, 2}));
  EXPECT_EQ(split_range(10, 4, 1), (Range{2, 5}));
  EXPECT_EQ(split_range(10, 4, 2), (Range{5, 7}));
  EXPECT_EQ(split_range(10, 4, 3), (Range{7, 10}));
  EXPECT_EQ(split_range(2, 8, 3), (Range{0, 1}));  // replication: 4 parts hold unit 0
  EXPECT_EQ(split_range(2, 8, 4), (Range{1, 2}));
  EXPECT_EQ(split_range(2, 3, 0), (Range{0, 0}));  // 3 is no multiple of 2: a part stays empty
  EXPECT_EQ(split_range(0, 4, 2), (Range{0, 0}));
  EXPECT_EQ(split_replicas(2, 8), 4);
  EXPECT_EQ(split_replicas(2, 3), 1);
  EXPECT_EQ(split_replicas(8, 2), 1);
  EXPECT_EQ(split_replicas(0, 2), 1);
}

TEST(SplitRange, PartsCoverTheExtentInOrderAndDifferByOne) {
  for (int64_t extent = 0; extent <= 70; ++extent) {
    for (int parts = 1; parts <= 20; ++parts) {
      const int replicas = split_replicas(extent, parts);
      int64_t end = 0;
      for (int index = 0; index < parts; index += replicas) {
        const Range part = split_range(extent, parts, index);
        EXPECT_EQ(part.begin, end);
        EXPECT_GE(part.size(), extent / (parts / replicas));
        EXPECT_LE(part.size(), extent / (parts / replicas) + 1);
        for (int copy = 1; copy < replicas; ++copy) EXPECT_EQ(split_range(extent, parts, index + copy), part);
        end = part.end;
      }
      EXPECT_EQ(end, extent);
    }
  }
}

TEST(SplitRange, HoldsForExtentsWhoseProductsOverflow) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(split_range(huge, 1000, 999).end, huge);
  EXPECT_EQ(split_range(huge, 1000, 499).end, huge / 2);
  EXPECT_EQ(split_range(huge, 1000, 500).begin, huge / 2);
}

TEST(SplitRange, RefusesWrongParts) {
  EXPECT_THROW(split_range(4, 0, 0), Error);
  EXPECT_THROW(split_range(4, 2, 2), Error);
  EXPECT_THROW(split_range(4, 2, -1), Error);
  EXPECT_THROW(split_range(-1, 2, 0), Error);
}

TEST(StageLayers, EvenWithLongerStagesFirst) {
  EXPECT_THAT(stage_layers(8, 4), ElementsAre(Range{0, 2}, Range{2, 4}, Range{4, 6}, Range{6, 8}));
  EXPECT_THAT(stage_layers(5, 2), ElementsAre(Range{0, 3}, Range{3, 5}));
  EXPECT_THAT(stage_layers(3, 3), ElementsAre(Range{0, 1}, Range{1, 2}, Range{2, 3}));
  for (int64_t layers = 1; layers < 40; ++layers) {
    for (int pp = 1; pp <= layers && pp <= 9; ++pp) {
      const std::vector<Range> stages = stage_layers(layers, pp);
      EXPECT_EQ(stages.back().end, layers);
      EXPECT_GE(stages.front().size(), stages.back().size());
      for (const Range& stage : stages) EXPECT_LE(std::abs(stage.size() - stages.front().size()), 1);
    }
  }
}

// The head counts as layers of the last stage.
TEST(StageLayers, LongestStageIsAsShortAsCanBe) {
  EXPECT_THAT(stage_layers(12, 2, {}, 3.47), ElementsAre(Range{0, 8}, Range{8, 12}));
  EXPECT_THAT(stage_layers(3, 3, {}, 5), ElementsAre(Range{0, 1}, Range{1, 2}, Range{2, 3}));
  EXPECT_THAT(stage_layers(4, 1, {}, 5), ElementsAre(Range{0, 4}));
  for (int64_t layers = 2; layers < 30; ++layers) {
    for (int pp = 2; pp <= layers && pp <= 6; ++pp) {
      for (const double head : {0.0, 0.4, 1.0, 2.5, 7.0}) {
        const auto longest = [&](int64_t last) {
          return std::max(std::ceil(static_cast<double>(layers - last) / (pp - 1)), static_cast<double>(last) + head);
        };
        double least = longest(1);
        for (int64_t last = 2; layers - last >= pp - 1; ++last) least = std::min(least, longest(last));
        const std::vector<Range> stages = stage_layers(layers, pp, {}, head);
        EXPECT_EQ(longest(stages.back().size()), least) << layers << " layers, pp " << pp << ", head " << head;
        for (int stage = 0; stage + 1 < pp; ++stage) {
          EXPECT_LE(static_cast<double>(stages[stage].size()), least);
          EXPECT_EQ(stages[stage].end, stages[stage + 1].begin);
        }
      }
    }
  }
}

TEST(StageLayers, AsListed) {
  EXPECT_THAT(stage_layers(7, 3, {1, 4, 2}), ElementsAre(Range{0, 1}, Range{1, 5}, Range{5, 7}));
  EXPECT_THROW(stage_layers(7, 3, {1, 4}), Error);
  EXPECT_THROW(stage_layers(7, 3, {1, 4, 3}), Error);
  EXPECT_THROW(stage_layers(7, 3, {0, 4, 3}), Error);
  EXPECT_THROW(stage_layers(2, 3), Error);
}

}  // namespace
}  // namespace shiftron
