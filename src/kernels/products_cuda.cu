// Row-major products with a column-major library: what is stored as [rows, columns] is [columns, rows] to the library.
// So c = op(a) op(b) is requested as cᵀ = op(b)ᵀ op(a)ᵀ: the library's first operand is b, its second a.
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "core/memory_cuda.h"
#include "kernels/device_cuda.h"
#include "kernels/products_cuda.h"
#include "kernels/timing_cuda.h"

namespace shiftron {
namespace {

constexpr int kCandidates = 16;         // requested
constexpr size_t kMostDescribed = 512;  // decoding has many shapes
constexpr int64_t kWorkspaceAlignment = 256;
// Parts of a sum are added in float32, so that a result is rounded once; otherwise the library would add some in
// bfloat16.
constexpr uint32_t kReductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

// One algorithm of a product failed; others may work.
struct FailedProduct : Error {
  explicit FailedProduct(const std::string& message) : Error(message, ExitCode::crash) {}
};

[[noreturn]] void throw_status(cublasStatus_t status, const char* call, const std::string& about) {
  const std::string said = detail::concatenate(cublasLtGetStatusName(status), " for ", about);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) cuda::throw_no_memory(call, said);
  throw FailedProduct(detail::concatenate(call, ": ", said));
}
void check_status(cublasStatus_t status, const char* call, const ProductShape& shape) {
  if (status != CUBLAS_STATUS_SUCCESS) throw_status(status, call, shape.text());
}

struct Destroy {
  void operator()(cublasLtMatmulDescOpaque_t* description) const { cublasLtMatmulDescDestroy(description); }
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { cublasLtMatrixLayoutDestroy(layout); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { cublasLtMatmulPreferenceDestroy(preference); }
  void operator()(cublasLtContext* handle) const { cublasLtDestroy(handle); }
};
struct Free {
  void operator()(void* memory) const { cudaFree(memory); }
};
template <typename T>
using Owner = std::unique_ptr<T, Destroy>;

using Description = Owner<cublasLtMatmulDescOpaque_t>;
using Layout = Owner<cublasLtMatrixLayoutOpaque_t>;
using Preference = Owner<cublasLtMatmulPreferenceOpaque_t>;

cudaDataType_t library_type(DType dtype) {
  CHECK(dtype == DType::float32 || dtype == DType::bfloat16, "no products of ", name_of(dtype));
  return dtype == DType::float32 ? CUDA_R_32F : CUDA_R_16BF;
}

Layout make_layout(const ProductShape& shape, DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_status(cublasLtMatrixLayoutCreate(&layout, library_type(dtype), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), stride),
               "cublasLtMatrixLayoutCreate", shape);
  return Layout(layout);
}

Description make_description(const ProductShape& shape) {
  cublasLtMatmulDesc_t made = nullptr;
  check_status(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate", shape);
  Description description(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    const int32_t operation = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_status(cublasLtMatmulDescSetAttribute(made, attribute, &operation, sizeof(operation)),
                 "cublasLtMatmulDescSetAttribute", shape);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed);
  return description;
}

Preference make_preference(const ProductShape& shape, int64_t workspace) {
  cublasLtMatmulPreference_t made = nullptr;
  check_status(cublasLtMatmulPreferenceCreate(&made), "cublasLtMatmulPreferenceCreate", shape);
  Preference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check_status(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute", shape);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductions);
  for (const auto operand : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                             CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(operand, static_cast<uint32_t>(shape.alignment));
  }
  return preference;
}

// What the library needs for a shape; `first` and `second` are the operands in the library's order.
struct Described {
  explicit Described(const ProductShape& shape)
      : description(make_description(shape)),
        first(shape.b_transposed ? make_layout(shape, shape.operands, shape.n, shape.k, shape.b_stride)
                                 : make_layout(shape, shape.operands, shape.k, shape.n, shape.b_stride)),
        second(shape.a_transposed ? make_layout(shape, shape.operands, shape.k, shape.m, shape.a_stride)
                                  : make_layout(shape, shape.operands, shape.m, shape.k, shape.a_stride)),
        added(make_layout(shape, shape.result, shape.m, shape.n,
                          shape.residual_stride != 0 ? shape.residual_stride : shape.c_stride)),
        result(make_layout(shape, shape.result, shape.m, shape.n, shape.c_stride)) {}
  Description description;
  Layout first, second, added, result;
  ProductChoice choice;
};

struct Operands {
  const void* a;
  const void* b;
  const void* residual;  // null: what is added, if anything, is in c
  void* c;
};

cublasLtMatmulAlgo_t algorithm_of(const ProductChoice& choice) {
  cublasLtMatmulAlgo_t algorithm{};
  static_assert(sizeof(algorithm.data) == sizeof(choice.algorithm));
  std::copy(choice.algorithm.begin(), choice.algorithm.end(), algorithm.data);
  return algorithm;
}

// An invalid algorithm is not reported here, but when it is used.
bool rounds_parts(const ProductChoice& choice) {
  const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
  uint32_t scheme = 0;
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                     &scheme, sizeof(scheme), &written);
  return status == CUBLAS_STATUS_SUCCESS && std::has_single_bit(scheme) && (scheme & kReductions) == 0;
}

}  // namespace

struct CudaProducts::State {
  Owner<cublasLtContext> handle;
  Tensor workspace;
  bool timed = false;
  cuda::ColdCache cold;
  std::vector<std::unique_ptr<void, Free>> elsewhere;  // the last is the largest
  int64_t elsewhere_bytes = 0;                         // of the last one
  ProductChoices choices;
  std::vector<std::string> untimed;
  std::map<ProductShape, Described> described;

