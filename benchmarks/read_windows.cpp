// Tokens per second with which one thread reads training samples that the page cache holds.
//   read_windows --data.train DATASET --train.sequence_length L [--KEY VALUE]… [--rounds N] [--json]
// Each round reads 64 Mi tokens in shuffled order, 8 samples at a time, after a first round that is not counted: it
// fills the page cache and checks hashes.
#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config_reader.h"
#include "program.h"
#include "train/batches.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTokens = int64_t{64} << 20;  // of a round
constexpr int64_t kSamples = 8;                 // read at a time

double tokens_per_second(Loader& loader, int64_t length) {
  std::vector<int32_t> ids(static_cast<size_t>(kSamples * length)), targets(ids.size());
  std::vector<uint8_t> document_start(ids.size());
  const int64_t samples = std::max(kTokens / length / kSamples, int64_t{1}) * kSamples;
  const Clock::time_point began = Clock::now();
  for (int64_t sample = 0; sample < samples; sample += kSamples) {
    loader.read(sample, kSamples, ids.data(), targets.data(), document_start.data());
  }
  return static_cast<double>(samples * length) / std::chrono::duration<double>(Clock::now() - began).count();
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed = cli::parse_config(
      arguments, {cli::integer_option("rounds", "number of rounds", at_least(1), "7"), cli::json_flag()});
  if (parsed.help) {
    std::cout << "read_windows --data.train DATASET --train.sequence_length L [--KEY VALUE]… [--rounds N] [--json]\n";
    return 0;
  }
  const int64_t length = parsed.config.train.sequence_length, rounds = parsed.integer("rounds");
  if (length < 1) throw_bad_input("train.sequence_length is missing");
  Loader loader = open_loader(parsed.config, parsed.config.data.train, true);
  tokens_per_second(loader, length);
  std::vector<double> rates;
  for (int64_t round = 0; round < rounds; ++round) rates.push_back(tokens_per_second(loader, length));
  if (parsed.has("json")) {
    std::cout << nlohmann::ordered_json{{"tokens_per_second", median(rates)}, {"rounds", rates}} << std::endl;
  } else {
    std::cout << fmt::format("{:.0f} M tokens/s ({:.0f} to {:.0f})\n", median(rates) / 1e6,
                             *std::ranges::min_element(rates) / 1e6, *std::ranges::max_element(rates) / 1e6);
  }
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("read_windows", shiftron::run, argc, argv);
}
