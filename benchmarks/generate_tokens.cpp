// Speed of generation token by token, compared with the time that only reading the weights would take.
//   generate_tokens --config FILE [--KEY VALUE]… [--cache N] [--tokens N] [--rounds N] [--profile] [--json]
// A model with random weights extends a prompt of --cache tokens by --tokens more, greedily, one at a time, as
// `shiftron generate` does. The bound is the rate of reads of the same process, measured before and after each round
// (the faster counts), over the bytes that a token must read: all weights except the embedding table, of which it reads
// one row, and the keys and values so far.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "core/memory.h"
#include "core/philox.h"
#include "evaluate/generate.h"
#include "kernels/cpu_loops.h"
#include "program.h"
#include "train/profile.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kReadBytes = int64_t{512} << 20;  // far more than any cache holds
constexpr int kReads = 5;                           // of which the fastest counts

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SHIFTRON_CLONES uint64_t sum(const uint64_t* values, int64_t count) {
  uint64_t total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) total += values[i];
  return total;
}

// Bytes a second of a sum over a buffer that is allocated as weights are.
class ReadRate {
 public:
  explicit ReadRate(int threads) : threads_(threads), buffer_(DeviceKind::cpu, kReadBytes, ledger_, "read") {}

  double measure() {
    const auto* values = buffer_.tensor(0, DType::float64, {kReadBytes / 8}).data<double>();
    std::vector<uint64_t> totals(static_cast<size_t>(threads_));
    const int64_t share = kReadBytes / 8 / threads_;
    double shortest = 1e30;
    for (int read = 0; read < kReads; ++read) {
      const auto start = Clock::now();
      fast::parallel_for(threads_, threads_, [&](int64_t thread) {
        totals[static_cast<size_t>(thread)] = sum(reinterpret_cast<const uint64_t*>(values) + thread * share, share);
      });
      shortest = std::min(shortest, seconds_since(start));
    }
    for (const uint64_t total : totals) CHECK(total == 0, "a sum of zeros is ", total);
    return static_cast<double>(share * threads_ * 8) / shortest;
  }

 private:
  int threads_;
  Ledger ledger_;
  Buffer buffer_;
};

struct Sizes {
  int64_t cache, tokens, rounds;
};

class Generation {
 public:
  Generation(const RunConfig& config, int threads, const Sizes& sizes)
      : config_(config),
        sizes_(sizes),
        world_(make_single_world()),
        random_(1, "prompt"),
        decoder_(
            config, [&](ParameterSet& set) { fill(set); }, *world_, {.threads = threads}, sizes.cache + sizes.tokens,
            std::min(sizes.cache, GenerateOptions().chunk)) {
    for (int64_t i = 0; i < sizes.cache; ++i) {
      prompt_.push_back(
          static_cast<int32_t>(random_.uniform(static_cast<uint64_t>(i)) * static_cast<double>(config.model.vocab)));
    }
  }

  // Seconds of each token after the first, whose time is mostly the prompt's.
  std::vector<double> round() {
    decoder_.restart();
    std::vector<double> seconds;
    Clock::time_point before;
    continue_tokens(decoder_, prompt_, {.tokens = sizes_.tokens}, config_.model.vocab, -1, [&](int32_t) {
      const auto now = Clock::now();
      if (!made_first_) {
        made_first_ = true;
        if (profiled_) decoder_.start_profile();
      } else {
        seconds.push_back(std::chrono::duration<double>(now - before).count());
      }
      before = Clock::now();
    });
    made_first_ = false;
    return seconds;
  }
  std::string profile(const MachineRates& rates) {
    profiled_ = true;
    const std::vector<double> seconds = round();
    const auto tokens = static_cast<double>(seconds.size());
    return profile_table(decoder_.ledger(), static_cast<int64_t>(seconds.size()),
                         std::accumulate(seconds.begin(), seconds.end(), 0.0) / tokens, rates);
  }

  int64_t weight_bytes() const { return weight_bytes_; }
  // Of the keys and values that the token in the middle of a round sees.
  int64_t cache_bytes() const {
    const ModelConfig& model = config_.model;
    return 2 * model.layers * model.kv_heads * model.head_dim * (sizes_.cache + sizes_.tokens / 2) *
           size_of(number_types(config_.train.precision).activation);
  }

