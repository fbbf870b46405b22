// What PTX instructions compute from the bits in registers.
#pragma once

#include <cstdint>

#include "cuda/ptx.h"

namespace shiftron::machine::ptx {

inline uint64_t mask_of(int bytes) {
  return bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * bytes)) - 1;
}
inline int64_t signed_of(uint64_t bits, int bytes) {
  const int unused = 64 - 8 * bytes;
  return static_cast<int64_t>(bits << unused) >> unused;
}
inline bool is_signed(Type type) {
  return type.kind == Kind::signed_integer;
}
inline bool is_floating(Type type) {
  return type.kind == Kind::floating;
}

inline __int128 wide_of(uint64_t bits, Type type) {
  return is_signed(type) ? static_cast<__int128>(signed_of(bits, type.bytes))
                         : static_cast<__int128>(bits & mask_of(type.bytes));
}

// Of floating types. Rounded as the instruction says.
uint64_t floating(const Instruction& in, uint64_t a, uint64_t b, uint64_t c);
bool holds(const Instruction& in, uint64_t a, uint64_t b);  // a comparison, of any type
uint64_t converted(const Instruction& in, uint64_t bits);
// 9.7.9.7: four bytes of eight, or their signs.
uint64_t permuted(uint64_t a, uint64_t b, uint64_t selection);

}  // namespace shiftron::machine::ptx
