// The seven operations of a processor's matrix unit (Intel AMX: tdpbf16ps), implemented both as instructions and as
// plain loops with the same semantics, so that code on top of them runs and is tested on every machine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace shiftron::fast {

// The operand of ldtilecfg: for each of eight tiles its rows, at most 16, and the bytes of a row, at most 64.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};

  // All eight tiles with 16 rows of 64 bytes.
  static TileConfiguration whole() {
    TileConfiguration to;
    std::fill_n(to.rows.begin(), 8, uint8_t{16});
    std::fill_n(to.row_bytes.begin(), 8, uint16_t{64});
    return to;
  }
};
static_assert(sizeof(TileConfiguration) == 64);

// Whether the processor reports a matrix unit.
bool processor_has_matrix_unit();
// True if the processor has the unit, the system lets this process use it, and a test product is correct. The first
// call asks the system for permission, for all threads.
bool matrix_unit_available();

#if defined(__x86_64__)
// Tiles are registers of a thread. The assembler knows the instructions, so no compiler flag is needed. The "memory"
// clobbers are there because the compiler does not see what they read and write.
struct MatrixUnit {
  static void configure(const TileConfiguration& configuration) {
    asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
  }
  template <int tile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  template <int tile>
  static void load(const void* from, int64_t stride_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(tile) : "memory");
  }
  // The same, for data that is not reused soon: it does not evict other data from the first-level cache.
  template <int tile>
  static void load_once(const void* from, int64_t stride_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride_bytes), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride_bytes), "i"(tile) : "memory");
  }
  // sum [rows, columns] float32 += left [rows, pairs] · right [pairs, columns], of pairs of bfloat16.
  template <int sum, int left, int right>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sum), "i"(left), "i"(right));
  }
  static void release() { asm volatile("tilerelease"); }
};
#endif

// The same in loops. A use that would be an illegal instruction on the processor is an Error(crash) here: a tile
// without a configuration, or operands whose sizes do not match. So is a new configuration before the previous one is
// released.
class MatrixUnitLoops {
 public:
  MatrixUnitLoops();
  void configure(const TileConfiguration& configuration);
  template <int tile>
  void zero() {
    zero(tile);
  }
  template <int tile>
  void load(const void* from, int64_t stride_bytes) {
    load(tile, from, stride_bytes);
  }
  template <int tile>
  void load_once(const void* from, int64_t stride_bytes) {
    load(tile, from, stride_bytes);
  }
  template <int tile>
  void store(void* to, int64_t stride_bytes) const {
    store(tile, to, stride_bytes);
  }
  template <int sum, int left, int right>
  void multiply() {
    multiply(sum, left, right);
  }
  static void release();

 private:
  static void zero(int tile);
  static void load(int tile, const void* from, int64_t stride_bytes);
  static void store(int tile, void* to, int64_t stride_bytes);
  static void multiply(int sum, int left, int right);
};

}  // namespace shiftron::fast
