// CUDA's bodies of copies, sums, embedding, SwiGLU and the update against their specifications, over the table of
// awkward calls and calls in packs.
#include <array>
#include <bit>

#include "cuda/device_testing.h"
#include "kernels/all_cases.h"
#include "kernels/scratch.h"

namespace shiftron::kernel_testing {
namespace {

// Three dims that cannot be walked as two: the rows of a lie apart.
void add_three_dims_case(std::vector<KernelCase>& cases, int64_t head_dim) {
  Builder b(label("add_three_dims", {head_dim}));
  b.input("a", {5, 3, 2 * head_dim});
  b.input("b", {5, 3, head_dim});
  b.output("y", {5, 3, head_dim}, 1);
  b.call.run = [head_dim](Stream& s, const Tensors& a) { add(s, a[0].slice(2, head_dim, head_dim), a[1], a[2]); };
  cases.push_back(b.call);
}

void add_scalar_case(std::vector<KernelCase>& cases) {
  Builder b("copy_scalar");
  b.input("x", {});
  b.output("y", {}, 1);
  b.call.run = [](Stream& s, const Tensors& a) { copy(s, a[0], a[1]); };
  cases.push_back(b.call);
}

std::vector<KernelCase> small_cases() {
  std::vector<KernelCase> cases;
  for (const KernelCase& call : all_cases()) {
    for (const char* name : {"copy", "add", "sum_", "embedding", "swiglu", "split_", "join_", "adamw"}) {
      if (call.name.starts_with(name)) cases.push_back(call);
    }
  }
  for (const auto& [rows, columns] : std::initializer_list<std::pair<int64_t, int64_t>>{{3, 8}, {67, 264}, {5, 2064}}) {
    add_elementwise_cases(cases, rows, columns);
    add_swiglu_cases(cases, rows, columns);
    add_embedding_cases(cases, rows, 7, columns);
  }
  add_elementwise_cases(cases, 16'500, 1);   // as many blocks of sums as there may be
  add_embedding_cases(cases, 600, 1030, 5);  // more entries than groups of them, some of which have two in turn
  add_embedding_cases(cases, 2100, 2, 3);    // few entries, each of many rows
  add_three_dims_case(cases, 5);
  add_three_dims_case(cases, 16);
  add_scalar_case(cases);
  for (const bool halves : {false, true}) add_adamw_case(cases, 4104, halves, false);
  add_adamw_case(cases, 264, false, true);
  add_adamw_case(cases, 264, true, true, true);
  add_adamw_case(cases, 264, true, false, true);
  add_split_master_cases(cases, 4104);
  for (KernelCase& call : cases) {  // sums of what bfloat16 holds are exact in any order
    if (!call.name.starts_with("embedding_backward")) continue;
    for (double& value : call.arguments[1].values) value = rounded(1.1 * value, DType::float32);
  }
  return cases;
}

class SmallKernels : public ::testing::TestWithParam<KernelCase> {};

// Rows without padding, with one that lets nobody read in packs, and with one that does.
constexpr std::array<int64_t, 3> kPaddings = {0, 3, 16};

TEST_P(SmallKernels, MatchSpecificationInFloat32) {
  for (const int64_t padding : kPaddings) {
    CudaDevice device;
    expect_outcome_matches_specification(GetParam(), DType::float32, padding,
                                         evaluate_on(device, GetParam(), DType::float32, padding));
  }
}
TEST_P(SmallKernels, MatchSpecificationInBfloat16) {
  for (const int64_t padding : kPaddings) {
    CudaDevice device;
    expect_outcome_matches_specification(GetParam(), DType::bfloat16, padding,
                                         evaluate_on(device, GetParam(), DType::bfloat16, padding));
  }
}

// Of what is only moved, or rounded once, or added in the order of rows, every bit is the specification's.
TEST_P(SmallKernels, HaveTheBitsOfTheSpecification) {
  const std::string& name = GetParam().name;
  if (name.starts_with("sum_") || name.starts_with("swiglu") || name.starts_with("adamw")) return;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const Outcome expected = evaluate(GetParam(), {.dtype = dtype, .inputs = dtype});
    CudaDevice device;
    SCOPED_TRACE(name_of(dtype));
    expect_same_results(GetParam(), evaluate_on(device, GetParam(), dtype, 0), expected);
  }
}

// The same call gives the same bits.
TEST_P(SmallKernels, Repeat) {
  CudaDevice device;
  const Outcome first = evaluate_on(device, GetParam(), DType::float32, 0);
  expect_same_results(GetParam(), evaluate_on(device, GetParam(), DType::float32, 0), first);
}

INSTANTIATE_TEST_SUITE_P(All, SmallKernels, ::testing::ValuesIn(small_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// A tensor of one dim there, and what the host knows of it.
class OnDevice {
 public:
  OnDevice(CudaDevice& device, DType dtype, int64_t count) : host_(dtype, {count}), copy_(host_, device) {}
  OnDevice(CudaDevice& device, DType dtype, const std::vector<double>& values)
      : host_(dtype, {static_cast<int64_t>(values.size())}, values), copy_(host_, device) {}
  operator Tensor() const { return copy_.tensor(); }
  operator ConstTensor() const { return copy_.tensor(); }
  InOut in_out() const { return InOut(copy_.tensor()); }
  const Owned& fetch() const {
    copy_.fetch();
    return host_;
  }
  std::vector<double> values() const { return fetch().values(); }

 private:
  Owned host_;
  DeviceCopy copy_;
};

// Every upper half, infinities and NaN among them, with lower halves around the ties.
TEST(SmallKernels, HalvesOfMastersAreTheSpecifications) {
  std::vector<uint32_t> patterns;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x7fffu, 0x8000u, 0xffffu}) patterns.push_back(upper << 16 | lower);
  }
  const auto count = static_cast<int64_t>(patterns.size());
  CudaDevice device;
  const Owned master(DType::float32, {count});
  std::memcpy(master.tensor().raw(), patterns.data(), patterns.size() * sizeof(uint32_t));
  const DeviceCopy there(master, device);
  const OnDevice weight(device, DType::bfloat16, count), rest(device, DType::uint16, count),
      joined(device, DType::float32, count);
  split_master(device.stream, there.tensor(), weight, rest);
  join_master(device.stream, weight, rest, joined);
  const auto* weights = weight.fetch().tensor().data<bfloat16>();
  const auto* rests = rest.fetch().tensor().data<uint16_t>();
  for (size_t i = 0; i < patterns.size(); ++i) {
    const auto value = std::bit_cast<float>(patterns[i]);
    ASSERT_EQ(weights[i].bits, weight_half(value).bits) << std::hex << patterns[i];
    ASSERT_EQ(rests[i], rest_half(value)) << std::hex << patterns[i];
  }
  EXPECT_EQ(std::memcmp(joined.fetch().tensor().raw(), patterns.data(), patterns.size() * sizeof(uint32_t)), 0);
}

// The same bits as an update of whole masters, in packs and one by one.
TEST(SmallKernels, AdamWUpdatesHalvesAsItUpdatesWholeMasters) {
  const AdamW how{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
  for (const int64_t count : {1031, 1032}) {
    CudaDevice device;
    const std::vector<double> nothing(static_cast<size_t>(count));
    const OnDevice p(device, DType::float32, wide_values("p", count)), m(device, DType::float32, nothing),
        v(device, DType::float32, nothing), own_m(device, DType::float32, nothing),
        own_v(device, DType::float32, nothing), weight(device, DType::bfloat16, count),
        rest(device, DType::uint16, count), joined(device, DType::float32, count);
    split_master(device.stream, p, weight, rest);
    for (int step = 1; step <= 3; ++step) {
      const OnDevice gradient(device, DType::float32, random_values("gradient " + std::to_string(step), count));
      const OnDevice scalars(device, DType::float64, update_scalars(step));
      const AdamWParameter whole{
          .weight_decay = 0.1, .gradient = gradient, .weight = p, .first_moment = m, .second_moment = v};
      adamw(device.stream, how, scalars, {whole, in_halves(whole, weight, rest, own_m, own_v)});
      join_master(device.stream, weight, rest, joined);
      ASSERT_EQ(joined.values(), p.values()) << count << " after " << step;
      ASSERT_EQ(own_m.values(), m.values()) << count << " after " << step;
      ASSERT_EQ(own_v.values(), v.values()) << count << " after " << step;
    }
  }
}

// Empty ones, odd ones, those that are read in packs and of several blocks; and more than one launch takes.
std::vector<std::vector<int64_t>> lists() {
  std::vector<int64_t> many(300);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<int64_t>(i * 5 % 17);
  return {{0, 264, 0, 7, 40'003, 1, 0, 1031, 18, 32'768, 16, 0}, many};
}

// The same bits as calls of one parameter each, wherever each begins.
TEST(SmallKernels, AdamWUpdatesAListAsItUpdatesItsParameters) {
  for (const std::vector<int64_t>& counts : lists()) {
    std::vector<KernelCase> cases;
    for (const bool one_by_one : {false, true}) add_adamw_list_case(cases, counts, one_by_one);
    CudaDevice device;
    expect_same_results(cases[0], evaluate_on(device, cases[0], DType::float32, 0),
                        evaluate_on(device, cases[1], DType::float32, 0));
  }
}

// Partial sums follow from the counts: not from where a tensor begins, nor from its neighbours.
TEST(SmallKernels, SquaresOfAListAreThoseOfItsTensors) {
  for (const std::vector<int64_t>& counts : lists()) {
    std::vector<KernelCase> cases;
    for (const bool one_by_one : {false, true}) add_squares_list_case(cases, counts, 1, one_by_one);
    CudaDevice device;
    expect_same_results(cases[0], evaluate_on(device, cases[0], DType::float32, 0),
                        evaluate_on(device, cases[1], DType::float32, 0));
  }
}

// Two runs and a rest, read in packs, and one element later in memory, where nobody can.
TEST(SmallKernels, SquaresDoNotDependOnWhereATensorBegins) {
  constexpr int64_t kCount = 2 * cuda::kSquareRun + 10;
  std::vector<double> values = wide_values("x", kCount);
  CudaDevice device;
  const OnDevice x(device, DType::float32, values);
  values.insert(values.begin(), 3);
  const OnDevice later(device, DType::float32, values), sums(device, DType::float64, {0, 0}),
      scratch(device, DType::float64, 6);
  const std::vector<Squares> squares = {{x, 0}, {ConstTensor(later).rows(1, kCount), 1}};
  sum_of_squares(device.stream, squares, sums.in_out(), scratch);
  EXPECT_GT(sums.values()[0], 0);
  EXPECT_EQ(sums.values()[1], sums.values()[0]);
}

// A skipped update reads nothing that could harm: gradients, scalars and moments may be NaN.
TEST(SmallKernels, ASkippedUpdateChangesNothing) {
  constexpr int64_t kCount = 9;
  CudaDevice device;
  const std::vector<double> values = random_values("values", kCount), bad(kCount, NAN);
  const OnDevice p(device, DType::float32, values), m(device, DType::float32, values),
      v(device, DType::float32, values), gradient(device, DType::float32, bad);
  const OnDevice scalars(device, DType::float64, {NAN, NAN, 0, 0, 1});
  adamw(device.stream, {}, scalars, {{.gradient = gradient, .weight = p, .first_moment = m, .second_moment = v}});
  for (const OnDevice* tensor : {&p, &m, &v}) EXPECT_EQ(tensor->values(), values);
}

struct UpdateOutcome {
  std::vector<double> counters, scalars, result;
};

// make(values) or make(count): a tensor on the stream's device.
template <typename Make>
UpdateOutcome update_on(Stream& stream, const Make& make, const UpdateRule& rule, const std::vector<double>& sums) {
  const auto all = make(sums), counters = make(std::vector<double>{4, 1, 1}), rate = make(std::vector<double>{0.125});
  const auto scalars = make(int64_t{kUpdateScalars}), result = make(int64_t{kUpdateResults});
  update_scalars(stream, rule, all, 2, rate, InOut(Tensor(counters)), scalars, result);
  return {counters.values(), scalars.values(), result.values()};
}

UpdateOutcome update_by_specification(const UpdateRule& rule, const std::vector<double>& sums) {
  struct Make {
    Owned operator()(const std::vector<double>& values) const {
      return Owned(DType::float64, {static_cast<int64_t>(values.size())}, values);
    }
    Owned operator()(int64_t count) const { return Owned(DType::float64, {count}); }
  };
  Device device;
  return update_on(device.stream, Make{}, rule, sums);
}

UpdateOutcome update_on_device(const UpdateRule& rule, const std::vector<double>& sums) {
  CudaDevice device;
  const auto make = [&](const auto& what) { return OnDevice(device, DType::float64, what); };
  return update_on(device.stream, make, rule, sums);
}

void expect_same(const std::vector<double>& found, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isfinite(expected[i])) {
      EXPECT_NEAR(found[i], expected[i], 1e-14 * std::abs(expected[i])) << what << " " << i;
    } else {
      EXPECT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))) << what << " " << i;
    }
  }
}

