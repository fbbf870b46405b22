// The lower bound for a training step's time on this machine, and how far the trainer is from it, part by part.
//   step_floor --config FILE [--KEY VALUE]… [--rounds N] [--json]
// The floor: the step's matrix products by the library's fastest calls, attention's at their rate (the causal half),
// and the bytes of every other kernel at the speed of copying. Every product (forward, backward to input and to weight)
// runs through oneDNN directly, on buffers that rotate through more memory than any cache holds, in every way that the
// library offers; the fastest counts. A round calls each product in each way once, copies, and takes one step of the
// trainer, so that a machine's drifting speed affects both sides. The median over the rounds counts for products,
// copies and steps; the parts of the measured step are means, which add up. A second floor has all products at the peak
// of the processor's best instruction instead of the library's best call.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "config/config_text.h"
#include "config/validate.h"
#include "kernels/kernels.h"
#include "kernels/matrix.h"
#include "local_trainer.h"
#include "processor_peaks.h"
#include "program.h"
#include "step_products.h"

namespace shiftron {
namespace {

using nlohmann::json;

constexpr const char* kAttention = "attention";
constexpr const char* kOutside = "outside of kernels";

// The part of the step that a kernel counts to.
std::string part_of(const std::string& kernel) {
  if (kernel.starts_with("matmul_forward")) return "products forward";
  if (kernel.starts_with("matmul_backward_input")) return "products backward to input";
  if (kernel == "matmul_backward_weight") return "products backward to weight";
  return kernel.starts_with("attention_") ? kAttention : kernel;
}

// A step's work in addition to the listed products.
struct OtherWork {
  double attention_operations = 0;
  std::map<std::string, double> bytes;  // by kernel
};

OtherWork other_work(const RunConfig& config, const Ledger& planned) {
  const ModelConfig& model = config.model;
  // Forward and backward without what is computed twice: 6 · layers · width · sequence length a token.
  OtherWork work{6.0 * static_cast<double>(model.layers * model.heads * model.head_dim * config.train.sequence_length *
                                           config.train.global_batch * config.train.sequence_length),
                 {}};
  for (const auto& [name, cost] : planned.kernels()) {
    if (name.starts_with("matmul_") || name.starts_with("attention_")) continue;
    work.bytes[name] = static_cast<double>(cost.bytes_read + cost.bytes_written);
  }
  return work;
}

// Products of a step are those that a step on meta counts.
void check_complete(const std::vector<Product>& products, const Ledger& planned) {
  double counted = 0, listed = 0;
  for (const auto& [name, cost] : planned.kernels()) {
    if (name.starts_with("matmul_")) counted += static_cast<double>(cost.operations);
  }
  for (const Product& product : products) listed += product.operations() * static_cast<double>(product.calls);
  CHECK(counted == listed, "a step has ", counted, " operations in products, the list ", listed);
}

// A product in all its ways, with the seconds of each by round.
struct Row {
  const Product* product;
  std::vector<Way> ways;
  std::vector<std::vector<double>> seconds;
  size_t best = 0;  // of the ways, by median

  double seconds_of_step(double call) const { return call * static_cast<double>(product->calls); }
  double best_seconds() const { return median(seconds[best]); }
};

struct Rounds {
  std::vector<Row> rows;  // none where the processor has no such product
  std::vector<double> copy_rates, step_seconds;
  std::map<std::string, double> kernel_seconds;  // of a step, on average
  std::string multiplied_by;                     // what the trainer's products are made by; "" where it has no choice

