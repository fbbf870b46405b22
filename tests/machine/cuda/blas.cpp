// Emulates the part of cuBLASLt that products use, in plain loops: column-major matrices, float32 sums that are split
// at random. Unknown or inconsistent input is an Error, never a guess; undefined functions do not link. An algorithm
// with a workspace runs as two operations of the stream, so that another use of the workspace in between shows.
#include "cuda/blas.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/check.h"
#include "core/philox.h"
#include "cuda/blas_product.h"
#include "cuda/injection.h"
#include "cuda/streams.h"

struct cublasLtContext {
  uint64_t mark;
};

namespace shiftron::machine {
namespace {

constexpr uint64_t kHandle = 0x68616E646C65;  // what a handle holds while it lives

uint64_t first_seed() {
  const char* seed = std::getenv("SHIFTRON_MACHINE_SEED");
  return seed == nullptr ? 0 : std::strtoull(seed, nullptr, 10);
}

struct Told {  // by tests
  std::atomic<uint64_t> seed{first_seed()};
  std::atomic<int64_t> living{0}, asked{0}, checked{0};
};
Told& told() {
  static Told value;
  return value;
}

struct Refusal {
  std::string function;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
};
Refusal& refusal() {
  thread_local Refusal value;
  return value;
}

// Where `function` is to be refused: with what, `usually` where a call of any is to fail. Else success.
cublasStatus_t refused(const char* function, cublasStatus_t usually = CUBLAS_STATUS_ALLOC_FAILED) {
  if (const cublasStatus_t told = injected(CallKind::product, function, usually)) return told;
  if (usually == CUBLAS_STATUS_EXECUTION_FAILED && injection()->device_lost()) return usually;
  if (refusal().function != function) return CUBLAS_STATUS_SUCCESS;
  refusal().function.clear();
  return refusal().status;
}

template <typename Mine, typename Theirs>
void create(Theirs** made, const Mine& mine) {
  *made = new Theirs{};
  write(mine, *made);
  ++told().living;
}
template <typename Mine, typename Theirs>
cublasStatus_t destroy(Theirs* theirs, const char* function) {
  read<Mine>(theirs, function, "object to destroy");
  std::memset(theirs, 0, sizeof(uint64_t));
  delete theirs;
  --told().living;
  return CUBLAS_STATUS_SUCCESS;
}

void check_handle(const char* function, cublasLtHandle_t handle) {
  expect(handle != nullptr && handle->mark == kHandle, function, "the handle was destroyed, or never made");
}

}  // namespace

void seed_products(uint64_t seed) {
  told().seed = seed;
}
void refuse_next_product(const std::string& function, cublasStatus_t status) {
  refusal() = {function, status};
}
int64_t heuristics_asked() {
  return told().asked;
}
int64_t algorithms_checked() {
  return told().checked;
}
int64_t living_product_objects() {
  return told().living;
}

}  // namespace shiftron::machine

namespace machine = shiftron::machine;

