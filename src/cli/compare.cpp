// `shiftron compare`: hands its words to launch/compare_runs.py, which shares statistics and pictures with the scripts
// next to it.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "cli/command.h"
#include "core/check.h"
#include "core/system_error.h"

namespace shiftron::cli {
namespace {

std::vector<CommandOption> compare_options() {
  CommandOption arms =
      directories("run directories of the first group (arm), then -- and those of the next", kUnlimited);
  CommandOption metric = text_option(
      "metric", "NAME", "another value of metrics.jsonl, such as loss, accuracy or tokens_per_second; repeatable");
  metric.values = kUnlimited;
  return {arms, metric,
          integer_option("step", "compare at this step, for runs of different lengths", between(1, 1'000'000'000)),
          text_option("picture", "FILE", "draw the held-out loss, or the first --metric, as .svg or .png"),
          json_flag()};
}

// Next to an installed program, otherwise in the source tree of this build.
std::string comparing_script() {
  constexpr const char* kName = "compare_runs.py";
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path installed = program.parent_path().parent_path() / "share/shiftron/launch" / kName;
  const std::filesystem::path built = std::filesystem::path(SHIFTRON_LAUNCH) / kName;
  for (const std::filesystem::path& path : {installed, built}) {
    if (std::filesystem::exists(path, ignored)) return path;
  }
  throw_bad_input("neither ", installed.string(), " nor ", built.string(),
                  " exists; it compares runs: install this program again (cmake --install), or rebuild it where its "
                  "sources are now");
}

int run_compare(const CommandLine& line) {
  const std::string script = comparing_script();
  std::vector<std::string> words = {"python3", script};
  for (const std::string& metric : line.texts("metric")) words.push_back("--metric=" + metric);
  if (line.has("step")) words.push_back("--step=" + line.text("step"));
  if (line.has("picture")) words.push_back("--picture=" + line.text("picture"));
  if (line.has("json")) words.emplace_back("--json");
  words.emplace_back("--arms");
  words.insert(words.end(), line.texts("directory").begin(), line.texts("directory").end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp("python3", arguments.data());
  throw SystemError(std::string("python3, which compares runs, cannot be started: ") + std::strerror(errno) +
                    "; launch/install-deps installs it");
}

}  // namespace

std::vector<Command> compare_commands() {
  return {{"compare", "",
           "compares groups of runs (arms), paired by seed: held-out loss and other values, and a picture",
           "RUN… -- RUN… [--metric NAME] [--picture FILE] [--json]", compare_options(), false, run_compare,
           "shiftron compare vanilla/seed-* -- kv-shift/seed-* --picture compared.svg"}};
}

}  // namespace shiftron::cli
