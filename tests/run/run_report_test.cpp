// What a run reports about a step: the share of the machine that it used, and the same values in both files.
#include "run/run_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/config_text.h"
#include "scratch.h"
#include "small_disk.h"

namespace shiftron {
namespace {

using nlohmann::ordered_json;

RunConfig config_in(const Scratch& scratch) {
  RunConfig config;
  config.model = {.layers = 2, .hidden = 8, .heads = 4, .kv_heads = 2, .head_dim = 2, .ffn = 16, .vocab = 10};
  config.output.directory = scratch.path();
  return config;
}

// Of a model of 2 layers: 6 · (2 · 576 + 80) operations a token in products, 12 · 2 · 8 for each attended pair.
TEST(RunReport, UtilizationCountsWhatIsAttendedTo) {
  const Scratch scratch;
  RunConfig config = config_in(scratch);
  config.train.steps = 1;
  config.train.global_batch = 4;
  config.train.sequence_length = 32;
  Log log;
  std::string line;
  RunReport report(config, 1, 1e6, log, [&](const std::string& text) { line = text; });
  StepResult result;
  result.attended = 300;
  result.seconds = 2;
  report.step(1, result, {}, {});
  const ordered_json told = ordered_json::parse(Scratch::read(scratch / "metrics.jsonl"));
  const double operations = 128 * 6 * (2 * 576 + 80) + 12 * 2 * 8 * 300;
  EXPECT_DOUBLE_EQ(told.at("model_flops_utilization").get<double>(), operations / 2 / 1e6);
  EXPECT_NE(line.find("MFU 50 %"), std::string::npos) << line;
}

TEST(RunReport, APeakThatAStepExceedsIsToldOfNoMore) {
  const Scratch scratch;
  RunConfig config = config_in(scratch);
  config.train.steps = 3;
  Log log;
  std::vector<std::string> told;
  RunReport report(config, 1, 1e6, log, [&](const std::string& text) { told.push_back(text); });
  StepResult result;
  const double operations = model_flops(config.model, 0, result.attended = 300);
  int64_t step = 0;
  for (const double share : {0.5, 2.0, 0.5}) {
    result.seconds = operations / 1e6 / share;
    report.step(++step, result, {}, {});
  }
  std::vector<ordered_json> shares;
  for_each_json_line(scratch / "metrics.jsonl",
                     [&](const nlohmann::json& line) { shares.push_back(line.at("model_flops_utilization")); });
  EXPECT_EQ(shares, (std::vector<ordered_json>{0.5, nullptr, nullptr}));
  ASSERT_EQ(told.size(), 3u);
  EXPECT_NE(told[0].find("MFU 50 %"), std::string::npos) << told[0];
  for (const size_t later : {1, 2}) EXPECT_EQ(told[later].find("MFU"), std::string::npos) << told[later];
}

TEST(RunReport, OfAnUnknownPeakNoShareIsTold) {
  const Scratch scratch;
  RunConfig config = config_in(scratch);
  config.train.steps = 1;
  Log log;
  std::string line;
  RunReport report(config, 1, std::nan(""), log, [&](const std::string& text) { line = text; });
  StepResult result;
  result.seconds = 1;
  result.attended = 300;
  report.step(1, result, {}, {});
  EXPECT_TRUE(ordered_json::parse(Scratch::read(scratch / "metrics.jsonl")).at("model_flops_utilization").is_null());
  EXPECT_EQ(line.find("MFU"), std::string::npos) << line;
}

TEST(RunReport, AStepsLineFitsTheScreen) {
  const Scratch scratch;
  RunConfig config = config_in(scratch);
  config.train.steps = 100000;
  config.train.global_batch = 512;
  config.train.sequence_length = 1024;
  config.optimizer.learning_rate = 3e-4;
  Log log;
  std::string line;
  RunReport report(config, 1, 1e12, log, [&](const std::string& text) { line = text; });
  StepResult result;
  result.loss = 10.12344;
  result.gradient_norm = 1.5;
  result.seconds = 0.95;
  result.elapsed = 950;
  report.step(1000, result, {}, {});
  const std::string begin = "step 1000/100000  loss 10.1234  norm 1.500  lr 3.00e-04  551,882 tokens/s  MFU";
  EXPECT_TRUE(line.starts_with(begin)) << line;
  EXPECT_TRUE(line.ends_with("  MFU 0 %  26:07:30 left")) << line;
  EXPECT_LE(line.size(), 100u) << line;
}

// A run that continued after step 10.
TEST(RunReport, TimeLeftIsThatOfTheStepsBehindThisOne) {
  const Scratch scratch;
  RunConfig config = config_in(scratch);
  config.train.steps = 20;
  Log log;
  std::string line;
  RunReport report(config, 11, 1e6, log, [&](const std::string& text) { line = text; });
  StepResult result;
  result.seconds = 2;
  result.elapsed = 9;  // with an evaluation
  report.step(13, result, {}, {});
  EXPECT_TRUE(line.ends_with("  0:21 left")) << line;
}

TEST(RunReport, AFilterEndsTheNamesOfItsMetricAndError) {
  const Scratch scratch;
  const RunConfig config = config_in(scratch);
  Log log;
  RunReport report(config, 1, 1e6, log, {});
  report.tasks(2, {{.task = "gsm8k", .metric = "exact_match,strict-match", .value = 0.5, .error = 0.25},
                   {.task = "piqa", .metric = "acc", .value = 1, .error = 0}});
  EXPECT_EQ(ordered_json::parse(Scratch::read(scratch / "metrics.jsonl")).at("benchmarks").dump(),
            R"({"gsm8k":{"exact_match,strict-match":0.5,"exact_match_stderr,strict-match":0.25},)"
            R"("piqa":{"acc":1.0,"acc_stderr":0.0}})");
}

TEST(RunReport, ScalarsAreEveryNumberOfALine) {
  const ordered_json line = ordered_json::parse(R"({"step": 3, "loss": 1.5, "gradient_norm": null, "note": "text",
      "layer_gradient_norms": {"layers.0": 2, "head": null}, "shift": {"0": {"key": [0.25, 0.75]}}, "skipped": 0})");
  const TensorBoard::Scalars scalars = scalars_of(line);
  std::vector<std::string> tags;
  for (const auto& [tag, value] : scalars) tags.push_back(tag);
  EXPECT_EQ(tags, (std::vector<std::string>{"loss", "gradient_norm", "layer_gradient_norms/layers.0",
                                            "layer_gradient_norms/head", "shift/0/key/0", "shift/0/key/1", "skipped"}));
  EXPECT_EQ(scalars[0].second, 1.5);
  EXPECT_TRUE(std::isnan(scalars[1].second));
  EXPECT_EQ(scalars[5].second, 0.75);
}

// 0xe3069283 is CRC-32C's check value.
TEST(TensorBoard, ChecksumsAreMaskedCrc32c) {
  EXPECT_EQ(masked_crc32c("123456789"), (0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u);
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> found;
  for_each_json_line(path, [&](const nlohmann::json& line) { found.push_back(line.at("step")); });
  return found;
}

// The steps of a TensorBoard file's records; their lengths say where each ends.
std::vector<int64_t> steps_of_records(const std::string& file) {
  std::vector<int64_t> found;
  for (size_t at = 0; at + 8 <= file.size();) {
    uint64_t length = 0;
    std::memcpy(&length, file.data() + at, sizeof length);
    found.push_back(static_cast<unsigned char>(file.at(at + 12 + 10)));  // tag and wall_time, tag, the step's varint
    at += 16 + length;
  }
  return found;
}

EvaluationResult with_loss(double loss) {
  return {.all = {.loss = loss, .accuracy = 0.5, .counted = 1}, .sources = {}};
}

// While the disk is full no row is lost, and afterwards the files are whole.
TEST(RunReport, RowsOfAFullDiskAreWrittenWhenThereIsRoom) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  const Scratch scratch;
  RunConfig config;
  config.output.directory = disk.path();
  Log log;
  log.add_file(scratch / "log");
  using Steps = std::vector<int64_t>;
  const auto fill = [&] { std::ofstream(disk / "filler") << std::string(2 << 20, 'x'); };
  const auto metrics = [&] { return steps_of(disk / "metrics.jsonl"); };
  const Events events(disk.path(), 0);
  std::string record;
  {
    RunReport report(config, 1, 1e6, log, {});
    for (const auto& entry : std::filesystem::directory_iterator(disk / "tensorboard")) record = entry.path();
    report.validation(1, with_loss(1));
    events.write("first", {{"step", 1}});
    fill();
    for (int64_t step = 2; step <= 100; ++step) {
      report.validation(step, with_loss(1.0 / 3));
      if (step == 50) events.write("second", {{"text", std::string(8192, 'y')}});
    }
    EXPECT_LT(metrics().size(), 100u);
    EXPECT_EQ(Scratch::read(disk / "metrics.jsonl").back(), '\n');
    std::filesystem::remove(disk / "filler");
    report.validation(101, with_loss(1));
    events.write("third", {{"step", 3}});
    Steps all(101);
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(metrics(), all);
    Steps records = {0, 1};  // the version, and the first step of the start
    records.insert(records.end(), all.begin(), all.end());
    EXPECT_EQ(steps_of_records(Scratch::read(record)), records);
    fill();
    for (int64_t step = 102; step <= 200; ++step) report.validation(step, with_loss(1.0 / 3));
    EXPECT_LT(metrics().size(), 200u);
    std::filesystem::remove(disk / "filler");
  }
  EXPECT_EQ(metrics().size(), 200u);  // the last try, at the end of the run
  std::vector<std::string> names;
  for_each_json_line(disk / "events.jsonl",
                     [&](const nlohmann::json& line) { names.push_back(text_in(line, "event")); });
  EXPECT_EQ(names, (std::vector<std::string>{"first", "second", "third"}));
  const std::string told = Scratch::read(scratch / "log"), phrase = " on wait until it can be written";
  EXPECT_EQ(told.find("lost"), std::string::npos) << told;
  size_t times = 0;
  for (size_t at = told.find(phrase); at != std::string::npos; at = told.find(phrase, at + 1)) ++times;
  EXPECT_EQ(times, 2u) << told;  // once each time that the disk is full
}

TEST(JsonLines, KeepABoundedNumberOfLines) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  JsonLines lines(disk / "file");
  const std::string half(JsonLines::kMostWaiting / 2, 'x');
  EXPECT_THROW(lines.write({{"step", 1}, {"text", half}}), Error);
  EXPECT_EQ(lines.dropped(), 0);
  for (const int64_t step : {2, 3}) EXPECT_THROW(lines.write({{"step", step}, {"text", half}}), Error);
  EXPECT_EQ(lines.dropped(), 2);
  EXPECT_TRUE(lines.waits());
  EXPECT_EQ(Scratch::read(disk / "file"), "");
}

