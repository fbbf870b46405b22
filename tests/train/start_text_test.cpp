// What a start prints: only what was given and differs from the defaults, and what follows from it.
#include "train/start_text.h"

#include <gmock/gmock.h>

#include <sstream>

#include "config/config_text.h"
#include "core/wrapped_text.h"

namespace shiftron {
namespace {

using ::testing::HasSubstr;

RunConfig config_with(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<Setting> settings;
  std::vector<std::pair<std::string, std::string>> all = {
      {"model.layers", "2"},         {"model.hidden", "64"},          {"model.heads", "4"},
      {"model.ffn", "128"},          {"model.vocab", "256"},          {"train.steps", "1000"},
      {"train.global_batch", "32"},  {"train.sequence_length", "64"}, {"optimizer.learning_rate", "0.01"},
      {"output.directory", "runs/a"}};
  all.insert(all.end(), more.begin(), more.end());
  for (const auto& [key, text] : all) settings.push_back({.key = key, .text = text, .origin = {.file = "test"}});
  RunConfig config;
  apply_level(config, settings);
  resolve(config);
  return config;
}

TEST(StartText, ListsWhatDiffersFromTheDefaults) {
  const RunConfig config = config_with({{"optimizer.clip", "1"}, {"data.train", "a"}, {"data.train", "b"}});
  EXPECT_EQ(given_settings(config),
            "  model       layers=2 hidden=64 heads=4 ffn=128 vocab=256\n"
            "  train       steps=1000 global_batch=32 sequence_length=64\n"
            "  optimizer   learning_rate=0.01\n"
            "  data        train=a train=b\n"
            "  output      directory=runs/a\n")
      << "optimizer.clip has its default; model.kv_heads was not given";
}

TEST(StartText, CountsParametersTokensAndRanks) {
  const RunConfig config = config_with({{"parallel.tp", "2"}, {"train.micro_batch", "4"}});
  const std::string text = start_text(config, make_layout(config.parallel, 4), {"a", "a", "b", "b"}, 3);
  EXPECT_THAT(text, HasSubstr("run runs/a\n  files       config.conf has every key (hash "));
  // 2 layers of 4 · 64² + 3 · 64 · 128 + 2 · 64 for norms, and 4 taps for each of 4 heads; the last norm; 2 · 64 · 256.
  EXPECT_THAT(text, HasSubstr("\n  parameters  115,040 (82,272 without embedding and head)\n"));
  EXPECT_THAT(text, HasSubstr("\n  budget      1,000 steps x 2,048 tokens = 2,048,000 tokens\n"));
  EXPECT_THAT(text, HasSubstr("\n  devices     4 ranks on 2 hosts, CPU with 3 threads each\n"
                              "  layout      tp 2 · pp 1 · dp 2; 4 microbatches per step\n"));
  EXPECT_THAT(text, HasSubstr("dp 1")) << "the picture of the layout";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 100U) << line;
}

TEST(StartText, OfOneRankHasNoPicture) {
  const RunConfig config = config_with({});
  const std::string text = start_text(config, make_layout(config.parallel, 1), {"here"}, 1);
  EXPECT_TRUE(
      text.ends_with("\n  devices     1 rank on here, CPU with 1 thread each\n  layout      tp 1 · pp 1 · dp 1; 32 "
                     "microbatches per step"))
      << text;
}

}  // namespace
}  // namespace shiftron
