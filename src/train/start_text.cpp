// Collects it from the table of keys and from the plan.
#include "train/start_text.h"

#include <fmt/format.h>

#include <iterator>
#include <set>

#include "config/config_text.h"
#include "config/options.h"
#include "core/hash.h"
#include "core/wrapped_text.h"
#include "plan/layout_picture.h"
#include "run/run_report.h"

namespace shiftron {
namespace {

// "  name        text": `text` begins at a fixed column.
std::string row(const std::string& name, const std::string& text) {
  constexpr size_t kName = 12;
  return fmt::format("  {:<{}}", name, kName) + wrapped(text, kName + 2);
}

// "1 rank", "4 ranks", "4 microbatches"
std::string counted(int64_t count, const std::string& singular) {
  const char* ending = count == 1 ? "" : singular.ends_with("ch") ? "es" : "s";
  return thousands(count) + " " + singular + ending;
}

}  // namespace

std::string given_settings(const RunConfig& config) {
  const RunConfig defaults;
  std::string text, section, line;
  const auto end_line = [&] {
    if (!line.empty()) text += row(section, line.substr(1));
    line.clear();
  };
  for (const Option& option : option_table()) {
    if (option.section() != section) end_line();
    section = option.section();
    const std::vector<std::string> values = option.write(config);
    if (!config.origins.contains(option.key) || values == option.write(defaults)) continue;
    for (const std::string& value : values) line += " " + option.name() + "=" + value;
  }
  end_line();
  return text;
}

std::string start_text(const RunConfig& config, const ParallelLayout& layout, const std::vector<std::string>& hosts,
                       int threads) {
  const ParameterCount parameters = count_parameters(config);
  const int64_t tokens = config.train.global_batch * config.train.sequence_length;
  std::string text = "run " + config.output.directory + "\n";
  text += row("files", fmt::format("config.conf has every key (hash {}); metrics.jsonl has a row per step",
                                   to_hex(xxh3_64(hash_input(config)))));
  text += given_settings(config);
  text += row("parameters", fmt::format("{} ({} without embedding and head)", thousands(parameters.total),
                                        thousands(parameters.outside_embedding)));
  text += row("budget", fmt::format("{} steps x {} tokens = {} tokens", thousands(config.train.steps),
                                    thousands(tokens), thousands(config.train.steps * tokens)));
  const std::set<std::string> names(hosts.begin(), hosts.end());
  text +=
      row("devices", fmt::format("{} on {}, {} with {} each", counted(layout.ranks(), "rank"),
                                 names.size() == 1 ? *names.begin() : counted(std::ssize(names), "host"),
                                 config.device.kind == DeviceChoice::cuda ? "GPU" : "CPU", counted(threads, "thread")));
  text += row("layout", fmt::format("{}; {} per step", text_of(layout),
                                    counted(microbatches_of_step(config, layout), "microbatch")));
  if (layout.ranks() > 1) text += "\n" + layout_picture(config, layout, hosts);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace shiftron
