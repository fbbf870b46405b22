// The emulated cuBLASLt finds what is wrong with a call, and products report what the library refuses.
#include "cuda/blas.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <cstring>

#include "core/sanitizer.h"
#include "cuda/blas_product.h"
#include "cuda/device_testing.h"
#include "cuda/streams.h"
#include "kernels/all_cases.h"

namespace shiftron::kernel_testing {
namespace {

constexpr const char* kCalls[] = {"cublasLtMatmulDescCreate",
                                  "cublasLtMatmulDescSetAttribute",
                                  "cublasLtMatrixLayoutCreate",
                                  "cublasLtMatmulPreferenceCreate",
                                  "cublasLtMatmulAlgoGetHeuristic",
                                  "cublasLtMatmulPreferenceSetAttribute",
                                  "cublasLtMatmul"};

KernelCase one_case(const std::string& kernel, int64_t rows, int64_t in, int64_t out) {
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, rows, in, out);
  for (const KernelCase& call : cases) {
    if (call.name.starts_with(kernel + "_" + std::to_string(rows))) return call;
  }
  throw_crash("no case of ", kernel);
}

// ---- products on the emulator ---------------------------------------------------------------------------------------
TEST(ProductFaults, EveryRefusedCallSpeaks) {
  const KernelCase call = one_case("matmul_forward", 13, 17, 11);
  for (const char* refused : kCalls) {
    CudaDevice device;
    machine::refuse_next_product(refused, CUBLAS_STATUS_NOT_SUPPORTED);
    expect_fault(std::string(refused) +
                     ": CUBLAS_STATUS_NOT_SUPPORTED for [13, 11] = [13, 17] [11, 17]ᵀ, bfloat16 to bfloat16, row "
                     "strides 14, 20, 20, addresses divisible by ",
                 [&] { evaluate_on(device, call, DType::bfloat16, 3); });
    // and what comes next is right
    expect_outcome_matches_specification(call, DType::bfloat16, 3, evaluate_on(device, call, DType::bfloat16, 3));
  }
  machine::refuse_next_product("cublasLtCreate", CUBLAS_STATUS_NOT_INITIALIZED);
  expect_fault("cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED for a device", [] { CudaDevice device; });
}

// As the library wants it, before a product is refused in the middle of a step.
TEST(ProductFaults, AWorkspaceIsAligned) {
  const CudaDevice device;
  expect_fault(" is not aligned to 256", [&] { CudaDevice other(static_cast<std::byte*>(device.workspace()) + 128); });
}

// While candidates are timed.
struct TimedProducts {
  TimedProducts() { device.products().time_candidates(true); }
  double seconds() { return device.products().choices().of.begin()->second.seconds; }
  CudaDevice device;
};

TEST(ProductFaults, ACandidateThatFailsIsLeftOut) {
  const KernelCase call = one_case("matmul_forward", 13, 17, 11);
  TimedProducts timed;
  machine::refuse_next_product("cublasLtMatmul", CUBLAS_STATUS_EXECUTION_FAILED);
  expect_outcome_matches_specification(call, DType::bfloat16, 3, evaluate_on(timed.device, call, DType::bfloat16, 3));
  ASSERT_EQ(timed.device.products().untimed().size(), 1u);
  EXPECT_THAT(timed.device.products().untimed().front(),
              ::testing::HasSubstr("cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED for [13, 11]"));
  EXPECT_GT(timed.seconds(), 0);
}

// Which CUDA and the libraries may need later: 256 MiB.
TEST(ProductFaults, TimingLeavesMemoryFree) {
  const KernelCase call = one_case("matmul_backward_weight", 13, 17, 11);
  for (const bool room : {true, false}) {
    machine::restart_device({}, int64_t{room ? 260 : 250} << 20);
    TimedProducts timed;
    evaluate_on(timed.device, call, DType::bfloat16, 3);
    EXPECT_EQ(timed.seconds() > 0, room);
    EXPECT_EQ(timed.device.products().untimed().empty(), room);
  }
  machine::restart_device({});
}

TEST(ProductFaults, NothingIsLeftBehind) {
  const int64_t before = machine::living_product_objects();
  const KernelCase call = one_case("matmul_forward", 13, 17, 11);
  for (const char* refused : kCalls) {
    CudaDevice device;
    machine::refuse_next_product(refused, CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_THROW(evaluate_on(device, call, DType::bfloat16, 3), Error);
    evaluate_on(device, call, DType::bfloat16, 3);
    EXPECT_GT(machine::living_product_objects(), before);
  }
  EXPECT_EQ(machine::living_product_objects(), before);
}

// As files of runs may hold it.
TEST(ProductFaults, AKeptAlgorithmThatRoundsPartsOfSumsIsForeign) {
  CudaDevice first, second;
  evaluate_on(first, one_case("matmul_forward", 13, 17, 11), DType::bfloat16, 0);
  ProductChoices chosen = first.products().choices();
  std::array<uint64_t, 8>& bytes = chosen.of.begin()->second.algorithm;
  machine::Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), bytes.data(), sizeof(algorithm));
  for (const auto reduction : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}) {
    algorithm.reduction = reduction;
    algorithm.seal = machine::seal_of(algorithm);
    std::memcpy(bytes.data(), &algorithm, sizeof(algorithm));
    EXPECT_THROW(second.products().adopt(chosen), ForeignChoices);
  }
  EXPECT_TRUE(second.products().choices().of.empty());
}

