// `shiftron evaluate` and `shiftron generate`.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/benchmarks.h"
#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/generate.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "config/changed_keys.h"
#include "config/faults.h"
#include "config/validate.h"
#include "core/foreign_text.h"
#include "evaluate/held_out.h"
#include "parallel/agree.h"
#include "run/run_files.h"
#include "train/device.h"

namespace shiftron::cli {
namespace {

CommandOption datasets_option() {
  CommandOption option =
      text_option("data", "DIR…", "datasets to evaluate on, or with --tasks the folder with the tasks' data files");
  option.values = kUnlimited;
  option.takes_rest = true;
  return option;
}

std::vector<CommandOption> evaluate_options() {
  std::vector<CommandOption> options = {text_option("checkpoint", "STEP_DIR", "a step directory of a run"),
                                        datasets_option()};
  for (const CommandOption& option : benchmark_options()) options.push_back(option);
  options.push_back(json_flag());
  return options;
}

// A checkpoint's model cannot change: faults for keys of [model] and [shift] to which the line gives another value.
std::vector<std::string> model_changes(const RunConfig& saved, const RunConfig& now) {
  std::vector<std::string> faults;
  for (const ChangedKey& changed : changed_keys(saved, now)) {
    if (!is_model_key(changed.key)) continue;
    const auto origin = now.origins.find(changed.key);
    if (origin == now.origins.end() || origin->second.unreadable) continue;  // derived, or already reported
    faults.push_back(changed.key + " is '" + changed.before + "' in the checkpoint and cannot be changed to '" +
                     changed.after + "' (" + to_string(origin->second) + ")");
  }
  return faults;
}

// What a command asks of a checkpoint.
struct Question {
  std::string name;            // in messages
  std::set<std::string> keys;  // of [train] and [data] that change the answer or its cost
};

Question held_out_loss() {
  return {"the loss of a dataset",
          {"train.precision", "train.micro_batch", "train.sequence_length", "data.document_reset"}};
}
Question answers_of_tasks() {
  return {"tasks", {"train.precision", "train.sequence_length"}};
}
Question text_from_prompt() {
  return {"generate", {"train.precision", "data.document_reset"}};
}

std::string advice_on(const std::string& key, const CommandLine& line) {
  std::string option = key == "train.micro_batch" ? "token-budget" : key.substr(key.find('.') + 1);
  std::ranges::replace(option, '_', '-');
  const bool is_asked = key.starts_with("evaluation.") || key == "train.micro_batch";
  const bool is_option =
      is_asked && std::ranges::find(line.options, option, &CommandOption::name) != line.options.end();
  return is_option ? "use --" + option : "omit it";
}

// Faults for keys that the line or one of its files gives and that do nothing here. Keys of [evaluation] are for
// training, because the command has options of its own; they pass with their defaults. Other keys pass with the
// checkpoint's value. So the file of a run that evaluates none of its steps passes.
std::vector<std::string> useless_keys(const RunConfig& saved, const RunConfig& now, const CommandLine& line,
                                      const Question& question) {
  const std::set<std::string> of_some = held_out_loss().keys;
  std::set<std::string> changed, unusual;
  for (const ChangedKey& key : changed_keys(saved, now)) changed.insert(key.key);
  for (const ChangedKey& key : changed_keys({}, now)) unusual.insert(key.key);
  std::vector<std::string> faults;
  for (const auto& [key, origin] : now.origins) {
    const std::string section = key.substr(0, key.find('.'));
    if (is_model_key(key) || section == "parallel" || section == "device" || question.keys.contains(key)) continue;
    const auto before = saved.origins.find(key);
    if (origin.unreadable || (before != saved.origins.end() && to_string(before->second) == to_string(origin)))
      continue;
    const bool is_asked = section == "evaluation" && key != "evaluation.every";
    if (!(is_asked ? unusual : changed).contains(key)) continue;
    faults.push_back(key + " has no effect on " + (of_some.contains(key) ? question.name : "a checkpoint") + "; " +
                     advice_on(key, line) + " (" + to_string(origin) + ")");
  }
  return faults;
}

// The checkpoint's model under `layout`, which the line may override. Throws one Error with every fault of the line.
CheckpointModel open_with_overrides(const CommandLine& line, const Question& question, int ranks,
                                    const ParallelSection& layout,
                                    const std::function<std::string(const RunConfig&)>& layout_fault) {
  CheckpointModel model;
  try {
    model = open_checkpoint(line.text("checkpoint"));
  } catch (const Error&) {
    refuse_faults(read_config(line).reading_faults, "the command line");  // they may be the reason
    throw;
  }
  RunConfig base = model.config;
  base.parallel = layout;
  base.device.kind = available_device(base.device.kind);
  std::erase_if(base.origins, [](const auto& origin) { return origin.first.starts_with("parallel."); });
  const RunConfig config = read_config(line, base);
  std::vector<std::string> faults = find_faults(config, ranks, Use::evaluate);
  const std::vector<std::string> changes = model_changes(base, config);
  faults.insert(faults.end(), changes.begin(), changes.end());
  const std::vector<std::string> useless = useless_keys(base, config, line, question);
  faults.insert(faults.end(), useless.begin(), useless.end());
  if (const std::string fault = layout_fault(config); !fault.empty()) faults.push_back(fault);
  refuse_faults(faults, "the configuration");
  model.config = config;
  return model;
}

// Ranks that opened two different steps would compute with a mixture of both.
void require_same_model(ControlPlane& world, const CheckpointModel& model) {
  std::vector<RankSetting> given = {
      {"the checkpoint " + model.directory,
       fmt::format("step {} (hash of its manifest {})", model.content.step, model.manifest_hash)}};
  for (RankSetting& key : given_keys(model.config)) given.push_back(std::move(key));
  require_same_settings(world, given);
}

nlohmann::ordered_json to_json(const HeldOutResult& result) {
  return {{"loss", json_number(result.loss)},
          {"perplexity", json_number(result.perplexity)},
          {"bits_per_byte", result.has_text ? json_number(result.bits_per_byte) : nullptr},
          {"accuracy", json_number(result.accuracy)},
          {"targets", result.targets},
          {"bytes", result.has_text ? nlohmann::ordered_json(result.bytes) : nullptr},
          {"windows", result.windows},
          {"windows_of_dataset", result.windows_of_dataset},
          {"dropped_tokens", result.dropped_tokens}};
}

std::string to_text(const HeldOutResult& result) {
  if (result.targets == 0) return "no counted target in the " + text_of_windows(result);
  const std::string per_byte = result.has_text ? fmt::format("   bits per byte {:.5f}", result.bits_per_byte) : "";
  const std::string bytes = result.has_text ? fmt::format(" of {} bytes", result.bytes) : "";
  return fmt::format(
      "loss {:.6f}   perplexity {:.4f}{}   accuracy {:.4f}   ({} tokens{} counted in the {}, {} after the last "
      "complete window skipped)",
      result.loss, result.perplexity, per_byte, result.accuracy, result.targets, bytes, text_of_windows(result),
      result.dropped_tokens);
}

// For one dataset its result; for several the result of all, then of each one.
void print_held_out(const CommandLine& line, const CheckpointModel& model, const HeldOutResults& results) {
  const std::vector<std::string>& data = line.texts("data");
  if (line.has("json")) {
    nlohmann::ordered_json json = {{"checkpoint", model.directory}, {"step", model.content.step}};
    if (data.size() == 1) {
      json["data"] = data.front();
    } else {
      json["data"] = data;
    }
    json.update(to_json(results.all));
    for (size_t i = 0; i < results.sources.size(); ++i) {
      nlohmann::ordered_json source = {{"data", data[i]}};
      source.update(to_json(results.sources[i]));
      json["sources"].push_back(source);
    }
    print_json(json);
    return;
  }
  std::cout << to_text(results.all) << "\n";
  for (size_t i = 0; i < results.sources.size(); ++i) {
    std::cout << "  " << printable_line(data[i]) << ": " << to_text(results.sources[i]) << "\n";
  }
}

int run_evaluate(const CommandLine& given) {
  ignore_write_signals();
  if (wants_task_list(given)) {
    refuse_faults(read_config(given).reading_faults, "the command line");
    return list_tasks(given);
  }
  CommandLine line = given;
  if (!line.has("checkpoint")) line.faults.emplace_back("--checkpoint is missing");
  if (!line.has("data") && needs_data(line)) line.faults.emplace_back("--data is missing");
  if (line.has("tasks") && line.texts("data").size() > 1) {
    line.faults.push_back(
        fmt::format("--data takes 1 value with --tasks, but {} are given", line.texts("data").size()));
  }
  check_benchmark_options(line);
  MpiSession session;
  const auto world = session.world();
  require_same_start(*world, "evaluate", line);
  CheckpointModel model;
  const auto any_layout = [](const RunConfig&) { return std::string(); };
  const Question question = line.has("tasks") ? answers_of_tasks() : held_out_loss();
  const auto open = [&] {
    model = open_with_overrides(line, question, world->size(), {}, any_layout);
  };  // dp over all ranks
  run_on_all_ranks(*world, open);
  require_same_model(*world, model);
  warn_of_binding(session, "evaluate", model.config.device.kind, model.config.device.threads);
  if (line.has("tasks")) {
    return run_tasks(line, model, *world, share_of(session, model.config.device.threads));
  }
  const HeldOutResults results =
      evaluate_held_out(model, line.texts("data"), *world, share_of(session, model.config.device.threads),
                        line.has("limit") ? static_cast<int64_t>(line.real("limit")) : 0);
  if (world->rank() == 0) print_held_out(line, model, results);
  return 0;
}

int run_generate(const CommandLine& given) {
  CommandLine line = given;
  check_generate_options(line);
  MpiSession session;
  const auto world = session.world();
  require_same_start(*world, "generate", line);
  const int ranks = world->size();
  CheckpointModel model;
  const auto layout_fault = [&](const RunConfig& config) {
    const ParallelSection& p = config.parallel;
    if (p.tp == ranks && p.cp == 1 && p.pp == 1) return std::string();
    return detail::concatenate("generate splits a model by tp over all ranks, here ", ranks, ": parallel.tp ", p.tp,
                               ", cp ", p.cp, ", pp ", p.pp, " are not possible; omit them");
  };
  const auto open = [&] { model = open_with_overrides(line, text_from_prompt(), ranks, {.tp = ranks}, layout_fault); };
  run_on_all_ranks(*world, open);
  require_same_model(*world, model);
  warn_of_binding(session, "generate", model.config.device.kind, model.config.device.threads);
  run_prompts(line, model, *world, share_of(session, model.config.device.threads));
  return 0;
}

}  // namespace

std::vector<Command> evaluate_commands() {
  return {
      {"evaluate", "",
       "runs a checkpoint on benchmarks, or computes its loss, perplexity, bits per byte and accuracy on datasets",
       "--checkpoint STEP_DIR --data DIR… [--tasks NAME[,NAME] [--output DIR]] [--parallel.tp N …]", evaluate_options(),
       true, run_evaluate, "shiftron evaluate --checkpoint run/checkpoints/step-00001000 --data data/validation"},
      {"generate", "", "continues prompts, texts or ids, with a checkpoint's model",
       "--checkpoint STEP_DIR (--prompt TEXT | --prompts FILE | --ids FILE) [--tokens N] [--temperature X …]",
       generate_options(), true, run_generate,
       "shiftron generate --checkpoint run/checkpoints/step-00001000 --prompt 'Once upon a time'"}};
}

}  // namespace shiftron::cli
