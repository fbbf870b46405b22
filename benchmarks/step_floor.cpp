// The least time that a training step can take here: its matrix products by the library's fastest calls, attention's at
// their rate (the causal half), and the bytes of every other kernel at the speed of copying.
//   step_floor --config FILE [--KEY VALUE]… [--rounds N] [--json]
// Every product of the step (forward, backward to input and to weight) runs through oneDNN directly, on buffers that
// rotate through more memory than any cache holds, in every way that the library offers; the fastest of each counts.
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <random>

#include "cli/config_reader.h"
#include "cli/process.h"
#include "kernels/element.h"
#include "kernels/kernels.h"
#include "program.h"
#include "train/trainer.h"

namespace shiftron {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;
using dnnl::memory;

constexpr int64_t kPoolBytes = int64_t{512} << 20;
constexpr int64_t kLossRows = 1024;  // rows of logits at a time, as in parallel/tensor_parallel.cpp

// c [m, n] = a b, or += where d_w is summed up.
struct Product {
  std::string name;
  int64_t m, n, k;
  bool a_transposed, b_transposed, adds;
  int64_t calls;  // in a step
  double operations() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

std::vector<Product> products_of(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const int64_t rows = config.train.micro_batch * config.train.sequence_length;
  const int64_t microbatches = config.train.global_batch / config.train.micro_batch;
  const int64_t heads = model.heads * model.head_dim, kv_heads = model.kv_heads * model.head_dim;
  std::vector<Product> products;
  const auto add = [&](const std::string& name, int64_t count, int64_t all_rows, int64_t in, int64_t out) {
    products.push_back({name + " forward", all_rows, out, in, false, true, false, count});
    products.push_back({name + " backward to input", all_rows, in, out, false, false, false, count});
    products.push_back({name + " backward to weight", out, in, all_rows, true, false, true, count});
  };
  const int64_t calls = microbatches * model.layers;
  add("query, key, value", calls, rows, model.hidden, heads + 2 * kv_heads);
  add("attention output", calls, rows, heads, model.hidden);
  add("gate, up", calls, rows, model.hidden, 2 * model.ffn);
  add("down", calls, rows, model.ffn, model.hidden);
  const int64_t chunk = std::min(rows, kLossRows);
  add("head", microbatches * (rows / chunk), chunk, model.hidden, model.vocab);
  if (rows % chunk != 0) add("head, rest", microbatches, rows % chunk, model.hidden, model.vocab);
  return products;
}

// Memory that is handed out in a circle, so that what comes next has left the caches.
class Pool {
 public:
  explicit Pool(int64_t bytes) : data_(static_cast<size_t>(bytes)) {}
  template <typename T>
  T* next(int64_t count) {
    const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
    CHECK(bytes <= size(), "a matrix of ", bytes, " bytes does not fit the pool");
    if (at_ + bytes > size()) at_ = 0;
    at_ += bytes;
    return reinterpret_cast<T*>(data_.data() + at_ - bytes);
  }
  int64_t size() const { return static_cast<int64_t>(data_.size()); }
  std::byte* data() { return data_.data(); }

 private:
  std::vector<std::byte> data_;
  int64_t at_ = 0;
};

struct Pools {
  Pool inputs{kPoolBytes}, outputs{kPoolBytes};
};

// Both types at once: the low half of each float is a small bfloat16 too.
void fill(Pool& pool) {
  std::minstd_rand random(1);
  auto* values = reinterpret_cast<bfloat16*>(pool.data());
  for (int64_t i = 0; i < pool.size() / 2; ++i) {
    values[i] = to_bfloat16(static_cast<float>(random()) / 2147483647.0f - 0.5f);
  }
}

// A way to compute a product; a call runs it once on fresh buffers and returns its seconds.
struct Way {
  std::string name;
  std::function<double()> call;
};

double timed(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Way sgemm(const Product& p, Pools& pools) {
  return {"sgemm", [p, &pools] {
            const auto* a = pools.inputs.next<float>(p.m * p.k);
            const auto* b = pools.inputs.next<float>(p.k * p.n);
            auto* c = pools.outputs.next<float>(p.m * p.n);
            return timed([&] {
              const auto status =
                  dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, 1.0f, a,
                             p.a_transposed ? p.m : p.k, b, p.b_transposed ? p.k : p.n, p.adds ? 1.0f : 0.0f, c, p.n);
              CHECK(status == dnnl_success, "sgemm refused ", p.name);
            });
          }};
}

class Library {
 public:
  // `pack`: b is brought into the library's own layout beforehand, as a weight can be once a step, and that is not
  // counted. `copy`: a, stored transposed, is copied into rows first, and that is counted.
  Way matmul(const Product& p, Pools& pools, memory::data_type type, bool pack, bool copy) {
    const memory::desc stored_a = plain(p.m, p.k, p.a_transposed, type),
                       stored_b = plain(p.k, p.n, p.b_transposed, type);
    const memory::desc read_a = copy ? plain(p.m, p.k, false, type) : stored_a;
    const memory::desc any({p.k, p.n}, type, memory::format_tag::any);
    const memory::desc c = plain(p.m, p.n, false, p.adds ? memory::data_type::f32 : type);
    dnnl::primitive_attr attributes;
    if (p.adds) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc made({read_a, pack ? any : stored_b, c}, attributes, engine_);
    const memory::desc read_b = made.weights_desc();
    const dnnl::matmul primitive(made);
    const std::string name =
        std::string("matmul") + (pack ? ", weight packed" : "") + (copy ? ", transposed copied" : "");
    return {
        name, [=, this, &pools] {
          memory a(stored_a, engine_, pools.inputs.next<std::byte>(stored_a.get_size()));
          memory b(read_b, engine_, pools.inputs.next<std::byte>(read_b.get_size()));
          memory out(c, engine_, pools.outputs.next<std::byte>(c.get_size()));
          memory copied(read_a, engine_, copy ? pools.outputs.next<std::byte>(read_a.get_size()) : nullptr);
          return timed([&] {
            if (copy) dnnl::reorder(a, copied).execute(stream_, a, copied);
            primitive.execute(stream_, {{DNNL_ARG_SRC, copy ? copied : a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, out}});
            stream_.wait();
          });
        }};
  }

 private:
  static memory::desc plain(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
    return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
  }
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
};

std::vector<Way> ways_of(const Product& product, DType dtype, Library& library, Pools& pools) {
  const auto type = dtype == DType::float32 ? memory::data_type::f32 : memory::data_type::bf16;
  std::vector<Way> ways = {library.matmul(product, pools, type, false, false)};
  if (dtype == DType::float32) ways.push_back(sgemm(product, pools));
  if (!product.adds) ways.push_back(library.matmul(product, pools, type, true, false));
  if (product.a_transposed) ways.push_back(library.matmul(product, pools, type, false, true));
  return ways;
}

// What a step does besides the listed products.
struct OtherWork {
  double attention_operations = 0, bytes = 0;
};

// Null where the processor has no such product.
json measure(const std::vector<Product>& products, const OtherWork& other, double copy_rate, double tokens, DType dtype,
             int64_t rounds, Pools& pools) {
  Library library;
  struct Row {
    const Product* product;
    Way way;
    std::vector<double> seconds;
  };
  std::vector<Row> rows;
  try {
    for (const Product& product : products) {
      for (Way& way : ways_of(product, dtype, library, pools)) rows.push_back({&product, std::move(way), {}});
    }
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw;
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
  fill(pools.inputs);
  fill(pools.outputs);
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
