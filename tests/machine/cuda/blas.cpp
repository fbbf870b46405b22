// A stand-in for the part of cuBLASLt that products use, in plain loops: column-major matrices, sums in float32 that
// are cut at random. What it does not know or what does not fit is an Error, never a guess; what it does not define
// does not link. An algorithm with a workspace works in two operations of the stream, so that somebody else's use of it
// shows.
#include "cuda/blas.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/sanitizer.h"
#include "cuda/streams.h"

struct cublasLtContext {
  uint64_t mark;
};

namespace shiftron::machine {
namespace {

// What every object begins with while it lives.
constexpr uint64_t kHandle = 0x68616E646C65;
constexpr uint64_t kDescription = 0x64657363;
constexpr uint64_t kLayout = 0x6C61796F7574;
constexpr uint64_t kPreference = 0x70726566;
constexpr uint64_t kAlgorithm = 0x616C676F;

constexpr int kAlgorithms = 6;  // that exist; number i cuts a sum in kParts[i] parts
constexpr int kParts[] = {1, 2, 1, 3, 4, 1};
constexpr size_t kScribbled = 64 << 10;  // of the workspace, by algorithms that do without
constexpr size_t kWorkspaceAlignment = 256;

struct Told {  // by tests
  std::atomic<uint64_t> seed{0};
  std::atomic<int64_t> living{0};
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

// Where `function` is to be refused: with what. Else success.
cublasStatus_t refused(const char* function) {
  if (refusal().function != function) return CUBLAS_STATUS_SUCCESS;
  refusal().function.clear();
  return refusal().status;
}

template <typename... Parts>
void expect(bool condition, const char* function, const Parts&... parts) {
  if (!condition) throw_crash(function, ": ", parts...);
}

struct Layout {
  uint64_t mark = kLayout;
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, stride = 0;  // elements from one column to the next
};
struct Description {
  uint64_t mark = kDescription;
  int32_t first = CUBLAS_OP_N, second = CUBLAS_OP_N;
};
struct Preference {
  uint64_t mark = kPreference;
  uint64_t workspace = 0;
  std::array<uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
};
struct Algorithm {
  uint64_t mark = kAlgorithm;
  uint64_t problem = 0;  // hash of what it was made for
  uint64_t number = 0;
  uint64_t workspace = 0;
  std::array<uint32_t, 4> alignment{};
  uint64_t seal = 0;  // hash of all that
};

template <typename Mine, typename Theirs>
void write(const Mine& mine, Theirs* theirs) {
  static_assert(sizeof(Mine) <= sizeof(Theirs) && std::is_trivially_copyable_v<Mine>);
  std::memcpy(theirs, &mine, sizeof(Mine));
}
template <typename Mine, typename Theirs>
Mine read(const Theirs* theirs, const char* function, const char* what) {
  Mine mine;
  expect(theirs != nullptr, function, "no ", what);
  std::memcpy(static_cast<void*>(&mine), theirs, sizeof(Mine));
  expect(mine.mark == Mine{}.mark, function, "the ", what, " was destroyed, or never made");
  return mine;
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

int64_t size_of(cudaDataType_t type) {
  return type == CUDA_R_16BF ? 2 : 4;
}

// D [m, n] = op(A) [m, k] op(B) [k, n], all column-major.
struct Problem {
  Description how;
  Layout a, b, c, d;
  int64_t m = 0, n = 0, k = 0;

  uint64_t hash() const {
    std::vector<int64_t> numbers = {how.first, how.second};
    for (const Layout& layout : {a, b, c, d}) {
      numbers.insert(numbers.end(), {layout.type, layout.rows, layout.columns, layout.stride});
    }
    return xxh3_64(numbers.data(), numbers.size() * sizeof(int64_t));
  }
};

Problem problem_of(const char* function, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  Problem problem{.how = read<Description>(description, function, "description"),
                  .a = read<Layout>(a, function, "layout of A"),
                  .b = read<Layout>(b, function, "layout of B"),
                  .c = read<Layout>(c, function, "layout of C"),
                  .d = read<Layout>(d, function, "layout of D")};
  const bool a_turned = problem.how.first == CUBLAS_OP_T;
  const bool b_turned = problem.how.second == CUBLAS_OP_T;
  problem.m = a_turned ? problem.a.columns : problem.a.rows;
  problem.k = a_turned ? problem.a.rows : problem.a.columns;
  problem.n = b_turned ? problem.b.rows : problem.b.columns;
  const int64_t b_terms = b_turned ? problem.b.columns : problem.b.rows;
  expect(problem.k == b_terms, function, "op(A) has ", problem.k, " columns, op(B) ", b_terms, " rows");
  for (const Layout& result : {problem.c, problem.d}) {
    expect(result.rows == problem.m && result.columns == problem.n, function, "a result of ", result.rows, " x ",
           result.columns, ", the product has ", problem.m, " x ", problem.n);
  }
  expect(problem.a.type == problem.b.type && problem.c.type == problem.d.type, function, "types differ in a pair");
  expect(problem.a.type == CUDA_R_16BF || problem.d.type == CUDA_R_32F, function, "float32 to bfloat16");
  return problem;
}

uint64_t seal_of(const Algorithm& algorithm) {
  return xxh3_64(&algorithm, offsetof(Algorithm, seal));
}

Algorithm algorithm_of(const char* function, const cublasLtMatmulAlgo_t* bytes, const Problem& problem) {
  expect(bytes != nullptr, function, "no algorithm");
  const auto algorithm = read<Algorithm>(bytes, function, "algorithm");
  expect(algorithm.seal == seal_of(algorithm), function, "no heuristic made this algorithm");
  expect(algorithm.problem == problem.hash(), function, "the algorithm was made for another product");
  return algorithm;
}

// Column-major and packed, float32: op(matrix) where `rows` is the extent of its columns.
std::vector<float> packed(const Layout& layout, const void* data, bool turned) {
  const int64_t rows = turned ? layout.columns : layout.rows;
  std::vector<float> values(static_cast<size_t>(layout.rows * layout.columns));
  for (int64_t column = 0; column < layout.columns; ++column) {
    const int64_t start = column * layout.stride;
    const auto* narrow = static_cast<const __nv_bfloat16*>(data) + start;
    const auto* wide = static_cast<const float*>(data) + start;
    for (int64_t row = 0; row < layout.rows; ++row) {
      const float value = layout.type == CUDA_R_16BF ? __bfloat162float(narrow[row]) : wide[row];
      values[static_cast<size_t>(turned ? row * rows + column : column * rows + row)] = value;
    }
  }
  return values;
}

// ThreadSanitizer is told what an operation touches; this file need not be instrumented.
void state_read_matrix(const Layout& layout, const void* data) {
  for (int64_t column = 0; sanitizer::kThreads && column < layout.columns; ++column) {
    sanitizer::state_read(static_cast<const char*>(data) + column * layout.stride * size_of(layout.type),
                          static_cast<size_t>(layout.rows * size_of(layout.type)));
  }
}
void state_write_matrix(const Layout& layout, void* data) {
  for (int64_t column = 0; sanitizer::kThreads && column < layout.columns; ++column) {
    sanitizer::state_write(static_cast<char*>(data) + column * layout.stride * size_of(layout.type),
                           static_cast<size_t>(layout.rows * size_of(layout.type)));
  }
}

// A call, copied: the stream comes to it later.
struct Product {
  Problem problem;
  Algorithm algorithm;
  float alpha, beta;
  const void *a, *b, *c;
  void* d;
  char* workspace;
  size_t workspace_bytes;
  uint64_t seed;

  int parts() const { return kParts[algorithm.number]; }
  size_t part_count() const { return static_cast<size_t>(problem.m * problem.n); }

  // Places in 0 … k at which sums are cut; part p is between [p] and [p + 1]. A part may be empty.
  std::vector<int64_t> cuts(int pieces) const {
    const Philox philox(seed ^ algorithm.problem, "cuts of algorithm " + std::to_string(algorithm.number));
    std::vector<int64_t> places = {0, problem.k};
    for (int i = 1; i < pieces; ++i) {
      places.push_back(static_cast<int64_t>(philox.uniform(static_cast<uint64_t>(i)) * static_cast<double>(problem.k)));
    }
    std::sort(places.begin(), places.end());
    return places;
  }

  // sums [n, m] = the terms from `begin` to `end`.
  void sum_terms(const std::vector<float>& left, const std::vector<float>& right, int64_t begin, int64_t end,
                 float* sums) const {
    std::fill(sums, sums + part_count(), 0.0f);
    for (int64_t column = 0; column < problem.n; ++column) {
      float* sum = sums + column * problem.m;
      for (int64_t term = begin; term < end; ++term) {
        const float factor = right[static_cast<size_t>(column * problem.k + term)];
        const float* values = left.data() + term * problem.m;
        for (int64_t row = 0; row < problem.m; ++row) sum[row] += values[row] * factor;
      }
    }
  }

  // D = alpha · sums + beta · C; beta = 0 does not read C.
  void store(const std::vector<float>& sums) const {
    if (beta != 0) state_read_matrix(problem.c, c);
    state_write_matrix(problem.d, d);
    for (int64_t column = 0; column < problem.n; ++column) {
      for (int64_t row = 0; row < problem.m; ++row) {
        const int64_t from = column * problem.c.stride + row, to = column * problem.d.stride + row;
        const bool narrow = problem.d.type == CUDA_R_16BF;
        float value = alpha * sums[static_cast<size_t>(column * problem.m + row)];
        if (beta != 0) {
          value += beta * (narrow ? __bfloat162float(static_cast<const __nv_bfloat16*>(c)[from])
                                  : static_cast<const float*>(c)[from]);
        }
        if (narrow) {
          static_cast<__nv_bfloat16*>(d)[to] = __float2bfloat16_rn(value);
        } else {
          static_cast<float*>(d)[to] = value;
        }
      }
    }
  }

  void fill_workspace() const {
    const size_t bytes = std::min(workspace_bytes, std::max<size_t>(algorithm.workspace, kScribbled));
    sanitizer::state_write(workspace, bytes);
    std::memset(workspace, 0xFF, bytes);  // NaN
  }

  // First operation: partial sums into the workspace, or all of it.
  void begin() const {
    fill_workspace();
    state_read_matrix(problem.a, a);
    state_read_matrix(problem.b, b);
    const std::vector<float> left = packed(problem.a, a, problem.how.first == CUBLAS_OP_T);
    const std::vector<float> right = packed(problem.b, b, problem.how.second == CUBLAS_OP_T);
    if (parts() > 1) {
      const std::vector<int64_t> places = cuts(parts());
      for (size_t part = 0; part < static_cast<size_t>(parts()); ++part) {
        sum_terms(left, right, places[part], places[part + 1],
                  reinterpret_cast<float*>(workspace) + part * part_count());
      }
      return;
    }
    std::vector<float> sums(part_count()), more(part_count());
    const std::vector<int64_t> places = cuts(3);
    for (size_t part = 0; part + 1 < places.size(); ++part) {
      sum_terms(left, right, places[part], places[part + 1], more.data());
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
    }
    store(sums);
  }

  // Second one, of algorithms with parts.
  void end() const {
    sanitizer::state_read(workspace, algorithm.workspace);
    std::vector<float> sums(part_count());
    for (size_t part = 0; part < static_cast<size_t>(parts()); ++part) {
      const float* from = reinterpret_cast<const float*>(workspace) + part * part_count();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
    }
    store(sums);
  }
};

struct Range {
  const char* begin;
  const char* end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const Layout& layout, const void* data) {
  const auto* begin = static_cast<const char*>(data);
  return {begin, begin + ((layout.columns - 1) * layout.stride + layout.rows) * size_of(layout.type)};
}

void check_operands(const char* function, const Product& product) {
  const Problem& problem = product.problem;
  const void* addresses[] = {product.a, product.b, product.c, product.d};
  for (size_t i = 0; i < 4; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(addresses[i]);
    expect(address != 0, function, "no matrix ", "ABCD"[i]);
    expect(address % product.algorithm.alignment[i] == 0, function, "matrix ", "ABCD"[i], " is no multiple of ",
           product.algorithm.alignment[i], " bytes, as the algorithm was told");
  }
  const Range result = range_of(problem.d, product.d);
  expect(!result.meets(range_of(problem.a, product.a)) && !result.meets(range_of(problem.b, product.b)), function,
         "the result lies in an operand");
  if (product.c == product.d) {
    expect(problem.c.stride == problem.d.stride, function, "C and D are one memory and have other strides");
  } else {
    expect(product.beta == 0 || !result.meets(range_of(problem.c, product.c)), function, "D lies across C");
  }
  expect(product.workspace_bytes >= product.algorithm.workspace, function, "a workspace of ", product.workspace_bytes,
         " bytes for an algorithm that needs ", product.algorithm.workspace);
  if (product.workspace_bytes == 0) return;
  expect(reinterpret_cast<uintptr_t>(product.workspace) % kWorkspaceAlignment == 0 && product.workspace != nullptr,
         function, "a workspace at ", static_cast<const void*>(product.workspace));
  const Range workspace{product.workspace, product.workspace + product.workspace_bytes};
  expect(!workspace.meets(result) && !workspace.meets(range_of(problem.a, product.a)) &&
             !workspace.meets(range_of(problem.b, product.b)),
         function, "a matrix lies in the workspace");
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
int64_t living_product_objects() {
  return told().living;
}

}  // namespace shiftron::machine

namespace machine = shiftron::machine;

// Returns what a test told this function to return, if it did.
#define REFUSE_IF_TOLD() \
  if (const cublasStatus_t told = machine::refused(__func__); told != CUBLAS_STATUS_SUCCESS) return told

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
  REFUSE_IF_TOLD();
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
  REFUSE_IF_TOLD();
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
  REFUSE_IF_TOLD();
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
      shiftron::throw_crash(__func__, ": attribute ", static_cast<int>(attribute), " has no stand-in");
  }
  machine::write(mine, description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  REFUSE_IF_TOLD();
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
  REFUSE_IF_TOLD();
  machine::create(made, machine::Preference{});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return machine::destroy<machine::Preference>(preference, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  REFUSE_IF_TOLD();
  auto mine = machine::read<machine::Preference>(preference, __func__, "preference");
  const bool workspace = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
  const bool alignment = attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
                         attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
  machine::expect(workspace || alignment, __func__, "attribute ", static_cast<int>(attribute), " has no stand-in");
  machine::expect(value != nullptr && bytes == (workspace ? sizeof(uint64_t) : sizeof(uint32_t)), __func__,
                  "a value of ", bytes, " bytes");
  if (workspace) {
    std::memcpy(&mine.workspace, value, bytes);
  } else {
    uint32_t& least = mine.alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
    std::memcpy(&least, value, bytes);
    machine::expect(least > 0 && (least & (least - 1)) == 0, __func__, "alignment ", least);
  }
  machine::write(mine, preference);
  return CUBLAS_STATUS_SUCCESS;
}

// Some of the algorithms that fit in the workspace, and one that the device would refuse.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  REFUSE_IF_TOLD();
  machine::check_handle(__func__, handle);
  machine::expect(requested > 0 && results != nullptr && returned != nullptr, __func__, "nothing asked for");
  const machine::Problem problem = machine::problem_of(__func__, description, a, b, c, d);
  const auto wanted = machine::read<machine::Preference>(preference, __func__, "preference");
  const shiftron::Philox philox(machine::told().seed, "algorithms");
  const uint64_t first = philox.block(problem.hash())[0];
  int count = 0;
  for (int i = 0; i < machine::kAlgorithms && count < requested; ++i) {
    const uint64_t number = (first + static_cast<uint64_t>(i)) % machine::kAlgorithms;
    const int parts = machine::kParts[number];
    machine::Algorithm algorithm{.problem = problem.hash(), .number = number, .alignment = wanted.alignment};
    if (parts > 1) algorithm.workspace = static_cast<uint64_t>(problem.m * problem.n * parts) * sizeof(float);
    if (algorithm.workspace > wanted.workspace) continue;
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
  REFUSE_IF_TOLD();
  machine::check_handle(__func__, handle);
  const machine::Problem problem = machine::problem_of(__func__, description, a, b, c, d);
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

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a_data, cublasLtMatrixLayout_t a, const void* b_data,
                              cublasLtMatrixLayout_t b, const void* beta, const void* c_data, cublasLtMatrixLayout_t c,
                              void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* bytes,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  REFUSE_IF_TOLD();
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
  machine::check_operands(__func__, product);
  machine::run_in_stream(stream, [product] { product.begin(); });
  if (product.parts() > 1) machine::run_in_stream(stream, [product] { product.end(); });
  return CUBLAS_STATUS_SUCCESS;
}