// The library is asked once for a shape.
TEST(ProductFaults, ChoicesAreMadeOnce) {
  CudaDevice device;
  const KernelCase call = one_case("matmul_backward_weight", 37, 29, 65);
  evaluate_on(device, call, DType::bfloat16, 0);
  const int64_t before = machine::living_product_objects();
  for (const char* refused : kCalls) {
    if (std::string(refused) == "cublasLtMatmul") continue;
    machine::refuse_next_product(refused, CUBLAS_STATUS_NOT_SUPPORTED);
    EXPECT_NO_THROW(evaluate_on(device, call, DType::bfloat16, 0)) << refused;
  }
  EXPECT_EQ(machine::living_product_objects(), before);
  machine::refuse_next_product("", CUBLAS_STATUS_SUCCESS);
}

// Whichever algorithm comes first, and however sums are cut.
TEST(ProductSeeds, EveryAlgorithmMatchesSpecification) {
  std::vector<KernelCase> cases;
  add_matmul_cases(cases, 37, 129, 65);
  std::vector<std::array<uint64_t, 8>> met;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    machine::seed_products(seed);
    for (const KernelCase& call : cases) {
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        CudaDevice device;
        expect_outcome_matches_specification(call, dtype, 3, evaluate_on(device, call, dtype, 3));
        const auto& algorithm = device.products().choices().of.begin()->second.algorithm;
        if (std::find(met.begin(), met.end(), algorithm) == met.end()) met.push_back(algorithm);
      }
    }
  }
  machine::seed_products(0);
  EXPECT_GE(met.size(), 4 * cases.size());
}

