// The matrix unit in loops, with the sums that Intel's manual (volume 2, TDPBF16PS) defines: the even and the odd terms
// of an element separately, each by fused multiply-adds in order, then both are added to the sum. Subnormal inputs and
// results count as zero.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "kernels/matrix_unit.h"

namespace shiftron::fast {
namespace {

constexpr int kTiles = 8, kRows = 16, kWords = 16;

struct Tile {
  int rows = 0, words = 0;  // of a row; no rows: not configured
  uint32_t of[kRows][kWords] = {};
};
struct Registers {
  bool configured = false;
  Tile tiles[kTiles];
};
thread_local Registers registers;

Tile& configured(int tile) {
  Tile& found = registers.tiles[tile];
  CHECK(found.rows > 0, "tile ", tile, " of the matrix unit is used without a configuration");
  return found;
}

float flushed(float value) {
  return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
float low_half(uint32_t word) {
  return flushed(std::bit_cast<float>(word << 16));
}
float high_half(uint32_t word) {
  return flushed(std::bit_cast<float>(word & 0xffff0000u));
}

}  // namespace

MatrixUnitLoops::MatrixUnitLoops() {
  CHECK(!registers.configured, "the matrix unit is still configured by another user");
}

void MatrixUnitLoops::configure(const TileConfiguration& configuration) {
  CHECK(configuration.palette == 1 && configuration.start_row == 0, "no such palette of the matrix unit");
  registers = {};
  registers.configured = true;
  for (size_t tile = 0; tile < kTiles; ++tile) {
    const int rows = configuration.rows[tile], bytes = configuration.row_bytes[tile];
    CHECK(rows <= kRows && bytes <= 4 * kWords && bytes % 4 == 0 && (rows == 0) == (bytes == 0), "tile ", tile,
          " of the matrix unit cannot have ", rows, " rows of ", bytes, " bytes");
    registers.tiles[tile].rows = rows;
    registers.tiles[tile].words = bytes / 4;
  }
}

void MatrixUnitLoops::release() {
  registers = {};
}

void MatrixUnitLoops::zero(int tile) {
  std::memset(configured(tile).of, 0, sizeof(Tile::of));
}

void MatrixUnitLoops::load(int tile, const void* from, int64_t stride_bytes) {
  zero(tile);
  Tile& to = configured(tile);
  for (int row = 0; row < to.rows; ++row) {
    std::memcpy(to.of[row], static_cast<const char*>(from) + row * stride_bytes, static_cast<size_t>(to.words) * 4);
  }
}

void MatrixUnitLoops::store(int tile, void* to, int64_t stride_bytes) {
  const Tile& from = configured(tile);
  for (int row = 0; row < from.rows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride_bytes, from.of[row], static_cast<size_t>(from.words) * 4);
  }
}

void MatrixUnitLoops::multiply(int sum, int left, int right) {
  Tile& c = configured(sum);
  const Tile& a = configured(left);
  const Tile& b = configured(right);
  CHECK(c.rows == a.rows && c.words == b.words && a.words == b.rows, "the matrix unit cannot multiply [", a.rows, ", ",
        a.words, "] by [", b.rows, ", ", b.words, "] to [", c.rows, ", ", c.words, "]");
  for (int m = 0; m < a.rows; ++m) {
    float even[kWords] = {}, odd[kWords] = {};
    for (int k = 0; k < a.words; ++k) {
      const float low = low_half(a.of[m][k]), high = high_half(a.of[m][k]);
      for (int n = 0; n < b.words; ++n) {
        even[n] = flushed(std::fma(low, low_half(b.of[k][n]), even[n]));
        odd[n] = flushed(std::fma(high, high_half(b.of[k][n]), odd[n]));
      }
    }
    for (int n = 0; n < b.words; ++n) {
      const float before = flushed(std::bit_cast<float>(c.of[m][n]));
      c.of[m][n] = std::bit_cast<uint32_t>(flushed(before + flushed(even[n] + odd[n])));
    }
  }
}

}  // namespace shiftron::fast
