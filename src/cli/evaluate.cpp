// `shiftron evaluate` and `shiftron generate`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <set>

#include "cli/benchmarks.h"
#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/inputs.h"
#include "cli/print_json.h"
#include "cli/process.h"
#include "cli/standard_descriptors.h"
#include "core/file.h"
#include "core/foreign_text.h"
#include "core/hash.h"
#include "core/progress.h"
#include "evaluate/continue_ids.h"
#include "evaluate/generate.h"
#include "evaluate/held_out.h"
#include "parallel/agree.h"
#include "train/device.h"
#include "train/faults.h"
#include "train/run_files.h"

namespace shiftron::cli {
namespace {

CommandOption datasets_option() {
  CommandOption option = text_option("data", "DIR…", "the datasets to predict, or where the files of tasks are");
  option.values = kAnyNumber;
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

std::vector<CommandOption> generate_options() {
  return {required(text_option("checkpoint", "STEP_DIR", "a step directory of a run")),
          text_option("prompt", "TEXT", "what the text begins with"),
          text_option("ids", "FILE",
                      "JSONL of {\"ids\": [...]}, in place of --prompt: for each a line {\"ids\": [continuation...], "
                      "\"ended\": by the end-of-document token}"),
          whole_option("end-of-document", "id that ends a document, of --ids and a checkpoint without a tokenizer",
                       between(0, INT32_MAX)),
          text_option("output", "FILE", "where the lines of --ids go, in place of stdout; an older one is replaced"),
          whole_option("tokens", "tokens to make at most, of each prompt", between(1, 1'000'000), "64"),
          real_option("temperature", "0 takes the likeliest token", at_least(0), "0"),
          whole_option("seed", "of the draws", at_least(0), "0")};
}

// A checkpoint's model cannot change: faults for keys of [model] and [shift] to which the line gives another value.
std::vector<std::string> model_changes(const RunConfig& saved, const RunConfig& now) {
  std::vector<std::string> faults;
  for (const ChangedKey& changed : changed_keys(saved, now)) {
    if (!is_of_model(changed.key)) continue;
    const auto origin = now.origins.find(changed.key);
    if (origin == now.origins.end() || origin->second.unreadable) continue;  // derived, or already reported
    faults.push_back(changed.key + " is '" + changed.before + "' in the checkpoint, cannot be '" + changed.after +
                     "' (" + to_string(origin->second) + ")");
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
  return is_option ? "give --" + option : "leave it out";
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
    if (is_of_model(key) || section == "parallel" || section == "device" || question.keys.contains(key)) continue;
    const auto before = saved.origins.find(key);
    if (origin.unreadable || (before != saved.origins.end() && to_string(before->second) == to_string(origin)))
      continue;
    const bool is_asked = section == "evaluation" && key != "evaluation.every";
    if (!(is_asked ? unusual : changed).contains(key)) continue;
    faults.push_back(key + " does nothing for " + (of_some.contains(key) ? question.name : "a checkpoint") + ", " +
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
  base.device.kind = device_here(base.device.kind);
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
  std::vector<GivenValue> given = {
      {"the checkpoint " + model.directory,
       fmt::format("step {} (hash of its manifest {})", model.content.step, model.manifest_hash)}};
  for (GivenValue& key : given_keys(model.config)) given.push_back(std::move(key));
  require_given_alike(world, given);
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
      "loss {:.6f}   perplexity {:.4f}{}   accuracy {:.4f}   ({} tokens{} counted in the {}, {} after the last whole "
      "window left out)",
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
  outlive_failing_writes();
  if (lists_tasks(given)) {
    refuse_faults(read_config(given).reading_faults, "the command line");
    return list_tasks(given);
  }
  CommandLine line = given;
  if (!line.has("checkpoint")) line.faults.emplace_back("--checkpoint is missing");
  if (!line.has("data") && needs_data(line)) line.faults.emplace_back("--data is missing");
  if (line.has("tasks") && line.texts("data").size() > 1) {
    line.faults.push_back(fmt::format("--data takes 1 value with --tasks, {} are given", line.texts("data").size()));
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
  all_agree(*world, open);
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

void check_generate_options(CommandLine& line) {
  if (line.has("ids")) {
    if (line.has("prompt")) line.faults.emplace_back("--prompt and --ids both say what to continue; leave one out");
    return;
  }
  for (const char* of_ids : {"end-of-document", "output"}) {
    if (line.has(of_ids)) line.faults.push_back(fmt::format("--{} is of --ids; leave it out", of_ids));
  }
}

GenerateOptions generation_of(const CommandLine& line) {
  return {.tokens = line.integer("tokens"),
          .temperature = line.real("temperature"),
          .seed = static_cast<uint64_t>(line.integer("seed"))};
}

void continue_text(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world,
                   const HostShare& share) {
  // The generated text is printed unchanged, except on a terminal, which it could control. Open MPI's mpirun gives each
  // rank a terminal that is not the user's, MPICH's a pipe; launch/local says whether it prints to a terminal.
  const bool launched = std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr;
  const bool on_terminal =
      std::getenv("SHIFTRON_ON_TERMINAL") != nullptr || (!launched && ::isatty(STDOUT_FILENO) == 1);
  const std::string prompt = line.text("prompt");
  const bool speaks = world.rank() == 0;
  bool begun = false;
  const auto say = [&](const std::string& text) {
    if (!speaks) return;
    const std::string next = begun ? text : prompt + text;  // the prompt after everything that can fail
    begun = true;
    if (on_terminal) {
      std::cout << next << std::flush;
    } else {
      write_to_stdout(next);
    }
  };
  generate(model, prompt, generation_of(line), world, share, say);
  say("\n");
}

// Prompts that are equal on every rank.
std::vector<std::vector<int32_t>> shared_prompts(const std::string& path, const TokenVocabulary& vocabulary,
                                                 HostCommunicator& world) {
  std::vector<std::vector<int32_t>> prompts;
  all_agree(world, [&] { prompts = read_prompts(path, vocabulary); });
  const std::string hash = to_hex(xxh3_128(nlohmann::json(prompts).dump()));
  require_given_alike(world, {{"the prompts of " + path, "hash " + hash}});
  return prompts;
}

void continue_ids(const CommandLine& line, const CheckpointModel& model, HostCommunicator& world,
                  const HostShare& share) {
  TokenVocabulary vocabulary;
  all_agree(world, [&] {
    std::optional<int32_t> end;
    if (line.has("end-of-document")) end = static_cast<int32_t>(line.integer("end-of-document"));
    vocabulary = vocabulary_of_ids(model, end);
  });
  const std::string path = line.text("ids"), output = line.text("output");
  const std::vector<std::vector<int32_t>> prompts = shared_prompts(path, vocabulary, world);
  first_agrees(world, [&] {
    if (!output.empty()) refuse_as_output(output, {{.path = path}});
  });
  const bool speaks = world.rank() == 0;
  std::optional<Progress> progress;
  if (speaks) progress.emplace("generate", prompts.size(), "prompts");
  std::string lines;
  continue_prompts(model, prompts, vocabulary, generation_of(line), world, share, [&](const Continuation& made) {
    if (!speaks) return;
    progress->advance(1);
    const std::string text = nlohmann::ordered_json{{"ids", made.ids}, {"ended", made.ended}}.dump() + "\n";
    if (output.empty()) {
      std::cout << text;
    } else {
      lines += text;
    }
  });
  if (!speaks) return;
  progress->finish();
  if (!output.empty()) write_file_durably(output, lines);
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
    return detail::concatenate("generate divides a model by tp over all ranks, here ", ranks, ": parallel.tp ", p.tp,
                               ", cp ", p.cp, ", pp ", p.pp, " cannot be; leave them out");
  };
  const auto open = [&] { model = open_with_overrides(line, text_from_prompt(), ranks, {.tp = ranks}, layout_fault); };
  all_agree(*world, open);
  require_same_model(*world, model);
  warn_of_binding(session, "generate", model.config.device.kind, model.config.device.threads);
  const HostShare share = share_of(session, model.config.device.threads);
  if (line.has("ids")) {
    continue_ids(line, model, *world, share);
  } else {
    continue_text(line, model, *world, share);
  }
  return 0;
}

}  // namespace

std::vector<Command> evaluate_commands() {
  return {{"evaluate", "",
           "a checkpoint on benchmarks, or its loss, perplexity, bits per byte and accuracy on datasets, alone or "
           "under mpirun",
           "--checkpoint STEP_DIR --data DIR… [--tasks NAME[,NAME] [--output DIR]] [--parallel.tp N …]",
           evaluate_options(), true, run_evaluate,
           "shiftron evaluate --checkpoint run/checkpoints/step-00001000 --data data/validation"},
          {"generate", "", "text from a prompt, or ids from prompts of ids, alone or under mpirun",
           "--checkpoint STEP_DIR (--prompt TEXT | --ids FILE) [--tokens N] [--temperature X] [--seed N]",
           generate_options(), true, run_generate,
           "shiftron generate --checkpoint run/checkpoints/step-00001000 --prompt 'Once upon a time' --temperature 0.8"}};
}

}  // namespace shiftron::cli