TEST(RunReport, FollowsFilesThatWereMovedAway) {
  const Scratch scratch;
  RunConfig config;
  config.output.directory = scratch / "run";
  std::filesystem::create_directory(scratch / "run");
  Log log;
  log.add_file(scratch / "log");
  RunReport report(config, 1, 1e6, log, {});
  using Steps = std::vector<int64_t>;
  report.validation(1, with_loss(1));
  std::filesystem::rename(scratch / "run/metrics.jsonl", scratch / "file");
  report.validation(2, with_loss(1));
  report.validation(3, with_loss(1));
  std::filesystem::rename(scratch / "run", scratch / "moved");
  report.validation(4, with_loss(1));
  report.sync();
  EXPECT_EQ(steps_of(scratch / "file"), (Steps{1}));
  EXPECT_EQ(steps_of(scratch / "moved/metrics.jsonl"), (Steps{2, 3}));
  EXPECT_EQ(steps_of(scratch / "run/metrics.jsonl"), (Steps{4}));
  EXPECT_EQ(Scratch::read(scratch / "run/config.conf"), to_config_text(config));
  const std::string told = Scratch::read(scratch / "log"), phrase = "metrics.jsonl was moved or replaced";
  EXPECT_NE(told.find(phrase + ": lines from step 2 on go to a file at this path"), std::string::npos) << told;
  EXPECT_EQ(told.find(phrase), told.rfind(phrase)) << told;
}

}  // namespace
}  // namespace shiftron
