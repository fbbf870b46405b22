// `shiftron evaluate` and `shiftron generate`.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/config_reader.h"
#include "cli/process.h"
#include "evaluate/generate.h"
#include "evaluate/held_out.h"

namespace shiftron::cli {
namespace {

const std::vector<ExtraOption>& evaluate_options() {
  static const std::vector<ExtraOption> options = {{"checkpoint", "STEP_DIR", "a step directory of a run"},
                                                   {"data", "DIR", "the dataset to predict"},
                                                   {"json", "", "print JSON"}};
  return options;
}

const std::vector<ExtraOption>& generate_options() {
  static const std::vector<ExtraOption> options = {
      {"checkpoint", "STEP_DIR", "a step directory of a run"},
      {"prompt", "TEXT", "what the text begins with"},
      {"tokens", "N", "tokens to make at most (default 64)"},
      {"temperature", "T", "0 takes the likeliest token (default 0)"},
      {"seed", "N", "of the draws (default 0)"}};
  return options;
}

std::string required(const ParsedConfig& parsed, const std::string& name) {
  const std::string value = parsed.text(name);
  if (value.empty()) throw_bad_input("--", name, " is missing; see --help");
  return value;
}

double real_value(const ParsedConfig& parsed, const std::string& name, double otherwise) {
  const std::string text = parsed.text(name);
  if (text.empty()) return otherwise;
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
  }
  if (used != text.size() || !(value >= 0)) throw_bad_input("--", name, " ", text, " is no number of at least 0");
  return value;
}

// The checkpoint's model; its layout is what the command line says, else `own`.
CheckpointModel open_with_overrides(const std::vector<std::string>& arguments, const std::vector<ExtraOption>& options,
                                    const std::string& directory) {
  CheckpointModel model = open_checkpoint(directory);
  RunConfig base = model.config;
  base.parallel = ParallelSection{};  // dp over all ranks
  model.config = read_config(arguments, options, base).config;
  return model;
}

int run_evaluate(const std::vector<std::string>& arguments) {
  const ParsedConfig parsed = read_config(arguments, evaluate_options());
  if (parsed.help) {
    std::cout << config_help("[mpirun …] shiftron evaluate --checkpoint STEP_DIR --data DIR [--parallel.tp N …]",
                             evaluate_options());
    return 0;
  }
  MpiSession session;
  const auto world = session.world();
  CheckpointModel model;
  const auto open = [&] {
    model = open_with_overrides(arguments, evaluate_options(), required(parsed, "checkpoint"));
    required(parsed, "data");
    RunConfig config = model.config;
    config.train.global_batch = config.train.micro_batch * std::max(1, world->size() / smallest_ranks(config.parallel));
    validate(config, world->size(), Use::evaluate);
  };
  agree(*world, open);
  if (world->rank() != 0) open();
  const HeldOutResult result = evaluate_held_out(model, required(parsed, "data"), *world,
                                                 thread_count(model.config.device.threads, session.local_ranks()));
  if (world->rank() != 0) return 0;
  if (parsed.has("json")) {
    std::cout << nlohmann::ordered_json{{"checkpoint", model.directory}, {"step", model.content.step},
                                        {"data", required(parsed, "data")}, {"loss", result.loss},
                                        {"perplexity", result.perplexity}, {"bits_per_byte", result.bits_per_byte},
                                        {"targets", result.targets}, {"bytes", result.bytes},
                                        {"windows", result.windows}, {"dropped_tokens", result.dropped_tokens}}
                     .dump(2)
              << "\n";
  } else {
    std::cout << fmt::format("loss {:.6f}   perplexity {:.4f}   bits per byte {:.5f}   ({} tokens of {} bytes counted, "
                             "{} behind the last whole window left out)\n",
                             result.loss, result.perplexity, result.bits_per_byte, result.targets, result.bytes,
                             result.dropped_tokens);
  }
  return 0;
}

int run_generate(const std::vector<std::string>& arguments) {
  const ParsedConfig parsed = read_config(arguments, generate_options());
  if (parsed.help) {
    std::cout << config_help("[mpirun …] shiftron generate --checkpoint STEP_DIR --prompt TEXT [--tokens N] "
                             "[--temperature T] [--seed N]",
                             generate_options());
    return 0;
  }
  MpiSession session;
  const auto world = session.world();
  CheckpointModel model;
  const auto open = [&] {
    model = open_with_overrides(arguments, generate_options(), required(parsed, "checkpoint"));
    const ModelConfig& shape = model.config.model;
    if (shape.heads % world->size() != 0) {
      throw_bad_input("heads ", shape.heads, " not divisible by the ", world->size(), " ranks that generate");
    }
  };
  agree(*world, open);
  if (world->rank() != 0) open();
  const GenerateOptions options{.tokens = parsed.integer("tokens", 64, 1),
                                .temperature = real_value(parsed, "temperature", 0),
                                .seed = static_cast<uint64_t>(parsed.integer("seed", 0))};
  const std::string prompt = parsed.text("prompt");
  const bool speaks = world->rank() == 0;
  if (speaks) std::cout << prompt << std::flush;
  generate(model, prompt, options, *world, thread_count(model.config.device.threads, session.local_ranks()),
           [&](const std::string& text) {
             if (speaks) std::cout << text << std::flush;
           });
  if (speaks) std::cout << "\n";
  return 0;
}

}  // namespace

std::vector<Command> evaluate_commands() {
  return {{"evaluate", "", "loss, perplexity and bits per byte of a checkpoint on a dataset", run_evaluate},
          {"generate", "", "text from a prompt", run_generate}};
}

}  // namespace shiftron::cli