 private:
  void fill(ParameterSet& set) {
    set.initialise(static_cast<uint64_t>(config_.train.seed));
    for (const auto& parameter : set.parameters()) {
      if (parameter->spec.name != "embedding.weight" || config_.model.tie_embeddings) {
        weight_bytes_ += parameter->weight.bytes();
      }
    }
  }

  RunConfig config_;
  Sizes sizes_;
  int64_t weight_bytes_ = 0;
  bool made_first_ = false, profiled_ = false;
  std::vector<int32_t> prompt_;
  std::unique_ptr<HostCommunicator> world_;
  Philox random_;
  Decoder decoder_;
};

json measure(const RunConfig& config, int threads, const Sizes& sizes, Generation& generation) {
  ReadRate read(threads);
  const auto bytes = static_cast<double>(generation.weight_bytes() + generation.cache_bytes());
  generation.round();  // warms up
  std::vector<double> rates, bounds, shares;
  for (int64_t round = 0; round < sizes.rounds; ++round) {
    const double before = read.measure();
    std::vector<double> seconds = generation.round();
    bounds.push_back(std::max(before, read.measure()) / bytes);
    rates.push_back(1 / median(seconds));
    shares.push_back(rates.back() / bounds.back());
  }
  const auto [least, most] = std::ranges::minmax(shares);
  return {{"precision", to_string(config.train.precision)},
          {"threads", threads},
          {"cache", sizes.cache + sizes.tokens / 2},
          {"weight_bytes", generation.weight_bytes()},
          {"cache_bytes", generation.cache_bytes()},
          {"rounds", sizes.rounds},
          {"tokens_per_second", median(rates)},
          {"read_bytes_per_second", median(bounds) * bytes},
          {"bound_tokens_per_second", median(bounds)},
          {"share_of_bound", median(shares)},
          {"share_range", {least, most}}};
}

std::string line_of(const json& result) {
  const auto number = [&](const char* key) { return result.at(key).get<double>(); };
  return fmt::format(
      "{}, {} threads, {} tokens in the cache: {:.1f} tokens/s; {:.0f} MB a token at {:.1f} GB/s allow {:.1f}: {:.0f} "
      "% "
      "({:.0f} to {:.0f} % in {} rounds)",
      result.at("precision").get<std::string>(), result.at("threads").get<int>(), result.at("cache").get<int64_t>(),
      number("tokens_per_second"), (number("weight_bytes") + number("cache_bytes")) / 1e6,
      number("read_bytes_per_second") / 1e9, number("bound_tokens_per_second"), number("share_of_bound") * 100,
      result.at("share_range")[0].get<double>() * 100, result.at("share_range")[1].get<double>() * 100,
      result.at("rounds").get<int64_t>());
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed =
      cli::parse_config(arguments, {cli::integer_option("cache", "tokens of the prompt", at_least(1), "256"),
                                    cli::integer_option("tokens", "tokens made in a round", at_least(2), "64"),
                                    cli::integer_option("rounds", "of the measurement", at_least(1), "7"),
                                    cli::flag("profile", "time every kernel"), cli::json_flag()});
  if (parsed.help) {
    std::cout << "generate_tokens --config FILE [--KEY VALUE]… [--cache N] [--tokens N] [--rounds N] [--profile] "
                 "[--json]\n";
    return 0;
  }
  RunConfig config = parsed.config;
  validate(config, 1, Use::dry_run);
  resolve(config);
  const int threads = cli::thread_count(config.device.threads);
  const Sizes sizes{parsed.integer("cache"), parsed.integer("tokens"), parsed.integer("rounds")};
  Generation generation(config, threads, sizes);
  if (parsed.has("profile")) {
    Ledger ledger;
    Stream stream{.ledger = &ledger, .cpu = {.threads = threads}};
    generation.round();
    std::cout << generation.profile({0, measure_copy_bandwidth(stream.cpu)}) << std::endl;
    return 0;
  }
  const json result = measure(config, threads, sizes, generation);
  std::cout << (parsed.has("json") ? result.dump() : line_of(result)) << std::endl;
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("generate_tokens", shiftron::run, argc, argv);
}
