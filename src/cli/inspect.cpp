// `shiftron inspect heads`: taps and scores of the heads of a step, or of all steps of a run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/steps.h"
#include "cli/checkpoint.h"
#include "cli/command.h"
#include "cli/drawing.h"
#include "cli/inspected_step.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "core/check.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/progress.h"
#include "evaluate/checkpoint_model.h"
#include "evaluate/heat_map.h"
#include "run/run_files.h"

namespace shiftron::cli {
namespace {

using Json = nlohmann::ordered_json;

struct UnreadStep {
  std::string directory, fault;
};

// ---- text ----

std::string taps_text(const HeadTaps& taps) {
  std::string text;
  for (const double tap : taps.taps) text += fmt::format("{:+8.3f}", tap);
  return text;
}

void print_counts(const TapReport& report) {
  const PairCounts& counts = *report.counts;
  const auto cell = [&](int key, int value) {
    const auto at = [&](const PairCounts& of) { return of[static_cast<size_t>(key)][static_cast<size_t>(value)]; };
    return fmt::format("{:>7}{:<9}", at(counts),
                       report.initial_counts ? fmt::format(" ({})", at(*report.initial_counts)) : "");
  };
  std::cout << fmt::format("KV heads by the larger tap of their keys and values, as in the paper's Table 4{}\n",
                           report.initial_counts ? " (initially)" : "");
  std::cout << fmt::format("  {:<18}{:>12}{:>18}\n", "", "key: current", "key: previous");
  std::cout << fmt::format("  {:<18}{}  {}\n", "value: current", cell(1, 1), cell(0, 1));
  std::cout << fmt::format("  {:<18}{}  {}\n", "value: previous", cell(1, 0), cell(0, 0));
  if (report.changed_quadrant) {
    std::cout << fmt::format("{} of {} KV heads have moved to another cell of this table\n", *report.changed_quadrant,
                             report.pairs.size());
  }
}

void print_taps(const TapReport& report) {
  if (report.pairs.empty() && report.queries.empty()) {
    std::cout << "taps: none, because this model has no shift\n";
    return;
  }
  if (!report.pairs.empty()) {
    std::cout << "taps of keys and values: the current token's first, then the previous tokens'\n";
    if (report.initial.empty()) {
      std::cout << "  initial values: unknown, because these weights were imported and step 0 no longer exists\n";
    } else {
      std::cout << "  initial values: " << printable_line(report.initial_from) << "\n";
    }
  }
  for (size_t i = 0; i < report.pairs.size(); ++i) {
    const KvPair& pair = report.pairs[i];
    std::cout << fmt::format("  layer {:>2} KV head {:>2}   key{} sum {:+.3f}   value{} sum {:+.3f}", pair.layer,
                             pair.kv_head, taps_text(pair.key), pair.key.sum(), taps_text(pair.value),
                             pair.value.sum());
    if (!report.initial.empty()) {
      std::cout << fmt::format("   initially key{} value{}", taps_text(report.initial[i].key),
                               taps_text(report.initial[i].value));
    }
    std::cout << "\n";
  }
  for (size_t layer = 0; layer < report.queries.size(); ++layer) {
    for (size_t head = 0; head < report.queries[layer].size(); ++head) {
      const HeadTaps& query = report.queries[layer][head];
      std::cout << fmt::format("  layer {:>2} head {:>2}   query{} sum {:+.3f}\n", layer, head, taps_text(query),
                               query.sum());
    }
  }
  if (report.counts) print_counts(report);
}

HeatMap map_of(const InspectedStep& of, const std::string& title, double HeadScore::*value) {
  HeatMap map{.title = title, .row_name = "layer", .column_name = "head", .rows = {}, .columns = {}, .values = {}};
  for (int64_t head = 0; head < of.model.heads; ++head) map.columns.push_back(std::to_string(head));
  for (const HeadScore& head : of.scores.heads) {
    if (head.head == 0) {
      map.rows.push_back(std::to_string(head.layer));
      map.values.emplace_back();
    }
    map.values.back().push_back(head.*value);
  }
  return map;
}

std::string periods_text(const HeadReport& report) {
  std::string text;
  for (const int64_t period : report.tokens.periods) text += (text.empty() ? "" : ", ") + std::to_string(period);
  return text;
}

void warn_of_scores(const InspectedStep& of) {
  if (!of.scores.is_finite()) {
    print_to_stderr("inspect heads: warning: some scores of " + of.directory + " are not finite: " + kNonFiniteAdvice);
  }
}

void print_scores(const InspectedStep& of, const RepeatOptions& options) {
  const HeadReport& report = of.scores;
  std::cout << fmt::format(
      "attention scores on {} sequences for each of the periods {}: random tokens repeated once (seed {}); minimum "
      "over the periods\n",
      options.sequences, periods_text(report), options.seed);
  std::cout << heat_map_text(
      map_of(of, "induction: on the token after the previous occurrence, in tenths", &HeadScore::induction));
  std::cout << heat_map_text(map_of(of, "previous token, in tenths", &HeadScore::previous));
  constexpr size_t kShown = 8;
  std::vector<HeadScore> best = report.heads;
  std::ranges::stable_sort(best, std::greater<>(),
                           [](const HeadScore& head) { return std::isnan(head.induction) ? -1 : head.induction; });
  best.resize(std::min(best.size(), kShown));
  std::cout << "  layer  head  KV head  induction  previous  current\n";
  for (const HeadScore& head : best) {
    std::cout << fmt::format("  {:>5}  {:>4}  {:>7}  {:>9.4f}  {:>8.4f}  {:>7.4f}\n", head.layer, head.head,
                             head.kv_head, head.induction, head.previous, head.current);
  }
  if (best.size() < report.heads.size()) {
    std::cout << fmt::format("  and {} heads with lower induction scores: --json lists all\n",
                             report.heads.size() - best.size());
  }
  std::cout << fmt::format("loss on the first copy {:.4f}, on the second {:.4f}\n", report.first_copy_loss,
                           report.second_copy_loss);
}

// "0.9123 (1.3)": the best head's score, and its layer and number.
std::string best_text(const HeadScore& head, double HeadScore::*value) {
  return fmt::format("{:.4f} ({}.{})", head.*value, head.layer, head.head);
}

void print_run(const std::vector<InspectedStep>& steps) {
  const HeadScore& last = best_head(steps.back().scores.heads, &HeadScore::induction);
  std::cout << "best heads as score (layer.head); loss on the first and on the second copy\n";
  const bool has_taps = !steps.back().taps.pairs.empty();
  if (has_taps) {
    std::cout << fmt::format("taps of layer {}, KV head {}, which serves the last step's best induction head\n",
                             last.layer, last.kv_head);
  }
  std::cout << fmt::format("  {:>9}  {:>15}  {:>15}  {:>7}  {:>7}{}\n", "step", "induction", "previous", "first",
                           "second", has_taps ? "   taps" : "");
  for (const InspectedStep& of : steps) {
    const auto best = [&](double HeadScore::*value) { return best_text(best_head(of.scores.heads, value), value); };
    std::cout << fmt::format("  {:>9}  {:>15}  {:>15}  {:>7.4f}  {:>7.4f}", of.step, best(&HeadScore::induction),
                             best(&HeadScore::previous), of.scores.first_copy_loss, of.scores.second_copy_loss);
    for (const KvPair& pair : of.taps.pairs) {
      if (pair.layer != last.layer || pair.kv_head != last.kv_head) continue;
      std::cout << "   key" << taps_text(pair.key) << "  value" << taps_text(pair.value);
    }
    std::cout << "\n";
  }
}

// ---- pictures ----

std::string drawing_of(const InspectedStep& of) {
  return heat_map_svg(of.directory, {map_of(of, "induction: attention on the token after the previous occurrence",
                                            &HeadScore::induction),
                                     map_of(of, "attention on the previous token", &HeadScore::previous),
                                     map_of(of, "attention on the current token", &HeadScore::current)});
}

// Steps × heads.
HeatMap map_of(const std::vector<InspectedStep>& steps, const std::string& title, double HeadScore::*value) {
  HeatMap map{.title = title, .row_name = "step", .column_name = "head", .rows = {}, .columns = {}, .values = {}};
  for (const HeadScore& head : steps.back().scores.heads) {
    map.columns.push_back(fmt::format("{}.{}", head.layer, head.head));
  }
  for (const InspectedStep& of : steps) {
    map.rows.push_back(std::to_string(of.step));
    map.values.emplace_back();
    for (const HeadScore& head : of.scores.heads) map.values.back().push_back(head.*value);
  }
  return map;
}

std::string drawing_of(const std::vector<InspectedStep>& steps, const std::string& run) {
  return heat_map_svg(run, {map_of(steps, "induction, by step; heads as layer.head", &HeadScore::induction),
                            map_of(steps, "previous token, by step", &HeadScore::previous)});
}

// ---- the command ----

// The steps of a run, or of its folder of checkpoints, oldest first; empty if `directory` is a step or neither.
std::vector<StepDirectory> steps_of_run(const std::string& directory) {
  refuse_lost_link(directory);
  if (name_exists(directory + "/" + kManifestName)) return {};
  for (const std::string& place : {checkpoints_of(directory), directory}) {
    std::vector<StepDirectory> steps = list_steps(place);
    std::ranges::reverse(steps);
    if (!steps.empty()) return steps;
  }
  return {};
}

InspectedStep inspect_step(const std::string& directory, const RepeatOptions& options,
                           const std::function<void(const ModelConfig&)>& opened,
                           const std::function<void()>& piece_done) {
  const CheckpointModel model = open_checkpoint(directory);
  if (opened) opened(model.config.model);
  return {.step = model.content.step,
          .directory = directory,
          .model = model.config.model,
          .taps = report_taps(model),
          .scores = score_heads(model, options, thread_count(0), piece_done)};
}

int inspect_one(const CommandLine& line, const RepeatOptions& options) {
  const std::string directory = step_argument(line);
  if (!name_exists(directory + "/" + kManifestName)) {
    throw_bad_input(directory, " is neither a step (no ", kManifestName,
                    ") nor a folder of steps; give a run, or a step such as RUN/checkpoints/step-00000100");
  }
  InspectedStep of;
  {
    std::optional<Progress> progress;
    of = inspect_step(
        directory, options,
        [&](const ModelConfig& model) {
          progress.emplace("inspecting", static_cast<uint64_t>(model.layers + 2), "parts");
        },
        [&] { progress->advance(1); });
  }
  warn_of_scores(of);
  if (line.has("picture")) write_drawing("picture", line.text("picture"), drawing_of(of));
  if (line.has("json")) {
    print_json(step_json(of, options));
    return 0;
  }
  std::cout << fmt::format("{}: step {}, {} layers of {} heads and {} KV heads\n", printable_line(directory), of.step,
                           of.model.layers, of.model.heads, of.model.kv_heads);
  print_taps(of.taps);
  print_scores(of, options);
  return 0;
}

int inspect_run(const CommandLine& line, const std::vector<StepDirectory>& entries, const RepeatOptions& options) {
  const std::string run = line.texts("directory").front();
  std::vector<InspectedStep> steps;
  std::vector<UnreadStep> unread;
  {
    Progress progress("inspecting", entries.size(), "steps");
    for (const StepDirectory& entry : entries) {
      try {
        steps.push_back(inspect_step(entry.path, options, {}, {}));
      } catch (const Error& error) {
        if (error.code() != ExitCode::no_checkpoint) throw;
        if (step_was_removed(entry.path)) continue;  // after its name was read
        unread.push_back({entry.path, error.what()});
      }
      progress.advance(1);
    }
  }
  for (const UnreadStep& step : unread) print_to_stderr("inspect heads: warning: skipped: " + step.fault);
  if (steps.empty()) {
    throw Error(run + " contains no valid step; `shiftron checkpoint list` shows what is wrong with each",
                ExitCode::no_checkpoint);
  }
  for (const InspectedStep& of : steps) warn_of_scores(of);
  if (line.has("picture")) write_drawing("picture", line.text("picture"), drawing_of(steps, run));
  if (line.has("json")) {
    Json json = {{"run", run}, {"steps", Json::array()}, {"left_out", Json::array()}};
    for (const InspectedStep& of : steps) json["steps"].push_back(step_json(of, options));
    for (const UnreadStep& step : unread) {
      json["left_out"].push_back({{"directory", step.directory}, {"fault", step.fault}});
    }
    print_json(json);
    return 0;
  }
  std::cout << printable_line(run) << ": " << steps.size() << (steps.size() == 1 ? " step\n" : " steps\n");
  print_run(steps);
  return 0;
}

int inspect_heads(const CommandLine& line) {
  RepeatOptions options{.seed = static_cast<uint64_t>(line.integer("seed")), .sequences = line.integer("sequences")};
  if (line.has("first-token")) options.first_token = line.integer("first-token");
  if (line.has("last-token")) options.last_token = line.integer("last-token");
  if (line.has("picture")) refuse_to_replace("picture", line.text("picture"));
  const std::vector<StepDirectory> steps = steps_of_run(line.texts("directory").front());
  return steps.empty() ? inspect_one(line, options) : inspect_run(line, steps, options);
}

}  // namespace

std::vector<Command> inspect_commands() {
  return {{"inspect",
           "heads",
           "shows the taps of a step's KV heads, and previous-token and induction scores; for a run, of all its steps",
           "STEP_DIR|RUN [--picture FILE] [--json]",
           {directories("a step, or a run"), integer_option("seed", "random seed of the tokens", at_least(0), "0"),
            integer_option("sequences", "number of sequences per period", between(1, 4096), "8"),
            integer_option("first-token", "lowest token id to draw (default: 0)", between(0, INT32_MAX)),
            integer_option("last-token", "highest token id to draw (default: the last of the vocabulary)",
                           between(0, INT32_MAX)),
            text_option("picture", "FILE", "draw the scores as SVG; an existing drawing is replaced"), json_flag()},
           false,
           inspect_heads,
           "shiftron inspect heads run/checkpoints/step-00001000 --picture heads.svg"}};
}

}  // namespace shiftron::cli