TEST(SmallKernels, ScalarsOfAnUpdateAreTheSpecifications) {
  for (const double clip : {0.0, 1.0, 100.0}) {
    const UpdateRule rule{.nominal = 12, .clip = clip, .beta1 = 0.5, .beta2 = 0.75};
    for (const std::vector<double>& sums : std::vector<std::vector<double>>{{21, 6, 0, 9, 16, 1e9},
                                                                            {18, 9, 2, 0.04, 0.05},
                                                                            {12, 12, 0, 0, 0},
                                                                            {0, 0, 1, 0, 0},
                                                                            {NAN, 12, 1, 1, 1},
                                                                            {INFINITY, 12, 1, 1, 1},
                                                                            {5, 12, 1, NAN, 1},
                                                                            {5, 12, 1, 1, INFINITY},
                                                                            {5, 12, 1, 1, 3.5e38},
                                                                            {5, 12, 1, 1.5e308, 1.5e308}}) {
      const UpdateOutcome expected = update_by_specification(rule, sums);
      const UpdateOutcome found = update_on_device(rule, sums);
      const std::string what = "clip " + std::to_string(clip) + ", loss " + std::to_string(sums[0]) + ":";
      expect_same(found.counters, expected.counters, what + " counter");
      expect_same(found.scalars, expected.scalars, what + " scalar");
      expect_same(found.result, expected.result, what + " result");
    }
  }
}

