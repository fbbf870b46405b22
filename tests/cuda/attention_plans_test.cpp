// Which calls of attention cuDNN's plans serve, and how long these are kept.
#include "cuda/attention_cases.h"
#include "cuda/device_testing.h"
#include "cuda/dnn.h"

namespace shiftron::kernel_testing {
namespace {

// How many plans one call of the case executes.
int64_t plans_of(const std::string& name, DType dtype, int64_t padding) {
  const int64_t before = machine::executed_plans();
  CudaDevice device;
  evaluate_on(device, case_of(attention_cases(), name), dtype, padding);
  return machine::executed_plans() - before;
}

TEST(AttentionPlans, ServeAlignedRowsInBfloat16) {
  EXPECT_EQ(plans_of("attention_forward_grouped", DType::bfloat16, 0), 1);
  EXPECT_EQ(plans_of("attention_backward_grouped", DType::bfloat16, 16), 1);
  EXPECT_EQ(plans_of("attention_forward_samples_of_documents", DType::bfloat16, 0), 1);
  EXPECT_EQ(plans_of("attention_forward_grouped", DType::bfloat16, 3), 0);
  EXPECT_EQ(plans_of("attention_forward_grouped", DType::float32, 0), 0);
  EXPECT_EQ(plans_of("attention_forward_primes", DType::bfloat16, 0), 0);
  EXPECT_EQ(plans_of("attention_forward_decode_rows", DType::bfloat16, 0), 0);
  EXPECT_EQ(plans_of("attention_backward_one_row", DType::bfloat16, 0), 0);
}

// What cuDNN refuses is done all the same.
TEST(AttentionPlans, AreNotNeeded) {
  for (const char* name : {"attention_forward_grouped", "attention_backward_grouped"}) {
    CudaDevice device;
    machine::refuse_next_plans(3, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    const int64_t before = machine::executed_plans();
    const KernelCase call = case_of(attention_cases(), name);
    expect_outcome_matches_specification(call, DType::bfloat16, 0, evaluate_on(device, call, DType::bfloat16, 0));
    EXPECT_EQ(machine::executed_plans(), before);
    EXPECT_EQ(device.attention().refusals().size(), 1u);
  }
}

constexpr int64_t kRoom = 1 << 20;  // bytes

// A plan is made once; a refused one is not asked for again, and what was said of it is kept.
TEST(AttentionPlans, AreKept) {
  const int64_t before = machine::living_graph_objects();
  {
    CudaAttention attention("a device");
    AttentionProblem problem{.samples = 1, .length = 4, .heads = 2, .kv_heads = 1, .head_dim = 8};
    problem.q = problem.out = {16, 8};
    problem.k = problem.v = {8, 8};
    problem.statistics = 4;
    EXPECT_TRUE(attention.serves(problem, kRoom));
    const int64_t objects = machine::living_graph_objects();
    EXPECT_TRUE(attention.serves(problem, kRoom));
    EXPECT_EQ(machine::living_graph_objects(), objects);
    problem.samples = 2;
    machine::refuse_next_plans(3, CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
    EXPECT_FALSE(attention.serves(problem, kRoom));
    EXPECT_FALSE(attention.serves(problem, kRoom));
    ASSERT_EQ(attention.refusals().size(), 1u);
    EXPECT_NE(attention.refusals().front().find("2 samples of 4 rows, heads 2/1 of 8"), std::string::npos)
        << attention.refusals().front();
  }
  EXPECT_EQ(machine::living_graph_objects(), before);
}

TEST(AttentionPlans, NeedTheirScratch) {
  AttentionProblem problem{.pass = AttentionPass::backward, .samples = 1, .length = 4, .heads = 2};
  problem.kv_heads = 1;
  problem.head_dim = 8;
  problem.q = problem.out = problem.d_out = problem.d_q = {16, 8};
  problem.k = problem.v = problem.d_k = problem.d_v = {8, 8};
  problem.statistics = 4;
  CudaAttention attention("a device");
  ASSERT_TRUE(attention.serves(problem, kRoom));
  const Tensor scratch(nullptr, DType::float32, {256}, DeviceKind::cuda);
  expect_fault("bytes of scratch, but has 1024", [&] { attention.run(nullptr, problem, {}, scratch); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
