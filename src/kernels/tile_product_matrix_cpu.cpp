// Small products by a matrix unit: 2 × 2 tiles of sums, so that four products share four loads.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "kernels/cpu_loops.h"
#include "kernels/element.h"
#include "kernels/lines_ahead.h"
#include "kernels/matrix_unit.h"
#include "kernels/tile_product.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shiftron::fast {
namespace {

constexpr int64_t kSide = 16;          // rows of a tile, and words of a row
constexpr int64_t kBlock = 2 * kSide;  // of c, in both directions
constexpr int64_t kDepth = 256;        // pairs: 32 rows of a and 32 columns of b are 32 KiB each
constexpr int64_t kWordBytes = 4;
constexpr int kLinesOfStep = 2;  // prefetched by each step
// Tile numbers: 0 to 3 are sums, row by row; 4 and 5 are of a, 6 and 7 of b.
constexpr int kLeft = 4, kRight = 6;

struct Operands {
  const uint32_t* a;
  int64_t a_stride;
  const uint32_t* b;
  int64_t b_stride;
  float* c;
  int64_t c_stride;
  LinesAhead* ahead;
  const float* next_c;  // of the next block, which is prefetched meanwhile; null after the last
};

// Extents of a block of c. An unused second tile has the first one's extents, so that whole tiles need only one
// configuration.
struct Extents {
  int64_t rows = 0, columns = 0;
  static int64_t second(int64_t both) { return both > kSide ? both - kSide : std::min(both, kSide); }
  TileConfiguration configuration() const {
    TileConfiguration to;
    const auto set = [&](int tile, int64_t tile_rows, int64_t words) {
      to.rows[static_cast<size_t>(tile)] = static_cast<uint8_t>(tile_rows);
      to.row_bytes[static_cast<size_t>(tile)] = static_cast<uint16_t>(words * kWordBytes);
    };
    const int64_t heights[] = {std::min(rows, kSide), second(rows)},
                  widths[] = {std::min(columns, kSide), second(columns)};
    for (const int i : {0, 1}) {
      for (const int j : {0, 1}) set(2 * i + j, heights[i], widths[j]);
      set(kLeft + i, heights[i], kSide);
      set(kRight + i, kSide, widths[i]);
    }
    return to;
  }
  bool configured_like(const Extents& other) const {
    return std::min(rows, kSide) == std::min(other.rows, kSide) && second(rows) == second(other.rows) &&
           std::min(columns, kSide) == std::min(other.columns, kSide) && second(columns) == second(other.columns);
  }
};

// One or two tiles in each direction.
template <typename Unit, bool lower, bool wider>
struct Block {
  Unit& unit;

  // Calls body.template operator()<sum>(place) for each tile of sums.
  template <typename Body>
  void for_sums(const Operands& by, const Body& body) const {
    body.template operator()<0>(by.c);
    if constexpr (wider) body.template operator()<1>(by.c + kSide);
    if constexpr (lower) body.template operator()<2>(by.c + kSide * by.c_stride);
    if constexpr (lower && wider) body.template operator()<3>(by.c + kSide * by.c_stride + kSide);
  }

  // Sixteen pairs: a's words from `a` on, rows of b from `b` on.
  void step(const uint32_t* a, int64_t a_stride, const uint32_t* b, int64_t b_stride) const {
    const int64_t a_bytes = a_stride * kWordBytes, b_bytes = b_stride * kWordBytes;
    unit.template load<kLeft>(a, a_bytes);
    unit.template load<kRight>(b, b_bytes);
    unit.template multiply<0, kLeft, kRight>();
    if constexpr (wider) {
      unit.template load<kRight + 1>(b + kSide, b_bytes);
      unit.template multiply<1, kLeft, kRight + 1>();
    }
    if constexpr (lower) {
      unit.template load<kLeft + 1>(a + kSide * a_stride, a_bytes);
      unit.template multiply<2, kLeft + 1, kRight>();
    }
    if constexpr (lower && wider) unit.template multiply<3, kLeft + 1, kRight + 1>();
  }

  // Fewer than sixteen pairs: uses copies that are padded with zeros.
  void last_step(const Extents& extents, int64_t pairs, const uint32_t* a, const Operands& by,
                 const uint32_t* b) const {
    alignas(64) uint32_t left[kBlock * kSide] = {}, right[kSide * kBlock] = {};
    for (int64_t row = 0; row < extents.rows; ++row) {
      std::memcpy(left + row * kSide, a + row * by.a_stride, static_cast<size_t>(pairs * kWordBytes));
    }
    for (int64_t pair = 0; pair < pairs; ++pair) {
      std::memcpy(right + pair * kBlock, b + pair * by.b_stride, static_cast<size_t>(extents.columns * kWordBytes));
    }
    step(left, kSide, right, kBlock);
  }