size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
      return "another CUBLAS_STATUS";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_NOT_INITIALIZED)) return told;
  *handle = new cublasLtContext{machine::kHandle};
  ++machine::told().living;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  machine::check_handle(__func__, handle);
  handle->mark = 0;
  delete handle;
  --machine::told().living;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute, cudaDataType_t scale) {
  if (const cublasStatus_t told = machine::refused(__func__)) return told;
  machine::expect(compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F, __func__, "computes in ", compute,
                  ", scales in ", scale);
  machine::create(made, machine::Description{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return machine::destroy<machine::Description>(description, __func__);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_INVALID_VALUE)) return told;
  auto mine = machine::read<machine::Description>(description, __func__, "description");
  machine::expect(value != nullptr && bytes == sizeof(int32_t), __func__, "a value of ", bytes, " bytes");
  int32_t operation = 0;
  std::memcpy(&operation, value, bytes);
  machine::expect(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T, __func__, "operation ", operation);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      mine.first = operation;
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      mine.second = operation;
      break;
    default:
      shiftron::throw_crash(__func__, ": attribute ", static_cast<int>(attribute), " is not emulated");
  }
  machine::write(mine, description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  if (const cublasStatus_t told = machine::refused(__func__)) return told;
  machine::expect(type == CUDA_R_32F || type == CUDA_R_16BF, __func__, "type ", type);
  machine::expect(rows > 0 && columns > 0, __func__, "a matrix of ", rows, " x ", columns);
  machine::expect(stride >= static_cast<int64_t>(rows), __func__, "leading dimension ", stride, " of ", rows, " rows");
  machine::create(made, machine::Layout{.type = type,
                                        .rows = static_cast<int64_t>(rows),
                                        .columns = static_cast<int64_t>(columns),
                                        .stride = stride});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return machine::destroy<machine::Layout>(layout, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  if (const cublasStatus_t told = machine::refused(__func__)) return told;
  machine::create(made, machine::Preference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return machine::destroy<machine::Preference>(preference, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_INVALID_VALUE)) return told;
  auto mine = machine::read<machine::Preference>(preference, __func__, "preference");
  const bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  const bool reductions = attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK;
  const bool alignment = attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
                         attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
  machine::expect(workspace || reductions || alignment, __func__, "attribute ", static_cast<int>(attribute),
                  " is not emulated");
  machine::expect(value != nullptr && bytes == (workspace ? sizeof(uint64_t) : sizeof(uint32_t)), __func__,
                  "a value of ", bytes, " bytes");
  if (workspace) {
    std::memcpy(&mine.workspace, value, bytes);
  } else if (reductions) {
    std::memcpy(&mine.reductions, value, bytes);
  } else {
    uint32_t& least = mine.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    std::memcpy(&least, value, bytes);
    machine::expect(least > 0 && (least & (least - 1)) == 0, __func__, "alignment ", least);
  }
  machine::write(mine, preference);
  return CUBLAS_STATUS_SUCCESS;
}

// Some of the algorithms that fit in the workspace and the mask, and one that the device would refuse.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_NOT_SUPPORTED)) return told;
  machine::check_handle(__func__, handle);
  ++machine::told().asked;
  machine::expect(requested > 0 && results != nullptr && returned != nullptr, __func__, "nothing asked for");
  const machine::Problem problem = machine::problem_of(__func__, description, a, b, c, d);
  const auto wanted = machine::read<machine::Preference>(preference, __func__, "preference");
  const shiftron::Philox philox(machine::told().seed, "algorithms");
  const uint64_t first = philox.block(problem.hash())[0];
  int count = 0;
  for (int i = 0; i < static_cast<int>(machine::kParts.size()) && count < requested; ++i) {
    const uint64_t number = (first + static_cast<uint64_t>(i)) % machine::kParts.size();
    const int parts = machine::kParts[number];
    machine::Algorithm algorithm{.problem = problem.hash(), .number = number, .alignment = wanted.alignment};
    if (parts > 1) {
      algorithm.workspace = static_cast<uint64_t>(problem.m * problem.n * parts) * sizeof(float);
      algorithm.reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    }
    if (number == machine::kRoundsParts) {
      if (problem.d.type != CUDA_R_16BF) continue;
      algorithm.reduction = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    }
    if (algorithm.workspace > wanted.workspace || (algorithm.reduction & ~uint64_t{wanted.reductions}) != 0) continue;
    algorithm.seal = machine::seal_of(algorithm);
    cublasLtMatmulHeuristicResult_t& result = results[count++];
    result = {};
    machine::write(algorithm, &result.algo);
    result.workspaceSize = algorithm.workspace;
    result.state = CUBLAS_STATUS_SUCCESS;
    if (number != 2) continue;
    std::memset(&result, 0xFF, sizeof(result));
    result.state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *returned = count;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* bytes,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_NOT_SUPPORTED)) return told;
  machine::check_handle(__func__, handle);
  const machine::Problem problem = machine::problem_of(__func__, description, a, b, c, d);
  ++machine::told().checked;
  machine::Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), bytes, sizeof(algorithm));
  if (algorithm.seal != machine::seal_of(algorithm) || algorithm.problem != problem.hash()) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *result = {};
  result->workspaceSize = algorithm.workspace;
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* bytes,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t size, size_t* written) {
  machine::expect(attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, __func__, "attribute ",
                  static_cast<int>(attribute), " is not emulated");
  machine::expect(value != nullptr && written != nullptr && size == sizeof(uint32_t), __func__, "a value of ", size,
                  " bytes");
  machine::Algorithm algorithm;
  std::memcpy(static_cast<void*>(&algorithm), bytes, sizeof(algorithm));
  if (algorithm.seal != machine::seal_of(algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto scheme = static_cast<uint32_t>(algorithm.reduction);
  std::memcpy(value, &scheme, sizeof(scheme));
  *written = sizeof(scheme);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data, cublasLtMatrixLayout_t c,
                              void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* bytes,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (const cublasStatus_t told = machine::refused(__func__, CUBLAS_STATUS_EXECUTION_FAILED)) return told;
  machine::check_handle(__func__, handle);
  machine::expect(alpha != nullptr && beta != nullptr, __func__, "no scale");
  const machine::Problem problem = machine::problem_of(__func__, description, a, b, c, d);
  const machine::Product product{.problem = problem,
                                 .algorithm = machine::algorithm_of(__func__, bytes, problem),
                                 .alpha = *static_cast<const float*>(alpha),
                                 .beta = *static_cast<const float*>(beta),
                                 .a = a_data,
                                 .b = b_data,
                                 .c = c_data,
                                 .d = d_data,
                                 .workspace = static_cast<char*>(workspace),
                                 .workspace_bytes = workspace_bytes,
                                 .seed = machine::told().seed};
  product.check(__func__);
  machine::load_code("a product by algorithm " + std::to_string(product.algorithm.number));
  machine::run_in_stream(stream, [product] { product.begin(); });
  if (product.parts() > 1) machine::run_in_stream(stream, [product] { product.end(); });
  return CUBLAS_STATUS_SUCCESS;
}
