// Products of a step through oneDNN directly.
#include "step_products.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "kernels/element.h"
#include "kernels/onednn_matmul.h"
#include "parallel/tensor_parallel.h"

namespace shiftron {
namespace {

using Clock = std::chrono::steady_clock;
using dnnl::memory;

constexpr int64_t kPoolBytes = int64_t{512} << 20;

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
              const auto status = dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k,
                                             1.0f, a, p.a_transposed ? p.m : p.k, b, p.b_transposed ? p.k : p.n,
                                             p.adds != Product::Adds::nothing ? 1.0f : 0.0f, c, p.n);
              CHECK(status == dnnl_success, "sgemm refused ", p.name);
            });
          }};
}

memory::desc plain(int64_t rows, int64_t columns, bool transposed, memory::data_type type) {
  return {{rows, columns}, type, transposed ? memory::dims{1, rows} : memory::dims{columns, 1}};
}

// `pack`: b is brought into the library's own layout beforehand, as a weight can be once a step, and that is not
// counted. `copy`: a, stored transposed, is copied into rows first, and that is counted.
Way matmul(const Product& p, Pools& pools, memory::data_type type, bool pack, bool copy) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc stored_a = plain(p.m, p.k, p.a_transposed, type), stored_b = plain(p.k, p.n, p.b_transposed, type);
  const memory::desc read_a = copy ? plain(p.m, p.k, false, type) : stored_a;
  const memory::desc any({p.k, p.n}, type, memory::format_tag::any);
  const memory::desc c = plain(p.m, p.n, false, p.adds == Product::Adds::gradient ? memory::data_type::f32 : type);
  dnnl::primitive_attr attributes;
  if (p.adds != Product::Adds::nothing) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc made = describe_matmul(engine, read_a, pack ? any : stored_b, c, attributes);
  const memory::desc read_b = made.weights_desc();
  const dnnl::matmul primitive(made);
  const std::string name =
      std::string("matmul") + (pack ? ", weight packed" : "") + (copy ? ", transposed copied" : "");
  return {
      name, [=, &pools, stream = dnnl::stream(engine)]() mutable {
        memory a(stored_a, engine, pools.inputs.next<std::byte>(stored_a.get_size()));
        memory b(read_b, engine, pools.inputs.next<std::byte>(read_b.get_size()));
        memory out(c, engine, pools.outputs.next<std::byte>(c.get_size()));
        memory copied(read_a, engine, copy ? pools.outputs.next<std::byte>(read_a.get_size()) : nullptr);
        return timed([&] {
          if (copy) dnnl::reorder(a, copied).execute(stream, a, copied);
          primitive.execute(stream, {{DNNL_ARG_SRC, copy ? copied : a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, out}});
          stream.wait();
        });
      }};
}

}  // namespace

std::vector<Product> products_of(const RunConfig& config, DType dtype) {
  const ModelConfig& model = config.model;
  const int64_t rows = config.train.micro_batch * config.train.sequence_length;
  const int64_t microbatches = config.train.global_batch / config.train.micro_batch;
  const int64_t heads = model.heads * model.head_dim, kv_heads = model.kv_heads * model.head_dim;
  std::vector<Product> products;
  using enum Product::Adds;
  const auto add = [&](const std::string& name, int64_t count, int64_t all_rows, int64_t in, int64_t out,
                       Product::Adds adds = nothing) {
    const char* forward = adds == residual ? "matmul_forward_add" : "matmul_forward";
    products.push_back({name + " forward", forward, all_rows, out, in, false, true, adds, count});
    products.push_back(
        {name + " backward to input", "matmul_backward_input", all_rows, in, out, false, false, nothing, count});
    products.push_back(
        {name + " backward to weight", "matmul_backward_weight", out, in, all_rows, true, false, gradient, count});
  };
  const int64_t calls = microbatches * model.layers;
  add("query, key, value", calls, rows, model.hidden, heads + 2 * kv_heads);
  add("attention output", calls, rows, heads, model.hidden, residual);
  add("gate, up", calls, rows, model.hidden, 2 * model.ffn);
  add("down", calls, rows, model.ffn, model.hidden, residual);
  const int64_t chunk = loss_tiles({}, rows, model.vocab, dtype).rows;
  add("head", microbatches * (rows / chunk), chunk, model.hidden, model.vocab);
  if (rows % chunk != 0) add("head, rest", microbatches, rows % chunk, model.hidden, model.vocab);
  return products;
}

// Both types at once: the low half of each float is a small bfloat16 too.
Pool::Pool() : data_(DeviceKind::cpu, kPoolBytes, unused_, "pool") {
  std::minstd_rand random(1);
  auto* values = data_.tensor(0, DType::bfloat16, {size() / 2}).data<bfloat16>();
  for (int64_t i = 0; i < size() / 2; ++i) {
    values[i] = to_bfloat16(static_cast<float>(random()) / 2147483647.0f - 0.5f);
  }
}

std::vector<Way> ways_of(const Product& product, DType dtype, Pools& pools) {
  const auto type = dtype == DType::float32 ? memory::data_type::f32 : memory::data_type::bf16;
  try {
    std::vector<Way> ways = {matmul(product, pools, type, false, false)};
    if (dtype == DType::float32) ways.push_back(sgemm(product, pools));
    if (product.adds != Product::Adds::gradient) ways.push_back(matmul(product, pools, type, true, false));
    if (product.a_transposed) ways.push_back(matmul(product, pools, type, false, true));
    return ways;
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return {};
    throw;
  }
}

}  // namespace shiftron
