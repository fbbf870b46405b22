// What the modules' tests share: a rank and its Run, values that are the same in every layout, differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <mutex>

#include "core/philox.h"
#include "kernels/kernels.h"
#include "model/kv_shift.h"
#include "model/plain_model.h"
#include "parallel/bucket_exchange.h"
#include "parallel/parameter.h"
#include "parallel/run.h"
#include "red_zone.h"

namespace shiftron::testing {

// All sizes differ, the vocabulary is odd, and base and epsilon are such that they matter at this size.
inline ModelConfig small_model(const ShiftConfig& shift = {}, int64_t kv_heads = 2) {
  return {.layers = 2,
          .hidden = 6,
          .heads = 4,
          .kv_heads = kv_heads,
          .head_dim = 4,
          .ffn = 10,
          .vocab = 11,
          .rope_base = 10,
          .norm_epsilon = 0.1,
          .shift = shift};
}

// Two samples; documents of one row, and of more rows than there are taps.
inline Rows small_rows(bool shift_crosses = false) {
  return make_rows({{5, 1}, {2, 4}}, shift_crosses);
}
// `count` rows that follow `before` others of one document, as decoding states them.
inline Rows following_rows(int before, int count) {
  Rows rows = make_rows({{count}});
  for (int& start : rows.shift_start) start = std::numeric_limits<int>::min() / 2;
  for (int& position : rows.positions) position += before;
  return rows;
}

inline Values normals(const std::string& name, size_t count, double scale = 1) {
  const Philox random(7, name);
  Values values;
  for (size_t i = 0; i < count; ++i) values.push_back(scale * random.normal(i));
  return values;
}

// Calls visit(index in this rank's box, index in the whole tensor) for every element.
inline void for_each_element(const Parameter& parameter, const std::function<void(int64_t, size_t)>& visit) {
  const Shape &whole = parameter.spec.shape, &extent = parameter.box.extent;
  for (int64_t local = 0; local < extent.count(); ++local) {
    int64_t index = 0, rest = local, stride = 1;
    for (int dim = whole.dims() - 1; dim >= 0; --dim) {
      index += (parameter.box.offset[dim] + rest % extent[dim]) * stride;
      rest /= extent[dim];
      stride *= whole[dim];
    }
    visit(local, static_cast<size_t>(index));
  }
}

// Norms differ from 1; taps are of both signs, above 1 too, do not sum to 1 and stay clear of where a clamp bends.
inline double weight_of(const ParameterSpec& spec, size_t index) {
  const double value = Philox(3, spec.name).normal(index);
  if (spec.group == DecayGroup::matrix) return 0.5 * value;
  if (spec.group == DecayGroup::norm) return 1 + 0.3 * value;
  const double tap = 0.5 + 0.7 * value, bend = tap < 0.5 ? 0 : 1;
  return std::abs(tap - bend) < 0.05 ? bend + 0.05 : tap;
}

// One rank with room for one microbatch. Modules declare in `set`, then allocate() ends that.
class Rank {
 public:
  Rank(HostCommunicator& world, const ParallelLayout& layout, const ModelConfig& model)
      : config(model),
        groups(make_groups(world, layout, model.kv_heads)),
        set(layout, groups.at, {DType::float64, DType::float64}) {}

  void allocate() {
    set.allocate(stream, true);
    for (const auto& parameter : set.parameters()) {
      auto* weight = parameter->weight.data<double>();
      for_each_element(*parameter, [&](int64_t i, size_t index) { weight[i] = weight_of(parameter->spec, index); });
    }
    for (KvShift* shift : shifts) {
      const int64_t count = shift->table_elements();
      tap_tables.emplace_back(DeviceKind::cpu, count * size_of(DType::float64), ledger, "tables");
      shift->set_table(tap_tables.back().tensor(0, DType::float64, {count}));
      shift->prepare(stream);
    }
  }
  // Of a module that stands alone: allocate() prepares them.
  void own(const std::array<KvShift*, 3>& of) { shifts.assign(of.begin(), of.end()); }

  // A microbatch begins.
  Run begin(const Rows& rows, bool decoding = false) {
    clear(activations);
    clear(scratch);
    const auto count = static_cast<int64_t>(rows.count());
    return Run{.stream = stream,
               .activations = activations,
               .operands = operands,
               .scratch = scratch,
               .groups = groups,
               .training = !decoding,
               .gather_rows = !decoding,
               .rows = count,
               .sequence_length = static_cast<int64_t>(rows.sequence_length),
               .documents = {place(rows.attention_start), place(rows.shift_start), place(rows.positions)},
               .loss_scale = 0.1,
               .microbatch = 0,
               .weight_gradients = queue};
  }

