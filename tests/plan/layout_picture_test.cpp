// Pictures of layouts: hand-made cases, within their bounds at any size, and with a run's costs.
#include "plan/layout_picture.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>

#include "expect_error.h"
#include "plan/virtual_stages.h"
#include "train/rank_kinds.h"

namespace shiftron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunConfig config_of(int64_t layers, int tp, int pp, const RankOrder& order = kUsualRankOrder) {
  RunConfig config;
  config.model = {
      .layers = layers, .hidden = 16, .heads = 4, .kv_heads = 4, .head_dim = 4, .ffn = 48, .vocab = 8, .shift = {}};
  config.train.global_batch = 64;
  config.train.sequence_length = 8;
  config.parallel.tp = tp;
  config.parallel.pp = pp;
  config.parallel.rank_order = order;
  return config;
}

std::string picture(const RunConfig& config, int ranks, const std::vector<std::string>& hosts = {}) {
  return layout_picture(config, make_layout(config.parallel, ranks), hosts);
}

// `each` ranks on each of some hosts, in the order of ranks.
std::vector<std::string> hosts_of(int ranks, int each, const std::string& name = "node") {
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank) hosts.push_back(name + std::to_string(rank / each));
  return hosts;
}

TEST(LayoutPicture, OneRank) {
  EXPECT_EQ(picture(config_of(3, 1, 1), 1, {"here"}),
            "                                      dp 0\n"
            "stage 0  embedding, layers 0-2, head  0\n"
            "all on host here\n");
}

TEST(LayoutPicture, StagesAndCopies) {
  EXPECT_EQ(picture(config_of(4, 2, 2), 8),
            "                                dp 0  dp 1\n"
            "stage 0  embedding, layers 0-1  0-1   2-3\n"
            "stage 1  layers 2-3, head       4-5   6-7\n");
}

TEST(LayoutPicture, HostsOfTwoNodes) {
  EXPECT_EQ(picture(config_of(4, 2, 2), 8, hosts_of(8, 4)),
            "                                dp 0   dp 1\n"
            "stage 0  embedding, layers 0-1  0-1 a  2-3 a\n"
            "stage 1  layers 2-3, head       4-5 b  6-7 b\n"
            "host a  node0: ranks 0-3\n"
            "host b  node1: ranks 4-7\n");
}

// Stages side by side, the parts of a layer far from each other.
TEST(LayoutPicture, OtherOrder) {
  EXPECT_EQ(picture(config_of(3, 2, 3, {Axis::pp, Axis::dp, Axis::cp, Axis::tp}), 12, hosts_of(12, 6)),
            "                             dp 0       dp 1\n"
            "stage 0  embedding, layer 0  0, 6 a+b   3, 9 a+b\n"
            "stage 1  layer 1             1, 7 a+b   4, 10 a+b\n"
            "stage 2  layer 2, head       2, 8 a+b   5, 11 a+b\n"
            "host a  node0: ranks 0-5\n"
            "host b  node1: ranks 6-11\n");
}

TEST(LayoutPicture, ChunksOfAStage) {
  RunConfig config = config_of(12, 1, 3);
  config.parallel.pipeline = PipelineKind::zb_v;
  EXPECT_EQ(picture(config, 3),
            "                                             dp 0\n"
            "stage 0  embedding, layers 0-1, 10-11, head  0\n"
            "stage 1  layers 2-3, 8-9                     1\n"
            "stage 2  layers 4-5, 6-7                     2\n");
}

TEST(LayoutPicture, StaysWithinItsBounds) {
  for (const auto& [tp, pp, ranks] : {std::array{8, 1, 1024},
                                      {8, 16, 1024},
                                      {1, 1024, 1024},
                                      {1, 1, 1024},
                                      {4, 64, 1024},
                                      {8, 128, 1 << 20},
                                      {1, 16, 64},
                                      {2, 8, 48}}) {
    for (const RankOrder& order : {kUsualRankOrder, RankOrder{Axis::dp, Axis::pp, Axis::cp, Axis::tp}}) {
      for (const int each : {1, 3, 8, 1 << 20}) {
        for (const std::string& name : {std::string("node"), std::string(200, 'n'), std::string("Knoten-ä")}) {
          const RunConfig config = config_of(std::max(pp, 100), tp, pp, order);
          const bool known = ranks <= 1024;
          const std::string text =
              picture(config, ranks, known ? hosts_of(ranks, each, name) : std::vector<std::string>{});
          SCOPED_TRACE(text);
          EXPECT_LE(std::ranges::count(text, '\n'), 20);
          std::istringstream stream(text);
          for (std::string line; std::getline(stream, line);) {
            EXPECT_LE(std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }), 80) << line;
            EXPECT_FALSE(line.ends_with(' ')) << line;
          }
          const std::string last_stage = "stage " + std::to_string(pp - 1) + " ",
                            last_copy = "dp " + std::to_string(ranks / tp / pp - 1);
          EXPECT_THAT(text, HasSubstr(last_stage));
          EXPECT_THAT(text, HasSubstr(last_copy + "\n"));
          EXPECT_THAT(text, HasSubstr(", head"));
          EXPECT_THAT(text, HasSubstr("stage 0 "));
        }
      }
    }
  }
}