  int64_t room() const { return workspace.defined() ? workspace.bytes() : 0; }

  void run(CUstream_st* stream, const ProductShape& shape, const Described& how, const ProductChoice& choice,
           const Operands& on) const {
    const float alpha = 1;
    const float beta = shape.adds || on.residual != nullptr ? 1 : 0;
    const void* added = on.residual != nullptr ? on.residual : on.c;
    const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    check_status(cublasLtMatmul(handle.get(), how.description.get(), &alpha, on.b, how.first.get(), on.a,
                                how.second.get(), &beta, added, how.added.get(), on.c, how.result.get(), &algorithm,
                                workspace.raw(), static_cast<size_t>(room()), stream),
                 "cublasLtMatmul", shape);
  }

  // In the library's order of preference; at least one.
  std::vector<ProductChoice> candidates(const ProductShape& shape, const Described& how) const {
    const Preference preference = make_preference(shape, room());
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int count = 0;
    constexpr const char* kCall = "cublasLtMatmulAlgoGetHeuristic";
    check_status(cublasLtMatmulAlgoGetHeuristic(handle.get(), how.description.get(), how.first.get(), how.second.get(),
                                                how.added.get(), how.result.get(), preference.get(), kCandidates,
                                                found.data(), &count),
                 kCall, shape);
    std::vector<ProductChoice> usable;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& candidate = found[static_cast<size_t>(i)];
      if (candidate.state != CUBLAS_STATUS_SUCCESS) continue;
      ProductChoice& choice = usable.emplace_back();
      std::copy(std::begin(candidate.algo.data), std::end(candidate.algo.data), choice.algorithm.begin());
      choice.workspace = static_cast<int64_t>(candidate.workspaceSize);
    }
    if (usable.empty()) throw_crash(kCall, ": no algorithm for ", shape.text());
    return usable;
  }

