// Compares a module with one input and one output of a shape with plain loops, their differences, and itself on two
// ranks.
#pragma once

#include "model/fixture.h"

namespace shiftron::testing {

struct Module {
  std::function<Tensor(Run&, const Tensor& x)> forward;
  std::function<Tensor(Run&, const Tensor& d_y, const Tensor& x)> backward;  // d_x, maybe in the memory of d_y
};

inline Tensor like(Arena& arena, const Tensor& x) {
  return arena.allocate(x.dtype(), x.shape());
}
// Where the input is the residual too, its gradient is d_y + `d_module`.
inline Tensor with_residual(Run& run, const Tensor& d_y, const Tensor& d_module) {
  const Tensor d_x = like(run.scratch, d_y);
  add(run.stream, d_y, d_module, d_x);
  return d_x;
}

struct ModuleCase {
  ModelConfig config = small_model();
  Rows rows = small_rows();
  int64_t columns = 6;         // of x and y
  bool split_columns = false;  // over tp, instead of the rows
  std::function<Module(Rank&)> make{};
  std::function<Values(const Weights&, const Values& x)> plain{};

  Values input(const char* name) const { return normals(name, rows.count() * static_cast<size_t>(columns)); }
};

struct Outcome {
  Values y, d_x;
  Weights weights, gradients;  // of dot(y, d_y)
};

inline Outcome evaluate(const ModuleCase& c, int tp) {
  Outcome outcome{c.input("x"), c.input("x"), {}, {}};
  std::mutex mutex;
  run_thread_ranks(tp, [&](HostCommunicator& world) {
    Rank rank(world, {.tp = tp}, c.config);
    const Module module = c.make(rank);
    rank.allocate();
    const int at = rank.groups.at.tp;
    const auto count = static_cast<int64_t>(c.rows.count());
    const Range rows = c.split_columns ? Range{0, count} : split_range(count, tp, at);
    const Range columns = c.split_columns ? split_range(c.columns, tp, at) : Range{0, c.columns};
    // Calls visit(index in this rank's part, index in the whole).
    const auto for_each = [&](const auto& visit) {
      size_t local = 0;
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = columns.begin; column < columns.end; ++column) {
          visit(local++, static_cast<size_t>(row * c.columns + column));
        }
      }
    };
    const auto place = [&](const Values& whole) {
      Values part(static_cast<size_t>(rows.size() * columns.size()));
      for_each([&](size_t local, size_t index) { part[local] = whole[index]; });
      return rank.place(part, {rows.size(), columns.size()});
    };
    Values y, d_x;
    for (int microbatch = 0; microbatch < 2; ++microbatch) {  // whose gradients add up
      Run run = rank.begin(c.rows);
      const Tensor x = place(c.input("x"));
      y = values_of(module.forward(run, x));
      rank.clear(rank.scratch);
      d_x = values_of(module.backward(run, place(c.input("d_y")), x));
    }
    rank.sum_gradients();
    const std::lock_guard lock(mutex);
    for_each([&](size_t local, size_t index) {
      outcome.y[index] = y.at(local);
      outcome.d_x[index] = d_x.at(local);
    });
    rank.collect(&Parameter::weight, 1, outcome.weights);
    rank.collect(&Parameter::gradient, 0.5, outcome.gradients);
  });
  return outcome;
}

inline void expect_plain(const ModuleCase& c) {
  const Outcome one = evaluate(c, 1);
  Weights weights = one.weights;
  Values x = c.input("x");
  const Values d_y = c.input("d_y");
  const auto loss = [&] { return dot(c.plain(weights, x), d_y); };
  expect_near(one.y, c.plain(weights, x), 1e-12, "y");
  expect_near(one.d_x, differences(x, loss), 1e-9, "d_x");
  expect_near(one.gradients, differences(weights, loss), 1e-9, "gradient");
  const Outcome two = evaluate(c, 2);
  expect_near(two.y, one.y, 1e-12, "y of two ranks");
  expect_near(two.d_x, one.d_x, 1e-12, "d_x of two ranks");
  expect_near(two.gradients, one.gradients, 1e-12, "two ranks' gradient");
}

// Forms and numbers of taps on query, key and value.
inline std::vector<ShiftConfig> small_shifts() {
  return {{.query = 0, .key = 0, .value = 0},
          {.query = 0, .key = 1, .value = 1},
          {.query = 1, .key = 3, .value = 2},
          {.query = 1, .key = 1, .value = 1, .form = ShiftForm::gate},
          {.query = 2, .key = 1, .value = 3, .form = ShiftForm::clamp}};
}
inline std::string text_of(const ShiftConfig& shift) {
  return std::string(to_string(shift.form)) + " " + std::to_string(shift.query) + std::to_string(shift.key) +
         std::to_string(shift.value);
}

}  // namespace shiftron::testing
