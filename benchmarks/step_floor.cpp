// The least time that a training step can take here: its matrix products by the library's fastest calls, attention's at
// their rate (the causal half), and the bytes of every other kernel at the speed of copying.
//   step_floor --config FILE [--KEY VALUE]… [--rounds N] [--json]
// Every product of the step (forward, backward to input and to weight) runs through oneDNN directly, on buffers that
// rotate through more memory than any cache holds, in every way that the library offers; the fastest of each counts.
#include <omp.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "kernels/kernels.h"
#include "program.h"
#include "step_products.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using nlohmann::json;

// What a step does besides the listed products.
struct OtherWork {
  double attention_operations = 0, bytes = 0;
};

// Null where the processor has no such product.
json measure(const std::vector<Product>& products, const OtherWork& other, double copy_rate, double tokens, DType dtype,
             int64_t rounds, Pools& pools) {
  struct Row {
    const Product* product;
    Way way;
    std::vector<double> seconds;
  };
  std::vector<Row> rows;
  for (const Product& product : products) {
    std::vector<Way> ways = ways_of(product, dtype, pools);
    if (ways.empty()) return nullptr;
    for (Way& way : ways) rows.push_back({&product, std::move(way), {}});
  }
  for (Row& row : rows) row.way.call();
  for (int64_t round = 0; round < rounds; ++round) {
    for (Row& row : rows) row.seconds.push_back(row.way.call());
  }
  double total = 0, operations = 0;
  json list = json::array();
  for (const Product& product : products) {
    const Row* best = nullptr;
    for (const Row& row : rows) {
      if (row.product == &product && (!best || median(row.seconds) < median(best->seconds))) best = &row;
    }
    const double seconds = median(best->seconds);
    json ways = json::object();
    for (const Row& row : rows) {
      if (row.product == &product) ways[row.way.name] = product.operations() / median(row.seconds) / 1e9;
    }
    total += seconds * static_cast<double>(product.calls);
    operations += product.operations() * static_cast<double>(product.calls);
    list.push_back({{"product", product.name},
                    {"m", product.m},
                    {"n", product.n},
                    {"k", product.k},
                    {"calls", product.calls},
                    {"best", best->way.name},
                    {"seconds", seconds},
                    {"gflops", product.operations() / seconds / 1e9},
                    {"ways_gflops", ways}});
  }
  const double attention = other.attention_operations / (operations / total);
  const double rest = other.bytes / copy_rate;
  const double whole = total + attention + rest;
  return {{"tokens_per_second", tokens / total},
          {"step_seconds", total},
          {"gflops", operations / total / 1e9},
          {"attention_seconds", attention},
          {"other_bytes", other.bytes},
          {"other_seconds", rest},
          {"floor_seconds", whole},
          {"floor_tokens_per_second", tokens / whole},
          {"products", list}};
}

OtherWork other_work(RunConfig config, DType dtype, int threads) {
  config.train.precision = dtype == DType::float32 ? Precision::fp32 : Precision::bf16;
  Ledger ledger;
  plan_memory(config, make_layout(config.parallel, 1), 0, threads, ledger);
  const ModelConfig& model = config.model;
  // Forward and backward without what is computed twice: 6 · layers · width · sequence length a token.
  OtherWork work{6.0 * static_cast<double>(model.layers * model.heads * model.head_dim * config.train.sequence_length *
                                           config.train.global_batch * config.train.sequence_length),
                 0};
  for (const auto& [name, cost] : ledger.kernels()) {
    if (name.starts_with("matmul_") || name.starts_with("attention_")) continue;
    work.bytes += static_cast<double>(cost.bytes_read + cost.bytes_written);
  }
  return work;
}

// Products of a step are those that a step on meta counts.
void check_complete(const std::vector<Product>& products, const RunConfig& config, int threads) {
  Ledger ledger;
  plan_memory(config, make_layout(config.parallel, 1), 0, threads, ledger);
  double counted = 0, listed = 0;
  for (const auto& [name, cost] : ledger.kernels()) {
    if (name.starts_with("matmul_")) counted += static_cast<double>(cost.operations);
  }
  for (const Product& product : products) listed += product.operations() * static_cast<double>(product.calls);
  CHECK(counted == listed, "a step has ", counted, " operations in products, the list ", listed);
}

int run(const std::vector<std::string>& arguments) {
  const cli::ParsedConfig parsed =
      cli::read_config(arguments, {{"json", "", "print JSON"}, {"rounds", "N", "calls of each product and way (7)"}});
  if (parsed.help) {
    std::cout << "step_floor --config FILE [--KEY VALUE]… [--rounds N] [--json]\n";
    return 0;
  }
  RunConfig config = parsed.config;
  validate(config, 1, Use::dry_run);
  resolve(config);
  const int threads = cli::thread_count(config.device.threads, 1);
  omp_set_num_threads(threads);
  const std::vector<Product> products = products_of(config);
  check_complete(products, config, threads);
  Pools pools;
  const auto tokens = static_cast<double>(config.train.global_batch * config.train.sequence_length);
  Ledger unused;
  Stream stream{.ledger = &unused, .threads = threads};
  const double copy_rate = measure_copy_bandwidth(stream);
  json result = {{"threads", threads}, {"copy_bytes_per_second", copy_rate}};
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    result[dtype == DType::float32 ? "fp32" : "bf16"] = measure(products, other_work(config, dtype, threads), copy_rate,
                                                                tokens, dtype, parsed.integer("rounds", 7, 1), pools);
  }
  if (parsed.has("json")) {
    std::cout << result << std::endl;
    return 0;
  }
  for (const char* precision : {"fp32", "bf16"}) {
    const json& of = result[precision];
    std::cout << precision << ": ";
    if (of.is_null()) {
      std::cout << "no such product on this processor\n";
      continue;
    }
    std::cout << of["floor_tokens_per_second"] << " tokens/s at most; the products alone: " << of["tokens_per_second"]
              << " tokens/s, " << of["gflops"] << " GFLOP/s; attention " << of["attention_seconds"] << " s, the rest "
              << of["other_seconds"] << " s of " << of["floor_seconds"] << " s\n";
    for (const json& row : of["products"]) {
      std::cout << "  " << row["gflops"] << " GFLOP/s, " << row["calls"] << " x " << row["product"].get<std::string>()
                << " by " << row["best"].get<std::string>() << "\n";
    }
  }
  return 0;
}

}  // namespace
}  // namespace shiftron

int main(int argc, char** argv) {
  return shiftron::run_program("step_floor", shiftron::run, argc, argv);
}