// Whichever algorithm would come first.
TEST(ProductSeeds, NoAlgorithmRoundsPartsOfSums) {
  const KernelCase call = one_case("matmul_forward", 13, 517, 11);
  for (uint64_t seed = 0; seed < 24; ++seed) {
    machine::seed_products(seed);
    CudaDevice device;
    evaluate_on(device, call, DType::bfloat16, 0);
    EXPECT_NE(reduction_of(device.products().choices().of.begin()->second), CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
        << "seed " << seed;
  }
  machine::seed_products(0);
}

// Bits change with the seed and with nothing else.
TEST(ProductSeeds, BitsRepeat) {
  const KernelCase call = one_case("matmul_forward", 13, 517, 11);
  const auto values_of = [&](uint64_t seed) {
    machine::seed_products(seed);
    CudaDevice device;
    return evaluate_on(device, call, DType::float32, 0).values.back();
  };
  const std::vector<double> first = values_of(1);
  EXPECT_EQ(values_of(1), first);
  int others = 0;
  for (uint64_t seed = 2; seed < 6; ++seed) others += values_of(seed) != first ? 1 : 0;
  EXPECT_GE(others, 3);
  machine::seed_products(0);
}

// A product that is called again and again in a stream, and what it must give.
struct Repeated {
  Repeated(CudaDevice& on, const KernelCase& what) : device(on), call(what) {
    expected = evaluate_on(device, call, DType::float32, 0).values.back();
    for (const Argument& argument : call.arguments) {
      Owned& host = owned.emplace_back(DType::float32, argument.shape);
      if (!argument.values.empty()) host.set(argument.values);
      tensors.push_back(copies.emplace_back(std::make_unique<DeviceCopy>(host, device))->tensor());
    }
  }
  void run() { call.run(device.stream, tensors); }
  bool is_right() {
    copies.back()->fetch();
    return owned.back().values() == expected;
  }
  CudaDevice& device;
  const KernelCase& call;
  std::vector<double> expected;
  std::vector<Owned> owned;
  std::vector<Tensor> tensors;
  std::vector<std::unique_ptr<DeviceCopy>> copies;
};

// Products of two streams, whose operations the emulator orders as it chooses.
bool two_streams_are_right(CudaDevice& one, CudaDevice& other) {
  const KernelCase of_one = one_case("matmul_forward", 13, 517, 11);
  const KernelCase of_other = one_case("matmul_forward", 17, 131, 19);
  Repeated first(one, of_one), second(other, of_other);
  for (int i = 0; i < 4; ++i) {
    first.run();
    second.run();
  }
  const bool first_is_right = first.is_right();
  return second.is_right() && first_is_right;
}

// How often products of two streams, of 24 orders, are wrong.
int wrong_of_streams(bool share_a_workspace) {
  int wrong = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    machine::restart_device({.order = Order::random, .seed = seed});
    machine::seed_products(seed);
    CudaDevice one, other(share_a_workspace ? one.workspace() : nullptr);
    wrong += two_streams_are_right(one, other) ? 0 : 1;
  }
  machine::restart_device({});
  machine::seed_products(0);
  return wrong;
}

TEST(ProductStreams, HaveWorkspacesOfTheirOwn) {
  EXPECT_EQ(wrong_of_streams(false), 0);
}

TEST(ProductStreams, ShareNoWorkspace) {
  if (sanitizer::kThreads) {  // whose exit code is 66
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(wrong_of_streams(true), ::testing::ExitedWithCode(66), "data race");
  } else {
    EXPECT_GE(wrong_of_streams(true), 3);
  }
}

// ---- the emulator itself --------------------------------------------------------------------------------------------
// D [4, 3] = op(A) op(B) of 5 terms, in float32.
struct Call {
  cublasOperation_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
  std::array<int64_t, 3> a = {4, 5, 4}, b = {5, 3, 5}, c = {4, 3, 4};  // rows, columns, leading dimension
  cudaDataType_t result = CUDA_R_32F;
  uint64_t workspace = 1 << 16;
  uint64_t given = 1 << 16;  // to the product
  int64_t a_offset = 0;      // elements
  float beta = 0;
  bool into_a = false;
  std::array<int64_t, 3> then = {4, 5, 4};  // A of the product, where it differs from that of the heuristic
};