TEST(SmallKernels, RefuseFloat64) {
  const auto refused = [](const std::string& name, size_t argument, Kind kind) {
    for (KernelCase call : small_cases()) {
      if (call.name != name) continue;
      call.arguments[argument].kind = kind;
      expect_fault("float64", [&] {
        CudaDevice device;
        evaluate_on(device, call, DType::float64, 0);
      });
      return;
    }
    ADD_FAILURE() << "no case " << name;
  };
  refused("copy_7_13", 1, Kind::float32);
  refused("copy_7_13", 0, Kind::float32);
  for (const char* name : {"sum_of_squares_7_13", "sum_columns_7_13", "embedding_forward_7_11_13",
                           "embedding_backward_7_11_13", "swiglu_forward_7_13", "swiglu_backward_7_13"}) {
    refused(name, 0, name[0] == 'e' ? Kind::int32 : Kind::activation);
  }
  refused("adamw_7_0_0", 1, Kind::accumulation);
}

TEST(SmallKernels, FaultOfAListTellsItsFirstTensors) {
  CudaDevice device;
  const OnDevice scalars(device, DType::float64, std::vector<double>(kUpdateScalars));
  const OnDevice values(device, DType::float64, 3);
  const AdamWParameter parameter{.gradient = values, .weight = values, .first_moment = values, .second_moment = values};
  const std::string three =
      "adamw of float64 [" + std::to_string(kUpdateScalars) + "], float64 [3], float64 [3], float64 [3]";
  for (const auto& [count, told] : {std::pair{3, three + ":"}, {5, three + " and 2 others:"}}) {
    expect_fault(told, [&, count = count] {
      adamw(device.stream, {}, scalars, std::vector<AdamWParameter>(static_cast<size_t>(count), parameter));
    });
  }
}

TEST(SmallKernels, SumsNeedTheirScratch) {
  CudaDevice device;
  const Owned host(DType::float32, {7, 3});
  const DeviceCopy x(host, device);
  const OnDevice sum(device, DType::float64, 1), sums(device, DType::float64, 3);
  expect_fault("sum_of_squares: scratch is undefined, but [1] is needed", [&] {
    sum_of_squares(device.stream, {{x.tensor(), 0}}, sum.in_out());
  });
  expect_fault("sum_columns: scratch is undefined, but [1, 3] is needed",
               [&] { sum_columns(device.stream, x.tensor(), sums.in_out()); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
