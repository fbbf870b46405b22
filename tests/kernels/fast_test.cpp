// Fast bodies against the float64 specification, over the table of awkward calls.

#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <thread>

#include "kernels/all_cases.h"
#include "kernels/kernel_testing.h"
#include "kernels/matrix.h"
#include "kernels/thread_team.h"

namespace shiftron::kernel_testing {
namespace {

class FastTest : public ::testing::TestWithParam<KernelCase> {};

TEST_P(FastTest, Float32MatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::float32, 0);
}
TEST_P(FastTest, Float32WithStridedRowsMatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::float32, 3);
}
TEST_P(FastTest, Bfloat16MatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::bfloat16, 0);
}
TEST_P(FastTest, Bfloat16WithStridedRowsMatchesSpecification) {
  expect_fast_matches_specification(GetParam(), DType::bfloat16, 3);
}

// The same call gives the same bits.
TEST_P(FastTest, Repeats) {
  const How how{.dtype = DType::bfloat16, .inputs = DType::bfloat16, .bodies = Bodies::fast};
  const Outcome first = evaluate(GetParam(), how);
  const Outcome second = evaluate(GetParam(), how);
  for (size_t i = 0; i < first.values.size(); ++i) {
    if (is_result(GetParam().arguments[i])) {
      EXPECT_EQ(first.values[i], second.values[i]) << GetParam().arguments[i].name;
    }
  }
}

// The library's products add up in an order that follows its threads on processors before AVX-512, in bfloat16 on those
// without such products, where it emulates them; in float32 with AVX-512 too, but not for sums as short as these.
bool bits_are_ours(const KernelCase& call, DType dtype) {
  if (!call.name.starts_with("matmul")) return true;
#if defined(__x86_64__)
  return dtype == DType::float32 && __builtin_cpu_supports("avx512f") && std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr;
#else
  return false;
#endif
}

// One thread against two: work is divided by rows, columns or heads, never within a sum.
void expect_bits_of_no_thread(const KernelCase& call, DType dtype) {
  const How alone{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 1};
  const How together{.dtype = dtype, .inputs = DType::bfloat16, .bodies = Bodies::fast, .threads = 2};
  const Outcome one = evaluate(call, alone), two = evaluate(call, together);
  for (size_t i = 0; i < one.values.size(); ++i) {
    if (is_result(call.arguments[i])) {
      EXPECT_EQ(one.values[i], two.values[i]) << call.arguments[i].name << " in " << name_of(dtype);
    }
  }
}
void expect_bits_of_no_thread(const KernelCase& call) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    if (bits_are_ours(call, dtype)) expect_bits_of_no_thread(call, dtype);
  }
  expect_bits_of_no_thread(made_by(ProductsBy::float32, call), DType::bfloat16);
}

TEST_P(FastTest, BitsDependOnNoThread) {
  expect_bits_of_no_thread(GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, FastTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& parameter) { return parameter.param.name; });

// The products in float32 that serve bfloat16 on processors without bfloat16 products.
TEST(FastMatmul, Bfloat16StorageWithFloat32Products) {
  for (const KernelCase& call : all_cases()) {
    if (!call.name.starts_with("matmul") && !call.name.starts_with("attention")) continue;
    expect_fast_matches_specification(made_by(ProductsBy::float32, call), DType::bfloat16, 3);
  }
}

// Sums as long as a training step's.
TEST(FastMatmul, BitsOfLongSumsDependOnNoThread) {
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, 2100, 40, 24);
  add_matmul_cases(cases, 70, 48, 4000);
  add_matmul_cases(cases, 4100, 258, 300);
  add_matmul_cases(cases, 1030, 258, 1024);
  for (const KernelCase& call : cases) expect_bits_of_no_thread(call);
}

// Of many rows by a narrow weight, and gradients of one whose rows lie a multiple of 4 KiB apart: by the library's
// matmul.
TEST(FastMatmul, NarrowProductsMatchSpecification) {
  ASSERT_TRUE(fast::packs_weight(2050, 258, 301));
  ASSERT_TRUE(fast::gradient_by_library(1030, 258, 1023, 1023 + 1));
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, 2050, 258, 301);
  add_matmul_cases(cases, 2050, 301, 258);
  add_matmul_cases(cases, 1030, 258, 1023);  // and one of padding
  for (const KernelCase& call : cases) expect_fast_matches_specification(call, DType::float32, 1);
}

#ifdef SHIFTRON_TEAM_FOR_ONEDNN
// A second pool of threads would fight the team for the processors.
TEST(FastMatmul, TheLibraryComputesInTheTeam) {
  const auto threads_of_process = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, 515, 258, 301);
  constexpr int kThreads = 4;
  std::ptrdiff_t before = 0, after = 0;
  std::thread([&] {  // its team is new
    start_threads(kThreads);
    before = threads_of_process();
    for (const KernelCase& call : cases) {
      evaluate(call, {.dtype = DType::float32, .bodies = Bodies::fast, .threads = kThreads});
    }
    after = threads_of_process();
  })
      .join();
  EXPECT_EQ(after, before);
}
#endif

TEST(FastMatmul, MeasuresAPeak) {
  Device device(DeviceKind::cpu, Bodies::fast);
  EXPECT_GT(measure_matmul_peak(device.stream.cpu, DType::float32), 1e6);
  EXPECT_TRUE(device.ledger.kernels().empty());
}

}  // namespace
}  // namespace shiftron::kernel_testing