// The result, or what was wrong.
class Library {
 public:
  Library() {
    expect_done(cudaMalloc(&memory_, kBytes));
    expect_done(cudaMallocHost(&pinned_, kBytes));
    expect_done(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0));
    cublasLtCreate(&handle_);
  }
  ~Library() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
    cudaFree(memory_);
    cudaFreeHost(pinned_);
    cublasLtDestroy(handle_);
  }
  Library(const Library&) = delete;

  std::vector<float> run(const Call& call, const std::vector<float>& numbers) {
    expect_done(cudaStreamSynchronize(stream_));  // a call that threw has not waited
    std::memset(pinned_, 0xFF, kBytes);
    auto* host = static_cast<float*>(pinned_);
    std::copy(numbers.begin(), numbers.end(), host);
    expect_done(cudaMemcpyAsync(memory_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_));
    auto* floats = static_cast<float*>(memory_);
    const Made made(call);
    cublasLtMatmulHeuristicResult_t found[16];
    int count = 0;
    cublasLtMatmulAlgoGetHeuristic(handle_, made.description, made.a, made.b, made.c, made.c, made.preference, 16,
                                   found, &count);
    const auto* usable = std::find_if(found, found + count, [](const auto& one) { return one.state == 0; });
    const float alpha = 1;
    float* result = call.into_a ? floats : floats + kResult;
    cublasLtMatmul(handle_, made.description, &alpha, floats + call.a_offset, made.then, floats + kSecond, made.b,
                   &call.beta, result, made.c, result, made.c, &usable->algo, floats + kWorkspace, call.given, stream_);
    expect_done(cudaMemcpyAsync(pinned_, memory_, kBytes, cudaMemcpyDeviceToHost, stream_));
    expect_done(cudaStreamSynchronize(stream_));
    std::vector<float> values(host + kResult, host + kResult + 12);
    return values;
  }

  static constexpr int64_t kSecond = 64, kResult = 128, kWorkspace = 192;  // elements
  static constexpr size_t kBytes = 4 * kWorkspace + (1 << 16);

 private:
  struct Made {
    explicit Made(const Call& call) {
      cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
      const int32_t operations[] = {call.first, call.second};
      cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &operations[0], 4);
      cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &operations[1], 4);
      const auto layout = [](cublasLtMatrixLayout_t* made, cudaDataType_t type, const std::array<int64_t, 3>& extents) {
        cublasLtMatrixLayoutCreate(made, type, static_cast<uint64_t>(extents[0]), static_cast<uint64_t>(extents[1]),
                                   extents[2]);
      };
      layout(&a, CUDA_R_32F, call.a);
      layout(&b, CUDA_R_32F, call.b);
      layout(&c, call.result, call.c);
      layout(&then, CUDA_R_32F, call.then);
      cublasLtMatmulPreferenceCreate(&preference);
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &call.workspace, 8);
    }
    ~Made() {
      cublasLtMatmulDescDestroy(description);
      for (const cublasLtMatrixLayout_t one : {a, b, c, then}) cublasLtMatrixLayoutDestroy(one);
      cublasLtMatmulPreferenceDestroy(preference);
    }
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, then = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
  };
  cublasLtHandle_t handle_ = nullptr;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
  void* pinned_ = nullptr;
};

// A = 1 … 20 by columns of 4; B = 1 at [j, j]. The result is A's first three columns: 1 … 12.
std::vector<float> numbers_of_call() {
  std::vector<float> numbers(static_cast<size_t>(Library::kResult), 0.0f);
  for (size_t i = 0; i < 20; ++i) numbers[i] = static_cast<float>(i + 1);
  for (size_t j = 0; j < 3; ++j) numbers[Library::kSecond + 5 * j + j] = 1;
  return numbers;
}

TEST(BlasStandIn, MultipliesAndReadsNoResult) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    machine::seed_products(seed);
    Library library;
    EXPECT_THAT(library.run({}, numbers_of_call()), ::testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
    for (const float value : library.run({.beta = 1}, numbers_of_call())) EXPECT_TRUE(std::isnan(value));
  }
  machine::seed_products(0);
}

TEST(BlasStandIn, FindsFaults) {
  Library library;
  const auto fault = [&](const std::string& text, const Call& call) {
    expect_fault(text, [&] { library.run(call, numbers_of_call()); });
  };
  fault("op(A) has 4 columns, op(B) 5 rows", {.first = CUBLAS_OP_T});
  fault("op(A) has 5 columns, op(B) 3 rows", {.second = CUBLAS_OP_T});
  fault("a result of 3 x 4, the product has 4 x 3", {.c = {3, 4, 4}});
  fault("leading dimension 3 of 4 rows", {.c = {4, 3, 3}});
  fault("a matrix of 4 x 0", {.a = {4, 0, 4}});
  fault("float32 to bfloat16", {.result = CUDA_R_16BF});
  fault("the algorithm was made for another product", {.a = {4, 5, 8}});
  fault("matrix A is no multiple of 256 bytes", {.a_offset = 1});
  fault("the result lies in an operand", {.into_a = true});
  machine::seed_products(1);
  int refused = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    machine::seed_products(seed);
    try {
      library.run({.given = 0}, numbers_of_call());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a workspace of 0 bytes"), std::string::npos) << error.what();
      ++refused;
    }
  }
  machine::seed_products(0);
  EXPECT_GE(refused, 2);
}

TEST(BlasStandIn, KnowsNoOtherAttributes) {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  const int32_t value = CUBLASLT_POINTER_MODE_HOST;
  expect_fault("attribute 2 is not emulated", [&] {
    cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_POINTER_MODE, &value, sizeof(value));
  });
  cublasLtMatmulDescDestroy(description);
  expect_fault("computes in ", [&] { cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_64F, CUDA_R_64F); });
}

}  // namespace
}  // namespace shiftron::kernel_testing
