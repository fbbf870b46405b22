// Loss, gradients and ten AdamW steps compared with the reference of tests/reference, for every form of the shift.
#include "train/golden.h"

#include <cmath>

namespace shiftron::testing {
namespace {

double median(std::map<std::string, double> values) {
  std::vector<double> sorted;
  for (const auto& [name, value] : values) sorted.push_back(value);
  std::ranges::sort(sorted);
  return sorted.at(sorted.size() / 2);
}

std::vector<double> minus(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

class GoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTest, Float64AgreesTo1e10) {
  for (const char* seed : kGoldenSeeds) {
    const Golden golden = read_golden(std::string(GetParam()) + "-" + seed, Precision::fp64);
    SCOPED_TRACE(std::string("seed ") + seed);
    expect_agrees_to_1e10(train_golden(golden), golden);
  }
}

// Errors by tensor over the seeds; the median of the three counts, on both sides. PyTorch's own error says how large
// rounding may be, but it is one draw of a random number with a long tail: AdamW makes a whole step of a gradient near
// 0 whose sign rounding turns. The 4 to 16 numbers of a shift parameter are too few even for that and are pooled over
// layers and streams. What is wrong rather than rounded shows in float64, above, in every seed and tensor.
class Errors {
 public:
  void add(const std::string& tensor, double error) {
    draws_[tensor.find(".shift_") == std::string::npos ? tensor : "shift parameters"].push_back(error);
  }
  std::map<std::string, double> values() const {
    std::map<std::string, double> values;
    for (auto [tensor, draws] : draws_) {
      std::ranges::sort(draws);
      values[tensor] = draws[draws.size() / 2];
    }
    return values;
  }

 private:
  std::map<std::string, std::vector<double>> draws_;
};

void expect_at_most_twice(const Errors& ours, const Errors& theirs, const std::string& what) {
  const auto limits = theirs.values();
  const double typical = median(limits);
  for (const auto& [tensor, error] : ours.values()) {
    EXPECT_LE(error, 2 * std::max(limits.at(tensor), typical)) << what << " of " << tensor;
  }
}

// Each tensor's error may be twice what PyTorch makes of it in that precision, or twice its median over tensors.
void expect_as_good_as_pytorch(const std::string& name, Precision precision) {
  Errors loss, loss_limit, gradient, gradient_limit, update, update_limit;
  for (const char* seed : kGoldenSeeds) {
    const Golden golden = read_golden(name + "-" + seed, precision);
    const Measured measured = train_golden(golden);
    for (const auto& [tensor, expected] : golden.gradient) {
      gradient.add(tensor, relative_difference(measured.gradient.at(tensor), expected));
      gradient_limit.add(tensor, golden.gradient_error.at(tensor));
    }
    for (const auto& [tensor, expected] : golden.final) {
      const auto& start = golden.initial.at(tensor);
      update.add(tensor, relative_difference(minus(measured.final.at(tensor), start), minus(expected, start)));
      update_limit.add(tensor, golden.update_error.at(tensor));
    }
    for (size_t i = 0; i < golden.loss.size(); ++i) loss.add("steps", std::abs(measured.loss[i] / golden.loss[i] - 1));
    loss_limit.add("steps", golden.loss_error);
  }
  expect_at_most_twice(loss, loss_limit, "loss");
  expect_at_most_twice(gradient, gradient_limit, "gradient");
  expect_at_most_twice(update, update_limit, "update");
}

TEST_P(GoldenTest, Float32AsGoodAsPyTorch) {
  expect_as_good_as_pytorch(GetParam(), Precision::fp32);
}
TEST_P(GoldenTest, Bfloat16AsGoodAsPyTorch) {
  expect_as_good_as_pytorch(GetParam(), Precision::bf16);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, ::testing::ValuesIn(kGoldenModels),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace shiftron::testing