  double mean_step() const {
    return std::accumulate(step_seconds.begin(), step_seconds.end(), 0.0) / static_cast<double>(step_seconds.size());
  }
};

void call_products(std::vector<Row>& rows, bool keep) {
  for (Row& row : rows) {
    for (size_t way = 0; way < row.ways.size(); ++way) {
      const double seconds = row.ways[way].call();
      if (keep) row.seconds[way].push_back(seconds);
    }
  }
}

Rounds measure(const RunConfig& config, const std::vector<Product>& products, int threads, int64_t count,
               Pools& pools) {
  const DType dtype = config.train.precision == Precision::fp32 ? DType::float32 : DType::bfloat16;
  Rounds rounds;
  for (const Product& product : products) {
    std::vector<Way> ways = ways_of(product, dtype, pools);
    if (ways.empty()) return {};
    std::vector<std::vector<double>> seconds(ways.size());
    rounds.rows.push_back({&product, std::move(ways), std::move(seconds)});
  }
  LocalTrainer trainer(config, threads);
  rounds.multiplied_by = trainer.products();
  const SampleReader read = random_samples(config);
  Ledger unused;
  Stream stream{.ledger = &unused, .cpu = {.threads = threads}};
  call_products(rounds.rows, false);
  trainer.warm_up(read);
  trainer.start_profile();
  for (int64_t round = 0; round < count; ++round) {
    call_products(rounds.rows, true);
    rounds.copy_rates.push_back(measure_copy_bandwidth(stream.cpu));
    rounds.step_seconds.push_back(trainer.step(read));
  }
  for (Row& row : rounds.rows) {
    row.best = static_cast<size_t>(
        std::ranges::min_element(row.seconds, {}, [](const auto& seconds) { return median(seconds); }) -
        row.seconds.begin());
  }
  for (const auto& [name, cost] : trainer.ledger().sums()) {
    rounds.kernel_seconds[name] = cost.seconds / static_cast<double>(count);
  }
  return rounds;
}

// Seconds of a step, by part and by kind.
struct Floor {
  std::map<std::string, double> parts;
  double products = 0, attention = 0, rest = 0;
  double operations = 0;  // of the products
  double whole() const { return products + attention + rest; }
};

Floor floor_of(const Rounds& rounds, const OtherWork& other) {
  Floor floor;
  for (const Row& row : rounds.rows) {
    const double seconds = row.seconds_of_step(row.best_seconds());
    floor.parts[part_of(row.product->kernel)] += seconds;
    floor.products += seconds;
    floor.operations += row.product->operations() * static_cast<double>(row.product->calls);
  }
  floor.attention = other.attention_operations / (floor.operations / floor.products);
  floor.parts[kAttention] = floor.attention;
  for (const auto& [kernel, bytes] : other.bytes) {
    const double seconds = bytes / median(rounds.copy_rates);
    floor.parts[part_of(kernel)] += seconds;
    floor.rest += seconds;
  }
  return floor;
}

double loss_of(const json& part) {
  return part.at("measured_seconds").get<double>() - part.at("floor_seconds").get<double>();
}

// The largest loss first.
json parts_of(const Floor& floor, const Rounds& rounds) {
  std::map<std::string, double> measured;
  double kernels = 0;
  for (const auto& [part, seconds] : floor.parts) measured[part] = 0;
  for (const auto& [kernel, seconds] : rounds.kernel_seconds) {
    measured[part_of(kernel)] += seconds;
    kernels += seconds;
  }
  measured[kOutside] = rounds.mean_step() - kernels;
  std::vector<json> parts;
  for (const auto& [part, seconds] : measured) {
    const auto least = floor.parts.find(part);
    parts.push_back({{"part", part},
                     {"floor_seconds", least == floor.parts.end() ? 0.0 : least->second},
                     {"measured_seconds", seconds}});
  }
  std::ranges::sort(parts, std::ranges::greater(), loss_of);
  return parts;
}

// Least and most share of the floor in a round. The products' seconds are those of the round; the small rest,
// attention and other kernels, is that of the medians.
json share_range(const Floor& floor, const Rounds& rounds) {
  std::vector<double> shares;
  for (size_t round = 0; round < rounds.step_seconds.size(); ++round) {
    double seconds = floor.attention + floor.rest;
    for (const Row& row : rounds.rows) seconds += row.seconds_of_step(row.seconds[row.best][round]);
    shares.push_back(seconds / rounds.step_seconds[round]);
  }
  const auto [least, most] = std::ranges::minmax(shares);
  return {least, most};
}

json list_of(const std::vector<Row>& rows) {
  json list = json::array();
  for (const Row& row : rows) {
    const Product& product = *row.product;
    json ways = json::object();
    for (size_t way = 0; way < row.ways.size(); ++way) {
      ways[row.ways[way].name] = product.operations() / median(row.seconds[way]) / 1e9;
    }
    list.push_back({{"product", product.name},
                    {"m", product.m},
                    {"n", product.n},
                    {"k", product.k},
                    {"calls", product.calls},
                    {"best", row.ways[row.best].name},
                    {"seconds", row.best_seconds()},
                    {"gflops", product.operations() / row.best_seconds() / 1e9},
                    {"ways_gflops", ways}});
  }
  return list;
}

// Null where the processor has no such product.
json result_of(const Rounds& rounds, const OtherWork& other, double tokens, double peak) {
  if (rounds.rows.empty()) return nullptr;
  const Floor floor = floor_of(rounds, other);
  double products = 0;  // of the mean step
  for (const auto& [kernel, seconds] : rounds.kernel_seconds) {
    if (kernel.starts_with("matmul_")) products += seconds;
  }
  const double at_peak = floor.operations / peak;
  double bytes = 0;
  for (const auto& [kernel, count] : other.bytes) bytes += count;
  return {
      {"multiplied_by", rounds.multiplied_by},
      {"tokens_per_second", tokens / floor.products},
      {"step_seconds", floor.products},
      {"gflops", floor.operations / floor.products / 1e9},
      {"attention_seconds", floor.attention},
      {"copy_bytes_per_second", median(rounds.copy_rates)},
      {"other_bytes", bytes},
      {"other_seconds", floor.rest},
      {"floor_seconds", floor.whole()},
      {"floor_tokens_per_second", tokens / floor.whole()},
      {"measured_step_seconds", median(rounds.step_seconds)},
      {"share_of_floor", floor.whole() / median(rounds.step_seconds)},
      {"share_range", share_range(floor, rounds)},
      {"share_of_products", floor.products / products},
      {"peak_gflops", peak / 1e9},
      {"peak_share_of_products", at_peak / products},
      {"peak_share_of_floor", (at_peak + other.attention_operations / peak + floor.rest) / median(rounds.step_seconds)},
      {"parts", parts_of(floor, rounds)},
      {"products", list_of(rounds.rows)}};
}

std::string text_of(const std::string& precision, const json& of) {
  if (of.is_null()) return precision + ": no such product on this processor\n";
  const auto number = [](const json& row, const char* key) { return row.at(key).get<double>(); };
  std::string text = fmt::format(
      "{}: {:.0f} tokens/s at most; the products alone: {:.0f} tokens/s, {:.0f} GFLOP/s; attention {:.2f} ms, the rest "
      "{:.2f} ms of {:.2f} ms\n",
      precision, number(of, "floor_tokens_per_second"), number(of, "tokens_per_second"), number(of, "gflops"),
      number(of, "attention_seconds") * 1e3, number(of, "other_seconds") * 1e3, number(of, "floor_seconds") * 1e3);
  for (const json& row : of.at("products")) {
    text += fmt::format("  {:.0f} GFLOP/s, {} x {} by {}\n", number(row, "gflops"), row.at("calls").get<int64_t>(),
                        row.at("product").get<std::string>(), row.at("best").get<std::string>());
  }
  if (const std::string by = of.at("multiplied_by"); !by.empty()) text += "  the step: " + by + "\n";
  double step = 0;
  for (const json& part : of.at("parts")) step += number(part, "measured_seconds");
  text += fmt::format("  {:<30}{:>12}{:>12}{:>15}\n", "part", "floor, ms", "step, ms", "lost of step");
  for (const json& part : of.at("parts")) {
    text += fmt::format("  {:<30}{:>12.3f}{:>12.3f}{:>13.1f} %\n", part.at("part").get<std::string>(),
                        number(part, "floor_seconds") * 1e3, number(part, "measured_seconds") * 1e3,
                        loss_of(part) / step * 100);
  }
  return text +
         fmt::format("  share of the floor: {:.2f} of {:.2f} ms, {:.1f} % ({:.1f} to {:.1f} % by rounds)\n",
                     number(of, "floor_seconds") * 1e3, number(of, "measured_step_seconds") * 1e3,
                     number(of, "share_of_floor") * 100, of.at("share_range")[0].get<double>() * 100,
                     of.at("share_range")[1].get<double>() * 100) +
         fmt::format(
             "  products: {:.1f} % of the library's best calls, {:.1f} % of the processor's peak of {:.0f} GFLOP/s, "
             "with which the step is at {:.1f} % of its floor\n",
             number(of, "share_of_products") * 100, number(of, "peak_share_of_products") * 100,
             number(of, "peak_gflops"), number(of, "peak_share_of_floor") * 100);
}

// Of the fastest instruction for the type, where float32 serves bfloat16 too.
double peak_of(Precision precision, const std::vector<Peak>& peaks) {
  double most = 0;
  for (const Peak& peak : peaks) {
    if (!peak.of_bfloat16 || precision == Precision::bf16) most = std::max(most, peak.operations);
  }
  return most;
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed = cli::parse_config(
      arguments,
      {cli::json_flag(), cli::integer_option("rounds", "calls of each product and way, and steps", at_least(1), "7")});
  if (parsed.help) {
    std::cout << "step_floor --config FILE [--KEY VALUE]… [--rounds N] [--json]\n";
    return 0;
  }
  RunConfig config = parsed.config;
  validate(config, 1, Use::dry_run);
  resolve(config);
  const int threads = cli::thread_count(config.device.threads);
  const fast::LibraryThreads library(threads);
  Pools pools;
  const auto tokens = static_cast<double>(config.train.global_batch * config.train.sequence_length);
  json result = {{"threads", threads}};
  std::string text;
  const std::vector<Peak> peaks = processor_peaks(threads);
  for (const Peak& peak : peaks) {
    result["peaks_gflops"][peak.instruction] = peak.operations / 1e9;
    text += fmt::format("{}: {:.0f} GFLOP/s from the first-level cache\n", peak.instruction, peak.operations / 1e9);
  }
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    config.train.precision = precision;
    const std::vector<Product> products = products_of(config, number_types(precision).activation);
    Ledger planned;
    plan_memory(config, make_layout(config.parallel, 1), 0, threads, planned);
    check_complete(products, planned);
    const Rounds rounds = measure(config, products, threads, parsed.integer("rounds"), pools);
    const std::string name(to_string(precision));
    result[name] = result_of(rounds, other_work(config, planned), tokens, peak_of(precision, peaks));
    text += text_of(name, result[name]);
  }
  std::cout << (parsed.has("json") ? result.dump() + "\n" : text) << std::flush;
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("step_floor", shiftron::run, argc, argv);
}
