// Calls of the loss, the update and the small kernels, and the table of all calls.
#include "kernels/all_cases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/ledger.h"
#include "kernels/kernels.h"

namespace shiftron::kernel_testing {

// ---- cross-entropy --------------------------------------------------------------------------------------------------
void add_cross_entropy_cases(std::vector<KernelCase>& cases, int64_t rows, int64_t vocab, int64_t begin) {
  std::vector<int64_t> targets;  // in turn: in this shard, elsewhere, not counted
  for (int64_t t = 0; t < rows; ++t)
    targets.push_back(t % 3 == 0 ? begin + t % vocab : t % 3 == 1 ? begin + vocab : -1);
  const auto terms = static_cast<double>(vocab);
  // Every second target in this shard is the most likely token; the others share the largest logit with an earlier
  // token. All of them share it with a later one.
  const auto with_ties = [&](Argument& logits) {
    constexpr double kLargest = 15;
    for (int64_t t = 0; t < rows; t += 3) {
      const int64_t place = t % vocab;
      const auto set = [&](int64_t token) { logits.values[static_cast<size_t>(t * vocab + token)] = kLargest; };
      set(place);
      set(vocab - 1);
      if (t % 2 == 1) set(place / 2);
    }
  };
  Builder b(label("cross_entropy_statistics", {rows, vocab, begin}));
  with_ties(b.input("logits", {rows, vocab}, Kind::activation, 3));
  b.integers("targets", targets);
  b.output("statistics", {rows, kRowStatistics}, terms, Kind::accumulation);
  b.call.run = [begin](Stream& s, const Tensors& a) { cross_entropy_statistics(s, a[0], a[1], begin, a[2]); };
  cases.push_back(b.call);

  if (begin == 0 && vocab > 0) {
    std::vector<int64_t> all_here = targets;  // in this shard or not counted
    for (int64_t& target : all_here) target = std::min(target, vocab - 1);
    Builder w(label("cross_entropy", {rows, vocab}));
    Argument& values = w.input("logits", {rows, vocab}, Kind::activation, 3);
    with_ties(values);
    values.role = Role::in_out;
    values.terms = terms;
    values.magnitude = 1.0 / 8 * 10;  // scale · size of a logit's exponent
    w.integers("targets", all_here);
    w.output("losses", {rows}, terms, Kind::accumulation);
    w.output("correct", {rows}, 0, Kind::accumulation);
    w.call.run = [](Stream& s, const Tensors& a) { cross_entropy(s, InOut(a[0]), a[1], 0.125, a[2], a[3]); };
    cases.push_back(w.call);
  }

  Builder m(label("first_maximum", {rows, vocab, begin}));
  m.input("logits", {rows, vocab}, Kind::activation, 3);
  m.output("maxima", {rows, 2}, 0, Kind::accumulation);
  m.call.run = [begin](Stream& s, const Tensors& a) { first_maximum(s, a[0], begin, a[1]); };
  if (vocab > 0) cases.push_back(m.call);

  Builder c(label("cross_entropy_backward", {rows, vocab, begin}));
  Argument& logits = c.input("logits", {rows, vocab}, Kind::activation, 3);
  logits.role = Role::in_out;
  std::vector<double> log_sum_exp;
  for (int64_t t = 0; t < rows; ++t) {
    double sum = 0;
    for (int64_t j = 0; j < vocab; ++j) sum += std::exp(logits.values[static_cast<size_t>(t * vocab + j)]);
    log_sum_exp.push_back(std::log(sum));
  }
  logits.magnitude = 1.0 / 8 * 10;  // scale · size of a logit's exponent
  c.given("log_sum_exp", {rows}, Kind::accumulation, log_sum_exp);
  c.integers("targets", targets);
  c.call.run = [begin](Stream& s, const Tensors& a) {
    cross_entropy_backward(s, InOut(a[0]), a[1], a[2], begin, 0.125);
  };
  cases.push_back(c.call);
}

void add_combine_case(std::vector<KernelCase>& cases, int64_t shards, int64_t rows) {
  std::vector<double> statistics;
  for (int64_t i = 0; i < shards * rows; ++i) {
    statistics.insert(statistics.end(), {1.0 + static_cast<double>(i % 5), 2.0 + static_cast<double>(i % 3), 0.25,
                                         static_cast<double>(i % 2)});
  }
  std::vector<int64_t> targets;
  for (int64_t t = 0; t < rows; ++t) targets.push_back(t % 4 == 3 ? -1 : t);
  Builder b(label("cross_entropy_combine", {shards, rows}));
  b.given("statistics", {shards, rows, kRowStatistics}, Kind::accumulation, statistics);
  b.integers("targets", targets);
  b.output("log_sum_exp", {rows}, static_cast<double>(shards), Kind::accumulation);
  b.output("losses", {rows}, static_cast<double>(shards), Kind::accumulation);
  b.output("correct", {rows}, 0, Kind::accumulation);
  b.call.run = [](Stream& s, const Tensors& a) { cross_entropy_combine(s, a[0], a[1], a[2], a[3], a[4]); };
  cases.push_back(b.call);
}

void add_add_losses_case(std::vector<KernelCase>& cases, int64_t rows) {
  std::vector<int64_t> targets;
  std::vector<double> losses, correct;  // 0 where not counted
  for (int64_t t = 0; t < rows; ++t) {
    targets.push_back(t % 4 == 3 ? -1 : t);
    losses.push_back(t % 4 == 3 ? 0 : 1 + 0.25 * static_cast<double>(t % 9));
    correct.push_back(t % 4 == 2 ? 1 : 0);
  }
  Builder b(label("add_losses", {rows}));
  b.given("losses", {rows}, Kind::accumulation, losses);
  b.given("correct", {rows}, Kind::accumulation, correct);
  b.integers("targets", targets);
  b.sum("totals", {kLossTotals}, static_cast<double>(rows), Kind::float64);
  b.call.run = [](Stream& s, const Tensors& a) { add_losses(s, a[0], a[1], a[2], InOut(a[3])); };
  cases.push_back(b.call);
}

// ---- update ---------------------------------------------------------------------------------------------------------
// Values that bfloat16 does not hold exactly, so that masters in two halves have a rest.
std::vector<double> wide_values(const std::string& name, int64_t count) {
  std::vector<double> values = random_values(name, count);
  for (double& value : values) value = rounded(1.1 * value, DType::float32);
  return values;
}

namespace {

// One call for parameters of these counts, one after another in memory, or one call for each. Masters in two halves are
// split before the call and joined after it; another ledger counts that.
KernelCase adamw_of(const std::string& name, const std::vector<int64_t>& counts,
                    const std::function<bool(size_t)>& in_halves, const std::function<bool(size_t)>& projected,
                    bool skip, bool one_by_one) {
  const int64_t count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  Builder b(name);
  b.given("scalars", {kUpdateScalars}, Kind::float64, {1e-2, 0.5, 0.19, 0.0975, skip ? 1.0 : 0.0});
  b.input("gradient", {count}, Kind::accumulation);
  b.given("weight", {count}, Kind::accumulation, wide_values(b.call.name + "/master", count)).role = Role::in_out;
  b.input("first_moment", {count}, Kind::accumulation).role = Role::in_out;
  Argument& second = b.input("second_moment", {count}, Kind::accumulation);
  second.role = Role::in_out;
  for (double& value : second.values) value *= value;
  b.scratch({count}, Kind::bfloat16);
  b.scratch({count}, Kind::uint16);
  b.call.run = [=](Stream& s, const Tensors& a) {
    const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
    Ledger ledger;
    Stream reference = s;
    reference.ledger = &ledger;
    reference.cpu.bodies = Bodies::specification;
    std::vector<AdamWParameter> parameters;
    std::vector<Tensor> masters;  // of the parameters in halves
    int64_t begin = 0;
    for (size_t i = 0; i < counts.size(); begin += counts[i++]) {
      const auto of = [&](const Tensor& all) { return all.rows(begin, counts[i]); };
      parameters.push_back({.weight_decay = i % 3 == 0 ? 0.1 : 0,
                            .learning_rate_scale = i % 2 == 0 ? 2.0 : 0.5,
                            .to_unit_interval = projected(i),
                            .gradient = of(a[1]),
                            .weight = of(a[2]),
                            .first_moment = of(a[3]),
                            .second_moment = of(a[4])});
      masters.emplace_back();
      if (!in_halves(i) || a[2].dtype() == DType::float64) continue;
      masters.back() = of(a[2]);
      parameters.back().weight = of(a[5]);
      parameters.back().rest = of(a[6]);
      split_master(reference, masters.back(), of(a[5]), of(a[6]));
    }
    if (!one_by_one) adamw(s, how, a[0], parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (one_by_one) adamw(s, how, a[0], {parameters[i]});
      if (masters[i].defined()) join_master(reference, parameters[i].weight, parameters[i].rest, masters[i]);
    }
  };
  return b.call;
}

}  // namespace

void add_adamw_case(std::vector<KernelCase>& cases, int64_t count, bool halves, bool skip, bool to_unit_interval) {
  const std::string name = label(to_unit_interval ? "adamw_to_unit_interval" : "adamw", {count, halves, skip});
  cases.push_back(adamw_of(
      name, {count}, [=](size_t) { return halves; }, [=](size_t) { return to_unit_interval; }, skip, false));
}

void add_adamw_list_case(std::vector<KernelCase>& cases, const std::vector<int64_t>& counts, bool one_by_one) {
  const int64_t parameters = static_cast<int64_t>(counts.size());
  cases.push_back(adamw_of(
      label("adamw_list", {parameters}), counts, [](size_t i) { return i % 2 == 0; },
      [](size_t i) { return i % 3 == 1; }, false, one_by_one));
}

void add_squares_list_case(std::vector<KernelCase>& cases, const std::vector<int64_t>& counts, int64_t of_a_sum,
                           bool one_by_one) {
  const int64_t tensors = static_cast<int64_t>(counts.size());
  const int64_t count = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const auto squares_of = [=](const Tensor& all) {
    std::vector<Squares> squares;
    int64_t begin = 0;
    for (int64_t i = 0; i < tensors; ++i) {
      const int64_t own = counts[static_cast<size_t>(i)];
      squares.push_back({.x = all.rows(begin, own), .sum = i / of_a_sum});
      begin += own;
    }
    return squares;
  };
  Builder b(label("sum_of_squares_list", {tensors, of_a_sum}));
  b.input("x", {count}, Kind::accumulation);
  b.sum("sums", {tensors / of_a_sum + 1}, static_cast<double>(count), Kind::float64);
  b.scratch(scratch_of_any([&](const Stream& s) {
              return sum_of_squares_scratch(s, squares_of(Tensor(nullptr, DType::float32, {count}, DeviceKind::meta)));
            }),
            Kind::float64);
  b.call.run = [=](Stream& s, const Tensors& a) {
    const std::vector<Squares> squares = squares_of(a[0]);
    if (!one_by_one) return sum_of_squares(s, squares, InOut(a[1]), a[2]);
    for (const Squares& of : squares) sum_of_squares(s, {of}, InOut(a[1]), a[2]);
  };
  cases.push_back(b.call);
}

void add_list_cases(std::vector<KernelCase>& cases) {
  // Empty parts, one with several blocks, parts that start where no tensor can be read in packs, and where all can.
  const std::vector<int64_t> few = {0, 264, 0, 4104, 1, 7, 40'003, 16, 1031, 18, 0};
  std::vector<int64_t> many(300);  // more than fit into one launch
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i * 7 % 13);
  for (const auto& counts : std::initializer_list<std::vector<int64_t>>{few, many, {0, 0}}) {
    add_adamw_list_case(cases, counts);
    add_squares_list_case(cases, counts, 1);
    add_squares_list_case(cases, counts, 4);
  }
}

void add_split_master_cases(std::vector<KernelCase>& cases, int64_t count) {
  Builder b(label("split_master", {count}));
  b.given("master", {count}, Kind::float32, wide_values("master", count));
  b.output("weight", {count}, 1, Kind::bfloat16);
  b.output("rest", {count}, 1, Kind::uint16);
  b.call.run = [](Stream& s, const Tensors& a) { split_master(s, a[0], a[1], a[2]); };
  cases.push_back(b.call);
  Builder c(label("join_master", {count}));
  c.input("weight", {count}, Kind::bfloat16);
  std::vector<double> rest(static_cast<size_t>(count));
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = static_cast<double>(i * 40503 % 65536);
  c.given("rest", {count}, Kind::uint16, rest);
  c.output("master", {count}, 1, Kind::float32);
  c.call.run = [](Stream& s, const Tensors& a) { join_master(s, a[0], a[1], a[2]); };
  cases.push_back(c.call);
}

// ---- small kernels --------------------------------------------------------------------------------------------------
void add_small_cases(std::vector<KernelCase>& cases) {
  for (const int64_t columns : {5, 44001}) {  // the latter in several parts
    Builder zero(columns == 5 ? "fill_zero" : "fill_zero_long");
    zero.output("x", {3, columns}, 1).strided = false;
    zero.call.run = [](Stream& s, const Tensors& a) { fill_zero(s, a[0]); };
    cases.push_back(zero.call);
  }
  Builder table("rope_table");
  table.output("table", {2, 17, 4}, 1, Kind::accumulation);
  table.call.run = [](Stream& s, const Tensors& a) { rope_table(s, 10000, a[0]); };
  cases.push_back(table.call);
  Builder update("update_scalars");
  update.given("sums", {kFirstSquare + 2}, Kind::float64, {21, 6, 0, 9, 16});
  update.given("learning_rate", {1}, Kind::float64, {0.125});
  update.given("counters", {kUpdateCounters}, Kind::float64, {4, 1, 1}).role = Role::in_out;
  update.output("scalars", {kUpdateScalars}, 2, Kind::float64);
  update.output("result", {kUpdateResults}, 2, Kind::float64);
  update.call.run = [](Stream& s, const Tensors& a) {
    const UpdateRule rule{.nominal = 12, .clip = 1, .beta1 = 0.5, .beta2 = 0.75};
    update_scalars(s, rule, a[0], 2, a[1], InOut(a[2]), a[3], a[4]);
  };
  cases.push_back(update.call);
  struct Form {
    const char* name;
    TapForm form;
    int64_t raw, taps;
  };
  for (const Form& form :
       {Form{"free", TapForm::free, 3, 3}, Form{"gate", TapForm::gate, 1, 2}, Form{"clamp", TapForm::clamp, 2, 2}}) {
    Builder b(std::string("shift_taps_forward_") + form.name);
    b.input("raw", {7, form.raw}, Kind::accumulation);
    b.output("taps", {7, form.taps}, 1, Kind::accumulation);
    b.call.run = [form](Stream& s, const Tensors& a) { shift_taps_forward(s, a[0], form.form, a[1]); };
    cases.push_back(b.call);
    Builder c(std::string("shift_taps_backward_") + form.name);
    c.input("raw", {7, form.raw}, Kind::accumulation);
    c.input("d_taps", {7, form.taps}, Kind::accumulation);
    c.sum("d_raw", {7, form.raw}, 2);
    c.call.run = [form](Stream& s, const Tensors& a) { shift_taps_backward(s, a[0], form.form, a[1], InOut(a[2])); };
    cases.push_back(c.call);
  }
}

namespace {

std::vector<KernelCase> make_all_cases() {
  std::vector<KernelCase> cases;
  struct Three {
    int64_t rows, in, out;
  };
  for (const Three& m : {Three{0, 4, 3}, Three{1, 1, 1}, Three{1, 7, 5}, Three{13, 17, 11}, Three{5, 1031, 3},
                         Three{64, 64, 64}, Three{37, 129, 65}, Three{257, 31, 18}, Three{300, 70, 130},
                         Three{2101, 66, 50}, Three{1, 131, 67}, Three{1, 64, 1}, Three{2, 1, 37}, Three{3, 58, 13},
                         Three{4, 769, 35}, Three{7, 127, 33}, Three{8, 769, 35}, Three{9, 130, 33}}) {
    add_matmul_cases(cases, m.rows, m.in, m.out);
  }
  for (const auto& [rows, columns] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{0, 5}, {1, 1}, {1, 4099}, {7, 13}, {131, 67}, {64, 128}}) {
    add_elementwise_cases(cases, rows, columns);
    add_rms_norm_cases(cases, rows, columns);
    add_swiglu_cases(cases, rows, columns);
    add_embedding_cases(cases, rows, 11, columns);
  }
  const std::vector<int64_t> ones(9, 1);
  for (const ShiftCase& shift : std::initializer_list<ShiftCase>{{"none", {7}, 3, 8, 0},
                                                                 {"identity", {7}, 3, 8, 0, false},
                                                                 {"empty", {}, 2, 4, 2},
                                                                 {"one_row", {1}, 2, 6, 2},
                                                                 {"one_tap", {5, 2}, 2, 6, 1},
                                                                 {"two_taps", {13, 1, 17}, 4, 16, 2},
                                                                 {"value", {13, 1, 17}, 4, 10, 2, false},
                                                                 {"odd_head_dim", {11}, 1, 7, 2, false},
                                                                 {"three_taps", {2, 1, 3, 7}, 1, 10, 3},
                                                                 {"more_taps_than_rows", {2}, 2, 4, 4},
                                                                 {"four_taps_documents_of_1", ones, 2, 4, 4},
                                                                 {"long", {131, 67}, 2, 64, 2},
                                                                 {"long_four_taps", {61, 2, 139}, 3, 32, 4},
                                                                 {"head_dim_128", {70}, 2, 128, 2},
                                                                 {"carried_one_row", {1}, 3, 8, 2, true, true},
                                                                 {"carried_value", {3}, 2, 8, 3, false, true},
                                                                 {"carried_four_taps", {2, 3}, 2, 8, 4, true, true}}) {
    add_shift_rope_cases(cases, shift);
  }
  for (const ShiftStreamsCase& shift : std::initializer_list<ShiftStreamsCase>{
           {"layer", {13, 1, 17}, 16, {{6, 0}, {2, 2}, {2, 2, false}}},
           {"layer_without_value", {5, 3}, 8, {{4, 0}, {2, 3}}},
           {"layer_of_values", {5, 2}, 16, {{2, 2, false}, {3, 1, false}, {1, 2, false}}},
           {"layer_empty", {}, 8, {{4, 0}, {2, 2}, {2, 2, false}}},
           {"layer_documents_of_1", ones, 6, {{3, 2}, {1, 4}, {2, 3, false}}},
           {"layer_long", {131, 67}, 32, {{5, 4}, {3, 2}, {2, 3, false}}},
           {"layer_carried", {3}, 16, {{6, 0}, {2, 3}, {2, 2, false}}, true}}) {
    add_shift_streams_cases(cases, shift);
  }
  for (const AttentionCase& at :
       std::initializer_list<AttentionCase>{{"empty", {}, 4, 2, 1, 8},
                                            {"one_row", {1}, 1, 2, 2, 8},
                                            {"primes", {13}, 13, 3, 3, 7},
                                            {"one_kv_head", {5, 1, 7}, 13, 6, 1, 16},
                                            {"grouped", {17, 14, 31}, 31, 4, 2, 32},
                                            {"documents_of_1", ones, 9, 2, 1, 8},
                                            {"two_samples", {3, 5, 8}, 8, 2, 2, 4},
                                            {"head_dim_64", {130}, 130, 2, 1, 64},
                                            {"head_dim_128", {40, 27}, 67, 2, 1, 128},
                                            {"head_dim_1", {5}, 5, 2, 1, 1},
                                            {"head_dim_37", {29, 72, 97, 4}, 101, 3, 1, 37},
                                            {"long", {3, 260, 50}, 313, 2, 1, 16},
                                            {"decode_one_row", {1}, 1, 4, 2, 16, 37, 5},
                                            {"decode_odd_head_dim", {1}, 1, 3, 1, 7, 129, 0},
                                            {"decode_head_dim_64", {1}, 1, 6, 2, 64, 70, 1},
                                            {"decode_head_dim_128", {1}, 1, 2, 2, 128, 66, 0},
                                            {"decode_long", {1}, 1, 6, 2, 24, 2345, 7},
                                            {"decode_rows", {6}, 6, 4, 1, 16, 129, 0},
                                            {"prefill_into_cache", {11}, 11, 2, 1, 8, 0, 6}}) {
    add_attention_cases(cases, at);
  }
  for (const auto& [rows, vocab] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{0, 5}, {1, 1}, {1, 4099}, {7, 13}, {64, 257}}) {
    add_cross_entropy_cases(cases, rows, vocab, 0);
    add_cross_entropy_cases(cases, rows, vocab, 100);
  }
  add_combine_case(cases, 1, 5);
  add_combine_case(cases, 3, 13);
  for (const int64_t rows : {0, 1, 1031}) add_add_losses_case(cases, rows);
  for (const int64_t count : {0, 1, 7, 4099}) {
    add_adamw_case(cases, count, false, false);
    add_adamw_case(cases, count, true, false);
    add_adamw_case(cases, count, false, false, true);
    add_split_master_cases(cases, count);
  }
  add_adamw_case(cases, 13, true, true);
  add_adamw_case(cases, 13, true, false, true);
  add_list_cases(cases);
  add_small_cases(cases);
  return cases;
}
}  // namespace

const std::vector<KernelCase>& all_cases() {  // built once, because drawing the values takes time
  static const std::vector<KernelCase> cases = make_all_cases();
  return cases;
}

}  // namespace shiftron::kernel_testing
