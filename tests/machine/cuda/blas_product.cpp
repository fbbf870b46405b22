// Column-major products in plain loops: sums in float32, split at random.
#include "cuda/blas_product.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <string>

#include "core/hash.h"
#include "core/philox.h"
#include "core/sanitizer.h"

namespace shiftron::machine {
namespace {

constexpr size_t kScribbled = 64 << 10;  // of the workspace, by algorithms that do without
constexpr size_t kWorkspaceAlignment = 256;

int64_t size_of(cudaDataType_t type) {
  return type == CUDA_R_16BF ? 2 : 4;
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

// Reports to ThreadSanitizer what an operation accesses; this file need not be instrumented.
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

struct Range {
  const char* begin;
  const char* end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const Layout& layout, const void* data) {
  const auto* begin = static_cast<const char*>(data);
  return {begin, begin + ((layout.columns - 1) * layout.stride + layout.rows) * size_of(layout.type)};
}

}  // namespace

uint64_t Problem::hash() const {
  std::vector<int64_t> numbers = {how.first, how.second};
  for (const Layout& layout : {a, b, c, d}) {
    numbers.insert(numbers.end(), {layout.type, layout.rows, layout.columns, layout.stride});
  }
  return xxh3_64(numbers.data(), numbers.size() * sizeof(int64_t));
}

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

void Product::check(const char* function) const {
  const void* addresses[] = {a, b, c, d};
  for (size_t i = 0; i < 4; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(addresses[i]);
    expect(address != 0, function, "no matrix ", "ABCD"[i]);
    expect(address % algorithm.alignment[i] == 0, function, "matrix ", "ABCD"[i], " is no multiple of ",
           algorithm.alignment[i], " bytes, as the algorithm requires");
  }
  const Range result = range_of(problem.d, d);
  expect(!result.meets(range_of(problem.a, a)) && !result.meets(range_of(problem.b, b)), function,
         "the result lies in an operand");
  if (c == d) {
    expect(problem.c.stride == problem.d.stride, function, "C and D are one memory and have other strides");
  } else {
    expect(beta == 0 || !result.meets(range_of(problem.c, c)), function, "D lies across C");
  }
  expect(workspace_bytes >= algorithm.workspace, function, "a workspace of ", workspace_bytes,
         " bytes for an algorithm that needs ", algorithm.workspace);
  if (workspace_bytes == 0) return;
  expect(reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment == 0 && workspace != nullptr, function,
         "a workspace at ", static_cast<const void*>(workspace));
  const Range room{workspace, workspace + workspace_bytes};
  expect(!room.meets(result) && !room.meets(range_of(problem.a, a)) && !room.meets(range_of(problem.b, b)), function,
         "a matrix lies in the workspace");
}

std::vector<int64_t> Product::cuts(int pieces) const {
  const Philox philox(seed ^ algorithm.problem, "cuts of algorithm " + std::to_string(algorithm.number));
  std::vector<int64_t> places = {0, problem.k};
  for (int i = 1; i < pieces; ++i) {
    places.push_back(static_cast<int64_t>(philox.uniform(static_cast<uint64_t>(i)) * static_cast<double>(problem.k)));
  }
  std::sort(places.begin(), places.end());
  return places;
}

void Product::sum_terms(const std::vector<float>& left, const std::vector<float>& right, int64_t begin, int64_t end,
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

void Product::store(const std::vector<float>& sums) const {
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

void Product::fill_workspace() const {
  const size_t bytes = std::min(workspace_bytes, std::max<size_t>(algorithm.workspace, kScribbled));
  sanitizer::state_write(workspace, bytes);
  std::memset(workspace, 0xFF, bytes);  // NaN
}

void Product::begin() const {
  fill_workspace();
  state_read_matrix(problem.a, a);
  state_read_matrix(problem.b, b);
  const std::vector<float> left = packed(problem.a, a, problem.how.first == CUBLAS_OP_T);
  const std::vector<float> right = packed(problem.b, b, problem.how.second == CUBLAS_OP_T);
  if (parts() > 1) {
    const std::vector<int64_t> places = cuts(parts());
    for (size_t part = 0; part < static_cast<size_t>(parts()); ++part) {
      float* const sums = reinterpret_cast<float*>(workspace) + part * part_count();
      sum_terms(left, right, places[part], places[part + 1], sums);
      if (algorithm.reduction != CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) continue;
      for (size_t i = 0; i < part_count(); ++i) sums[i] = __bfloat162float(__float2bfloat16_rn(sums[i]));
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

void Product::end() const {
  sanitizer::state_read(workspace, algorithm.workspace);
  std::vector<float> sums(part_count());
  for (size_t part = 0; part < static_cast<size_t>(parts()); ++part) {
    const float* from = reinterpret_cast<const float*>(workspace) + part * part_count();
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += from[i];
  }
  store(sums);
}

}  // namespace shiftron::machine