  // Reading what was there before, or what nobody wrote, gives NaN.
  void clear(Arena& arena) {
    arena.release();
    const int64_t count = (plan.at(arena.name()) - red_zone()) / size_of(DType::float64);
    std::fill_n(arena.allocate(DType::float64, {count}).data<double>(), count, std::nan(""));
    arena.release();
  }

  Tensor place(const Values& values, Shape shape) {
    const Tensor tensor = activations.allocate(DType::float64, shape);
    CHECK(tensor.count() == static_cast<int64_t>(values.size()), values.size(), " values for ", shape.text());
    std::ranges::copy(values, tensor.data<double>());
    return tensor;
  }
  Tensor place(const std::vector<int>& values) {
    const Tensor tensor = activations.allocate(DType::int32, {static_cast<int64_t>(values.size())});
    std::ranges::copy(values, tensor.data<int32_t>());
    return tensor;
  }
  const Tensor& rope(int64_t positions) {
    const Shape shape = {2, positions, config.head_dim / 2};
    table = Buffer(DeviceKind::cpu, shape.count() * size_of(DType::float64), ledger, "tables");
    rope_ = table.tensor(0, DType::float64, shape);
    rope_table(stream, config.rope_base, rope_);
    return rope_;
  }
  // To, or from, the stage after this one, or otherwise the one before.
  void send(const Tensor& tensor, bool behind) {
    groups.channel({groups.at.pp, groups.at.pp + (behind ? 1 : -1), behind}).send(stream, tensor, 1).wait(stream);
  }
  void receive(const Tensor& tensor, bool behind) {
    groups.channel({groups.at.pp + (behind ? 1 : -1), groups.at.pp, !behind}).recv(stream, tensor, 0).wait(stream);
  }

  void sum_gradients() {
    BucketExchange exchange(groups, set);
    exchange.begin();
    exchange.finish(stream);
  }  // over ranks
  // Writes what this rank holds into whole tensors, times `factor`.
  void collect(Tensor Parameter::*of, double factor, Weights& into) const {
    for (const auto& parameter : set.parameters()) {
      Values& whole = into[parameter->spec.name];
      whole.resize(static_cast<size_t>(parameter->spec.shape.count()));
      const auto* from = ((*parameter).*of).data<double>();
      for_each_element(*parameter, [&](int64_t i, size_t index) { whole[index] = factor * from[i]; });
    }
  }

  ModelConfig config;
  Ledger ledger;
  Stream stream{.ledger = &ledger};
  Groups groups;
  ParameterSet set;
  const MemoryPlan plan{{"activations", int64_t{1} << 18}, {"operands", int64_t{1} << 18}, {"scratch", int64_t{1} << 20}};
  Arena activations{stream, "activations", plan, "activations"};
  Arena operands{stream, "operands", plan, "activations"};
  Arena scratch{stream, "scratch", plan, "scratch"};
  std::vector<KvShift*> shifts;

 private:
  WeightGradientQueue queue;
  Buffer table;
  std::vector<Buffer> tap_tables;
  Tensor rope_;
};

inline Values values_of(const Tensor& tensor) {
  CHECK(tensor.contiguous(), "a strided tensor");
  return Values(tensor.data<double>(), tensor.data<double>() + tensor.count());
}

// `tolerance` is relative to the largest element.
inline void expect_near(const Values& found, const Values& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0) << what << " is nothing but zeros";
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * largest) << what << ", element " << i;
  }
}
inline void expect_near(const Weights& found, const Weights& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, values] : expected) expect_near(found.at(name), values, tolerance, what + " of " + name);
}

// ∂loss/∂x by central differences of fourth order; loss() reads x.
inline Values differences(Values& x, const std::function<double()>& loss) {
  constexpr double kStep = 3e-4;
  Values result;
  for (double& value : x) {
    const double before = value;
    const auto at = [&](double steps) {
      value = before + steps * kStep;
      return loss();
    };
    result.push_back((8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep));
    value = before;
  }
  return result;
}
inline Weights differences(Weights& weights, const std::function<double()>& loss) {
  Weights result;
  for (auto& [name, values] : weights) result[name] = differences(values, loss);
  return result;
}

}  // namespace shiftron::testing