  // Memory of this size; null if the device has no room for it with kLeftFree to spare. It is kept until candidates are
  // no longer timed: cudaFree waits for the whole device, where operations may wait for other ranks.
  void* memory_elsewhere(int64_t result_bytes) {
    const int64_t bytes = (result_bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    if (bytes > elsewhere_bytes) {
      void* made = nullptr;
      if (cuda::device_memory().available < bytes + cuda::kLeftFree) return nullptr;
      if (cudaMalloc(&made, static_cast<size_t>(bytes)) != cudaSuccess) {
        cudaGetLastError();  // clears the error, which the next call would report otherwise
        return nullptr;
      }
      elsewhere.emplace_back(made);
      elsewhere_bytes = bytes;
    }
    return elsewhere.back().get();
  }
  void free_elsewhere() {
    elsewhere.clear();
    elsewhere_bytes = 0;
    cold.free();
  }

  // A candidate that fails is skipped. If the device is lost, all of them fail.
  void time_all(CUstream_st* stream, const ProductShape& shape, const Described& how, const Operands& on,
                std::vector<ProductChoice>& candidates) {
    size_t failed = 0;
    std::erase_if(candidates, [&](ProductChoice& choice) {
      try {
        choice.seconds = cuda::seconds_of(stream, cold, [&] { run(stream, shape, how, choice, on); });
        return false;
      } catch (const FailedProduct& failure) {
        if (candidates.size() == ++failed) throw;
        untimed.push_back(detail::concatenate("a candidate fails: ", failure.what()));
        return true;
      }
    });
  }

  // If a product adds to c, c must not change while candidates run: they write to other memory, and without room for
  // that the first candidate is taken untimed.
  ProductChoice fastest(CUstream_st* stream, const ProductShape& shape, const Described& how, Operands on) {
    std::vector<ProductChoice> found = candidates(shape, how);
    if (found.size() == 1) return found.front();
    if (shape.adds) {
      on.c = memory_elsewhere(shape.m * shape.c_stride * size_of(shape.result));
      if (on.c == nullptr) {
        untimed.push_back("not enough memory to time " + shape.text());
        return found.front();
      }
    }
    time_all(stream, shape, how, on, found);
    return *std::min_element(found.begin(), found.end(),
                             [](const auto& one, const auto& other) { return one.seconds < other.seconds; });
  }

  // A choice that was loaded must fit the product for which it is used.
  void check_choice(const ProductShape& shape, const Described& how, const ProductChoice& choice) const {
    const cublasLtMatmulAlgo_t algorithm = algorithm_of(choice);
    cublasLtMatmulHeuristicResult_t result{};
    check_status(cublasLtMatmulAlgoCheck(handle.get(), how.description.get(), how.first.get(), how.second.get(),
                                         how.added.get(), how.result.get(), &algorithm, &result),
                 "cublasLtMatmulAlgoCheck", shape);
    CHECK(static_cast<int64_t>(result.workspaceSize) <= room(), "an algorithm needs a workspace of ",
          result.workspaceSize, " bytes, but has ", room(), ": ", shape.text());
  }

  const Described& find(CUstream_st* stream, const ProductShape& shape, const Operands& on) {
    const auto found = described.find(shape);
    if (found != described.end()) return found->second;
    if (described.size() >= kMostDescribed) described.clear();
    Described made(shape);
    const auto known = choices.of.find(shape);
    if (known != choices.of.end()) {
      made.choice = known->second;
      check_choice(shape, made, made.choice);
    } else {
      made.choice = timed ? fastest(stream, shape, made, on) : candidates(shape, made).front();
      choices.of.emplace(shape, made.choice);
    }
    return described.emplace(shape, std::move(made)).first->second;
  }
};

CudaProducts::CudaProducts(Tensor workspace, const std::string& device) : state_(std::make_unique<State>()) {
  if (workspace.defined()) {
    CHECK(workspace.contiguous() && workspace.dtype() == DType::uint8 && workspace.device() == DeviceKind::cuda,
          "a workspace of ", name_of(workspace.dtype()), " on ", name_of(workspace.device()));
    CHECK(reinterpret_cast<uintptr_t>(workspace.raw()) % kWorkspaceAlignment == 0, "the workspace at ", workspace.raw(),
          " is not aligned to ", kWorkspaceAlignment);
  }
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) throw_status(status, "cublasLtCreate", device);
  state_->handle.reset(handle);
  state_->workspace = workspace;
  state_->choices.device = device;
  state_->choices.library = static_cast<int64_t>(cublasLtGetVersion());
}

CudaProducts::~CudaProducts() = default;

void CudaProducts::run(CUstream_st* stream, const ProductShape& shape, const void* a, const void* b,
                       const void* residual, void* c) {
  CHECK((residual != nullptr) == (shape.residual_stride != 0), "a residual at ", residual, " for ", shape.text());
  CHECK(residual == nullptr || !shape.adds, "both a residual and a previous value to add to: ", shape.text());
  const Operands on{a, b, residual, c};
  const Described& how = state_->find(stream, shape, on);
  state_->run(stream, shape, how, how.choice, on);
}

void CudaProducts::time_candidates(bool timed) {
  if (timed && !state_->timed) state_->cold.take();
  state_->timed = timed;
  if (!timed) state_->free_elsewhere();
}

const std::vector<std::string>& CudaProducts::untimed() const {
  return state_->untimed;
}

const ProductChoices& CudaProducts::choices() const {
  return state_->choices;
}

void CudaProducts::adopt(const ProductChoices& choices) {
  for (const auto& [shape, choice] : choices.of) {
    if (rounds_parts(choice)) throw ForeignChoices("the chosen algorithm rounds partial sums: " + shape.text());
  }
  state_->choices.adopt(choices, "products were", "cuBLASLt");
  for (auto& [shape, how] : state_->described) {
    const ProductChoice& choice = state_->choices.of.at(shape);
    if (choice.algorithm == how.choice.algorithm) continue;
    state_->check_choice(shape, how, choice);
    how.choice = choice;
  }
}

}  // namespace shiftron
