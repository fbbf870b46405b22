// One product of the emulated cuBLASLt: what its objects hold, what fits together, and the sums themselves.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/check.h"

namespace shiftron::machine {

// What every object begins with while it lives.
constexpr uint64_t kDescription = 0x64657363;
constexpr uint64_t kLayout = 0x6C61796F7574;
constexpr uint64_t kPreference = 0x70726566;
constexpr uint64_t kAlgorithm = 0x616C676F;

constexpr std::array kParts = {1, 2, 1, 3, 4, 1, 2};  // algorithm number i cuts a sum in kParts[i] parts
constexpr uint64_t kRoundsParts = 6;                  // to the result's type, where that is bfloat16

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
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
};
struct Algorithm {
  uint64_t mark = kAlgorithm;
  uint64_t problem = 0;  // hash of what it was made for
  uint64_t number = 0;
  uint64_t workspace = 0;
  uint64_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
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

// D [m, n] = op(A) [m, k] op(B) [k, n], all column-major.
struct Problem {
  Description how;
  Layout a, b, c, d;
  int64_t m = 0, n = 0, k = 0;
  uint64_t hash() const;
};
Problem problem_of(const char* function, cublasLtMatmulDesc_t description, cublasLtMatrixLayout_t a,
                   cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);

uint64_t seal_of(const Algorithm& algorithm);
// What a heuristic made for this problem, else a fault.
Algorithm algorithm_of(const char* function, const cublasLtMatmulAlgo_t* bytes, const Problem& problem);

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

  void check(const char* function) const;  // addresses and what lies there
  int parts() const { return kParts[algorithm.number]; }
  void begin() const;  // first operation: partial sums into the workspace, or all of it
  void end() const;    // second one, of algorithms with parts

 private:
  size_t part_count() const { return static_cast<size_t>(problem.m * problem.n); }
  // Places in 0 … k at which sums are cut; part p is between [p] and [p + 1]. A part may be empty.
  std::vector<int64_t> cuts(int pieces) const;
  // sums [n, m] = the terms from `begin` to `end`.
  void sum_terms(const std::vector<float>& left, const std::vector<float>& right, int64_t begin, int64_t end,
                 float* sums) const;
  void store(const std::vector<float>& sums) const;  // D = alpha · sums + beta · C; beta = 0 does not read C
  void fill_workspace() const;
};

}  // namespace shiftron::machine