  void run(const Extents& extents, int64_t pairs, const Operands& by, bool keep) const {
    const int64_t c_bytes = by.c_stride * kWordBytes;
    for_sums(by, [&]<int sum>(float* c) { keep ? unit.template load<sum>(c, c_bytes) : unit.template zero<sum>(); });
    const uint32_t *a = by.a, *b = by.b;
    const int64_t steps = std::max<int64_t>(1, pairs / kSide), rows_of_step = (kBlock + steps - 1) / steps;
    const float* next = by.next_c;
    for (; pairs >= kSide; pairs -= kSide, a += kSide, b += kSide * by.b_stride) {
      step(a, by.a_stride, b, by.b_stride);
      fetch_lines(by.ahead, kLinesOfStep);
      if (next == nullptr) continue;
      prefetch_rows_to_write(next, rows_of_step, kBlock * kWordBytes, c_bytes);
      next += rows_of_step * by.c_stride;
    }
    if (pairs > 0) last_step(extents, pairs, a, by, b);
    for_sums(by, [&]<int sum>(float* c) { unit.template store<sum>(c, c_bytes); });
  }
};

template <typename Unit>
void run_block(Unit& unit, const Extents& extents, int64_t pairs, const Operands& by, bool keep) {
  const bool lower = extents.rows > kSide, wider = extents.columns > kSide;
  if (lower && wider) return Block<Unit, true, true>{unit}.run(extents, pairs, by, keep);
  if (lower) return Block<Unit, true, false>{unit}.run(extents, pairs, by, keep);
  if (wider) return Block<Unit, false, true>{unit}.run(extents, pairs, by, keep);
  Block<Unit, false, false>{unit}.run(extents, pairs, by, keep);
}

template <typename Unit>
void matrix_product(int64_t m, int64_t n, int64_t pairs, const LeftTile& a, const uint32_t* b, int64_t b_stride,
                    bool keep, float* c, int64_t c_stride, LinesAhead* ahead) {
  CHECK(a.pair_stride == 1, "the matrix unit reads a left operand by rows");
  const auto* words = static_cast<const uint32_t*>(a.words);
  Unit unit;
  Extents configured;
  int64_t depth = 0;
  do {
    const int64_t depths = std::min(kDepth, pairs - depth);
    for (int64_t column = 0; column < n; column += kBlock) {
      for (int64_t row = 0; row < m; row += kBlock) {
        const Extents extents{std::min(kBlock, m - row), std::min(kBlock, n - column)};
        if (!extents.configured_like(configured)) unit.configure(extents.configuration());
        configured = extents;
        float* own = c + row * c_stride + column;
        const float* below = row + kBlock < m ? own + kBlock * c_stride : nullptr;
        const float* next_block = column + kBlock < n ? c + column + kBlock : nullptr;
        run_block(unit, extents, depths,
                  {words + row * a.row_stride + depth, a.row_stride, b + depth * b_stride + column, b_stride, own,
                   c_stride, ahead, below != nullptr ? below : next_block},
                  keep || depth > 0);
      }
    }
    depth += depths;
  } while (depth < pairs);
  unit.release();  // the library configures its own tiles on this thread
}

constexpr TileBody kLoopBody = {matrix_product<MatrixUnitLoops>, true};

#if defined(__x86_64__)
constexpr TileBody kMatrixBody = {matrix_product<MatrixUnit>, true};

// Linux, Documentation/arch/x86/xstate.rst: tile data needs a permission, which a process requests once.
bool permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// A product of integers, which is exact in any order of summation, with edges on all sides.
bool multiplies_rightly() {
  constexpr int64_t kM = 40, kN = 24, kPairs = 20;
  uint32_t a[kM * kPairs], b[kPairs * kN];
  const auto number = [](int64_t i) {  // −3 to 3, two to a word
    const auto half = [](int64_t value) { return uint32_t{to_bfloat16(static_cast<float>(value % 7 - 3)).bits}; };
    return half(i) | half(3 * i + 1) << 16;
  };
  for (int64_t i = 0; i < kM * kPairs; ++i) a[i] = number(i);
  for (int64_t i = 0; i < kPairs * kN; ++i) b[i] = number(5 * i + 2);
  float c[kM * kN], expected[kM * kN];
  kMatrixBody.product(kM, kN, kPairs, {a, kPairs, 1}, b, kN, false, c, kN);
  kLoopBody.product(kM, kN, kPairs, {a, kPairs, 1}, b, kN, false, expected, kN);
  return std::equal(std::begin(c), std::end(c), std::begin(expected));
}
#endif

}  // namespace

bool processor_has_matrix_unit() {
#if defined(__x86_64__)
  constexpr unsigned kFeatures = 7, kBfloat16 = 1u << 22, kTiles = 1u << 24;  // leaf, and bits of edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBfloat16) != 0 && (edx & kTiles) != 0;
#else
  return false;
#endif
}

bool matrix_unit_available() {
#if defined(__x86_64__) && !defined(SHIFTRON_ONE_INSTRUCTION_SET)
  static const bool available = processor_has_matrix_unit() && permitted() && multiplies_rightly();
  return available;
#else
  return false;
#endif
}

const TileBody* matrix_instructions() {
#if defined(__x86_64__)
  return &kMatrixBody;
#else
  return nullptr;
#endif
}

const TileBody* matrix_body(ProductsBy by) {
  if (by == ProductsBy::tile_loops) return &kLoopBody;
  return by == ProductsBy::tiles && matrix_unit_available() ? matrix_instructions() : nullptr;
}

}  // namespace shiftron::fast