TEST(LayoutPicture, LeavesOutTheMiddle) {
  EXPECT_EQ(picture(config_of(64, 8, 16), 1024, hosts_of(1024, 8)),
            "                                dp 0          dp 1          …  dp 7\n"
            "stage 0  embedding, layers 0-3  0-7 a         8-15 b        …  56-63 h\n"
            "stage 1  layers 4-7             64-71 i       72-79 j       …  120-127 p\n"
            "stage 2  layers 8-11            128-135 q     136-143 r     …  184-191 x\n"
            "stage 3  layers 12-15           192-199 y     200-207 z     …  248-255 af\n"
            "…\n"
            "stage 12  layers 48-51          768-775 cs    776-783 ct    …  824-831 cz\n"
            "stage 13  layers 52-55          832-839 da    840-847 db    …  888-895 dh\n"
            "stage 14  layers 56-59          896-903 di    904-911 dj    …  952-959 dp\n"
            "stage 15  layers 60-63, head    960-967 dq    968-975 dr    …  1016-1023 dx\n"
            "host a  node0: ranks 0-7\n"
            "host b  node1: ranks 8-15\n"
            "host c  node2: ranks 16-23\n"
            "host d  node3: ranks 24-31\n"
            "…\n"
            "host dv  node125: ranks 1000-1007\n"
            "host dw  node126: ranks 1008-1015\n"
            "host dx  node127: ranks 1016-1023\n");
}

TEST(HostWarning, NamesTheFirstGroupOnSeveralHosts) {
  const ParallelLayout usual{.tp = 2, .dp = 2, .pp = 2};
  EXPECT_EQ(host_warning(usual, {}), "");
  EXPECT_EQ(host_warning(usual, hosts_of(8, 8)), "");
  EXPECT_EQ(host_warning(usual, hosts_of(8, 2)), "");
  EXPECT_THAT(
      host_warning(usual, hosts_of(8, 3)),
      ::testing::StartsWith("1 of 4 tensor-parallel groups span several hosts (rank 2 on node0, rank 3 on node1): "));
  ParallelLayout other = usual;
  other.order = {Axis::dp, Axis::pp, Axis::cp, Axis::tp};
  EXPECT_THAT(
      host_warning(other, hosts_of(8, 4)),
      ::testing::StartsWith("4 of 4 tensor-parallel groups span several hosts (rank 0 on node0, rank 4 on node1): "));
  EXPECT_THAT(host_warning(other, hosts_of(8, 4)), Not(HasSubstr("\n")));
}

// A whole head is three forwards of layers that cost as much.
TEST(ScheduleCosts, CountLayersHeadAndWhatIsMadeAgain) {
  RunConfig config = config_of(5, 1, 3);
  config.parallel.stage_layers = {2, 2, 1};
  config.parallel.recompute = StageRecompute({RecomputeKind::full, RecomputeKind::selective, RecomputeKind::none});
  const double head = head_in_layers(config.model, config.train.sequence_length);
  const std::vector<ChunkCost> costs = schedule_costs(config).virtual_stages;
  ASSERT_EQ(costs.size(), 3u);
  const auto expect = [&](const ChunkCost& cost, double forward, double input, double weight) {
    EXPECT_DOUBLE_EQ(cost.forward, forward);
    EXPECT_DOUBLE_EQ(cost.backward_input, input);
    EXPECT_DOUBLE_EQ(cost.backward_weight, weight);
  };
  expect(costs[0], 2, 4, 2);
  expect(costs[1], 2, 2, 2);
  expect(costs[2], 1 + 3 * head, 1, 1);
  config = config_of(12, 1, 3);
  config.parallel.pipeline = PipelineKind::zb_v;
  config.parallel.recompute = StageRecompute({RecomputeKind::full, RecomputeKind::none, RecomputeKind::none});
  const std::vector<ChunkCost> of_chunks = schedule_costs(config).virtual_stages;
  ASSERT_EQ(of_chunks.size(), 6u);
  expect(of_chunks[0], 2, 4, 2);
  expect(of_chunks[4], 2, 2, 2);
  expect(of_chunks[5], 2 + 3 * head, 4, 2);  // on the first stage again
}

TEST(DrawRun, ShowsTheRunAtHand) {
  const RunConfig config = config_of(5, 2, 3);
  const std::string svg = draw_run(config, make_layout(config.parallel, 24));
  EXPECT_THAT(svg, HasSubstr("24 ranks: tp 2 · pp 3 · dp 4; 5 layers"));
  EXPECT_THAT(svg, HasSubstr("1f1b, 3 stages, 16 microbatches: bubble "));
  EXPECT_THAT(svg, HasSubstr("microbatch 15, chunk 0: "));
  EXPECT_THAT(svg, Not(HasSubstr("microbatch 16,")));
}

TEST(DrawRun, RefusesWhatWouldTakeTooLong) {
  RunConfig config = config_of(5, 1, 5);
  config.train.global_batch = 1 << 20;
  const auto draw = [&] { draw_run(config, make_layout(config.parallel, 5)); };
  EXPECT_ERROR(draw(), ExitCode::bad_input, "a drawing of 5 stages and 1048576 microbatches");
}

}  // namespace
}  // namespace shiftron
